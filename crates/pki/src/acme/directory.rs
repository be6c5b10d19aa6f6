//! How it is with one authority: what it may still be asked for, and whether it answers.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Millis;
use super::budget::Budget;

/// A certificate that waits, and the number of its wait.
pub(super) type Waiting = (Arc<str>, u64);

/// The certificates that wait for a place of one kind: those that never failed go first.
#[derive(Debug, Default)]
pub(super) struct Line {
    fresh: VecDeque<Waiting>,
    failed: VecDeque<Waiting>,
}

impl Line {
    pub(super) fn push(&mut self, waiting: Waiting, has_failed: bool) {
        match has_failed {
            true => self.failed.push_back(waiting),
            false => self.fresh.push_back(waiting),
        }
    }

    /// The next one. One that failed before gets a place only where there are some to spare.
    pub(super) fn pop(&mut self, may_have_failed: bool) -> Option<Waiting> {
        let fresh = self.fresh.pop_front();
        fresh.or_else(|| may_have_failed.then(|| self.failed.pop_front()).flatten())
    }

    pub(super) fn has_next(&self, may_have_failed: bool) -> bool {
        !self.fresh.is_empty() || may_have_failed && !self.failed.is_empty()
    }
}

/// The places of one kind, half of which those may have that failed before: they wait longest for
/// an answer, and nobody else shall wait behind them.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) line: Line,
    max: usize,
    taken: usize,
    taken_by_failed: usize,
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Places {
            line: Line::default(),
            max: max.max(2),
            taken: 0,
            taken_by_failed: 0,
        }
    }

    pub(super) fn may_have_failed(&self) -> bool {
        self.taken_by_failed < self.max / 2
    }

    pub(super) fn is_full(&self) -> bool {
        self.taken >= self.max
    }

    pub(super) fn has_next(&self) -> bool {
        !self.is_full() && self.line.has_next(self.may_have_failed())
    }

    /// The next one that there is a place for.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        match self.is_full() {
            true => None,
            false => self.line.pop(self.may_have_failed()),
        }
    }

    pub(super) fn take(&mut self, has_failed: bool) {
        self.taken += 1;
        self.taken_by_failed += usize::from(has_failed);
    }

    pub(super) fn give_back(&mut self, has_failed: bool) {
        self.taken = self.taken.saturating_sub(1);
        self.taken_by_failed = self.taken_by_failed.saturating_sub(usize::from(has_failed));
    }
}

/// One authority.
#[derive(Debug)]
pub(super) struct AuthorityState {
    /// Orders that are to be placed.
    pub(super) placing: Line,
    /// Steps of orders that are placed.
    pub(super) steps: Places,
    /// Orders that it may still be asked for.
    pub(super) budget: Budget,
    /// Orders that are placed and not over.
    pub(super) open: usize,
    /// How often it was in trouble, one time behind the other.
    pub(super) troubles: u32,
    /// When it may be asked again.
    pub(super) not_before: Millis,
}

impl AuthorityState {
    /// The next order to be placed, where it may be asked for one.
    pub(super) fn pop_placing(&mut self, open_max: usize, now: Millis) -> Option<Waiting> {
        let may_place = self.budget.free_at() <= now && self.open < open_max;
        match may_place && !self.steps.is_full() {
            true => self.placing.pop(self.steps.may_have_failed()),
            false => None,
        }
    }

    /// When it can next be asked for something though nothing else happens before.
    pub(super) fn due(&self, open_max: usize) -> Option<Millis> {
        let may_have_failed = self.steps.may_have_failed();
        let can_place =
            self.placing.has_next(may_have_failed) && self.open < open_max && !self.steps.is_full();
        let place = can_place.then(|| self.budget.free_at());
        let step = self.steps.has_next().then_some(Millis::MIN);
        let first = place.into_iter().chain(step).min()?;
        Some(first.max(self.not_before))
    }
}
