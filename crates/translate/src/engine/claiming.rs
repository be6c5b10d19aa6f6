//! Claims of objects as they come in: which are younger than the object.

use std::collections::BTreeSet;

use myriad_api::{Meta, Object, ObjectKey};
use myriad_model::Host;

use super::Engine;
use super::allowance::Beyond;
use super::batch::Run;
use super::late::{ClaimsChange, LateClaims, NewlyClaimed};
use super::unit::{Unit, UnitId, UnitKind, namespace_of};
use super::units::Record;

/// How long what is noted of an object that is not there stays, in seconds: who may not read a
/// namespace for a while must not forget what is noted of it.
const ABSENT_SECONDS_MAX: i64 = 30 * 86_400;

impl Engine {
    /// All claims that objects came to after their creation, for [`Engine::learn`] of another
    /// engine. A walk over them, and never for a change.
    pub fn late_claims(&self) -> ClaimsChange {
        self.late.all()
    }

    /// Takes in what another engine, or this one before a restart, has seen of claims; the next
    /// [`Engine::apply`] translates it. It holds before what is seen here, and only for an object
    /// of the same creation.
    pub fn learn(&mut self, claims: ClaimsChange) {
        if !self.settings.late_claims {
            return;
        }
        let mut run = std::mem::take(&mut self.run);
        for namespace in &claims.beyond {
            self.overrun_now(namespace, &mut run);
        }
        for LateClaims {
            key,
            created,
            hosts,
        } in claims.objects
        {
            let known = self.created(&key);
            // It may be of an object that is not seen yet, and is not of one that is gone.
            if (self.rules.claimant)(&key).is_none() || known.is_some_and(|known| known > created) {
                continue;
            }
            let entry = self.late.objects.get(&key);
            let entry = entry.filter(|entry| entry.created == created);
            let is_other = |(host, since): &(Host, i64)| {
                entry.is_none_or(|entry| entry.hosts.get(host) != Some(since))
            };
            let other: Vec<(Host, i64)> = hosts.into_iter().filter(is_other).collect();
            self.note_late(&key, created, other, &mut run);
        }
        self.run = run;
    }

    /// Lets the objects of a namespace claim hosts after everybody else, because more is noted of
    /// it than can be kept; the next [`Engine::apply`] translates it.
    pub fn overrun(&mut self, namespace: &str) {
        let mut run = std::mem::take(&mut self.run);
        self.overrun_now(namespace, &mut run);
        self.run = run;
    }

    fn overrun_now(&mut self, namespace: &str, run: &mut Run) {
        if self.late.overrun(namespace) {
            self.mark_namespace(namespace, run);
        }
    }

    fn created(&self, key: &ObjectKey) -> Option<i64> {
        let created = self.allowances.beyond(key).and_then(Beyond::created);
        let stored = || self.objects.get(&self.hasher, key.kind, key.id());
        created.or_else(|| Some(stored()?.meta().created))
    }

    /// Notes which hosts an object comes to by a newer version, and forgets which it leaves. The
    /// units still need what they needed before the batch, so that the order in it does not matter.
    pub(super) fn note_claims(
        &mut self,
        key: &ObjectKey,
        (old, new): (Option<&Object>, Option<&Object>),
        run: &mut Run,
    ) {
        if !self.concerns_claims(key) {
            return;
        }
        let Some(new) = new else {
            self.late.forget(key);
            return;
        };
        let created = new.meta().created;
        if created != Meta::UNKNOWN_AGE {
            self.late.newest = self.late.newest.max(created);
        }
        let entry = self.late.objects.get(key);
        if entry.is_some_and(|entry| entry.created != created) {
            self.late.forget(key);
        }
        let is_noted = self.late.objects.contains_key(key);
        let old = old.filter(|old| old.meta().created == created);
        let (Some(old), true) = (old, self.is_started) else {
            if is_noted {
                let claimed = self.newly_claimed(new, new);
                self.late.retain(key, &claimed.hosts);
            }
            return;
        };
        if old == new {
            return;
        }
        let claimed = self.newly_claimed(old, new);
        if !claimed.changed.is_empty() {
            let late = self.came_late(key, &claimed);
            self.note_late(key, created, late, run);
        }
        self.late.retain(key, &claimed.hosts);
    }

    fn newly_claimed(&self, old: &Object, new: &Object) -> NewlyClaimed {
        (self.rules.newly_claimed)(old, new, &self.settings)
    }

    /// Whether claims of an object are noted.
    pub(super) fn concerns_claims(&self, key: &ObjectKey) -> bool {
        self.late.is_kept() && (self.rules.claimant)(key).is_some()
    }

    /// The hosts that an object did not claim before, and the time from which it does.
    fn came_late(&self, key: &ObjectKey, claimed: &NewlyClaimed) -> Vec<(Host, i64)> {
        let held = self.held(key);
        let entry = self.late.objects.get(key);
        // Times of creation are whole seconds, the last one of which has not ended.
        let time = self.now.max(self.late.newest) + 1;
        let late = claimed.changed.iter().filter(|host| {
            let is_held = !claimed.owned_none && held.contains(*host);
            // Another one saw it come before this engine did.
            let is_told = !claimed.named.contains(*host)
                && entry.is_some_and(|entry| entry.hosts.contains_key(*host));
            !is_held && !is_told
        });
        late.map(|host| (host.clone(), time)).collect()
    }

    /// The hosts that an object claimed with effect when its unit ran last.
    fn held(&self, key: &ObjectKey) -> BTreeSet<Host> {
        let unit = (self.rules.claimant)(key);
        let id = unit.and_then(|unit| self.units.find(&self.hasher, &unit));
        let record = id.and_then(|id| self.units.get(id));
        let needs = record.map(Record::needs).unwrap_or_default();
        let units = needs.iter().filter_map(|need| self.units.get(*need));
        let hosts = units.filter_map(|record| record.unit().host());
        hosts.cloned().collect()
    }

    /// Notes since when an object claims hosts, and lets those run that read it.
    fn note_late(&mut self, key: &ObjectKey, created: i64, hosts: Vec<(Host, i64)>, run: &mut Run) {
        let named: Vec<Host> = hosts.iter().map(|(host, _)| host.clone()).collect();
        if self.late.insert(key, created, hosts) {
            self.mark_namespace(key.namespace(), run);
            return;
        }
        let Some(kind) = (self.rules.claimant)(key).map(|unit| unit.kind()) else {
            return;
        };
        for host in named {
            if let Some(id) = self.units.find(&self.hasher, &(self.rules.host)(&host)) {
                self.mark_claimed(id, run);
            }
            self.mark_readers(kind, key.id(), &host, run);
        }
    }

    /// Lets a host run that an object claims, and what is below it.
    fn mark_claimed(&self, host: UnitId, run: &mut Run) {
        self.mark(host, true, run);
        for id in self.below(host) {
            self.mark(id, true, run);
        }
    }

    /// Lets those run that read for how long an object claims a host.
    fn mark_readers(&self, kind: &UnitKind, id: &str, host: &Host, run: &mut Run) {
        let Some(fact) = kind.claim_fact else {
            return;
        };
        for id in self.units.readers(fact(&self.hasher, id, host)) {
            self.mark(id, true, run);
        }
    }

    /// Lets all hosts of a namespace run. A walk over all units, once for a namespace.
    fn mark_namespace(&self, namespace: &str, run: &mut Run) {
        for record in self.units.iter() {
            let unit = record.unit();
            let object = unit.object().filter(|_| unit.own_kind().is_some());
            let Some((_, id)) = object.filter(|(_, id)| namespace_of(id) == namespace) else {
                continue;
            };
            for need in record.needs() {
                let needed = self.units.get(*need).map(Record::unit);
                if let Some(host) = needed.and_then(Unit::host) {
                    self.mark_claimed(*need, run);
                    self.mark_readers(unit.kind(), id, host, run);
                }
            }
        }
    }

    /// Forgets, with the first list, what is noted of objects that have been gone for long.
    pub(super) fn leave_old_claims(&mut self) {
        let until = self.now.saturating_sub(ABSENT_SECONDS_MAX);
        let old = self.late.objects.iter().filter(|(key, entry)| {
            entry.hosts.values().all(|since| *since < until) && self.created(key).is_none()
        });
        let old: Vec<ObjectKey> = old.map(|(key, _)| key.clone()).collect();
        for key in old {
            self.late.forget(&key);
        }
    }
}
