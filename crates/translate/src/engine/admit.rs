//! Objects that come in, as far as their namespaces may hold them.

use std::collections::BTreeSet;

use myriad_api::{self as api, Object, ObjectKey};

use super::Engine;
use super::allowance::Beyond;
use super::batch::Run;
use super::unit::Unit;
use super::units::Record;
use crate::settings::Holding;

/// The most others of a namespace that one change moves over its bounds at once. The rest follows
/// in turns of the namespaces.
const MOVED_MAX: usize = 64;

impl Engine {
    /// Takes in a changed object as far as its namespace may hold it, and what that does to younger
    /// ones.
    pub(super) fn admit(&mut self, change: api::Change, run: &mut Run) {
        let key = change.key().clone();
        let new = match &change {
            api::Change::Put(object) => Some(object),
            api::Change::Remove(_) => None,
        };
        let bounds = self.bounds_of(&key);
        let beyond = self.allowances.take(&key);
        let was_beyond = beyond.is_some();
        if bounds.is_empty() && was_beyond {
            // It was, before its namespace was left unbounded.
            self.tell(&key, run);
        }
        if bounds.is_empty() && !self.concerns_claims(&key) {
            self.ingest(change, run);
            return;
        }
        let stored = || self.objects.get(&self.hasher, key.kind, key.id());
        // As they were written: an object that is beyond makes its claims all the same, but of one
        // that was let go nobody knows any more which.
        let old = beyond.map_or_else(stored, |beyond| beyond.object());
        self.note_claims(&key, (old.as_ref(), new), run);
        if bounds.is_empty() {
            self.bring_back(change, was_beyond, run);
            return;
        }
        let old = old.map(|old| old.meta().created);
        let amounts = new.map(|new| {
            let bounds = self.settings.bounds_of(key.namespace());
            let amounts = (self.rules.bounds.weigh)(&bounds, new);
            (new.meta().created, amounts)
        });
        let moved = self.allowances.replace(&key, (old, amounts), &bounds);
        if bounds.iter().any(|(it, _)| *it == Holding::Certificates) {
            self.settle_joined(key.namespace(), run);
        }
        match change {
            api::Change::Put(object) => match self.excess_of(&object, &bounds) {
                Some(holding) => {
                    if !was_beyond {
                        self.note_unserved(&key, run);
                        run.left_out.insert(key.clone());
                    }
                    self.exclude(object, holding, run);
                }
                None => {
                    self.tell(&key, run);
                    self.bring_back(api::Change::Put(object), was_beyond, run);
                }
            },
            change => {
                self.tell(&key, run);
                self.ingest(change, run);
            }
        }
        self.reconsider_all(key.namespace(), moved, run);
    }

    /// Brings others of a namespace to where they are by the bounds: some at once, and the rest in
    /// turns. Until then they are where they were, and so with each further change some of those
    /// go that wait: for that while a namespace holds twice what it may, at most.
    fn reconsider_all(&mut self, namespace: &str, moved: BTreeSet<ObjectKey>, run: &mut Run) {
        // Before the first outcome nobody waits for anything.
        let max = match self.is_started {
            true => MOVED_MAX,
            false => usize::MAX,
        };
        let mut moved = moved.into_iter();
        let mut now: Vec<ObjectKey> = moved.by_ref().take(max).collect();
        for key in moved {
            self.readmitted.add_moved(key);
        }
        let left = max.saturating_sub(now.len());
        now.extend(self.readmitted.take_moved(namespace, left));
        for key in now {
            self.reconsider(key, run);
        }
    }

    /// Takes in an object that is within the bounds, and notes what it comes to by that where it
    /// was not before the batch.
    fn bring_back(&mut self, change: api::Change, was_beyond: bool, run: &mut Run) {
        let was_beyond = was_beyond && !run.left_out.contains(change.key());
        if let (api::Change::Put(object), true) = (&change, was_beyond) {
            self.note_awake(object, run);
        }
        self.ingest(change, run);
    }

    /// Brings an object to where it is by the bounds, after another one of its namespace changed.
    pub(super) fn reconsider(&mut self, key: ObjectKey, run: &mut Run) {
        let bounds = &self.bounds_of(&key);
        let Some(beyond) = self.allowances.take(&key) else {
            let stored = self.objects.get(&self.hasher, key.kind, key.id());
            let excess = stored.and_then(|it| Some((self.excess_of(&it, bounds)?, it)));
            if let Some((holding, object)) = excess {
                self.note_unserved(&key, run);
                run.left_out.insert(key);
                self.exclude(object, holding, run);
            }
            return;
        };
        let Some(object) = beyond.object() else {
            return;
        };
        match self.excess_of(&object, bounds) {
            Some(holding) if beyond.is_hollow => {
                self.root((self.rules.bounds.beyond)(&key), run);
                self.allowances.keep(key, beyond.of(holding));
            }
            Some(holding) => self.exclude(object, holding, run),
            None if beyond.is_hollow => {
                self.allowances.keep(key.clone(), beyond);
                self.allowances.want(key);
            }
            None => {
                self.tell(&key, run);
                self.bring_back(api::Change::Put(object), true, run);
            }
        }
    }

    /// Takes an object out that its namespace may not hold, or puts a smaller one in its place.
    fn exclude(&mut self, object: Object, holding: Holding, run: &mut Run) {
        let key = object.key().clone();
        // One that takes too much memory is not kept, but for what has to be known of it.
        let ignored = &self.settings.ignore_annotations;
        let hollow = (holding == Holding::ObjectBytes)
            .then(|| (self.rules.bounds.hollow)(&object, ignored))
            .flatten();
        let reduced = match &hollow {
            Some((hollow, stays)) => stays.then(|| hollow.clone()),
            None => (self.rules.bounds.reduce)(&object, ignored),
        };
        let is_reduced = reduced.is_some();
        let change = match reduced {
            Some(reduced) => api::Change::Put(reduced),
            None => api::Change::Remove(key.clone()),
        };
        let unit = (self.rules.bounds.beyond)(&key);
        let (object, is_hollow) = match hollow {
            Some((hollow, _)) => (hollow, true),
            None => (object, false),
        };
        let mut beyond = Beyond::new(object, holding);
        (beyond.is_reduced, beyond.is_hollow) = (is_reduced, is_hollow);
        self.allowances.keep(key, beyond);
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

    /// Whether an object is there of which nothing is known, since it is more than its namespace
    /// may hold.
    pub fn is_let_go(&self, key: &ObjectKey) -> bool {
        self.allowances.is_beyond(key)
    }

    /// Whether the object of a unit is beyond what its namespace may hold.
    pub(super) fn is_beyond(&self, unit: &Unit) -> bool {
        if !self.allowances.is_any_beyond() {
            return false;
        }
        let key = unit.object_key();
        key.is_some_and(|key| self.allowances.is_beyond(&key))
    }

    /// The bounds of its namespace that an object counts for.
    fn bounds_of(&self, key: &ObjectKey) -> Vec<(Holding, u64)> {
        let holdings = (self.rules.bounds.holdings)(key.kind).iter();
        let bounds = self.settings.bounds_of(key.namespace());
        let bounds = holdings.filter_map(|holding| Some((*holding, bounds.get(*holding)?)));
        bounds.collect()
    }

    /// The holding that an object is too much of.
    fn excess_of(&self, object: &Object, bounds: &[(Holding, u64)]) -> Option<Holding> {
        let place = (object.meta().created, object.key().clone());
        self.allowances.excess(&place, bounds)
    }
}
