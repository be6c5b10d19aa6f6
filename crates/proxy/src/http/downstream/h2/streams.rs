//! The streams of one connection: what each has received, and what all of them have to send.
//!
//! Frames are written where they are sent from: a stream puts its head and its body into the one
//! buffer that its connection sends, as far as windows and room allow, and waits for more of either
//! otherwise.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::admission::holdings::HeldBytes;
use crate::admission::spaces::Spots;
use crate::codec::buffer::Buffer;
use crate::codec::frame::{self, Reason};
use crate::codec::trailer::{self, Trailers};
use crate::limits::Limits;
use crate::net::stream::Stream;

mod account;
mod handle;
mod output;

pub(crate) use account::STREAM_BYTES;
pub(crate) use handle::Handle;

/// The slots that a connection keeps memory for while it has no stream.
const SLOTS_KEPT: usize = 16;

/// The client, or its stream, is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The fault of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its stream ends.
    Stream(u32, Reason),
    /// The connection ends.
    Connection(Reason),
}

/// The state that a connection and its streams share.
pub(super) struct SharedStreams(RefCell<Streams>);

/// The streams of a connection.
pub(super) struct Streams {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Streams that are not closed on both sides: their numbers, in order, and their slots.
    live: Vec<(u32, usize)>,
    /// Streams that ended here while the client may have had more to say; the oldest first.
    cut: VecDeque<u32>,
    cut_max: usize,
    /// The last that the client has opened.
    last: u32,
    output: Option<Buffer>,
    /// Bytes sent before those in `output`.
    sent: u64,
    /// Whether a head was sent.
    has_packed: bool,
    /// The bytes that may be sent on all streams; `stream_window` are those on each at first.
    window: i64,
    stream_window: i64,
    frame_bytes_max: usize,
    /// The bytes that the client may send on all streams.
    receiving: Receiving,
    stream_receive_max: u32,
    /// Slots that wait for a window or for room.
    waiting: Vec<usize>,
    /// Slots whose heads wait for room.
    heads_waiting: Vec<usize>,
    connection: Option<Waker>,
    is_gone: bool,
    /// The bytes that are held for all streams, beside what is to be sent.
    held: usize,
    held_max: usize,
    /// The bytes below what is held for all streams.
    below: usize,
    /// The bytes that are held for the connection itself.
    beside: usize,
    /// The sum of all of these, and of what is to be sent, as the worker knows it.
    holding: HeldBytes,
    /// The slot whose stream may take more of its body though too much is held.
    ahead: Option<usize>,
    /// Slots whose streams wait until less is held.
    growing: Vec<usize>,
}

/// The bytes that the client may send before it is told more.
#[derive(Clone, Copy, Default)]
struct Receiving {
    max: u32,
    left: i64,
    /// The bytes that were used, and not told yet.
    used: u32,
}

/// A stream that somebody serves.
#[derive(Default)]
struct Slot {
    id: u32,
    window: i64,
    receiving: Receiving,
    received: Option<Buffer>,
    /// The bytes that are held for it elsewhere, for as long as it lasts and now, and those below.
    fixed: usize,
    held: usize,
    below: usize,
    /// The places of the namespace that it is of.
    owner: Spots,
    /// The bytes that were counted of it last: held, and below.
    counted: [usize; 2],
    trailers: Option<Trailers>,
    trailer_bytes: usize,
    /// The bytes that are missing of a declared length.
    length_left: Option<u64>,
    /// The offset of the flags of its last DATA frame, counted from the first byte sent.
    flags_at: Option<u64>,
    waker: Option<Waker>,
    is_received: bool,
    is_sent: bool,
    is_reset: bool,
    is_waiting: bool,
    is_head_waiting: bool,
    is_growing: bool,
}

impl Receiving {
    fn new(max: u32) -> Self {
        Receiving {
            max,
            left: i64::from(max),
            used: 0,
        }
    }

    /// Takes note of what was used; tells what to tell the client, once that is worth a frame.
    fn use_up(&mut self, count: usize) -> Option<u32> {
        // No more is used than came, and no more comes than the window.
        self.used += count as u32;
        if self.used < self.max / 2 || self.used == 0 {
            return None;
        }
        self.left += i64::from(self.used);
        Some(std::mem::take(&mut self.used))
    }
}

impl SharedStreams {
    /// The streams of a connection that has said nothing, with what is said to its client first.
    pub(super) fn new(limits: &Limits, holding: HeldBytes) -> Rc<SharedStreams> {
        let mut output = Buffer::take();
        // Heads beyond the limit are refused, and counted, like any other; beyond twice as much
        // they are not even kept.
        let head_bytes_max = u32::try_from(limits.head_bytes_max * 2).unwrap_or(u32::MAX);
        let window_bytes = limits.stream_window_bytes;
        frame::write_settings(
            limits.streams_max,
            window_bytes,
            head_bytes_max,
            &mut output,
        );
        let more = limits
            .connection_window_bytes
            .saturating_sub(frame::WINDOW_BYTES);
        if more > 0 {
            frame::window_update(0, more, &mut output);
        }
        Rc::new(SharedStreams(RefCell::new(Streams {
            slots: Vec::new(),
            free: Vec::new(),
            live: Vec::new(),
            cut: VecDeque::new(),
            cut_max: limits.resets_max,
            last: 0,
            output: Some(output),
            sent: 0,
            has_packed: false,
            window: i64::from(frame::WINDOW_BYTES),
            stream_window: i64::from(frame::WINDOW_BYTES),
            frame_bytes_max: frame::FRAME_BYTES_MAX,
            receiving: Receiving::new(limits.connection_window_bytes),
            stream_receive_max: window_bytes,
            waiting: Vec::new(),
            heads_waiting: Vec::new(),
            connection: None,
            is_gone: false,
            held: 0,
            held_max: limits.held_bytes_max,
            below: 0,
            beside: 0,
            holding,
            ahead: None,
            growing: Vec::new(),
        })))
    }

    /// Does something with the streams.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Streams) -> T) -> T {
        act(&mut self.0.borrow_mut())
    }

    /// Sends what there is; ready once all of it is sent.
    ///
    /// # Errors
    /// A client that is gone.
    pub(super) fn poll_send(
        &self,
        context: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Poll<Result<(), Gone>> {
        let mut streams = self.0.borrow_mut();
        let sent = streams.poll_send(context, stream);
        streams.tell();
        sent
    }
}

impl Streams {
    /// How many streams are not closed on both sides.
    pub(super) fn count(&self) -> usize {
        self.live.len()
    }

    /// The last stream that the client has opened.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// How many bytes were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// How many bytes wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.output.as_ref().map_or(0, Buffer::len)
    }

    /// The bytes to be sent.
    pub(super) fn output(&mut self) -> &mut Buffer {
        self.output.get_or_insert_with(Buffer::take)
    }

    /// Sets the task that sends the stream, to be woken where there is more.
    pub(super) fn set_connection(&mut self, waker: &Waker) {
        keep(&mut self.connection, waker);
    }

    /// Takes note that the client has opened a stream, whether or not it is served.
    ///
    /// # Errors
    /// A number that it cannot have.
    pub(super) fn note(&mut self, id: u32) -> Result<(), Fault> {
        if id.is_multiple_of(2) || id <= self.last {
            return Err(Fault::Connection(Reason::Protocol));
        }
        self.last = id;
        Ok(())
    }

    /// A slot for a stream that was noted. `length` is the declared one of its body.
    pub(super) fn open(&mut self, id: u32, is_ended: bool, length: Option<u64>) -> usize {
        let slot = Slot {
            id,
            window: self.stream_window,
            receiving: Receiving::new(self.stream_receive_max),
            length_left: length,
            is_received: is_ended,
            fixed: STREAM_BYTES,
            ..Slot::default()
        };
        let place = match self.free.pop() {
            Some(place) => {
                if let Some(free) = self.slots.get_mut(place) {
                    *free = slot;
                }
                place
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        // Numbers only grow.
        self.live.push((id, place));
        self.recount(place);
        place
    }

    /// Whether the client has opened a stream, even if it is closed by now.
    pub(super) fn is_known(&self, id: u32) -> bool {
        id <= self.last && !id.is_multiple_of(2)
    }

    /// Whether a stream is not closed on both sides.
    pub(super) fn is_live(&self, id: u32) -> bool {
        self.find(id).is_some()
    }

    /// Whether anybody wants what follows on a stream that the client has opened.
    ///
    /// # Errors
    /// The client has said that nothing follows.
    pub(super) fn expects_more(&self, id: u32) -> Result<bool, Fault> {
        match self.find(id).and_then(|slot| self.slots.get(slot)) {
            Some(slot) if slot.is_received => Err(Fault::Stream(id, Reason::StreamClosed)),
            Some(_) => Ok(true),
            None if self.is_cut(id) => Ok(false),
            None => Err(Fault::Connection(Reason::StreamClosed)),
        }
    }

    /// Whether a stream ended here while the client may have had more to say.
    fn is_cut(&self, id: u32) -> bool {
        self.cut.contains(&id)
    }

    /// Takes note of a DATA frame of so many bytes, filling included; whether anybody wants them.
    ///
    /// # Errors
    /// More than the windows allow, or a stream that has nothing to receive.
    pub(super) fn begin_data(&mut self, id: u32, count: usize) -> Result<bool, Fault> {
        let length = i64::try_from(count).unwrap_or(i64::MAX);
        self.receiving.left -= length;
        if self.receiving.left < 0 {
            return Err(Fault::Connection(Reason::FlowControl));
        }
        let Some(slot) = self.find(id) else {
            self.use_up(count);
            return match self.is_cut(id) {
                true => Ok(false),
                false if self.is_known(id) => Err(Fault::Stream(id, Reason::StreamClosed)),
                false => Err(Fault::Connection(Reason::Protocol)),
            };
        };
        let fault = match self.slots.get_mut(slot) {
            Some(slot) if slot.is_received => Reason::StreamClosed,
            Some(slot) => {
                slot.receiving.left -= length;
                if slot.receiving.left >= 0 {
                    return Ok(true);
                }
                Reason::FlowControl
            }
            None => Reason::Internal,
        };
        self.use_up(count);
        Err(Fault::Stream(id, fault))
    }

    /// Takes some of a body.
    ///
    /// # Errors
    /// More than was declared.
    pub(super) fn data(&mut self, id: u32, data: &[u8]) -> Result<(), Fault> {
        let place = self.find(id).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(place) else {
            // It ended since the frame began.
            self.use_up(data.len());
            return Ok(());
        };
        if let Some(left) = &mut slot.length_left {
            let Some(rest) = left.checked_sub(data.len() as u64) else {
                self.use_up(data.len());
                return Err(Fault::Stream(id, Reason::Protocol));
            };
            *left = rest;
        }
        if !data.is_empty() {
            slot.received.get_or_insert_with(Buffer::none).append(data);
            wake(&slot.waker);
            self.recount(place);
        }
        Ok(())
    }

    /// Takes note of filling that nobody wants.
    pub(super) fn filling(&mut self, id: u32, count: usize) {
        self.use_up(count);
        self.use_up_of(id, count);
    }

    /// The end of a request, with what came behind its body.
    ///
    /// # Errors
    /// Less than was declared.
    pub(super) fn end(&mut self, id: u32, trailers: Option<Trailers>) -> Result<(), Fault> {
        let Some(place) = self.find(id) else {
            return Ok(());
        };
        let Some(slot) = self.slots.get_mut(place) else {
            return Ok(());
        };
        if slot.is_received {
            return Err(Fault::Stream(id, Reason::StreamClosed));
        }
        if slot.length_left.is_some_and(|left| left > 0) {
            return Err(Fault::Stream(id, Reason::Protocol));
        }
        slot.is_received = true;
        slot.trailer_bytes = trailers.as_ref().map_or(0, trailer::memory);
        slot.trailers = trailers;
        wake(&slot.waker);
        self.recount(place);
        self.settle(place);
        Ok(())
    }

    /// The client has reset a stream.
    pub(super) fn reset_by_client(&mut self, id: u32) {
        self.forget(id);
        // It has said itself that nothing follows.
        self.cut.retain(|cut| *cut != id);
    }

    /// Ends a stream for what is wrong with it.
    pub(super) fn fail(&mut self, id: u32, reason: Reason) {
        self.forget(id);
        self.remember(id);
        frame::reset(id, reason, self.output());
    }

    /// Opens a window of the client's; that of the connection for 0.
    ///
    /// # Errors
    /// A window that grows too far.
    pub(super) fn widen(&mut self, id: u32, more: u32) -> Result<(), Fault> {
        let max = i64::from(frame::WINDOW_BYTES_MAX);
        if id == 0 {
            self.window += i64::from(more);
            if self.window > max {
                return Err(Fault::Connection(Reason::FlowControl));
            }
            self.wake_next();
            return Ok(());
        }
        if let Some(slot) = self.find(id).and_then(|slot| self.slots.get_mut(slot)) {
            slot.window += i64::from(more);
            if slot.window > max {
                return Err(Fault::Stream(id, Reason::FlowControl));
            }
            wake(&slot.waker);
        }
        Ok(())
    }

    /// Follows what the client says of itself; tells how many streams it has opened windows of.
    ///
    /// # Errors
    /// A window that grows too far.
    pub(super) fn set(&mut self, settings: frame::H2Settings) -> Result<usize, Fault> {
        if let Some(max) = settings.frame_bytes_max {
            // Longer frames than are taken are not sent either.
            self.frame_bytes_max = frame::FRAME_BYTES_MAX.min(max as usize);
        }
        let window = settings.window_bytes.map_or(self.stream_window, i64::from);
        let more = window - std::mem::replace(&mut self.stream_window, window);
        if more == 0 {
            return Ok(0);
        }
        let mut opened = 0;
        for (_, place) in &self.live {
            let Some(slot) = self.slots.get_mut(*place) else {
                continue;
            };
            let was_closed = slot.window <= 0;
            slot.window += more;
            if slot.window > i64::from(frame::WINDOW_BYTES_MAX) {
                return Err(Fault::Connection(Reason::FlowControl));
            }
            // Others wait for nothing that this changes.
            if was_closed && slot.window > 0 {
                wake(&slot.waker);
                opened += 1;
            }
        }
        Ok(opened)
    }

    /// The connection is at its end, and so are all streams.
    pub(super) fn end_all(&mut self) {
        self.is_gone = true;
        self.live.clear();
        for slot in &mut self.slots {
            slot.is_reset = true;
            wake(&slot.waker);
        }
    }

    fn find(&self, id: u32) -> Option<usize> {
        let at = self.live.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.live.get(at).map(|(_, slot)| *slot)
    }

    /// Takes a stream out of those that live, and tells who serves it.
    fn forget(&mut self, id: u32) {
        if let Ok(at) = self.live.binary_search_by_key(&id, |(id, _)| *id) {
            let (_, place) = self.live.remove(at);
            if let Some(slot) = self.slots.get_mut(place) {
                slot.is_reset = true;
                wake(&slot.waker);
            }
        }
    }

    /// Takes a stream out of those that live once both sides have closed it.
    fn settle(&mut self, place: usize) {
        let Some(slot) = self.slots.get(place) else {
            return;
        };
        if slot.is_received
            && slot.is_sent
            && let Ok(at) = self.live.binary_search_by_key(&slot.id, |(id, _)| *id)
        {
            self.live.remove(at);
        }
    }

    fn remember(&mut self, id: u32) {
        if self.cut.len() >= self.cut_max {
            self.cut.pop_front();
        }
        self.cut.push_back(id);
    }

    /// Takes note of what was used of the connection's window.
    fn use_up(&mut self, count: usize) {
        if let Some(more) = self.receiving.use_up(count) {
            frame::window_update(0, more, self.output());
        }
    }

    fn use_up_of(&mut self, id: u32, count: usize) {
        let Some(slot) = self.find(id).and_then(|slot| self.slots.get_mut(slot)) else {
            return;
        };
        if !slot.is_received
            && let Some(more) = slot.receiving.use_up(count)
        {
            frame::window_update(id, more, self.output());
        }
    }

    /// Wakes the tasks that waited, in the order in which they came.
    fn wake_waiting(&mut self) {
        for place in std::mem::take(&mut self.waiting) {
            if let Some(slot) = self.slots.get_mut(place) {
                slot.is_waiting = false;
                wake(&slot.waker);
            }
        }
    }

    fn wait(&mut self, place: usize) {
        // Whose own window is closed is told when it opens.
        if let Some(slot) = self.slots.get_mut(place)
            && !slot.is_waiting
            && slot.window > 0
        {
            slot.is_waiting = true;
            self.waiting.push(place);
        }
    }

    /// Gives back the memory that only very many streams at once need, where there is none.
    fn shrink(&mut self) {
        if self.slots.len() <= SLOTS_KEPT || self.free.len() < self.slots.len() {
            return;
        }
        self.slots.clear();
        self.slots.shrink_to(SLOTS_KEPT);
        self.free.clear();
        self.free.shrink_to(SLOTS_KEPT);
        self.live.shrink_to(SLOTS_KEPT);
    }

    fn close(&mut self, place: usize) {
        if let Some(slot) = self.slots.get_mut(place) {
            slot.is_sent = true;
        }
        self.settle(place);
    }
}

fn keep(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(kept) if kept.will_wake(waker) => {}
        _ => *place = Some(waker.clone()),
    }
}

fn wake(waker: &Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake_by_ref();
    }
}
