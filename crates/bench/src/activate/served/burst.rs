//! Many Ingresses at once, whose Secrets, Services and slices exist.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::cluster::api::{Api, Write};
use crate::cluster::parts::Home;
use crate::cluster::tenant::{Kind, Tenant};
use crate::domains::{Domain, Generator};
use crate::probe::Prober;

/// Numbers from here on are those of bursts: beyond all others, and of the same width.
const NUMBER_MIN: u64 = 90_000_001;

/// Threads that probe. More would take from the proxy what they measure.
const PROBERS: usize = 2;

/// How long what a burst needs is left to settle before it.
const SETTLING: Duration = Duration::from_secs(2);

/// How often a prober looks for the next answer.
const LOOK_INTERVAL: Duration = Duration::from_micros(500);

/// The parts that a burst needs.
pub(super) struct Run<'a> {
    pub api: Api,
    pub tenant: &'a Tenant,
    pub generator: &'a Generator,
    pub count: u64,
}

/// How a burst comes through.
#[derive(Debug, Serialize)]
pub(super) struct Burst {
    /// Ingresses.
    ingresses: u64,
    /// The time from the first POST to the answer of the last.
    post_ms: f64,
    /// The time from there until a client has seen all of them live.
    live_ms: f64,
}

/// The domains in the order in which they were posted, for those who probe.
struct Posted {
    /// Indices of domains whose POST was answered.
    order: Mutex<Vec<usize>>,
    taken: AtomicUsize,
}

impl Run<'_> {
    /// Creates what Ingresses need, posts them, waits until all are live, and deletes everything.
    pub(super) fn run(&self, runtime: &Runtime) -> anyhow::Result<Burst> {
        let domains = (0..self.count).map(|turn| self.generator.domain(NUMBER_MIN + 2 * turn, 0));
        let domains: Arc<[Domain]> = domains.collect::<anyhow::Result<Vec<_>>>()?.into();
        let needs = domains.iter().flat_map(|domain| {
            let create = |kind| self.tenant.create(kind, domain);
            Kind::NEEDS.into_iter().filter_map(create)
        });
        runtime.block_on(self.write_all(needs))?;
        std::thread::sleep(SETTLING);
        let burst = self.post(runtime, &domains)?;
        let kinds = [Kind::Ingress].into_iter().chain(Kind::NEEDS);
        for kind in kinds {
            let deletes = domains.iter().filter_map(|it| self.tenant.delete(kind, it));
            runtime.block_on(self.write_all(deletes))?;
        }
        Ok(burst)
    }

    async fn write_all(&self, writes: impl Iterator<Item = Write>) -> anyhow::Result<()> {
        let write = |api: Api, write| async move { api.write(write).await };
        self.api.for_each(writes, write).await
    }

    fn post(&self, runtime: &Runtime, domains: &Arc<[Domain]>) -> anyhow::Result<Burst> {
        let posts = domains.iter().enumerate();
        let posts = posts.filter_map(|(at, it)| Some((at, self.tenant.create(Kind::Ingress, it)?)));
        let posts: Vec<_> = posts.collect();
        let posted = Arc::new(Posted {
            order: Mutex::new(Vec::with_capacity(posts.len())),
            taken: AtomicUsize::new(0),
        });
        let prober = Prober::new(Home::https())?;
        let mut threads = Vec::new();
        for _ in 0..PROBERS {
            let (posted, prober, domains) = (posted.clone(), prober.clone(), domains.clone());
            let wanted = domains.iter().map(|it| self.generator.answer(it));
            let wanted: Vec<_> = wanted.collect();
            threads.push(std::thread::spawn(move || {
                let mut last = Instant::now();
                while let Some(at) = posted.next(domains.len()) {
                    last = prober.find(&domains[at].host, &wanted[at])?.at;
                }
                anyhow::Ok(last)
            }));
        }
        let begun = Instant::now();
        let post = |api: Api, (at, write)| {
            let posted = &posted;
            async move {
                api.write(write).await?;
                posted.push(at);
                Ok(())
            }
        };
        runtime.block_on(self.api.for_each(posts.into_iter(), post))?;
        let answered = Instant::now();
        let mut live = answered;
        for thread in threads {
            live = live.max(thread.join().ok().context("a prober panicked")??);
        }
        Ok(Burst {
            ingresses: self.count,
            post_ms: milliseconds(answered - begun),
            live_ms: milliseconds(live - answered),
        })
    }
}

impl Posted {
    fn push(&self, at: usize) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.push(at);
    }

    /// The next one to probe, which may have to be waited for; none after so many.
    fn next(&self, count: usize) -> Option<usize> {
        let turn = self.taken.fetch_add(1, Ordering::Relaxed);
        if turn >= count {
            return None;
        }
        loop {
            let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = order.get(turn) {
                return Some(*at);
            }
            drop(order);
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_probed_once_in_the_order_of_the_answers() {
        let posted = Posted {
            order: Mutex::new(vec![2, 0]),
            taken: AtomicUsize::new(0),
        };
        assert_eq!(posted.next(3), Some(2));
        assert_eq!(posted.next(3), Some(0));
        posted.push(1);
        assert_eq!(posted.next(3), Some(1));
        assert_eq!(posted.next(3), None);
    }
}
