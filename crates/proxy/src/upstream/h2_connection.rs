//! Connections of HTTP/2 to endpoints, each of which carries many requests at a time.

mod driver;
mod line;
mod shelf;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use h2::client::{Builder, SendRequest};
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use myriad_model::Limits as UpstreamLimits;

use super::dial::Dial;
use super::h1_connection::{ConnectionKey, H1Pool};
use super::idle::{Idle, IdleConnections, Leaving, Shelves};
use crate::admission::holdings::HeldBytes;
use crate::admission::share::space_of;
use crate::balance::usage::HeldUsage;
use crate::failure::{Failure, FailureKind, Retry};
use crate::limits::Limits;
use crate::local::Shared;
use crate::telemetry::count::Count;

use driver::{Bounded, State, Window};
use line::{OpeningGuard, OpeningTurn};
use shelf::Shelf;

/// The most bytes of a request that wait for the endpoint's window.
pub const WAITING_BYTES_MAX: usize = 64 << 10;

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
/// this is for those that come between two turns, and for those of streams that were reset, which
/// it counts for ever: a smaller bound would let clients that cancel end the connection of others.
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
        let shelves = self.0.borrow();
        shelves.values().for_each(|shelf| shelf.list_idle(to));
    }

    fn drop_leaving(&self, leaving: &Leaving) -> usize {
        let mut count = 0;
        for shelf in self.0.borrow().values() {
            shelf.retain(|connection| {
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

struct H2Connection {
    send: SendRequest<Bytes>,
    state: Rc<State>,
    /// Its shelf, and its place there while it is there.
    shelf: Weak<Shelf>,
    place: Cell<Option<usize>>,
    /// Whether the shelf counts it among those without streams.
    counts_streamless: Cell<bool>,
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
            shelf.retain(|connection| {
                let idle = now.duration_since(connection.idle_since.get());
                let state = &connection.state;
                let is_idle = state.active.get() == 0 && idle >= connection.idle_timeout;
                let is_wanted = is_known && !state.is_closed.get() && !connection.is_spent();
                if is_wanted && is_idle {
                    self.local.counts.add(Count::UpstreamIdle);
                }
                is_wanted && !is_idle
            });
            shelf.line.is_busy() || shelf.len() > 0
        });
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        let shelves = self.shelves.0.borrow();
        shelves.values().map(|shelf| shelf.len()).sum()
    }

    /// How many connections were looked at for streams.
    #[cfg(test)]
    pub(crate) fn looks(&self) -> usize {
        let shelves = self.shelves.0.borrow();
        shelves.values().map(|shelf| shelf.looks()).sum()
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
        let shelf = shelves
            .entry(key)
            .or_insert_with(|| Rc::new(Shelf::new(Arc::downgrade(dial.target))));
        shelf.clone()
    }

    async fn open(
        &self,
        shelf: &Rc<Shelf>,
        h1_pool: &H1Pool,
        dial: &Dial<'_>,
    ) -> Result<H2Stream, Failure> {
        let mut turn: Option<OpeningTurn<'_>> = None;
        let mut opening: Option<OpeningGuard<'_>> = None;
        let held = loop {
            if let Some(stream) = shelf.find() {
                return Ok(stream);
            }
            let others_come_first = opening.is_none()
                && (shelf.line.is_opening() || turn.is_none() && shelf.line.is_busy());
            if others_come_first {
                // Whoever opens wakes the next one.
                if let Some(turn) = turn.take() {
                    turn.spend();
                }
                turn = Some(shelf.line.wait().await);
            } else if shelf.streamless() >= STREAMLESS_MAX {
                self.local.counts.add(Count::OverflowStreams);
                return Err(FailureKind::Overflow.into());
            } else if let Some(held) = h1_pool.admit(dial) {
                break held;
            } else if let Some(stream) = shelf.least_busy() {
                return Ok(stream);
            } else {
                // Each place that is freed wakes this one, and none of those behind it.
                if let Some(turn) = turn.take() {
                    turn.spend();
                }
                opening.get_or_insert_with(|| shelf.line.open());
                let mut freed = std::pin::pin!(dial.upstream.usage.freed.notified());
                // From here on no news is missed.
                freed.as_mut().enable();
                if let Some(held) = h1_pool.admit(dial) {
                    break held;
                }
                freed.await;
            }
        };
        if let Some(turn) = turn {
            turn.spend();
        }
        let _opening = opening.unwrap_or_else(|| shelf.line.open());
        let mut opened = h1_pool.open_within(dial, held).await?;
        let held = opened.take_held();
        let limits = &self.local.limits;
        let state: Rc<State> = Rc::default();
        let turns = self.local.fairness.answers.clone();
        let whose = (turns, dial.upstream.owner, self.held_bytes(dial));
        let bounded = Bounded::new(opened.stream, state.clone(), whose);
        let handshake = builder(limits).handshake(bounded).await;
        let failed = Failure::of(FailureKind::ConnectFailed).retry(Retry::Yes);
        let (send, connected) = handshake.map_err(|_| failed)?;
        h1_pool.make_room();
        state.offered.set(send.current_max_send_streams());
        let connection = Rc::new(self.connection((send, state.clone()), shelf, dial, held));
        let rule = dial.limits().and_then(|limits| limits.ping);
        let (window, counts) = (Window::new(limits), self.local.counts.clone());
        let noted = Rc::downgrade(&connection);
        let note = move || noted.upgrade().iter().for_each(|it| it.note());
        let driving = driver::run(connected, state, window, (rule, counts), note);
        task::spawn_local("http2 connection", driving);
        shelf.add(connection.clone());
        Ok(connection.stream(false))
    }

    /// The bytes that are held for what comes on a connection: those of the upstream's namespace.
    fn held_bytes(&self, dial: &Dial<'_>) -> HeldBytes {
        let mut held = self.local.fairness.holdings.connection();
        let sealed = dial.upstream.upstream.as_ref();
        if let Some(resource) = sealed.and_then(|sealed| sealed.resource()) {
            held.belong(space_of(resource.origin.namespace()));
        }
        held
    }

    fn connection(
        &self,
        (send, state): (SendRequest<Bytes>, Rc<State>),
        shelf: &Rc<Shelf>,
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
            shelf: Rc::downgrade(shelf),
            place: Cell::new(None),
            counts_streamless: Cell::new(false),
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

impl H2Connection {
    /// Whether its endpoint takes no stream at all on it.
    fn is_streamless(&self) -> bool {
        self.state.offered.get() == 0 && !self.state.is_closed.get()
    }

    /// Whether it carries nothing and takes nothing.
    fn is_spent(&self) -> bool {
        let takes_none = self.state.offered.get() == 0 || self.state.is_closed.get();
        self.state.active.get() == 0 && takes_none
    }

    fn has_room(&self) -> bool {
        let bound = self.state.offered.get().min(self.streams_max);
        self.state.active.get() < bound && !self.state.is_closed.get()
    }

    /// Has its shelf take note of its streams, and of those that its endpoint offers.
    fn note(&self) {
        if let Some(shelf) = self.shelf.upgrade() {
            shelf.note(self);
        }
    }

    /// Takes note that it carries nothing any more. It is kept for the next request, unless much of
    /// what frames have taken is never given back.
    fn rest(&self) {
        if self.state.is_laden() {
            self.state.is_closed.set(true);
            return;
        }
        let (number, owner) = (self.all_idle.begin(), self.owner);
        self.idle.set(Some(Idle { number, owner }));
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
        self.note();
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
        self.connection.note();
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
            connection.rest();
        }
        connection.note();
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
