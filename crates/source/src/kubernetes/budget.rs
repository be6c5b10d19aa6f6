//! How many requests a writer may send.

use std::time::Duration;

use myriad_base::clock::Instant;

/// A budget that fills up evenly, up to the requests of one second.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    per_second: f64,
    left: f64,
    filled_at: Instant,
}

impl Budget {
    /// A full budget; at least one request in a thousand seconds.
    pub(super) fn new(per_second: f64, now: Instant) -> Self {
        let per_second = if per_second.is_finite() {
            per_second.max(0.001)
        } else {
            1.0
        };
        Budget {
            per_second,
            left: per_second.max(1.0),
            filled_at: now,
        }
    }

    /// Takes one request, or says how long to wait for it.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.filled_at = now;
        self.left = (self.left + passed * self.per_second).min(self.per_second.max(1.0));
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        let missing = (1.0 - self.left) / self.per_second;
        // A timer is no finer than a millisecond; rounding up avoids a second look too early.
        Err(Duration::from_secs_f64(missing) + Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;
    use myriad_base::clock;
    use std::time::Duration;

    #[test]
    fn a_burst_is_one_second_and_then_the_rate_holds() {
        let mut now = clock::now();
        let start = now;
        let mut budget = Budget::new(5.0, now);
        let mut taken = 0;
        while now < start + Duration::from_secs(10) {
            match budget.take(now) {
                Ok(()) => taken += 1,
                Err(wait) => now += wait,
            }
        }
        assert!((52..=55).contains(&taken), "{taken}");
    }
}
