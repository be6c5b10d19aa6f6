//! A client's connection of HTTP/2 (RFC 9113): reads its frames, tells its streams, and sends what
//! they have to say.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::flood::Frames;
use super::request::Opening;
use super::streams::{Fault, Gone, Handle, SharedStreams, Streams};
use crate::admission::planning::{Asker, PlanWait};
use crate::codec::buffer::Buffer;
use crate::codec::frame::{
    self, FRAME_BYTES_MAX, FrameHead, HEAD_BYTES, PREFACE, Reason, flag, kind,
};
use crate::codec::hpack::HpackDecoder;
use crate::limits::{LATE_DATA_BYTES, Reached};
use crate::local::Shared;
use crate::net::deadline::Deadline;
use crate::net::stream::Stream;

mod heads;
mod turn;

use heads::Unfinished;
use turn::SmallData;

/// The most bytes that are thrown away once the connection is at its end.
const LINGER_BYTES_MAX: usize = 256 << 10;

/// The bytes that are read and unpacked before others have their turn.
const TURN_BYTES: usize = 128 << 10;

/// The bytes that each frame counts for besides.
const FRAME_BYTES: usize = 64;

/// The content of a PING whose answer tells that the client knows of the end.
const LAST_CALL: [u8; 8] = *b"lastcall";

/// A connection.
pub(super) struct Connection {
    stream: Stream,
    input: Option<Buffer>,
    shared: Rc<SharedStreams>,
    decoder: HpackDecoder,
    frames: Frames,
    state: State,
    /// The head that is being read, and what came of it so far.
    head: Option<Unfinished>,
    /// The DATA frame that is being read.
    data: Option<Data>,
    local: Shared,
    /// Streams that had to be reset for what is wrong with them, and were not told yet.
    faults: usize,
    lingered: usize,
    /// The bytes that may be read and unpacked before others have their turn.
    turn: usize,
    /// The client, as what it asks takes turns, and its place among others where it waits.
    asker: Asker,
    wait: PlanWait,
    /// The streams that were opened in this turn.
    opened: u32,
    small_data: SmallData,
    /// Whether it is to be seen that the client is still there, before more is read of it.
    has_to_look: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was read.
    New,
    /// The preface was read, and SETTINGS have to follow.
    Begun,
    /// Streams may come.
    Open,
    /// The client is told that it should open no more.
    Leaving,
    /// The client knows, and what it opens is refused.
    Left,
    /// The rest is sent; then the stream is closed.
    Ending,
    /// The stream is closed, and what still comes is thrown away.
    Lingering,
}

#[derive(Clone, Copy)]
struct Data {
    stream: u32,
    left: usize,
    filling: usize,
    is_end: bool,
    is_wanted: bool,
}

/// A stream that the client has opened.
pub(super) struct OpenedStream {
    /// Its head.
    pub head: Opening,
    /// The stream.
    pub handle: Handle,
    /// Whether the head is all of the request.
    pub is_end: bool,
}

/// The next step after a frame.
enum Step {
    /// Nothing to do for the server of streams.
    Done,
    /// A stream was opened.
    Opened(OpenedStream),
    /// It is not whole.
    More,
}

impl Connection {
    /// A connection whose client, of a source, has said no more than this.
    pub(super) fn new(stream: Stream, said: Option<Buffer>, local: Shared, source: u64) -> Self {
        let limits = &local.limits;
        Connection {
            stream,
            input: said,
            shared: SharedStreams::new(limits, local.fairness.holdings.connection()),
            decoder: HpackDecoder::default(),
            frames: Frames::new(limits),
            state: State::New,
            head: None,
            data: None,
            local,
            faults: 0,
            lingered: 0,
            turn: TURN_BYTES,
            asker: Asker {
                source,
                is_costly: false,
            },
            wait: PlanWait::default(),
            opened: 0,
            small_data: SmallData::default(),
            has_to_look: false,
        }
    }

    /// The client, as what it asks takes turns.
    pub(super) fn asker(&self) -> Asker {
        self.asker
    }

    /// Whether the client has said what has to come first.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::New | State::Begun)
    }

    /// Whether part of a head was read.
    pub(super) fn is_reading_head(&self) -> bool {
        self.head.is_some()
    }

    /// Whether the connection is at its end.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending | State::Lingering)
    }

    /// Whether the client knows that it should open no more streams.
    pub(super) fn has_left(&self) -> bool {
        self.state == State::Left
    }

    /// Whether it has to go because too much is held for clients, and most for this one.
    pub(super) fn is_evicted(&self) -> bool {
        self.shared.with(|streams| streams.is_evicted())
    }

    /// How many bytes are held for it, and for its streams.
    pub(super) fn held(&self) -> usize {
        self.shared.with(|streams| streams.held())
    }

    /// The deadline that passes at once where it has to go.
    pub(super) fn watch(&self, deadline: &Deadline) {
        self.shared.with(|streams| streams.watch(deadline));
    }

    /// Streams that had to be reset since this was asked last.
    pub(super) fn take_faults(&mut self) -> usize {
        std::mem::take(&mut self.faults)
    }

    /// Asks the client to open no more streams.
    pub(super) fn leave(&mut self) {
        if self.is_ending() || matches!(self.state, State::Leaving | State::Left) {
            return;
        }
        self.state = State::Leaving;
        self.shared.with(|streams| {
            let output = streams.output();
            frame::goaway(frame::STREAM_MAX, Reason::NoError, output);
            frame::write(kind::PING, 0, 0, &LAST_CALL, output);
        });
    }

    /// Ends the connection once what was said is sent.
    pub(super) fn end(&mut self, reason: Reason) {
        if self.is_ending() {
            return;
        }
        self.state = State::Ending;
        self.shared.with(|streams| {
            let last = streams.last();
            frame::goaway(last, reason, streams.output());
            streams.end_all();
        });
    }

    /// Ends the connection once what was said is sent, where all streams have ended.
    pub(super) fn finish(&mut self) {
        match self.state {
            State::Left => self.state = State::Ending,
            _ => self.end(Reason::NoError),
        }
    }

    /// Reads and sends, until a stream is opened; none once the connection has ended.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<OpenedStream>> {
        let polled = self.poll_frames(context);
        if polled.is_pending() {
            self.opened = 0;
        }
        let input = self.input.as_ref().map_or(0, Buffer::capacity);
        let head = self.head.as_ref().map_or(0, Unfinished::memory);
        let bytes = input + head + self.stream.buffered() + self.decoder.memory();
        self.shared.with(|streams| {
            let kept = streams.kept();
            streams.hold_beside(bytes + kept);
        });
        polled
    }

    fn poll_frames(&mut self, context: &mut Context<'_>) -> Poll<Option<OpenedStream>> {
        self.shared
            .with(|streams| streams.set_connection(context.waker()));
        loop {
            if self.is_ending() {
                return self.poll_end(context).map(|()| None);
            }
            if std::mem::take(&mut self.has_to_look) && self.is_gone(context) {
                self.shared.with(|streams| streams.end_all());
                return Poll::Ready(None);
            }
            match self.poll_read(context) {
                Poll::Ready(Ok(opened)) => return Poll::Ready(Some(opened)),
                Poll::Ready(Err(Gone)) => {
                    self.shared.with(|streams| streams.end_all());
                    return Poll::Ready(None);
                }
                Poll::Pending if self.is_ending() => {}
                Poll::Pending => {
                    let has_waited = self.shared.with(|streams| streams.is_full());
                    match self.shared.poll_send(context, &mut self.stream) {
                        Poll::Ready(Err(Gone)) => {
                            self.shared.with(|streams| streams.end_all());
                            return Poll::Ready(None);
                        }
                        // Nothing was read for what waited.
                        Poll::Ready(Ok(())) if has_waited => {}
                        _ => return Poll::Pending,
                    }
                }
            }
        }
    }

    /// Reads frames until one opens a stream. Pending also where the connection is at its end, too
    /// much waits to be sent, or others have their turn.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<OpenedStream, Gone>> {
        loop {
            // What was read at once asks for no more than what comes one by one.
            if self.shared.with(|streams| streams.is_full()) {
                return Poll::Pending;
            }
            if self.turn == 0 {
                self.turn = TURN_BYTES;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.poll_turn(context));
            match self.step() {
                Ok(Step::Opened(opened)) => return Poll::Ready(Ok(opened)),
                Ok(Step::Done) => continue,
                Ok(Step::More) => {}
                Err(Fault::Stream(id, reason)) => {
                    self.faults += usize::from(reason != Reason::RefusedStream);
                    self.shared.with(|streams| streams.fail(id, reason));
                    continue;
                }
                Err(Fault::Connection(reason)) => {
                    self.end(reason);
                    return Poll::Pending;
                }
            }
            match ready!(self.stream.poll_fill(context, &mut self.input)) {
                Ok(1..) => {}
                _ => return Poll::Ready(Err(Gone)),
            }
        }
    }

    /// Sends what is left, closes the stream, and throws away what still comes: a socket that is
    /// closed with bytes unread takes what was sent with it.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.state == State::Ending {
            if ready!(self.shared.poll_send(context, &mut self.stream)).is_err() {
                return Poll::Ready(());
            }
            self.state = State::Lingering;
        }
        if ready!(self.stream.poll_close(context)).is_err() {
            return Poll::Ready(());
        }
        while self.lingered <= LINGER_BYTES_MAX {
            self.input = None;
            match ready!(self.stream.poll_fill(context, &mut self.input)) {
                Ok(count @ 1..) => self.lingered += count,
                _ => break,
            }
        }
        Poll::Ready(())
    }

    /// Takes one frame, or what there is of a body, out of the input.
    fn step(&mut self) -> Result<Step, Fault> {
        // A body whose frame has nothing in it goes on with nothing.
        let idle = self.data.map(|_| Buffer::none());
        let Some(mut input) = self.input.take().or(idle) else {
            return Ok(Step::More);
        };
        let before = input.len();
        let step = match self.data {
            Some(data) => self.go_on(data, &mut input),
            None => self.take_frame(&mut input),
        };
        self.spend(before - input.len() + FRAME_BYTES);
        if !input.is_empty() {
            self.input = Some(input);
        }
        step
    }

    fn take_frame(&mut self, input: &mut Buffer) -> Result<Step, Fault> {
        const WRONG: Fault = Fault::Connection(Reason::Protocol);
        if self.state == State::New {
            let there = input.len().min(PREFACE.len());
            if input.filled().get(..there) != PREFACE.get(..there) {
                return Err(WRONG);
            }
            if there < PREFACE.len() {
                return Ok(Step::More);
            }
            input.consume(there);
            self.state = State::Begun;
        }
        let Some(head) = FrameHead::read(input.filled()) else {
            return Ok(Step::More);
        };
        if head.length > FRAME_BYTES_MAX {
            return Err(Fault::Connection(Reason::FrameSize));
        }
        let is_more_of_head = |unfinished: &Unfinished| {
            head.kind == kind::CONTINUATION && head.stream == unfinished.stream
        };
        let is_wanted = match (&self.head, self.state) {
            (Some(unfinished), _) => is_more_of_head(unfinished),
            (None, State::Begun) => head.kind == kind::SETTINGS && !head.has(flag::ACK),
            (None, _) => head.kind != kind::CONTINUATION,
        };
        if !is_wanted {
            return Err(WRONG);
        }
        let is_body = head.kind == kind::DATA;
        // Of a body what there is is handed on; all else is taken whole.
        let wanted = match is_body {
            true => usize::from(head.has(flag::PADDED) && head.length > 0),
            false => head.length,
        };
        let Some(payload) = input.filled().get(HEAD_BYTES..HEAD_BYTES + wanted) else {
            input.reserve(HEAD_BYTES + wanted - input.len());
            return Ok(Step::More);
        };
        if let Some(reached) = self.count(&head) {
            self.local.counts.add_reached(reached);
            return Err(Fault::Connection(Reason::EnhanceYourCalm));
        }
        if self.state == State::Begun {
            self.state = State::Open;
        }
        let step = match is_body {
            true => self.begin_data(&head, payload.first().copied()),
            false => self.take_payload(&head, payload),
        };
        input.consume(HEAD_BYTES + wanted);
        step
    }

    /// The most bytes of a head that are kept, packed or not.
    fn head_bytes_max(&self) -> usize {
        self.local.limits.head_bytes_max * 2
    }

    fn count(&mut self, head: &FrameHead) -> Option<Reached> {
        let sent = self.shared.with(|streams| streams.sent());
        self.frames.count(head, sent)
    }

    /// Counts a frame for a stream that has ended here, or that is refused, by the bytes that the
    /// head in it unpacks to.
    fn count_late(&mut self, head_bytes: usize) -> Result<(), Fault> {
        let sent = self.shared.with(|streams| streams.sent());
        let Some(reached) = self.frames.count_late(head_bytes, sent) else {
            return Ok(());
        };
        self.local.counts.add_reached(reached);
        Err(Fault::Connection(Reason::EnhanceYourCalm))
    }

    /// Takes note of bytes that were read or unpacked in this turn.
    fn spend(&mut self, bytes: usize) {
        self.turn = self.turn.saturating_sub(bytes);
    }

    fn take_payload(&mut self, head: &FrameHead, payload: &[u8]) -> Result<Step, Fault> {
        const WRONG: Fault = Fault::Connection(Reason::Protocol);
        const SIZE: Fault = Fault::Connection(Reason::FrameSize);
        match head.kind {
            kind::HEADERS => return self.begin_head(head, payload),
            kind::CONTINUATION => return self.continue_head(head, payload),
            kind::PRIORITY => self.priority(head, payload)?,
            kind::RST_STREAM => {
                frame::number(payload).ok_or(SIZE)?;
                let id = head.stream;
                let stands = |streams: &mut Streams| (streams.is_known(id), streams.is_live(id));
                match self.shared.with(stands) {
                    (false, _) => return Err(WRONG),
                    (true, false) => self.count_late(0)?,
                    (true, true) => {}
                }
                self.shared.with(|streams| streams.reset_by_client(id));
            }
            kind::SETTINGS if head.stream != 0 => return Err(WRONG),
            kind::SETTINGS if head.has(flag::ACK) && !payload.is_empty() => return Err(SIZE),
            kind::SETTINGS if head.has(flag::ACK) => {}
            kind::SETTINGS => {
                let settings = frame::settings(payload).map_err(Fault::Connection)?;
                let opened = self.shared.with(|streams| {
                    frame::write(kind::SETTINGS, flag::ACK, 0, &[], streams.output());
                    streams.set(settings)
                })?;
                self.charge_opened(opened);
            }
            kind::PUSH_PROMISE => return Err(WRONG),
            kind::PING => self.ping(head, payload)?,
            kind::GOAWAY if head.stream != 0 => return Err(WRONG),
            kind::GOAWAY if payload.len() < 8 => return Err(SIZE),
            // It has its answers, and opens no more streams.
            kind::GOAWAY => self.leave(),
            kind::WINDOW_UPDATE => self.widen(head, payload)?,
            // Types that nobody knows are passed over (RFC 9113, section 4.1).
            _ => {}
        }
        Ok(Step::Done)
    }

    fn priority(&self, head: &FrameHead, payload: &[u8]) -> Result<(), Fault> {
        if head.stream == 0 {
            return Err(Fault::Connection(Reason::Protocol));
        }
        if payload.len() != 5 {
            return Err(Fault::Stream(head.stream, Reason::FrameSize));
        }
        check_priority(head.stream, payload)
    }

    fn ping(&mut self, head: &FrameHead, payload: &[u8]) -> Result<(), Fault> {
        if head.stream != 0 {
            return Err(Fault::Connection(Reason::Protocol));
        }
        if payload.len() != LAST_CALL.len() {
            return Err(Fault::Connection(Reason::FrameSize));
        }
        let is_answer = head.has(flag::ACK);
        self.shared.with(|streams| {
            if !is_answer {
                frame::write(kind::PING, flag::ACK, 0, payload, streams.output());
            } else if self.state == State::Leaving && payload == LAST_CALL {
                self.state = State::Left;
                let last = streams.last();
                frame::goaway(last, Reason::NoError, streams.output());
            }
        });
        Ok(())
    }

    fn widen(&self, head: &FrameHead, payload: &[u8]) -> Result<(), Fault> {
        let id = head.stream;
        let more = frame::number(payload).ok_or(Fault::Connection(Reason::FrameSize))?;
        let more = more & frame::WINDOW_BYTES_MAX;
        self.shared.with(|streams| match more {
            _ if id != 0 && !streams.is_known(id) => Err(Fault::Connection(Reason::Protocol)),
            0 if id == 0 => Err(Fault::Connection(Reason::Protocol)),
            0 => Err(Fault::Stream(id, Reason::Protocol)),
            more => streams.widen(id, more),
        })
    }

    fn begin_data(&mut self, head: &FrameHead, filling: Option<u8>) -> Result<Step, Fault> {
        const WRONG: Fault = Fault::Connection(Reason::Protocol);
        let is_padded = head.has(flag::PADDED);
        let of_filling = usize::from(is_padded);
        let filling = usize::from(filling.filter(|_| is_padded).unwrap_or_default());
        let left = head.length.checked_sub(of_filling + filling);
        let (Some(left), 1..) = (left, head.stream) else {
            return Err(WRONG);
        };
        let mut data = Data {
            stream: head.stream,
            left,
            filling,
            is_end: head.has(flag::END_STREAM),
            is_wanted: false,
        };
        let begun = self.shared.with(|streams| {
            let is_wanted = streams.begin_data(head.stream, head.length)?;
            if is_wanted {
                streams.filling(head.stream, of_filling);
            }
            Ok(is_wanted)
        });
        match begun {
            Err(Fault::Stream(_, Reason::FlowControl)) => {
                self.local.counts.add_reached(Reached::StreamWindowBytes);
            }
            Err(Fault::Connection(Reason::FlowControl)) => {
                self.local
                    .counts
                    .add_reached(Reached::ConnectionWindowBytes);
            }
            _ => {}
        }
        // What nobody wants is read nevertheless.
        data.is_wanted = matches!(begun, Ok(true));
        self.data = Some(data);
        self.charge_data(data);
        if !begun? && head.length < LATE_DATA_BYTES {
            self.count_late(0)?;
        }
        Ok(Step::Done)
    }

    /// Hands on what there is of a body.
    fn go_on(&mut self, mut data: Data, input: &mut Buffer) -> Result<Step, Fault> {
        let part = input.filled();
        let part = part.get(..data.left).unwrap_or(part);
        let count = part.len();
        let mut taken = Ok(());
        if data.is_wanted {
            taken = self.shared.with(|streams| streams.data(data.stream, part));
        }
        input.consume(count);
        data.left -= count;
        let filling = if data.left == 0 {
            data.filling.min(input.len())
        } else {
            0
        };
        if data.is_wanted && filling > 0 {
            self.shared
                .with(|streams| streams.filling(data.stream, filling));
        }
        input.consume(filling);
        data.filling -= filling;
        if data.left + data.filling > 0 {
            self.data = Some(data);
            return taken.map(|()| Step::More);
        }
        self.data = None;
        if taken.is_ok() && data.is_wanted && data.is_end {
            taken = self.shared.with(|streams| streams.end(data.stream, None));
        }
        taken.map(|()| Step::Done)
    }
}

/// No stream depends on itself.
fn check_priority(id: u32, payload: &[u8]) -> Result<(), Fault> {
    let on = payload.get(..4).and_then(frame::number);
    match on.is_some_and(|on| on & frame::STREAM_MAX == id) {
        true => Err(Fault::Stream(id, Reason::Protocol)),
        false => Ok(()),
    }
}
