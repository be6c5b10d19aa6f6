//! How often something may be done in a span of time.

use super::Millis;

/// So many in a span, all at once where nothing was done before, and evenly otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// The milliseconds that one costs.
    cost: Millis,
    /// The milliseconds of what may be done at once.
    burst: Millis,
    /// When all of it will be there again.
    whole_at: Millis,
}

impl Budget {
    pub(super) fn new(count: u32, span: Millis) -> Self {
        let count = Millis::from(count.max(1));
        Budget {
            cost: (span / count).max(1),
            burst: span.max(1),
            whole_at: Millis::MIN,
        }
    }

    /// When the next may be done; a moment that has passed where it may be now.
    pub(super) fn free_at(&self) -> Millis {
        self.whole_at
            .saturating_add(self.cost)
            .saturating_sub(self.burst)
    }

    /// Notes that one is done.
    pub(super) fn spend(&mut self, now: Millis) {
        self.whole_at = self.whole_at.max(now).saturating_add(self.cost);
    }

    /// Takes back what was noted of one that was not done after all.
    pub(super) fn give_back(&mut self) {
        self.whole_at = self.whole_at.saturating_sub(self.cost);
    }

    /// Whether all of it is there.
    pub(super) fn is_whole(&self, now: Millis) -> bool {
        self.whole_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn a_burst_is_free_and_the_rest_comes_evenly() {
        let mut budget = Budget::new(3, 3_000);
        for _ in 0..3 {
            assert!(budget.free_at() <= 10_000);
            budget.spend(10_000);
        }
        assert_eq!(budget.free_at(), 11_000);
        budget.spend(11_000);
        assert_eq!(budget.free_at(), 12_000);
        // After a pause all is there again, and no more.
        for _ in 0..3 {
            assert!(budget.free_at() <= 90_000);
            budget.spend(90_000);
        }
        assert_eq!(budget.free_at(), 91_000);
        budget.give_back();
        assert!(budget.free_at() <= 90_000);
    }
}
