//! How often something may be done in a span of time.

use super::Millis;

/// So many in a span, all at once where nothing was done before, and evenly otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The milliseconds that one costs.
    cost: Millis,
    /// The milliseconds of what may be done at once.
    burst: Millis,
    /// When all of it will be there again.
    whole_at: Millis,
}

impl Budget {
    /// So many in a span, all of which are there.
    pub fn new(count: u32, span: Millis) -> Self {
        let count = Millis::from(count.max(1));
        Budget {
            cost: (span / count).max(1),
            burst: span.max(1),
            whole_at: Millis::MIN,
        }
    }

    /// When the next may be done; a moment that has passed where it may be now.
    pub fn free_at(&self) -> Millis {
        self.whole_at
            .saturating_add(self.cost)
            .saturating_sub(self.burst)
    }

    /// When the one after the next may be done.
    pub(super) fn second_free_at(&self) -> Millis {
        self.free_at().saturating_add(self.cost)
    }

    /// Notes that one is done.
    pub fn spend(&mut self, now: Millis) {
        self.spend_at(now, now);
    }

    /// Notes that one was done at a moment. No more is spent than there is, whatever is noted.
    pub(super) fn spend_at(&mut self, at: Millis, now: Millis) {
        let spent = self.whole_at.max(at).saturating_add(self.cost);
        self.whole_at = spent.min(now.saturating_add(self.burst));
    }

    /// Takes in when it was to be whole by what was kept of it.
    pub(super) fn restore(&mut self, whole_at: Millis, now: Millis) {
        let latest = now.saturating_add(self.burst);
        self.whole_at = self.whole_at.max(whole_at.min(latest));
    }

    /// Takes back what was noted of one that was not done after all.
    pub fn give_back(&mut self) {
        self.whole_at = self.whole_at.saturating_sub(self.cost);
    }

    /// Whether all of it is there.
    pub fn is_whole(&self, now: Millis) -> bool {
        self.whole_at <= now
    }

    /// The clock was set back by so much, to this moment.
    pub(super) fn turn_back(&mut self, back: Millis, now: Millis) {
        if self.whole_at > now {
            self.whole_at = self.whole_at.saturating_sub(back);
        }
    }

    /// The span that it is for.
    pub(super) fn span(&self) -> Millis {
        self.burst
    }

    /// When all of it is there again, if nothing is done until then.
    pub(super) fn whole_at(&self) -> Millis {
        self.whole_at
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
    #[test]
    fn whatever_is_noted_no_more_is_spent_than_there_is() {
        let mut budget = Budget::new(3, 3_000);
        for _ in 0..1_000 {
            budget.spend_at(9_500, 10_000);
        }
        assert_eq!(budget.free_at(), 11_000);
        budget.restore(i64::MAX, 10_000);
        assert_eq!(budget.free_at(), 11_000);
        assert_eq!(budget.second_free_at(), 12_000);
        // What was kept is no less than what is known.
        budget.restore(0, 10_000);
        assert_eq!(budget.free_at(), 11_000);
    }
}
