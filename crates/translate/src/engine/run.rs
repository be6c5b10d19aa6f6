//! One batch: which units run, in which order, and what becomes of their outputs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use myriad_api::{Change, Object, ObjectKind};
use myriad_model::{Delta, Key, Name, Policy, Resource, Route, Sealed, Value};

use super::facts::{self, Fact};
use super::reader::Reader;
use super::units::{Record, UnitId};
use super::{Engine, Work};
use crate::host::{self, Claims};
use crate::ingress::{self, Opened};
use crate::output::{Output, Unit};
use crate::{certificate, istio, trust, upstream};

/// The state of one batch while it runs.
#[derive(Default)]
pub struct Run {
    /// Units to look at, in the order in which they run: whether they must run, or only lost
    /// somebody who needed them.
    pending: BTreeMap<Unit, Pending>,
    /// What changed so far.
    pub delta: Delta,
    /// Ingresses that claim a host.
    pub served: Vec<Arc<str>>,
    /// Ingresses that are there and claim none any more.
    pub unserved: Vec<Arc<str>>,
    /// What it cost so far.
    pub work: Work,
    /// The Ingress that a unit read last.
    opened: Option<Arc<Opened>>,
}

struct Pending {
    id: UnitId,
    must_run: bool,
}

impl Run {
    fn add(&mut self, unit: Unit, id: UnitId, must_run: bool) {
        match self.pending.entry(unit) {
            Entry::Vacant(entry) => {
                entry.insert(Pending { id, must_run });
            }
            Entry::Occupied(mut entry) => entry.get_mut().must_run |= must_run,
        }
    }
}

impl Engine {
    /// Takes a changed object into the store and marks the units that read what changed.
    pub(super) fn ingest(&mut self, change: Change, run: &mut Run) {
        // It may be what changes.
        run.opened = None;
        let (old, new) = match change {
            Change::Put(object) => match self.objects.put(&self.hasher, &object) {
                Some(old) => (old, Some(object)),
                None => return,
            },
            Change::Remove(key) => match self.objects.remove(&self.hasher, &key) {
                Some(old) => (Some(old), None),
                None => return,
            },
        };
        let (before, after) = (old.as_ref(), new.as_ref());
        let mut touched = facts::touched(&self.hasher, before, after, &self.settings);
        self.claim_ports(before, after, &mut touched.facts);
        for fact in touched.facts {
            for id in self.units.readers(fact) {
                self.mark(id, true, run);
            }
        }
        let Some(unit) = touched.unit else {
            return;
        };
        if new.is_some() && unit.own_kind().is_some() {
            self.root(unit, run);
        } else if let Some(id) = self.units.find(&self.hasher, &unit) {
            run.add(unit, id, true);
            if touched.needers {
                for needer in self.units.needers(id) {
                    self.mark(needer, true, run);
                }
            }
        }
    }

    /// Notes the ports that a changed Gateway claims, and adds the facts about them that differ.
    fn claim_ports(&mut self, old: Option<&Object>, new: Option<&Object>, facts: &mut Vec<u64>) {
        let claims = |object: Option<&Object>| match object {
            Some(Object::IstioGateway(gateway)) => istio::claims(Some(gateway), &self.settings),
            _ => BTreeMap::new(),
        };
        for change in self.ports.replace(&claims(old), &claims(new)) {
            facts.push(self.hasher.hash(Fact::PortOwner(&change.key)));
            if change.is_speech {
                facts.push(self.hasher.hash(Fact::Speech(&change.key)));
            }
        }
    }

    /// Marks the units whose deadline has passed.
    pub(super) fn mark_due(&mut self, run: &mut Run) {
        for id in self.units.due(self.now) {
            self.mark(id, true, run);
        }
    }

    /// Marks a unit that is there although no other needs it, and makes it where it is new.
    pub(super) fn root(&mut self, unit: Unit, run: &mut Run) {
        let (id, _) = self.units.find_or_insert(&self.hasher, unit.clone());
        run.add(unit, id, true);
    }

    /// Runs what is marked until nothing is. Units run in the order of [`Unit`]: Ingresses mark
    /// hosts, hosts need certificates and upstreams, and nothing leads back.
    pub(super) fn drain(&mut self, run: &mut Run) {
        while let Some((unit, pending)) = run.pending.pop_first() {
            if !self.is_wanted(&unit, pending.id) {
                self.vanish(pending.id, run);
            } else if pending.must_run {
                self.translate(&unit, pending.id, run);
            }
        }
    }

    fn mark(&self, id: UnitId, must_run: bool, run: &mut Run) {
        if let Some(record) = self.units.get(id) {
            run.add(record.unit().clone(), id, must_run);
        }
    }

    fn is_wanted(&self, unit: &Unit, id: UnitId) -> bool {
        match unit {
            Unit::Ingress(object) | Unit::Gateway(object) | Unit::VirtualService(object) => {
                let kind = unit.own_kind();
                kind.is_some_and(|kind| self.objects.has(&self.hasher, kind, object))
            }
            Unit::Guard(key) | Unit::Refused(key) => {
                self.objects.has(&self.hasher, key.kind, key.id())
            }
            Unit::Certificate(secret) if self.is_default_certificate(secret) => true,
            Unit::Provider(_) => true,
            _ => self.units.is_needed(id),
        }
    }

    fn translate(&mut self, unit: &Unit, id: UnitId, run: &mut Run) {
        let mut reader = Reader::new(
            &self.objects,
            &self.hasher,
            (&self.settings, &self.ports),
            self.now,
            &mut run.opened,
        );
        let output = match unit {
            Unit::Ingress(ingress) => ingress::translate_ingress(&mut reader, ingress),
            Unit::Gateway(gateway) => istio::translate_gateway(&mut reader, gateway),
            Unit::VirtualService(service) => istio::translate_service(&mut reader, service),
            Unit::Guard(key) => istio::translate_guard(&mut reader, key),
            Unit::Refused(key) => istio::refuse(&mut reader, key),
            Unit::Host(host) => {
                let claims = self.claims(id);
                host::translate(&mut reader, &self.shared, host, &claims)
            }
            Unit::Certificate(secret) => {
                let is_default = self.is_default_certificate(secret);
                certificate::translate(&mut reader, secret, is_default)
            }
            Unit::Trust(secret) => trust::translate(&mut reader, secret),
            Unit::Provider(name) => istio::provider::translate(&mut reader, name),
            Unit::Upstream(name) => upstream::translate(&mut reader, name),
            Unit::Listener(port) => istio::translate_port(&mut reader, port),
        };
        if let Unit::Ingress(ingress) = unit {
            let was_served = self.units.get(id).is_some_and(Record::has_needs);
            if !output.needs.is_empty() {
                run.served.push(ingress.clone());
            } else if was_served {
                run.unserved.push(ingress.clone());
            }
        }
        let (facts, visited) = reader.finish();
        run.work.units_translated += 1;
        run.work.objects_visited += visited;
        self.settle(id, facts, output, run);
    }

    /// Who claims a host.
    fn claims(&self, host: UnitId) -> Claims {
        let mut claims = Claims::default();
        for id in self.units.needers(host) {
            match self.units.get(id).map(Record::unit) {
                Some(Unit::Ingress(id)) => claims.ingresses.push(id.clone()),
                Some(Unit::Gateway(id)) => claims.gateways.push(id.clone()),
                Some(Unit::VirtualService(id)) => claims.services.push(id.clone()),
                Some(_) | None => {}
            }
        }
        claims
    }

    /// Takes a unit that nobody needs out, with all that it made.
    fn vanish(&mut self, id: UnitId, run: &mut Run) {
        self.settle(id, Box::default(), Output::default(), run);
        self.units.remove(&self.hasher, id);
    }

    fn settle(&mut self, id: UnitId, facts: Box<[u64]>, output: Output, run: &mut Run) {
        self.units.set_facts(id, facts);
        self.units.set_deadline(id, output.deadline);
        self.ledger.replace(id, output.findings);
        self.settle_needs(id, output.needs, run);
        self.settle_resources(id, output.resources, run);
    }

    fn settle_needs(&mut self, id: UnitId, needs: Vec<Unit>, run: &mut Run) {
        let mut ids = Vec::with_capacity(needs.len());
        let mut new = Vec::new();
        for need in needs {
            let (need_id, is_new) = self.units.find_or_insert(&self.hasher, need);
            ids.push(need_id);
            new.extend(is_new.then_some(need_id));
        }
        ids.sort_unstable();
        ids.dedup();
        let change = self.units.set_needs(id, ids.into());
        let record = self.units.get(id);
        let own_kind = record.and_then(|record| record.unit().own_kind());
        if let Some(kind) = own_kind {
            for host in change.gained.iter().chain(&change.lost) {
                self.mark(*host, true, run);
            }
            // A host reads the Ingresses that claim it whole, so it runs whenever one of them
            // did. Of Gateways and VirtualServices it reads facts.
            if kind == ObjectKind::Ingress {
                for host in &change.kept {
                    self.mark(*host, true, run);
                }
            }
            return;
        }
        for lost in change.lost {
            self.mark(lost, false, run);
        }
        // What a route refers to goes first, so that no commit refers to what a later one has.
        // In the order of the units, since numbers depend on history.
        let gained = change.gained.into_iter();
        let mut gained: Vec<(Unit, UnitId)> = gained
            .filter_map(|id| Some((self.units.get(id)?.unit().clone(), id)))
            .collect();
        gained.sort_unstable();
        for (unit, gained) in gained {
            let pending = run.pending.remove(&unit);
            if new.contains(&gained) || pending.is_some_and(|pending| pending.must_run) {
                self.translate(&unit, gained, run);
            }
        }
    }

    fn settle_resources(
        &mut self,
        id: UnitId,
        mut resources: Vec<(Name, Resource)>,
        run: &mut Run,
    ) {
        let Some(record) = self.units.get(id) else {
            return;
        };
        let former = record.outputs();
        reuse_names(record.routes(), &mut resources);
        let routes = resources
            .iter()
            .filter(|(_, resource)| matches!(resource.value, Value::Route(_)))
            .map(|(name, _)| name.clone())
            .collect();
        let rest = resources
            .iter()
            .filter(|(name, resource)| match &resource.value {
                Value::Domain(domain) => name.as_str() != domain.host.as_str(),
                Value::Passage(_) => true,
                _ => false,
            })
            .map(|(name, resource)| Key::new(resource.value.kind(), name.clone()))
            .collect();
        for (_, resource) in &mut resources {
            if let Value::Route(route) = &mut resource.value {
                route.policy = self.policies.share(route.policy.clone());
            }
        }
        let changes = self.writer.replace(&former, resources, &mut run.delta);
        run.work.resources_changed += changes.len() as u64;
        for change in changes {
            if let Some(policy) = policy_of(change.new.as_deref()) {
                self.policies.retain(policy);
            }
            if let Some(policy) = policy_of(change.old.as_deref()) {
                self.policies.release(policy);
            }
        }
        self.units.set_outputs(id, routes, rest);
    }

    fn is_default_certificate(&self, secret: &str) -> bool {
        self.shared
            .default_certificate
            .as_ref()
            .is_some_and(|name| name.as_str() == secret)
    }
}

/// An unchanged route keeps the one allocation of its name that the snapshot shares.
fn reuse_names(former: &[Name], resources: &mut [(Name, Resource)]) {
    if former.is_empty() {
        return;
    }
    let mut sorted: Vec<&Name> = former.iter().collect();
    sorted.sort_unstable();
    for (name, resource) in resources {
        if matches!(resource.value, Value::Route(_))
            && let Ok(at) = sorted.binary_search(&&*name)
        {
            *name = sorted[at].clone();
        }
    }
}

fn policy_of(sealed: Option<&Sealed>) -> Option<&Arc<Policy>> {
    let route: &Route = sealed?.route()?;
    Some(&route.policy)
}
