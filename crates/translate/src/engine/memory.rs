//! The memories of units: what they read in their last runs, so that they read again only what
//! differs. A unit that remembers nothing makes the same.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

use super::unit::UnitId;

/// The most that is remembered of one kind by all units together, counted in endpoints. What is
/// beyond is read and encoded again.
pub(super) const REMEMBERED_MAX: usize = 1 << 18;

/// Something that a unit remembers from run to run.
pub trait Remembered: Any + Send {
    /// Forgets whatever follows from facts that are others now. A run follows.
    fn forget(&mut self, facts: &BTreeSet<u64>);

    /// Forgets whatever the run that is over had no use for.
    fn settle(&mut self);

    /// How much it is, counted in endpoints.
    fn count(&self) -> usize;

    /// The value, for whoever knows its type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// The memories of all units that have one.
#[derive(Default)]
pub(super) struct Memories {
    by_unit: BTreeMap<UnitId, Memory>,
    count: usize,
}

struct Memory {
    value: Box<dyn Remembered>,
    count: usize,
    /// Facts that the unit read and that are others now. It runs again for them.
    touched: BTreeSet<u64>,
}

impl Memories {
    /// How much is remembered, counted in endpoints.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Notes that a fact is another than a unit read.
    pub(super) fn touch(&mut self, id: UnitId, fact: u64) {
        if let Some(memory) = self.by_unit.get_mut(&id) {
            memory.touched.insert(fact);
        }
    }

    /// Takes out what a unit remembers and what still holds, for its next run.
    pub(super) fn take(&mut self, id: UnitId) -> Option<Box<dyn Remembered>> {
        let mut memory = self.by_unit.remove(&id)?;
        self.count -= memory.count;
        memory.value.forget(&memory.touched);
        Some(memory.value)
    }

    /// Keeps what a unit remembers of the run that is over, if there is room for it.
    pub(super) fn keep(&mut self, id: UnitId, value: Option<Box<dyn Remembered>>) {
        let Some(mut value) = value else {
            return;
        };
        value.settle();
        let count = value.count();
        if count == 0 || self.count + count > REMEMBERED_MAX {
            return;
        }
        self.count += count;
        let memory = Memory {
            value,
            count,
            touched: BTreeSet::new(),
        };
        self.by_unit.insert(id, memory);
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::collections::BTreeSet;

    use super::{Memories, REMEMBERED_MAX, Remembered};

    /// So many endpoints, and the facts that were forgotten.
    struct Known(usize, BTreeSet<u64>);

    impl Remembered for Known {
        fn forget(&mut self, facts: &BTreeSet<u64>) {
            self.1.extend(facts);
        }

        fn settle(&mut self) {}

        fn count(&self) -> usize {
            self.0
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }

    fn known(count: usize) -> Option<Box<dyn Remembered>> {
        Some(Box::new(Known(count, BTreeSet::new())))
    }

    #[test]
    fn a_unit_forgets_the_facts_that_were_touched_since_it_ran() {
        let mut memories = Memories::default();
        memories.touch(1, 7);
        memories.keep(1, known(3));
        memories.keep(2, known(4));
        memories.touch(1, 8);
        memories.touch(1, 9);
        memories.touch(2, 9);
        assert_eq!(memories.count(), 7);
        let value = memories.take(1).unwrap().into_any();
        let value = value.downcast::<Known>().unwrap();
        assert_eq!(value.1, BTreeSet::from([8, 9]));
        assert_eq!(memories.count(), 4);
        assert!(memories.take(1).is_none());
    }

    #[test]
    fn nothing_is_kept_beyond_the_bound() {
        let mut memories = Memories::default();
        memories.keep(1, known(REMEMBERED_MAX));
        memories.keep(2, known(1));
        assert!(memories.take(2).is_none());
        drop(memories.take(1));
        memories.keep(2, known(1));
        assert_eq!(memories.count(), 1);
    }
}
