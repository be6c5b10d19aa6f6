//! Addresses that DNS told and that somebody keeps: how many there are, by namespace, and who is
//! looked at now and then for those that nobody has asked for in a while.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::limits::namespace_max;

/// The most addresses that are kept, of all upstreams together. Beyond, and beyond a quarter of
/// it for a namespace, a name has one.
pub(crate) const KNOWN_MAX: usize = 1 << 18;

/// The counts that namespaces are divided over by hash. Those that share one by chance share what
/// it admits.
const OWNERS: usize = 256;

/// How often those are looked at who keep answers.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// The most that are looked at without a pause in which others may come and go.
const LOOKED_MAX: usize = 256;

/// How many times so many are looked at before all questions have their turn.
const LOOKS: usize = 64;

/// The addresses that are kept, and by whom.
pub(crate) struct KnownAddresses {
    all: AtomicUsize,
    owners: Box<[AtomicUsize]>,
    keepers: Mutex<Keepers>,
}

#[derive(Default)]
struct Keepers {
    /// The keepers of answers, by a number.
    places: BTreeMap<u64, Weak<dyn AnswerKeeper>>,
    /// The last number that was given.
    last: u64,
    /// The last number that was looked at.
    looked: u64,
}

/// One that keeps an answer of DNS.
pub(crate) trait AnswerKeeper: Send + Sync {
    /// Drops the answer where it was of no use for a while.
    fn drop_old(&self);
}

/// Addresses that count for a namespace until this is dropped.
pub(crate) struct HeldAddresses {
    known: Arc<KnownAddresses>,
    owner: u64,
    count: usize,
}

/// The place of one among those that are looked at, until it is dropped.
pub(crate) struct KeeperPlace {
    known: Arc<KnownAddresses>,
    number: u64,
}

impl Default for KnownAddresses {
    fn default() -> Self {
        KnownAddresses {
            all: AtomicUsize::new(0),
            owners: (0..OWNERS).map(|_| AtomicUsize::new(0)).collect(),
            keepers: Mutex::default(),
        }
    }
}

impl KnownAddresses {
    /// Whether so many addresses of a namespace may be kept in place of those before.
    pub(crate) fn has_room(
        &self,
        owner: u64,
        count: usize,
        before: Option<&HeldAddresses>,
    ) -> bool {
        let before = before.map_or(0, |before| before.count);
        let fits = |kept: &AtomicUsize, max: usize| {
            let others = kept.load(Relaxed).saturating_sub(before);
            others.saturating_add(count) <= max
        };
        let own = self.owner(owner);
        fits(&self.all, KNOWN_MAX) && own.is_none_or(|own| fits(own, namespace_max(KNOWN_MAX)))
    }

    /// Counts so many addresses of a namespace, whether or not there is room.
    pub(crate) fn hold(self: &Arc<Self>, owner: u64, count: usize) -> HeldAddresses {
        self.all.fetch_add(count, Relaxed);
        if let Some(own) = self.owner(owner) {
            own.fetch_add(count, Relaxed);
        }
        HeldAddresses {
            known: self.clone(),
            owner,
            count,
        }
    }

    /// Has one looked at from now on.
    pub(crate) fn enter(self: &Arc<Self>, keeper: Weak<dyn AnswerKeeper>) -> KeeperPlace {
        let mut keepers = self.lock();
        keepers.last += 1;
        let number = keepers.last;
        keepers.places.insert(number, keeper);
        drop(keepers);
        KeeperPlace {
            known: self.clone(),
            number,
        }
    }

    /// Looks at those who keep answers: at all, or at as many as do not hold up a question, and at
    /// the others the next time.
    pub(super) fn look(&self) {
        for _ in 0..LOOKS {
            let (keepers, are_more) = self.next();
            keepers.iter().for_each(|keeper| keeper.drop_old());
            if !are_more {
                return;
            }
        }
    }

    /// The next ones, and whether there may be more behind them.
    fn next(&self) -> (Vec<Arc<dyn AnswerKeeper>>, bool) {
        let mut keepers = self.lock();
        let from = (Bound::Excluded(keepers.looked), Bound::Unbounded);
        let numbered = keepers.places.range(from).take(LOOKED_MAX);
        let (mut count, mut looked) = (0, 0);
        let mut next = Vec::with_capacity(LOOKED_MAX.min(keepers.places.len()));
        for (number, keeper) in numbered {
            (count, looked) = (count + 1, *number);
            // Dropped without the lock, which that may take.
            next.extend(keeper.upgrade());
        }
        let are_more = count == LOOKED_MAX;
        keepers.looked = if are_more { looked } else { 0 };
        (next, are_more)
    }

    fn owner(&self, owner: u64) -> Option<&AtomicUsize> {
        self.owners.get((owner >> 32) as usize % OWNERS)
    }

    fn lock(&self) -> MutexGuard<'_, Keepers> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many addresses are kept, and by how many.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.all.load(Relaxed), self.lock().places.len())
    }
}

impl Drop for HeldAddresses {
    fn drop(&mut self) {
        self.known.all.fetch_sub(self.count, Relaxed);
        if let Some(own) = self.known.owner(self.owner) {
            own.fetch_sub(self.count, Relaxed);
        }
    }
}

impl Drop for KeeperPlace {
    fn drop(&mut self) {
        self.known.lock().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::{Arc, Weak};

    use super::{AnswerKeeper, KNOWN_MAX, KnownAddresses, LOOKED_MAX, LOOKS, namespace_max};

    #[derive(Default)]
    struct Looks(AtomicUsize);

    impl AnswerKeeper for Looks {
        fn drop_old(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_namespace_keeps_no_more_than_its_share_and_all_no_more_than_there_are() {
        let known = Arc::new(KnownAddresses::default());
        let owner = |number: u64| number << 32;
        let share = namespace_max(KNOWN_MAX);
        let held = known.hold(owner(1), share);
        assert!(!known.has_room(owner(1), 1, None));
        assert!(known.has_room(owner(1), share, Some(&held)), "in its place");
        assert!(!known.has_room(owner(1), share + 1, Some(&held)));
        assert!(known.has_room(owner(2), share, None));
        let others: Vec<_> = (2..5).map(|it| known.hold(owner(it), share)).collect();
        assert!(!known.has_room(owner(5), 1, None));
        drop((held, others));
        assert!(known.has_room(owner(1), share, None));
        assert_eq!(known.counts(), (0, 0));
    }

    #[test]
    fn all_are_looked_at_in_turns_until_they_go() {
        let known = Arc::new(KnownAddresses::default());
        let at_a_time = LOOKED_MAX * LOOKS;
        let keepers: Vec<Arc<Looks>> = (0..at_a_time + 9).map(|_| Arc::default()).collect();
        let enter = |keeper: &Arc<Looks>| {
            let keeper: Weak<Looks> = Arc::downgrade(keeper);
            known.enter(keeper)
        };
        let mut places: Vec<_> = keepers.iter().map(enter).collect();
        let looks = || keepers.iter().map(|it| it.0.load(Relaxed));
        known.look();
        assert_eq!(looks().sum::<usize>(), at_a_time);
        known.look();
        assert!(
            looks().all(|it| it == 1),
            "the rest, and the first not again"
        );
        known.look();
        assert_eq!(looks().filter(|it| *it == 2).count(), at_a_time);
        places.truncate(3);
        assert_eq!(known.counts(), (0, 3));
        known.look();
        known.look();
        assert!(looks().take(3).all(|it| it >= 3));
        drop((places, keepers));
        known.look();
    }
}
