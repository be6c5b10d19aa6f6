//! Other lists of hosts and quotas of namespaces, while the engine runs.
//!
//! Objects whose namespace may hold other amounts, and units of objects whose namespace may claim
//! other hosts, are looked at again by and by, in turns of the namespaces. So are objects that one
//! change moved over a bound of their namespace, beyond the first.

use std::collections::{BTreeMap, BTreeSet};

use myriad_api::{self as api, ObjectKey};

use super::Engine;
use super::batch::Run;
use super::rotation::next_after;
use super::unit::{Unit, UnitId, namespace_of};
use super::units::Record;
use crate::settings::Tenants;

/// The most objects of one namespace that are admitted again in its turn.
pub(super) const TURN_OBJECTS: usize = 16;

/// The objects that are admitted again, by their namespaces.
#[derive(Default)]
pub(super) struct Readmitted(BTreeMap<Box<str>, Lane>);

/// The objects of one namespace that are admitted again.
#[derive(Default)]
struct Lane {
    /// Objects that are weighed anew.
    again: BTreeSet<ObjectKey>,
    /// Objects that others have moved over a bound; each may be gone or back by now.
    moved: BTreeSet<ObjectKey>,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.again.is_empty() && self.moved.is_empty()
    }
}

impl Readmitted {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The namespaces that have any.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|namespace| &**namespace)
    }

    /// The namespace whose turn it is after that of another one, among those that may have one.
    pub(super) fn next_after(&self, last: &str, may_run: &dyn Fn(&str) -> bool) -> Option<&str> {
        next_after(&self.0, last, may_run)
    }

    /// Adds an object that is weighed anew.
    fn add(&mut self, key: ObjectKey) {
        self.lane(&key).again.insert(key);
    }

    /// Adds an object that another one has moved over a bound.
    pub(super) fn add_moved(&mut self, key: ObjectKey) {
        self.lane(&key).moved.insert(key);
    }

    fn lane(&mut self, key: &ObjectKey) -> &mut Lane {
        self.0.entry(key.namespace().into()).or_default()
    }

    /// Takes out some objects of a namespace that are weighed anew.
    fn take_again(&mut self, namespace: &str) -> Vec<ObjectKey> {
        self.take(namespace, TURN_OBJECTS, |lane| &mut lane.again)
    }

    /// Takes out so many of those of a namespace that others have moved over a bound.
    pub(super) fn take_moved(&mut self, namespace: &str, max: usize) -> Vec<ObjectKey> {
        self.take(namespace, max, |lane| &mut lane.moved)
    }

    fn take(
        &mut self,
        namespace: &str,
        max: usize,
        of: fn(&mut Lane) -> &mut BTreeSet<ObjectKey>,
    ) -> Vec<ObjectKey> {
        let Some(lane) = self.0.get_mut(namespace) else {
            return Vec::new();
        };
        let keys = of(lane);
        let some = std::iter::from_fn(|| keys.pop_first()).take(max).collect();
        if lane.is_empty() {
            self.0.remove(namespace);
        }
        some
    }

    /// Forgets what was moved over bounds of some namespaces, all of whose objects are weighed
    /// anew.
    fn forget_moved(&mut self, is_of: &dyn Fn(&str) -> bool) {
        self.0.retain(|namespace, lane| {
            if is_of(namespace) {
                lane.moved.clear();
            }
            !lane.is_empty()
        });
    }
}

impl Engine {
    /// Takes in other lists and quotas. A walk over all objects and units, and never for a change
    /// of an object; what they concern runs later, with [`Engine::work_off`].
    pub fn set_tenants(&mut self, tenants: Tenants) {
        if self.settings.tenants == tenants {
            return;
        }
        let former = std::mem::replace(&mut self.settings.tenants, tenants);
        let tenants = self.settings.tenants.clone();
        let quotas = |namespace: &str| tenants.quotas_differ(&former, namespace);
        self.readmitted.forget_moved(&quotas);
        for key in self.objects.keys_of(quotas) {
            self.readmitted.add(key);
        }
        let beyond = self.allowances.keys_beyond();
        let beyond = beyond.filter(|key| quotas(key.namespace())).cloned();
        let beyond: Vec<ObjectKey> = beyond.collect();
        beyond.into_iter().for_each(|key| self.readmitted.add(key));
        self.allowances.forget_rows(&quotas);
        let lists = |namespace: &str| tenants.lists_differ(&former, namespace);
        self.claim_ports_again(&lists);
        self.let_in_again(&lists);
        let is_concerned = |namespace: &str| quotas(namespace) || lists(namespace);
        let units = self.units.iter_ids();
        let concerned = units.filter(|(id, record)| self.concerns(*id, record, &is_concerned));
        let concerned: Vec<UnitId> = concerned.map(|(id, _)| id).collect();
        for id in concerned {
            self.postpone(id);
        }
        if !self.is_started {
            let mut run = std::mem::take(&mut self.run);
            self.mark_readmitted(&mut run);
            for id in self.postponed.take_all() {
                self.mark(id, true, &mut run);
            }
            self.run = run;
        }
    }

    /// Lets all run that finds objects of some namespaces where others let those in, for hosts that
    /// they do not claim: such as a rule for a wildcard, on a narrower one of a Gateway.
    fn let_in_again(&mut self, is_of: &dyn Fn(&str) -> bool) {
        let units = self.units.iter().map(Record::unit);
        let units = units.filter(|unit| unit.kind().is_let_in);
        let keys = units.filter_map(Unit::object_key);
        let mut facts = BTreeSet::new();
        for key in keys.filter(|key| is_of(key.namespace())) {
            if let Some(object) = self.objects.get(&self.hasher, key.kind, key.id()) {
                (self.rules.found_under)(&self.hasher, &object, &mut |fact| {
                    facts.insert(fact);
                });
            }
        }
        for fact in facts {
            for id in self.units.readers(fact) {
                self.memories.touch(id, fact);
                self.postpone(id);
            }
        }
    }

    /// Whether a unit is of some namespaces, or of a host that objects of them claim.
    fn concerns(&self, id: UnitId, record: &Record, of: &dyn Fn(&str) -> bool) -> bool {
        let unit = record.unit();
        let is_of = |unit: &Unit| unit.object().is_some_and(|(_, it)| of(namespace_of(it)));
        if is_of(unit) || (self.rules.told)(unit).is_some_and(|namespace| of(&namespace)) {
            return true;
        }
        let claimants = || self.units.needers(id).into_iter();
        unit.host().is_some()
            && claimants().any(|id| self.units.get(id).is_some_and(|it| is_of(it.unit())))
    }

    /// Admits all again that wait for it.
    pub(super) fn mark_readmitted(&mut self, run: &mut Run) {
        loop {
            let next = self.readmitted.namespaces().next().map(Box::<str>::from);
            let Some(namespace) = next else {
                break;
            };
            self.readmit(&namespace, run);
        }
    }

    /// Admits some objects of a namespace again, and says whether there were any.
    pub(super) fn readmit(&mut self, namespace: &str, run: &mut Run) -> bool {
        let again = self.readmitted.take_again(namespace);
        let moved = match again.is_empty() {
            true => self.readmitted.take_moved(namespace, TURN_OBJECTS),
            false => Vec::new(),
        };
        let is_any = !again.is_empty() || !moved.is_empty();
        self.admit_again(again, run);
        for key in moved {
            self.reconsider(key, run);
        }
        is_any
    }

    fn admit_again(&mut self, keys: Vec<ObjectKey>, run: &mut Run) {
        for key in keys {
            let beyond = self.allowances.beyond(&key);
            let is_hollow = beyond.is_some_and(|it| it.is_hollow);
            let kept = beyond.and_then(|it| it.object());
            if is_hollow {
                // Nobody has it any more: it is read again, and admitted as it comes.
                self.allowances.want(key);
                continue;
            }
            let stored = || self.objects.get(&self.hasher, key.kind, key.id());
            if let Some(object) = kept.or_else(stored) {
                self.admit(api::Change::Put(object), run);
            }
        }
    }
}
