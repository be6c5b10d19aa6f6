//! The table of units: their records, the readers of facts, and the needers of units.

use std::collections::{BTreeMap, BTreeSet};

use myriad_model::{Key, Kind, Name};

use super::reach::Reach;
use super::stamp::{Slot, Stamp};
use super::unit::{Unit, UnitId, namespace_of};
use crate::store::FactHasher;
use crate::store::multimap::Multimap;
use crate::store::slab::Slab;

/// The record of a unit's last run.
pub struct Record {
    unit: Unit,
    facts: Box<[u64]>,
    needs: Box<[UnitId]>,
    routes: Box<[Name]>,
    /// Stream routes, further domains where listeners differ, and whatever is made for sidecars.
    rest: Box<[Key]>,
    deadline: i64,
}

/// The deadline of a unit that has none.
const NEVER: i64 = i64::MAX;

/// All units.
pub struct Units {
    slab: Slab<Record>,
    by_unit: Multimap,
    readers: Multimap,
    needers: Multimap,
    deadlines: BTreeSet<(i64, UnitId)>,
    /// None as long as there is one view, which wants whatever is needed.
    reach: Option<Reach>,
}

/// How the needs of a unit changed.
pub struct NeedsChange {
    /// Needed now and before.
    pub kept: Vec<UnitId>,
    /// Needed now and not before.
    pub gained: Vec<UnitId>,
    /// Needed before and not now.
    pub lost: Vec<UnitId>,
    /// The ones of all these that are needed for other views than before, and the views that
    /// differ. Empty as long as there is one view.
    pub restamped: Vec<Restamped>,
}

/// A unit that is needed for other views than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restamped {
    /// The unit.
    pub id: UnitId,
    /// The views that differ.
    pub moved: Stamp,
    /// Views that want it now and did not before.
    pub grown: Stamp,
    /// Views that do not want it any more.
    pub shrunk: Stamp,
}

impl Record {
    /// The unit.
    pub fn unit(&self) -> &Unit {
        &self.unit
    }

    /// The namespace of its object, of its name or of the routes that it made; empty for none.
    pub fn namespace(&self) -> &str {
        let made = || self.routes.first().map(|name| namespace_of(name));
        let named = || self.unit.name().map(|name| namespace_of(name));
        let own = self.unit.namespace().or_else(named).or_else(made);
        own.unwrap_or_default()
    }

    /// Whether it needs any other unit.
    pub fn has_needs(&self) -> bool {
        !self.needs.is_empty()
    }

    /// The facts that it read, sorted.
    pub fn facts(&self) -> &[u64] {
        &self.facts
    }

    /// The units that it needs, sorted.
    pub fn needs(&self) -> &[UnitId] {
        &self.needs
    }

    /// The names of the routes that it made.
    pub fn routes(&self) -> &[Name] {
        &self.routes
    }

    /// The keys of the other resources that it made, as far as they are stored.
    pub fn rest(&self) -> &[Key] {
        &self.rest
    }

    /// The keys of all resources that the unit may have made. Those that follow from its own
    /// name are not stored.
    pub fn outputs(&self) -> Vec<Key> {
        let mut keys = Vec::with_capacity(2 + self.routes.len());
        // Of others than these all is stored.
        (self.unit.kind().makes)(self.unit.key(), &mut keys);
        keys.extend(self.rest.iter().cloned());
        let routes = self.routes.iter();
        keys.extend(routes.map(|name| Key::new(Kind::Route, name.clone())));
        keys
    }
}

impl Units {
    /// An empty table.
    pub fn new() -> Self {
        Units {
            slab: Slab::new(),
            by_unit: Multimap::default(),
            readers: Multimap::default(),
            needers: Multimap::default(),
            deadlines: BTreeSet::new(),
            reach: None,
        }
    }

    /// Begins to note which views want what, unless that is noted. Returns whether the main one was
    /// alone so far.
    pub fn note_views(&mut self) -> bool {
        if self.reach.is_some() {
            return false;
        }
        let mut reach = Reach::default();
        for (id, record) in self.slab.iter_ids() {
            reach.set_needs(id, vec![Stamp::MAIN; record.needs.len()]);
            reach.set_seen(id, Stamp::MAIN);
            for need in &record.needs {
                reach.count(*need, Stamp::MAIN, true);
            }
        }
        self.reach = Some(reach);
        true
    }

    /// The number of units.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// The number of facts that units have read, needs and deadlines included.
    pub fn links_len(&self) -> usize {
        self.readers.len() + self.needers.len() + self.deadlines.len()
    }

    /// All records.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.slab.iter()
    }

    /// All numbers and records.
    pub fn iter_ids(&self) -> impl Iterator<Item = (UnitId, &Record)> {
        self.slab.iter_ids()
    }

    /// The record of a unit.
    pub fn get(&self, id: UnitId) -> Option<&Record> {
        self.slab.get(id)
    }

    /// The unit's number, if it is there.
    pub fn find(&self, hasher: &FactHasher, unit: &Unit) -> Option<UnitId> {
        self.by_unit.ids(hasher.hash(unit)).find(|id| {
            let record = self.slab.get(*id);
            record.is_some_and(|record| record.unit == *unit)
        })
    }

    /// The unit's number, and whether it is new.
    pub fn find_or_insert(&mut self, hasher: &FactHasher, unit: Unit) -> (UnitId, bool) {
        if let Some(id) = self.find(hasher, &unit) {
            return (id, false);
        }
        let hash = hasher.hash(&unit);
        let id = self.slab.insert(Record {
            unit,
            facts: Box::default(),
            needs: Box::default(),
            routes: Box::default(),
            rest: Box::default(),
            deadline: NEVER,
        });
        self.by_unit.insert(hash, id);
        (id, true)
    }

    /// Forgets a unit whose facts, needs and deadline were emptied before.
    pub fn remove(&mut self, hasher: &FactHasher, id: UnitId) {
        if let Some(record) = self.slab.remove(id) {
            self.by_unit.remove(hasher.hash(&record.unit), id);
        }
    }

    /// The units that read a fact.
    pub fn readers(&self, fact: u64) -> Vec<UnitId> {
        self.readers.ids(fact).collect()
    }

    /// The units that need a unit.
    pub fn needers(&self, id: UnitId) -> Vec<UnitId> {
        self.needers.ids(u64::from(id)).collect()
    }

    /// The views for which anybody needs a unit.
    pub fn wanted(&self, id: UnitId) -> Stamp {
        match &self.reach {
            Some(reach) => reach.wanted(id),
            None if self.needers.has(u64::from(id)) => Stamp::MAIN,
            None => Stamp::EMPTY,
        }
    }

    /// Whether anybody needs a unit for any view.
    pub fn is_wanted(&self, id: UnitId) -> bool {
        match &self.reach {
            Some(reach) => reach.is_wanted(id),
            None => self.needers.has(u64::from(id)),
        }
    }

    /// The views for which one unit needs another.
    pub fn need(&self, needer: UnitId, id: UnitId) -> Stamp {
        let Some(reach) = &self.reach else {
            return Stamp::MAIN;
        };
        let needs = self.get(needer).map(|record| &record.needs);
        let at = needs.and_then(|needs| needs.binary_search(&id).ok());
        at.map_or(Stamp::EMPTY, |at| reach.need(needer, at))
    }

    /// The views for which a unit was translated last, where there is more than one.
    pub fn seen(&self, id: UnitId) -> Stamp {
        let reach = self.reach.as_ref();
        reach.map_or(Stamp::EMPTY, |reach| reach.seen(id))
    }

    /// Notes for which views a unit was translated.
    pub fn set_seen(&mut self, id: UnitId, stamp: Stamp) {
        if let Some(reach) = &mut self.reach {
            reach.set_seen(id, stamp);
        }
    }

    /// Notes the facts that a unit read; sorted.
    pub fn set_facts(&mut self, id: UnitId, facts: Box<[u64]>) {
        let Some(record) = self.slab.get_mut(id) else {
            return;
        };
        let former = std::mem::replace(&mut record.facts, facts);
        let facts = &record.facts;
        for fact in former.iter().filter(|f| facts.binary_search(f).is_err()) {
            self.readers.remove(*fact, id);
        }
        for fact in facts.iter().filter(|f| former.binary_search(f).is_err()) {
            self.readers.insert(*fact, id);
        }
    }

    /// Notes the units that a unit needs, sorted, and for which views where there are several.
    pub fn set_needs(
        &mut self,
        id: UnitId,
        needs: Box<[UnitId]>,
        stamps: Option<Vec<Stamp>>,
    ) -> NeedsChange {
        let restamped = match stamps {
            Some(stamps) => self.restamp(id, &needs, stamps),
            None => Vec::new(),
        };
        let mut change = NeedsChange {
            kept: Vec::new(),
            gained: Vec::new(),
            lost: Vec::new(),
            restamped,
        };
        let Some(record) = self.slab.get_mut(id) else {
            return change;
        };
        let former = std::mem::replace(&mut record.needs, needs);
        for need in &record.needs {
            if former.binary_search(need).is_ok() {
                change.kept.push(*need);
            } else {
                change.gained.push(*need);
                self.needers.insert(u64::from(*need), id);
            }
        }
        for need in &former {
            if record.needs.binary_search(need).is_err() {
                change.lost.push(*need);
                self.needers.remove(u64::from(*need), id);
            }
        }
        change
    }

    /// Notes that a unit needs for one view what it needs for another, or nothing, and returns
    /// those where that differs.
    pub fn move_view(&mut self, id: UnitId, slot: Slot, like: Option<Slot>) -> Vec<Restamped> {
        let (Some(record), Some(reach)) = (self.slab.get(id), &self.reach) else {
            return Vec::new();
        };
        let needs = record.needs.clone();
        let stamps = (0..needs.len()).map(|at| {
            let mut stamp = reach.need(id, at);
            match like.is_some_and(|like| stamp.has(like)) {
                true => stamp.insert(slot),
                false => stamp.remove(slot),
            }
            stamp
        });
        let stamps = stamps.collect();
        self.restamp(id, &needs, stamps)
    }

    /// Notes for which views a unit needs others, and returns those where that differs.
    fn restamp(&mut self, id: UnitId, needs: &[UnitId], stamps: Vec<Stamp>) -> Vec<Restamped> {
        let (Some(record), Some(reach)) = (self.slab.get(id), &mut self.reach) else {
            return Vec::new();
        };
        let mut changes: BTreeMap<UnitId, (Stamp, Stamp)> = BTreeMap::new();
        for (at, need) in record.needs.iter().enumerate() {
            changes.insert(*need, (reach.need(id, at), Stamp::EMPTY));
        }
        for (need, stamp) in needs.iter().zip(&stamps) {
            let change = changes.entry(*need);
            change.or_insert((Stamp::EMPTY, Stamp::EMPTY)).1 = stamp.clone();
        }
        reach.set_needs(id, stamps);
        let mut restamped = Vec::new();
        for (need, (old, new)) in changes {
            if old == new {
                continue;
            }
            let (joined, left) = (new.minus(&old), old.minus(&new));
            let is_new = |slot: &Slot| !reach.is_wanted_in(need, *slot);
            let grown = joined.iter().filter(is_new).collect();
            for (stamp, is_more) in [(old, false), (new, true)] {
                if !stamp.is_empty() {
                    reach.count(need, stamp, is_more);
                }
            }
            let is_gone = |slot: &Slot| !reach.is_wanted_in(need, *slot);
            restamped.push(Restamped {
                id: need,
                moved: joined.union(&left),
                grown,
                shrunk: left.iter().filter(is_gone).collect(),
            });
        }
        restamped
    }

    /// Notes the routes that a unit made, its stream routes, and its domains but the one that bears
    /// its name.
    pub fn set_outputs(&mut self, id: UnitId, routes: Box<[Name]>, rest: Box<[Key]>) {
        if let Some(record) = self.slab.get_mut(id) {
            record.routes = routes;
            record.rest = rest;
        }
    }

    /// Notes when a unit has to run again.
    pub fn set_deadline(&mut self, id: UnitId, deadline: Option<i64>) {
        let Some(record) = self.slab.get_mut(id) else {
            return;
        };
        let former = std::mem::replace(&mut record.deadline, deadline.unwrap_or(NEVER));
        if former == record.deadline {
            return;
        }
        if former != NEVER {
            self.deadlines.remove(&(former, id));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
    }

    /// The earliest deadline of all.
    pub fn next_deadline(&self) -> Option<i64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The units whose deadline is not after `now`.
    pub fn due(&self, now: i64) -> Vec<UnitId> {
        let due = self.deadlines.range(..=(now, UnitId::MAX));
        due.map(|(_, id)| *id).collect()
    }
}
