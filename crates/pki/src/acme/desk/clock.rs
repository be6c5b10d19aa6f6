//! A clock that was set back: what was to be waited for by the former time is waited for as long as
//! before. One that is set forward only lets things come early.

use std::sync::Arc;

use super::{Desk, Effect};
use crate::acme::{MINUTE, Millis};

/// How far back a clock may go without a word: that much it is corrected by, now and then.
const CORRECTION_MAX: Millis = MINUTE;

impl Desk {
    /// Notes what time it is. Where the clock was set back, orders and authorities are waited for
    /// by the new time: a walk over all certificates, for once. Their own times are not by this
    /// clock, and looks at windows can wait.
    pub(super) fn note_time(&mut self, now: Millis) -> Vec<Effect> {
        let back = self.latest.saturating_sub(now);
        if back <= 0 {
            self.latest = now;
            return Vec::new();
        }
        if back <= CORRECTION_MAX {
            return Vec::new();
        }
        self.latest = now;
        self.authorities.turn_back(back, now);
        let mut ids: Vec<Arc<str>> = Vec::new();
        for (id, entry) in &mut self.certificates {
            let Some(order) = &mut entry.order else {
                continue;
            };
            order.not_before = turned_back(order.not_before, back, now);
            order.placed_at = order.placed_at.min(now);
            entry.sweep_at = turned_back(entry.sweep_at, back, now);
            ids.push(id.clone());
        }
        ids.iter().flat_map(|id| self.settle(id, now)).collect()
    }
}

/// A moment that was reckoned by the former time.
fn turned_back(moment: Millis, back: Millis, now: Millis) -> Millis {
    match moment > now {
        true => moment.saturating_sub(back),
        false => moment,
    }
}
