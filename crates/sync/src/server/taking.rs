//! The next commit of a session: what goes into it, and what is noted of it.

use std::collections::VecDeque;

use myriad_base::clock::Instant;
use myriad_model::{COMMIT_RESOURCES_MAX, Change};

use super::plan::Plan;
use super::strangers::Stranger;
use super::{Frame, ServerSession, frames, steps};
use crate::wire::{self, from_server};

impl ServerSession {
    /// Sends what other streams send as well.
    pub(super) fn take_step(&mut self, step: &steps::Step) {
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
    pub(super) fn take_of(&mut self, mut plan: Plan, now: Instant) {
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
        let mut frames = VecDeque::new();
        let oversized = frames::write(&changes, &removed, &mut frames);
        self.counters.oversized.inc_by(oversized);
        self.outbox.extend(frames.into_iter().map(Frame::Own));
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
