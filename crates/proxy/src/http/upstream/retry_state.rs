//! The tries that are left for a request, and the bounds on the repetitions of all requests.

use std::time::Duration;

use myriad_model::{Retry, Share};

use crate::balance::usage::{HeldUsage, UsageKind};
use crate::balance::{Pool, now_ms};
use crate::http::plan::Forward;
use crate::http::worker::Worker;
use crate::policy::retry::{self, Event};
use crate::telemetry::count::Count;
use crate::upstream::entry::UpstreamEntry;

/// Repetitions that an upstream always has room for: so few are no outage, and where few requests
/// come at once, a fifth of them would be less than their routes allow.
const REPEATING_MIN: u32 = 16;

/// One of how many requests in flight at an upstream may be a repetition: an outage must not be
/// multiplied by those who wait for its end.
const REPEATING_ONE_OF: u32 = 5;

/// The tries that are left.
pub struct RetryState {
    /// Another endpoint, where there is no connection to the first and the route does not say
    /// what leads to repetitions.
    pub may_change: bool,
    /// A fresh connection, where the endpoint had closed the reused one.
    pub may_reuse: bool,
    /// Repetitions that the route allows.
    left: u8,
    /// The status of an answer that a page takes the place of.
    pub replaced: Option<u16>,
    made: u8,
    repeating: Option<HeldUsage>,
}

impl RetryState {
    /// The tries that a route allows.
    pub fn new(plan: &Forward) -> Self {
        let rule = plan.retry();
        note(&plan.upstream);
        RetryState {
            may_change: rule.is_none(),
            may_reuse: true,
            left: rule.map_or(0, |rule| rule.attempts.min(Retry::ATTEMPTS_MAX)),
            replaced: None,
            made: 0,
            repeating: None,
        }
    }

    /// Whether an answer is not passed on, because a page takes its place.
    pub fn replaces(&mut self, plan: &Forward, status: u16) -> bool {
        self.replaced = plan.is_replaced(status).then_some(status);
        self.replaced.is_some()
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
            self.repeating = begin(&plan.upstream, pool);
        }
        if self.repeating.is_none() {
            worker.local.counts.add(Count::RetryRefused);
            return false;
        }
        note(&plan.upstream);
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

/// Counts a try, where its upstream asks how many there were.
fn note(upstream: &UpstreamEntry) {
    let budget = upstream.options().and_then(|options| options.retry_budget);
    if let Some(budget) = budget.filter(|budget| !budget.interval.is_zero()) {
        upstream.usage.note_try(budget.interval, now_ms());
    }
}

/// Counts a repetition; none where the upstream has as many as it may.
fn begin(upstream: &UpstreamEntry, pool: &Pool) -> Option<HeldUsage> {
    let options = upstream.options();
    let own = options.map_or(0, |options| options.limits.retries_max);
    let budget = options.and_then(|options| options.retry_budget);
    let max = match budget {
        Some(budget) => {
            let recent = match budget.interval.is_zero() {
                true => 0,
                false => upstream.usage.tries(budget.interval, now_ms()),
            };
            let counted = u64::from(pool.active().max(recent)) * u64::from(budget.share.ppm());
            let of_share = u32::try_from(counted / u64::from(Share::ALL.ppm()));
            of_share.unwrap_or(u32::MAX).max(budget.retries_min)
        }
        None if own > 0 => own,
        None => (pool.active() / REPEATING_ONE_OF).max(REPEATING_MIN),
    };
    // Where a budget allows none, there is none; elsewhere 0 stands for no bound.
    (max > 0)
        .then(|| HeldUsage::take(&upstream.usage, UsageKind::Retries, max))
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_model::{
        Form, Origin, OriginKind, Protocol, Resource, RetryBudget, Sealer, Share, Upstream,
        UpstreamOptions, Value,
    };

    use super::{HeldUsage, REPEATING_MIN, begin, note};
    use crate::balance::{Endpoint, Flight, Member, Pool, TransportSettings};
    use crate::upstream::endpoint::EndpointTable;
    use crate::upstream::entry::{Parts, UpstreamEntry};

    fn fill(upstream: &UpstreamEntry, pool: &Pool) -> Vec<HeldUsage> {
        std::iter::from_fn(|| begin(upstream, pool)).collect()
    }

    fn pool() -> (Pool, Arc<Endpoint>) {
        let target = Arc::new(Endpoint::new(
            ([192, 0, 2, 1], 80).into(),
            TransportSettings::shared(None),
        ));
        let member = Member {
            target: target.clone(),
            weight: 1,
            priority: 0,
        };
        (Pool::new([member].into_iter()), target)
    }

    #[test]
    fn repetitions_are_bounded_by_requests_in_flight() {
        let mut targets = EndpointTable::new();
        let upstream = UpstreamEntry::new("u".into(), None, Parts::new(), &mut targets, None);
        let (pool, target) = pool();
        assert_eq!(fill(&upstream, &pool).len(), REPEATING_MIN as usize);
        let flights: Vec<Flight> = (0..100).map(|_| Flight::start(target.clone())).collect();
        let repeating = fill(&upstream, &pool);
        assert_eq!(repeating.len(), 20);
        drop((flights, repeating));
        assert_eq!(fill(&upstream, &pool).len(), REPEATING_MIN as usize);
    }

    #[test]
    fn an_upstream_may_say_how_many_repetitions_it_bears() {
        let with = |change: fn(&mut UpstreamOptions)| {
            let mut options = UpstreamOptions::default();
            change(&mut options);
            let value = Value::Upstream(Box::new(Upstream {
                protocol: Protocol::Http1,
                dns: None,
                tls: None,
                options: Some(Box::new(options)),
                original_destination: false,
                source_address: None,
            }));
            let origin = Origin {
                kind: OriginKind::Ingress,
                id: "ns/u".into(),
            };
            let mut sealer = Sealer::new([7; 32], Form::Value);
            let sealed = sealer.seal("u".into(), Resource { origin, value });
            let mut targets = EndpointTable::new();
            UpstreamEntry::new(
                "u".into(),
                Some(sealed.into()),
                Parts::new(),
                &mut targets,
                None,
            )
        };
        let (pool, target) = pool();
        let _flights: Vec<Flight> = (0..50).map(|_| Flight::start(target.clone())).collect();
        let counted = |change| fill(&with(change), &pool).len();
        assert_eq!(counted(|options| options.limits.retries_max = 4), 4);
        assert_eq!(
            counted(|options| {
                options.retry_budget = Some(RetryBudget {
                    share: Share::from_ppm(400_000).unwrap(),
                    retries_min: 3,
                    interval: Duration::ZERO,
                });
            }),
            20
        );
        assert_eq!(
            counted(|options| {
                options.retry_budget = Some(RetryBudget {
                    share: Share::from_ppm(0).unwrap(),
                    retries_min: 0,
                    interval: Duration::ZERO,
                });
            }),
            0
        );
        // Of those that have ended in the meantime, too.
        let upstream = with(|options| {
            options.retry_budget = Some(RetryBudget {
                share: Share::from_ppm(100_000).unwrap(),
                retries_min: 1,
                interval: Duration::from_secs(600),
            });
        });
        assert_eq!(fill(&upstream, &pool).len(), 5);
        (0..200).for_each(|_| note(&upstream));
        assert_eq!(fill(&upstream, &pool).len(), 20);
    }
}
