//! Many followers in one process. They share the memory of what they hold: each starts from the
//! same snapshot, and has its own only of what changed since.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use myriad_base::drain::Drain;
use myriad_model::{Digest, Kind, Snapshot};
use myriad_sync::{Apply, Client, ClientCounters, ClientError, Delivery, Refusal};
use tokio::runtime::Runtime;

use super::tally::{InStep, Tally};
use crate::cluster::follower::{Received, Way};

/// How long the fleet may take to get in step.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A fleet.
pub(super) struct Proxies {
    tally: Arc<Tally>,
    received: Vec<Received>,
    drain: Drain,
    runtime: Runtime,
}

/// The resources that all proxies hold at first, and the key of the cluster.
pub(super) struct Pattern {
    held: Snapshot,
    key: Option<[u8; 32]>,
}

/// Follows until everything is there.
struct First {
    domains: u64,
    drain: Drain,
    key: Option<[u8; 32]>,
}

/// Tells where it is.
struct Simulated {
    number: usize,
    tally: Arc<Tally>,
}

/// The kinds that a domain of the bench is made of, each at least once.
const OF_A_DOMAIN: [Kind; 5] = [
    Kind::Domain,
    Kind::Certificate,
    Kind::Route,
    Kind::Upstream,
    Kind::Endpoints,
];

/// The messages that a single proxy gets from an empty start to this number of domains.
///
/// # Errors
/// It does not get there in time.
pub(super) fn pattern(way: &Way, domains: u64) -> anyhow::Result<Pattern> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let settings = way.settings("pattern".to_owned(), Received::default());
    let client = Client::new(settings, Snapshot::new(), None, ClientCounters::default());
    let drain = Drain::new();
    let drained = drain.holder();
    let mut first = First {
        domains,
        drain,
        key: None,
    };
    let followed = runtime
        .block_on(async { tokio::time::timeout(TIMEOUT, client.run(&mut first, drained)).await });
    Ok(Pattern {
        held: followed.context("the first proxy does not get everything")?,
        key: first.key,
    })
}

impl Pattern {
    /// Nothing.
    pub(super) fn empty() -> Pattern {
        Pattern {
            held: Snapshot::new(),
            key: None,
        }
    }
}

impl Proxies {
    /// Starts so many, all at once, spread over the ways in turn.
    ///
    /// # Errors
    /// The errors of the system.
    pub(super) fn start(
        ways: &[Way],
        pattern: &Pattern,
        count: usize,
        threads: usize,
    ) -> anyhow::Result<Proxies> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?;
        let (tally, drain) = (Arc::new(Tally::new(count)), Drain::new());
        let received: Vec<_> = (0..count).map(|_| Received::default()).collect();
        let ways = ways.iter().cycle();
        for ((number, received), way) in received.iter().enumerate().zip(ways) {
            let settings = way.settings(format!("proxy-{number}"), received.clone());
            let held = pattern.held.clone();
            let client = Client::new(settings, held, pattern.key, ClientCounters::default());
            let (tally, drained) = (tally.clone(), drain.holder());
            let mut simulated = Simulated { number, tally };
            runtime.spawn(async move { client.run(&mut simulated, drained).await });
        }
        Ok(Proxies {
            tally,
            received,
            drain,
            runtime,
        })
    }

    /// Waits until all are in one state, which is not this one.
    ///
    /// # Errors
    /// They do not get there in time.
    pub(super) fn wait_in_step(&self, but: Option<Digest>) -> anyhow::Result<InStep> {
        self.tally.wait_in_step(but, TIMEOUT)
    }

    /// Waits until all are in this state, and says since when.
    ///
    /// # Errors
    /// They do not get there in time.
    pub(super) fn wait_at(&self, digest: Digest) -> anyhow::Result<Instant> {
        self.tally.wait_at(digest, TIMEOUT)
    }

    /// Waits until none follows a controller.
    ///
    /// # Errors
    /// One does all the time.
    pub(super) fn wait_alone(&self) -> anyhow::Result<()> {
        self.tally.wait_alone(TIMEOUT)
    }

    /// Changes of endpoints that each was told so far.
    pub(super) fn told(&self) -> Vec<u64> {
        self.tally.told()
    }

    /// Bytes that arrived so far, at each.
    pub(super) fn bytes(&self) -> Vec<u64> {
        self.received.iter().map(Received::bytes).collect()
    }

    /// Ends all.
    pub(super) fn stop(self) {
        self.drain.start();
        self.runtime.block_on(self.drain.finished());
    }
}

impl Apply for First {
    async fn apply(&mut self, _: Delivery) -> Vec<Refusal> {
        Vec::new()
    }

    fn rekey(&mut self, key: [u8; 32]) {
        self.key = Some(key);
    }

    async fn holds(&mut self, held: &Snapshot) {
        // Commits are cut: that all domains are there does not say that all else is.
        let count = |kind| held.count(kind) as u64;
        let is_complete = |kind| count(kind) >= self.domains;
        if count(Kind::Listener) > 0 && OF_A_DOMAIN.into_iter().all(is_complete) {
            self.drain.start();
        }
    }
}

impl Apply for Simulated {
    async fn apply(&mut self, delivery: Delivery) -> Vec<Refusal> {
        let changes = delivery.commit.changes.iter();
        let told = changes.filter(|change| change.key.kind == Kind::Endpoints);
        self.tally.tell(self.number, told.count() as u64);
        Vec::new()
    }

    fn rekey(&mut self, _: [u8; 32]) {}

    async fn holds(&mut self, held: &Snapshot) {
        self.tally.set(self.number, Some(held.digest()));
    }

    fn disconnected(&mut self, _: &ClientError) {
        self.tally.set(self.number, None);
    }
}
