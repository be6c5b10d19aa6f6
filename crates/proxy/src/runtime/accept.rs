//! From a socket to the protocol that a connection speaks.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use std::time::Duration;

use myriad_base::task;
use myriad_model::{ListenerProtocol, Name};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::http::worker::Worker;
use crate::http::{h1, h2};
use crate::net::count::Count;
use crate::net::stream::Stream;
use crate::route::passage::Arrival;
use crate::route::visit::Visit;
use crate::tcp;
use crate::tcp::serve::{Room, Taken};
use crate::tls::accept::{Accepted, HandshakeError, Handshakes, Passed};

/// How long an acceptor waits where the system or a limit lets it accept nothing.
const PAUSE: Duration = Duration::from_millis(20);

/// Handshakes of one worker.
pub struct Handshaking {
    shared: Arc<Handshakes>,
    count: Cell<usize>,
}

/// Accepts from one socket.
pub struct Acceptor {
    pub worker: Rc<Worker>,
    pub handshaking: Rc<Handshaking>,
    pub listener: Name,
    pub stop: CancellationToken,
    /// Tells the connections that the listener is gone.
    pub is_closing: Arc<AtomicBool>,
}

/// Counts as a connection for as long as it is held. It is taken before the connection's task
/// runs, so that a drain cannot overlook one that was just accepted.
struct Connected(Rc<Worker>);

impl Connected {
    fn new(worker: Rc<Worker>) -> Self {
        worker.connections.set(worker.connections.get() + 1);
        Connected(worker)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
    }
}

/// Counts as a handshake for as long as it is held.
struct Shaking<'a>(&'a Cell<usize>);

impl<'a> Shaking<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Shaking(count)
    }
}

impl Drop for Shaking<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Handshaking {
    /// No handshakes.
    pub fn new(shared: Arc<Handshakes>) -> Self {
        Handshaking {
            shared,
            count: Cell::new(0),
        }
    }
}

impl Acceptor {
    /// Accepts until it is stopped, and then what waits in the queue: those clients were told
    /// that they are connected.
    pub async fn run(self, socket: std::net::TcpListener) {
        let _counted = Connected::new(self.worker.clone());
        let socket = match TcpListener::from_std(socket) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::error!(%error, listener = %self.listener, "a socket cannot be used");
                return;
            }
        };
        let port = socket.local_addr().map_or(0, |address| address.port());
        let limits = self.worker.local.limits.clone();
        loop {
            if self.worker.connections.get() > limits.connections_max {
                tokio::select! {
                    () = self.stop.cancelled() => break,
                    () = tokio::time::sleep(PAUSE) => continue,
                }
            }
            tokio::select! {
                biased;
                accepted = socket.accept() => self.take(accepted, port).await,
                () = self.stop.cancelled() => break,
            }
        }
        while let Some(accepted) = poll_fn(|context| match socket.poll_accept(context) {
            Poll::Ready(accepted) => Poll::Ready(accepted.ok()),
            Poll::Pending => Poll::Ready(None),
        })
        .await
        {
            self.take(Ok(accepted), port).await;
        }
    }

    async fn take(&self, accepted: io::Result<(TcpStream, SocketAddr)>, port: u16) {
        let (tcp, client) = match accepted {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of files or memory, or a client that left at once; either passes.
                tokio::time::sleep(PAUSE).await;
                return;
            }
        };
        self.worker.local.counts.add(Count::Accepted);
        let connected = Connected::new(self.worker.clone());
        let handshaking = self.handshaking.clone();
        let mut visit = Visit::new(self.listener.clone(), client, port);
        visit.is_closing = self.is_closing.clone();
        visit.address = tcp.local_addr().ok().map(|address| address.ip());
        task::spawn_local("connection", serve(connected, handshaking, visit, tcp));
    }
}

async fn serve(
    connected: Connected,
    handshaking: Rc<Handshaking>,
    mut visit: Visit,
    tcp: TcpStream,
) {
    let worker = &connected.0;
    let kind = {
        let tables = worker.tables.load();
        let listener = tables.listener(&visit.listener);
        listener.map(|it| (it.tls, it.protocol))
    };
    // A listener that is gone has nobody.
    let Some((is_tls, protocol)) = kind else {
        worker.local.counts.add(Count::Closed);
        return;
    };
    let opened = match is_tls {
        true => secure(worker, &handshaking, &mut visit, tcp).await,
        false => Some(open(worker, &visit, tcp, protocol)),
    };
    // What lives on in a box does so for this task's sake: it has room for the largest of its
    // waits, and most connections speak HTTP/1.
    match opened {
        Some(Opened::Taken(taken)) => {
            let room = Room {
                local: &worker.local,
                links: &worker.links,
                tables: &worker.tables,
            };
            Box::pin(tcp::serve::serve(room, &visit, *taken)).await;
        }
        // Streams that no passage takes lead nowhere.
        Some(Opened::Free(_)) if protocol == ListenerProtocol::Tcp => {
            worker.local.counts.add(Count::StreamFailed);
        }
        Some(Opened::Free(Stream::Tls(tls))) if tls.alpn() == Some(b"h2") => {
            Box::pin(h2::serve(worker.clone(), visit, Stream::Tls(tls))).await;
        }
        Some(Opened::Free(stream)) => h1::serve(worker.clone(), visit, stream).await,
        None => {}
    }
    worker.local.counts.add(Count::Closed);
}

/// A connection that says something.
enum Opened {
    /// No passage takes it.
    Free(Stream),
    /// A passage does.
    Taken(Box<Taken>),
}

/// A connection in plain text, which a passage may take whatever it says.
fn open(worker: &Worker, visit: &Visit, tcp: TcpStream, protocol: ListenerProtocol) -> Opened {
    if protocol != ListenerProtocol::Tcp {
        return Opened::Free(Stream::Plain(tcp));
    }
    // Without it what little is said at a time would wait for acknowledgements.
    let _ = tcp.set_nodelay(true);
    let arrival = arrival(visit);
    let entry = worker.tables.load().passage(arrival, None).cloned();
    let own = arrival.own;
    let client = Stream::Plain(tcp);
    match entry {
        Some(entry) => Opened::Taken(Box::new(Taken {
            client,
            said: None,
            sni: None,
            own,
            entry,
        })),
        None => Opened::Free(client),
    }
}

/// What a passage is looked for by.
fn arrival(visit: &Visit) -> Arrival<'_> {
    Arrival {
        listener: &visit.listener,
        client: visit.client.ip(),
        own: visit.address,
        is_terminated: false,
    }
}

async fn secure(
    worker: &Worker,
    handshaking: &Handshaking,
    visit: &mut Visit,
    tcp: TcpStream,
) -> Option<Opened> {
    let limits = &worker.local.limits;
    let counts = &worker.local.counts;
    if handshaking.count.get() >= limits.handshakes_max {
        counts.add(Count::Shed);
        return None;
    }
    let _counted = Shaking::new(&handshaking.count);
    let shared = &handshaking.shared;
    let load = || worker.tables.load();
    let arrival = arrival(visit);
    let own = arrival.own;
    let accepted = shared.accept(tcp, arrival, load, limits, counts);
    // Boxed, because a handshake is large and short, and the connection behind it neither.
    let accepted = tokio::time::timeout(limits.handshake_timeout, Box::pin(accepted)).await;
    let failure = match accepted {
        Ok(Ok(Accepted::Secured(tls, secured, entry))) => {
            let sni = entry.as_ref().and_then(|_| secured.sni.clone());
            visit.secured = Some(secured);
            let client = Stream::Tls(tls);
            return Some(match entry {
                None => Opened::Free(client),
                Some(entry) => Opened::Taken(Box::new(Taken {
                    client,
                    said: None,
                    sni,
                    own,
                    entry,
                })),
            });
        }
        Ok(Ok(Accepted::Passed(passed))) => {
            let Passed {
                tcp,
                received,
                sni,
                entry,
            } = *passed;
            let _ = tcp.set_nodelay(true);
            return Some(Opened::Taken(Box::new(Taken {
                client: Stream::Plain(tcp),
                said: Some(received),
                sni,
                own,
                entry,
            })));
        }
        Ok(Err(HandshakeError::UnknownName)) => Count::HandshakeUnknownName,
        Ok(Err(_)) => Count::HandshakeFailed,
        Err(_) => Count::HandshakeTimeout,
    };
    counts.add(failure);
    None
}

#[cfg(test)]
mod tests {
    use super::serve;
    use crate::net::record::Tls;

    const fn bytes_of<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    // What each connection takes beside what rustls allocates, whether or not it does anything:
    // room for the largest of its waits. A wait that is rare and large goes into a box.
    const _: () = assert!(bytes_of(serve) <= 2_944, "a connection takes little");
    const _: () = assert!(size_of::<Tls>() <= 1_280, "and TLS too");
}
