//! The turns of a connection among those of its client's source: the heads that it has to read wait
//! while that has had its own.

use std::task::{Context, Poll};

use super::Connection;
use crate::admission::planning::{CHARGED_STEPS, read_steps};
use crate::codec::buffer::Buffer;
use crate::codec::frame::{FrameHead, kind};
use crate::http::downstream::h2::streams::Gone;

impl Connection {
    /// Ready unless a head is next, and others have their turn before.
    pub(super) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.local.fairness.plans.admits_any_source() || !self.begins_head() {
            return Poll::Ready(());
        }
        let turns = &self.local.fairness.plans;
        let polled = turns.poll_source(self.asker, &mut self.wait, context);
        // It may go while it waits.
        self.has_to_look |= polled.is_pending();
        polled
    }

    /// Charges a head that was unpacked, whether or not anybody wants it.
    pub(super) fn charge_head(&self, bytes: usize) {
        let steps = read_steps(bytes);
        if steps >= CHARGED_STEPS {
            let turns = &self.local.fairness.plans;
            turns.spend(self.asker.source, steps);
        }
    }

    /// Whether the client has gone, though what it has sent before may still be there to be read.
    pub(super) fn is_gone(&mut self, context: &mut Context<'_>) -> bool {
        let sent = self.shared.poll_send(context, &mut self.stream);
        matches!(sent, Poll::Ready(Err(Gone))) || self.stream.has_failed()
    }

    fn begins_head(&self) -> bool {
        let is_between = self.head.is_none() && self.data.is_none();
        let input = self.input.as_ref().map_or(&[][..], Buffer::filled);
        let next = FrameHead::read(input).filter(|_| is_between);
        next.is_some_and(|head| head.kind == kind::HEADERS)
    }
}
