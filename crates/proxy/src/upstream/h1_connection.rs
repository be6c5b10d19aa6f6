//! Connections to endpoints, and those of them that wait for their next request.

mod queue;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foldhash::fast::RandomState;
use myriad_base::clock::{self, Instant};
use myriad_model::{MeshTls, UpstreamTls, Version};
use rustls::HandshakeKind;
use rustls::pki_types::{ServerName, UnixTime};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::crowds::Crowds;
use super::dial::{self, Connecting, Dial};
use super::endpoint_stream::EndpointStream;
use super::idle::{Idle, IdleConnections, Leaving, Shelves};
use super::local_usage::{HeldLocalUsage, LocalUsage, LocalUsageKind};
use super::secure::ClientConfigs;
use super::shake::{ConnectTime, owner, shake_hands};
use crate::admission::pressure::PressureStep;
use crate::balance::Endpoint;
use crate::balance::line::next_worker;
use crate::balance::usage::{HeldUsage, UsageKind};
use crate::codec::proxy_header::{self, Ends};
use crate::failure::{Failure, FailureKind, Retry};
use crate::local::Shared;
use crate::net::deadline::{TICK, now_ticks};
use crate::net::record::Tls;
use crate::net::stream::Stream;
use crate::telemetry::count::Count;

use queue::FoundConnection;

/// A connection to an endpoint.
pub struct H1Connection {
    /// The bytes.
    pub stream: EndpointStream,
    /// Whether it has served a request before.
    pub is_reused: bool,
    key: ConnectionKey,
    opened: Instant,
    /// Requests that it has served.
    served: u32,
    /// Its place among the connections of its upstream, where those are counted.
    held: Option<HeldUsage>,
}

impl H1Connection {
    /// Its place among the connections of its upstream, for whoever keeps the stream.
    pub fn take_held(&mut self) -> Option<HeldUsage> {
        self.held.take()
    }
}

/// Which connections are alike.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    target: u64,
    /// The name sent in the TLS handshake, where the upstream leaves it to the request; none for
    /// plain text.
    server_name: Option<Box<str>>,
    /// Trust and certificate of the proxy in its mesh, where they are used: a connection that
    /// was made with others is not used for further requests.
    identity: Option<(Option<Version>, Option<Version>)>,
    /// The parts of the key that hardly any connection has.
    special: Option<Box<Special>>,
}

/// The parts that tell connections to one endpoint apart beside the name.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Special {
    trust: Option<Version>,
    certificate: Option<Version>,
    /// On whose behalf, where the endpoint was told.
    ends: Option<Ends>,
}

impl ConnectionKey {
    /// The key of connections that serve what one is wanted for.
    pub fn new(dial: &Dial<'_>) -> Self {
        let manner = &dial.target.manner;
        let (trust, certificate) = dial.credentials.versions();
        let is_told = manner.proxy_protocol.is_some();
        let is_mesh = (manner.tls.as_ref()).is_some_and(|tls| tls.mesh != MeshTls::None);
        let has_own = trust.is_some() || certificate.is_some();
        let is_special = is_told || (has_own && manner.tls.is_some() && !is_mesh);
        let special = is_special.then(|| {
            Box::new(Special {
                trust,
                certificate,
                ends: is_told.then_some(dial.ends),
            })
        });
        ConnectionKey {
            target: dial.target.id,
            server_name: manner
                .tls
                .as_ref()
                .map(|tls| match tls.server_name.is_empty() {
                    true => server_name(dial).into_boxed_str(),
                    // The target has it.
                    false => Box::default(),
                }),
            identity: is_mesh.then_some((trust, certificate)),
            special,
        }
    }
}

struct Waiting {
    connection: H1Connection,
    idle: Idle,
    /// The tick since which it waits: a clock would be read for each request.
    since: u32,
    timeout: Duration,
    /// Its place among those of its upstream that wait at this worker, where those are counted.
    _counted: Option<HeldLocalUsage>,
}

struct Shelf {
    /// Gone when no table and no request knows the endpoint any more.
    target: Weak<Endpoint>,
    /// The one used last is at the back, and is used first.
    waiting: VecDeque<Waiting>,
}

/// The connections of one worker that wait for their next request.
pub struct H1Pool {
    local: Shared,
    shelves: Rc<H1Shelves>,
    /// The connections that carry nothing, of either version.
    pub(super) idle: Rc<IdleConnections>,
    /// Connections that wait, and requests that wait for one, of upstreams that bear only so many.
    usages: Rc<LocalUsage>,
    /// The number that tells its requests from those of other workers.
    worker: u64,
    configs: ClientConfigs,
    /// The endpoints that no port is free for.
    crowds: Crowds,
}

#[derive(Default)]
struct H1Shelves {
    shelves: RefCell<HashMap<ConnectionKey, Shelf, RandomState>>,
    count: Cell<usize>,
}

impl Shelves for H1Shelves {
    fn list(&self, to: &mut Vec<Idle>) {
        let shelves = self.shelves.borrow();
        let waiting = shelves.values().flat_map(|shelf| &shelf.waiting);
        to.extend(waiting.map(|waiting| waiting.idle));
    }

    fn drop_leaving(&self, leaving: &Leaving) -> usize {
        let mut count = 0;
        self.shelves.borrow_mut().retain(|_, shelf| {
            shelf.waiting.retain(|waiting| !leaving.has(waiting.idle));
            count += shelf.waiting.len();
            !shelf.waiting.is_empty()
        });
        self.count.replace(count) - count
    }
}

impl H1Pool {
    /// An empty pool of connections.
    pub fn new(local: Shared) -> Self {
        let (shelves, idle) = (Rc::<H1Shelves>::default(), Rc::<IdleConnections>::default());
        idle.join(shelves.clone());
        H1Pool {
            local,
            shelves,
            idle,
            usages: Rc::default(),
            worker: next_worker(),
            configs: ClientConfigs::default(),
            crowds: Crowds::default(),
        }
    }

    /// A connection: one that waits, or else a new one, once the upstream bears one more.
    ///
    /// # Errors
    /// A failure that may be tried again elsewhere: nothing was sent.
    pub async fn reach(&self, dial: &Dial<'_>, may_reuse: bool) -> Result<H1Connection, Failure> {
        if may_reuse && let Some(connection) = self.take(dial) {
            return Ok(connection);
        }
        let _pending = self.queue(dial)?;
        let found = match self.find(dial, may_reuse) {
            Some(found) => found,
            None => {
                let waited = self.wait_in_line(dial, may_reuse);
                let waited = tokio::time::timeout(dial.patience, waited).await;
                waited.map_err(|_| FailureKind::Overflow)?
            }
        };
        match found {
            FoundConnection::Waiting(connection) => Ok(connection),
            FoundConnection::Place(held) => self.open_within(dial, held).await,
        }
    }

    /// Counts a request that waits for a connection.
    ///
    /// # Errors
    /// That as many wait already as the upstream bears.
    pub fn queue(&self, dial: &Dial<'_>) -> Result<Option<HeldUsage>, Failure> {
        let max = dial.limits().map_or(0, |limits| limits.pending_max);
        let counts_connections = dial.upstream.usage.connections_max() > 0;
        if max == 0 && !counts_connections {
            return Ok(None);
        }
        let held = HeldUsage::take(&dial.upstream.usage, UsageKind::Pending, max);
        held.map(Some).ok_or_else(|| {
            self.local.counts.add(Count::OverflowPending);
            FailureKind::Overflow.into()
        })
    }

    /// A place for one more connection, counted where the upstream bears only so many; none
    /// where it bears no more.
    pub fn admit(&self, dial: &Dial<'_>) -> Option<Option<HeldUsage>> {
        match dial.upstream.usage.connections_max() {
            0 => Some(None),
            max => HeldUsage::take(&dial.upstream.usage, UsageKind::Connections, max).map(Some),
        }
    }

    /// A connection that waits, if there is one that still lives.
    pub fn take(&self, dial: &Dial<'_>) -> Option<H1Connection> {
        let key = ConnectionKey::new(dial);
        let mut shelves = self.shelves.shelves.borrow_mut();
        let shelf = shelves.get_mut(&key)?;
        while let Some(mut waiting) = shelf.waiting.pop_back() {
            self.forget(1);
            if is_alive(&mut waiting.connection.stream) {
                waiting.connection.is_reused = true;
                waiting.connection.stream.go_on();
                self.local.counts.add(Count::UpstreamReused);
                return Some(waiting.connection);
            }
        }
        None
    }

    /// Opens a connection within the time that its upstream or its route allows. That does not run
    /// while a turn or a free port is waited for.
    ///
    /// # Errors
    /// A failure that may be tried again elsewhere: nothing was sent.
    pub async fn open_within(
        &self,
        dial: &Dial<'_>,
        held: Option<HeldUsage>,
    ) -> Result<H1Connection, Failure> {
        match self.connect(dial).await {
            Ok(stream) => {
                self.local.counts.add(Count::UpstreamOpened);
                Ok(H1Connection {
                    stream: EndpointStream::new(stream),
                    is_reused: false,
                    key: ConnectionKey::new(dial),
                    opened: clock::now(),
                    served: 0,
                    held,
                })
            }
            // No turn has come, which says nothing of the endpoint, and others are no better off.
            Err(kind @ FailureKind::Overloaded) => Err(kind.into()),
            // Nor does a port that is missing, but for another one there may be some.
            Err(kind @ FailureKind::NoPort) => Err(Failure::of(kind).retry(Retry::Yes)),
            Err(kind) => {
                self.local.counts.add(Count::UpstreamFailed);
                Err(Failure::of(kind).retry(Retry::Yes))
            }
        }
    }

    /// Keeps a connection whose last response was read to its end, unless it has served enough.
    /// One that went beyond the limits takes the place of the one that has waited longest.
    pub fn keep(&self, mut connection: H1Connection, dial: &Dial<'_>) {
        connection.served = connection.served.saturating_add(1);
        connection.stream.end();
        let limits = &self.local.limits;
        let mut timeout = limits.upstream_idle_timeout;
        if let Some(own) = dial.limits() {
            let is_worn =
                own.connection_requests_max > 0 && connection.served >= own.connection_requests_max;
            let age = own.connection_time_max;
            let is_old = !age.is_zero() && clock::now().duration_since(connection.opened) >= age;
            if is_worn || is_old || self.is_wanted_elsewhere(&connection) {
                return;
            }
            if !own.idle_timeout.is_zero() {
                timeout = own.idle_timeout;
            }
        }
        let waited_for = self.waited_for(&connection, dial);
        self.make_room();
        if limits.idle_endpoints_max == 0 {
            self.local.counts.add(Count::UpstreamEvicted);
            return;
        }
        let mut shelves = self.shelves.shelves.borrow_mut();
        let shelf = shelves
            .entry(connection.key.clone())
            .or_insert_with(|| Shelf {
                target: Arc::downgrade(dial.target),
                waiting: VecDeque::new(),
            });
        if shelf.waiting.len() >= limits.idle_per_endpoint_max {
            self.local.counts.add(Count::UpstreamEvicted);
            if shelf.waiting.pop_front().is_none() {
                return;
            }
            self.forget(1);
        }
        let number = self.idle.begin();
        let held = connection.held.as_ref();
        let counted = held.map(|held| self.usages.take(held.usage(), LocalUsageKind::Idle));
        shelf.waiting.push_back(Waiting {
            connection,
            idle: Idle {
                number,
                owner: dial.upstream.owner,
            },
            since: now_ticks(),
            timeout,
            _counted: counted,
        });
        let count = &self.shelves.count;
        count.set(count.get() + 1);
        drop(shelves);
        if let Some(usage) = waited_for {
            usage.line.tell(Some(self.worker));
        }
    }

    /// Sees to it that there is a place for one more connection that carries nothing.
    pub(super) fn make_room(&self) {
        self.trim(self.local.limits.idle_endpoints_max);
    }

    fn trim(&self, max: usize) {
        let gone = self.idle.make_room(max);
        if gone > 0 {
            self.idle.end(gone);
            self.local
                .counts
                .add_many(Count::UpstreamEvicted, gone as u64);
        }
    }

    /// Forgets so many that waited.
    fn forget(&self, count: usize) {
        let waiting = &self.shelves.count;
        waiting.set(waiting.get() - count);
        self.idle.end(count);
    }

    /// Drops connections that waited too long, that the endpoint closed, and those to endpoints
    /// that are gone.
    pub fn sweep(&self) {
        let now = now_ticks();
        let mut count = 0;
        let mut shelves = self.shelves.shelves.borrow_mut();
        shelves.retain(|_, shelf| {
            if shelf.target.strong_count() == 0 {
                return false;
            }
            shelf.waiting.retain_mut(|waiting| {
                // More than the timeout, since the first tick may have been about to end.
                let ticks = now.saturating_sub(waiting.since);
                let is_idle = TICK.saturating_mul(ticks) > waiting.timeout;
                if is_idle {
                    self.local.counts.add(Count::UpstreamIdle);
                }
                !is_idle
                    && !self.is_wanted_elsewhere(&waiting.connection)
                    && is_alive(&mut waiting.connection.stream)
            });
            count += shelf.waiting.len();
            !shelf.waiting.is_empty()
        });
        drop(shelves);
        self.forget(self.len() - count);
        let max = self.local.limits.idle_endpoints_max;
        let is_short = self.local.fairness.pressure.step() >= PressureStep::EndIdle;
        // Those of HTTP/2 become idle without a look at others. None stays while memory is short:
        // what each still holds is not known.
        self.trim(if is_short { 0 } else { max.saturating_add(1) });
    }

    /// How many connections wait.
    pub fn len(&self) -> usize {
        self.shelves.count.get()
    }

    /// Whether no connection waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all connections.
    pub fn clear(&self) {
        self.shelves.shelves.borrow_mut().clear();
        self.forget(self.len());
    }

    async fn connect(&self, dial: &Dial<'_>) -> Result<Stream, FailureKind> {
        let mut time = ConnectTime::new(dial, &self.local);
        let tcp = self.open(dial, &mut time).await?;
        match &dial.target.manner.tls {
            None => Ok(Stream::Plain(tcp)),
            // Boxed, because a handshake is large and short, and the request behind it neither.
            Some(tls) => {
                let encrypted = self.encrypt(tcp, tls, dial, &mut time);
                Ok(Stream::Tls(Box::pin(encrypted).await?))
            }
        }
    }

    /// Begins TLS with an endpoint, which it believes at this time.
    async fn encrypt(
        &self,
        tcp: TcpStream,
        tls: &UpstreamTls,
        dial: &Dial<'_>,
        time: &mut ConnectTime,
    ) -> Result<Box<Tls>, FailureKind> {
        let is_http2 = dial.target.manner.is_http2;
        let whose = (owner(dial).namespace, dial.credentials);
        let way = self.configs.get(tls, is_http2, dial.is_stream, whose);
        let way = way.map_err(|_| FailureKind::UpstreamTrust)?;
        let name = ServerName::try_from(server_name(dial))
            .unwrap_or_else(|_| ServerName::IpAddress(dial.target.address.ip().into()));
        let (whose, how) = ((&*self.local, dial), (way.config.clone(), name.clone()));
        let (mut session, turn) = shake_hands(whose, tcp, how, time).await?;
        let believes = || way.believes(&name, session.endpoint_chain(), unix_time());
        let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
        let is_believed = !is_resumed || turn.step(believes);
        drop(turn);
        if !is_believed {
            // The certificate that it shows now decides. No request was sent to it.
            way.forget(&name);
            let tcp = self.open(dial, time).await?;
            (session, _) = shake_hands(whose, tcp, (way.anew(), name), time).await?;
        }
        if tls.mesh != MeshTls::None
            && let Some(leaf) = session.endpoint_chain().first()
        {
            dial.target.set_met(self.local.library.meet(leaf));
        }
        Ok(session)
    }

    /// Opens a socket to an endpoint, and says on whose behalf where it is told.
    async fn open(
        &self,
        dial: &Dial<'_>,
        time: &mut ConnectTime,
    ) -> Result<TcpStream, FailureKind> {
        let connecting = dial::begin(dial, &self.local, &self.crowds, &mut time.ports).await?;
        let introduced = self.introduce(dial, connecting);
        let opened = time.endpoint.wait(introduced).await;
        opened.unwrap_or(Err(FailureKind::ConnectTimeout))
    }

    async fn introduce(
        &self,
        dial: &Dial<'_>,
        connecting: Connecting,
    ) -> Result<TcpStream, FailureKind> {
        let mut tcp = dial::finish(dial, &self.local, connecting).await?;
        dial::settle(&tcp, dial.limits().and_then(|limits| limits.keepalive));
        if let Some(version) = dial.target.manner.proxy_protocol {
            let header = proxy_header::write(version, dial.ends);
            let sent = tcp.write_all(&header).await;
            sent.map_err(|_| FailureKind::ConnectFailed)?;
        }
        Ok(tcp)
    }
}

/// The time by which certificates are judged.
fn unix_time() -> UnixTime {
    UnixTime::since_unix_epoch(clock::since_epoch())
}

fn server_name(dial: &Dial<'_>) -> String {
    match dial.target.tls() {
        Some(tls) if !tls.server_name.is_empty() => tls.server_name.to_string(),
        _ => dial.host.trim_matches(['[', ']']).to_owned(),
    }
}

/// Whether the endpoint has neither closed the connection nor sent what nobody asked for.
fn is_alive(stream: &mut Stream) -> bool {
    if !stream.may_have_input() {
        return true;
    }
    let mut context = Context::from_waker(Waker::noop());
    let polled: Poll<io::Result<usize>> = stream.poll_read(&mut context, &mut [0; 1]);
    polled.is_pending()
}
