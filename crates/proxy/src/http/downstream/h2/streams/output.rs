//! How heads, bodies and ends of streams are written, and when.

use std::task::{Context, Poll};

use super::{Gone, Streams, wake};
use crate::codec::buffer::{BUFFER_BYTES, Buffer};
use crate::codec::frame::{self, FLAGS_AT, FrameHead, HEAD_BYTES, flag, kind};
use crate::codec::hpack;
use crate::net::stream::Stream;

/// Bodies wait while so much is to be sent.
const OUTPUT_BYTES: usize = BUFFER_BYTES;

/// Heads wait while more than this is to be sent, and nothing is read that has to be answered.
const UNSENT_BYTES: usize = 4 * BUFFER_BYTES;

/// The least that is sent of a body because of room.
const PART_BYTES: usize = 1 << 10;

impl Streams {
    /// Sends what there is; ready once all of it is sent.
    ///
    /// # Errors
    /// A client that is gone.
    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Poll<Result<(), Gone>> {
        let Some(output) = &mut self.output else {
            return stream.poll_send(context).map_err(|_| Gone);
        };
        let before = output.len();
        let drained = stream.poll_drain(context, output);
        let sent = before - output.len();
        self.sent += sent as u64;
        if output.is_empty() {
            self.output = None;
        }
        if sent > 0 {
            self.wake_for_room();
        }
        drained.map_err(|_| Gone)
    }

    /// Whether so much waits to be sent that no head is written, and no frame read.
    pub(crate) fn is_full(&self) -> bool {
        self.unsent() > UNSENT_BYTES
    }

    /// Has a slot's stream told once there is room for a head.
    pub(crate) fn wait_for_room(&mut self, place: usize) {
        if let Some(slot) = self.slots.get_mut(place)
            && !slot.is_head_waiting
        {
            slot.is_head_waiting = true;
            self.heads_waiting.push(place);
        }
    }

    /// Wakes the tasks that wait for room where there is some, in the order in which they came.
    pub(crate) fn wake_for_room(&mut self) {
        if !self.is_full() {
            for place in std::mem::take(&mut self.heads_waiting) {
                if let Some(slot) = self.slots.get_mut(place) {
                    slot.is_head_waiting = false;
                    wake(&slot.waker);
                }
            }
        }
        if self.window > 0 && self.has_room(PART_BYTES) {
            self.wake_waiting();
        }
    }

    /// A slot's stream has nothing to write any more, and waits for nothing.
    pub(crate) fn leave_line(&mut self, place: usize) {
        if let Some(slot) = self.slots.get_mut(place)
            && std::mem::take(&mut slot.is_waiting)
        {
            self.waiting.retain(|waiting| *waiting != place);
        }
    }

    /// Wakes the first of the tasks that wait, where some of a body may be written. Once that has
    /// written its part, or gone, the next one is woken: a window of one byte is for one of them.
    pub(crate) fn wake_next(&mut self) {
        while self.window > 0 && !self.waiting.is_empty() && self.has_room(PART_BYTES) {
            let place = self.waiting.remove(0);
            let Some(slot) = self.slots.get_mut(place) else {
                continue;
            };
            slot.is_waiting = false;
            wake(&slot.waker);
            if !slot.is_reset {
                return;
            }
        }
    }

    /// Whether some of a body of so many bytes may be written.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        OUTPUT_BYTES.saturating_sub(self.unsent() + HEAD_BYTES) >= count.min(PART_BYTES)
    }

    /// Writes a head: in one frame, as is mostly the case, or in more.
    pub(crate) fn put_head(&mut self, id: u32, is_end: bool, pack: impl FnOnce(&mut Buffer)) {
        let (max, is_first) = (self.frame_bytes_max, !self.has_packed);
        self.has_packed = true;
        let output = self.output();
        let start = output.len();
        output.append(&[0; HEAD_BYTES]);
        if is_first {
            hpack::forget(output);
        }
        pack(output);
        let length = output.len() - start - HEAD_BYTES;
        let mut head = FrameHead {
            length,
            kind: kind::HEADERS,
            flags: flag::END_HEADERS | if is_end { flag::END_STREAM } else { 0 },
            stream: id,
        };
        if length <= max {
            let place = output.filled_mut().get_mut(start..start + HEAD_BYTES);
            if let Some(place) = place {
                place.copy_from_slice(&head.to_bytes());
            }
            return;
        }
        let block = output.filled().get(start + HEAD_BYTES..);
        let block = block.unwrap_or_default().to_vec();
        output.truncate(start);
        head.flags &= !flag::END_HEADERS;
        let mut parts = block.chunks(max).peekable();
        while let Some(part) = parts.next() {
            head.length = part.len();
            if parts.peek().is_none() {
                head.flags |= flag::END_HEADERS;
            }
            output.append(&head.to_bytes());
            output.append(part);
            head.kind = kind::CONTINUATION;
            head.flags = 0;
        }
    }

    /// Writes as much of a body as may be sent now.
    pub(crate) fn put_data(&mut self, place: usize, data: &[u8]) -> usize {
        let mut taken = 0;
        while taken < data.len() && self.has_room(data.len() - taken) {
            let room = OUTPUT_BYTES.saturating_sub(self.unsent() + HEAD_BYTES);
            let Some(slot) = self.slots.get_mut(place) else {
                break;
            };
            let window = usize::try_from(self.window.min(slot.window)).unwrap_or(0);
            let length = (data.len() - taken)
                .min(window)
                .min(room)
                .min(self.frame_bytes_max);
            if length == 0 {
                break;
            }
            slot.window -= length as i64;
            self.window -= length as i64;
            let output = self.output.get_or_insert_with(Buffer::take);
            slot.flags_at = Some(self.sent + (output.len() + FLAGS_AT) as u64);
            let part = data.get(taken..taken + length).unwrap_or_default();
            frame::write(kind::DATA, 0, slot.id, part, output);
            taken += length;
        }
        taken
    }

    /// Writes the end of a stream: into its last frame, where that is still here.
    pub(crate) fn put_end(&mut self, place: usize) {
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        let output = self.output.get_or_insert_with(Buffer::take);
        let flags = slot.flags_at.and_then(|at| at.checked_sub(self.sent));
        let flags = flags.and_then(|at| output.filled_mut().get_mut(usize::try_from(at).ok()?));
        match flags {
            Some(flags) => *flags |= flag::END_STREAM,
            None => frame::write(kind::DATA, flag::END_STREAM, slot.id, &[], output),
        }
    }
}
