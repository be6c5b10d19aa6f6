//! Orders to a receiver of datagrams.

use std::cell::Cell;
use std::task::{Context, Waker};
use std::time::Duration;

/// The way in which a receiver goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiverOrder {
    /// It serves everybody.
    #[default]
    Serve,
    /// It serves the flows that it has, until nobody has said anything in them for so long.
    Drain {
        /// The time.
        last_call: Duration,
        /// Whether another process receives in its place, so that it has to leave datagrams of
        /// clients to that.
        is_succeeded: bool,
    },
    /// It ends its flows.
    Close,
}

/// The way to one receiver, which alone waits for what it is told.
#[derive(Default)]
pub struct Stop {
    order: Cell<ReceiverOrder>,
    waker: Cell<Option<Waker>>,
}

impl Stop {
    /// Tells the receiver what to do.
    pub fn give(&self, order: ReceiverOrder) {
        self.order.set(order);
        self.wake();
    }

    /// The last that the receiver was told.
    pub(super) fn order(&self) -> ReceiverOrder {
        self.order.get()
    }

    /// The same; the receiver is woken with the next word.
    pub(super) fn poll_order(&self, context: &Context<'_>) -> ReceiverOrder {
        let kept = self.waker.take();
        let kept = kept.filter(|waker| waker.will_wake(context.waker()));
        let waker = kept.unwrap_or_else(|| context.waker().clone());
        self.waker.set(Some(waker));
        self.order.get()
    }

    /// Lets the receiver look around.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
