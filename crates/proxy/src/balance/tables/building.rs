//! Tables that are built beside whoever follows the controller, and long work that is done beside
//! whoever serves: one after the other, in turns of namespaces, so that one with many large tables
//! is waited for once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::BalanceTable;

/// The slots of all tables that one commit has built at once, some 10 ms: two of Maglev's usual
/// size. None are while others are yet to be built.
pub(super) const AT_ONCE_SLOTS_MAX: u64 = 3 << 16;

/// Work that has its turn.
pub(super) enum BesideWork {
    /// A table to be built.
    Table(Arc<BalanceTable>),
    /// Work that tells its outcome itself.
    Other(OtherWork),
}

/// Work of any kind, to be done once.
pub(super) type OtherWork = Box<dyn FnOnce() + Send>;

/// Work that waits for its turn.
enum WaitingWork {
    Table(Weak<BalanceTable>),
    Other(OtherWork),
}

/// The tables that are yet to be built, and other work.
#[derive(Default)]
pub(super) struct Building {
    lines: Mutex<Lines>,
    came: Condvar,
}

#[derive(Default)]
struct Lines {
    /// Whether any are built beside.
    is_begun: bool,
    /// The slots that this commit may still have built at once.
    at_once: u64,
    /// Whether one is just being built.
    is_building: bool,
    /// The namespaces that wait, the next one first.
    order: VecDeque<u64>,
    /// Their tables, of which those are left out that nobody wants any more. There are as many as
    /// upstreams have, and those of which were replaced since the last turn. And their other work,
    /// of which an upstream has one or two at a time.
    by_owner: HashMap<u64, VecDeque<WaitingWork>>,
}

impl Building {
    /// Has tables built beside from now on; false where they are.
    pub(super) fn begin(&self) -> bool {
        let mut lines = self.lock();
        !std::mem::replace(&mut lines.is_begun, true)
    }

    /// Has no more tables built beside.
    pub(super) fn end(&self) {
        self.lock().is_begun = false;
        self.came.notify_all();
    }

    /// Whether any are built beside.
    pub(super) fn is_begun(&self) -> bool {
        self.lock().is_begun
    }

    /// A commit begins.
    pub(super) fn renew(&self) {
        self.lock().at_once = AT_ONCE_SLOTS_MAX;
    }

    /// Whether a table of so many slots is to be built beside. Otherwise they count for the commit.
    pub(super) fn puts_off(&self, slots: u64) -> bool {
        let mut lines = self.lock();
        if !lines.is_begun {
            return false;
        }
        let is_idle = lines.order.is_empty() && !lines.is_building;
        let left = lines.at_once.checked_sub(slots).filter(|_| is_idle);
        if let Some(left) = left {
            lines.at_once = left;
        }
        left.is_none()
    }

    /// Lets a table of a namespace wait for its turn.
    pub(super) fn push(&self, owner: u64, table: Weak<BalanceTable>) {
        self.push_work(owner, WaitingWork::Table(table));
    }

    /// Lets other work of a namespace wait for its turn.
    pub(super) fn push_other(&self, owner: u64, work: OtherWork) {
        self.push_work(owner, WaitingWork::Other(work));
    }

    fn push_work(&self, owner: u64, work: WaitingWork) {
        let mut lines = self.lock();
        let line = lines.by_owner.entry(owner).or_default();
        let is_first = line.is_empty();
        line.push_back(work);
        if is_first {
            lines.order.push_back(owner);
        }
        drop(lines);
        self.came.notify_one();
    }

    /// Waits for the next turn, the one before being over; `None` once there are no more.
    pub(super) fn wait(&self) -> Option<BesideWork> {
        let mut lines = self.lock();
        loop {
            if !lines.is_begun {
                return None;
            }
            let next = lines.next();
            lines.is_building = next.is_some();
            if next.is_some() {
                return next;
            }
            let woken = self.came.wait(lines);
            lines = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next turn, if any work waits.
    #[cfg(test)]
    pub(super) fn next(&self) -> Option<BesideWork> {
        self.lock().next()
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// The next work that somebody wants; its namespace then goes behind all others.
    fn next(&mut self) -> Option<BesideWork> {
        while let Some(owner) = self.order.pop_front() {
            let Some(line) = self.by_owner.get_mut(&owner) else {
                continue;
            };
            let next = std::iter::from_fn(|| line.pop_front()).find_map(WaitingWork::wanted);
            if line.is_empty() {
                self.by_owner.remove(&owner);
            } else {
                self.order.push_back(owner);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl WaitingWork {
    /// The work, unless nobody wants it any more.
    fn wanted(self) -> Option<BesideWork> {
        match self {
            WaitingWork::Table(table) => table.upgrade().map(BesideWork::Table),
            WaitingWork::Other(work) => Some(BesideWork::Other(work)),
        }
    }
}
