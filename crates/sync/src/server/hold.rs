//! Removals that are only inferred, at the server: whether they are sent, and whether confirmed.
//!
//! A proxy that says of what kind its resources are judges them itself, by name and against what
//! it serves; it is told which removals are inferred, and says what it holds. One that does not say
//! would take everything, so that the server holds for it, and counts resources.

use myriad_base::clock::Instant;
use myriad_base::hold::{HoldLimits, Loss};

use super::strangers::Strangers;
use crate::client::COUNTED;
use crate::wire;

/// The removals that are held for a proxy, here or there.
pub(super) struct Hold {
    limits: HoldLimits,
    /// How many resources the proxy had when the two were compared.
    of: usize,
    /// The removals that are not sent.
    ours: Option<Loss>,
    since: Option<Instant>,
    /// The removals that the proxy says that it holds.
    theirs: Option<Loss>,
    is_confirmed: bool,
}

impl Hold {
    pub(super) fn new(limits: HoldLimits) -> Self {
        Hold {
            limits,
            of: 0,
            ours: None,
            since: None,
            theirs: None,
            is_confirmed: false,
        }
    }

    /// The proxy was found to have so many resources.
    pub(super) fn compared(&mut self, of: usize) {
        (self.of, self.ours, self.since) = (of, None, None);
    }

    /// The removals that are held at either end.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.ours.or(self.theirs)
    }

    /// Whether removals wait here, and all else has been sent.
    pub(super) fn is_ours(&self) -> bool {
        self.ours.is_some()
    }

    /// When what is held here is sent all the same.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.since? + self.limits.time?)
    }

    /// The removals that are held were confirmed. Returns whether there were any.
    pub(super) fn confirm(&mut self) -> bool {
        self.is_confirmed |= self.loss().is_some();
        self.is_confirmed
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Takes what the proxy says that it holds.
    pub(super) fn hear(&mut self, held: Option<wire::Held>) {
        self.theirs = held.map(|it| {
            let counted = COUNTED
                .iter()
                .find(|(kind, _)| u32::from(kind.number()) == it.kind);
            Loss {
                what: counted.map_or("resources", |(_, what)| what),
                lost: usize::try_from(it.lost).unwrap_or(usize::MAX),
                of: usize::try_from(it.of).unwrap_or(usize::MAX),
            }
        });
    }

    /// Whether these may be sent as gone, once nothing else is left to send.
    pub(super) fn admits(&mut self, strangers: &Strangers, now: Instant) -> bool {
        let loss = Loss {
            what: "resources",
            lost: strangers.unknown(),
            of: self.of.max(strangers.len()),
        };
        let is_over = self.limits.are_exceeded_by(loss) && !self.is_confirmed;
        if !is_over {
            (self.ours, self.since) = (None, None);
            return true;
        }
        self.ours = Some(loss);
        self.since.get_or_insert(now);
        if self.deadline().is_some_and(|until| until <= now) {
            self.is_confirmed = true;
            (self.ours, self.since) = (None, None);
        }
        self.ours.is_none()
    }

    /// Everything was sent.
    pub(super) fn end(&mut self) {
        (self.is_confirmed, self.ours, self.since) = (false, None, None);
    }
}
