//! The next commit of a session: what goes into it, and what is noted of it.

use std::time::Duration;

use myriad_base::clock::Instant;
use myriad_model::{COMMIT_RESOURCES_MAX, Change, Position};

use super::ahead::Standing;
use super::frames::Draft;
use super::plan::{Plan, SMALL_CHANGES_MAX};
use super::steps::Way;
use super::strangers::Stranger;
use super::{Frame, ServerSession, State, steps};
use crate::wire::{self, from_server};

/// How long a stream waits before it asks again for a place for a way of its own.
pub(crate) const WAY_PAUSE: Duration = Duration::from_millis(100);

impl ServerSession {
    /// Puts the frames of the next commit into the outbox; `false` if there is nothing to commit,
    /// or it has to wait.
    pub(super) fn prepare(&mut self, now: Instant) -> bool {
        let is_behind = self.sent.digest() != self.newest.digest();
        if let Some(ahead) = self
            .ahead
            .as_mut()
            .filter(|_| is_behind || self.owes_commit)
        {
            if !is_behind {
                let position = ahead.position().clone();
                self.greet(&position);
                return true;
            }
            match ahead.look(self.newest.position(), now) {
                Standing::Level => {}
                Standing::Waits => return false,
                Standing::Late => drop(self.counters.ahead_too_long.inc()),
            }
            self.ahead = None;
        }
        let has_news = is_behind || self.owes_commit;
        self.infers &= is_behind || self.plan.is_some();
        if self.waits_for_place(now) {
            return false;
        }
        let is_own = !self.strangers.is_empty() || self.infers || self.hold.is_confirmed();
        let plan = match self.plan.take() {
            Some(plan) => plan,
            None if is_own && (has_news || self.hold.admits(&self.strangers, now)) => {
                let plan = Plan::new(self.sent.clone(), self.newest.clone());
                self.counters.nodes_visited.inc_by(plan.nodes_visited());
                plan
            }
            None if has_news && !is_own => {
                let ends = (&self.sent, self.goal.as_ref().unwrap_or(&self.newest));
                let (is_gateway, noticed) = (self.share.is_gateway(), self.noticed_micros);
                match self
                    .steps
                    .find(ends, is_gateway, noticed, now, &self.counters)
                {
                    Way::Own(plan) => {
                        self.goal = None;
                        *plan
                    }
                    Way::Shared(step) => {
                        self.share.end_way();
                        self.take_step(&step);
                        return true;
                    }
                }
            }
            None => {
                self.share.end_way();
                return false;
            }
        };
        let is_small = plan.is_small() && self.strangers.len() <= SMALL_CHANGES_MAX;
        if !is_small && !self.find_place(now) {
            return false;
        }
        self.take_of(plan, now);
        true
    }

    /// Whether a way of its own, for which there was no place, has to wait on.
    fn waits_for_place(&mut self, now: Instant) -> bool {
        let due = self.way_due;
        due.is_some_and(|due| now < due || !self.find_place(now))
    }

    /// Whether a long comparison has to wait for its place: what it finds is of this stream alone.
    pub(super) fn waits_to_compare(&mut self, now: Instant) -> bool {
        if !matches!(&self.state, State::Walking(walk) if walk.is_long()) {
            return false;
        }
        let is_due = self.way_due.is_none_or(|due| due <= now);
        !is_due || !self.find_place(now)
    }

    /// Takes a place for a way of its own, or says when it asks again. What was planned is planned
    /// anew by then, so that whoever waits holds none of it.
    fn find_place(&mut self, now: Instant) -> bool {
        if self.share.begin_way(self.steps.is_crowded(), now) {
            self.way_due = None;
            return true;
        }
        let is_first = self.way_due.replace(now + WAY_PAUSE).is_none();
        self.counters.ways_waited.inc_by(u64::from(is_first));
        false
    }

    /// Answers a proxy that has everything, and leaves it the position that it has.
    fn greet(&mut self, position: &Position) {
        self.owes_commit = false;
        self.counters.commits.inc();
        let root = self.sent.digest();
        self.push(from_server::Body::Commit(wire::Commit {
            position: wire::position_message(position),
            root: wire::digest_bytes(root),
            confirmed: self.hold.is_confirmed(),
            noticed_micros: 0,
        }));
        self.awaited = Some(root);
    }

    /// Sends what other streams send as well.
    fn take_step(&mut self, step: &steps::Step) {
        self.note_before();
        self.owes_commit = false;
        self.counters.resources.inc_by(step.resources);
        self.counters.removals.inc_by(step.removals);
        self.counters.commits.inc();
        let frames = step.frames.iter().cloned().map(Frame::Shared);
        self.outbox.extend(frames);
        if step
            .course
            .as_ref()
            .is_none_or(|(at, goal)| at.digest() == goal.digest())
        {
            self.noticed_micros = 0;
        }
        (self.sent, self.goal) = match &step.course {
            Some((at, goal)) => {
                let is_there = at.digest() == goal.digest();
                (at.clone(), (!is_there).then(|| goal.clone()))
            }
            // The newest itself, not a copy that is equal: streams in step share all of it.
            None => {
                let goal = self.goal.take();
                (goal.unwrap_or_else(|| self.newest.clone()), None)
            }
        };
        self.awaited = Some(self.sent.digest());
    }

    /// Sends the next commit of a way of its own.
    fn take_of(&mut self, mut plan: Plan, now: Instant) {
        self.note_before();
        self.owes_commit = false;
        let visited = plan.nodes_visited();
        let (mut changes, is_last) = plan.take();
        let visited = plan.nodes_visited() - visited;
        self.counters.nodes_visited.inc_by(visited);
        self.sent.set_position(plan.position().clone());
        if self.infers {
            self.divert(&mut changes);
        }
        self.record(&changes);
        let is_confirmed = self.hold.is_confirmed();
        let mut removed = Vec::new();
        let noticed_micros = self.noticed_micros;
        if is_last {
            self.noticed_micros = 0;
            self.sent = plan.target().clone();
            self.infers = false;
            removed = self.take_strangers(changes.len(), now);
        } else {
            self.plan = Some(plan);
        }
        self.give_back();
        self.counters.removals.inc_by(removed.len() as u64);
        self.counters.commits.inc();
        self.own = Some(self.steps.hold_own(changes.len() + removed.len()));
        let draft = Box::new(Draft::new(changes, removed));
        self.outbox.push_back(Frame::Drafted(draft));
        let root = self.root();
        self.push(from_server::Body::Commit(wire::Commit {
            position: wire::position_message(self.sent.position()),
            root: wire::digest_bytes(root),
            confirmed: is_confirmed || self.hold.is_confirmed(),
            noticed_micros,
        }));
        if is_last && self.strangers.is_empty() && !self.owes_commit {
            self.hold.end();
        }
        self.awaited = Some(root);
    }

    /// Notes that the proxy will have these changes, since they are being sent.
    fn record(&mut self, changes: &[Change]) {
        for change in changes {
            self.sent.apply(change);
            let Some(new) = &change.new else {
                self.counters.removals.inc();
                continue;
            };
            self.counters.resources.inc();
            self.strangers.write_over(new.slot());
        }
    }

    /// Takes out the removals of a difference that are only inferred, to be sent as such.
    fn divert(&mut self, changes: &mut Vec<Change>) {
        for change in changes.extract_if(.., |change| change.new.is_none()) {
            let Some(old) = &change.old else { continue };
            self.strangers.insert(Stranger {
                slot: old.slot(),
                version: old.version(),
                kind: change.key.kind.number().into(),
            });
            self.sent.apply(&change);
        }
    }

    /// The strangers that still fit into a commit of so many changes, if they may go.
    fn take_strangers(&mut self, changes: usize, now: Instant) -> Vec<Stranger> {
        let mut removed = Vec::new();
        if self.strangers.is_empty() || !self.hold.admits(&self.strangers, now) {
            return removed;
        }
        while changes + removed.len() < COMMIT_RESOURCES_MAX {
            let Some(stranger) = self.strangers.pop() else {
                break;
            };
            removed.push(stranger);
        }
        // A full commit says that there are more, so that another has to say that there are none.
        self.owes_commit =
            self.strangers.is_empty() && changes + removed.len() == COMMIT_RESOURCES_MAX;
        removed
    }
}
