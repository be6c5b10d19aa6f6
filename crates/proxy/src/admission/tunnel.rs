//! The bytes that are held for one tunnel: a stream, or what changed its protocol.
//!
//! Bytes that one end does not read are kept for it, and there is nothing to answer and no time
//! that a tunnel has to be over by. So where too much is held for clients a tunnel reads little at
//! a time, and nothing where far too much is; then those end that hold most and stand still.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::holdings::{HeldBytes, Holdings};
use super::spaces::Spots;
use crate::net::deadline::Deadline;

/// The time after which a tunnel that reads nothing looks whether there is room again.
const LOOK: Duration = Duration::from_millis(200);

/// The bytes of a tunnel, and its place among those that may have to go.
pub(crate) struct TunnelHeld {
    held: HeldBytes,
    /// Passes where the tunnel has to go, and where it may look for room again.
    alarm: Deadline,
    is_waiting: bool,
}

impl TunnelHeld {
    /// A tunnel of a namespace, for which nothing is held. Where its client's end counts what is
    /// held itself, this does not do so again.
    pub(crate) fn new(holdings: &Rc<Holdings>, space: Spots, is_counted: bool) -> Self {
        let alarm = Deadline::new();
        let mut held = match is_counted {
            true => holdings.counted(),
            false => holdings.connection(),
        };
        held.belong(space);
        held.watch_tunnel(&alarm);
        TunnelHeld {
            held,
            alarm,
            is_waiting: false,
        }
    }

    /// About how many bytes may be read at once.
    pub(crate) fn room(&self) -> usize {
        self.held.room()
    }

    /// Takes note of what is held, and of whether anything has moved, or was not read for want of
    /// room.
    pub(crate) fn note(&mut self, bytes: usize, has_moved: bool, is_held_up: bool) {
        if has_moved {
            self.held.get_on();
        }
        self.held.set(bytes);
        if is_held_up && !self.is_waiting {
            self.is_waiting = true;
            self.alarm.set(LOOK);
        }
    }

    /// Whether the tunnel has to go.
    pub(crate) fn is_evicted(&self) -> bool {
        self.held.is_evicted()
    }

    /// Ready where it is time to look again.
    pub(crate) fn poll_again(&mut self, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.alarm.poll_passed(context));
        self.alarm.unset();
        self.is_waiting = false;
        Poll::Ready(())
    }
}
