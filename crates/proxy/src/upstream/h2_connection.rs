//! Connections of HTTP/2 to endpoints, each of which carries many requests at a time.

mod driver;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use h2::client::{Builder, SendRequest};
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use myriad_model::Limits as UpstreamLimits;
use tokio::sync::Notify;

use super::dial::Dial;
use super::h1_connection::{ConnectionKey, H1Pool};
use super::idle::{Idle, IdleConnections, Leaving, Shelves};
use crate::balance::Endpoint;
use crate::balance::usage::HeldUsage;
use crate::failure::{Failure, FailureKind, Retry};
use crate::limits::Limits;
use crate::local::Shared;
use crate::telemetry::count::Count;

use driver::{Bounded, State, Window};

/// The most bytes of a request that wait for the endpoint's window.
pub const WAITING_BYTES_MAX: usize = 64 << 10;

/// The most connections of one worker to one endpoint. Beyond, requests wait for a stream of one
/// of them. It is more than all requests of a worker need of most endpoints: where there is no
/// room, a share of them ends, so that nobody waits behind streams that are held for nothing.
const CONNECTIONS_MAX: usize = 1_024;

/// The most requests that one connection carries at a time, where its endpoint takes more.
const STREAMS_MAX: u32 = 128;

/// The most connections of one worker to one endpoint that offers no streams on any of them: it
/// may have good reason to end one, and none to be opened ever more.
const STREAMLESS_MAX: usize = 8;

/// The streams that were reset and are remembered for a second, with what still comes for them:
/// more than can be under way at a time.
const RESETS_MAX: usize = 4 * STREAMS_MAX as usize;

/// The memory that small frames of bodies may take which nobody has read, as the library counts
/// it: 256 bytes each. Streams that nobody reads have them taken off its hands ([`Intake`]), so
/// this is for those that come between two turns.
///
/// [`Intake`]: crate::net::intake::Intake
const UNREAD_FRAMES_BYTES: usize = 16 << 20;

/// The most requests of a connection. The library remembers each of them for as long as an endpoint
/// that reads nothing has not been told of its end.
const REQUESTS_MAX: u32 = 1 << 16;

/// The connections of one worker that carry many requests at a time.
pub struct H2Pool {
    local: Shared,
    shelves: Rc<H2Shelves>,
    /// The connections that carry nothing, of either version.
    idle: Rc<IdleConnections>,
}

#[derive(Default)]
struct H2Shelves(RefCell<HashMap<ConnectionKey, Rc<Shelf>, RandomState>>);

impl Shelves for H2Shelves {
    fn list(&self, to: &mut Vec<Idle>) {
        for shelf in self.0.borrow().values() {
            let connections = shelf.connections.borrow();
            to.extend(connections.iter().filter_map(|it| it.idle.get()));
        }
    }

    fn drop_leaving(&self, leaving: &Leaving) -> usize {
        let mut count = 0;
        for shelf in self.0.borrow().values() {
            shelf.connections.borrow_mut().retain(|connection| {
                let goes = connection.idle.get().is_some_and(|idle| leaving.has(idle));
                if goes {
                    // Counted by who asks for it.
                    connection.idle.set(None);
                    count += 1;
                }
                !goes
            });
        }
        count
    }
}

/// The connections to one endpoint.
struct Shelf {
    /// Gone when no table and no request knows the endpoint any more.
    target: Weak<Endpoint>,
    connections: RefCell<Vec<Rc<H2Connection>>>,
    /// Whether somebody opens one, which others may wait for.
    is_opening: Cell<bool>,
    opened: Notify,
}

struct H2Connection {
    send: SendRequest<Bytes>,
    state: Rc<State>,
    /// When it last had nothing to carry.
    idle_since: Cell<Instant>,
    /// Its place among those that carry nothing, while it does.
    idle: Cell<Option<Idle>>,
    owner: u64,
    all_idle: Rc<IdleConnections>,
    opened: Instant,
    /// Requests that it may still take.
    left: Cell<u32>,
    streams_max: usize,
    /// How long it is kept without a request, and used at all.
    idle_timeout: Duration,
    time_max: Duration,
    /// Its place among the connections of its upstream, where those are counted.
    _held: Option<HeldUsage>,
}

/// A stream of a connection, for one request; given back when it is dropped.
pub struct H2Stream {
    connection: Rc<H2Connection>,
    /// Takes the request.
    pub send: SendRequest<Bytes>,
    /// Whether the connection has carried a request before.
    pub is_reused: bool,
}

/// Lets others open where this one has ended, however it did.
struct Opening(Rc<Shelf>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.is_opening.set(false);
        self.0.opened.notify_waiters();
    }
}

impl H2Pool {
    /// An empty pool of connections, beside those of HTTP/1.
    pub fn new(local: Shared, h1_pool: &H1Pool) -> Self {
        let (shelves, idle) = (Rc::<H2Shelves>::default(), h1_pool.idle.clone());
        idle.join(shelves.clone());
        H2Pool {
            local,
            shelves,
            idle,
        }
    }

    /// A stream for a request: on a connection that has room, or else on a new one.
    ///
    /// # Errors
    /// A failure that may be tried again elsewhere: nothing was sent.
    pub async fn take(&self, h1_pool: &H1Pool, dial: &Dial<'_>) -> Result<H2Stream, Failure> {
        let stream = match self.find(dial) {
            Some(stream) => stream,
            None => {
                let shelf = self.shelf(dial);
                let _pending = h1_pool.queue(dial)?;
                let opening = self.open(&shelf, h1_pool, dial);
                let opened = tokio::time::timeout(dial.patience, opening).await;
                opened.unwrap_or_else(|_| Err(FailureKind::Overflow.into()))?
            }
        };
        if dial.is_upgrade {
            // Whoever says nothing in time offers nothing.
            let _ = tokio::time::timeout(dial.connect_timeout(), stream.settle()).await;
        }
        Ok(stream)
    }

    /// A stream for a request on a connection that is there; for an upgrade there may be something
    /// to wait for first.
    pub fn take_open(&self, dial: &Dial<'_>) -> Option<H2Stream> {
        match dial.is_upgrade {
            true => None,
            false => self.find(dial),
        }
    }

    fn find(&self, dial: &Dial<'_>) -> Option<H2Stream> {
        let stream = self.shelf(dial).find()?;
        self.local.counts.add(Count::UpstreamReused);
        Some(stream)
    }

    /// Drops connections that carried nothing for too long, and those to endpoints that are gone.
    /// Streams that they still carry end first.
    pub fn sweep(&self) {
        let now = clock::now();
        self.shelves.0.borrow_mut().retain(|_, shelf| {
            let is_known = shelf.target.strong_count() > 0;
            let mut connections = shelf.connections.borrow_mut();
            connections.retain(|connection| {
                let idle = now.duration_since(connection.idle_since.get());
                let state = &connection.state;
                let is_idle = state.active.get() == 0 && idle >= connection.idle_timeout;
                let is_wanted = is_known && !state.is_closed.get() && !connection.is_spent();
                if is_wanted && is_idle {
                    self.local.counts.add(Count::UpstreamIdle);
                }
                is_wanted && !is_idle
            });
            shelf.is_opening.get() || !connections.is_empty()
        });
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        let shelves = self.shelves.0.borrow();
        let lengths = shelves
            .values()
            .map(|shelf| shelf.connections.borrow().len());
        lengths.sum()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all connections, once they carry nothing any more.
    pub fn clear(&self) {
        self.shelves.0.borrow_mut().clear();
    }

    fn shelf(&self, dial: &Dial<'_>) -> Rc<Shelf> {
        let key = ConnectionKey::new(dial);
        let mut shelves = self.shelves.0.borrow_mut();
        let shelf = shelves.entry(key).or_insert_with(|| {
            Rc::new(Shelf {
                target: Arc::downgrade(dial.target),
                connections: RefCell::default(),
                is_opening: Cell::new(false),
                opened: Notify::new(),
            })
        });
        shelf.clone()
    }

    async fn open(
        &self,
        shelf: &Rc<Shelf>,
        h1_pool: &H1Pool,
        dial: &Dial<'_>,
    ) -> Result<H2Stream, Failure> {
        let held = loop {
            // Made before anything is awaited, so that no news is missed.
            let opened = shelf.opened.notified();
            let mut freed = std::pin::pin!(dial.upstream.usage.freed.notified());
            freed.as_mut().enable();
            if let Some(stream) = shelf.find() {
                return Ok(stream);
            }
            if shelf.is_opening.get() {
                opened.await;
            } else if shelf.streamless() >= STREAMLESS_MAX {
                self.local.counts.add(Count::OverflowStreams);
                return Err(FailureKind::Overflow.into());
            } else if let Some(held) = h1_pool.admit(dial) {
                break held;
            } else if let Some(stream) = shelf.least_busy() {
                return Ok(stream);
            } else {
                freed.await;
            }
        };
        shelf.is_opening.set(true);
        let _opening = Opening(shelf.clone());
        let mut opened = h1_pool.open_within(dial, held).await?;
        let held = opened.take_held();
        let limits = &self.local.limits;
        let state: Rc<State> = Rc::default();
        let turns = self.local.fairness.answers.clone();
        let whose = (turns, dial.upstream.owner);
        let bounded = Bounded::new(opened.stream, state.clone(), whose);
        let handshake = builder(limits).handshake(bounded).await;
        let failed = Failure::of(FailureKind::ConnectFailed).retry(Retry::Yes);
        let (send, connected) = handshake.map_err(|_| failed)?;
        h1_pool.make_room();
        let connection = Rc::new(self.connection((send, state.clone()), dial, held));
        let rule = dial.limits().and_then(|limits| limits.ping);
        let (window, counts) = (Window::new(limits), self.local.counts.clone());
        let driving = driver::run(connected, state, window, rule, counts);
        task::spawn_local("http2 connection", driving);
        shelf.connections.borrow_mut().push(connection.clone());
        Ok(connection.stream(false))
    }

    fn connection(
        &self,
        (send, state): (SendRequest<Bytes>, Rc<State>),
        dial: &Dial<'_>,
        held: Option<HeldUsage>,
    ) -> H2Connection {
        let default = UpstreamLimits::default();
        let own = dial.limits().unwrap_or(&default);
        let or = |value: u32, other: u32| if value == 0 { other } else { value };
        let streams_max = or(own.streams_max, STREAMS_MAX).min(STREAMS_MAX);
        let now = clock::now();
        H2Connection {
            send,
            state,
            idle_since: Cell::new(now),
            idle: Cell::new(None),
            owner: dial.upstream.owner,
            all_idle: self.idle.clone(),
            opened: now,
            left: Cell::new(or(own.connection_requests_max, REQUESTS_MAX).min(REQUESTS_MAX)),
            streams_max: usize::try_from(streams_max).unwrap_or(usize::MAX),
            idle_timeout: match own.idle_timeout.is_zero() {
                true => self.local.limits.upstream_idle_timeout,
                false => own.idle_timeout,
            },
            time_max: own.connection_time_max,
            _held: held,
        }
    }
}

impl Shelf {
    /// A stream on a connection that is there. Where all are full and no more may be opened, one on
    /// the least busy one, which the request waits for.
    fn find(&self) -> Option<H2Stream> {
        let mut connections = self.connections.borrow_mut();
        loop {
            let free = connections
                .iter()
                .position(|connection| connection.has_room());
            let index = match free {
                Some(index) => index,
                None if drop_spent(&mut connections) => continue,
                None if connections.len() < CONNECTIONS_MAX => return None,
                None => {
                    drop(connections);
                    return self.least_busy();
                }
            };
            let connection = connections.get(index)?;
            if connection.is_open() {
                return Some(connection.stream(true));
            }
            connections.swap_remove(index);
        }
    }

    /// How many connections there are on which the endpoint takes no stream.
    fn streamless(&self) -> usize {
        let connections = self.connections.borrow();
        connections.iter().filter(|it| it.is_streamless()).count()
    }

    /// A stream that has to be waited for, where no more connections may be opened.
    fn least_busy(&self) -> Option<H2Stream> {
        let connections = self.connections.borrow();
        let open = connections.iter().filter(|connection| connection.is_open());
        let connection = open.min_by_key(|connection| connection.state.active.get())?;
        Some(connection.stream(true))
    }
}

/// Drops the connections that carry nothing and never will; whether there were any.
fn drop_spent(connections: &mut Vec<Rc<H2Connection>>) -> bool {
    let before = connections.len();
    connections.retain(|connection| !connection.is_spent());
    connections.len() < before
}

impl H2Connection {
    /// Whether its endpoint takes no stream at all on it.
    fn is_streamless(&self) -> bool {
        self.send.current_max_send_streams() == 0
    }

    /// Whether it carries nothing and takes nothing.
    fn is_spent(&self) -> bool {
        self.state.active.get() == 0 && self.is_streamless()
    }

    fn has_room(&self) -> bool {
        let bound = self.send.current_max_send_streams().min(self.streams_max);
        self.state.active.get() < bound
    }

    /// Whether it takes requests. An endpoint that goes away says so before it closes.
    fn is_open(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let polled = self.send.clone().poll_ready(&mut context);
        let age = || clock::now().duration_since(self.opened);
        let is_old = !self.time_max.is_zero() && age() >= self.time_max;
        let is_worn = self.left.get() == 0 || is_old;
        !is_worn && !self.state.is_closed.get() && !matches!(polled, Poll::Ready(Err(_)))
    }

    fn stream(self: &Rc<Self>, is_reused: bool) -> H2Stream {
        let active = &self.state.active;
        active.set(active.get() + 1);
        if self.idle.take().is_some() {
            self.all_idle.end(1);
        }
        self.state.unasked.set(0);
        self.state.begun.set(self.state.begun.get() + 1);
        self.left.set(self.left.get().saturating_sub(1));
        H2Stream {
            connection: self.clone(),
            send: self.send.clone(),
            is_reused,
        }
    }
}

impl H2Stream {
    /// The connection takes no more requests.
    pub fn retire(&self) {
        self.connection.state.is_closed.set(true);
    }

    /// Whether the proxy has ended the connection for what its endpoint sent.
    pub fn is_cut(&self) -> bool {
        self.connection.state.has_heard_too_much()
    }

    /// Waits until it is known what the endpoint offers.
    async fn settle(&self) {
        let state = &self.connection.state;
        let is_known =
            || state.is_settled.get() || self.send.is_extended_connect_protocol_enabled();
        if !is_known() {
            let settled = state.settled.notified();
            state.asked.notify_one();
            settled.await;
        }
    }
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        let connection = &self.connection;
        let active = &connection.state.active;
        active.set(active.get() - 1);
        connection.idle_since.set(clock::now());
        if active.get() == 0 {
            let (number, owner) = (connection.all_idle.begin(), connection.owner);
            connection.idle.set(Some(Idle { number, owner }));
        }
    }
}

impl Drop for H2Connection {
    fn drop(&mut self) {
        if self.idle.get().is_some() {
            self.all_idle.end(1);
        }
    }
}

fn builder(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_reset_streams(RESETS_MAX)
        // What comes for streams that are forgotten is no reason to end others; frames have bounds
        // of their own (`noise`).
        .max_local_error_reset_streams(None)
        .data_frame_budget(UNREAD_FRAMES_BYTES)
        .max_send_buffer_size(WAITING_BYTES_MAX);
    builder
}
