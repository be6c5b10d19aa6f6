//! Objects that come in, as far as their namespaces may hold them.

use myriad_api::{self as api, Object, ObjectKey, ObjectKind};

use super::Engine;
use super::allowance::Held;
use super::batch::Run;
use super::units::Record;

impl Engine {
    /// Takes in a changed object as far as its namespace may hold it, and what that does to younger
    /// ones.
    pub(super) fn admit(&mut self, change: api::Change, run: &mut Run) {
        let key = change.key().clone();
        let new = match &change {
            api::Change::Put(object) => Some(object),
            api::Change::Remove(_) => None,
        };
        let is_bounded = self.is_bounded(key.kind);
        if !is_bounded && !self.concerns_claims(&key) {
            self.ingest(change, run);
            return;
        }
        let beyond = self.allowances.beyond.remove(&key);
        let was_beyond = beyond.is_some();
        let stored = || self.objects.get(&self.hasher, key.kind, key.id());
        let old = beyond.or_else(stored);
        // As they were written: what a namespace may hold makes no claim younger.
        self.note_claims(&key, (old.as_ref(), new), run);
        if !is_bounded {
            self.ingest(change, run);
            return;
        }
        let (old, new) = (self.weigh_object(old.as_ref()), self.weigh_object(new));
        let bounds = self.settings.bounds;
        let bound = |holding| bounds.get(holding);
        let (stays, moved) = self.allowances.replace(old, new, bound);
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
        for (_, key) in moved.out {
            if let Some(object) = self.objects.get(&self.hasher, key.kind, key.id()) {
                self.note_unserved(&key, run);
                self.exclude(object, run);
            }
        }
        for (_, key) in moved.back {
            if let Some(object) = self.allowances.beyond.remove(&key) {
                self.tell(&key, run);
                self.ingest(api::Change::Put(object), run);
            }
        }
    }

    /// Takes an object out that its namespace may not hold, or puts a smaller one in its place.
    fn exclude(&mut self, object: Object, run: &mut Run) {
        let key = object.key().clone();
        let ignored = &self.settings.ignore_annotations;
        let change = match (self.rules.bounds.reduce)(&object, ignored) {
            Some(reduced) => api::Change::Put(reduced),
            None => api::Change::Remove(key.clone()),
        };
        let unit = (self.rules.bounds.beyond)(&key);
        self.allowances.beyond.insert(key, object);
        self.root(unit, run);
        self.ingest(change, run);
    }

    /// Lets what was told of an object be withdrawn, where it was.
    fn tell(&mut self, key: &ObjectKey, run: &mut Run) {
        let unit = (self.rules.bounds.beyond)(key);
        if let Some(id) = self.units.find(&self.hasher, &unit) {
            run.add(unit, id, true);
        }
    }

    /// The object of a unit that is there is told by its status that it is not served any more.
    fn note_unserved(&self, key: &ObjectKey, run: &mut Run) {
        let unit = (self.rules.claimant)(key);
        let Some(unit) = unit.filter(|unit| unit.kind().has_status) else {
            return;
        };
        let id = self.units.find(&self.hasher, &unit);
        let record = id.and_then(|id| self.units.get(id));
        if record.is_some_and(Record::has_needs) {
            run.unserved.push(key.id().clone());
        }
    }

    /// Whether objects of a kind count for anything that is bounded.
    fn is_bounded(&self, kind: ObjectKind) -> bool {
        let holding = (self.rules.bounds.holding)(kind);
        holding.is_some_and(|holding| self.settings.bounds.get(holding).is_some())
    }

    fn weigh_object(&self, object: Option<&Object>) -> Option<Held> {
        let object = object?;
        let (holding, weight) = (self.rules.bounds.weigh)(&self.settings.bounds, object)?;
        let place = (object.meta().created, object.key().clone());
        Some((holding, place, weight))
    }
}
