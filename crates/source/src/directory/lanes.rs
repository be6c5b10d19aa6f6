//! Work that waits for other work of the same owner, while that of others goes on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A row of work for each owner that something takes long for. Work of an owner with a lane goes
/// to its end, so that its order is kept; the lane ends when it is empty.
pub(super) struct Lanes<T> {
    lanes: BTreeMap<Arc<str>, Lane<T>>,
    /// The lanes that may go on and have work, the next one first.
    open: VecDeque<Arc<str>>,
    is_others_turn: bool,
}

struct Lane<T> {
    work: VecDeque<T>,
    is_blocked: bool,
}

impl<T> Lanes<T> {
    /// Whether nobody has one.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Whether an owner has one.
    pub(super) fn has(&self, owner: &str) -> bool {
        self.lanes.contains_key(owner)
    }

    /// Whether the work of an owner has to wait.
    pub(super) fn is_blocked(&self, owner: &str) -> bool {
        self.lanes.get(owner).is_some_and(|lane| lane.is_blocked)
    }

    /// Lets the work of owners wait. Nothing else of theirs is under way.
    pub(super) fn block(&mut self, owners: &[Arc<str>]) {
        for owner in owners {
            self.lane(owner).is_blocked = true;
            self.open.retain(|open| open != owner);
        }
    }

    /// Lets the work of owners go on.
    pub(super) fn release(&mut self, owners: &[Arc<str>]) {
        for owner in owners {
            let lane = self.lane(owner);
            lane.is_blocked = false;
            match lane.work.is_empty() {
                true => drop(self.lanes.remove(owner)),
                false => self.open.push_back(owner.clone()),
            }
        }
    }

    /// Adds work to the lane of an owner.
    pub(super) fn push(&mut self, owner: &Arc<str>, work: T) {
        let lane = self.lane(owner);
        let is_first = lane.work.is_empty() && !lane.is_blocked;
        lane.work.push_back(work);
        if is_first {
            self.open.push_back(owner.clone());
        }
    }

    /// The next work, with the owner of its lane. Every other time there is none, unless nobody
    /// else has any.
    pub(super) fn pop(&mut self, is_alone: bool) -> Option<(Arc<str>, T)> {
        self.is_others_turn = !self.is_others_turn;
        if self.is_others_turn && !is_alone {
            return None;
        }
        let owner = self.open.pop_front()?;
        let lane = self.lanes.get_mut(&owner)?;
        let work = lane.work.pop_front()?;
        match lane.work.is_empty() {
            true => drop(self.lanes.remove(&owner)),
            false => self.open.push_back(owner.clone()),
        }
        Some((owner, work))
    }

    /// Keeps of all work what a rule says.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        for lane in self.lanes.values_mut() {
            lane.work.retain(&is_kept);
        }
        self.lanes
            .retain(|_, lane| lane.is_blocked || !lane.work.is_empty());
        let lanes = &self.lanes;
        self.open.retain(|owner| lanes.contains_key(owner));
    }

    fn lane(&mut self, owner: &Arc<str>) -> &mut Lane<T> {
        self.lanes.entry(owner.clone()).or_default()
    }
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Lanes {
            lanes: BTreeMap::new(),
            open: VecDeque::new(),
            is_others_turn: false,
        }
    }
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Lane {
            work: VecDeque::new(),
            is_blocked: false,
        }
    }
}
