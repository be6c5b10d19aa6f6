//! The connections of a worker that carry nothing, of either version of HTTP: which of them go
//! where there are too many.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::limits::namespace_max;

/// The part of all idle connections that go at once, where one more has no place: whoever is
/// looked at goes by age, and that costs less for many.
const AT_ONCE: usize = 16;

/// The age of an idle connection among others, and the namespace of its upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Idle {
    /// A greater number has become idle later.
    pub number: u64,
    /// The namespace, by its hash.
    pub owner: u64,
}

/// The idle connections that go: for each namespace all up to a number.
pub(super) struct Leaving(HashMap<u64, u64, RandomState>);

/// A part of the idle connections.
pub(super) trait Shelves {
    /// Appends those that are idle.
    fn list(&self, to: &mut Vec<Idle>);

    /// Drops those that go; how many did.
    fn drop_leaving(&self, leaving: &Leaving) -> usize;
}

/// The idle connections of a worker, wherever they are kept.
#[derive(Default)]
pub struct IdleConnections {
    count: Cell<usize>,
    number: Cell<u64>,
    shelves: RefCell<Vec<Rc<dyn Shelves>>>,
}

impl IdleConnections {
    /// Adds a part of them.
    pub(super) fn join(&self, shelves: Rc<dyn Shelves>) {
        self.shelves.borrow_mut().push(shelves);
    }

    /// Counts one more; its number.
    pub(super) fn begin(&self) -> u64 {
        self.count.set(self.count.get() + 1);
        let number = self.number.get() + 1;
        self.number.set(number);
        number
    }

    /// Counts so many fewer.
    pub(super) fn end(&self, count: usize) {
        self.count.set(self.count.get().saturating_sub(count));
    }

    /// Drops some where there are as many as may be, so that there is a place for one more: those
    /// that have been idle for longest, of namespaces with more than their share where there are
    /// such. How many went.
    pub(super) fn make_room(&self, max: usize) -> usize {
        if self.count.get() < max {
            return 0;
        }
        let shelves = self.shelves.borrow();
        let mut all = Vec::with_capacity(self.count.get());
        shelves.iter().for_each(|it| it.list(&mut all));
        let leaving = Leaving::of(all, max);
        shelves.iter().map(|it| it.drop_leaving(&leaving)).sum()
    }
}

impl Leaving {
    fn of(mut all: Vec<Idle>, max: usize) -> Self {
        let share = namespace_max(max);
        let beyond_max = all.len().saturating_sub(max);
        let mut left = (max / AT_ONCE).max(beyond_max + 1);
        all.sort_unstable();
        let mut counts: HashMap<u64, usize, RandomState> = HashMap::default();
        for idle in &all {
            *counts.entry(idle.owner).or_default() += 1;
        }
        // Those that have more are left with a little less, so that this is rare for them too.
        counts.retain(|_, count| *count > share);
        let least = share - share / AT_ONCE;
        let mut going = HashMap::default();
        for idle in &all {
            if let Some(count) = counts.get_mut(&idle.owner)
                && left > 0
                && *count > least
            {
                *count -= 1;
                left -= 1;
                going.insert(idle.owner, idle.number);
            }
        }
        if going.is_empty() {
            let oldest = all.iter().take(left);
            going.extend(oldest.map(|idle| (idle.owner, idle.number)));
        }
        Leaving(going)
    }

    /// Whether a connection goes.
    pub(super) fn has(&self, idle: Idle) -> bool {
        let last = self.0.get(&idle.owner);
        last.is_some_and(|last| idle.number <= *last)
    }
}

#[cfg(test)]
mod tests {
    use super::{Idle, Leaving};

    /// The numbers that stay of connections whose owners these are, oldest first.
    fn staying(owners: &[u64], max: usize) -> Vec<u64> {
        let all = owners.iter().zip(1..);
        let all: Vec<_> = all
            .map(|(owner, number)| Idle {
                number,
                owner: *owner,
            })
            .collect();
        let leaving = Leaving::of(all.clone(), max);
        let staying = all.into_iter().filter(|idle| !leaving.has(*idle));
        staying.map(|idle| idle.number).collect()
    }

    #[test]
    fn the_oldest_goes_of_who_has_more_than_a_share() {
        assert_eq!(staying(&[1, 2, 2, 2, 3, 4, 5, 6], 8), [1, 3, 4, 5, 6, 7, 8]);
        // Nobody has.
        assert_eq!(staying(&[1, 1, 2, 2, 3, 3, 4, 4], 8), [2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(staying(&[1, 1], 2), [2]);
        assert_eq!(staying(&[1], 0), Vec::<u64>::new());
        assert_eq!(staying(&[1, 2, 2, 3, 3], 0), Vec::<u64>::new());
    }

    #[test]
    fn many_go_at_once_where_there_are_very_many() {
        let owners: Vec<u64> = (0..64).map(|number| u64::from(number % 2 == 0)).collect();
        assert_eq!(staying(&owners, 64).len(), 60);
        // What is beyond goes too.
        assert_eq!(staying(&owners, 32).len(), 31);
    }
}
