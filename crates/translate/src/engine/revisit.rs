//! Views that join units that are translated already, or leave them.
//!
//! The questions that a unit asked about its views are kept where sidecars are among them. One more
//! view is led down the same questions; where it answers like another, it is given what that one
//! has, and nothing is translated.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::batch::Run;
use super::stamp::{Slot, Stamp};
use super::unit::{Unit, UnitId};
use super::viewpoint::{Classes, Step};

/// How units tell their views apart.
#[derive(Default)]
pub(super) struct Partings(BTreeMap<UnitId, Parting>);

/// The parting of one unit, since it was translated last.
#[derive(Default)]
pub(super) struct Parting {
    /// The questions that it asked, and the classes of views by their answers.
    pub classes: Classes,
    /// The views of each class; none is empty, unless views follow one after the other, or are
    /// gone.
    pub views: Vec<Stamp>,
}

/// The move of a view between classes.
enum Move {
    /// It stays where it belongs.
    Stays,
    /// From one class, if any, to another, if any, in which there is this view.
    Between(Option<usize>, Option<(usize, Slot)>),
    /// It goes to a class that nobody is in, or out of one that nobody else is in.
    Parts,
}

impl Partings {
    /// Keeps how a unit tells its views apart.
    pub(super) fn set(&mut self, id: UnitId, parting: Option<Parting>) {
        match parting {
            Some(parting) => drop(self.0.insert(id, parting)),
            None => drop(self.0.remove(&id)),
        }
    }

    /// The parting of a unit.
    pub(super) fn get(&self, id: UnitId) -> Option<&Parting> {
        self.0.get(&id)
    }

    /// Takes a view out of the class of a unit that it is in.
    pub(super) fn leave(&mut self, id: UnitId, slot: Slot) {
        let parting = self.0.get_mut(&id);
        for views in parting.into_iter().flat_map(|parting| &mut parting.views) {
            views.remove(slot);
        }
    }

    /// Puts a view into a class of a unit, or into one of its own that its answers lead to; returns
    /// its number.
    pub(super) fn join(
        &mut self,
        id: UnitId,
        slot: Slot,
        (class, steps): (Option<usize>, Vec<Step>),
    ) -> usize {
        self.leave(id, slot);
        let parting = self.0.entry(id).or_default();
        if let Some(class) = class
            && let Some(views) = parting.views.get_mut(class)
        {
            views.insert(slot);
            return class;
        }
        let class = parting.views.len();
        parting.classes.insert(steps, class);
        parting.views.push(Stamp::one(slot));
        class
    }
}

impl Engine {
    /// Looks at views that may see other things of a unit than before; the unit is the same for
    /// all others. It runs only where none of them is like one of those.
    pub(super) fn revisit(&mut self, unit: &Unit, id: UnitId, slots: &Stamp, run: &mut Run) {
        for slot in slots.iter() {
            if self.turnings.has(id) {
                self.turn(id, slot, run);
                continue;
            }
            run.work.views_asked += 1;
            match self.find_move(unit, id, slot) {
                Move::Stays => {}
                Move::Between(from, to) => self.move_view((unit, id), slot, (from, to), run),
                Move::Parts if self.parts_alone((unit, id), slots) => {
                    self.part((unit, id), slot, run);
                }
                Move::Parts => {
                    self.translate(unit, id, run);
                    if !self.turnings.has(id) {
                        return;
                    }
                    self.turn(id, slot, run);
                }
            }
        }
    }

    fn find_move(&self, unit: &Unit, id: UnitId, slot: Slot) -> Move {
        let Some(parting) = self.partings.0.get(&id) else {
            return Move::Parts;
        };
        let from = parting.views.iter().position(|views| views.has(slot));
        let is_there = self.views.get(slot).is_some() && self.wanted(unit, id).has(slot);
        let to = match is_there {
            true => match parting.classes.find(|question| self.answer(slot, question)) {
                None => return Move::Parts,
                found => found,
            },
            false => None,
        };
        let stays_alone = |class: usize| {
            let views = parting.views.get(class);
            views.is_none_or(|views| *views == Stamp::one(slot))
        };
        if from == to {
            return Move::Stays;
        }
        if from.is_some_and(stays_alone) {
            return Move::Parts;
        }
        let Some(to) = to else {
            return Move::Between(from, None);
        };
        // Whoever is gone has nothing to give any more.
        let is_there = |like: &Slot| self.views.get(*like).is_some();
        let views = parting.views.get(to);
        match views.and_then(|views| views.iter().find(is_there)) {
            Some(like) => Move::Between(from, Some((to, like))),
            None => Move::Parts,
        }
    }

    /// Whether a few views may part from the others of a unit without it running for those.
    fn parts_alone(&self, (unit, id): (&Unit, UnitId), slots: &Stamp) -> bool {
        let is_known = self.partings.get(id).is_some();
        unit.kind().parts_alone && is_known && !self.are_many(id, slots.len())
    }

    /// Gives a view what a unit makes for it alone, or takes out of it what it had. All others have
    /// what they had, and classes that nobody is in are there until the unit runs for all.
    fn part(&mut self, (unit, id): (&Unit, UnitId), slot: Slot, run: &mut Run) {
        let is_there = self.views.get(slot).is_some() && self.wanted(unit, id).has(slot);
        let parting = self.partings.get(id);
        let from = parting.and_then(|it| it.views.iter().position(|views| views.has(slot)));
        if !is_there {
            self.move_view((unit, id), slot, (from, None), run);
            return;
        }
        let asked = |it: &Parting| it.classes.find(|question| self.answer(slot, question));
        let to = parting.and_then(asked);
        let is_alive = |like: &Slot| self.views.get(*like).is_some();
        let views = to.and_then(|to| parting?.views.get(to));
        let like = views.and_then(|views| views.iter().find(is_alive));
        if let (Some(to), Some(like)) = (to, like) {
            self.move_view((unit, id), slot, (from, Some((to, like))), run);
            return;
        }
        run.opened.memory = self.memories.take(id);
        let (output, facts, steps) = self.draw(unit, id, slot, run);
        self.memories.keep(id, run.opened.memory.take());
        debug_assert!(output.findings.is_empty() && output.needs.is_empty());
        self.partings.join(id, slot, (to, steps));
        let (routes, rest) = self.join_resources(id, slot, output.resources, run);
        let Some(record) = self.units.get(id) else {
            return;
        };
        let routes: BTreeSet<_> = record.routes().iter().cloned().chain(routes).collect();
        let rest: BTreeSet<_> = record.rest().iter().cloned().chain(rest).collect();
        let facts: BTreeSet<u64> = record.facts().iter().copied().chain(facts).collect();
        self.units
            .set_outputs(id, routes.into_iter().collect(), rest.into_iter().collect());
        self.units.set_facts(id, facts.into_iter().collect());
    }

    /// Moves a view between classes of a unit: it has what another of its new class has, or nothing
    /// of it any more.
    pub(super) fn move_view(
        &mut self,
        (unit, id): (&Unit, UnitId),
        slot: Slot,
        (from, to): (Option<usize>, Option<(usize, Slot)>),
        run: &mut Run,
    ) {
        let Some(parting) = self.partings.0.get_mut(&id) else {
            return;
        };
        let like = to.map(|(_, like)| like);
        if let Some(views) = from.and_then(|from| parting.views.get_mut(from)) {
            views.remove(slot);
        }
        if let Some(views) = to.and_then(|(to, _)| parting.views.get_mut(to)) {
            views.insert(slot);
        }
        let restamped = self.units.move_view(id, slot, like);
        self.settle_moved(unit, restamped, run);
        let keys = self.units.get(id).map(|record| record.outputs());
        let keys = keys.unwrap_or_default();
        let own = like.map(|like| self.writer.outputs_at(like, &keys));
        if self.views.get(slot).is_some() {
            let delta = run.delta_of(slot);
            let own = own.unwrap_or_default();
            let changes = self.writer.replace_at(slot, &keys, &own, delta);
            self.parts.count(changes);
            run.work.resources_changed += changes.len() as u64;
        }
        let mut seen = self.units.seen(id);
        match like {
            Some(_) => seen.insert(slot),
            None => seen.remove(slot),
        }
        self.units.set_seen(id, seen);
    }
}
