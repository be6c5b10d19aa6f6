//! Domains that come one after the other, each of which is asked until it answers with the
//! certificate that was issued for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tokio::task::JoinSet;

use super::client::Client;
use super::place::Place;
use super::plan::{self, Plan};

/// How long a domain may take.
const DEADLINE: Duration = Duration::from_secs(180);

/// The pause between two looks at a domain, and the one that each domain which waits adds to it:
/// however many wait, looks take no more than that of the processor.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_EACH: Duration = Duration::from_millis(2);

/// The domains that have come.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Domains that are live.
    pub live: Vec<Arrival>,
    /// Reasons for which others are not.
    pub lost: Vec<String>,
    /// Moments at which the Ingresses of those that fail were written.
    pub failing: Vec<Instant>,
}

/// A domain that is live.
pub(super) struct Arrival {
    /// Its host.
    pub host: String,
    /// The time from the write of its Ingress to the first answer.
    pub after: Duration,
    /// The certificate of that, in DER.
    pub leaf: Vec<u8>,
}

/// The way in which domains come.
pub(super) struct Coming<'a> {
    /// The domains.
    pub plan: Plan,
    /// The place where they are written.
    pub place: &'a Place,
    /// The client that looks whether they are live.
    pub client: &'a Client,
    /// Domains that are written in a second.
    pub rate: f64,
    /// The number of those that are written so far.
    pub written: &'a AtomicU64,
    /// The bar that shows how many are live.
    pub bar: &'a ProgressBar,
}

impl Coming<'_> {
    /// Writes all domains, and waits until those that do not fail are live.
    ///
    /// # Errors
    /// One cannot be written.
    pub(super) async fn all(&self) -> anyhow::Result<Arrivals> {
        let (mut arrivals, mut tasks) = (Arrivals::default(), JoinSet::new());
        let waiting = Arc::new(AtomicU32::new(0));
        let start = Instant::now();
        for index in 0..self.plan.domains {
            let due = start + Duration::from_secs_f64(index as f64 / self.rate);
            tokio::time::sleep_until(due.into()).await;
            let host = plan::host(index);
            let written = self.place.write(&plan::name(index), &host).await?;
            self.written.fetch_add(1, Ordering::Relaxed);
            if self.plan.is_failing(index) {
                arrivals.failing.push(written);
                continue;
            }
            let (client, waiting, bar) = (self.client.clone(), waiting.clone(), self.bar.clone());
            tasks.spawn(async move {
                waiting.fetch_add(1, Ordering::Relaxed);
                let arrived = wait(&client, host, written, &waiting).await;
                waiting.fetch_sub(1, Ordering::Relaxed);
                bar.inc(1);
                arrived
            });
        }
        while let Some(arrived) = tasks.join_next().await {
            match arrived? {
                Ok(arrival) => arrivals.live.push(arrival),
                Err(why) => arrivals.lost.push(why),
            }
        }
        Ok(arrivals)
    }
}

async fn wait(
    client: &Client,
    host: String,
    written: Instant,
    waiting: &AtomicU32,
) -> Result<Arrival, String> {
    loop {
        let asked = client.ask(&host).await;
        let after = written.elapsed();
        match asked {
            Ok(leaf) => return Ok(Arrival { host, after, leaf }),
            Err(error) if after > DEADLINE => return Err(format!("{host}: {error:#}")),
            Err(_) => {
                let many = waiting.load(Ordering::Relaxed);
                tokio::time::sleep(PAUSE.max(PAUSE_EACH * many)).await;
            }
        }
    }
}
