//! How long to wait before the API server is asked again.

use std::time::Duration;

use myriad_base::backoff::{Backoff, Waits};

/// 0.1 s after the first failure; then twice as long each time, up to 10 s, of which up to a half
/// is taken away by chance.
static WAITS: Waits = Waits {
    first: Duration::from_millis(100)..=Duration::from_millis(100),
    second: Duration::from_millis(100)..=Duration::from_millis(200),
    max: Duration::from_secs(5)..=Duration::from_secs(10),
};

/// The waits between calls to the API server; equal seeds wait alike.
pub(super) fn backoff(seed: u64) -> Backoff {
    Backoff::new(&WAITS, seed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::backoff;

    #[test]
    fn waits_grow_within_the_limits_and_start_anew() {
        let mut backoff = backoff(1);
        let first = Duration::from_millis(100);
        assert_eq!(backoff.fail(), first);
        let mut bound = first;
        for _ in 0..20 {
            bound = (bound * 2).min(Duration::from_secs(10));
            let wait = backoff.fail();
            assert!((bound / 2..=bound).contains(&wait), "{wait:?} of {bound:?}");
        }
        backoff.reset();
        assert_eq!(backoff.fail(), first);
    }
}
