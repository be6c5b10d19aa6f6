//! Visits of sidecars' views: a view that comes, goes or may reach other things than before is led
//! to the units that it may see, one after the other. Where a unit changes in very many views, they
//! are led to it in the same way.
//!
//! One change may send very many views on such a visit, and each may see very many units. So they
//! go one by one between batches, a part at a time, and nobody's changes wait for more than a part.
//! Until it is its turn a view may reach what it might before; one that comes is not whole before
//! its visit is over.
//!
//! Namespaces take turns, each with the visits that its changes and its Pods have caused. Those of
//! views that come wait for nothing else, since their proxies have nothing before; all others may
//! wait for what their namespace owes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
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
    /// A view came.
    Came,
    /// A unit has changed in very many views, each of which is led to it.
    Turned,
    /// A view may reach other things than before.
    Scope,
    /// A view is gone.
    Gone,
}

/// The reason of a visit, and the view that is led to units; the unit where views are led to one.
type TourKey = (Reason, u32);

/// All visits that are not over.
#[derive(Default)]
pub(super) struct Visits {
    /// No more than three for each view, and one for each unit.
    waiting: BTreeMap<TourKey, Tour>,
    /// The ones that each namespace has caused; none is empty.
    lanes: BTreeMap<Box<str>, BTreeSet<TourKey>>,
    /// The namespace that had its turn last.
    last: Box<str>,
    /// Places of views that are gone and that no unit remembers once the run is over.
    left: Vec<Slot>,
}

/// The tour of one view.
#[derive(Default)]
struct Tour {
    /// The namespace that caused it.
    cause: Box<str>,
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

    /// Whether any may go, where namespaces may have a turn or not.
    pub(super) fn may_go(&self, may_run: &dyn Fn(&str) -> bool) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|(namespace, lane)| comes(lane) || may_run(namespace))
    }

    /// The namespaces that caused any that may have to wait.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        let lanes = self.lanes.iter().filter(|(_, lane)| waits(lane));
        lanes.map(|(namespace, _)| &**namespace)
    }

    /// Notes that the units which saw a view have forgotten it once the run is over.
    pub(super) fn leave(&mut self, slot: Slot) {
        self.left.push(slot);
    }

    /// Takes out the places that no unit remembers.
    pub(super) fn take_left(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.left)
    }

    /// Lets views be led to a unit that a namespace has changed. What the root namespace causes
    /// waits for nobody's debts, whoever causes it again.
    pub(super) fn turn(&mut self, id: UnitId, cause: &str, root: &str) {
        self.add((Reason::Turned, id), (cause, root), None);
    }

    /// Notes that no view is led to a unit any more.
    pub(super) fn end_turned(&mut self, id: UnitId) {
        self.end((Reason::Turned, id));
    }

    fn add(&mut self, key: TourKey, (cause, root): (&str, &str), gone: Option<Standing>) {
        let is_known = self.waiting.contains_key(&key);
        let tour = self.waiting.entry(key).or_default();
        tour.is_again = tour.rest.is_some();
        tour.gone = gone.map(Box::new);
        if is_known && (*tour.cause == *root || *tour.cause == *cause) {
            return;
        }
        let former = std::mem::replace(&mut tour.cause, cause.into());
        if is_known {
            self.leave_lane(&former, key);
        }
        self.lanes.entry(cause.into()).or_default().insert(key);
    }

    fn leave_lane(&mut self, namespace: &str, key: TourKey) {
        if let Some(lane) = self.lanes.get_mut(namespace) {
            lane.remove(&key);
            if lane.is_empty() {
                self.lanes.remove(namespace);
            }
        }
    }

    /// Notes that a visit is over, unless it goes on once more.
    fn end(&mut self, key: TourKey) {
        let Some(tour) = self.waiting.get_mut(&key) else {
            return;
        };
        if std::mem::take(&mut tour.is_again) {
            tour.rest = None;
            return;
        }
        let cause = std::mem::take(&mut tour.cause);
        self.waiting.remove(&key);
        self.leave_lane(&cause, key);
        if key.0 == Reason::Gone {
            self.left.push(key.1);
        }
    }

    /// The namespace whose turn it is, among those that may have one, and whether it is for views
    /// that come, which always may.
    fn next_turn(&mut self, may_run: &dyn Fn(&str) -> bool) -> Option<(Box<str>, bool)> {
        let beyond = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let later = self.lanes.range::<str, _>(beyond);
        let mut all = later.chain(&self.lanes);
        let next = all.find(|(namespace, lane)| comes(lane) || may_run(namespace));
        let next = next.map(|(namespace, lane)| (namespace.clone(), comes(lane)))?;
        self.last.clone_from(&next.0);
        Some(next)
    }

    /// The visit that goes on in a turn.
    fn next_of(&self, namespace: &str, is_coming_now: bool) -> Option<TourKey> {
        let next = self.lanes.get(namespace)?.first().copied();
        next.filter(|key| is_coming(*key) == is_coming_now)
    }
}

/// Whether views that come are the first of a lane.
fn comes(lane: &BTreeSet<TourKey>) -> bool {
    lane.first().is_some_and(|key| is_coming(*key))
}

/// Whether others than views that come are in a lane.
fn waits(lane: &BTreeSet<TourKey>) -> bool {
    lane.last().is_some_and(|key| !is_coming(*key))
}

fn is_coming((reason, _): TourKey) -> bool {
    reason == Reason::Came
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
        let standing = self.views.get(slot);
        let own = standing.map(|standing| standing.view.namespace.clone());
        let own = own.unwrap_or_default();
        let causes = (&*own, self.settings.root_namespace());
        self.visits.add((Reason::Came, slot), causes, None);
        self.mark_held_alone(slot);
    }

    /// Lets the sidecars look at what they may reach for whom a changed object of a namespace may
    /// be.
    pub(super) fn visit_scopes(&mut self, namespace: &str) {
        let sidecars = self.views.of_sidecars();
        let root = self.settings.root_namespace();
        let slots = match namespace == root {
            true => sidecars.clone(),
            false => sidecars.common(&self.views.of_namespace(namespace)),
        };
        for slot in slots.iter() {
            self.visits
                .add((Reason::Scope, slot), (namespace, root), None);
        }
    }

    /// Takes out the view of a sidecar; what saw it forgets it by and by. `by` is the namespace
    /// that causes it, where it is not that of its workload.
    pub(super) fn visit_gone(&mut self, slot: Slot, by: Option<&str>) -> Option<View> {
        self.mark_held_alone(slot);
        let gone = self.views.remove(slot)?;
        let view = gone.view.clone();
        let causes = (
            by.unwrap_or(&view.namespace),
            self.settings.root_namespace(),
        );
        self.visits.add((Reason::Gone, slot), causes, Some(gone));
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

    /// Lets views look at some units, for as long as there is time after each: those of the
    /// namespace whose turn it is, among those that may have one. It is returned, to be charged;
    /// nobody is for views that come.
    pub(super) fn go_on_visiting(
        &mut self,
        run: &mut Run,
        has_time: &mut dyn FnMut() -> bool,
        may_run: &dyn Fn(&str) -> bool,
    ) -> Option<Box<str>> {
        let (namespace, comes) = self.visits.next_turn(may_run)?;
        for _ in 0..VISITED_MAX {
            let Some(key) = self.visits.next_of(&namespace, comes) else {
                break;
            };
            self.go_on(key, run);
            // What it looks at itself is never put off: it would not be whole.
            self.drain(run, has_time, false);
            if !has_time() {
                break;
            }
        }
        Some(match comes {
            true => "".into(),
            false => namespace,
        })
    }

    /// Lets a view look at its next unit.
    fn go_on(&mut self, key: TourKey, run: &mut Run) {
        let (reason, number) = key;
        if reason != Reason::Turned {
            match self.next_visited(key, run) {
                Some(id) => self.mark_in(id, number, run),
                None => self.visits.end(key),
            }
            return;
        }
        match self.turnings.next(number) {
            Some(slot) => self.turn(number, slot, run),
            None => self.visits.end(key),
        }
    }

    /// Marks all that views have yet to look at.
    pub(super) fn mark_visited(&mut self, run: &mut Run) {
        while let Some((key, _)) = self.visits.waiting.first_key_value() {
            let key = *key;
            if key.0 == Reason::Turned {
                self.mark(key.1, true, run);
                self.visits.end(key);
                continue;
            }
            match self.next_visited(key, run) {
                Some(id) => self.mark_in(id, key.1, run),
                None => self.visits.end(key),
            }
        }
    }

    /// The unit that a view has to look at next; none at the end of its visit.
    fn next_visited(&mut self, key: TourKey, run: &mut Run) -> Option<UnitId> {
        if self.visits.waiting.get(&key)?.rest.is_none() {
            let rest = self.begin_visit(key, run);
            if let Some(visit) = self.visits.waiting.get_mut(&key) {
                visit.rest = Some(rest);
            }
        }
        self.visits.waiting.get_mut(&key)?.rest.as_mut()?.pop()
    }

    /// The units that a view has to look at, the first ones last.
    fn begin_visit(&mut self, (reason, slot): TourKey, run: &mut Run) -> Vec<UnitId> {
        match reason {
            Reason::Turned => Vec::new(),
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
        let allowed_any = standing.scope.allows_any();
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
        let askers = match allows_any == allowed_any {
            true => Vec::new(),
            false => self.units.readers(self.hasher.fact(ScopeFact)),
        };
        let allows_any = allows_any.unwrap_or(self.settings.allows_any);
        let reachable = reachable.into_iter().rev();
        // What is for nobody who is known is closed before anything is hidden, and opened last.
        match allows_any {
            true => askers.into_iter().chain(reachable).collect(),
            false => reachable.chain(askers).collect(),
        }
    }
}
