//! How long to wait before the next try.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The bounds of the waits between tries. Each wait is drawn from between two bounds, so that many
/// clients of a server that comes back do not all come at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The wait after the first failure.
    pub first: RangeInclusive<Duration>,
    /// The wait after the second; both bounds double with each further one.
    pub second: RangeInclusive<Duration>,
    /// The longest wait: each bound grows up to the one here.
    pub max: RangeInclusive<Duration>,
}

impl Waits {
    /// The wait after a failure that had so many before it. It is at least `at_least`, and what
    /// `random` draws comes on top of that.
    pub fn after(&self, failures: u32, at_least: Duration, random: u32) -> Duration {
        let bound = |end: fn(&RangeInclusive<Duration>) -> &Duration| {
            let Some(doublings) = failures.checked_sub(1) else {
                return *end(&self.first);
            };
            let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
            let doubled = end(&self.second).saturating_mul(factor);
            doubled.min(*end(&self.max))
        };
        let (low, high) = (bound(RangeInclusive::start), bound(RangeInclusive::end));
        let spread = high.saturating_sub(low).as_nanos();
        let drawn = spread * u128::from(random) / u128::from(u32::MAX);
        let drawn = Duration::from_nanos(u64::try_from(drawn).unwrap_or(u64::MAX));
        low.max(at_least).saturating_add(drawn)
    }
}

/// The waits of one client: they grow while its tries fail.
#[derive(Clone, Debug)]
pub struct Backoff {
    waits: &'static Waits,
    failures: u32,
    seed: u64,
}

impl Backoff {
    /// No failures yet; equal seeds wait alike.
    pub fn new(waits: &'static Waits, seed: u64) -> Self {
        Backoff {
            waits,
            failures: 0,
            seed,
        }
    }

    /// A try succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// One more failure: how long to wait.
    pub fn fail(&mut self) -> Duration {
        self.fail_for(Duration::ZERO)
    }

    /// One more failure, of a server that asks to be left alone for `at_least`: how long to wait.
    pub fn fail_for(&mut self, at_least: Duration) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        // One step of splitmix64: chance enough to spread clients.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.waits.after(failures, at_least, (mixed >> 32) as u32)
    }
}

/// A seed that differs between processes and calls.
pub fn random_seed() -> u64 {
    // The standard library seeds its hash maps from the system; nothing here needs more.
    RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;
    use std::time::Duration;

    use super::{Backoff, Waits, random_seed};

    const fn ms(low: u64, high: u64) -> RangeInclusive<Duration> {
        Duration::from_millis(low)..=Duration::from_millis(high)
    }

    const WAITS: Waits = Waits {
        first: ms(0, 200),
        second: ms(200, 400),
        max: ms(2_000, 4_000),
    };

    #[test]
    fn bounds_double_from_the_second_failure_up_to_the_last() {
        for (failures, low, high) in [
            (0, 0, 200),
            (1, 200, 400),
            (2, 400, 800),
            (4, 1_600, 3_200),
            (5, 2_000, 4_000),
            (40, 2_000, 4_000),
            (u32::MAX, 2_000, 4_000),
        ] {
            let wait = |random| WAITS.after(failures, Duration::ZERO, random);
            assert_eq!(wait(0), Duration::from_millis(low), "{failures}");
            assert_eq!(wait(u32::MAX), Duration::from_millis(high), "{failures}");
            let middle = Duration::from_millis(u64::midpoint(low, high));
            assert_eq!(wait(u32::MAX / 2).as_millis(), middle.as_millis() - 1);
        }
    }

    #[test]
    fn a_server_that_asks_for_more_is_waited_for_and_clients_still_come_apart() {
        let wait = |at_least, random| WAITS.after(1, Duration::from_millis(at_least), random);
        assert_eq!(wait(100, 0), Duration::from_millis(200));
        assert_eq!(wait(9_000, 0), Duration::from_millis(9_000));
        assert_eq!(wait(9_000, u32::MAX), Duration::from_millis(9_200));
    }

    #[test]
    fn no_bound_is_too_large() {
        let longest = Waits {
            first: Duration::MAX..=Duration::MAX,
            second: Duration::ZERO..=Duration::MAX,
            max: Duration::ZERO..=Duration::MAX,
        };
        let wait = longest.after(0, Duration::MAX, u32::MAX);
        assert_eq!(wait, Duration::MAX);
        assert!(longest.after(9, Duration::ZERO, u32::MAX) > Duration::from_secs(1 << 30));
    }

    #[test]
    fn failures_are_counted_until_a_success_and_equal_seeds_wait_alike() {
        static WAITS_OF_TEST: Waits = WAITS;
        let [mut one, mut same, mut other] =
            [1, 1, 2].map(|seed| Backoff::new(&WAITS_OF_TEST, seed));
        let mut differs = false;
        for _ in 0..9 {
            let wait = one.fail();
            assert_eq!(wait, same.fail());
            differs |= wait != other.fail();
        }
        assert!(differs);
        assert!(one.fail() >= Duration::from_secs(2));
        one.reset();
        assert!(one.fail() <= Duration::from_millis(200));
        assert!(one.fail_for(Duration::from_secs(60)) >= Duration::from_secs(60));
        assert_ne!(random_seed(), random_seed());
    }
}
