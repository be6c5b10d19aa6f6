//! Claims of objects as they come in: which are younger than the object.

use std::collections::{BTreeMap, BTreeSet};

use myriad_api::{Meta, Object, ObjectKey};
use myriad_model::Host;

use super::Engine;
use super::allowance::Beyond;
use super::batch::Run;
use super::claimed::{Claimed, NewlyClaimed};
use super::late::{ClaimsChange, LateClaims};
use super::ports::{PortKey, PortSpeech};
use super::rules::{Scene, Touched};
use super::unit::{Unit, UnitId, UnitKind, namespace_of};
use super::units::Record;

/// How long what is noted of an object that is not there stays, in seconds: who may not read a
/// namespace for a while must not forget what is noted of it.
const ABSENT_SECONDS_MAX: i64 = 30 * 86_400;

/// The most claims to a name that are looked at for one of another namespace.
const OTHERS_LOOKED_AT_MAX: usize = 64;

/// The claims of an object that had an effect.
#[derive(Default)]
struct Held {
    hosts: BTreeSet<Host>,
    /// Numbers of TCP, or of UDP.
    numbers: BTreeSet<(u16, bool)>,
}

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
        for claims in claims.objects {
            self.learn_one(claims, &mut run);
        }
        self.run = run;
    }

    fn learn_one(&mut self, told: LateClaims, run: &mut Run) {
        let LateClaims {
            key,
            created,
            claims,
            left,
        } = told;
        let known = self.created(&key);
        // It may be of an object that is not seen yet, and is not of one that is gone.
        if (self.rules.claimant)(&key).is_none() || known.is_some_and(|known| known > created) {
            return;
        }
        let entry = self.late.objects.get(&key);
        let entry = entry.filter(|entry| entry.created == created);
        let is_other = |(claimed, since): &(Claimed, i64)| {
            entry.is_none_or(|entry| {
                // Who has not seen it left here tells of the claim before.
                let is_before = entry.left.get(claimed).is_some_and(|left| left >= since);
                entry.claims.get(claimed) != Some(since) && !is_before
            })
        };
        let other: Vec<(Claimed, i64)> = claims.into_iter().filter(is_other).collect();
        let is_new = |(claimed, at): &(Claimed, i64)| {
            entry.is_none_or(|entry| entry.left.get(claimed).is_none_or(|left| left < at))
        };
        let left: Vec<(Claimed, i64)> = left.into_iter().filter(is_new).collect();
        self.note_late(&key, created, other, run);
        let made = match left.is_empty() {
            true => BTreeSet::new(),
            false => self.made(&key),
        };
        for (claimed, at) in left {
            // What is made here is left here when that is seen, or is compared with the first list.
            if !self.is_started || !claimed.is_among(&made) {
                self.late.leave(&key, created, (claimed, at));
            }
        }
        if !self.is_started && !made.is_empty() {
            self.late.found.insert(key, made);
        }
    }

    /// The claims that an object makes which is there, as far as that is known of it.
    pub(super) fn made(&self, key: &ObjectKey) -> BTreeSet<Claimed> {
        let beyond = self.allowances.beyond(key).and_then(Beyond::object);
        let stored = || self.objects.get(&self.hasher, key.kind, key.id());
        let object = beyond.or_else(stored);
        object.map_or_else(BTreeSet::new, |it| self.newly_claimed(&it, &it).all)
    }

    /// Lets the objects of a namespace make claims after everybody else, because more is noted of
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

    pub(super) fn created(&self, key: &ObjectKey) -> Option<i64> {
        let created = self.allowances.beyond(key).and_then(Beyond::created);
        let stored = || self.objects.get(&self.hasher, key.kind, key.id());
        created.or_else(|| Some(stored()?.meta().created))
    }

    /// Notes what an object comes to by a newer version, and what it leaves. The units still need
    /// what they needed before the batch, so that the order in it does not matter.
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
            run.moved.remove(key);
            if old.is_none() {
                self.late.note_unread(key);
            }
            return;
        };
        let was_unread = self.late.take_unread(key);
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
            if self.is_started {
                run.newcomers.insert(key.clone());
            }
            if is_noted {
                let made = self.newly_claimed(new, new).all;
                match self.is_started {
                    true => self.compare(key, &made, run),
                    false => drop(self.late.found.insert(key.clone(), made)),
                }
            }
            if was_unread {
                self.note_awake(new, run);
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
            let moved = run.moved.entry(key.clone()).or_default();
            moved.extend(claimed.changed);
        }
        self.late.retain(key, &claimed.all, self.now);
    }

    fn newly_claimed(&self, old: &Object, new: &Object) -> NewlyClaimed {
        (self.rules.newly_claimed)(old, new, &self.settings)
    }

    /// Whether claims of an object are noted.
    pub(super) fn concerns_claims(&self, key: &ObjectKey) -> bool {
        self.late.is_kept() && (self.rules.claimant)(key).is_some()
    }

    /// The time from which a claim is made that comes now. Times of creation are whole seconds, the
    /// last one of which has not ended.
    pub(super) fn late_time(&self) -> i64 {
        self.now.max(self.late.newest).saturating_add(1)
    }

    /// The claims that an object did not make before, and the time from which it does.
    fn came_late(&self, key: &ObjectKey, claimed: &NewlyClaimed) -> Vec<(Claimed, i64)> {
        let held = self.held(key);
        let entry = self.late.objects.get(key);
        let time = self.late_time();
        let late = claimed.changed.iter().filter(|it| {
            let is_named = claimed.named.contains(*it);
            let is_held = !claimed.owned_none && held.has(it, is_named);
            // Another one saw it come before this engine did.
            let is_told = !is_named && entry.is_some_and(|entry| entry.claims.contains_key(*it));
            // What a late claim left in this very batch it makes again since now.
            let is_back = entry.is_some_and(|entry| !entry.left_with(it).is_empty());
            is_back || !is_held && !is_told
        });
        late.map(|it| (it.clone(), time)).collect()
    }

    /// The claims that an object made with effect when its unit ran last. What it had at some
    /// proxies, and has at others by an edit, is noted once it is known at which.
    fn held(&self, key: &ObjectKey) -> Held {
        let unit = (self.rules.claimant)(key);
        let id = unit.and_then(|unit| self.units.find(&self.hasher, &unit));
        let record = id.and_then(|id| self.units.get(id));
        let needs = record.map(Record::needs).unwrap_or_default();
        let mut held = Held::default();
        let records = needs.iter().filter_map(|need| self.units.get(*need));
        for unit in records.map(Record::unit) {
            held.hosts.extend(unit.host().cloned());
            held.numbers.extend(unit.port().map(number_of));
        }
        if !held.numbers.is_empty() {
            let shared = self.shared_numbers(key);
            held.numbers.retain(|it| shared.contains(it));
        }
        held
    }

    /// The numbers that an object claims at gateways which others share. At proxies of its own
    /// nobody else claims any.
    fn shared_numbers(&self, key: &ObjectKey) -> BTreeSet<(u16, bool)> {
        let gateways = self.views.gateways();
        let claims = gateways.filter_map(|standing| standing.ports.of(key));
        claims.flat_map(BTreeMap::keys).map(number_of).collect()
    }

    /// Notes, of an object that comes back from beyond what its namespace may hold, or could not be
    /// read before, what others had meanwhile: who has something keeps it, however old a claim is
    /// that had no effect. It is asked of the state before the batch, or not at all, so that the
    /// order in it does not matter.
    pub(super) fn note_awake(&mut self, object: &Object, run: &mut Run) {
        let key = object.key();
        if !self.is_started || !self.concerns_claims(key) {
            return;
        }
        let Some(kind) = (self.rules.claimant)(key).map(|unit| unit.kind()) else {
            return;
        };
        let time = self.late_time();
        let made = self.newly_claimed(object, object).all.into_iter();
        let had = made.filter(|claimed| self.may_others_have(kind, key.namespace(), claimed));
        let late: Vec<(Claimed, i64)> = had.map(|claimed| (claimed, time)).collect();
        self.note_late(key, object.meta().created, late, run);
    }

    /// Whether another namespace may have something that an object claims.
    fn may_others_have(&self, kind: &UnitKind, own: &str, claimed: &Claimed) -> bool {
        let Claimed::Host(host) = claimed else {
            return true;
        };
        if let Some(seat) = kind.claim_seat {
            let claims = self.stakes.all(seat(&self.hasher, host));
            let mut claims = claims.take(OTHERS_LOOKED_AT_MAX).enumerate();
            return claims
                .any(|(at, it)| namespace_of(&it.id) != own || at + 1 == OTHERS_LOOKED_AT_MAX);
        }
        // What is below a wildcard is of whoever claims it.
        if (self.rules.suffix_of)(host).is_some() {
            return true;
        }
        let unit = (self.rules.host)(host);
        let Some(id) = self.units.find(&self.hasher, &unit) else {
            return false;
        };
        let needers = self.units.needers(id).into_iter();
        let mut needers = needers.filter_map(|id| self.units.get(id));
        needers.any(|record| record.unit().namespace() != Some(own))
    }

    /// Notes since when an object makes claims, and lets those run that read it.
    pub(super) fn note_late(
        &mut self,
        key: &ObjectKey,
        created: i64,
        claims: Vec<(Claimed, i64)>,
        run: &mut Run,
    ) {
        if claims.is_empty() {
            return;
        }
        let noted: Vec<Claimed> = claims.iter().map(|(claimed, _)| claimed.clone()).collect();
        if self.late.insert(key, created, claims) {
            self.mark_namespace(key.namespace(), run);
            return;
        }
        let Some(kind) = (self.rules.claimant)(key).map(|unit| unit.kind()) else {
            return;
        };
        let mut is_whole = kind.claim_seat.is_some();
        for claimed in noted {
            match claimed {
                Claimed::Host(host) | Claimed::Entered(host, _) => {
                    if kind.claim_seat.is_none() {
                        self.mark_host(&host, run);
                    }
                    self.mark_readers(kind, key.id(), &host, run);
                }
                Claimed::Port(..) => is_whole = true,
                // Plain connections are led where what is for all hosts is.
                Claimed::Stream(..) => self.mark_host(&Host::any(), run),
            }
        }
        if is_whole {
            self.age_ports(key, run);
            self.mark_units(key, run);
        }
    }

    fn mark_host(&self, host: &Host, run: &mut Run) {
        if let Some(id) = self.units.find(&self.hasher, &(self.rules.host)(host)) {
            self.mark_claimed(id, run);
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
    fn mark_readers(&mut self, kind: &UnitKind, id: &str, host: &Host, run: &mut Run) {
        let Some(fact) = kind.claim_fact else {
            return;
        };
        let fact = fact(&self.hasher, id, host);
        for id in self.units.readers(fact) {
            self.memories.touch(id, fact);
            self.mark(id, true, run);
        }
    }

    /// Lets the units of an object run that is there.
    fn mark_units(&self, key: &ObjectKey, run: &mut Run) {
        let Some(object) = self.objects.get(&self.hasher, key.kind, key.id()) else {
            return;
        };
        let scene = Scene {
            hasher: &self.hasher,
            settings: &self.settings,
            views: &self.views,
        };
        let mut touched = Touched::default();
        let same = (Some(&object), Some(&object));
        (self.rules.touch)(&scene, key, same, &mut touched);
        let reachable = touched.reachable.map(|(unit, _)| unit);
        let units = touched.unit.into_iter().chain(touched.beside);
        for unit in units.chain(reachable) {
            if let Some(id) = self.units.find(&self.hasher, &unit) {
                run.add(unit, id, true);
            }
        }
    }

    /// Makes the claims of an object to ports, which it has noted before, as old as they are now,
    /// and lets those run that read who has them.
    fn age_ports(&mut self, key: &ObjectKey, run: &mut Run) {
        let Some(created) = self.created(key) else {
            return;
        };
        let mut facts = Vec::new();
        for slot in self.views.of_gateways().clone().iter() {
            let Some(standing) = self.views.get_mut(slot) else {
                continue;
            };
            let Some(mut claims) = standing.ports.of(key).cloned() else {
                continue;
            };
            claims.values_mut().for_each(|it| it.created = created);
            self.late.age(&mut claims);
            let changes = standing.ports.state(key, claims);
            facts.extend(changes.facts(&self.hasher));
        }
        self.wake(&facts, key.namespace(), run);
    }

    /// Claims the ports anew of the objects of some namespaces, which may claim other hosts, and
    /// lets those run later that read who has them.
    pub(super) fn claim_ports_again(&mut self, is_of: &dyn Fn(&str) -> bool) {
        let units = self.units.iter().map(Record::unit);
        let claiming = units.filter_map(|unit| Some((unit.kind().ports?, unit.object_key()?)));
        let claiming = claiming.filter(|(_, key)| is_of(key.namespace()));
        let claiming: Vec<_> = claiming.collect();
        let mut facts = Vec::new();
        for (claims, key) in claiming {
            let object = self.objects.get(&self.hasher, key.kind, key.id());
            self.claim_ports(claims, &key, object.as_ref(), &mut facts);
        }
        for fact in facts {
            for id in self.units.readers(fact) {
                self.memories.touch(id, fact);
                self.postpone(id);
            }
        }
    }

    /// Lets all run that reads for how long objects of a namespace make claims. A walk over all
    /// units, once for a namespace.
    fn mark_namespace(&mut self, namespace: &str, run: &mut Run) {
        let mut read: Vec<(&'static UnitKind, ObjectKey, Host)> = Vec::new();
        let mut whole: BTreeSet<ObjectKey> = BTreeSet::new();
        for record in self.units.iter() {
            let unit = record.unit();
            let key = unit.object_key().filter(|_| unit.own_kind().is_some());
            let Some(key) = key.filter(|key| key.namespace() == namespace) else {
                continue;
            };
            for need in record.needs() {
                let needed = self.units.get(*need).map(Record::unit);
                if let Some(host) = needed.and_then(Unit::host) {
                    self.mark_claimed(*need, run);
                    read.push((unit.kind(), key.clone(), host.clone()));
                }
            }
            if unit.kind().claim_seat.is_some() && (self.rules.claimant)(&key).is_some() {
                for claimed in self.made(&key) {
                    if let Claimed::Host(host) = claimed {
                        read.push((unit.kind(), key.clone(), host));
                    }
                }
                whole.insert(key);
            }
        }
        for (kind, key, host) in read {
            self.mark_readers(kind, key.id(), &host, run);
        }
        self.mark_host(&Host::any(), run);
        for slot in self.views.of_gateways().clone().iter() {
            let standing = self.views.get(slot);
            let claimers = standing.into_iter().flat_map(|it| it.ports.claimers());
            whole.extend(claimers.filter(|it| it.namespace() == namespace).cloned());
        }
        for key in whole {
            self.age_ports(&key, run);
            self.mark_units(&key, run);
        }
    }

    /// Compares what an object makes of claims with what is noted of it, where nobody here saw its
    /// former version: what it left and makes again was made again since.
    fn compare(&mut self, key: &ObjectKey, made: &BTreeSet<Claimed>, run: &mut Run) {
        let Some(entry) = self.late.objects.get(key) else {
            return;
        };
        let (created, time) = (entry.created, self.late_time());
        let back = entry.left.keys().filter(|claimed| claimed.is_among(made));
        let back: Vec<(Claimed, i64)> = back.map(|claimed| (claimed.clone(), time)).collect();
        self.note_late(key, created, back, run);
        self.late.retain(key, made, self.now);
    }

    /// Compares with the first list what is noted of claims, and forgets what is noted of objects
    /// that have been gone for long.
    pub(super) fn compare_claims(&mut self, run: &mut Run) {
        for (key, made) in std::mem::take(&mut self.late.found) {
            self.compare(&key, &made, run);
        }
        let until = self.now.saturating_sub(ABSENT_SECONDS_MAX);
        let old = self.late.objects.iter().filter(|(key, entry)| {
            entry.claims.values().all(|since| *since < until) && self.created(key).is_none()
        });
        let old: Vec<ObjectKey> = old.map(|(key, _)| key.clone()).collect();
        for key in old {
            self.late.forget(&key);
        }
    }
}

/// A number of TCP, or of UDP.
fn number_of(port: &PortKey) -> (u16, bool) {
    (port.number, port.is_udp)
}

impl Held {
    /// Whether a claim had an effect that the version before made, or not. What is spoken at a port
    /// tells claims to it apart, and no unit needs what is for plain connections.
    fn has(&self, claimed: &Claimed, is_named: bool) -> bool {
        match claimed {
            Claimed::Host(host) => self.hosts.contains(host),
            Claimed::Port(number, speech) => {
                let number = (*number, *speech == PortSpeech::Udp);
                is_named && self.numbers.contains(&number)
            }
            Claimed::Entered(..) | Claimed::Stream(..) => false,
        }
    }
}
