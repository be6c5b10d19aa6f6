//! One stream, from the stream route that takes it to its end.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use myriad_model::{CaptureDirection, Name, StreamRoute};

use super::account::{Ending, StreamAccount};
use super::client::ClientFlow;
use super::tunnel;
use crate::admission::silent::source_of;
use crate::admission::spaces::NOBODY;
use crate::admission::tunnel::TunnelHeld;
use crate::balance::outlier::EndpointOutcome;
use crate::balance::{Choice, Flight};
use crate::codec::buffer::Buffer;
use crate::codec::request_line::RequestLineFinder;
use crate::failure::{Failure, FailureKind, Retry};
use crate::limits::Reached;
use crate::local::Shared;
use crate::net::deadline::Deadline;
use crate::net::duplex::{Duplex, Flow as _};
use crate::net::stream::Stream;
use crate::policy::{authorize, sameness};
use crate::route::credentials::credentials;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::stream_route::{Arrival, StreamRouteEntry};
use crate::route::tables::Tables;
use crate::telemetry::count::Count;
use crate::upstream::attempt;
use crate::upstream::dial::Dial;
use crate::upstream::entry::UpstreamEntry;
use crate::upstream::h1_connection::{H1Connection, H1Pool};

/// The parts of their worker that streams need.
pub struct StreamContext<'a> {
    /// Limits, counts, dice and log.
    pub local: &'a Shared,
    /// Connections to endpoints.
    pub h1_pool: &'a H1Pool,
    /// The tables.
    pub tables: &'a ArcSwap<Tables>,
}

/// A connection that a stream route has taken.
pub struct TakenStream {
    /// The bytes.
    pub client: Stream,
    /// The bytes that the client has sent already.
    pub said: Option<Buffer>,
    /// The name in its handshake.
    pub sni: Option<Box<str>>,
    /// The address that it connected to.
    pub own: Option<IpAddr>,
    /// The stream route.
    pub entry: Arc<StreamRouteEntry>,
    /// Whether nobody has declared what it speaks, and it must be no request.
    pub is_undeclared: bool,
}

/// A connection to an endpoint, counted there for as long as it lasts.
struct Led {
    connection: H1Connection,
    /// The bytes that the endpoint has sent already.
    said: Option<Buffer>,
    /// The upstream that it is of.
    upstream: Name,
    _flight: Flight,
}

/// Hands bytes on until the stream ends.
pub async fn serve(room: StreamContext<'_>, visit: &DownstreamConnection, mut taken: TakenStream) {
    let sni = taken.sni.as_deref();
    let mut account = {
        let tables = room.tables.load();
        StreamAccount::begin(room.local, tables.recording(), visit, sni, &taken.entry)
    };
    let Some(stream_route) = taken.entry.stream_route() else {
        return;
    };
    if !is_admitted(&room, visit, sni) {
        if let Ok(upstream) = choose(&room, &taken.entry) {
            account.set_upstream(room.local, &upstream);
        }
        let refused = Ending::Failed(FailureKind::Unauthorized);
        account.finish(room.local, refused, 0, 0);
        return;
    }
    let mut request = taken.is_undeclared.then(RequestLineFinder::default);
    if let (Some(request), Some(said)) = (&mut request, &taken.said)
        && request.find(said.filled())
    {
        account.finish(room.local, Ending::Failed(FailureKind::BadProtocol), 0, 0);
        return;
    }
    let mut led = match lead(&room, visit, &taken, stream_route, &mut account).await {
        Ok(led) => led,
        Err(failure) => {
            account.finish(room.local, Ending::Failed(failure.kind), 0, 0);
            return;
        }
    };
    room.local.counts.add(Count::StreamOpened);
    let mut duplex = Duplex::new(taken.said.take(), led.said.take());
    let watch = Watch {
        room: &room,
        visit,
        sni: taken.sni.as_deref(),
        own: taken.own,
        upstream: &led.upstream,
        look: Deadline::new(),
        is_leaving: false,
    };
    let mut client = ClientFlow::new(&mut taken.client, request);
    let streams = (&mut client, &mut *led.connection.stream);
    let idle_timeout = stream_route.idle_timeout;
    let ending = copy(watch, streams, &mut duplex, idle_timeout, &mut account).await;
    if matches!(ending, Ending::Done | Ending::Idle | Ending::Removed) {
        led.connection.stream.end();
    }
    let (received, sent) = (duplex.bytes_received(), duplex.bytes_sent());
    account.finish(room.local, ending, received, sent);
}

/// Whether the policies of the listener admit the stream.
fn is_admitted(
    room: &StreamContext<'_>,
    visit: &DownstreamConnection,
    server_name: Option<&str>,
) -> bool {
    let tables = room.tables.load();
    let access_policies = tables.access_policies();
    let stream = authorize::JudgedStream {
        listener: &visit.listener,
        client: visit.client.ip(),
        peer: visit.peer(),
        address: visit.address,
        port: visit.port,
        server_name,
        principal: visit.principal(),
    };
    access_policies.is_empty()
        || authorize::admits_stream(access_policies, &stream, &room.local.counts)
}

async fn copy(
    mut watch: Watch<'_>,
    (client, endpoint): (&mut ClientFlow<'_>, &mut Stream),
    duplex: &mut Duplex,
    idle_timeout: Duration,
    account: &mut StreamAccount,
) -> Ending {
    let idle = Deadline::new();
    let space = watch
        .visit
        .tunnel
        .get()
        .map_or(NOBODY, |share| share.space());
    let mut held = TunnelHeld::new(&watch.room.local.fairness.holdings, space, false);
    if !idle_timeout.is_zero() {
        idle.set(idle_timeout);
    }
    watch.look.set(watch.room.local.limits.stream_look);
    poll_fn(|context| {
        loop {
            let polled = duplex.poll(context, client, endpoint, held.room());
            if let Poll::Ready(ended) = polled {
                return Poll::Ready(match ended {
                    Ok(()) => Ending::Done,
                    Err(_) if client.is_request() => Ending::Failed(FailureKind::BadProtocol),
                    Err(side) => Ending::Broken(side),
                });
            }
            let has_moved = duplex.take_moved();
            if has_moved && !idle_timeout.is_zero() {
                idle.set(idle_timeout);
            }
            let bytes = duplex.memory() + client.kept() + endpoint.kept();
            held.note(bytes, has_moved, duplex.is_held_up());
            if held.is_evicted() {
                let counts = &watch.room.local.counts;
                counts.add_reached(Reached::AllHeldBytes);
                return Poll::Ready(Ending::Failed(FailureKind::Overloaded));
            }
            if held.poll_again(context).is_pending() {
                break;
            }
        }
        if idle.poll_passed(context).is_ready() {
            return Poll::Ready(Ending::Idle);
        }
        while watch.look.poll_passed(context).is_ready() {
            let (received, sent) = (duplex.bytes_received(), duplex.bytes_sent());
            account.note_bytes(watch.room.local, received, sent);
            if !watch.may_stay() {
                return Poll::Ready(Ending::Removed);
            }
        }
        Poll::Pending
    })
    .await
}

/// Looks now and then whether a stream may stay.
struct Watch<'a> {
    room: &'a StreamContext<'a>,
    visit: &'a DownstreamConnection,
    sni: Option<&'a str>,
    own: Option<IpAddr>,
    /// The upstream that it is led to.
    upstream: &'a Name,
    look: Deadline,
    /// No stream route took it when it was last looked at.
    is_leaving: bool,
}

impl Watch<'_> {
    /// Whether some stream route still takes the stream, or did when it was last asked.
    fn may_stay(&mut self) -> bool {
        let limits = &self.room.local.limits;
        if self.is_taken() {
            self.is_leaving = false;
            self.look.set(limits.stream_look);
            return true;
        }
        let may_stay = !self.is_leaving;
        self.is_leaving = true;
        self.look.set(limits.stream_drain);
        may_stay
    }

    /// Whether some stream route still takes the stream.
    fn is_taken(&self) -> bool {
        let tables = self.room.tables.load();
        let visit = self.visit;
        if !(visit.is_captured && visit.is_leaving()) {
            let entry = tables.stream_route(self.arrival(&visit.listener), self.sni);
            return entry.is_some_and(|entry| entry.leads_somewhere());
        }
        // The listener is gone, or takes other connections by now. Where anybody may have brought
        // that about, the one that takes such connections now may lead where this one goes.
        let original = visit.original().filter(|_| !visit.is_inbound);
        let found = original.and_then(|it| tables.captured(CaptureDirection::Outbound, it));
        let entry = found.and_then(|captured| {
            let arrival = self.arrival(captured.sealed.name());
            tables.stream_route(arrival, self.sni)
        });
        entry.is_some_and(|entry| entry.leads_to(self.upstream))
    }

    /// The stream, as one that arrives at a listener.
    fn arrival<'b>(&self, listener: &'b Name) -> Arrival<'b> {
        Arrival {
            listener,
            client: self.visit.client.ip(),
            own: self.own,
            is_terminated: (self.visit.secured.as_ref()).is_some_and(|secured| !secured.is_mesh),
        }
    }
}

/// Connects to an endpoint; where that fails, once to another.
async fn lead(
    room: &StreamContext<'_>,
    visit: &DownstreamConnection,
    taken: &TakenStream,
    stream_route: &StreamRoute,
    account: &mut StreamAccount,
) -> Result<Led, Failure> {
    let upstream = choose(room, &taken.entry)?;
    account.set_upstream(room.local, &upstream);
    let host = taken.sni.as_deref().unwrap_or("");
    let answer = upstream
        .answer(
            &room.local.names,
            (host, source_of(visit.client.ip())),
            visit.original(),
        )
        .await?;
    let pool = answer
        .as_ref()
        .map_or(&upstream.pool, |answer| &answer.pool);
    let credentials = credentials(&room.tables.load(), &upstream)?;
    let choice = Choice {
        dice: &room.local.dice,
        tried: None,
        hash: sameness::of_stream(&upstream, visit),
        now_ms: None,
    };
    let mut tried = None;
    loop {
        let target = attempt::choose(pool, &Choice { tried, ..choice })?;
        account.set_endpoint(target);
        let flight = Flight::start(target.clone());
        let dial = Dial {
            target,
            upstream: &upstream,
            host,
            credentials: &credentials,
            is_stream: true,
            is_upgrade: false,
            ends: visit.ends(),
            timeout: stream_route.connect_timeout,
            patience: stream_route.connect_timeout,
        };
        match reach(room, &dial).await {
            Ok((connection, said)) => {
                account.open(room.local, target);
                return Ok(Led {
                    connection,
                    said,
                    upstream: upstream.name.clone(),
                    _flight: flight,
                });
            }
            Err(failure) => {
                // A port that is missing says nothing of the endpoint.
                if failure.retry == Retry::Yes && failure.kind != FailureKind::NoPort {
                    attempt::note(&room.local.counts, pool, target, EndpointOutcome::Failure);
                }
                if tried.is_some() || !attempt::may_change(&failure, pool) {
                    return Err(failure);
                }
                room.local.counts.add(Count::UpstreamRetried);
                tried = Some(target.id);
            }
        }
    }
}

/// A connection to an endpoint, or through it, and what it has said already.
async fn reach(
    room: &StreamContext<'_>,
    dial: &Dial<'_>,
) -> Result<(H1Connection, Option<Buffer>), Failure> {
    let mut connection = room.h1_pool.reach(dial, false).await?;
    let options = dial.upstream.options();
    let Some(tunnel) = options.and_then(|options| options.tunnel.as_deref()) else {
        return Ok((connection, None));
    };
    let opened = tunnel::open(&mut connection.stream, tunnel, &room.local.limits);
    let opened = tokio::time::timeout(dial.connect_timeout(), opened).await;
    match opened.unwrap_or(Err(FailureKind::ConnectTimeout)) {
        Ok(said) => Ok((connection, said)),
        Err(kind) => Err(Failure::of(kind).retry(Retry::Yes)),
    }
}

/// One of the upstreams, by weight.
fn choose(
    room: &StreamContext<'_>,
    entry: &StreamRouteEntry,
) -> Result<Arc<UpstreamEntry>, Failure> {
    let tables = room.tables.load();
    let upstream = tables.draw_upstream(entry, &room.local.dice);
    Ok(upstream.ok_or(FailureKind::NoUpstream)?.clone())
}
