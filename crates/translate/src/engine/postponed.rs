//! Units that run later: those that an object of another namespace woke, where they are too many to
//! run at once, and those that a batch had no time for.
//!
//! A namespace that refers to objects of others decides how many of its units their changes wake.
//! The owner of the objects does not pay for that, and nobody's changes wait for it: beyond
//! [`WOKEN_MAX`] in a batch units run one by one between batches, in turns of their namespaces.
//! They read what holds when they run, so that nothing is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::unit::UnitId;

/// The most units that objects of other namespaces wake in one batch.
pub(super) const WOKEN_MAX: usize = 64;

/// The most units of one namespace that run in its turn.
pub(super) const TURN_UNITS: usize = 16;

/// The postponed units of each namespace; no more than there are units.
#[derive(Default)]
pub(super) struct Postponed {
    lanes: BTreeMap<Box<str>, BTreeSet<UnitId>>,
    /// The namespace that had its turn last.
    last: Box<str>,
}

impl Postponed {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The namespaces that have any.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.lanes.keys().map(|namespace| &**namespace)
    }

    /// Postpones a unit of a namespace.
    pub(super) fn add(&mut self, namespace: &str, id: UnitId) {
        match self.lanes.get_mut(namespace) {
            Some(lane) => lane.insert(id),
            None => {
                let lane = BTreeSet::from([id]);
                self.lanes.insert(namespace.into(), lane).is_none()
            }
        };
    }

    /// The namespace whose turn it is, among those that may have one.
    pub(super) fn next_turn(&mut self, may_run: &dyn Fn(&str) -> bool) -> Option<Box<str>> {
        let beyond = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let later = self.lanes.range::<str, _>(beyond);
        let mut all = later.chain(&self.lanes).map(|(namespace, _)| namespace);
        let next = all.find(|namespace| may_run(namespace))?.clone();
        self.last.clone_from(&next);
        Some(next)
    }

    /// Takes out the next unit of a namespace.
    pub(super) fn pop(&mut self, namespace: &str) -> Option<UnitId> {
        let lane = self.lanes.get_mut(namespace)?;
        let id = lane.pop_first();
        if lane.is_empty() {
            self.lanes.remove(namespace);
        }
        id
    }

    /// Takes out all.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = UnitId> + use<> {
        std::mem::take(&mut self.lanes).into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::Postponed;

    #[test]
    fn namespaces_take_turns_and_those_that_may_not_run_are_passed_by() {
        let mut postponed = Postponed::default();
        for id in 0..3 {
            postponed.add("a", id);
        }
        postponed.add("c", 2_000);
        postponed.add("b", 2_001);
        postponed.add("b", 2_001);
        let everybody = |_: &str| true;
        let mut turns = Vec::new();
        for _ in 0..3 {
            let namespace = postponed.next_turn(&everybody).unwrap();
            turns.push((namespace.clone(), postponed.pop(&namespace).unwrap()));
        }
        assert_eq!(
            turns,
            [("a".into(), 0), ("b".into(), 2_001), ("c".into(), 2_000)]
        );
        assert_eq!(postponed.namespaces().collect::<Vec<_>>(), ["a"]);
        assert_eq!(postponed.next_turn(&|namespace| namespace != "a"), None);
        assert_eq!(postponed.next_turn(&everybody).as_deref(), Some("a"));
        assert_eq!(postponed.take_all().count(), 2);
        assert!(postponed.is_empty() && postponed.next_turn(&everybody).is_none());
    }
}
