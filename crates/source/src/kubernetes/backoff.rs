//! How long to wait before the next try.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// The wait after the first failure, before jitter.
const FIRST: Duration = Duration::from_millis(100);

/// The longest wait.
const MAX: Duration = Duration::from_secs(10);

/// Doubling waits from 0.1 to 10 s, of which up to a half is taken away by chance, so that
/// many clients of a server that comes back do not all come at once.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    failures: u32,
    seed: u64,
}

impl Backoff {
    /// No failures yet; equal seeds wait alike.
    pub(super) fn new(seed: u64) -> Self {
        Backoff { failures: 0, seed }
    }

    /// It works again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// One more failure: how long to wait.
    pub(super) fn fail(&mut self) -> Duration {
        let doubled = FIRST * 2_u32.pow(self.failures.min(7));
        self.failures = self.failures.saturating_add(1);
        // One step of splitmix64: chance enough to spread clients.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = f64::from((mixed >> 32) as u32) / f64::from(u32::MAX);
        doubled.min(MAX).mul_f64(1.0 - part / 2.0).max(FIRST)
    }
}

/// A seed that differs between processes and calls.
pub(super) fn random_seed() -> u64 {
    // The standard library seeds its hash maps from the system; nothing here needs more.
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

#[cfg(test)]
mod tests {
    use super::{Backoff, FIRST, MAX};

    #[test]
    fn waits_grow_within_the_limits_and_start_anew() {
        let mut backoff = Backoff::new(1);
        let waits: Vec<_> = (0..20).map(|_| backoff.fail()).collect();
        assert!(
            waits.iter().all(|wait| (FIRST..=MAX).contains(wait)),
            "{waits:?}"
        );
        assert!(waits[10..].iter().all(|wait| *wait >= MAX / 2), "{waits:?}");
        assert!(waits[0] < waits[5] && waits[5] < waits[9], "{waits:?}");
        backoff.reset();
        assert_eq!(backoff.fail(), FIRST);
        assert_ne!(Backoff::new(2).seed, backoff.seed);
    }
}
