//! Heads in the frames of a connection: of requests, and behind their bodies.

use super::{Connection, OpenedStream, State, Step, check_priority};
use crate::admission::spaces::NOBODY;
use crate::codec::frame::{self, FrameHead, Reason, flag};
use crate::codec::hpack::{Section, Unreadable};
use crate::http::downstream::h2::request::{self, H2Request, Opening};
use crate::http::downstream::h2::streams::{Fault, Handle, Streams};
use crate::limits::Reached;

/// A head of which more frames have to come.
pub(super) struct Unfinished {
    pub stream: u32,
    is_end: bool,
    block: Vec<u8>,
}

impl Unfinished {
    /// How many bytes of memory it takes.
    pub(super) fn memory(&self) -> usize {
        self.block.capacity()
    }
}

impl Connection {
    /// Takes a HEADERS frame.
    pub(super) fn begin_head(&mut self, head: &FrameHead, payload: &[u8]) -> Result<Step, Fault> {
        const WRONG: Fault = Fault::Connection(Reason::Protocol);
        let mut block = match head.has(flag::PADDED) {
            true => frame::unpadded(payload).ok_or(WRONG)?,
            false => payload,
        };
        if head.stream == 0 {
            return Err(WRONG);
        }
        let mut priority = Ok(());
        if head.has(flag::PRIORITY) {
            let (first, rest) = block.split_at_checked(5).ok_or(WRONG)?;
            priority = check_priority(head.stream, first);
            block = rest;
        }
        let is_end = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.take_head(head.stream, is_end, block, priority);
        }
        self.head = Some(Unfinished {
            stream: head.stream,
            is_end,
            block: block.to_vec(),
        });
        // It is of use to no client, and none is known that gets it wrong.
        priority.map(|()| Step::Done).map_err(|_| WRONG)
    }

    /// Takes a CONTINUATION frame.
    pub(super) fn continue_head(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
    ) -> Result<Step, Fault> {
        let Some(mut unfinished) = self.head.take() else {
            return Err(Fault::Connection(Reason::Protocol));
        };
        if unfinished.block.len() + payload.len() > self.head_bytes_max() {
            self.local.counts.add_reached(Reached::HeadFrames);
            return Err(Fault::Connection(Reason::EnhanceYourCalm));
        }
        unfinished.block.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            self.head = Some(unfinished);
            return Ok(Step::Done);
        }
        let Unfinished {
            stream,
            is_end,
            block,
        } = unfinished;
        self.take_head(stream, is_end, &block, Ok(()))
    }

    /// Takes a whole head: of a request, or what is behind its body.
    fn take_head(
        &mut self,
        id: u32,
        is_end: bool,
        block: &[u8],
        priority: Result<(), Fault>,
    ) -> Result<Step, Fault> {
        let stands = |streams: &mut Streams| (streams.is_known(id), streams.is_live(id));
        let (is_known, is_live) = self.shared.with(stands);
        let is_refused = !is_known && self.refuses();
        let mut opening = Opening::new(self.head_bytes_max());
        if is_refused || (is_known && !is_live) {
            opening.section_mut().pass_over();
        }
        let decoded = self.decoder.decode(block, opening.section_mut());
        let size = opening.section().size();
        self.spend(size);
        self.charge_head(size);
        decoded.map_err(|error| self.give_up(error))?;
        if is_known {
            if !self.take_trailers(id, is_end, opening.section())? {
                self.count_late(size)?;
            }
            return Ok(Step::Done);
        }
        self.shared.with(|streams| streams.note(id))?;
        priority?;
        if is_refused {
            self.count_late(size)?;
            return Err(Fault::Stream(id, Reason::RefusedStream));
        }
        let wrong = Fault::Stream(id, Reason::Protocol);
        let length = H2Request::read(opening.section())
            .map_err(|_| wrong)?
            .length();
        if is_end && length.is_some_and(|length| length > 0) {
            return Err(wrong);
        }
        let slot = self.shared.with(|streams| streams.open(id, is_end, length));
        Ok(Step::Opened(OpenedStream {
            head: opening,
            handle: Handle::new(self.shared.clone(), slot),
            is_end,
        }))
    }

    /// Whether there is no place for another stream.
    fn refuses(&self) -> bool {
        let count = self.shared.with(|streams| streams.count());
        let is_full = u32::try_from(count).is_ok_and(|it| it >= self.local.limits.streams_max);
        if is_full {
            self.local.counts.add_reached(Reached::Streams);
        }
        let holds_too_much = self.shared.with(|streams| streams.holds_too_much());
        if holds_too_much {
            self.local.counts.add_reached(Reached::HeldBytes);
        }
        let is_refused = is_full || holds_too_much || self.state == State::Left;
        is_refused || !self.may_hold()
    }

    /// Whether more may be held for it, as far as others go.
    fn may_hold(&self) -> bool {
        let held = self.held();
        // Whose stream it is to be its head says.
        let fairness = &self.local.fairness;
        fairness.may_hold(NOBODY, held, &self.local.counts)
    }

    fn give_up(&self, error: Unreadable) -> Fault {
        match error {
            Unreadable::Malformed => Fault::Connection(Reason::Compression),
            Unreadable::Bomb => {
                self.local.counts.add_reached(Reached::HeadFrames);
                Fault::Connection(Reason::EnhanceYourCalm)
            }
        }
    }

    /// Takes what is behind a body; whether anybody wants it.
    fn take_trailers(&self, id: u32, is_end: bool, section: &Section) -> Result<bool, Fault> {
        let wrong = Fault::Stream(id, Reason::Protocol);
        let bytes_max = usize::try_from(self.local.limits.trailer_bytes_max);
        let bytes_max = bytes_max.unwrap_or(usize::MAX);
        self.shared.with(|streams| {
            if !streams.expects_more(id)? {
                return Ok(false);
            }
            if !is_end {
                return Err(wrong);
            }
            let trailers = request::trailers(section, bytes_max).map_err(|_| wrong)?;
            streams.end(id, trailers)?;
            Ok(true)
        })
    }
}
