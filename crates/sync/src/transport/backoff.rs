//! How long a proxy waits before it connects again.

use std::time::Duration;

/// Within this time, after a connection that was of use, the first attempt is made: quick, since
/// another replica is there already as a rule, and spread, since thousands lose theirs at once.
pub const QUICK_MAX: Duration = Duration::from_millis(200);
/// How long the second attempt waits at most; each further one twice as long.
pub const BACKOFF_MIN: Duration = Duration::from_millis(400);
/// How long an attempt waits at most. Together with the time that a connection may take, this is
/// how long after a server is there again all its proxies are back.
pub const BACKOFF_MAX: Duration = Duration::from_secs(4);

/// The waits between attempts.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Attempts since the last connection that was of use.
    failures: u32,
}

impl Backoff {
    /// A connection was of use.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait now. `random` spreads those who would come back at the same time.
    pub(super) fn next(&mut self, random: u32) -> Duration {
        let share = f64::from(random) / f64::from(u32::MAX);
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        let Some(doublings) = failures.checked_sub(1) else {
            return QUICK_MAX.mul_f64(share);
        };
        let most = BACKOFF_MIN.saturating_mul(1 << doublings.min(16));
        let most = most.min(BACKOFF_MAX);
        most / 2 + (most / 2).mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BACKOFF_MAX, BACKOFF_MIN, Backoff, QUICK_MAX};

    #[test]
    fn the_first_attempt_is_quick_and_later_ones_wait_ever_longer_up_to_a_bound() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(0), Duration::ZERO);
        assert_eq!(backoff.next(u32::MAX), BACKOFF_MIN);
        assert_eq!(backoff.next(0), BACKOFF_MIN);
        assert_eq!(backoff.next(u32::MAX), BACKOFF_MIN * 4);
        for _ in 0..100 {
            assert!(backoff.next(u32::MAX) <= BACKOFF_MAX);
        }
        assert_eq!(backoff.next(0), BACKOFF_MAX / 2);
        backoff.reset();
        assert_eq!(backoff.next(u32::MAX), QUICK_MAX);
    }
}
