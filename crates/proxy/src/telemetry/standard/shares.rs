//! Places that namespaces share: one that has many leaves as many free for all others together.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

/// The places of one kind, and who has them. One namespace alone gets half of them.
pub(super) struct BookShares {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    total: usize,
    /// The places taken by each namespace that has any.
    of: HashMap<Box<str>, usize, RandomState>,
}

impl BookShares {
    /// So many places, all free.
    pub(super) fn new(max: usize) -> Self {
        BookShares {
            max,
            taken: Mutex::default(),
        }
    }

    /// Takes a place for a namespace, if it has fewer than are free.
    pub(super) fn take(&self, namespace: &str) -> bool {
        let mut taken = self.lock();
        let own = taken.of.get(namespace).copied().unwrap_or_default();
        let has_room = own < self.max.saturating_sub(taken.total);
        if has_room {
            taken.total += 1;
            taken.of.insert(namespace.into(), own + 1);
        }
        has_room
    }

    /// Gives back a place of a namespace.
    pub(super) fn give_back(&self, namespace: &str) {
        let mut taken = self.lock();
        let Some(own) = taken.of.get_mut(namespace) else {
            return;
        };
        *own -= 1;
        if *own == 0 {
            taken.of.remove(namespace);
        }
        taken.total -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::BookShares;

    #[test]
    fn a_namespace_that_takes_all_that_it_can_leaves_as_much_to_others() {
        let shares = BookShares::new(64);
        let take = |namespace: &str| (0..100).filter(|_| shares.take(namespace)).count();
        assert_eq!([take("one"), take("two"), take("three")], [32, 16, 8]);
        (0..32).for_each(|_| shares.give_back("one"));
        assert_eq!((take("two"), take("one")), (12, 14));
        for (namespace, count) in [("one", 14), ("two", 28), ("three", 8), ("nobody", 1)] {
            (0..count).for_each(|_| shares.give_back(namespace));
        }
        assert_eq!(take("four"), 32);
        assert_eq!(shares.lock().of.len(), 1);
    }
}
