//! Visits of sidecars' views: a view that comes, goes or may reach other things than before is led
//! to the units that it may see, one after the other.
//!
//! One change may send very many views on such a visit, and each may see very many units. So they
//! go one by one between batches, a part at a time, and nobody's changes wait for more than a part.
//! Until it is its turn a view may reach what it might before; one that comes is not whole before
//! its visit is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Engine;
use super::batch::Run;
use super::reader::ScopeFact;
use super::stamp::{Slot, Stamp};
use super::unit::UnitId;
use super::views::Standing;
use crate::view::{View, Workload};

/// The most units that views look at between two batches.
pub(super) const VISITED_MAX: usize = 1_024;

/// The reason of a visit, those first for which somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// It came.
    Came,
    /// It may reach other things than before.
    Scope,
    /// It is gone.
    Gone,
}

/// All visits that are not over.
#[derive(Default)]
pub(super) struct Visits {
    /// No more than three for each view.
    waiting: BTreeMap<(Reason, Slot), Tour>,
    /// Places of views that are gone and that no unit remembers once the run is over.
    left: Vec<Slot>,
}

/// The tour of one view.
#[derive(Default)]
struct Tour {
    /// The units that it has yet to look at; none before its turn.
    rest: Option<Vec<UnitId>>,
    /// Whether there is a reason for another one since it began.
    is_again: bool,
    /// The view that is gone.
    gone: Option<Box<Standing>>,
}

impl Visits {
    /// Whether all are over.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Notes that the units which saw a view have forgotten it once the run is over.
    pub(super) fn leave(&mut self, slot: Slot) {
        self.left.push(slot);
    }

    /// Takes out the places that no unit remembers.
    pub(super) fn take_left(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.left)
    }

    fn add(&mut self, reason: Reason, slot: Slot, gone: Option<Standing>) {
        let visit = self.waiting.entry((reason, slot)).or_default();
        visit.is_again = visit.rest.is_some();
        visit.gone = gone.map(Box::new);
    }

    /// Notes that a visit is over, unless it goes on once more.
    fn end(&mut self, (reason, slot): (Reason, Slot)) {
        let Some(visit) = self.waiting.get_mut(&(reason, slot)) else {
            return;
        };
        if std::mem::take(&mut visit.is_again) {
            visit.rest = None;
            return;
        }
        self.waiting.remove(&(reason, slot));
        if reason == Reason::Gone {
            self.left.push(slot);
        }
    }
}

impl Engine {
    /// Whether a view has all that it shall: one that came is led to it by and by, and nobody shall
    /// be told of it before.
    pub fn is_whole(&self, view: &str) -> bool {
        let came = |slot| self.visits.waiting.contains_key(&(Reason::Came, slot));
        !self.is_started || !self.views.find(view).is_some_and(came)
    }

    /// Lets the view of a sidecar that came look at what it may see.
    pub(super) fn visit_new(&mut self, slot: Slot) {
        self.visits.add(Reason::Came, slot, None);
        self.mark_held_alone(slot);
    }

    /// Lets the sidecars look at what they may reach for whom a changed object of a namespace may
    /// be.
    pub(super) fn visit_scopes(&mut self, namespace: &str) {
        let sidecars = self.views.of_sidecars();
        let slots = match namespace {
            root if root == self.settings.root_namespace() => sidecars.clone(),
            own => sidecars.common(&self.views.of_namespace(own)),
        };
        for slot in slots.iter() {
            self.visits.add(Reason::Scope, slot, None);
        }
    }

    /// Takes out the view of a sidecar; what saw it forgets it by and by.
    pub(super) fn visit_gone(&mut self, slot: Slot) -> Option<View> {
        self.mark_held_alone(slot);
        let gone = self.views.remove(slot)?;
        let view = gone.view.clone();
        self.visits.add(Reason::Gone, slot, Some(gone));
        Some(view)
    }

    /// Whether a namespace has workloads here is told where it has none.
    fn mark_held_alone(&mut self, slot: Slot) {
        let Some(standing) = self.views.get(slot) else {
            return;
        };
        let namespace = &standing.view.namespace;
        if self.views.of_namespace(namespace) != Stamp::one(slot) {
            return;
        }
        let held: Vec<UnitId> = self.audience.held(namespace).collect();
        let mut run = std::mem::take(&mut self.run);
        for id in held {
            self.mark(id, true, &mut run);
        }
        self.run = run;
    }

    /// Lets the view whose turn it is look at some units, for as long as there is time after each.
    pub(super) fn go_on_visiting(&mut self, run: &mut Run, has_time: &mut dyn FnMut() -> bool) {
        for _ in 0..VISITED_MAX {
            let Some((key, next)) = self.next_visited(run) else {
                return;
            };
            if let Some(id) = next {
                self.mark_in(id, key.1, run);
            }
            // What it looks at itself is never put off: it would not be whole.
            self.drain(run, &mut || true);
            if next.is_none() {
                self.visits.end(key);
            }
            if !has_time() {
                return;
            }
        }
    }

    /// Marks all that views have yet to look at.
    pub(super) fn mark_visited(&mut self, run: &mut Run) {
        while let Some((key, next)) = self.next_visited(run) {
            match next {
                Some(id) => self.mark_in(id, key.1, run),
                None => self.visits.end(key),
            }
        }
    }

    /// The visit whose turn it is, and the unit to be looked at; none at its end.
    fn next_visited(&mut self, run: &mut Run) -> Option<((Reason, Slot), Option<UnitId>)> {
        let (key, visit) = self.visits.waiting.first_key_value()?;
        let key = *key;
        if visit.rest.is_none() {
            let rest = self.begin_visit(key, run);
            if let Some(visit) = self.visits.waiting.get_mut(&key) {
                visit.rest = Some(rest);
            }
        }
        let visit = self.visits.waiting.get_mut(&key)?;
        Some((key, visit.rest.as_mut().and_then(Vec::pop)))
    }

    /// The units that a view has to look at, the first ones last.
    fn begin_visit(&mut self, (reason, slot): (Reason, Slot), run: &mut Run) -> Vec<UnitId> {
        match reason {
            Reason::Came => {
                let standing = self.views.get(slot);
                let Some((seen, workload)) = standing.map(|it| self.seen_by(it)) else {
                    return Vec::new();
                };
                self.root((self.rules.workload)(workload), run);
                let elsewhere = (self.rules.elsewhere)();
                if self.units.find(&self.hasher, &elsewhere).is_none() {
                    self.root(elsewhere, run);
                }
                seen
            }
            Reason::Scope => self.begin_scope(slot, run),
            Reason::Gone => {
                let visit = self.visits.waiting.get_mut(&(reason, slot));
                let Some(standing) = visit.and_then(|visit| visit.gone.take()) else {
                    return Vec::new();
                };
                self.release_view(slot);
                let (seen, workload) = self.seen_by(&standing);
                self.root((self.rules.workload)(workload), run);
                seen
            }
        }
    }

    /// The units that a sidecar may see, and its workload.
    fn seen_by(&self, standing: &Standing) -> (Vec<UnitId>, Arc<Workload>) {
        let mut seen: BTreeSet<UnitId> = self.audience.reachable(standing).into_iter().collect();
        seen.extend(self.audience.held(self.settings.root_namespace()));
        seen.extend(self.audience.held(&standing.view.namespace));
        let roots = (self.rules.of_sidecars)(&self.settings).into_iter();
        seen.extend(roots.filter_map(|unit| self.units.find(&self.hasher, &unit)));
        let workload = Arc::new(Workload::of(&standing.view));
        (seen.into_iter().rev().collect(), workload)
    }

    /// Settles what a view may reach. The units are returned that it could reach before or can now,
    /// where that differs.
    fn begin_scope(&mut self, slot: Slot, run: &mut Run) -> Vec<UnitId> {
        let Some(standing) = self.views.get(slot) else {
            return Vec::new();
        };
        // What it accepts may be another although it reaches the same.
        let workload = Arc::new(Workload::of(&standing.view));
        let mut reachable: BTreeSet<UnitId> =
            self.audience.reachable(standing).into_iter().collect();
        self.root((self.rules.workload)(workload), run);
        if !self.settle_scope(slot) {
            return Vec::new();
        }
        let Some(standing) = self.views.get(slot) else {
            return Vec::new();
        };
        reachable.extend(self.audience.reachable(standing));
        let allows_any = standing.scope.allows_any();
        let allows_any = allows_any.unwrap_or(self.settings.allows_any);
        let askers = self.units.readers(self.hasher.fact(ScopeFact));
        let reachable = reachable.into_iter().rev();
        // What is for nobody who is known is closed before anything is hidden, and opened last.
        match allows_any {
            true => askers.into_iter().chain(reachable).collect(),
            false => reachable.chain(askers).collect(),
        }
    }
}
