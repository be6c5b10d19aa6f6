//! Weighing of the upstreams that are to run, and of authorities of several objects.

use std::sync::Arc;

use super::Engine;
use super::batch::Run;
use super::copies::Weight;
use super::reader::Reader;
use super::stamp::{MAIN_SLOT, Stamp};
use super::unit::{Unit, UnitId};
use super::viewpoint::Viewpoint;
use crate::settings::Holding;

impl Engine {
    /// Weighs the upstreams that are to run, and lets those run as well that others have moved.
    pub(super) fn weigh_upstreams(&mut self, run: &mut Run) {
        if self.is_unbounded() {
            return;
        }
        let kind = self.rules.bounds.copying;
        let first = Unit::named(kind, "".into());
        let pending = run.pending.range(first..);
        let pending = pending.map_while(|(unit, pending)| {
            let name = unit.name().filter(|_| unit.is(kind))?;
            Some((name.clone(), pending.id))
        });
        let pending: Vec<(Arc<str>, UnitId)> = pending.collect();
        for (name, id) in pending {
            let is_wanted = self.units.is_wanted(id);
            self.note_weight(&name, id, is_wanted, run);
        }
        self.settle_copies(run);
    }

    /// Weighs the upstreams that a unit needs now, before they run.
    pub(super) fn weigh_needed(&mut self, needed: &[(Unit, UnitId, Stamp)], run: &mut Run) {
        if self.is_unbounded() {
            return;
        }
        let kind = self.rules.bounds.copying;
        for (unit, id, _) in needed.iter().filter(|(unit, ..)| unit.is(kind)) {
            if let Some(name) = unit.name() {
                self.note_weight(name, *id, true, run);
            }
        }
        self.settle_copies(run);
    }

    fn is_unbounded(&self) -> bool {
        self.allowances.copies.is_unbounded() && self.allowances.slots.is_unbounded()
    }

    /// Notes what an upstream counts for; nothing where nobody wants it.
    fn note_weight(&mut self, name: &Arc<str>, id: UnitId, is_wanted: bool, run: &mut Run) {
        let weigh = |rule: Weigh, run: &mut Run| match is_wanted {
            true => self.weigh(rule, name, id, run),
            false => None,
        };
        let copies = weigh(self.rules.bounds.copies, run);
        let slots = weigh(self.rules.bounds.slots, run);
        self.allowances.copies.replace(name, copies);
        self.allowances.slots.replace(name, slots);
    }

    /// Lets those run that are beyond now, and those that are not any more.
    fn settle_copies(&mut self, run: &mut Run) {
        let kind = self.rules.bounds.copying;
        let copies = self.allowances.copies.settle().into_iter();
        for name in copies.chain(self.allowances.slots.settle()) {
            let unit = Unit::named(kind, name);
            if let Some(id) = self.units.find(&self.hasher, &unit) {
                run.add(unit, id, true);
            }
        }
    }

    /// Weighs the authorities of several objects that a unit is for, before it runs.
    pub(super) fn weigh_joined(&mut self, unit: &Unit, id: UnitId, run: &mut Run) {
        let Some((name, namespace)) = self.joined_name(unit) else {
            return;
        };
        let weight = self.weigh(self.rules.bounds.joined, name, id, run);
        self.allowances.joined.replace(name, weight);
        self.settle_joined(namespace, run);
        // It runs now.
        run.pending.remove(unit);
    }

    /// Lets a unit that goes count for no authorities any more.
    pub(super) fn forget_joined(&mut self, unit: &Unit, run: &mut Run) {
        if let Some((name, namespace)) = self.joined_name(unit) {
            self.allowances.joined.replace(name, None);
            self.settle_joined(namespace, run);
        }
    }

    /// The name of a unit for the authorities of several objects, and the namespace that they count
    /// for.
    fn joined_name<'a>(&self, unit: &'a Unit) -> Option<(&'a Arc<str>, &'a str)> {
        let name = unit.name().filter(|_| unit.is(self.rules.bounds.joining))?;
        let (namespace, _) = (self.rules.bounds.joined_place)(name)?;
        Some((name, namespace))
    }

    /// Lets the units for authorities of several objects run that are beyond what a namespace may
    /// hold now, and those that are not any more.
    pub(super) fn settle_joined(&mut self, namespace: &str, run: &mut Run) {
        let settings = &self.settings;
        let bound = |namespace: &str| settings.bounds_of(namespace).get(Holding::Certificates);
        self.allowances.joined.touch(namespace);
        let moved = self.allowances.settle_joined(bound);
        for name in moved {
            let unit = Unit::named(self.rules.bounds.joining, name);
            if let Some(id) = self.units.find(&self.hasher, &unit) {
                run.add(unit, id, true);
            }
        }
    }

    /// The weight of an upstream by a rule, in whatever view.
    fn weigh(&self, rule: Weigh, name: &str, id: UnitId, run: &mut Run) -> Option<Weight> {
        let view = Viewpoint::new(MAIN_SLOT, self.views.get(MAIN_SLOT)?, true);
        let around = self.surroundings();
        let mut reader = Reader::new(self.stored(), around, &view, id, &mut run.opened);
        // No fact is kept: what it reads it reads again when it is translated.
        let weight = rule(&mut reader, name);
        run.work.entries_visited += reader.visited().entries;
        weight
    }
}

/// A rule for the weight of an upstream, by its name.
type Weigh = fn(&mut Reader<'_>, &str) -> Option<Weight>;
