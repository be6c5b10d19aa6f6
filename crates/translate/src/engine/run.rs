//! One batch: which units run, in which order, and what becomes of their outputs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use myriad_api::{self as api, Object, ObjectKind};
use myriad_model::{Change, Delta, Key, Name, Policy, Resource, Route, Sealed, SealedArc, Value};

use super::drawn::{self, Drawn};
use super::facts::{self, Fact};
use super::interner::Interner;
use super::reader::{self, Open, Reader};
use super::stamp::{MAIN_SLOT, Slot, Stamp};
use super::units::{Record, UnitId};
use super::viewpoint::{Answer, Classes, Question, Step, Viewpoint};
use super::{Engine, Work};
use crate::host::{self, Claims};
use crate::ingress;
use crate::istio::mesh::{self, Spoken};
use crate::output::{Output, Unit};
use crate::{certificate, istio, trust, upstream};

/// The state of one batch while it runs.
#[derive(Default)]
pub struct Run {
    /// Units to look at, in the order in which they run: whether they must run, or only lost
    /// somebody who needed them.
    pending: BTreeMap<Unit, Pending>,
    /// What changed so far in the main view.
    pub delta: Delta,
    /// The same for the others.
    pub others: BTreeMap<Slot, Delta>,
    /// Ingresses that claim a host.
    pub served: Vec<Arc<str>>,
    /// Ingresses that are there and claim none any more.
    pub unserved: Vec<Arc<str>>,
    /// What it cost so far.
    pub work: Work,
    /// What units read last.
    opened: Open,
}

struct Pending {
    id: UnitId,
    must_run: bool,
}

impl Run {
    /// What changed so far in a view.
    pub fn delta_of(&mut self, slot: Slot) -> &mut Delta {
        match slot {
            MAIN_SLOT => &mut self.delta,
            _ => self.others.entry(slot).or_default(),
        }
    }

    /// Marks a unit, which must run or only lost somebody who needed it.
    pub fn add(&mut self, unit: Unit, id: UnitId, must_run: bool) {
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
    pub(super) fn ingest(&mut self, change: api::Change, run: &mut Run) {
        // It may be what changes.
        run.opened = Open::default();
        let (old, new) = match change {
            api::Change::Put(object) => match self.objects.put(&self.hasher, &object) {
                Some(old) => (old, Some(object)),
                None => return,
            },
            api::Change::Remove(key) => match self.objects.remove(&self.hasher, &key) {
                Some(old) => (Some(old), None),
                None => return,
            },
        };
        let (before, after) = (old.as_ref(), new.as_ref());
        let mut touched =
            facts::touched(&self.hasher, before, after, (&self.settings, &self.views));
        self.claim_ports(before, after, &mut touched.facts);
        for fact in touched.facts {
            for id in self.units.readers(fact) {
                self.mark(id, true, run);
            }
        }
        if let Some(unit) = touched.reachable {
            self.root(unit, run);
        }
        self.settle_scopes(before, after);
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
        let is_gateway = |object: Option<&Object>| matches!(object, Some(Object::IstioGateway(_)));
        if !is_gateway(old) && !is_gateway(new) {
            return;
        }
        for standing in self.views.iter_mut() {
            let view = &standing.view;
            let claims = |object: Option<&Object>| match object {
                Some(Object::IstioGateway(gateway)) => {
                    istio::claims(Some(gateway), view, &self.settings)
                }
                _ => BTreeMap::new(),
            };
            for change in standing.ports.replace(&claims(old), &claims(new)) {
                facts.push(self.hasher.hash(Fact::PortOwner(&change.key)));
                if change.is_speech {
                    facts.push(self.hasher.hash(Fact::Speech(&change.key)));
                }
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
            Unit::Guard(key) | Unit::Refused(key) | Unit::Reachable(key) => {
                self.objects.has(&self.hasher, key.kind, key.id())
            }
            Unit::Elsewhere => !self.views.of_sidecars().is_empty(),
            Unit::Workload(workload) => !self.views.of_workload(workload).is_empty(),
            Unit::Certificate(secret) if self.is_default_certificate(secret) => true,
            Unit::Provider(_) => true,
            Unit::Telemetry if istio::telemetry::is_always(&self.settings) => true,
            _ => !self.units.wanted(id).is_empty(),
        }
    }

    /// The views that a unit is translated for.
    fn wanted(&self, unit: &Unit, id: UnitId) -> Stamp {
        match unit {
            Unit::Ingress(_) => self.views.of_ingress().clone(),
            Unit::Gateway(_) | Unit::VirtualService(_) => self.views.of_gateways().clone(),
            Unit::Refused(key) if key.kind != ObjectKind::Telemetry => {
                self.views.of_gateways().clone()
            }
            Unit::Guard(_) | Unit::Refused(_) | Unit::Provider(_) => self.views.all().clone(),
            Unit::Reachable(_) | Unit::Elsewhere => self.views.of_sidecars().clone(),
            Unit::Workload(workload) => self.views.of_workload(workload),
            Unit::Certificate(secret) if self.is_default_certificate(secret) => {
                self.units.wanted(id).union(self.views.of_ingress())
            }
            Unit::Telemetry if istio::telemetry::is_always(&self.settings) => {
                self.views.all().clone()
            }
            _ => self.units.wanted(id),
        }
    }

    fn translate(&mut self, unit: &Unit, id: UnitId, run: &mut Run) {
        if self.views.is_single() {
            let (output, facts, _) = self.draw(unit, id, MAIN_SLOT, run);
            self.note_served(unit, id, !output.needs.is_empty(), run);
            self.settle(id, facts.into(), (output, None), run);
            return;
        }
        let mut classes = Classes::default();
        let mut outputs: Vec<(Stamp, Output)> = Vec::new();
        let mut facts = Vec::new();
        for slot in self.wanted(unit, id).iter() {
            // One that is gone may still be wanted for, until its needers have run.
            if self.views.get(slot).is_none() {
                continue;
            }
            let class = classes.find(|question| self.answer(slot, question));
            if let Some((stamp, _)) = class.and_then(|class| outputs.get_mut(class)) {
                stamp.insert(slot);
                continue;
            }
            let (output, read, steps) = self.draw(unit, id, slot, run);
            classes.insert(steps, outputs.len());
            outputs.push((Stamp::one(slot), output));
            facts.extend(read);
        }
        facts.sort_unstable();
        facts.dedup();
        let mut drawn = drawn::put_together(outputs);
        let output = std::mem::take(&mut drawn.output);
        self.note_served(unit, id, !output.needs.is_empty(), run);
        self.settle(id, facts.into(), (output, Some(drawn)), run);
    }

    /// Translates a unit for one view; returns the facts that were read, sorted, and what was
    /// asked about the view.
    fn draw(
        &self,
        unit: &Unit,
        id: UnitId,
        slot: Slot,
        run: &mut Run,
    ) -> (Output, Vec<u64>, Vec<Step>) {
        let Some(standing) = self.views.get(slot) else {
            return (Output::default(), Vec::new(), Vec::new());
        };
        let view = Viewpoint::new(slot, standing, self.views.is_single());
        let mut reader = Reader::new(
            (&self.objects, &self.hasher),
            (&self.settings, &self.views),
            &view,
            self.now,
            &mut run.opened,
        );
        let mut output = match unit {
            Unit::Ingress(ingress) => ingress::translate_ingress(&mut reader, ingress),
            Unit::Gateway(gateway) => istio::translate_gateway(&mut reader, gateway),
            Unit::VirtualService(service) => istio::translate_service(&mut reader, service),
            Unit::Guard(key) => istio::translate_guard(&mut reader, key),
            Unit::Refused(key) => istio::refuse(&mut reader, key),
            Unit::Host(host) => {
                let claims = self.claims(id, &view);
                host::translate(&mut reader, &self.shared, host, &claims)
            }
            Unit::Certificate(secret) => {
                let is_default = self.is_default_certificate(secret);
                certificate::translate(&mut reader, secret, is_default)
            }
            Unit::Trust(secret) => trust::translate(&mut reader, secret),
            Unit::Telemetry => istio::telemetry::translate(&mut reader),
            Unit::Provider(name) => istio::provider::translate(&mut reader, name),
            Unit::Upstream(name) => upstream::translate(&mut reader, name),
            Unit::Listener(port) => istio::translate_port(&mut reader, port),
            Unit::Reachable(key) => mesh::translate_reachable(&mut reader, key),
            Unit::Workload(_) => mesh::translate_workload(&mut reader),
            Unit::Elsewhere => mesh::translate_elsewhere(&mut reader),
            Unit::Spoken(key, _) => mesh::claim(key),
            Unit::Captured(key) => {
                let spoken = self.spoken(id, &view);
                mesh::translate_captured(&mut reader, key, &spoken)
            }
        };
        let (facts, visited) = reader.finish();
        run.work.units_translated += 1;
        run.work.objects_visited += visited;
        if self.views.is_single() {
            output.findings.append(&mut output.doubts);
        }
        (output, facts, view.into_steps())
    }

    /// What a view answers to what a unit asked about another.
    fn answer(&self, slot: Slot, question: &Question) -> Answer {
        let Some(standing) = self.views.get(slot) else {
            return Answer::Is(false);
        };
        Viewpoint::answer(slot, standing, question, |namespace, pattern| {
            let domain = &self.settings.cluster_domain;
            let stored = (&self.objects, &self.hasher);
            !reader::rules_of(stored, domain, namespace, pattern, &mut 0).is_empty()
        })
    }

    fn note_served(&self, unit: &Unit, id: UnitId, has_needs: bool, run: &mut Run) {
        if let Unit::Ingress(ingress) = unit {
            if has_needs {
                run.served.push(ingress.clone());
            } else if self.units.get(id).is_some_and(Record::has_needs) {
                run.unserved.push(ingress.clone());
            }
        }
    }

    /// Who claims a host in a view.
    fn claims(&self, host: UnitId, view: &Viewpoint<'_>) -> Claims {
        let mut claims = Claims::default();
        for id in self.units.needers(host) {
            if !self.views.is_single() && !view.is_in(&self.units.need(id, host)) {
                continue;
            }
            match self.units.get(id).map(Record::unit) {
                Some(Unit::Ingress(id)) => claims.ingresses.push(id.clone()),
                Some(Unit::Gateway(id)) => claims.gateways.push(id.clone()),
                Some(Unit::VirtualService(id)) => claims.services.push(id.clone()),
                Some(_) | None => {}
            }
        }
        claims
    }

    /// What is spoken in a view where connections are captured.
    fn spoken(&self, captured: UnitId, view: &Viewpoint<'_>) -> Vec<Spoken> {
        let mut spoken = Vec::new();
        for id in self.units.needers(captured) {
            let is_in = self.views.is_single() || view.is_in(&self.units.need(id, captured));
            if let Some(Unit::Spoken(_, one)) = self.units.get(id).map(Record::unit)
                && is_in
            {
                spoken.push(*one);
            }
        }
        spoken
    }

    /// Takes a unit that nobody needs out, with all that it made.
    fn vanish(&mut self, id: UnitId, run: &mut Run) {
        let drawn = (!self.views.is_single()).then(Drawn::default);
        self.settle(id, Box::default(), (Output::default(), drawn), run);
        self.units.remove(&self.hasher, id);
    }

    /// Keeps what a unit gave. Where there are several views, it is said which part is for which.
    fn settle(
        &mut self,
        id: UnitId,
        facts: Box<[u64]>,
        (output, drawn): (Output, Option<Drawn>),
        run: &mut Run,
    ) {
        self.units.set_facts(id, facts);
        self.units.set_deadline(id, output.deadline);
        self.ledger.replace(id, output.findings);
        let (needs, resources) = match drawn {
            Some(Drawn {
                views,
                needs,
                resources,
                ..
            }) => (Some(needs), Some((views, resources))),
            None => (None, None),
        };
        self.settle_needs(id, output.needs, needs, run);
        self.settle_resources(id, output.resources, resources, run);
    }

    fn settle_needs(
        &mut self,
        id: UnitId,
        needs: Vec<Unit>,
        stamps: Option<Vec<Stamp>>,
        run: &mut Run,
    ) {
        let mut new = Vec::new();
        let mut ids = Vec::with_capacity(needs.len());
        for need in needs {
            let (need_id, is_new) = self.units.find_or_insert(&self.hasher, need);
            ids.push(need_id);
            new.extend(is_new.then_some(need_id));
        }
        let stamps = stamps.map(|stamps| {
            // None stands there twice, so both are sorted alike.
            let mut both: Vec<(UnitId, Stamp)> = ids.iter().copied().zip(stamps).collect();
            both.sort_unstable();
            both.into_iter().map(|(_, stamp)| stamp).collect()
        });
        ids.sort_unstable();
        ids.dedup();
        let change = self.units.set_needs(id, ids.into(), stamps);
        let record = self.units.get(id);
        let claimant = record.map(Record::unit).filter(|unit| unit.is_claim());
        if let Some(kind) = claimant.map(Unit::own_kind) {
            let restamped = change.restamped.iter().map(|it| &it.id);
            for host in change.gained.iter().chain(&change.lost).chain(restamped) {
                self.mark(*host, true, run);
            }
            // A host reads the Ingresses that claim it whole, so it runs whenever one of them
            // did. Of Gateways and VirtualServices it reads facts.
            if kind == Some(ObjectKind::Ingress) {
                for host in &change.kept {
                    self.mark(*host, true, run);
                }
            }
            return;
        }
        for lost in change.lost {
            self.mark(lost, false, run);
        }
        let mut gained = change.gained;
        for restamped in change.restamped {
            if restamped.has_shrunk {
                self.mark(restamped.id, true, run);
            }
            if restamped.has_grown {
                gained.push(restamped.id);
                new.push(restamped.id);
            }
        }
        gained.sort_unstable();
        gained.dedup();
        // What a route refers to goes first, so that no commit refers to what a later one has.
        // In the order of the units, since numbers depend on history.
        let gained = gained.into_iter();
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
        stamps: Option<(Stamp, Vec<Stamp>)>,
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
        let is_mesh = record.unit().is_mesh();
        let rest = resources
            .iter()
            .filter(|(name, resource)| match &resource.value {
                Value::Domain(domain) => name.as_str() != domain.host.as_str(),
                Value::Passage(_) => true,
                Value::Route(_) => false,
                _ => is_mesh,
            })
            .map(|(name, resource)| Key::new(resource.value.kind(), name.clone()))
            .collect();
        let mut before: Option<&Route> = None;
        for (_, resource) in &mut resources {
            if let Value::Route(route) = &mut resource.value {
                route.policy = self.policies.share(route.policy.clone());
                if let Some(before) = before {
                    route.share_with(before);
                }
                before = Some(route);
            }
        }
        match stamps {
            None => {
                let changes = self.writer.replace(&former, resources, &mut run.delta);
                run.work.resources_changed += changes.len() as u64;
                count_policies(&mut self.policies, changes);
            }
            Some(stamps) => self.settle_views(id, &former, resources, stamps, run),
        }
        self.units.set_outputs(id, routes, rest);
    }

    /// Takes the resources of a unit into each view that sees them, and out of those that do not
    /// any more. Each is encoded once.
    fn settle_views(
        &mut self,
        id: UnitId,
        former: &[Key],
        resources: Vec<(Name, Resource)>,
        (views, stamps): (Stamp, Vec<Stamp>),
        run: &mut Run,
    ) {
        let both = resources.into_iter().zip(&stamps);
        let sealed: Vec<SealedArc> = both
            .map(|((name, resource), stamp)| self.writer.seal(name, resource, stamp.iter()))
            .collect();
        for slot in self.units.seen(id).union(&views).iter() {
            if self.views.get(slot).is_none() {
                continue;
            }
            let seen = sealed.iter().zip(&stamps);
            let seen: Vec<SealedArc> = seen
                .filter(|(_, stamp)| stamp.has(slot))
                .map(|(sealed, _)| sealed.clone())
                .collect();
            let delta = run.delta_of(slot);
            let changes = self.writer.replace_at(slot, former, &seen, delta);
            count_policies(&mut self.policies, changes);
            run.work.resources_changed += changes.len() as u64;
        }
        self.units.set_seen(id, views);
    }

    pub(super) fn is_default_certificate(&self, secret: &str) -> bool {
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

/// Counts who uses which policy.
pub fn count_policies(policies: &mut Interner<Arc<Policy>>, changes: &[Change]) {
    for change in changes {
        if let Some(policy) = policy_of(change.new.as_deref()) {
            policies.retain(policy);
        }
        if let Some(policy) = policy_of(change.old.as_deref()) {
            policies.release(policy);
        }
    }
}

fn policy_of(sealed: Option<&Sealed>) -> Option<&Arc<Policy>> {
    let route: &Route = sealed?.route()?;
    Some(&route.policy)
}
