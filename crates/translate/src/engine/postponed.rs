//! Units that run later: woken by an object of another namespace, and too many to run at once.
//!
//! A namespace that refers to objects of others decides how many of its units their changes wake.
//! The owner of the objects does not pay for that, and nobody's changes wait for it: beyond
//! [`WOKEN_MAX`] in a batch units run a few at a time between batches, in turns of their
//! namespaces. What they read then is what holds then, so that nothing is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::unit::UnitId;

/// The most units that objects of other namespaces wake in one batch.
pub(super) const WOKEN_MAX: usize = 64;

/// The most units of one namespace that run in its turn.
const TURN_UNITS: usize = 16;

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

    /// Takes out the next units: some of the namespace whose turn it is.
    pub(super) fn next_turn(&mut self) -> Vec<UnitId> {
        let beyond = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let next = self.lanes.range::<str, _>(beyond).next();
        let next = next.or_else(|| self.lanes.iter().next());
        let Some(namespace) = next.map(|(namespace, _)| namespace.clone()) else {
            return Vec::new();
        };
        let mut ids = Vec::new();
        if let Some(lane) = self.lanes.get_mut(&namespace) {
            ids.extend(std::iter::from_fn(|| lane.pop_first()).take(TURN_UNITS));
            if lane.is_empty() {
                self.lanes.remove(&namespace);
            }
        }
        self.last = namespace;
        ids
    }

    /// Takes out all.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = UnitId> + use<> {
        std::mem::take(&mut self.lanes).into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::{Postponed, TURN_UNITS};

    #[test]
    fn namespaces_take_turns_whoever_has_more() {
        let mut postponed = Postponed::default();
        for id in 0..1_000 {
            postponed.add("a", id);
        }
        postponed.add("c", 2_000);
        postponed.add("b", 2_001);
        postponed.add("b", 2_001);
        let turns: Vec<_> = (0..4).map(|_| postponed.next_turn()).collect();
        let lens: Vec<usize> = turns.iter().map(Vec::len).collect();
        assert_eq!(lens, [TURN_UNITS, 1, 1, TURN_UNITS]);
        assert_eq!((turns[1][0], turns[2][0]), (2_001, 2_000));
        assert_eq!(postponed.take_all().count(), 1_000 - 2 * TURN_UNITS);
        assert!(postponed.is_empty() && postponed.next_turn().is_empty());
    }
}
