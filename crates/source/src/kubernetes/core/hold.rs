//! Objects that a list did not show: whether they are gone, or kept until somebody says so.

use std::time::Duration;

use myriad_base::clock::Instant;
use myriad_base::hold::{HoldLimits, Loss};

use super::Limits;

/// The objects that are kept although the last list did not show them.
pub(super) struct Hold {
    limits: HoldLimits,
    /// How long the last few objects of a kind are kept that is suddenly empty.
    empty: Duration,
    held: Option<Held>,
    /// How many may be missing in the list that is under way, since so many were confirmed.
    confirmed: usize,
}

#[derive(Clone, Copy)]
struct Held {
    loss: Loss,
    since: Instant,
    /// Whether they are many, and not only the last few of a kind.
    is_much: bool,
}

/// How objects go that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Not at all, for now.
    Kept,
    /// As something that is inferred, and that others may hold in their turn.
    Inferred,
    /// As something that is meant.
    Meant,
}

impl Hold {
    pub(super) fn new(limits: Limits) -> Self {
        Hold {
            limits: limits.hold,
            empty: limits.removal_hold,
            held: None,
            confirmed: 0,
        }
    }

    /// The objects that are kept, and how long at most; without a time until it is confirmed.
    pub(super) fn held(&self) -> Option<(Loss, Option<Duration>)> {
        self.held.map(|it| (it.loss, self.time(it.is_much)))
    }

    /// The objects that are kept and wait to be confirmed, or for the time that the operator set.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.held.filter(|it| it.is_much).map(|it| it.loss)
    }

    /// When it goes by itself.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.held?;
        Some(held.since + self.time(held.is_much)?)
    }

    /// Judges what a complete list did not show, where there was one before.
    pub(super) fn judge(&mut self, loss: Loss, now: Instant) -> Way {
        let is_much = self.limits.are_exceeded_by(loss);
        let is_empty = loss.lost == loss.of && loss.lost > 0 && !self.empty.is_zero();
        if std::mem::take(&mut self.confirmed) >= loss.lost {
            self.held = None;
            return Way::Meant;
        }
        if !is_much && !is_empty {
            self.held = None;
            return Way::Inferred;
        }
        let since = self.held.map_or(now, |it| it.since);
        self.held = Some(Held {
            loss,
            since,
            is_much,
        });
        self.tick(now)
    }

    /// Lets the time pass.
    pub(super) fn tick(&mut self, now: Instant) -> Way {
        if self.deadline().is_none_or(|until| now < until) {
            return Way::Kept;
        }
        // Many go after the time that the operator has set for just that.
        match self.held.take() {
            Some(held) if held.is_much => Way::Meant,
            _ => Way::Inferred,
        }
    }

    /// A person says that it is meant; at once if the last list is complete.
    pub(super) fn confirm(&mut self, is_whole: bool) -> Way {
        let Some(held) = self.held else {
            return Way::Kept;
        };
        if !is_whole {
            self.confirmed = held.loss.lost;
            return Way::Kept;
        }
        self.held = None;
        Way::Meant
    }

    fn time(&self, is_much: bool) -> Option<Duration> {
        match is_much {
            true => self.limits.time,
            false => Some(self.empty),
        }
    }
}
