//! A follower that sees what proxies are told, and when.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use myriad_base::drain::Drain;
use myriad_model::{Kind, Snapshot};
use myriad_sync::{Apply, Client, ClientCounters, Delivery, Refusal};

use super::follower::{Received, Way};

/// How long the first snapshot may take.
const FILL_TIMEOUT: Duration = Duration::from_secs(120);

/// How often it is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A follower on a thread of its own, until this is dropped.
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    received: Received,
    drain: Drain,
}

/// The events that were seen so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Commits that changed something.
    pub commits: u64,
    /// Resources that came or changed, by kind in the order of [`Kind::ALL`].
    pub resources: [u64; Kind::ALL.len()],
    /// When a domain came or changed for the last time.
    pub domain_at: Option<Instant>,
    /// When a route did.
    pub route_at: Option<Instant>,
    /// Domains that are there.
    pub domains: u64,
    /// Routes that are there.
    pub routes: u64,
    /// Resources that are there.
    pub held: u64,
}

struct Recorder(Arc<Mutex<Seen>>);

impl Observer {
    /// Starts to follow.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn start(way: &Way) -> anyhow::Result<Observer> {
        let observer = Observer {
            seen: Arc::default(),
            received: Received::default(),
            drain: Drain::new(),
        };
        let settings = way.settings("observer".to_owned(), observer.received.clone());
        let client = Client::new(settings, Snapshot::new(), None, ClientCounters::default());
        let mut recorder = Recorder(observer.seen.clone());
        let drained = observer.drain.holder();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("observer".to_owned());
        thread.spawn(move || runtime.block_on(client.run(&mut recorder, drained)))?;
        Ok(observer)
    }

    /// Waits until so many are there of what this counts.
    ///
    /// # Errors
    /// They do not come in time.
    pub fn wait_for(&self, wanted: u64, counted: fn(&Seen) -> u64) -> anyhow::Result<()> {
        let start = Instant::now();
        while counted(&self.seen()) < wanted {
            if start.elapsed() > FILL_TIMEOUT {
                let there = counted(&self.seen());
                bail!("{there} of {wanted} resources after {FILL_TIMEOUT:?}");
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// The events that were seen so far.
    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Bytes that arrived.
    pub fn bytes(&self) -> u64 {
        self.received.bytes()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.drain.start();
    }
}

impl Seen {
    /// Resources seen since an earlier look, by the word for their kind; none of those that did
    /// not change.
    pub fn since(&self, before: &Seen) -> Vec<(&'static str, u64)> {
        let pairs = self.resources.iter().zip(before.resources);
        let counts = pairs.map(|(now, before)| now - before);
        let named = Kind::ALL.into_iter().map(Kind::as_str).zip(counts);
        named.filter(|(_, count)| *count > 0).collect()
    }
}

impl Apply for Recorder {
    async fn apply(&mut self, delivery: Delivery) -> Vec<Refusal> {
        let now = Instant::now();
        let mut seen = lock(&self.0);
        seen.commits += u64::from(!delivery.commit.changes.is_empty());
        for change in &delivery.commit.changes {
            let Some(new) = &change.new else { continue };
            let kind = new.key().kind;
            let place = Kind::ALL.iter().position(|known| *known == kind);
            if let Some(count) = place.and_then(|at| seen.resources.get_mut(at)) {
                *count += 1;
            }
            if kind == Kind::Domain {
                seen.domain_at = Some(now);
            }
            if kind == Kind::Route {
                seen.route_at = Some(now);
            }
        }
        Vec::new()
    }

    fn rekey(&mut self, _: [u8; 32]) {}

    async fn holds(&mut self, held: &Snapshot) {
        let mut seen = lock(&self.0);
        seen.domains = held.count(Kind::Domain) as u64;
        seen.routes = held.count(Kind::Route) as u64;
        seen.held = held.len() as u64;
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_counted_by_kind() {
        let before = Seen::default();
        let mut now = Seen::default();
        now.resources[5] = 3;
        assert_eq!(now.since(&before), [("endpoints", 3)]);
    }
}
