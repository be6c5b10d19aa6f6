//! One batch: which units run, in which order, and what becomes of their outputs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use myriad_api::{self as api, Object, ObjectKey, ObjectKind};

use super::Engine;
use super::batch::{Pending, Run};
use super::drawn::{self, Drawn};
use super::late::Late;
use super::output::Output;
use super::ports::{PortClaim, PortKey};
use super::postponed::WOKEN_MAX;
use super::reader::{Moment, Reader, Surroundings};
use super::revisit::Parting;
use super::rules::{Exported, Scene, Touched};
use super::stamp::{MAIN_SLOT, Slot, Stamp};
use super::tally::TallyFact;
use super::turning::Drawing;
use super::unit::{PortClaims, Stays, Unit, UnitId, UnitKey, Viewers};
use super::units::Record;
use super::viewpoint::{Answer, Classes, Question, Viewpoint};
use crate::store::Stored;

impl Engine {
    /// Takes a changed object into the store and marks the units that read what changed.
    pub(super) fn ingest(&mut self, change: api::Change, run: &mut Run) {
        // It may be what changes.
        run.opened.forget(Moment::Change(change.key().kind));
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
        let Some(key) = after.or(before).map(Object::key) else {
            return;
        };
        self.note_named(before, after);
        let scene = Scene {
            hasher: &self.hasher,
            settings: &self.settings,
            views: &self.views,
        };
        let mut touched = Touched::default();
        (self.rules.touch)(&scene, key, (before, after), &mut touched);
        let [was, is] = [before, after].map(|it| it.map_or(0, self.rules.bounds.hosts));
        if was != is && self.tally.replace(key.namespace(), was, is) {
            let fact = self.hasher.fact(TallyFact(key.namespace()));
            touched.facts.push(fact);
        }
        self.note_chosen((before, after), &mut touched.facts);
        touched.facts.sort_unstable();
        touched.facts.dedup();
        let ports = touched.unit.as_ref().and_then(|unit| unit.kind().ports);
        if let Some(ports) = ports {
            self.claim_ports(ports, key, after, &mut touched.facts);
        }
        self.wake(&touched.facts, key.namespace(), run);
        if let Some((unit, exported)) = touched.reachable {
            self.root_reachable(unit, after.map(|_| exported), run);
        }
        if touched.is_scope {
            self.visit_scopes(key.namespace());
        }
        for unit in touched.unit.into_iter().chain(touched.beside) {
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
    }

    /// Marks the units that read facts about an object of a namespace. Of those of other namespaces
    /// the first are marked, and the rest is postponed; of its own those may wait whose kinds say
    /// so, once there is no time.
    pub(super) fn wake(&mut self, facts: &[u64], namespace: &str, run: &mut Run) {
        let mut ids = Vec::new();
        for fact in facts {
            for id in self.units.readers(*fact) {
                self.memories.touch(id, *fact);
                ids.push(id);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let may_wait = self.is_started && !run.is_first;
        for id in ids {
            let Some(record) = self.units.get(id) else {
                continue;
            };
            let own = self.owner_of(record);
            if own != namespace && run.woken >= WOKEN_MAX && may_wait {
                self.postponed.add(own, (record.unit().kind().rank, id));
                continue;
            }
            run.woken += usize::from(own != namespace);
            run.add_woken(record.unit().clone(), id);
        }
    }

    /// Notes the ports that an object claims now, and adds the facts about them that differ.
    pub(super) fn claim_ports(
        &mut self,
        claims: PortClaims,
        key: &ObjectKey,
        object: Option<&Object>,
        facts: &mut Vec<u64>,
    ) {
        for slot in self.views.of_gateways().clone().iter() {
            let Some(standing) = self.views.get_mut(slot) else {
                continue;
            };
            let mut claims = match object {
                Some(object) => claims(object, &standing.view, &self.settings),
                None => BTreeMap::new(),
            };
            self.late.age(&mut claims);
            let changes = standing.ports.state(key, claims);
            facts.extend(changes.facts(&self.hasher));
        }
    }

    /// Notes the ports that a unit claims in a view, in place of those that it did, and lets those
    /// run that read who has them.
    fn settle_ports(
        &mut self,
        (unit, id): (&Unit, UnitId),
        slots: &Stamp,
        claims: &BTreeMap<PortKey, PortClaim>,
        run: &mut Run,
    ) {
        let key = unit.object_key().filter(|_| unit.kind().claims_ports);
        let Some(key) = key else {
            return;
        };
        let aged = |late: &Late| {
            let mut claims = claims.clone();
            late.age(&mut claims);
            claims
        };
        if self.late.is_kept() {
            let known = aged(&self.late);
            for slot in slots.iter() {
                self.note_ports(&key, slot, &known, run);
            }
        }
        // Some of them may be late since.
        let claims = aged(&self.late);
        let mut facts = Vec::new();
        for slot in slots.iter() {
            if let Some(standing) = self.views.get_mut(slot) {
                let changes = standing.ports.state(&key, claims.clone());
                facts.extend(changes.facts(&self.hasher));
            }
        }
        self.wake_by(id, &facts, run);
    }

    /// Notes the single Gateways that a unit enters, in place of those that it did, and returns
    /// their views that it was not translated for because it did not.
    fn enter(&mut self, id: UnitId, wanted: &Stamp, output: &mut Output) -> Vec<Slot> {
        let gateways = std::mem::take(&mut output.entered);
        let known = self.entered.get(&id);
        if known.map_or(gateways.is_empty(), |known| *known == gateways) {
            return Vec::new();
        }
        let views = gateways
            .iter()
            .map(|gateway| self.views.of_gateway(gateway));
        let views = views.fold(Stamp::EMPTY, |all, own| all.union(&own));
        match gateways.is_empty() {
            true => self.entered.remove(&id),
            false => self.entered.insert(id, gateways),
        };
        views.minus(wanted).iter().collect()
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
        if is_new && let Some(namespace) = unit.held_in(&self.settings) {
            self.audience.hold(id, namespace);
        }
        run.add(unit, id, true);
    }

    /// The same for what an object is to sidecars, where it is there with the namespaces that it is
    /// exported to; one that is gone goes with it.
    fn root_reachable(&mut self, unit: Unit, exported: Option<Exported>, run: &mut Run) {
        let (id, _) = self.units.find_or_insert(&self.hasher, unit.clone());
        if let (Some(to), Some(namespace)) = (exported, unit.namespace()) {
            self.audience.set_exported(id, namespace, to);
        }
        run.add(unit, id, true);
    }

    /// Runs what is marked until nothing is. Units run in the order of [`Unit`]: what claims hosts
    /// marks them, hosts need certificates and upstreams, and nothing leads back. Once there is no
    /// time, or proxies have much to compile, units that may wait are postponed, where `may_wait`
    /// says so, and very many views follow one after the other.
    pub(super) fn drain(
        &mut self,
        run: &mut Run,
        has_time: &mut dyn FnMut() -> bool,
        may_wait: bool,
    ) {
        self.drain_to(u8::MAX, run, has_time, may_wait);
    }

    /// The same as far as units of a rank.
    pub(super) fn drain_to(
        &mut self,
        last: u8,
        run: &mut Run,
        has_time: &mut dyn FnMut() -> bool,
        may_wait: bool,
    ) {
        let mut is_weighed = false;
        run.is_late = false;
        while let Some((unit, pending)) = self.next_pending(last, run) {
            // Whoever needs upstreams has run, so all that are to run are known.
            if unit.is(self.rules.bounds.copying) && !std::mem::replace(&mut is_weighed, true) {
                run.pending.insert(unit, pending);
                self.weigh_upstreams(run);
                continue;
            }
            let kind = unit.kind();
            let is_patient = kind.may_wait || pending.is_woken && kind.waits_woken;
            let is_laden = run.is_laden();
            let waits = may_wait && is_patient && (is_laden || !pending.hurries);
            if waits || self.is_wide(&unit, pending.id) {
                run.is_late = run.is_late || is_laden || !has_time();
            }
            if waits && run.is_late {
                self.postpone(pending.id);
                continue;
            }
            if !self.is_wanted(&unit, pending.id) {
                self.leave(&unit, &pending, run);
            } else if pending.must_run {
                self.translate(&unit, pending.id, run);
                self.turn_all(pending.id, &pending.slots, run);
            } else {
                self.revisit(&unit, pending.id, &pending.slots, run);
            }
        }
    }

    /// The next unit to look at, as far as those of a rank. Those for whose findings there is room
    /// again go last.
    fn next_pending(&mut self, last: u8, run: &mut Run) -> Option<(Unit, Pending)> {
        if run.pending.is_empty() && last == u8::MAX {
            self.tell_again(run);
        }
        let first = run.pending.first_entry()?;
        (first.key().kind().rank <= last).then(|| first.remove_entry())
    }

    /// Lets a unit run later, in the turn of its namespace, or of who needs it where it has not run
    /// yet.
    pub(super) fn postpone(&mut self, id: UnitId) {
        let namespace_of = |id: UnitId| self.units.get(id).map(|it| self.owner_of(it));
        let own = namespace_of(id).filter(|namespace| !namespace.is_empty());
        let needer = || {
            self.units
                .needers(id)
                .first()
                .copied()
                .and_then(namespace_of)
        };
        let namespace = Box::<str>::from(own.or_else(needer).unwrap_or_default());
        let rank = self.units.get(id).map_or(0, |it| it.unit().kind().rank);
        self.postponed.add(&namespace, (rank, id));
    }

    /// The namespace that a unit is charged to; empty for none.
    pub(super) fn owner_of<'a>(&self, record: &'a Record) -> &'a str {
        let unit = record.unit();
        let copying = unit.name().filter(|_| unit.is(self.rules.bounds.copying));
        let placed = copying.and_then(|name| (self.rules.bounds.place)(name));
        placed.map_or_else(|| record.namespace(), |(namespace, _)| namespace)
    }

    pub(super) fn mark(&self, id: UnitId, must_run: bool, run: &mut Run) {
        if let Some(record) = self.units.get(id) {
            run.add(record.unit().clone(), id, must_run);
        }
    }

    /// Whether a unit stays.
    pub(super) fn is_wanted(&self, unit: &Unit, id: UnitId) -> bool {
        let is_there =
            |(kind, id): (ObjectKind, &Arc<str>)| self.objects.has(&self.hasher, kind, id);
        match unit.stays(&self.settings) {
            Stays::WhileNeeded => self.units.is_wanted(id),
            Stays::WithObject => unit.object().is_some_and(is_there),
            Stays::WhileBeyond => {
                let key = unit.object_key();
                key.is_some_and(|key| self.allowances.is_beyond(&key))
            }
            Stays::WithViewers => !self.wanted(unit, id).is_empty(),
            Stays::Always => true,
        }
    }

    /// The views that a unit is translated for.
    pub(super) fn wanted(&self, unit: &Unit, id: UnitId) -> Stamp {
        let views = &self.views;
        match unit.viewers(&self.settings) {
            Viewers::Needed => self.units.wanted(id),
            Viewers::NeededAndIngress => self.units.wanted(id).union(views.of_ingress()),
            Viewers::Ingress => views.of_ingress().clone(),
            Viewers::Gateways => views.of_gateways().clone(),
            Viewers::Sidecars => views.of_sidecars().clone(),
            Viewers::All => views.all().clone(),
            Viewers::Main => Stamp::MAIN,
            Viewers::Entered => {
                let entered = self.entered.get(&id).into_iter().flatten();
                let entered = entered.map(|gateway| views.of_gateway(gateway));
                entered.fold(views.of_gateways().clone(), |all, own| all.union(&own))
            }
            Viewers::Namespace => match unit.namespace().unwrap_or_default() {
                root if root == self.settings.root_namespace() => views.all().clone(),
                // Gateways tell of those that are for nobody.
                own => views.of_gateways().union(&views.of_namespace(own)),
            },
            Viewers::Reaching => {
                let namespace = unit.namespace().unwrap_or_default();
                self.audience.who_reaches(id, namespace, views)
            }
            Viewers::Workload => match unit.key() {
                UnitKey::Workload(workload) => views.of_workload(workload),
                _ => Stamp::EMPTY,
            },
        }
    }

    pub(super) fn translate(&mut self, unit: &Unit, id: UnitId, run: &mut Run) {
        self.weigh_joined(unit, id, run);
        run.opened.memory = self.memories.take(id);
        if self.views.is_single() {
            let (mut output, facts, _) = self.draw(unit, id, MAIN_SLOT, run);
            self.note_owning(id, output.owns_none);
            self.memories.keep(id, run.opened.memory.take());
            self.note_served(unit, id, !output.needs.is_empty(), run);
            let meaning = output.meaning.take();
            self.settle_meaning(unit, id, vec![(Stamp::MAIN, meaning)], run);
            self.settle_ports((unit, id), &Stamp::MAIN, &output.ports, run);
            drop(self.enter(id, &Stamp::MAIN, &mut output));
            self.settle(id, facts.into(), (output, None), run);
            return;
        }
        let mut classes = Classes::default();
        let mut outputs: Vec<(Stamp, Output)> = Vec::new();
        let mut facts = Vec::new();
        let wanted = self.wanted(unit, id);
        let mut slots: VecDeque<Slot> = wanted.iter().collect();
        while let Some(slot) = slots.pop_front() {
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
            let drawing = self.draw(unit, id, slot, run);
            let made = drawing.0.resources.len();
            if self.goes_in_turns((unit, id), &wanted, made, run) {
                self.memories.keep(id, run.opened.memory.take());
                self.begin_turning(id, &wanted, Some((slot, drawing)), run);
                return;
            }
            let (mut output, read, steps) = drawing;
            slots.extend(self.enter(id, &wanted, &mut output));
            classes.insert(steps, outputs.len());
            outputs.push((Stamp::one(slot), output));
            facts.extend(read);
        }
        self.memories.keep(id, run.opened.memory.take());
        if outputs.is_empty() && self.goes_in_turns((unit, id), &wanted, 0, run) {
            self.begin_turning(id, &wanted, None, run);
            return;
        }
        self.end_turning(id);
        facts.sort_unstable();
        facts.dedup();
        self.note_owning(id, outputs.iter().any(|(_, output)| output.owns_none));
        let meanings = outputs.iter_mut();
        let meanings = meanings.map(|(stamp, output)| (stamp.clone(), output.meaning.take()));
        self.settle_meaning(unit, id, meanings.collect(), run);
        for (stamp, output) in &mut outputs {
            let ports = std::mem::take(&mut output.ports);
            self.settle_ports((unit, id), stamp, &ports, run);
        }
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
    pub(super) fn draw(&self, unit: &Unit, id: UnitId, slot: Slot, run: &mut Run) -> Drawing {
        let Some(standing) = self.views.get(slot) else {
            return (Output::default(), Vec::new(), Vec::new());
        };
        let view = Viewpoint::new(slot, standing, self.views.is_single());
        let around = self.surroundings();
        let mut reader = Reader::new(self.stored(), around, &view, id, &mut run.opened);
        let known = self.rules.units.get(usize::from(unit.kind().rank));
        let mut output = known.map_or_else(Output::default, |(_, translate)| {
            translate(&mut reader, unit)
        });
        output.divide_routes();
        let (facts, visited) = reader.finish();
        run.work.units_translated += 1;
        run.work.objects_visited += visited.objects;
        run.work.entries_visited += visited.entries;
        run.work.texts_read += visited.texts;
        if self.views.is_single() {
            output.findings.append(&mut output.doubts);
        }
        let steps = view.into_steps();
        debug_assert!(
            !self.settings.sidecars
                || steps
                    .iter()
                    .all(|step| self.is_named(&standing.view, &step.0)),
            "a label is asked for that tells no two workloads apart: dialect::selectors"
        );
        (output, facts, steps)
    }

    /// The answer of a view to what a unit asked about another.
    pub(super) fn answer(&self, slot: Slot, question: &Question) -> Answer {
        let Some(standing) = self.views.get(slot) else {
            return Answer::Is(false);
        };
        let has_rules = |namespace: &str, pattern: &str| {
            (self.rules.has_rules)(self.stored(), &self.settings, namespace, pattern)
        };
        let declares = |namespace: &str, pattern: &str| {
            (self.rules.declares)(self.stored(), namespace, pattern)
        };
        let is_needed = |needer, need| self.units.need(needer, need).has(slot);
        let is_needed_by = |needer: &Unit, need| {
            let found = self.units.find(&self.hasher, needer);
            found.is_some_and(|needer| is_needed(needer, need))
        };
        let needs = (is_needed, is_needed_by);
        Viewpoint::answer(standing, question, (has_rules, declares), needs)
    }

    /// The state that units read beside objects.
    pub(super) fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            settings: &self.settings,
            shared: &self.shared,
            views: &self.views,
            units: &self.units,
            allowances: &self.allowances,
            tally: &self.tally,
            choosing: &self.choosing,
            late: &self.late,
            stakes: &self.stakes,
            owning_none: &self.owning_none,
            meanings: &self.meanings,
            now: self.now,
        }
    }

    /// All objects, for reading that nobody notes.
    pub(crate) fn stored(&self) -> Stored<'_> {
        Stored::new(&self.objects, &self.hasher)
    }

    fn note_served(&self, unit: &Unit, id: UnitId, has_needs: bool, run: &mut Run) {
        let Some(object) = unit.name().filter(|_| unit.kind().has_status) else {
            return;
        };
        // One that is beyond claims its hosts to close them; it was told of when it was left out.
        if self.is_beyond(unit) {
            return;
        }
        if has_needs {
            run.served.push(object.clone());
        } else if self.units.get(id).is_some_and(Record::has_needs) {
            run.unserved.push(object.clone());
        }
    }

    /// Notes whether the object of a unit owns none of the hosts that it claims, for those hosts.
    fn note_owning(&mut self, id: UnitId, owns_none: bool) {
        if owns_none {
            self.owning_none.insert(id);
        } else {
            self.owning_none.remove(&id);
        }
    }

    /// Takes a unit that nobody needs out, with all that it made.
    pub(super) fn vanish(&mut self, id: UnitId, run: &mut Run) {
        self.end_turning(id);
        if let Some(unit) = self.units.get(id).map(|record| record.unit().clone()) {
            let views = self.wanted(&unit, id);
            self.settle_ports((&unit, id), &views, &BTreeMap::new(), run);
            self.forget_joined(&unit, run);
        }
        self.entered.remove(&id);
        let drawn = (!self.views.is_single()).then(Drawn::default);
        self.settle(id, Box::default(), (Output::default(), drawn), run);
        self.partings.set(id, None);
        drop(self.memories.take(id));
        self.dismiss(id);
        if self.meanings.remove(&id).is_some() {
            self.mark_below(id, run);
        }
        self.owning_none.remove(&id);
        self.units.remove(&self.hasher, id);
    }
    /// Lets no view be led to a unit any more.
    pub(super) fn dismiss(&mut self, id: UnitId) {
        if let Some(unit) = self.units.get(id).map(Record::unit) {
            let namespace = unit.namespace().unwrap_or_default();
            match unit.viewers(&self.settings) {
                Viewers::Reaching => self.audience.remove_exported(id, namespace),
                Viewers::Namespace => self.audience.release(id, namespace),
                _ => {}
            }
        }
    }
}
