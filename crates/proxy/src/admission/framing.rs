//! The work of bodies that come in very small chunks, each of which is looked at however little is
//! in it.
//!
//! The runtime bounds the reads of a task before others have their turn, but one read may have
//! thousands of chunks in it. So their work counts in that turn as reads do; and what is more than
//! a little is charged, as other costs are, to the source that sends it or to the namespace whose
//! endpoint does, which waits then before more of it is done: see [`super::planning`] and
//! [`super::answers`].

use std::task::{Context, Poll, ready};

use tokio::task::coop;

/// The work that counts as one read does, in bytes of framing. The runtime lets a task do 128 of
/// them. Less than this, of what was read at once, counts for nothing.
pub(crate) const UNIT_BYTES: usize = 1 << 10;

/// The work that is charged at once. It is as much as a costly request takes.
pub(crate) const CHARGED_BYTES: usize = 16 << 10;

/// The work of one who sends bodies.
#[derive(Default)]
pub(crate) struct FramingWork {
    /// The work that did not count yet in the turn of its task.
    unpaid: usize,
    /// The work that was not charged yet.
    uncharged: usize,
    /// Whether some was charged since it was last the turn of whoever sends.
    has_to_wait: bool,
}

impl FramingWork {
    /// Takes note of work; tells how much of it is to be charged, once that is much.
    pub(crate) fn note(&mut self, bytes: usize) -> Option<usize> {
        self.unpaid = self.unpaid.saturating_add(bytes);
        self.uncharged = self.uncharged.saturating_add(bytes);
        if self.uncharged < CHARGED_BYTES {
            return None;
        }
        self.has_to_wait = true;
        Some(std::mem::take(&mut self.uncharged))
    }

    /// Ready once more may be done in the turn of its task and, where some was charged, once
    /// `poll_charged` is: whoever sends has its turn then.
    pub(crate) fn poll_turn(
        &mut self,
        context: &mut Context<'_>,
        poll_charged: impl FnOnce(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<()> {
        while self.unpaid > 0 {
            ready!(coop::poll_proceed(context)).made_progress();
            self.unpaid = self.unpaid.saturating_sub(UNIT_BYTES);
        }
        if self.has_to_wait {
            ready!(poll_charged(context));
            self.has_to_wait = false;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::{CHARGED_BYTES, FramingWork, UNIT_BYTES};

    /// The work of what was read at once.
    const PART: usize = 64 << 10;

    /// So much was done of it at a time as there was to be read.
    #[tokio::test]
    async fn a_turn_has_room_for_as_much_work_as_for_reads() {
        let mut work = FramingWork::default();
        let mut turns = Vec::new();
        while turns.len() < 8 {
            tokio::task::yield_now().await;
            let parts = poll_fn(|context| {
                let mut parts = 0;
                while parts < 100 && work.poll_turn(context, |_| Poll::Ready(())).is_ready() {
                    work.note(PART);
                    parts += 1;
                }
                Poll::Ready(parts)
            });
            turns.push(parts.await);
        }
        let bytes = turns.iter().sum::<usize>() * PART;
        // The first part of all is paid for in the second turn.
        assert!(bytes <= 8 * 128 * UNIT_BYTES + PART, "{turns:?}");
        assert!(bytes >= 4 * 128 * UNIT_BYTES, "{turns:?}");
        assert!(turns.iter().all(|parts| *parts <= 3), "{turns:?}");
    }

    #[tokio::test]
    async fn little_work_waits_for_nobody_and_much_once() {
        let mut work = FramingWork::default();
        let mut asked = 0;
        for number in 1..=4 {
            let charged = work.note(CHARGED_BYTES / 2);
            assert_eq!(charged, (number % 2 == 0).then_some(CHARGED_BYTES));
            poll_fn(|context| {
                work.poll_turn(context, |_| {
                    asked += 1;
                    Poll::Ready(())
                })
            })
            .await;
            assert_eq!(asked, number / 2);
        }
        work.note(CHARGED_BYTES);
        for is_ready in [false, true, true] {
            let polled = poll_fn(|context| {
                Poll::Ready(work.poll_turn(context, |_| match is_ready {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }))
            });
            assert_eq!(polled.await.is_ready(), is_ready);
        }
    }
}
