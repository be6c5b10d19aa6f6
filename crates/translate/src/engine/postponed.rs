//! Units that run later: those that an object of another namespace woke, where they are too many to
//! run at once, and those that a batch had no time for.
//!
//! A namespace that refers to objects of others decides how many of its units their changes wake.
//! The owner of the objects does not pay for that, and nobody's changes wait for it: beyond
//! [`WOKEN_MAX`] in a batch units run by and by between batches, in turns of their namespaces.
//! They read what holds when they run, so that nothing is missed.
//!
//! So do those of the owner himself that his change woke, where their kinds say so
//! ([`super::UnitKind::waits_woken`]) and there is no time any more: nobody else's changes wait for
//! them either. His objects that changed, and whatever says who may pass, never wait.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::Engine;
use super::batch::Run;
use super::rotation::next_after;
use super::tenancy::Readmitted;
use super::unit::UnitId;
use super::units::Record;

/// The most units that objects of other namespaces wake in one batch.
pub(super) const WOKEN_MAX: usize = 64;

/// The most units of one namespace that run in its turn.
const TURN_UNITS: usize = 16;

/// The postponed units of each namespace; hardly more than there are units.
#[derive(Default)]
pub(super) struct Postponed {
    lanes: BTreeMap<Box<str>, Lane>,
    /// The namespace that had its turn last.
    last: Box<str>,
}

/// The postponed units of one namespace. They go round, so that each has its turn however often
/// others are postponed again.
#[derive(Default)]
struct Lane {
    /// In the order of their ranks, so that hosts run once after those that claim them.
    units: BTreeSet<(u8, UnitId)>,
    /// The one that was taken out last.
    last: (u8, UnitId),
}

impl Lane {
    /// Takes out the next unit.
    fn pop(&mut self) -> Option<UnitId> {
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let next = self.units.range(behind).next();
        let next = *next.or_else(|| self.units.first())?;
        self.units.remove(&next);
        self.last = next;
        Some(next.1)
    }
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

    /// Postpones a unit of a namespace, known by its rank and number.
    pub(super) fn add(&mut self, namespace: &str, unit: (u8, UnitId)) {
        if let Some(lane) = self.lanes.get_mut(namespace) {
            lane.units.insert(unit);
            return;
        }
        let lane = self.lanes.entry(namespace.into()).or_default();
        lane.units.insert(unit);
    }

    /// The namespace whose turn it is, among those that may have one: for its units, or for objects
    /// of it that are admitted again.
    pub(super) fn next_turn(
        &mut self,
        readmitted: &Readmitted,
        may_run: &dyn Fn(&str) -> bool,
    ) -> Option<Box<str>> {
        let last = &*self.last;
        let units = next_after(&self.lanes, last, may_run);
        let found = [units, readmitted.next_after(last, may_run)];
        // Those behind the last one go first.
        let found = found.into_iter().flatten();
        let next = Box::<str>::from(found.min_by_key(|it| (*it <= last, *it))?);
        self.last.clone_from(&next);
        Some(next)
    }

    /// Takes out the next unit of a namespace.
    pub(super) fn pop(&mut self, namespace: &str) -> Option<UnitId> {
        let lane = self.lanes.get_mut(namespace)?;
        let next = lane.pop();
        if lane.units.is_empty() {
            self.lanes.remove(namespace);
        }
        next
    }

    /// Takes out all.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = UnitId> + use<> {
        let lanes = std::mem::take(&mut self.lanes).into_values();
        lanes.flat_map(|lane| lane.units).map(|(_, id)| id)
    }
}

impl Engine {
    /// Runs some postponed units of a namespace, for as long as there is time after each.
    pub(super) fn run_postponed(
        &mut self,
        namespace: &str,
        run: &mut Run,
        has_time: &mut dyn FnMut() -> bool,
    ) {
        for number in 0..TURN_UNITS {
            if number > 0 && (run.is_laden() || !has_time()) {
                break;
            }
            let Some(id) = self.postponed.pop(namespace) else {
                break;
            };
            let Some(unit) = self.units.get(id).map(Record::unit).cloned() else {
                continue;
            };
            let rank = unit.kind().rank;
            run.add_postponed(unit, id);
            // It runs itself, however late it is. What several of them lead to runs once, behind.
            let mut is_first = true;
            let mut has_more = || std::mem::take(&mut is_first) || has_time();
            self.drain_to(rank, run, &mut has_more, true);
        }
        self.drain(run, has_time, true);
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::{ObjectKey, ObjectKind};

    use super::{Postponed, Readmitted};

    #[test]
    fn namespaces_take_turns_and_those_that_may_not_run_are_passed_by() {
        let (mut postponed, none) = (Postponed::default(), Readmitted::default());
        for id in 0..3 {
            postponed.add("a", (11, id));
        }
        postponed.add("c", (11, 2_000));
        postponed.add("b", (11, 2_001));
        postponed.add("b", (11, 2_001));
        let everybody = |_: &str| true;
        let mut turns = Vec::new();
        for _ in 0..3 {
            let namespace = postponed.next_turn(&none, &everybody).unwrap();
            turns.push((namespace.clone(), postponed.pop(&namespace).unwrap()));
        }
        assert_eq!(
            turns,
            [("a".into(), 0), ("b".into(), 2_001), ("c".into(), 2_000)]
        );
        assert_eq!(postponed.namespaces().collect::<Vec<_>>(), ["a"]);
        assert_eq!(postponed.next_turn(&none, &|it| it != "a"), None);
        let next = postponed.next_turn(&none, &everybody);
        assert_eq!(next.as_deref(), Some("a"));
        assert_eq!(postponed.take_all().count(), 2);
        assert!(postponed.is_empty() && postponed.next_turn(&none, &everybody).is_none());
    }

    #[test]
    fn units_go_by_rank_and_objects_of_a_namespace_have_turns_among_them() {
        let (mut postponed, mut readmitted) = (Postponed::default(), Readmitted::default());
        for unit in [(11, 1), (10, 7), (31, 0), (10, 3)] {
            postponed.add("b", unit);
        }
        for namespace in ["a", "b", "c"] {
            let key = ObjectKey::new(ObjectKind::Ingress, namespace, "i");
            readmitted.add_moved(key);
        }
        let next = |postponed: &mut Postponed, readmitted: &Readmitted| {
            let next = postponed.next_turn(readmitted, &|_| true);
            next.unwrap().to_string()
        };
        let mut turns: Vec<String> = Vec::new();
        for _ in 0..4 {
            turns.push(next(&mut postponed, &readmitted));
        }
        assert_eq!(turns, ["a", "b", "c", "a"]);
        assert_eq!(readmitted.take_moved("a", 16).len(), 1);
        assert_eq!(next(&mut postponed, &readmitted), "b");
        let units = std::iter::from_fn(|| postponed.pop("b"));
        assert_eq!(units.collect::<Vec<_>>(), [3, 7, 1, 0]);
    }

    #[test]
    fn a_unit_has_its_turn_however_often_others_are_postponed_again() {
        let mut postponed = Postponed::default();
        for unit in [(10, 1), (10, 2), (11, 3)] {
            postponed.add("a", unit);
        }
        let mut turns = Vec::new();
        for _ in 0..4 {
            turns.push(postponed.pop("a").unwrap());
            for unit in [(10, 1), (10, 2)] {
                postponed.add("a", unit);
            }
        }
        assert_eq!(turns, [1, 2, 3, 1]);
    }
}
