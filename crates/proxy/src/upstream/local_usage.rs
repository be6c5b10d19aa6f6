//! The part of one worker in the bounds of upstreams: its idle connections, and its requests that
//! wait for one. Nothing is kept of an upstream without either.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::balance::usage::Usage;

/// A thing that a worker counts of an upstream's for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalUsageKind {
    /// Connections that wait for their next request.
    Idle,
    /// Requests that wait in line for a connection.
    Queued,
}

/// The counts of one worker, by the address of each usage.
#[derive(Default)]
pub(super) struct LocalUsage(RefCell<HashMap<*const Usage, LocalCounts, RandomState>>);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct LocalCounts {
    idle: u32,
    queued: u32,
}

/// One of something; given back when it is dropped.
pub(super) struct HeldLocalUsage {
    all: Rc<LocalUsage>,
    /// The address that tells usages apart; nobody looks there.
    usage: *const Usage,
    counted: LocalUsageKind,
}

impl LocalUsage {
    /// How many there are.
    pub(super) fn count(&self, usage: &Usage, counted: LocalUsageKind) -> u32 {
        let all = self.0.borrow();
        let counts = all.get(&std::ptr::from_ref(usage)).copied();
        *counts.unwrap_or_default().of(counted)
    }

    /// One more.
    pub(super) fn take(self: &Rc<Self>, usage: &Usage, counted: LocalUsageKind) -> HeldLocalUsage {
        let usage = std::ptr::from_ref(usage);
        *self.0.borrow_mut().entry(usage).or_default().of(counted) += 1;
        HeldLocalUsage {
            all: self.clone(),
            usage,
            counted,
        }
    }
}

impl LocalCounts {
    fn of(&mut self, counted: LocalUsageKind) -> &mut u32 {
        match counted {
            LocalUsageKind::Idle => &mut self.idle,
            LocalUsageKind::Queued => &mut self.queued,
        }
    }
}

impl Drop for HeldLocalUsage {
    fn drop(&mut self) {
        let mut all = self.all.0.borrow_mut();
        let Some(counts) = all.get_mut(&self.usage) else {
            return;
        };
        let count = counts.of(self.counted);
        *count = count.saturating_sub(1);
        if *counts == LocalCounts::default() {
            all.remove(&self.usage);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::LocalUsageKind::{Idle, Queued};
    use super::{LocalUsage, Usage};

    #[test]
    fn upstreams_are_counted_apart_and_forgotten_with_the_last_of_them() {
        let all = Rc::<LocalUsage>::default();
        let [one, other] = [Usage::default(), Usage::default()];
        let idle = [&one, &one, &other].map(|usage| all.take(usage, Idle));
        let queued = all.take(&one, Queued);
        assert_eq!((all.count(&one, Idle), all.count(&one, Queued)), (2, 1));
        assert_eq!((all.count(&other, Idle), all.count(&other, Queued)), (1, 0));
        drop(idle);
        assert_eq!((all.count(&one, Idle), all.count(&one, Queued)), (0, 1));
        assert_eq!(all.0.borrow().len(), 1);
        drop(queued);
        assert!(all.0.borrow().is_empty());
    }
}
