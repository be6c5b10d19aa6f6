//! The task of a connection, which reads, writes and pings for all of its requests, within bounds.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::PingPong;
use h2::client::Connection;
use myriad_model::Ping;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::admission::answers::{AnswerTurns, AnswerWait, FramesRead};
use crate::admission::holdings::HeldBytes;
use crate::codec::frame::WINDOW_BYTES_MAX;
use crate::limits::Limits;
use crate::telemetry::count::{Count, Counts};
use crate::upstream::endpoint_stream::EndpointStream;
use crate::upstream::noise::{EDGE_BYTES, Noise};

/// The most bytes that are read of a connection while it carries no request: the rest of responses
/// that were given up, and frames that nobody has asked for. Beyond, it is closed.
const UNASKED_BYTES_MAX: usize = 1 << 20;

/// The most bytes that are read of a connection before others have their turn. Each frame, and each
/// field of a head, counts for more than the few bytes that may stand for it.
const SLICE_BYTES: usize = 64 << 10;

/// The part of what is left of that which is read at once, beside the rest of a frame: it may be
/// frames of one byte, which count for far more.
const READ_PART: usize = 16;

/// So much is read at once however little is left.
const READ_BYTES_MIN: usize = 1 << 10;

/// The memory that the library takes for a frame that nobody has taken yet. It keeps as much as
/// it has ever taken, for as long as the connection lasts.
const KEPT_FRAME_BYTES: usize = 320;

/// The frames of one turn for which nothing counts as held: any connection has as many at times.
const KEPT_FREE: usize = 64;

/// A turn with more such frames than this is a heavy one. There is no room for as many of 20 bytes.
const KEPT_MAX: usize = 256;

/// A connection with more heavy turns than this does not stay for further requests. An endpoint
/// whose answers are short, or come late for requests that were given up, has one now and then.
const HEAVY_TURNS_MAX: usize = 64;

/// The state that a connection's requests and its task share.
#[derive(Default)]
pub(super) struct State {
    /// Requests that it carries.
    pub(super) active: Cell<usize>,
    /// Bytes that were read since the last one has gone.
    pub(super) unasked: Cell<usize>,
    /// Requests that have begun.
    pub(super) begun: Cell<u64>,
    /// The streams that its endpoint offers.
    pub(super) offered: Cell<usize>,
    /// The cost of what was read since its task last had a turn.
    slice: Cell<usize>,
    /// The frames since then that the library keeps until somebody takes them, and the most ever.
    kept: Cell<usize>,
    most_kept: Cell<usize>,
    /// The turns with very many of them.
    heavy_turns: Cell<usize>,
    /// Whether its endpoint has sent too many frames that carry nothing.
    is_noisy: Cell<bool>,
    /// Whether it takes no more requests. Its task says so too, at its end.
    pub(super) is_closed: Cell<bool>,
    /// Whether it is known what the endpoint offers, or never will be.
    pub(super) is_settled: Cell<bool>,
    /// Tells the task that somebody wants to know.
    pub(super) asked: Notify,
    pub(super) settled: Notify,
}

/// The bytes of a connection, of which those are bounded that come while it carries no request,
/// and frames that carry nothing at any time. The library answers every PING and takes every frame,
/// for as long as they come.
pub(super) struct Bounded {
    stream: EndpointStream,
    noise: Noise,
    edge: Edge,
    state: Rc<State>,
    turns: Rc<AnswerTurns>,
    /// The namespace of the upstream, and its place among answers that are there at once.
    owner: u64,
    wait: AnswerWait,
    /// The bytes that the library keeps for frames.
    held: HeldBytes,
}

/// The part of a frame's head from its kind on, where that was not read at once with the rest and
/// the kind may have to be another.
#[derive(Default)]
struct Edge {
    bytes: [u8; EDGE_BYTES],
    filled: usize,
    /// How much was passed on, once all was there.
    given: usize,
}

/// The window of a connection. It takes what all of its streams may have sent to clients that do
/// not read, so that none of them holds up the others.
pub(super) struct Window {
    stream_bytes: u32,
    bytes: u32,
}

/// Drives a connection to its end, which also comes when a ping is not answered. Has note taken
/// when its endpoint offers other streams than before, and at the end.
pub(super) async fn run(
    mut connection: Connection<Bounded, Bytes>,
    state: Rc<State>,
    mut window: Window,
    (rule, counts): (Option<Ping>, Arc<Counts>),
    note: impl Fn(),
) {
    let mut pinging = pin!(ping(connection.ping_pong(), &state, rule));
    poll_fn(|context| {
        state.begin_turn();
        window.widen(&mut connection, state.active.get());
        let polled = Pin::new(&mut connection).poll(context);
        if state.has_read() {
            let offered = connection.max_concurrent_send_streams();
            if state.offered.replace(offered) != offered {
                note();
            }
        }
        // What it ended with is told to each of its streams.
        match polled {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => pinging.as_mut().poll(context),
        }
    })
    .await;
    if state.has_heard_too_much() || state.is_laden() {
        counts.add(Count::UpstreamEvicted);
    }
    state.is_closed.set(true);
    state.settle();
    note();
}

/// Pings by a rule, and where somebody asks what the endpoint offers: that comes before its answer
/// to any ping. Returns once one is not answered.
async fn ping(pings: Option<PingPong>, state: &State, rule: Option<Ping>) {
    let Some(mut pings) = pings else {
        return std::future::pending().await;
    };
    let (interval, timeout) = rule.map_or((Duration::MAX, Duration::MAX), |rule| {
        (rule.interval, rule.timeout)
    });
    loop {
        // Either is a reason.
        let _ = tokio::time::timeout(interval, state.asked.notified()).await;
        let pong = pings.ping(::h2::Ping::opaque());
        if !matches!(tokio::time::timeout(timeout, pong).await, Ok(Ok(_))) {
            return;
        }
        state.settle();
    }
}

impl State {
    /// Counts bytes that were read, where no request is there to have asked for them.
    fn hear(&self, bytes: usize) {
        if self.active.get() == 0 {
            self.unasked.set(self.unasked.get().saturating_add(bytes));
        }
    }

    fn begin_turn(&self) {
        self.slice.set(0);
        self.kept.set(0);
    }

    /// Whether anything was read in this turn.
    fn has_read(&self) -> bool {
        self.slice.get() > 0
    }

    /// Counts frames that the library keeps; what is held for them now, where that is more.
    fn keep(&self, frames: usize) -> Option<usize> {
        let before = self.kept.get();
        let kept = before.saturating_add(frames);
        self.kept.set(kept);
        if before <= KEPT_MAX && kept > KEPT_MAX {
            self.heavy_turns.set(self.heavy_turns.get() + 1);
        }
        if kept <= self.most_kept.get() {
            return None;
        }
        self.most_kept.set(kept);
        let places = kept.checked_next_power_of_two().unwrap_or(kept);
        (kept > KEPT_FREE).then(|| places.saturating_mul(KEPT_FRAME_BYTES))
    }

    /// Whether what frames have taken is too much to be kept without a request.
    pub(super) fn is_laden(&self) -> bool {
        self.heavy_turns.get() > HEAVY_TURNS_MAX
    }

    pub(super) fn has_heard_too_much(&self) -> bool {
        self.unasked.get() > UNASKED_BYTES_MAX || self.is_noisy.get()
    }

    fn settle(&self) {
        self.is_settled.set(true);
        self.settled.notify_waiters();
    }
}

impl Bounded {
    /// The bytes of a connection on which nothing was said, to an endpoint of a namespace.
    pub(super) fn new(
        stream: EndpointStream,
        state: Rc<State>,
        (turns, owner, held): (Rc<AnswerTurns>, u64, HeldBytes),
    ) -> Self {
        Bounded {
            stream,
            noise: Noise::new(),
            edge: Edge::default(),
            state,
            turns,
            owner,
            wait: AnswerWait::default(),
            held,
        }
    }
}

impl Bounded {
    /// Takes note of bytes that were read, and says how many of the last are to be heard again.
    fn hear(&mut self, read: &mut [u8]) -> io::Result<usize> {
        let Bounded {
            noise,
            state,
            turns,
            owner,
            held,
            ..
        } = self;
        let before = (noise.frames(), noise.fields(), noise.kept());
        let withheld = noise.hear(read);
        let frames = more(before.0, noise.frames());
        let fields = more(before.1, noise.fields());
        let kept = more(before.2, noise.kept());
        let bytes = read.len();
        let read = FramesRead {
            bytes,
            frames,
            fields,
        };
        turns.spend_frames(*owner, read);
        let slice = state.slice.get().saturating_add(read.cost(1));
        state.slice.set(slice);
        if let Some(bytes) = state.keep(kept) {
            held.set(bytes);
        }
        state.hear(bytes);
        if noise.is_too_much(state.begun.get(), state.active.get()) {
            state.is_noisy.set(true);
        }
        match state.has_heard_too_much() {
            true => Err(io::Error::other(
                "the endpoint says too much that nobody has asked for",
            )),
            false => Ok(withheld),
        }
    }

    /// How much may be read at once: what is left of a frame, and beside that no more than may be
    /// many frames.
    fn room(&self) -> usize {
        let left = SLICE_BYTES.saturating_sub(self.state.slice.get());
        let of_others = (left / READ_PART).max(READ_BYTES_MIN);
        self.noise.rest().saturating_add(of_others)
    }

    /// Ready unless something is there, nothing was read since the task last had a turn, and the
    /// namespace has had its own.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.state.slice.get() > 0 || !self.stream.may_have_input() {
            return Poll::Ready(());
        }
        self.turns.poll_turn(self.owner, &mut self.wait, context)
    }

    /// Reads the rest of a frame's head whose first part was withheld; false at the end.
    fn poll_edge(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while self.edge.filled < EDGE_BYTES {
            let place = self.edge.bytes.get_mut(self.edge.filled..);
            let mut into = ReadBuf::new(place.unwrap_or_default());
            let stream = Pin::new(&mut *self.stream);
            ready!(AsyncRead::poll_read(stream, context, &mut into))?;
            let count = into.filled().len();
            if count == 0 {
                return Poll::Ready(Ok(false));
            }
            self.edge.filled += count;
        }
        let mut whole = self.edge.bytes;
        self.hear(&mut whole)?;
        self.edge.bytes = whole;
        Poll::Ready(Ok(true))
    }
}

impl Edge {
    fn keep(&mut self, withheld: &[u8]) {
        let place = self.bytes.iter_mut();
        place.zip(withheld).for_each(|(to, from)| *to = *from);
        (self.filled, self.given) = (withheld.len(), 0);
    }

    /// Passes on what is whole, as far as there is room.
    fn give(&mut self, into: &mut ReadBuf<'_>) {
        let rest = self.bytes.get(self.given..).unwrap_or_default();
        let part = rest.get(..into.remaining()).unwrap_or(rest);
        into.put_slice(part);
        self.given += part.len();
        if self.given == EDGE_BYTES {
            *self = Edge::default();
        }
    }
}

/// How many more there are than before.
fn more(before: u64, now: u64) -> usize {
    usize::try_from(now.saturating_sub(before)).unwrap_or(usize::MAX)
}

impl AsyncRead for Bounded {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        loop {
            if it.state.slice.get() >= SLICE_BYTES {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(it.poll_turn(context));
            if it.edge.filled > 0 {
                let is_whole = it.edge.given > 0 || ready!(it.poll_edge(context))?;
                if is_whole {
                    it.edge.give(into);
                }
                return Poll::Ready(Ok(()));
            }
            let before = into.filled().len();
            let room = it.room() as u64;
            let mut part = AsyncReadExt::take(&mut *it.stream, room);
            ready!(AsyncRead::poll_read(Pin::new(&mut part), context, into))?;
            let read = into.filled_mut().get_mut(before..).unwrap_or_default();
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let withheld = it.hear(read)?;
            let end = read.len() - withheld;
            it.edge.keep(read.get(end..).unwrap_or_default());
            into.set_filled(before + end);
            // Nothing at all would be the end.
            if end > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Bounded { stream, noise, .. } = self.get_mut();
        let stream = Pin::new(&mut **stream);
        let written = ready!(AsyncWrite::poll_write(stream, context, bytes))?;
        noise.say(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut *self.get_mut().stream), context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        it.stream.end();
        AsyncWrite::poll_shutdown(Pin::new(&mut *it.stream), context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Bounded { stream, noise, .. } = self.get_mut();
        let stream = Pin::new(&mut **stream);
        let written = ready!(AsyncWrite::poll_write_vectored(stream, context, parts))?;
        noise.say(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Window {
    /// The window of a connection that carries no stream.
    pub(super) fn new(limits: &Limits) -> Self {
        Window {
            stream_bytes: limits.stream_window_bytes,
            bytes: limits.connection_window_bytes,
        }
    }

    /// Makes room for as many streams as there are. It is never narrowed: what is not read is
    /// bounded by the streams, and a window that nobody fills costs nothing.
    fn widen(&mut self, connection: &mut Connection<Bounded, Bytes>, streams: usize) {
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        let bytes = self
            .stream_bytes
            .saturating_mul(streams)
            .min(WINDOW_BYTES_MAX);
        if bytes > self.bytes {
            self.bytes = bytes;
            connection.set_target_window_size(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
