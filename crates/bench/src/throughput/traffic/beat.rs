//! When requests are due that no answer may hold back: a timer beside the sockets.

use std::io;
use std::iter::Peekable;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::load::Schedule;

/// A schedule that has begun.
pub(super) struct Beat {
    timer: OwnedFd,
    start: Instant,
    due: Peekable<Box<dyn Iterator<Item = (Duration, usize)>>>,
}

impl Beat {
    /// Begins now.
    pub(super) fn begin(schedule: Schedule) -> io::Result<Beat> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let due: Box<dyn Iterator<Item = _>> = Box::new(schedule.due());
        Ok(Beat {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            start: Instant::now(),
            due: due.peekable(),
        })
    }

    /// The next request that is due, and on which connection.
    pub(super) fn next(&mut self) -> Option<(Instant, usize)> {
        let (after, connection) = *self.due.peek()?;
        let due = self.start + after;
        if due > Instant::now() {
            return None;
        }
        self.due.next();
        Some((due, connection))
    }

    /// Lets the timer tell of the one after.
    pub(super) fn arm(&mut self) -> io::Result<()> {
        let Some((after, _)) = self.due.peek() else {
            return Ok(());
        };
        let rest = (self.start + *after).saturating_duration_since(Instant::now());
        // Nothing at all would stop the timer.
        let rest = rest.max(Duration::from_nanos(1));
        let value = Timespec::try_from(rest).map_err(io::Error::other)?;
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

impl AsFd for Beat {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
