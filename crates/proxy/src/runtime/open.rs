//! The way from an accepted connection to what it speaks: through TLS, or by its first bytes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use myriad_model::{Listener, ListenerProtocol, MutualTls};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::within::{self, Heard};
use crate::codec::buffer::Buffer;
use crate::http::downstream::h1::Start;
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::mesh::detect::{Expected, KnownProtocols, Speech, detect};
use crate::net::deadline::Deadline;
use crate::net::stream::Stream;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::stream_route::{Arrival, StreamRouteEntry};
use crate::tcp::serve::TakenStream;
use crate::telemetry::count::Count;
use crate::telemetry::refusal::PeerSide;
use crate::tls::accept::{Accepted, HandshakeError, Handshakes, Meshed, Passed};
use crate::tls::gate::Gate;
use crate::tls::park::ParkedHandshakes;

/// Handshakes of one worker.
pub(super) struct Handshaking {
    shared: Arc<Handshakes>,
    parked: ParkedHandshakes,
}

/// The properties of a connection that follow from its listener.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// Whether it starts with a handshake.
    pub is_tls: bool,
    /// The protocol that it is assumed to speak.
    pub protocol: ListenerProtocol,
    mutual: MutualTls,
    /// Whether what it speaks is found out only where somebody has said so of its address.
    detects_hosts: bool,
}

/// A connection that says something.
pub(super) enum OpenedConnection {
    /// HTTP/1.
    Http1(Stream, Start),
    /// HTTP/2, with the bytes that were read of it.
    Http2(Stream, Option<Buffer>),
    /// A stream route takes it.
    Taken(Box<TakenStream>),
    /// Bytes that no stream route takes.
    Lost,
}

impl Handshaking {
    /// An empty set of handshakes.
    pub(super) fn new(shared: Arc<Handshakes>, limits: &Limits) -> Self {
        Handshaking {
            shared,
            parked: ParkedHandshakes::new(limits),
        }
    }
}

impl Kind {
    /// The kind of a listener's connections.
    pub(super) fn of(listener: &Listener) -> Self {
        Kind {
            is_tls: listener.tls,
            protocol: listener.protocol,
            mutual: listener.capture.map_or(MutualTls::None, |it| it.mutual),
            detects_hosts: listener.capture.is_some_and(|it| it.detects_hosts),
        }
    }

    /// Whether it is a stream in plain text whatever it says, so that where it comes from tells
    /// which stream route takes it.
    pub(super) fn is_stream(self) -> bool {
        let is_plain = !self.is_tls && self.mutual == MutualTls::None;
        is_plain && self.protocol == ListenerProtocol::Tcp
    }

    /// Whether its client speaks first, so that nothing is done before it has.
    pub(super) fn has_to_ask(self) -> bool {
        self.is_tls || self.protocol != ListenerProtocol::Tcp
    }

    /// The protocols that first bytes have to tell apart; `None` where nothing is to be found out.
    fn question(self) -> Option<KnownProtocols> {
        let is_permissive = self.mutual == MutualTls::Permissive;
        let expected = match self.protocol {
            ListenerProtocol::Http => Expected::Http,
            ListenerProtocol::Tcp if is_permissive => Expected::Bytes,
            // Nobody connects to where datagrams come.
            ListenerProtocol::Tcp | ListenerProtocol::Udp => return None,
            ListenerProtocol::Detected => Expected::HttpOrBytes,
        };
        Some(KnownProtocols {
            may_be_tls: is_permissive || expected == Expected::HttpOrBytes,
            expected,
        })
    }

    /// The protocol after a handshake that settled this, where nothing but HTTP was declared.
    fn speech(self, alpn: Option<&[u8]>) -> Speech {
        let is_http2 = matches!(alpn, Some(b"h2" | b"istio-h2"));
        let is_http1 = matches!(
            alpn,
            Some(b"http/1.1" | b"http/1.0" | b"istio-http/1.1" | b"istio-http/1.0")
        );
        match self.protocol {
            ListenerProtocol::Tcp | ListenerProtocol::Udp => Speech::Bytes,
            _ if is_http2 => Speech::Http2,
            ListenerProtocol::Http => Speech::Http1,
            ListenerProtocol::Detected if is_http1 => Speech::Http1,
            ListenerProtocol::Detected => Speech::Bytes,
        }
    }
}

/// Whether a stream in plain text may be served, by who it belongs to. It takes its share before it
/// takes a place, so that a flood of them never stands in anybody's way.
pub(super) fn may_come(worker: &Worker, visit: &DownstreamConnection) -> bool {
    let tables = worker.tables.load();
    let entry = tables.stream_route(arrival(visit), None);
    // Where no stream route takes it, it is told so as any other.
    entry.is_none_or(|entry| has_share(worker, visit, entry))
}

/// Whether the connection counts for whoever a stream belongs to, or may from now on: as one of
/// its connections, and as one of its tunnels.
pub(super) fn has_share(
    worker: &Worker,
    visit: &DownstreamConnection,
    entry: &StreamRouteEntry,
) -> bool {
    if visit.tunnel.get().is_some() {
        return true;
    }
    let (local, owner) = (&worker.local, entry.owner(&visit.listener));
    if visit.held.get().is_none() && !visit.belong_to(owner, local) {
        local.counts.add(Count::ShareConnections);
        return false;
    }
    let Some(tunnel) = local.fairness.tunnels.take(owner, 0) else {
        local.counts.add(Count::ShareTunnels);
        return false;
    };
    visit.tunnel.set(Box::new(tunnel)).is_ok()
}

/// A connection in plain text, which a stream route may take whatever it says.
pub(super) fn open(
    worker: &Worker,
    visit: &DownstreamConnection,
    tcp: TcpStream,
) -> OpenedConnection {
    // Without it what little is said at a time would wait for acknowledgements.
    let _ = tcp.set_nodelay(true);
    pass(worker, visit, Stream::Plain(tcp), None)
}

/// Whether the first bytes of a captured connection say what it is. Where strangers alone speak
/// HTTP at a port, that is so at the addresses of their Services, and where nobody takes bytes.
fn is_looked_at(worker: &Worker, visit: &DownstreamConnection, kind: Kind) -> bool {
    if !kind.detects_hosts {
        return true;
    }
    let tables = worker.tables.load();
    let is_host = |address| tables.is_host(&visit.listener, address);
    visit.address.is_some_and(is_host) || tables.stream_route(arrival(visit), None).is_none()
}

/// A connection that network rules led here.
pub(super) async fn open_captured(
    worker: &Worker,
    handshaking: &Handshaking,
    visit: &mut DownstreamConnection,
    tcp: TcpStream,
    kind: Kind,
) -> Option<OpenedConnection> {
    if kind.is_tls || kind.mutual == MutualTls::Strict {
        return secure(worker, handshaking, visit, (tcp, Buffer::none()), kind).await;
    }
    let question = kind
        .question()
        .filter(|_| is_looked_at(worker, visit, kind));
    let Some(question) = question else {
        return Some(open(worker, visit, tcp));
    };
    let patience = worker.local.limits.detection_timeout;
    // Whoever says nothing yet makes room for others, as one whose handshake is under way.
    let deadline = Deadline::new();
    visit.shake(&deadline);
    let speech = Box::pin(detect(&tcp, question, patience));
    let speech = deadline.unless_passed(speech).await;
    visit.work();
    // It had to go for another, and that is counted.
    match speech.filter(|_| !visit.is_evicted())?.ok()? {
        Speech::Tls => secure(worker, handshaking, visit, (tcp, Buffer::none()), kind).await,
        Speech::Http1 => Some(OpenedConnection::Http1(
            Stream::Plain(tcp),
            Start::default(),
        )),
        Speech::Http2 => Some(OpenedConnection::Http2(Stream::Plain(tcp), None)),
        Speech::Bytes => Some(undeclared(visit, kind, open(worker, visit, tcp))),
    }
}

/// A connection that starts with a handshake, of which this was received already.
pub(super) async fn secure(
    worker: &Worker,
    handshaking: &Handshaking,
    visit: &mut DownstreamConnection,
    received: (TcpStream, Buffer),
    kind: Kind,
) -> Option<OpenedConnection> {
    let shared = &handshaking.shared;
    let load = || worker.tables.load();
    let meshed = match kind.mutual {
        MutualTls::None => Meshed::No,
        MutualTls::Permissive => Meshed::WhereOffered,
        MutualTls::Strict => Meshed::Always,
    };
    let arrival = arrival(visit);
    let own = arrival.own;
    let gate = Gate {
        local: &worker.local,
        parked: &handshaking.parked,
        visit,
    };
    let deadline = Deadline::new();
    visit.shake(&deadline);
    let accepted = shared.accept(received, arrival, meshed, load, &gate);
    // Boxed, because a handshake is large and short, and the connection behind it neither.
    let accepted = deadline.unless_passed(Box::pin(accepted)).await;
    visit.keep(0);
    visit.work();
    // It had to go for another, and that is counted.
    let accepted = accepted.filter(|_| !visit.is_evicted())?;
    match accepted {
        Ok(Accepted::Secured(tls, secured, entry)) => {
            let is_mesh = secured.is_mesh;
            if is_mesh && let Some(leaf) = tls.client_certificate() {
                visit.met = worker.local.library.meet(leaf);
            }
            let speech = kind.speech(tls.alpn());
            let is_said = tls.alpn().is_some() || kind.protocol != ListenerProtocol::Detected;
            let sni = entry.as_ref().and_then(|_| secured.sni.clone());
            visit.secured = Some(secured);
            let client = Stream::Tls(tls);
            Some(match (entry, speech) {
                (Some(entry), _) if within::is_asked(worker, visit, &entry) => {
                    // Boxed, because most streams go where their own name says.
                    return Box::pin(follow(worker, visit, client, (sni, entry))).await;
                }
                (Some(entry), _) => taken(client, None, sni, own, entry),
                (None, Speech::Http2) => OpenedConnection::Http2(client, None),
                (None, Speech::Http1) => OpenedConnection::Http1(client, Start::default()),
                (None, _) if is_mesh && !is_said => {
                    return Box::pin(look_within(worker, visit, client, kind)).await;
                }
                // TLS of the mesh is how bytes travel, and says nothing of where to.
                (None, _) if is_mesh => undeclared(visit, kind, pass(worker, visit, client, None)),
                (None, _) => OpenedConnection::Lost,
            })
        }
        Ok(Accepted::Passed(passed)) => Some(hand_on(*passed, own)),
        // The authority has seen what it wanted to see.
        Ok(Accepted::Answered) => None,
        Err(error) => {
            count_failure(worker, visit.client, meshed, &error);
            None
        }
    }
}

/// A connection within mutual TLS of the mesh whose handshake has not said what it speaks: its
/// first bytes do, as they do in plain text.
async fn look_within(
    worker: &Worker,
    visit: &DownstreamConnection,
    mut client: Stream,
    kind: Kind,
) -> Option<OpenedConnection> {
    let question = KnownProtocols {
        may_be_tls: false,
        expected: Expected::HttpOrBytes,
    };
    let mut said = Buffer::none();
    let deadline = Deadline::new();
    visit.shake(&deadline);
    let looking = within::look(&mut client, visit, question, &mut said);
    let looking = timeout(worker.local.limits.detection_timeout, looking);
    let looked = deadline.unless_passed(Box::pin(looking)).await;
    visit.keep(0);
    visit.work();
    // It had to go for another, and that is counted.
    let speech = match looked.filter(|_| !visit.is_evicted())? {
        Ok(speech) => speech.ok()?,
        // The server may be the one that speaks first.
        Err(_) => Speech::Bytes,
    };
    let said = (!said.is_empty()).then_some(said);
    Some(match speech {
        Speech::Http1 => {
            let is_late = false;
            OpenedConnection::Http1(client, Start { said, is_late })
        }
        Speech::Http2 => OpenedConnection::Http2(client, said),
        Speech::Bytes | Speech::Tls => undeclared(visit, kind, pass(worker, visit, client, said)),
    })
}

/// A stream whose first bytes have not said what it speaks. Where nobody has declared it, one for
/// the workload must be no request: its fields would reach the workload as they are.
fn undeclared(
    visit: &DownstreamConnection,
    kind: Kind,
    mut opened: OpenedConnection,
) -> OpenedConnection {
    if let OpenedConnection::Taken(taken) = &mut opened {
        taken.is_undeclared = visit.is_inbound && kind.protocol == ListenerProtocol::Detected;
    }
    opened
}

/// A stream that goes where its client's own handshake says, or else where this stream route does.
/// It is from then on one of the connections of whoever has the name that decides.
async fn follow(
    worker: &Worker,
    visit: &mut DownstreamConnection,
    mut client: Stream,
    (sni, entry): (Option<Box<str>>, Arc<StreamRouteEntry>),
) -> Option<OpenedConnection> {
    let local = &worker.local;
    let before = entry.owner(&visit.listener);
    let deadline = Deadline::new();
    visit.shake(&deadline);
    let heard = Box::pin(within::hear(worker, visit, &mut client, (sni, entry)));
    let heard = deadline.unless_passed(heard).await;
    visit.keep(0);
    visit.work();
    // It had to go for another, and that is counted.
    match heard.filter(|_| !visit.is_evicted())? {
        Ok(Heard { said, sni, entry }) => {
            let owner = entry.owner(&visit.listener);
            if owner != before && !visit.pass_to(owner, local) {
                local.counts.add(Count::ShareConnections);
                return None;
            }
            Some(taken(client, said, sni, visit.address, entry))
        }
        Err(error) => {
            count_failure(worker, visit.client, Meshed::No, &error);
            None
        }
    }
}

/// Counts a handshake that failed, and says why where the client was not believed.
fn count_failure(worker: &Worker, client: SocketAddr, meshed: Meshed, error: &HandshakeError) {
    let counts = &worker.local.counts;
    if let Some(refusal) = error.refusal() {
        let side = match meshed {
            Meshed::No => PeerSide::Client,
            Meshed::WhereOffered | Meshed::Always => PeerSide::Mesh,
        };
        refusal.tell(client, side, counts);
    }
    counts.add(match error {
        HandshakeError::Shed => Count::Shed,
        HandshakeError::UnknownName => Count::HandshakeUnknownName,
        HandshakeError::Timeout(_) => Count::HandshakeTimeout,
        HandshakeError::TooLong | HandshakeError::Tls(_) | HandshakeError::Io(_) => {
            Count::HandshakeFailed
        }
    });
}

/// A handshake that a stream route takes as it came.
fn hand_on(passed: Passed, own: Option<IpAddr>) -> OpenedConnection {
    let Passed {
        tcp,
        received,
        sni,
        entry,
    } = passed;
    let _ = tcp.set_nodelay(true);
    let client = Stream::Plain(tcp);
    taken(client, Some(received), sni, own, entry)
}

/// A stream that a stream route may take whatever it says.
fn pass(
    worker: &Worker,
    visit: &DownstreamConnection,
    client: Stream,
    said: Option<Buffer>,
) -> OpenedConnection {
    let arrival = arrival(visit);
    let entry = worker.tables.load().stream_route(arrival, None).cloned();
    let own = arrival.own;
    match entry {
        Some(entry) => taken(client, said, None, own, entry),
        None => OpenedConnection::Lost,
    }
}

fn taken(
    client: Stream,
    said: Option<Buffer>,
    sni: Option<Box<str>>,
    own: Option<IpAddr>,
    entry: Arc<StreamRouteEntry>,
) -> OpenedConnection {
    OpenedConnection::Taken(Box::new(TakenStream {
        client,
        said,
        sni,
        own,
        entry,
        is_undeclared: false,
    }))
}

/// The properties by which a stream route is looked for.
fn arrival(visit: &DownstreamConnection) -> Arrival<'_> {
    Arrival {
        listener: &visit.listener,
        client: visit.client.ip(),
        own: visit.address,
        is_terminated: false,
    }
}
