//! How long a client may take in all to send the body of a request.
//!
//! Each wait for more of a body is bounded by [`Limits::body_timeout`]. Whoever sends a byte each
//! time would hold a place among requests, and a connection of an endpoint, for ever, so that all
//! waits of a request together are bounded as well: by one such time, and by more for what has
//! come, at [`Limits::body_rate_min`]. Only waits for the client count, so that an endpoint that
//! reads slowly costs no client anything.
//!
//! A body without a declared length may be a stream that says little for hours. It is bounded so
//! only while places are short.
//!
//! Beside that a request that waits for its client stands in line with others that do, and may have
//! to go where there is no room for further ones; see [`crate::admission::waiting`].

use std::time::Duration;

use crate::admission::waiting::Standing;
use crate::limits::Limits;
use crate::local::Local;
use crate::net::deadline::{self, TICK};

/// No present wait.
const NEVER: u32 = u32::MAX;

/// The time that a client was waited for.
pub struct Patience {
    /// In ticks, of waits that are over.
    waited: u32,
    /// When the present wait began.
    since: u32,
    /// Its place in line.
    pub standing: Standing,
}

impl Default for Patience {
    fn default() -> Self {
        Patience::of(Standing::default())
    }
}

impl Patience {
    /// The patience with the client of a request that stands in this line.
    pub const fn of(standing: Standing) -> Self {
        Patience {
            waited: 0,
            since: NEVER,
            standing,
        }
    }

    /// Begins to wait for more of a body of which so much has come, and says for how long at most.
    pub fn begin(&mut self, local: &Local, received: u64, has_length: bool) -> Duration {
        let is_bounded = has_length || is_short(local);
        self.begin_bounded(&local.limits, received, is_bounded)
    }

    /// Ends the present wait, if there is one.
    pub fn end(&mut self) {
        let since = std::mem::replace(&mut self.since, NEVER);
        // What has not begun is later than now.
        let waited = deadline::now_ticks().saturating_sub(since);
        self.waited = self.waited.saturating_add(waited);
    }

    fn begin_bounded(&mut self, limits: &Limits, received: u64, is_bounded: bool) -> Duration {
        self.end();
        self.since = deadline::now_ticks();
        match is_bounded {
            true => self.left(limits, received).min(limits.body_timeout),
            false => limits.body_timeout,
        }
    }

    /// The time that is left for all further waits.
    fn left(&self, limits: &Limits, received: u64) -> Duration {
        let earned = received
            .saturating_mul(1_000)
            .checked_div(limits.body_rate_min);
        let earned = earned.map_or(Duration::MAX, Duration::from_millis);
        let waited = TICK.saturating_mul(self.waited);
        limits
            .body_timeout
            .saturating_add(earned)
            .saturating_sub(waited)
    }
}

/// Whether nine tenths of the places of a worker are taken.
fn is_short(local: &Local) -> bool {
    local.room.is_nearly_full() || local.fairness.requests.is_nearly_used_up()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::deadline::tick;

    fn limits(rate: u64) -> Limits {
        Limits {
            body_timeout: TICK * 10,
            body_rate_min: rate,
            ..Limits::default()
        }
    }

    fn pass(ticks: u32) {
        (0..ticks).for_each(|_| tick());
    }

    #[test]
    fn waits_are_bounded_together_by_one_time_and_what_has_come() {
        let limits = limits(10);
        let mut patience = Patience::default();
        assert_eq!(patience.begin_bounded(&limits, 0, true), TICK * 10);
        pass(4);
        assert_eq!(patience.begin_bounded(&limits, 0, true), TICK * 6);
        pass(5);
        // A byte is worth a tenth of a second.
        assert_eq!(patience.begin_bounded(&limits, 2, true), TICK * 3);
        pass(3);
        assert_eq!(patience.begin_bounded(&limits, 2, true), Duration::ZERO);
        // No single wait is longer than it was.
        assert_eq!(patience.begin_bounded(&limits, 1_000, true), TICK * 10);
    }

    #[test]
    fn time_that_the_client_is_not_waited_for_is_not_its_own() {
        let limits = limits(10);
        let mut patience = Patience::default();
        patience.begin_bounded(&limits, 0, true);
        pass(1);
        patience.end();
        pass(50);
        assert_eq!(patience.begin_bounded(&limits, 0, true), TICK * 9);
    }

    #[test]
    fn streams_have_as_long_as_they_like_while_there_are_places() {
        let mut patience = Patience::default();
        for _ in 0..5 {
            let wait = patience.begin_bounded(&limits(10), 0, false);
            assert_eq!(wait, TICK * 10);
            pass(9);
        }
        // What they have waited counts from the moment that places are short.
        let wait = patience.begin_bounded(&limits(10), 0, true);
        assert_eq!(wait, Duration::ZERO);
        // And never without a rate.
        assert_eq!(patience.begin_bounded(&limits(0), 0, true), TICK * 10);
    }
}
