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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::admission::answers::{AnswerTurns, AnswerWait, FIELD_COST};
use crate::codec::frame::WINDOW_BYTES_MAX;
use crate::limits::Limits;
use crate::telemetry::count::{Count, Counts};
use crate::upstream::endpoint_stream::EndpointStream;
use crate::upstream::noise::{EDGE_BYTES, Noise};

/// The most bytes that are read of a connection while it carries no request: the rest of responses
/// that were given up, and frames that nobody has asked for. Beyond, it is closed.
const UNASKED_BYTES_MAX: usize = 1 << 20;

/// The most bytes that are read of a connection at once, before others have their turn. Each field
/// of a head counts for more than the one byte that may stand for it.
const SLICE_BYTES: usize = 64 << 10;

/// The state that a connection's requests and its task share.
#[derive(Default)]
pub(super) struct State {
    /// Requests that it carries.
    pub(super) active: Cell<usize>,
    /// Bytes that were read since the last one has gone.
    pub(super) unasked: Cell<usize>,
    /// Requests that have begun.
    pub(super) begun: Cell<u64>,
    /// Bytes that were read since its task last had a turn.
    slice: Cell<usize>,
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

/// Drives a connection to its end, which also comes when a ping is not answered.
pub(super) async fn run(
    mut connection: Connection<Bounded, Bytes>,
    state: Rc<State>,
    mut window: Window,
    rule: Option<Ping>,
    counts: Arc<Counts>,
) {
    let mut pinging = pin!(ping(connection.ping_pong(), &state, rule));
    poll_fn(|context| {
        state.slice.set(0);
        window.widen(&mut connection, state.active.get());
        // What it ended with is told to each of its streams.
        match Pin::new(&mut connection).poll(context) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => pinging.as_mut().poll(context),
        }
    })
    .await;
    if state.has_heard_too_much() {
        counts.add(Count::UpstreamEvicted);
    }
    state.is_closed.set(true);
    state.settle();
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
        (turns, owner): (Rc<AnswerTurns>, u64),
    ) -> Self {
        Bounded {
            stream,
            noise: Noise::new(),
            edge: Edge::default(),
            state,
            turns,
            owner,
            wait: AnswerWait::default(),
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
            ..
        } = self;
        let before = noise.fields();
        let withheld = noise.hear(read);
        let fields = noise.fields().saturating_sub(before);
        let fields = usize::try_from(fields).unwrap_or(usize::MAX);
        turns.spend_frames(*owner, read.len(), fields);
        let slice = state.slice.get() + read.len();
        let of_fields = fields.saturating_mul(FIELD_COST);
        state.slice.set(slice.saturating_add(of_fields));
        state.hear(read.len());
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
            ready!(AsyncRead::poll_read(
                Pin::new(&mut *it.stream),
                context,
                into
            ))?;
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
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::LocalSet;

    use super::{AnswerTurns, Bounded, EndpointStream, SLICE_BYTES};
    use crate::net::stream::Stream;

    #[tokio::test]
    async fn reading_ends_for_one_turn_though_more_is_there() {
        LocalSet::new().run_until(read_in_slices()).await;
    }

    async fn read_in_slices() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connected = TcpStream::connect(address).await.unwrap();
        let (mut endpoint, _) = listener.accept().await.unwrap();
        let stream = EndpointStream::new(Stream::Plain(connected));
        let mut bounded = Bounded::new(stream, Rc::default(), (Rc::default(), 1));
        // A frame of a body that is as long as a frame can be.
        endpoint.write_all(&[255, 255, 255]).await.unwrap();
        let mut room = vec![0; 4_096];
        let mut turns = 0;
        let mut total = 0;
        while total < 3 * SLICE_BYTES {
            endpoint.write_all(&vec![0; 2 * SLICE_BYTES]).await.unwrap();
            bounded.state.slice.set(0);
            let mut read = 0;
            poll_fn(|context| {
                loop {
                    let mut into = ReadBuf::new(&mut room);
                    let polled = Pin::new(&mut bounded).poll_read(context, &mut into);
                    if polled.is_pending() && read == 0 {
                        return Poll::Pending;
                    }
                    if polled.is_pending() {
                        return Poll::Ready(());
                    }
                    read += into.filled().len();
                }
            })
            .await;
            assert!(read <= SLICE_BYTES, "{read}");
            turns += 1;
            total += read;
        }
        assert!(turns >= 3);
    }

    /// A connection that has something to say, and its endpoint.
    async fn saying(turns: &Rc<AnswerTurns>, owner: u64) -> (Bounded, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connected = TcpStream::connect(address).await.unwrap();
        let (mut endpoint, _) = listener.accept().await.unwrap();
        // A frame of a kind that nobody knows.
        endpoint
            .write_all(&[0, 0, 3, 99, 0, 0, 0, 0, 0, 1, 2, 3])
            .await
            .unwrap();
        connected.readable().await.unwrap();
        let stream = EndpointStream::new(Stream::Plain(connected));
        let bounded = Bounded::new(stream, Rc::default(), (turns.clone(), owner));
        (bounded, endpoint)
    }

    /// How much is read of a connection in one poll.
    fn read_once(bounded: &mut Bounded, context: &mut Context<'_>) -> Poll<usize> {
        let mut room = [0; 64];
        let mut into = ReadBuf::new(&mut room);
        let polled = Pin::new(bounded).poll_read(context, &mut into);
        polled.map(|_| into.filled().len())
    }

    /// Each connection had a slice of its own, however many of one namespace had something to say.
    #[tokio::test]
    async fn a_namespace_that_has_had_its_turn_is_read_in_the_next_one() {
        let story = async {
            let turns = Rc::<AnswerTurns>::default();
            let mut all = Vec::new();
            for owner in [1, 1, 1, 2] {
                all.push(saying(&turns, owner).await);
            }
            let mut read = Vec::new();
            poll_fn(|context| {
                for (bounded, _) in &mut all {
                    read.push(read_once(bounded, context));
                    turns.spend_head(1, 2 * SLICE_BYTES);
                }
                Poll::Ready(())
            })
            .await;
            let ready = Poll::Ready(12);
            assert_eq!(read, [ready, ready, Poll::Pending, ready]);
            let (late, _) = &mut all[2];
            let count = poll_fn(|context| read_once(late, context)).await;
            assert_eq!(count, 12);
        };
        LocalSet::new().run_until(story).await;
    }
}
