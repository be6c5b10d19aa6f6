//! The fate of the output of a unit: its facts, its findings, what it needs, and its resources in
//! each view that sees them.

use std::collections::BTreeSet;

use myriad_model::{
    Balancer, Endpoints, HashTable, Key, Kind, Name, Resource, Route, Routes, SealedArc, Value,
};

use super::Engine;
use super::batch::Run;
use super::drawn::Drawn;
use super::meanings::Meanings;
use super::output::{Meaning, Output};
use super::sealing::has_parts;
use super::stakes::Stake;
use super::stamp::{MAIN_SLOT, Stamp};
use super::unit::{Unit, UnitId};
use crate::regex;

impl Engine {
    /// Keeps what a wildcard means to the hosts below it in each view, and lets those run to which
    /// it means something else than before.
    pub(super) fn settle_meaning(
        &mut self,
        unit: &Unit,
        id: UnitId,
        meanings: Vec<(Stamp, Option<Meaning>)>,
        run: &mut Run,
    ) {
        if unit.host().and_then(self.rules.suffix_of).is_none() {
            return;
        }
        let now = Meanings::new(&self.hasher, meanings);
        let hash = now.as_ref().map(|now| now.hash);
        let before = match now {
            Some(now) => self.meanings.insert(id, now),
            None => self.meanings.remove(&id),
        };
        if before.map(|before| before.hash) != hash {
            self.mark_below(id, run);
        }
    }

    /// Keeps what a unit gave. Where there are several views, it is said which part is for which.
    pub(super) fn settle(
        &mut self,
        id: UnitId,
        facts: Box<[u64]>,
        (mut output, drawn): (Output, Option<Drawn>),
        run: &mut Run,
    ) {
        self.units.set_facts(id, facts);
        self.units.set_deadline(id, output.deadline);
        if let Some(drawn) = &drawn {
            self.note_elsewhere(id, (&output.needs, &drawn.needs), run);
        }
        self.note_let_in(id, (&output.needs, &output.let_in), run);
        self.note_woken(id, &output, run);
        self.state(id, &mut output);
        self.settle_stakes(id, std::mem::take(&mut output.stakes), run);
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

    /// Keeps the claims of a unit to seats, in place of those that it had, and lets those run that
    /// read what is other then.
    fn settle_stakes(&mut self, id: UnitId, stakes: Vec<Stake>, run: &mut Run) {
        let facts = self.stakes.state(&self.hasher, id, stakes);
        self.wake_by(id, &facts, run);
    }

    /// Lets those run that read facts which a unit has changed. What is of a host that has another
    /// owner then comes with it, as far as it is woken at once: between them nobody would answer.
    pub(super) fn wake_by(&mut self, id: UnitId, facts: &[u64], run: &mut Run) {
        if facts.is_empty() {
            return;
        }
        let record = self.units.get(id);
        let namespace: Box<str> = record.map(|it| it.namespace().into()).unwrap_or_default();
        let hurries = record.is_some_and(|it| it.unit().host().is_some());
        let before = std::mem::replace(&mut run.hurries, hurries);
        self.wake(facts, &namespace, run);
        run.hurries = before;
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
        let (routes, rest) = kept_names(record.unit(), &resources);
        let (slots, steps) = (table_slots(&resources), regex_steps(&resources));
        let before = run.work.resources_changed;
        self.share_parts(&mut resources);
        match stamps {
            None if has_parts(&resources) => {
                let stamps = vec![Stamp::MAIN; resources.len()];
                let sealed = self.seal(id, resources, &stamps);
                let delta = &mut run.delta;
                let changes = self.writer.replace_at(MAIN_SLOT, &former, &sealed, delta);
                run.work.resources_changed += changes.len() as u64;
                self.parts.count(changes);
            }
            None => {
                self.sealed_parts.forget(id);
                let changes = self.writer.replace(&former, resources, &mut run.delta);
                run.work.resources_changed += changes.len() as u64;
                self.parts.count(changes);
            }
            Some(stamps) => self.settle_views(id, &former, resources, stamps, run),
        }
        if run.work.resources_changed > before {
            run.work.table_slots += slots;
            run.work.regex_steps += steps;
        }
        self.units.set_outputs(id, routes.into(), rest.into());
    }

    /// Lets the routes of a unit hold what is equal once, and their parts those of all units.
    pub(super) fn share_parts(&mut self, resources: &mut [(Name, Resource)]) {
        let mut route_before: Option<&Route> = None;
        let mut block_before: Option<&Routes> = None;
        for (_, resource) in resources {
            self.parts.share(&mut resource.value);
            match &mut resource.value {
                Value::Route(route) => {
                    if let Some(before) = route_before {
                        route.share_with(before);
                    }
                    route_before = Some(route);
                }
                Value::Routes(block) => {
                    if let Some(before) = block_before {
                        block.share_with(before);
                    }
                    block_before = Some(block);
                }
                _ => {}
            }
        }
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
        let sealed = self.seal(id, resources, &stamps);
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
            self.parts.count(changes);
            run.work.resources_changed += changes.len() as u64;
        }
        self.units.set_seen(id, views);
    }
}

/// The slots of the hash table that a proxy makes of an upstream among resources.
fn table_slots(resources: &[(Name, Resource)]) -> u64 {
    let slots = resources.iter().filter_map(|(_, resource)| {
        let Value::Upstream(upstream) = &resource.value else {
            return None;
        };
        match &upstream.options.as_deref()?.balancer {
            Balancer::Hash(hash) => match hash.table {
                HashTable::Ring(slots) | HashTable::Maglev(slots) => Some(u64::from(slots)),
            },
            _ => None,
        }
    });
    // What differs between views is made once by each proxy.
    slots.max().unwrap_or(0)
}

/// The steps that a proxy takes at most to compile the different regexes of routes among resources.
fn regex_steps(resources: &[(Name, Resource)]) -> u64 {
    let routes = resources.iter().flat_map(|(_, it)| it.value.routes());
    let regexes: BTreeSet<&str> = routes.flat_map(|route| route.regexes()).collect();
    let steps = regexes.into_iter().map(regex::compile_steps);
    steps.fold(0, u64::saturating_add)
}

/// An unchanged route keeps the one allocation of its name that the snapshot shares.
pub(super) fn reuse_names(former: &[Name], resources: &mut [(Name, Resource)]) {
    if former.is_empty() {
        return;
    }
    let mut sorted: Vec<&Name> = former.iter().collect();
    sorted.sort_unstable();
    for (name, resource) in resources {
        if resource.value.kind() == Kind::Route
            && let Ok(at) = sorted.binary_search(&&*name)
        {
            *name = sorted[at].clone();
        }
    }
}

/// The names of the resources of a unit that are stored: those of its routes, and the keys of
/// others that do not follow from its own name.
pub(super) fn kept_names(unit: &Unit, resources: &[(Name, Resource)]) -> (Vec<Name>, Vec<Key>) {
    let is_route = |resource: &Resource| resource.value.kind() == Kind::Route;
    let routes = resources.iter().filter(|(_, it)| is_route(it));
    let routes = routes.map(|(name, _)| name.clone()).collect();
    let stores_all = unit.kind().stores_all;
    let rest = resources
        .iter()
        .filter(|(name, resource)| match &resource.value {
            Value::Domain(domain) => name.as_str() != domain.host.as_str(),
            Value::StreamRoute(_) => true,
            Value::Endpoints(_) if Endpoints::upstream_of(name) != name.as_str() => true,
            Value::Route(_) | Value::Routes(_) => false,
            _ => stores_all,
        })
        .map(|(name, resource)| Key::new(resource.value.kind(), name.clone()))
        .collect();
    (routes, rest)
}
