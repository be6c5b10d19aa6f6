//! Certificates are counted as they change, so that numbers for metrics cost no walk over all.

use super::{Desk, DeskCounts, Entry, FIGURES, Wait};
use crate::acme::OrderStage;

impl Desk {
    /// Numbers for metrics.
    pub fn counts(&self) -> DeskCounts {
        let [wanted, held, open, failing, renewing] = self.figures;
        DeskCounts {
            wanted,
            held,
            open,
            failing,
            renewing,
        }
    }

    /// Counts a certificate as it is now, and forgets one of which nothing is left. What is there
    /// stays with whoever runs the desk.
    pub(super) fn count(&mut self, id: &str) {
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        let figures = entry.figures();
        let before = std::mem::replace(&mut entry.figures, figures);
        let is_over = entry.wish.is_none() && entry.held.is_none() && entry.order.is_none();
        let is_running = matches!(entry.state, Wait::Running(_));
        let changed = before.into_iter().zip(figures);
        for (figure, (was, is)) in self.figures.iter_mut().zip(changed) {
            *figure = (*figure + usize::from(is)).saturating_sub(usize::from(was));
        }
        if is_over && !is_running {
            self.certificates.remove(id);
        }
    }
}

impl Entry {
    /// The figures that it counts in, in the order of [`DeskCounts`].
    pub(super) fn figures(&self) -> [bool; FIGURES] {
        let is_wanted = self.wish.is_some();
        let is_held = is_wanted && self.held.is_some();
        let order = self.order.as_ref();
        let is_ordered = order.is_some_and(|order| order.stage != OrderStage::Leaving);
        [
            is_wanted,
            is_held,
            order.is_some_and(|order| order.stage.is_open()),
            order.is_some_and(|order| order.has_failed()),
            is_held && is_ordered,
        ]
    }
}
