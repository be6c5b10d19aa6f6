//! What namespaces may hold: which objects stay, by their age, whatever order they came in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::{self as api, Finding, Object, ObjectKey, ObjectKind};

use super::Engine;
use super::run::Run;
use crate::bounds::{Bounds, Holding, reduce};
use crate::output::Unit;

/// What each namespace holds of what it is bounded in. An entry for each object that counts, and
/// none where nothing is bounded.
pub struct Allowances {
    bounds: Bounds,
    /// Annotations that are ignored on request.
    ignored: BTreeSet<String>,
    by_namespace: BTreeMap<(Box<str>, Holding), Allowance>,
    /// Objects beyond, as they were written.
    beyond: BTreeMap<ObjectKey, Object>,
}

/// The place of an object in the row of its namespace: the oldest goes first.
type Place = (i64, ObjectKey);

/// One bound of one namespace.
#[derive(Default)]
struct Allowance {
    /// What each object counts for.
    row: BTreeMap<Place, u64>,
    /// The sum of those that stay.
    sum: u64,
    /// The first that is beyond, with all behind it; none where all stay.
    cut: Option<Place>,
}

/// What a change of one object did to others of its namespace.
#[derive(Default)]
struct Moved {
    /// Those that are beyond now.
    out: Vec<ObjectKey>,
    /// Those that are not any more.
    back: Vec<ObjectKey>,
}

impl Allowances {
    /// Nothing is held.
    pub fn new(bounds: Bounds, ignored: BTreeSet<String>) -> Self {
        Allowances {
            bounds,
            ignored,
            by_namespace: BTreeMap::new(),
            beyond: BTreeMap::new(),
        }
    }

    /// Whether objects of a kind count for anything that is bounded.
    fn is_bounded(&self, kind: ObjectKind) -> bool {
        Holding::of(kind).is_some_and(|holding| self.bounds.get(holding).is_some())
    }

    /// Whether an object is beyond.
    pub fn is_beyond(&self, key: &ObjectKey) -> bool {
        self.beyond.contains_key(key)
    }

    /// Whether an Ingress is beyond, by `namespace/name`.
    pub fn is_ingress_beyond(&self, id: &Arc<str>) -> bool {
        if self.beyond.is_empty() {
            return false;
        }
        self.is_beyond(&ObjectKey::from_id(ObjectKind::Ingress, id.clone()))
    }

    /// What people are told of an object that is beyond.
    pub fn finding(&self, key: &ObjectKey) -> Option<Finding> {
        self.bounds.finding(self.beyond.get(key)?, &self.ignored)
    }

    /// Notes that an object came, changed or went; returns whether it stays, where it is there, and
    /// who else moved.
    fn replace(&mut self, old: Option<&Object>, new: Option<&Object>) -> (bool, Moved) {
        let mut moved = Moved::default();
        let mut stays = true;
        let bounds = self.bounds;
        let weighed = |object: Option<&Object>| {
            let object = object?;
            let (holding, weight) = bounds.weigh(object)?;
            let place = (object.meta().created, object.key().clone());
            Some((holding, place, weight))
        };
        let (old, new) = (weighed(old), weighed(new));
        let Some((holding, place, _)) = new.as_ref().or(old.as_ref()) else {
            return (stays, moved);
        };
        let Some(bound) = bounds.get(*holding) else {
            return (stays, moved);
        };
        // A kind counts for one holding, so that both are of the same.
        let id = (place.1.namespace().into(), *holding);
        let allowance = self.by_namespace.entry(id.clone()).or_default();
        if let Some((_, place, _)) = &old {
            allowance.remove(place);
        }
        if let Some((_, place, weight)) = &new {
            allowance.insert(place.clone(), *weight);
        }
        allowance.settle(bound, &mut moved);
        if let Some((_, place, _)) = &new {
            stays = allowance.stays(place);
            moved.out.retain(|key| *key != place.1);
            moved.back.retain(|key| *key != place.1);
        }
        if allowance.row.is_empty() {
            self.by_namespace.remove(&id);
        }
        (stays, moved)
    }
}

impl Allowance {
    fn stays(&self, place: &Place) -> bool {
        self.cut.as_ref().is_none_or(|cut| place < cut)
    }

    fn insert(&mut self, place: Place, weight: u64) {
        if self.stays(&place) {
            self.sum = self.sum.saturating_add(weight);
        }
        self.row.insert(place, weight);
    }

    fn remove(&mut self, place: &Place) {
        let Some(weight) = self.row.remove(place) else {
            return;
        };
        if self.stays(place) {
            self.sum = self.sum.saturating_sub(weight);
        } else if self.cut.as_ref() == Some(place) {
            let mut behind = self.row.range(place.clone()..);
            self.cut = behind.next().map(|(place, _)| place.clone());
        }
    }

    /// Moves the cut to the first object that does not fit. Each step moves one object.
    fn settle(&mut self, bound: u64, moved: &mut Moved) {
        while self.sum > bound {
            let last = match &self.cut {
                Some(cut) => self.row.range(..cut.clone()).next_back(),
                None => self.row.iter().next_back(),
            };
            let Some((place, weight)) = last else { break };
            self.sum = self.sum.saturating_sub(*weight);
            moved.out.push(place.1.clone());
            self.cut = Some(place.clone());
        }
        while let Some(cut) = &self.cut {
            let mut behind = self.row.range(cut.clone()..);
            let Some((place, weight)) = behind.next() else {
                self.cut = None;
                break;
            };
            let sum = self.sum.saturating_add(*weight);
            if sum > bound {
                break;
            }
            self.sum = sum;
            moved.back.push(place.1.clone());
            self.cut = behind.next().map(|(place, _)| place.clone());
        }
    }
}

impl Engine {
    /// Takes in a changed object as far as its namespace may hold it, and what that does to younger
    /// ones.
    pub(super) fn admit(&mut self, change: api::Change, run: &mut Run) {
        let key = change.key().clone();
        let new = match &change {
            api::Change::Put(object) => Some(object),
            api::Change::Remove(_) => None,
        };
        if !self.allowances.is_bounded(key.kind) {
            self.ingest(change, run);
            return;
        }
        let beyond = self.allowances.beyond.remove(&key);
        let was_beyond = beyond.is_some();
        let stored = || self.objects.get(&self.hasher, key.kind, key.id());
        let old = beyond.or_else(stored);
        let (stays, moved) = self.allowances.replace(old.as_ref(), new);
        match change {
            api::Change::Put(object) if !stays => {
                if !was_beyond {
                    self.note_unserved(&key, run);
                }
                self.exclude(object, run);
            }
            change => {
                self.tell(&key, run);
                self.ingest(change, run);
            }
        }
        for key in moved.out {
            if let Some(object) = self.objects.get(&self.hasher, key.kind, key.id()) {
                self.note_unserved(&key, run);
                self.exclude(object, run);
            }
        }
        for key in moved.back {
            if let Some(object) = self.allowances.beyond.remove(&key) {
                self.tell(&key, run);
                self.ingest(api::Change::Put(object), run);
            }
        }
    }

    /// Takes an object out that its namespace may not hold, or puts a smaller one in its place.
    fn exclude(&mut self, object: Object, run: &mut Run) {
        let key = object.key().clone();
        let change = match reduce(&object, &self.allowances.ignored) {
            Some(reduced) => api::Change::Put(reduced),
            None => api::Change::Remove(key.clone()),
        };
        self.allowances.beyond.insert(key.clone(), object);
        self.root(Unit::Beyond(key), run);
        self.ingest(change, run);
    }

    /// Lets what was told of an object be withdrawn, where it was.
    fn tell(&mut self, key: &ObjectKey, run: &mut Run) {
        let unit = Unit::Beyond(key.clone());
        if let Some(id) = self.units.find(&self.hasher, &unit) {
            run.add(unit, id, true);
        }
    }

    /// An Ingress that is there is told by its status that it is not served any more.
    fn note_unserved(&self, key: &ObjectKey, run: &mut Run) {
        if key.kind != ObjectKind::Ingress {
            return;
        }
        let id: &Arc<str> = key.id();
        let unit = self.units.find(&self.hasher, &Unit::Ingress(id.clone()));
        let record = unit.and_then(|unit| self.units.get(unit));
        if record.is_some_and(super::units::Record::has_needs) {
            run.unserved.push(id.clone());
        }
    }
}
