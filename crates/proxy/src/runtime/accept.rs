//! The way from a socket to the protocol that a connection speaks.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_base::task;
use myriad_model::{CaptureDirection, ListenerProtocol, Name};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use super::hear::hear;
use super::open::{
    Handshaking, Kind, OpenedConnection, has_share, may_come, open, open_captured, secure,
};
use crate::admission::pressure::PressureStep;
use crate::admission::room::{Hush, Seat};
use crate::admission::silent::source_of;
use crate::codec::buffer::Buffer;
use crate::http::downstream::h1::Start;
use crate::http::downstream::{h1, h2};
use crate::http::worker::Worker;
use crate::limits::Reached;
use crate::mesh::original::original;
use crate::net::socket::BACKLOG;
use crate::net::stream::Stream;
use crate::route::downstream_connection::DownstreamConnection;
use crate::tcp;
use crate::tcp::serve::StreamContext;
use crate::telemetry::count::Count;

/// How long an acceptor waits where the system or a limit lets it accept nothing.
const PAUSE: Duration = Duration::from_millis(20);

/// How long an acceptor takes connections, where many wait, before others have their turn.
const ACCEPT_TIME: Duration = Duration::from_millis(1);

/// The listener or capture that the connections of a socket belong to.
pub(super) enum Door {
    /// A listener.
    Listener(Name),
    /// Whatever each of them was meant for: network rules led it here. The ports are those of
    /// all such sockets.
    Capture(CaptureDirection, Arc<[u16]>),
}

/// Accepts from one socket.
pub(super) struct Acceptor {
    pub worker: Rc<Worker>,
    pub handshaking: Rc<Handshaking>,
    pub door: Door,
    pub stop: CancellationToken,
    /// Tells the connections that the listener is gone.
    pub is_closing: Arc<AtomicBool>,
}

/// Counts as a connection for as long as it is held. It is taken before the connection's task
/// runs, so that a drain cannot overlook one that was just accepted.
pub(super) struct Connected(Rc<Worker>);

impl Connected {
    /// One connection more.
    pub(super) fn new(worker: Rc<Worker>) -> Self {
        worker.connections.set(worker.connections.get() + 1);
        Connected(worker)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
    }
}

/// The time that an acceptor takes at once.
struct Spell {
    /// How long it may be.
    time: Duration,
    /// When it began; none where nothing has come since others had their turn.
    began: Option<Instant>,
}

impl Spell {
    /// Lets others have their turn once it has been long enough.
    async fn end_in_time(&mut self) {
        let now = clock::now();
        let began = *self.began.get_or_insert(now);
        if now.saturating_duration_since(began) >= self.time {
            self.began = None;
            tokio::task::yield_now().await;
        }
    }
}

impl Acceptor {
    /// Accepts until it is stopped, and then as many as may wait in the queue: those clients were
    /// told that they are connected. It ends however many come meanwhile.
    pub(super) async fn run(self, socket: std::net::TcpListener) {
        self.run_by(socket, ACCEPT_TIME).await;
    }

    /// The same for so long at a time.
    pub(super) async fn run_by(self, socket: std::net::TcpListener, time: Duration) {
        let _counted = Connected::new(self.worker.clone());
        let socket = match TcpListener::from_std(socket) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::error!(%error, "a socket cannot be used");
                return;
            }
        };
        // By the runtime's bound on what a task does at a time a long queue would last for several
        // passes of the loop, and at the end the rest of it would be closed unseen.
        coop::unconstrained(self.accept(&socket, time)).await;
    }

    async fn accept(&self, socket: &TcpListener, time: Duration) {
        let port = socket.local_addr().map_or(0, |address| address.port());
        let mut spell = Spell { time, began: None };
        // Where connections always wait, nothing else tells that it is to stop.
        while !self.stop.is_cancelled() {
            // Without memory they come one by one: whose each is nobody knows before it has spoken.
            let is_shed = self.worker.local.fairness.pressure.step() == PressureStep::ShedAll;
            let has_room = self.worker.local.room.has_room();
            if is_shed || !has_room {
                tokio::select! {
                    () = self.stop.cancelled() => break,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
            if !has_room {
                continue;
            }
            let next = poll_fn(|context| {
                let polled = socket.poll_accept(context);
                if polled.is_pending() {
                    spell.began = None;
                }
                polled
            });
            tokio::select! {
                biased;
                accepted = next => self.take(accepted, port).await,
                () = self.stop.cancelled() => break,
            }
            spell.end_in_time().await;
        }
        for _ in 0..=BACKLOG {
            let next = poll_fn(|context| match socket.poll_accept(context) {
                Poll::Ready(accepted) => Poll::Ready(accepted.ok()),
                Poll::Pending => Poll::Ready(None),
            });
            let Some(accepted) = next.await else {
                return;
            };
            self.take(Ok(accepted), port).await;
            spell.end_in_time().await;
        }
    }

    async fn take(&self, accepted: io::Result<(TcpStream, SocketAddr)>, port: u16) {
        let (tcp, client) = match accepted {
            Ok(accepted) => accepted,
            // The client left at once.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return,
            Err(_) => {
                // Out of files or memory, which passes; until then it waits in the queue.
                self.worker.local.counts.add(Count::AcceptFailed);
                tokio::time::sleep(PAUSE).await;
                return;
            }
        };
        self.worker.local.counts.add(Count::Accepted);
        let connected = Connected::new(self.worker.clone());
        let Some((visit, kind)) = self.meet(&tcp, client, port) else {
            self.worker.local.counts.add(Count::Closed);
            return;
        };
        // Where clients are introduced, nothing is known of them before.
        let is_introduced = !visit.is_captured && self.introduces_at(visit.port);
        if kind.is_stream() && !is_introduced && !may_come(&self.worker, &visit) {
            self.worker.local.counts.add(Count::Closed);
            return;
        }
        let handshaking = self.handshaking.clone();
        // Servers may speak first where streams are served, and where a workload is captured.
        let is_heard = (kind.has_to_ask() && !visit.is_captured) || is_introduced;
        let hush = is_heard.then(|| self.worker.local.room.enter(source_of(visit.peer())));
        let greeting = greet(connected, handshaking, visit, kind, (tcp, hush));
        task::spawn_local("greeting", greeting);
    }

    /// Whether every connection at a port begins with a header that introduces its client.
    fn introduces_at(&self, port: u16) -> bool {
        let introductions = self.worker.local.introductions.as_ref();
        introductions.is_some_and(|it| it.are_asked_at(port))
    }

    /// The listener that a connection belongs to; none where that is gone, or there is none.
    fn meet(
        &self,
        tcp: &TcpStream,
        client: SocketAddr,
        port: u16,
    ) -> Option<(DownstreamConnection, Kind)> {
        let tables = self.worker.tables.load();
        match &self.door {
            Door::Listener(name) => {
                let listener = tables.listener(name)?;
                if listener.protocol == ListenerProtocol::Udp {
                    return None;
                }
                let kind = Kind::of(listener);
                let mut visit = DownstreamConnection::new(name.clone(), client, port);
                visit.is_closing = self.is_closing.clone();
                visit.address = tcp.local_addr().ok().map(|address| address.ip());
                Some((visit, kind))
            }
            Door::Capture(direction, ports) => {
                let original = original(tcp, ports)?;
                let entry = tables.captured(*direction, original)?;
                let kind = Kind::of(entry.sealed.listener()?);
                let mut visit =
                    DownstreamConnection::new(entry.sealed.name().clone(), client, original.port());
                visit.is_closing = entry.is_closing.clone();
                visit.address = Some(original.ip());
                visit.is_captured = true;
                visit.is_inbound = *direction == CaptureDirection::Inbound;
                Some((visit, kind))
            }
        }
    }
}

/// Hears what a connection has to say, and serves it once there is a place. Its own task is small,
/// since most of a flood never gets further.
fn greet(
    connected: Connected,
    handshaking: Rc<Handshaking>,
    mut visit: DownstreamConnection,
    kind: Kind,
    (tcp, hush): (TcpStream, Option<Hush>),
) -> impl Future<Output = ()> {
    // What a block takes from around it is there once, the arguments of a function twice.
    let mut hush = hush;
    async move {
        let worker = &connected.0;
        let start = match hush.take() {
            Some(hush) => hear(worker, &mut visit, kind, &tcp, hush).await,
            None => Some(Start::default()),
        };
        let seat = match &start {
            Some(_) => seat(worker, source_of(visit.client.ip())).await,
            None => None,
        };
        let (Some(start), Some(seat)) = (start, seat) else {
            worker.local.counts.add(Count::Closed);
            return;
        };
        visit.seat = Some(seat);
        let serving = serve(connected, handshaking, visit, kind, (tcp, start));
        task::spawn_local("connection", serving);
    }
}

/// A place among the connections that are served, for one of a source, as soon as there is one.
async fn seat(worker: &Worker, source: u64) -> Option<Seat> {
    let timeout = worker.local.limits.turn_timeout;
    let seat = tokio::time::timeout(timeout, worker.local.room.seat(source)).await;
    if seat.is_err() {
        worker.local.counts.add_reached(Reached::TurnTimeout);
        worker.local.counts.add(Count::Shed);
    }
    seat.ok()
}

fn serve(
    connected: Connected,
    handshaking: Rc<Handshaking>,
    mut visit: DownstreamConnection,
    kind: Kind,
    heard: (TcpStream, Start),
) -> impl Future<Output = ()> {
    // What a block takes from around it is there once, the arguments of a function twice.
    let (tcp, start) = heard;
    async move {
        let worker = &connected.0;
        // What lives on in a box does so for this task's sake: it has room for the largest of its
        // waits, and most connections speak HTTP/1.
        let opened = match visit.is_captured {
            true => Box::pin(open_captured(worker, &handshaking, &mut visit, tcp, kind)).await,
            false if kind.is_tls => {
                let received = (tcp, start.said.unwrap_or(Buffer::none()));
                secure(worker, &handshaking, &mut visit, received, kind).await
            }
            false if kind.protocol == ListenerProtocol::Tcp => Some(open(worker, &visit, tcp)),
            false => Some(OpenedConnection::Http1(Stream::Plain(tcp), start)),
        };
        match opened {
            Some(OpenedConnection::Taken(taken)) if has_share(worker, &visit, &taken.entry) => {
                let room = StreamContext {
                    local: &worker.local,
                    h1_pool: &worker.h1_pool,
                    tables: &worker.tables,
                };
                Box::pin(tcp::serve::serve(room, &visit, *taken)).await;
            }
            // Its owner has its share of connections already.
            Some(OpenedConnection::Taken(_)) => {}
            // Streams that no stream route takes lead nowhere.
            Some(OpenedConnection::Lost) => worker.local.counts.add(Count::StreamFailed),
            Some(OpenedConnection::Http2(stream, said)) => {
                Box::pin(h2::serve(worker.clone(), visit, stream, said)).await;
            }
            Some(OpenedConnection::Http1(stream, start)) => {
                h1::serve(worker.clone(), visit, stream, start).await;
            }
            None => {}
        }
        worker.local.counts.add(Count::Closed);
    }
}

#[cfg(test)]
mod tests {
    use super::{greet, serve};
    use crate::net::record::Tls;

    fn bytes_of<A, B, C, D, E, F>(_: fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    /// A connection takes this beside what rustls allocates, whether or not it does anything: room
    /// for the largest of its waits. A wait that is rare and large goes into a box. A silent one
    /// has less, its place in the table and what the run-time keeps of a task and a socket;
    /// docs/tuning.md states the sum as it was measured.
    #[test]
    fn a_connection_takes_little_and_a_silent_one_less() {
        let sizes = [bytes_of(serve), bytes_of(greet), size_of::<Tls>()];
        let bounds = [3_136, 680, 1_280];
        let is_within = |(size, bound): (&usize, &usize)| size <= bound;
        assert!(
            sizes.iter().zip(&bounds).all(is_within),
            "{sizes:?} of {bounds:?}"
        );
    }
}
