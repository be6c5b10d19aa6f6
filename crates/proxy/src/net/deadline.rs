//! Deadlines that cost one store to move.
//!
//! A request moves its deadline several times and hardly ever meets one. So a worker keeps all
//! of them in one row of numbers, and looks at the row once per [`TICK`]. A deadline is met at
//! most two ticks late and never early.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How often a worker looks at its deadlines.
pub(crate) const TICK: Duration = Duration::from_millis(100);

const TICK_MS: u64 = TICK.as_millis() as u64;
const TICKS_PER_SECOND: u64 = 1_000 / TICK_MS;

const NEVER: u32 = u32::MAX;

thread_local! {
    static NOW: Cell<u32> = const { Cell::new(0) };
    static ROW: RefCell<Row> = const { RefCell::new(Row::new()) };
}

struct Row {
    due: Vec<u32>,
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
}

impl Row {
    const fn new() -> Self {
        Row {
            due: Vec::new(),
            wakers: Vec::new(),
            free: Vec::new(),
        }
    }
}

/// A place in the row of the thread that made it.
pub struct Deadline {
    index: u32,
    /// Places belong to threads, so this must not leave its own.
    _stay: std::marker::PhantomData<*const ()>,
}

impl Deadline {
    /// A deadline that is not set.
    pub fn new() -> Self {
        let index = ROW.with_borrow_mut(|row| {
            if let Some(index) = row.free.pop() {
                return index;
            }
            row.due.push(NEVER);
            row.wakers.push(None);
            (row.due.len() - 1) as u32
        });
        Deadline {
            index,
            _stay: std::marker::PhantomData,
        }
    }

    /// Sets it to `after` from now.
    pub fn set(&self, after: Duration) {
        // Not by all of its milliseconds, which have 128 bits and take a division in software.
        let of_seconds = after.as_secs().saturating_mul(TICKS_PER_SECOND);
        let of_rest = u64::from(after.subsec_millis()).div_ceil(TICK_MS);
        let ticks = of_seconds.saturating_add(of_rest + 1);
        let ticks = u32::try_from(ticks).unwrap_or(NEVER);
        self.store(NOW.get().saturating_add(ticks));
    }

    /// Unsets it.
    pub fn unset(&self) {
        self.store(NEVER);
    }

    /// Its number in the row, for [`expire`].
    pub fn number(&self) -> u32 {
        self.index
    }

    /// Ready once it has passed. Keeps the waker otherwise.
    pub fn poll_passed(&self, context: &mut Context<'_>) -> Poll<()> {
        ROW.with_borrow_mut(|row| {
            let index = self.index as usize;
            if row.due.get(index).is_some_and(|due| *due <= NOW.get()) {
                return Poll::Ready(());
            }
            if let Some(slot) = row.wakers.get_mut(index) {
                match slot {
                    Some(waker) if waker.will_wake(context.waker()) => {}
                    _ => *slot = Some(context.waker().clone()),
                }
            }
            Poll::Pending
        })
    }

    /// The result of a wait; none where it passes before.
    pub async fn unless_passed<T>(
        &self,
        mut waiting: impl Future<Output = T> + Unpin,
    ) -> Option<T> {
        poll_fn(|context| {
            if let Poll::Ready(done) = Pin::new(&mut waiting).poll(context) {
                return Poll::Ready(Some(done));
            }
            self.poll_passed(context).map(|()| None)
        })
        .await
    }

    fn store(&self, due: u32) {
        ROW.with_borrow_mut(|row| {
            if let Some(slot) = row.due.get_mut(self.index as usize) {
                *slot = due;
            }
        });
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Deadline::new()
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // At the end of its thread the row may be gone already.
        let _ = ROW.try_with(|row| {
            let mut row = row.borrow_mut();
            let index = self.index as usize;
            if let Some(slot) = row.due.get_mut(index) {
                *slot = NEVER;
            }
            let waker = row.wakers.get_mut(index).and_then(Option::take);
            row.free.push(self.index);
            drop(row);
            drop(waker);
        });
    }
}

/// The thread's time, in ticks since it began to look at its deadlines.
pub(crate) fn now_ticks() -> u32 {
    NOW.get()
}

/// Moves the thread's time by one tick and wakes whoever is due.
pub(crate) fn tick() {
    let now = NOW.get() + 1;
    NOW.set(now);
    let due = ROW.with_borrow_mut(|row| {
        let Row { due, wakers, .. } = row;
        due.iter()
            .zip(wakers)
            .filter(|(due, _)| **due <= now)
            .filter_map(|(_, waker)| waker.take())
            .collect::<Vec<_>>()
    });
    due.into_iter().for_each(Waker::wake);
}

/// Lets the deadline of a number pass at once, and wakes whoever waits for it.
pub(crate) fn expire(number: u32) {
    let waker = ROW.with_borrow_mut(|row| {
        let due = row.due.get_mut(number as usize)?;
        *due = 0;
        row.wakers.get_mut(number as usize)?.take()
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Wakes everybody who waits with a deadline, so that they look around.
pub(crate) fn wake_all() {
    let wakers: Vec<Waker> =
        ROW.with_borrow_mut(|row| row.wakers.iter_mut().filter_map(Option::take).collect());
    wakers.into_iter().for_each(Waker::wake);
}

/// Ticks for as long as the thread serves.
pub(crate) async fn run() {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        tick();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::{Deadline, TICK, tick};

    #[test]
    fn a_deadline_is_never_early_and_at_most_two_ticks_late() {
        let mut context = Context::from_waker(Waker::noop());
        let deadline = Deadline::new();
        let other = Deadline::new();
        deadline.set(TICK * 3);
        for _ in 0..3 {
            tick();
            assert_eq!(deadline.poll_passed(&mut context), Poll::Pending);
        }
        tick();
        tick();
        assert_eq!(deadline.poll_passed(&mut context), Poll::Ready(()));
        assert_eq!(other.poll_passed(&mut context), Poll::Pending);
        deadline.unset();
        assert_eq!(deadline.poll_passed(&mut context), Poll::Pending);
    }

    #[test]
    fn a_place_is_used_again_without_its_past() {
        let mut context = Context::from_waker(Waker::noop());
        let first = Deadline::new();
        first.set(TICK);
        let index = first.index;
        drop(first);
        let second = Deadline::new();
        assert_eq!(second.index, index);
        for _ in 0..5 {
            tick();
        }
        assert_eq!(second.poll_passed(&mut context), Poll::Pending);
    }
}
