//! One batch: which units run, in which order, and what becomes of their outputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{self as api, Object, ObjectKind};
use myriad_model::{Change, Delta, Key, Name, Policy, Resource, Route, Sealed, SealedArc, Value};

use super::drawn::{self, Drawn};
use super::facts::{self, Fact};
use super::interner::Interner;
use super::reader::{Open, Reader};
use super::revisit::Parting;
use super::rules;
use super::stamp::{MAIN_SLOT, Slot, Stamp};
use super::units::{Record, UnitId};
use super::viewpoint::{Answer, Classes, Question, Step, Viewpoint};
use super::{Engine, Work};
use crate::host;
use crate::ingress;
use crate::istio::mesh::{self, Spoken};
use crate::output::{Output, Unit};
use crate::{certificate, istio, trust, upstream};

/// The state of one batch while it runs.
#[derive(Default)]
pub struct Run {
    /// Units to look at, in the order in which they run: whether they must run, are looked at
    /// for some views, or only lost somebody who needed them.
    pub pending: BTreeMap<Unit, Pending>,
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
    pub opened: Open,
}

/// A unit to look at.
pub struct Pending {
    id: UnitId,
    /// Whether it runs for all views.
    pub must_run: bool,
    /// The views that may see other things of it, where it need not run for the others.
    pub slots: Stamp,
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
        self.pend(unit, id).must_run |= must_run;
    }

    /// Marks a unit of which a view may see other things than before.
    pub fn add_view(&mut self, unit: Unit, id: UnitId, slot: Slot) {
        self.pend(unit, id).slots.insert(slot);
    }

    fn pend(&mut self, unit: Unit, id: UnitId) -> &mut Pending {
        let slots = Stamp::EMPTY;
        let must_run = false;
        let pending = Pending {
            id,
            must_run,
            slots,
        };
        self.pending.entry(unit).or_insert(pending)
    }
}

impl Engine {
    /// Takes a changed object into the store and marks the units that read what changed.
    pub(super) fn ingest(&mut self, change: api::Change, run: &mut Run) {
        // It may be what changes.
        run.opened.forget(change.key().kind);
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
            self.root_reachable(unit, after, run);
        }
        self.settle_scopes(before, after, run);
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
        for slot in self.views.of_gateways().clone().iter() {
            let Some(standing) = self.views.get_mut(slot) else {
                continue;
            };
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
        let (id, is_new) = self.units.find_or_insert(&self.hasher, unit.clone());
        if is_new && let Some(namespace) = unit.held_in() {
            self.audience.hold(id, namespace);
        }
        run.add(unit, id, true);
    }

    /// The same for what an object is to sidecars; one that is gone goes with it.
    fn root_reachable(&mut self, unit: Unit, object: Option<&Object>, run: &mut Run) {
        let (id, _) = self.units.find_or_insert(&self.hasher, unit.clone());
        if let Some(object) = object {
            let namespace = object.key().namespace();
            let to = mesh::exported_to(object);
            self.audience.set_exported(id, namespace, to);
        }
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
            } else {
                self.revisit(&unit, pending.id, &pending.slots, run);
            }
        }
    }

    pub(super) fn mark(&self, id: UnitId, must_run: bool, run: &mut Run) {
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
            Unit::ConfigMap(id) => {
                self.is_config_map_named(id)
                    || self.objects.has(&self.hasher, ObjectKind::ConfigMap, id)
            }
            Unit::Beyond(key) => self.allowances.is_beyond(key),
            Unit::Elsewhere => !self.views.of_sidecars().is_empty(),
            Unit::Workload(workload) => !self.views.of_workload(workload).is_empty(),
            Unit::Certificate(secret) if self.is_default_certificate(secret) => true,
            Unit::Provider(_) => true,
            Unit::Telemetry if istio::telemetry::is_always(&self.settings) => true,
            _ => self.units.is_wanted(id),
        }
    }

    /// The views that a unit is translated for.
    pub(super) fn wanted(&self, unit: &Unit, id: UnitId) -> Stamp {
        match unit {
            Unit::Ingress(_) | Unit::ConfigMap(_) => self.views.of_ingress().clone(),
            Unit::Gateway(_) | Unit::VirtualService(_) | Unit::Beyond(_) => {
                self.views.of_gateways().clone()
            }
            Unit::Refused(key) if key.kind != ObjectKind::Telemetry => {
                self.views.of_gateways().clone()
            }
            Unit::Guard(key) | Unit::Refused(key) => match key.namespace() {
                root if root == self.settings.root_namespace() => self.views.all().clone(),
                // Gateways tell of those that are for nobody.
                own => self
                    .views
                    .of_gateways()
                    .union(&self.views.of_namespace(own)),
            },
            Unit::Provider(_) => self.views.all().clone(),
            Unit::Reachable(key) => self.audience.who_reaches(id, key.namespace(), &self.views),
            Unit::Elsewhere => self.views.of_sidecars().clone(),
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

    pub(super) fn translate(&mut self, unit: &Unit, id: UnitId, run: &mut Run) {
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
            run.work.views_asked += 1;
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
        let views: Vec<Stamp> = outputs.iter().map(|(stamp, _)| stamp.clone()).collect();
        let of_sidecars = self.views.of_sidecars();
        let is_kept = views.iter().any(|views| views.meets(of_sidecars));
        let parting = is_kept.then_some(Parting { classes, views });
        self.partings.set(id, parting);
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
            (&self.objects, &self.hasher, &self.units),
            (&self.settings, &self.views, &self.allowances),
            &view,
            self.now,
            &mut run.opened,
        );
        let mut output = match unit {
            Unit::Ingress(ingress) => ingress::translate_ingress(&mut reader, ingress),
            Unit::ConfigMap(map) => ingress::translate_config_map(&mut reader, map),
            Unit::Gateway(gateway) => istio::translate_gateway(&mut reader, gateway),
            Unit::VirtualService(service) => istio::translate_service(&mut reader, service),
            Unit::Guard(key) => istio::translate_guard(&mut reader, key),
            Unit::Refused(key) => istio::refuse(&mut reader, key),
            Unit::Beyond(key) => Output {
                findings: self.allowances.finding(key).into_iter().collect(),
                ..Output::default()
            },
            Unit::Host(host) => {
                let claims = self.units.claims(id, &view, self.views.is_single());
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
    pub(super) fn answer(&self, slot: Slot, question: &Question) -> Answer {
        let Some(standing) = self.views.get(slot) else {
            return Answer::Is(false);
        };
        let has_rules = |namespace: &str, pattern: &str| {
            let domain = &self.settings.cluster_domain;
            let stored = (&self.objects, &self.hasher);
            !rules::find(stored, domain, namespace, pattern, &mut 0).is_empty()
        };
        let is_needed = |needer, need| self.units.need(needer, need).has(slot);
        Viewpoint::answer(standing, question, has_rules, is_needed)
    }

    fn note_served(&self, unit: &Unit, id: UnitId, has_needs: bool, run: &mut Run) {
        // One that is beyond claims its hosts to close them; it was told of when it was left out.
        if let Unit::Ingress(ingress) = unit
            && !self.allowances.is_ingress_beyond(ingress)
        {
            if has_needs {
                run.served.push(ingress.clone());
            } else if self.units.get(id).is_some_and(Record::has_needs) {
                run.unserved.push(ingress.clone());
            }
        }
    }

    /// What is spoken in a view where connections are captured.
    fn spoken(&self, captured: UnitId, view: &Viewpoint<'_>) -> Vec<Spoken> {
        let mut spoken = Vec::new();
        for id in self.units.needers(captured) {
            let is_in = self.views.is_single()
                || view.is_needed(id, captured, &self.units.need(id, captured));
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
        self.partings.set(id, None);
        let unit = self.units.get(id).map(Record::unit);
        if let Some(Unit::Reachable(key)) = unit {
            self.audience.remove_exported(id, key.namespace());
        }
        if let Some(namespace) = unit.and_then(Unit::held_in) {
            self.audience.release(id, namespace);
        }
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

    /// Whether the settings name this ConfigMap, which then is missed where it is not there.
    fn is_config_map_named(&self, id: &str) -> bool {
        let named = self.settings.nginx_config_map.as_ref();
        named.is_some_and(|key| **key.id() == *id)
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
