//! Other lists of hosts and quotas of namespaces, while the engine runs.
//!
//! Objects whose namespace may hold other amounts, and units of objects whose namespace may claim
//! other hosts, are looked at again by and by, in turns of the namespaces.

use std::collections::{BTreeMap, BTreeSet};

use myriad_api::{self as api, ObjectKey};

use super::Engine;
use super::batch::Run;
use super::unit::{Unit, UnitId, namespace_of};
use super::units::Record;
use crate::settings::Tenants;

/// The most objects of one namespace that are admitted again in its turn.
pub(super) const TURN_OBJECTS: usize = 16;

/// The objects that are admitted again, by their namespaces.
#[derive(Default)]
pub(super) struct Readmitted(BTreeMap<Box<str>, BTreeSet<ObjectKey>>);

impl Readmitted {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The namespaces that have any.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|namespace| &**namespace)
    }

    fn add(&mut self, key: ObjectKey) {
        let namespace = key.namespace();
        match self.0.get_mut(namespace) {
            Some(keys) => drop(keys.insert(key)),
            None => drop(self.0.insert(namespace.into(), BTreeSet::from([key]))),
        }
    }

    /// Takes out some of the first namespace that may have a turn.
    fn take(&mut self, may_run: &dyn Fn(&str) -> bool) -> Option<(Box<str>, Vec<ObjectKey>)> {
        let namespace = self.0.keys().find(|namespace| may_run(namespace))?.clone();
        let keys = self.0.get_mut(&namespace)?;
        let some: Vec<ObjectKey> = keys.iter().take(TURN_OBJECTS).cloned().collect();
        for key in &some {
            keys.remove(key);
        }
        if keys.is_empty() {
            self.0.remove(&namespace);
        }
        Some((namespace, some))
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
        while let Some((_, keys)) = self.readmitted.take(&|_| true) {
            self.admit_again(keys, run);
        }
    }

    /// Admits some again of a namespace that may have a turn, which is returned.
    pub(super) fn readmit(
        &mut self,
        run: &mut Run,
        may_run: &dyn Fn(&str) -> bool,
    ) -> Option<Box<str>> {
        let (namespace, keys) = self.readmitted.take(may_run)?;
        self.admit_again(keys, run);
        Some(namespace)
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
