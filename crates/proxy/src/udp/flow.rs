//! One flow: the datagrams between one port of a client and one endpoint.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::net::UdpSocket;

use crate::admission::share::HeldShare;
use crate::balance::{Flight, Pool};
use crate::failure::FailureKind;
use crate::net::deadline::{self, Deadline};
use crate::route::downstream_connection::DownstreamConnection;
use crate::upstream::datagrams;
use crate::upstream::entry::UpstreamEntry;
use crate::upstream::resolve::DnsAnswer;

/// The most datagrams of a flow that wait until it leads somewhere.
pub(super) const WAITING_MAX: usize = 4;

/// The most bytes of such datagrams of all flows of a receiver.
pub(super) const WAITING_BYTES_MAX: usize = 1 << 20;

/// One flow.
pub(super) struct DatagramFlow {
    /// Its client.
    pub visit: DownstreamConnection,
    /// The generation of the tables in which it was last seen to lead to its endpoint.
    pub seen: Cell<u64>,
    /// Its place among the flows of its receiver.
    pub number: Cell<u64>,
    state: RefCell<State>,
    idle: Deadline,
    idle_timeout: Cell<Duration>,
    /// How it has ended, where that is not for its silence.
    ending: Cell<Option<FlowEnding>>,
    /// Whether its endpoint has answered since somebody asked.
    has_answered: Cell<bool>,
    /// The bytes that its client has sent, and was sent.
    bytes: Cell<(u64, u64)>,
    _share: HeldShare,
}

/// The end of a flow at its endpoint, counted there for as long as it lasts.
pub(super) struct Led {
    /// The socket that only the endpoint is heard by.
    pub socket: Rc<UdpSocket>,
    /// Ready once the endpoint has said that nobody receives there.
    pub refusal: Pin<Box<dyn Future<Output = ()>>>,
    /// The upstream.
    pub upstream: Arc<UpstreamEntry>,
    /// The endpoints that DNS told of, where it was asked.
    pub answer: Option<Arc<DnsAnswer>>,
    /// The endpoint.
    pub flight: Flight,
}

/// The outcome of handing a datagram to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is on its way, or waits until the flow leads somewhere.
    Yes,
    /// There is no room for it.
    Dropped,
    /// Nobody receives at the endpoint, as that said of an earlier one.
    Refused,
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowEnding {
    /// Nobody said anything for too long, which is how flows end.
    Idle,
    /// Nothing leads to its endpoint any more.
    Removed,
    /// Another had to have its place.
    Evicted,
    /// There was no endpoint, or nobody receives there.
    Failed(FailureKind),
}

enum State {
    Opening(Waiting),
    Open(Led),
    Over,
}

/// Datagrams that wait until their flow leads somewhere.
struct Waiting {
    datagrams: Vec<Box<[u8]>>,
    bytes: usize,
    /// The bytes of all flows of the receiver.
    all: Rc<Cell<usize>>,
}

impl DatagramFlow {
    /// A flow of a client that leads nowhere yet, for as long as this at most. The cell counts
    /// bytes that wait in all flows of its receiver.
    pub(super) fn new(
        visit: DownstreamConnection,
        share: HeldShare,
        all: Rc<Cell<usize>>,
        timeout: Duration,
    ) -> Self {
        let idle = Deadline::new();
        idle.set(timeout);
        DatagramFlow {
            visit,
            seen: Cell::new(0),
            number: Cell::new(0),
            state: RefCell::new(State::Opening(Waiting {
                datagrams: Vec::new(),
                bytes: 0,
                all,
            })),
            idle,
            idle_timeout: Cell::new(Duration::MAX),
            ending: Cell::new(None),
            has_answered: Cell::new(false),
            bytes: Cell::new((0, 0)),
            _share: share,
        }
    }

    /// The port of the client that it is with.
    pub(super) fn client(&self) -> SocketAddr {
        self.visit.client
    }

    /// The bytes that its client has sent, and was sent.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.bytes.get()
    }

    /// Looks at its end at the endpoint; none before and after it leads there.
    pub(super) fn with_led<R>(&self, look: impl FnOnce(&Led) -> R) -> Option<R> {
        match &*self.state.borrow() {
            State::Open(led) => Some(look(led)),
            State::Opening(_) | State::Over => None,
        }
    }

    /// Leads it somewhere: what waited is sent. Returns how many datagrams found no room.
    pub(super) fn open(&self, led: Led, idle_timeout: Duration) -> usize {
        self.shorten(idle_timeout);
        let mut state = self.state.borrow_mut();
        let State::Opening(waiting) = &*state else {
            return 0;
        };
        let mut lost = 0;
        for datagram in &waiting.datagrams {
            match led.socket.try_send(datagram) {
                Ok(_) => self.note_sent(datagram.len()),
                Err(_) => lost += 1,
            }
        }
        *state = State::Open(led);
        lost
    }

    /// Sends its endpoint a datagram.
    pub(super) fn send(&self, datagram: &[u8]) -> Sent {
        let sent = match &mut *self.state.borrow_mut() {
            State::Opening(waiting) => return waiting.push(datagram),
            State::Open(led) => led.socket.try_send(datagram),
            State::Over => return Sent::Dropped,
        };
        match sent {
            Ok(_) => {
                self.note_sent(datagram.len());
                self.get_on();
                Sent::Yes
            }
            Err(error) if datagrams::is_refused(&error) => Sent::Refused,
            Err(_) => Sent::Dropped,
        }
    }

    /// Receives a datagram of its endpoint; never ready while it leads nowhere.
    pub(super) fn poll_receive(
        &self,
        context: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let state = self.state.borrow();
        let State::Open(led) = &*state else {
            return Poll::Pending;
        };
        let mut read = ReadBuf::new(bytes);
        ready!(led.socket.poll_recv(context, &mut read))?;
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Ready once its endpoint has said that nobody receives there, after which it has to end;
    /// never while it leads nowhere.
    pub(super) fn poll_refused(&self, context: &mut Context<'_>) -> Poll<()> {
        match &mut *self.state.borrow_mut() {
            State::Open(led) => led.refusal.as_mut().poll(context),
            State::Opening(_) | State::Over => Poll::Pending,
        }
    }

    /// Its client was sent an answer.
    pub(super) fn note_answer(&self, length: usize) {
        let (received, sent) = self.bytes.get();
        self.bytes.set((received, sent + length as u64));
        self.has_answered.set(true);
        self.get_on();
    }

    /// Whether its endpoint has answered since this was last asked.
    pub(super) fn take_answered(&self) -> bool {
        self.has_answered.take()
    }

    /// Lets it end after no more than this much silence.
    pub(super) fn shorten(&self, idle_timeout: Duration) {
        self.idle_timeout
            .set(self.idle_timeout.get().min(idle_timeout));
        if self.ending.get().is_none() {
            self.get_on();
        }
    }

    /// Ends it, unless it has ended: from now on nothing is sent or received by it.
    pub(super) fn end(&self, ending: FlowEnding) {
        if self.ending.get().is_none() {
            self.ending.set(Some(ending));
        }
        *self.state.borrow_mut() = State::Over;
        deadline::expire(self.idle.number());
    }

    /// Waits until it has ended, or nobody has said anything for too long.
    pub(super) async fn over(&self) -> FlowEnding {
        poll_fn(|context| self.poll_over(context)).await
    }

    /// Ready once it has ended, or nobody has said anything for too long.
    pub(super) fn poll_over(&self, context: &mut Context<'_>) -> Poll<FlowEnding> {
        ready!(self.idle.poll_passed(context));
        Poll::Ready(self.ending.get().unwrap_or(FlowEnding::Idle))
    }

    /// Its endpoint was sent what its client has sent.
    fn note_sent(&self, length: usize) {
        let (received, sent) = self.bytes.get();
        self.bytes.set((received + length as u64, sent));
    }

    /// Somebody has said something.
    fn get_on(&self) {
        self.idle.set(self.idle_timeout.get());
    }
}

impl Led {
    /// The endpoints that it is one of.
    pub(super) fn pool(&self) -> &Pool {
        let answer = self.answer.as_ref();
        answer.map_or(&self.upstream.pool, |answer| &answer.pool)
    }
}

impl Waiting {
    fn push(&mut self, datagram: &[u8]) -> Sent {
        let all = self.all.get() + datagram.len();
        if self.datagrams.len() >= WAITING_MAX || all > WAITING_BYTES_MAX {
            return Sent::Dropped;
        }
        self.all.set(all);
        self.bytes += datagram.len();
        self.datagrams.push(datagram.into());
        Sent::Yes
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.all.set(self.all.get().saturating_sub(self.bytes));
    }
}
