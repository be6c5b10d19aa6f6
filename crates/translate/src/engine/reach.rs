//! Which views want which unit, once there is more than one view.
//!
//! A needer of a unit says for which views. The sets are few and the needers many, so the sets are
//! counted: whether a view still wants a unit is known without a walk over its needers.

use std::collections::BTreeMap;

use super::stamp::{Slot, Stamp};
use super::unit::UnitId;

/// Stamps of units and of their needs.
#[derive(Default)]
pub(super) struct Reach {
    /// The views for which a unit needs others, in the order of its needs.
    needs: BTreeMap<UnitId, Needs>,
    /// How many needers want a unit for which views.
    wants: BTreeMap<(UnitId, Stamp), u32>,
    /// The views for which a unit was translated last.
    seen: BTreeMap<UnitId, Stamp>,
}

enum Needs {
    /// All for the same.
    Alike(Stamp),
    Each(Box<[Stamp]>),
}

impl Needs {
    fn get(&self, at: usize) -> Option<&Stamp> {
        match self {
            Needs::Alike(stamp) => Some(stamp),
            Needs::Each(stamps) => stamps.get(at),
        }
    }
}

impl Reach {
    /// The views that want a unit.
    pub(super) fn wanted(&self, id: UnitId) -> Stamp {
        let from = (id, Stamp::EMPTY);
        let wants = self.wants.range(from..);
        let own = wants.take_while(|((known, _), _)| *known == id);
        Stamp::union_of(own.map(|((_, stamp), _)| stamp))
    }

    /// Whether any view wants a unit.
    pub(super) fn is_wanted(&self, id: UnitId) -> bool {
        let from = (id, Stamp::EMPTY);
        let first = self.wants.range(from..).next();
        first.is_some_and(|((known, _), _)| *known == id)
    }

    /// Whether a view wants a unit.
    pub(super) fn is_wanted_in(&self, id: UnitId, slot: Slot) -> bool {
        let from = (id, Stamp::EMPTY);
        let wants = self.wants.range(from..);
        let mut own = wants.take_while(|((known, _), _)| *known == id);
        own.any(|((_, stamp), _)| stamp.has(slot))
    }

    /// The views for which a unit needs the one at a place among its needs.
    pub(super) fn need(&self, id: UnitId, at: usize) -> Stamp {
        let stamp = self.needs.get(&id).and_then(|needs| needs.get(at));
        stamp.cloned().unwrap_or(Stamp::EMPTY)
    }

    /// Notes for which views a unit needs others.
    pub(super) fn set_needs(&mut self, id: UnitId, stamps: Vec<Stamp>) {
        let needs = match stamps.first() {
            None => {
                self.needs.remove(&id);
                return;
            }
            Some(first) if stamps.iter().all(|stamp| stamp == first) => Needs::Alike(first.clone()),
            Some(_) => Needs::Each(stamps.into()),
        };
        self.needs.insert(id, needs);
    }

    /// One more, or one less, wants a unit for these views.
    pub(super) fn count(&mut self, id: UnitId, stamp: Stamp, is_more: bool) {
        let key = (id, stamp);
        if is_more {
            *self.wants.entry(key).or_insert(0) += 1;
        } else if let Some(count) = self.wants.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.wants.remove(&key);
            }
        }
    }

    /// The views for which a unit was translated last.
    pub(super) fn seen(&self, id: UnitId) -> Stamp {
        self.seen.get(&id).cloned().unwrap_or(Stamp::EMPTY)
    }

    /// Notes for which views a unit was translated.
    pub(super) fn set_seen(&mut self, id: UnitId, stamp: Stamp) {
        if stamp.is_empty() {
            self.seen.remove(&id);
        } else {
            self.seen.insert(id, stamp);
        }
    }

    /// Whether nothing is remembered of any unit.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.needs.is_empty() && self.wants.is_empty() && self.seen.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Reach, Stamp};

    #[test]
    fn a_view_wants_a_unit_until_its_last_needer_is_gone() {
        let of = |slots: &[u32]| slots.iter().copied().collect::<Stamp>();
        let mut reach = Reach::default();
        for stamp in [&[0][..], &[0], &[1, 2]] {
            reach.count(7, of(stamp), true);
        }
        reach.count(8, of(&[5]), true);
        assert_eq!(reach.wanted(7), of(&[0, 1, 2]));
        assert!(reach.is_wanted_in(7, 2) && !reach.is_wanted_in(7, 5));
        assert!(reach.is_wanted(8) && !reach.is_wanted(6));
        reach.count(7, of(&[0]), false);
        assert_eq!(reach.wanted(7), of(&[0, 1, 2]));
        reach.count(7, of(&[0]), false);
        assert_eq!(reach.wanted(7), of(&[1, 2]));
        reach.count(7, of(&[1, 2]), false);
        reach.count(8, of(&[5]), false);
        assert!(reach.is_empty());
    }

    #[test]
    fn each_need_has_views_of_its_own() {
        let mut reach = Reach::default();
        reach.set_needs(1, vec![Stamp::one(0), Stamp::one(3)]);
        assert_eq!(reach.need(1, 1), Stamp::one(3));
        reach.set_needs(1, vec![Stamp::one(3), Stamp::one(3)]);
        assert_eq!(reach.need(1, 0), Stamp::one(3));
        reach.set_needs(1, Vec::new());
        assert!(reach.is_empty());
    }
}
