//! The turns of a connection among those of its client's source: the heads that it has to read wait
//! while that has had its own, and so do bodies in very small frames, and SETTINGS that may wake
//! all streams. A few streams are one turn: whoever opens many does not wait for each.

use std::task::{Context, Poll};

use super::{Connection, Data};
use crate::admission::framing::CHARGED_BYTES;
use crate::admission::planning::{Asker, CHARGED_STEPS, PlanWait, read_steps};
use crate::codec::buffer::Buffer;
use crate::codec::frame::{FrameHead, flag, kind};
use crate::http::downstream::h2::streams::Gone;

/// The streams that a connection opens before others have their turn.
const TURN_STREAMS: u32 = 8;

/// The bytes of a body in a frame from which on they cost no more than any.
const SMALL_DATA_BYTES: usize = 1 << 10;

/// So many bytes that a frame of a body has fewer cost as much as one of a head.
const BYTES_PER_COST: usize = 4;

/// The steps that it takes to wake a stream whose window SETTINGS have opened: some 1.5 us.
const OPENED_STEPS: u32 = 128;

/// The frames of a connection with next to nothing of a body in each.
#[derive(Default)]
pub(super) struct SmallData {
    /// The bytes of heads that they cost as much as, and that were not charged yet.
    uncharged: usize,
    /// Whether some were charged since it was last the turn of the client's source.
    has_to_wait: bool,
}

impl Connection {
    /// Ready unless a head is next, one more of many small frames of bodies, or SETTINGS that may
    /// wake streams, and others have their turn before.
    pub(super) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.opened >= TURN_STREAMS && matches!(self.next_asker(), Some((_, false))) {
            // By now all is read that there is about those before: most may have been reset.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.local.fairness.plans.admits_any_request() {
            self.small_data.has_to_wait = false;
            self.wait = PlanWait::default();
            return Poll::Ready(());
        }
        let Some((asker, is_beside)) = self.next_asker() else {
            return Poll::Ready(());
        };
        let turns = &self.local.fairness.plans;
        let polled = match is_beside || self.opened > 0 {
            true => turns.poll_source(asker, &mut self.wait, context),
            false => turns.poll_request(asker, &mut self.wait, context),
        };
        // It may go while it waits.
        self.has_to_look |= polled.is_pending();
        self.small_data.has_to_wait &= polled.is_pending() || !is_beside;
        polled
    }

    /// Takes note of a stream that was opened, whose plan may end the turn.
    pub(in crate::http::downstream::h2) fn note_stream(
        &mut self,
        ends_turn: bool,
        is_costly: bool,
    ) {
        self.asker.is_costly = is_costly;
        self.has_to_look |= is_costly;
        self.opened = match ends_turn {
            true => 0,
            false => self.opened + 1,
        };
    }

    /// Charges a frame of a body, where that is small and not the last.
    pub(super) fn charge_data(&mut self, data: Data) {
        let small = &mut self.small_data;
        if !data.is_end {
            small.uncharged += SMALL_DATA_BYTES.saturating_sub(data.left) / BYTES_PER_COST;
        }
        if small.uncharged >= CHARGED_BYTES {
            small.has_to_wait = true;
            let steps = read_steps(std::mem::take(&mut small.uncharged));
            self.local.fairness.plans.spend(self.asker.source, steps);
        }
    }

    /// Charges a head that was unpacked, whether or not anybody wants it.
    pub(super) fn charge_head(&self, bytes: usize) {
        let steps = read_steps(bytes);
        if steps >= CHARGED_STEPS {
            let turns = &self.local.fairness.plans;
            turns.spend(self.asker.source, steps);
        }
    }

    /// Charges SETTINGS that have opened the windows of so many streams.
    pub(super) fn charge_opened(&self, streams: usize) {
        if streams > 0 {
            let streams = u32::try_from(streams).unwrap_or(u32::MAX);
            let steps = streams.saturating_mul(OPENED_STEPS);
            self.local.fairness.plans.spend(self.asker.source, steps);
        }
    }

    /// Whether the client has gone, though what it has sent before may still be there to be read.
    pub(super) fn is_gone(&mut self, context: &mut Context<'_>) -> bool {
        let sent = self.shared.poll_send(context, &mut self.stream);
        matches!(sent, Poll::Ready(Err(Gone))) || self.stream.has_failed()
    }

    /// The client as it asks for what is next, where that has its turn, and whether that is no
    /// request.
    fn next_asker(&self) -> Option<(Asker, bool)> {
        let is_between = self.head.is_none() && self.data.is_none();
        let input = self.input.as_ref().map_or(&[][..], Buffer::filled);
        let next = FrameHead::read(input).filter(|_| is_between)?;
        let has_turn = match next.kind {
            kind::HEADERS => return Some((self.asker, false)),
            kind::DATA => self.small_data.has_to_wait && next.length < SMALL_DATA_BYTES,
            kind::SETTINGS => {
                !next.has(flag::ACK) && self.shared.with(|streams| streams.count() > 0)
            }
            _ => false,
        };
        let asker = Asker {
            is_costly: true,
            ..self.asker
        };
        has_turn.then_some((asker, true))
    }
}
