//! Units that change in very many views, one after the other.
//!
//! A Service of a thousand ports is as many routes, upstreams and listeners in each view that may
//! reach it, and there may be thousands of views. So what it is now is made for one view, and the
//! others follow in turns, between the changes of others. Until it is its turn a view has what the
//! unit made before, with all that it leads to: whatever a unit needs is needed for single views.

use std::collections::{BTreeMap, BTreeSet};

use myriad_api::Finding;
use myriad_model::{Key, Name, Resource};

use super::Engine;
use super::batch::{Pending, Run};
use super::drawn;
use super::output::Output;
use super::revisit::Parting;
use super::settling::{kept_names, reuse_names};
use super::stamp::{Slot, Stamp};
use super::unit::{Unit, UnitId};
use super::units::Record;
use super::viewpoint::Step;

/// The views from which on they follow one after the other where a batch has no time.
const LATE_VIEWS_MIN: usize = 256;

/// The most classes of views that are looked at for a resource which is there already.
const LIKES_MAX: usize = 4;

/// The most states before of one unit that views have resources of. Each turn goes through the
/// names of all of them, and there could be as many as views.
const FORMERS_MAX: usize = 16;

/// A run of a unit for one view: its output, the facts that it read, sorted, and what it asked.
pub(super) type Drawing = (Output, Vec<u64>, Vec<Step>);

/// The units that views follow one after the other; no more than there are units.
#[derive(Default)]
pub(super) struct Turnings {
    units: BTreeMap<UnitId, Turning>,
    /// How many units the view at each place has yet to follow.
    left: Vec<u32>,
}

/// The state of one unit that views follow.
struct Turning {
    /// The views that have what it made before.
    left: Stamp,
    /// The one that had its turn last.
    last: Slot,
    /// Whether it goes, so that nothing of it is left to any of them.
    is_leaving: bool,
    /// The resources that they have of it, for each of its states before: no two have the same
    /// names, and none is without views.
    former: Vec<Former>,
    /// The outputs since, for each class of views.
    heads: Vec<Head>,
}

/// The resources of a unit, by name, that some views have from before. The names are sorted.
struct Former {
    views: Stamp,
    routes: Box<[Name]>,
    rest: Box<[Key]>,
}

impl Former {
    fn new(views: Stamp, mut routes: Vec<Name>, mut rest: Vec<Key>) -> Former {
        routes.sort_unstable();
        routes.dedup();
        rest.sort_unstable();
        rest.dedup();
        Former {
            views,
            routes: routes.into(),
            rest: rest.into(),
        }
    }

    /// Adds what further views have: it is one of these where all names are the same.
    fn join(self, all: &mut Vec<Former>) {
        let is_alike = |it: &&mut Former| it.routes == self.routes && it.rest == self.rest;
        match all.iter_mut().find(is_alike) {
            Some(known) => known.views = known.views.union(&self.views),
            None => all.push(self),
        }
    }
}

/// The output of a unit for a class of views, but for what is kept elsewhere.
struct Head {
    facts: Vec<u64>,
    /// Without resources and needs.
    output: Output,
    routes: Vec<Name>,
    rest: Vec<Key>,
}

impl Turnings {
    /// Whether views follow a unit.
    pub(super) fn has(&self, id: UnitId) -> bool {
        self.units.contains_key(&id)
    }

    /// Whether a view has yet to follow any unit, however many there are.
    pub(super) fn has_left(&self, slot: Slot) -> bool {
        self.left.get(slot as usize).is_some_and(|left| *left > 0)
    }

    /// The view that follows a unit next.
    pub(super) fn next(&mut self, id: UnitId) -> Option<Slot> {
        let turning = self.units.get_mut(&id)?;
        let (last, left) = (turning.last, &turning.left);
        let beyond = left.iter().find(|slot| *slot > last);
        let next = beyond.or_else(|| left.iter().next())?;
        turning.last = next;
        Some(next)
    }

    fn get(&self, id: UnitId) -> Option<&Turning> {
        self.units.get(&id)
    }

    fn get_mut(&mut self, id: UnitId) -> Option<&mut Turning> {
        self.units.get_mut(&id)
    }

    /// Adds a unit, which views do not follow already.
    fn insert(&mut self, id: UnitId, turning: Turning) {
        for slot in turning.left.iter() {
            let at = slot as usize;
            if self.left.len() <= at {
                self.left.resize(at + 1, 0);
            }
            if let Some(left) = self.left.get_mut(at) {
                *left += 1;
            }
        }
        self.units.insert(id, turning);
    }

    /// Takes a unit out, which nobody follows any more.
    fn remove(&mut self, id: UnitId) -> Option<Turning> {
        let turning = self.units.remove(&id)?;
        for slot in turning.left.iter() {
            release(&mut self.left, slot);
        }
        Some(turning)
    }

    /// Notes that a view follows a unit: it has nothing from before any more.
    fn follow(&mut self, id: UnitId, slot: Slot) {
        let Some(turning) = self.units.get_mut(&id) else {
            return;
        };
        if turning.left.has(slot) {
            turning.left.remove(slot);
            release(&mut self.left, slot);
        }
        for former in &mut turning.former {
            former.views.remove(slot);
        }
        turning.former.retain(|former| !former.views.is_empty());
    }
}

/// Counts one unit less that a view has yet to follow.
fn release(left: &mut [u32], slot: Slot) {
    if let Some(left) = left.get_mut(slot as usize) {
        *left = left.saturating_sub(1);
    }
}

impl Engine {
    /// Whether a unit is one of those that views may follow, and very many have it.
    pub(super) fn is_wide(&self, unit: &Unit, id: UnitId) -> bool {
        unit.kind().in_turns && self.units.seen(id).len() >= LATE_VIEWS_MIN
    }

    /// Whether views follow a unit, which has made so many resources for one of those that want it.
    pub(super) fn goes_in_turns(
        &self,
        (unit, id): (&Unit, UnitId),
        wanted: &Stamp,
        made: usize,
        run: &Run,
    ) -> bool {
        if !unit.kind().in_turns || run.is_whole {
            return false;
        }
        let views = self.units.seen(id).union(wanted).len();
        (run.is_late && views >= LATE_VIEWS_MIN) || self.is_large(id, views, made)
    }

    /// Whether so many views of a unit are too many to be looked at each by itself.
    pub(super) fn are_many(&self, id: UnitId, views: usize) -> bool {
        views >= LATE_VIEWS_MIN || self.is_large(id, views, 0)
    }

    /// Whether all that a unit has in so many views is too much to change at once.
    fn is_large(&self, id: UnitId, views: usize, made: usize) -> bool {
        let record = self.units.get(id);
        let known = record.map_or(0, |record| record.routes().len() + record.rest().len());
        views.saturating_mul(known.max(made)) > self.settings.resources_at_once
    }

    /// Lets views follow a unit that has run for the first of them, if any wants it.
    pub(super) fn begin_turning(
        &mut self,
        id: UnitId,
        wanted: &Stamp,
        first: Option<(Slot, Drawing)>,
        run: &mut Run,
    ) {
        let left = self.units.seen(id).union(wanted);
        self.begin(id, left, false);
        match first {
            Some((slot, drawing)) => self.join(id, slot, None, drawing, run),
            None => self.forget_statements(id),
        }
        self.catch_up(id, run);
        self.end_if_over(id, run);
    }

    /// While views have resources of too many states before, lets those with the rarest of them
    /// follow at once: as many had their turns between two changes, so that it costs that again.
    fn catch_up(&mut self, id: UnitId, run: &mut Run) {
        while let Some(turning) = self.turnings.get(id) {
            let former = turning.former.iter();
            let rarest = former.min_by_key(|it| it.views.len());
            let Some(rarest) = rarest.filter(|_| turning.former.len() > FORMERS_MAX) else {
                return;
            };
            let views = rarest.views.clone();
            self.turn_all(id, &views, run);
        }
    }

    fn begin(&mut self, id: UnitId, left: Stamp, is_leaving: bool) {
        let known = self.turnings.remove(id);
        // One that changes again and again goes on where it was: each view has its turn.
        let last = known.as_ref().map_or(0, |turning| turning.last);
        let former = self.former(id, known);
        let turning = Turning {
            left,
            last,
            is_leaving,
            former,
            heads: Vec::new(),
        };
        self.turnings.insert(id, turning);
        self.partings.set(id, Some(Parting::default()));
        // What is shared by objects of many is nobody's, whatever its resources are called.
        let unit = self.units.get(id).map(Record::unit);
        let owner = Box::<str>::from(unit.and_then(Unit::namespace).unwrap_or_default());
        self.visits.turn(id, &owner, self.settings.root_namespace());
    }

    /// The resources that views have of a unit, whether they followed it so far or not.
    fn former(&self, id: UnitId, known: Option<Turning>) -> Vec<Former> {
        let Some(known) = known else {
            let views = self.units.seen(id);
            let record = self.units.get(id).filter(|_| !views.is_empty());
            let former = record.map(|it| Former::new(views, it.routes().into(), it.rest().into()));
            return former.into_iter().collect();
        };
        let classes = self.partings.get(id).map(|parting| &*parting.views);
        let heads = known.heads.into_iter().zip(classes.unwrap_or_default());
        let (mut views, mut routes, mut rest) = (Stamp::EMPTY, Vec::new(), Vec::new());
        for (head, of_class) in heads.filter(|(_, views)| !views.is_empty()) {
            views = views.union(of_class);
            routes.extend(head.routes);
            rest.extend(head.rest);
        }
        let mut all = known.former;
        if !views.is_empty() {
            Former::new(views, routes, rest).join(&mut all);
        }
        all
    }

    /// Takes out a unit that nobody wants; one that very many views have goes out of them one after
    /// the other.
    pub(super) fn leave(&mut self, unit: &Unit, pending: &Pending, run: &mut Run) {
        let id = pending.id;
        let known = self.turnings.get(id);
        let is_leaving = known.is_some_and(|turning| turning.is_leaving);
        let seen = self.units.seen(id);
        let is_large = unit.kind().in_turns && self.is_large(id, seen.len(), 0);
        if run.is_whole || !(is_leaving || is_large) {
            self.vanish(id, run);
            return;
        }
        if !is_leaving {
            self.forget_statements(id);
            self.dismiss(id);
            self.begin(id, seen, true);
        }
        self.turn_all(id, &pending.slots, run);
    }

    /// Lets some views follow a unit, if it is one that they follow.
    pub(super) fn turn_all(&mut self, id: UnitId, slots: &Stamp, run: &mut Run) {
        for slot in slots.iter() {
            if !self.turnings.has(id) {
                return;
            }
            self.turn(id, slot, run);
        }
    }

    /// Lets a view follow a unit: it gets what another one like it has, or what is made for it, or
    /// it has nothing of the unit any more.
    pub(super) fn turn(&mut self, id: UnitId, slot: Slot, run: &mut Run) {
        let Some(unit) = self.units.get(id).map(|record| record.unit().clone()) else {
            self.end_turning(id);
            return;
        };
        let turning = self.turnings.get(id);
        if turning.is_some_and(|turning| turning.is_leaving) && self.is_wanted(&unit, id) {
            // It comes back before it is gone.
            self.translate(&unit, id, run);
        }
        self.turnings.follow(id, slot);
        let Some(turning) = self.turnings.get(id) else {
            return;
        };
        let is_leaving = turning.is_leaving;
        run.work.views_asked += 1;
        let is_there = !is_leaving && self.views.get(slot).is_some();
        if is_there && self.wanted(&unit, id).has(slot) {
            self.turn_there((&unit, id), slot, run);
        } else if self.units.seen(id).has(slot) {
            let from = self.class_of(id, slot);
            self.move_view((&unit, id), slot, (from, None), run);
            self.prune_needs(id, run);
        }
        self.end_if_over(id, run);
    }

    /// The same for a view that wants it.
    fn turn_there(&mut self, (unit, id): (&Unit, UnitId), slot: Slot, run: &mut Run) {
        let from = self.class_of(id, slot);
        let parting = self.partings.get(id);
        let asked = |parting: &Parting| parting.classes.find(|it| self.answer(slot, it));
        let to = parting.and_then(asked);
        if to.is_some() && from == to {
            return;
        }
        let is_there = |like: &Slot| self.views.get(*like).is_some();
        let views = to.and_then(|to| parting?.views.get(to));
        let like = views.and_then(|views| views.iter().find(is_there));
        if let (Some(to), Some(like)) = (to, like) {
            self.move_view((unit, id), slot, (from, Some((to, like))), run);
            self.prune_needs(id, run);
            return;
        }
        run.opened.memory = self.memories.take(id);
        let drawing = self.draw(unit, id, slot, run);
        self.memories.keep(id, run.opened.memory.take());
        self.join(id, slot, to, drawing, run);
    }

    /// The class of a view among those that have followed a unit.
    fn class_of(&self, id: UnitId, slot: Slot) -> Option<usize> {
        let mut views = self.partings.get(id)?.views.iter();
        views.position(|views| views.has(slot))
    }

    /// Gives a view what a unit has made for it alone, which is a class of its own or one that
    /// nobody is in.
    fn join(
        &mut self,
        id: UnitId,
        slot: Slot,
        class: Option<usize>,
        (mut output, facts, steps): Drawing,
        run: &mut Run,
    ) {
        let needs = std::mem::take(&mut output.needs);
        let resources = std::mem::take(&mut output.resources);
        let class = self.partings.join(id, slot, (class, steps));
        self.join_facts(id, &facts);
        self.join_needs(id, slot, needs, run);
        let (routes, rest) = self.join_resources(id, slot, resources, run);
        let head = Head {
            facts,
            output,
            routes,
            rest,
        };
        self.turnings.follow(id, slot);
        let Some(turning) = self.turnings.get_mut(id) else {
            return;
        };
        match turning.heads.get_mut(class) {
            Some(known) => *known = head,
            None => turning.heads.push(head),
        }
        self.keep_outputs(id);
        let Some(turning) = self.turnings.get(id) else {
            return;
        };
        // The findings of further classes are told once all views have followed.
        if let [first] = &*turning.heads {
            let findings = drawn::findings(&[&first.output]);
            let deadline = first.output.deadline;
            self.state_of(id, findings, deadline);
        }
    }

    /// Adds facts to those of a unit; those of its first class take their place.
    fn join_facts(&mut self, id: UnitId, facts: &[u64]) {
        let turning = self.turnings.get(id);
        let is_first = turning.is_none_or(|turning| turning.heads.is_empty());
        let known = self.units.get(id).filter(|_| !is_first);
        let mut all = known.map_or_else(Vec::new, |record| record.facts().to_vec());
        all.extend(facts);
        all.sort_unstable();
        all.dedup();
        self.units.set_facts(id, all.into());
    }

    /// Notes what a unit needs for one view, in place of what it did; for the others all stays.
    fn join_needs(&mut self, id: UnitId, slot: Slot, needs: Vec<Unit>, run: &mut Run) {
        let Some(record) = self.units.get(id) else {
            return;
        };
        let mut all: BTreeMap<Unit, Stamp> = BTreeMap::new();
        for need in record.needs() {
            let mut stamp = self.units.need(id, *need);
            stamp.remove(slot);
            let needed = self.units.get(*need).filter(|_| !stamp.is_empty());
            all.extend(needed.map(|needed| (needed.unit().clone(), stamp)));
        }
        for need in needs {
            all.entry(need).or_default().insert(slot);
        }
        let (needs, stamps): (Vec<Unit>, Vec<Stamp>) = all.into_iter().unzip();
        self.settle_needs(id, needs, Some(stamps), run);
    }

    /// Takes the resources of a unit into one view, in place of those that it had there. Their
    /// names are returned.
    pub(super) fn join_resources(
        &mut self,
        id: UnitId,
        slot: Slot,
        mut resources: Vec<(Name, Resource)>,
        run: &mut Run,
    ) -> (Vec<Name>, Vec<Key>) {
        let Some(record) = self.units.get(id) else {
            return (Vec::new(), Vec::new());
        };
        let former = record.outputs();
        reuse_names(record.routes(), &mut resources);
        let names = kept_names(record.unit(), &resources);
        self.share_parts(&mut resources);
        let stamps = vec![self.likes(id, slot); resources.len()];
        let sealed = self.seal(id, resources, &stamps);
        let changes = self
            .writer
            .replace_at(slot, &former, &sealed, run.delta_of(slot));
        self.parts.count(changes);
        let count = changes.len() as u64;
        run.work.resources_changed += count;
        let mut seen = self.units.seen(id);
        seen.insert(slot);
        self.units.set_seen(id, seen);
        names
    }

    /// Notes the names of all that views have of a unit that they follow: what it makes now, and
    /// what it made before for those that have yet to follow.
    fn keep_outputs(&mut self, id: UnitId) {
        let Some(turning) = self.turnings.get(id) else {
            return;
        };
        let classes = self.partings.get(id).map(|parting| &*parting.views);
        let heads = turning.heads.iter().zip(classes.unwrap_or_default());
        let heads = heads.filter(|(_, views)| !views.is_empty());
        let (mut routes, mut rest) = (BTreeSet::new(), BTreeSet::new());
        for former in &turning.former {
            routes.extend(&former.routes);
            rest.extend(&former.rest);
        }
        for (head, _) in heads {
            routes.extend(&head.routes);
            rest.extend(&head.rest);
        }
        let routes = routes.into_iter().cloned().collect();
        let rest = rest.into_iter().cloned().collect();
        self.units.set_outputs(id, routes, rest);
    }

    /// A view, and some of other classes, which may have resources that it gets.
    fn likes(&self, id: UnitId, slot: Slot) -> Stamp {
        let classes = self.partings.get(id).map(|parting| parting.views.iter());
        let firsts = classes.into_iter().flatten();
        let firsts = firsts.filter_map(|views| views.iter().next());
        firsts.take(LIKES_MAX).chain([slot]).collect()
    }

    /// Forgets the units that a unit needs for no view any more, before they are taken out.
    pub(super) fn prune_needs(&mut self, id: UnitId, run: &mut Run) {
        let needs = self.units.get(id).map(Record::needs).unwrap_or_default();
        let stamps = needs.iter().map(|need| self.units.need(id, *need));
        let kept = needs.iter().copied().zip(stamps);
        let kept = kept.filter(|(_, stamp)| !stamp.is_empty());
        let (kept, stamps): (Vec<UnitId>, Vec<Stamp>) = kept.unzip();
        if kept.len() == needs.len() {
            return;
        }
        let change = self.units.set_needs(id, kept.into(), Some(stamps));
        for lost in change.lost {
            self.mark(lost, false, run);
        }
    }

    /// Notes that no view follows a unit one after the other any more.
    pub(super) fn end_turning(&mut self, id: UnitId) {
        if self.turnings.remove(id).is_some() {
            self.visits.end_turned(id);
        }
    }

    /// Concludes what views follow once all have: what it made before is forgotten, or the unit
    /// itself where it goes.
    fn end_if_over(&mut self, id: UnitId, run: &mut Run) {
        let turning = self.turnings.get(id);
        if turning.is_none_or(|turning| !turning.left.is_empty()) {
            return;
        }
        self.keep_outputs(id);
        let Some(turning) = self.turnings.remove(id) else {
            return;
        };
        self.visits.end_turned(id);
        if turning.is_leaving {
            if let Some(unit) = self.units.get(id).map(|record| record.unit().clone()) {
                run.pending.remove(&unit);
            }
            self.vanish(id, run);
            return;
        }
        let classes = self.partings.get(id).map(|parting| &*parting.views);
        let heads = turning.heads.iter().zip(classes.unwrap_or_default());
        let heads: Vec<&Head> = heads
            .filter(|(_, views)| !views.is_empty())
            .map(|(head, _)| head)
            .collect();
        let facts = heads.iter().flat_map(|head| &head.facts);
        let facts: BTreeSet<u64> = facts.copied().collect();
        let outputs: Vec<&Output> = heads.iter().map(|head| &head.output).collect();
        let deadline = outputs.iter().filter_map(|output| output.deadline).min();
        let findings = drawn::findings(&outputs);
        self.units.set_facts(id, facts.into_iter().collect());
        self.state_of(id, findings, deadline);
    }

    /// Forgets what a unit read and stated.
    fn forget_statements(&mut self, id: UnitId) {
        self.units.set_facts(id, Box::default());
        self.state_of(id, Vec::new(), None);
    }

    fn state_of(&mut self, id: UnitId, findings: Vec<Finding>, deadline: Option<i64>) {
        self.units.set_deadline(id, deadline);
        let mut output = Output {
            findings,
            ..Output::default()
        };
        self.state(id, &mut output);
    }
}

#[cfg(test)]
mod tests;
