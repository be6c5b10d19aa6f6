//! What may still be tried of a request, and what bounds the repetitions of all requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use myriad_model::Retry;

use super::plan::Forward;
use super::worker::Worker;
use crate::balance::Pool;
use crate::net::count::Count;
use crate::policy::retry::{self, Event};
use crate::upstream::entry::UpstreamEntry;

/// Repetitions that an upstream always has room for.
const REPEATING_MIN: u32 = 3;

/// One of how many requests in flight at an upstream may be a repetition: an outage must not be
/// multiplied by those who wait for its end.
const REPEATING_ONE_OF: u32 = 5;

/// What may still be tried.
pub struct Tries {
    /// Another endpoint, where there is no connection to the first and the route does not say
    /// what leads to repetitions.
    pub may_change: bool,
    /// A fresh connection, where the endpoint had closed the reused one.
    pub may_reuse: bool,
    /// Repetitions that the route allows.
    left: u8,
    made: u8,
    repeating: Option<Repeating>,
}

/// A repetition in flight at an upstream; counted until it is dropped.
struct Repeating(Arc<UpstreamEntry>);

impl Tries {
    /// What a route allows.
    pub fn new(plan: &Forward) -> Self {
        let rule = plan.retry();
        Tries {
            may_change: rule.is_none(),
            may_reuse: true,
            left: rule.map_or(0, |rule| rule.attempts.min(Retry::ATTEMPTS_MAX)),
            made: 0,
            repeating: None,
        }
    }

    /// Takes one of the repetitions that are left, if what became of the last try leads to one
    /// and there is room for it at the upstream, of which `pool` are the endpoints.
    pub fn take(&mut self, worker: &Worker, plan: &Forward, pool: &Pool, event: Event<'_>) -> bool {
        let Some(rule) = plan.retry() else {
            return false;
        };
        if self.left == 0 || !retry::is_repeated(rule, event) {
            return false;
        }
        if self.repeating.is_none() {
            self.repeating = Repeating::start(&plan.upstream, pool);
        }
        if self.repeating.is_none() {
            worker.local.counts.add(Count::RetryRefused);
            return false;
        }
        self.left -= 1;
        self.made += 1;
        worker.local.counts.add(Count::UpstreamRetried);
        true
    }

    /// How long to wait before the repetition that was taken last.
    pub fn wait(&self, worker: &Worker, plan: &Forward) -> Duration {
        plan.retry().map_or(Duration::ZERO, |rule| {
            retry::wait(rule, self.made.saturating_sub(1), &worker.local.dice)
        })
    }
}

impl Repeating {
    /// Counts a repetition; none where the upstream has as many as it may.
    fn start(upstream: &Arc<UpstreamEntry>, pool: &Pool) -> Option<Self> {
        let bound = (pool.active() / REPEATING_ONE_OF).max(REPEATING_MIN);
        let before = upstream.repeating.fetch_add(1, Ordering::Relaxed);
        let repeating = Repeating(upstream.clone());
        (before < bound).then_some(repeating)
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        self.0.repeating.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{REPEATING_MIN, Repeating};
    use crate::balance::{Flight, Member, Pool, Target};
    use crate::upstream::entry::UpstreamEntry;
    use crate::upstream::target::Targets;

    #[test]
    fn repetitions_are_bounded_by_requests_in_flight() {
        let mut targets = Targets::new();
        let upstream = Arc::new(UpstreamEntry::new("u".into(), None, None, &mut targets));
        let target = Arc::new(Target::new(([192, 0, 2, 1], 80).into(), None));
        let member = Member {
            target: target.clone(),
            weight: 1,
        };
        let pool = Pool::new([member].into_iter());
        let fill = || -> Vec<Repeating> {
            std::iter::from_fn(|| Repeating::start(&upstream, &pool)).collect()
        };
        assert_eq!(fill().len(), REPEATING_MIN as usize);
        let flights: Vec<Flight> = (0..50).map(|_| Flight::start(target.clone())).collect();
        let repeating = fill();
        assert_eq!(repeating.len(), 10);
        drop((flights, repeating));
        assert_eq!(fill().len(), REPEATING_MIN as usize);
    }
}
