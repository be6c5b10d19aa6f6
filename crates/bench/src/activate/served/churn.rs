//! Endpoints that come and go, spread over the domains, at a constant rate.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use super::spread;
use crate::child::Counts;
use crate::cluster::api::Api;
use crate::cluster::observer::Observer;
use crate::cluster::process::Process;
use crate::cluster::tenant::{Kind, Tenant};
use crate::domains::Generator;

/// How long the last changes may take to reach the observer.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often it is looked whether they have.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The parts that a churn needs.
pub(super) struct Run<'a> {
    pub api: Api,
    pub tenant: &'a Tenant,
    pub generator: &'a Generator,
    pub observer: &'a Observer,
    pub controller: &'a Process,
    pub domains: u64,
    pub per_second: u32,
    pub seconds: u64,
}

/// The cost of a churn.
#[derive(Debug, Serialize)]
pub(super) struct Churn {
    /// Endpoints that were changed.
    changes: u64,
    /// The rate at which the API server took them.
    changes_per_second: f64,
    /// Processor time of the controller, in percent of one core.
    controller_percent: f64,
    /// Resources that were sent to a proxy, by kind: one of endpoints per change, and no other.
    resources_sent: BTreeMap<&'static str, u64>,
    /// Calls of keyed translation functions.
    units_translated: u64,
    /// Bytes that a proxy received per change.
    bytes_per_change: f64,
}

impl Run<'_> {
    /// Changes endpoints at the rate, each one back in the end, and waits for the last to arrive.
    pub(super) async fn run(&self) -> anyhow::Result<Churn> {
        let (touched, rounds) = plan(self.domains, u64::from(self.per_second) * self.seconds);
        let changes = touched * rounds;
        let seen_before = self.observer.seen();
        let (worked_before, begun) = (self.controller.processor_time()?, Instant::now());
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / self.per_second);
        let mut writes = JoinSet::new();
        for change in 0..changes {
            let index = spread(change % touched, touched, self.domains);
            let domain = self.generator.domain(Generator::existing(index), 0)?;
            let is_moved = (change / touched).is_multiple_of(2);
            let domain = match is_moved {
                true => self.generator.moved(domain),
                false => domain,
            };
            let write = self.tenant.replace(Kind::EndpointSlice, &domain);
            ticks.tick().await;
            let api = self.api.clone();
            writes.spawn(async move {
                match write {
                    Some(write) => api.write(write).await,
                    None => Ok(()),
                }
            });
            while let Some(written) = writes.try_join_next() {
                written??;
            }
        }
        while let Some(written) = writes.join_next().await {
            written??;
        }
        let took = begun.elapsed();
        self.wait_for(seen_before.resources.iter().sum::<u64>() + changes)
            .await;
        let worked = self.controller.processor_time()? - worked_before;
        let percent = worked.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
        let sent = self.observer.seen().since(&seen_before);
        Ok(Churn {
            changes,
            changes_per_second: (changes as f64 / took.as_secs_f64()).round(),
            controller_percent: (percent * 10.0).round() / 10.0,
            resources_sent: sent.into_iter().collect(),
            units_translated: 0,
            bytes_per_change: 0.0,
        })
    }

    /// Waits until the observer has seen so many resources; what never comes shows in the count.
    async fn wait_for(&self, resources: u64) {
        let start = Instant::now();
        while self.observer.seen().resources.iter().sum::<u64>() < resources
            && start.elapsed() < SETTLE_TIMEOUT
        {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

impl Churn {
    /// Takes over what was counted meanwhile.
    pub(super) fn count(&mut self, before: &Counts, after: &Counts) {
        let counts = after.since(before);
        self.units_translated = counts.units_translated;
        let bytes = counts.bytes_received as f64 / self.changes.max(1) as f64;
        self.bytes_per_change = bytes.round();
    }
}

/// How many domains are touched, and how often each: as often away as back.
fn plan(domains: u64, changes: u64) -> (u64, u64) {
    let touched = domains.min(changes / 2).max(1);
    let rounds = (changes / touched) & !1;
    (touched, rounds.max(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_that_moves_away_moves_back() {
        assert_eq!(plan(20_000, 1_000), (500, 2));
        assert_eq!(plan(100, 1_000), (100, 10));
        assert_eq!(plan(300, 1_000), (300, 2));
        assert_eq!(plan(50, 1), (1, 2));
    }
}
