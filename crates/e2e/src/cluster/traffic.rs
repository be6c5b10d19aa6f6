//! Live traffic: a client that asks existing domains all the time, and counts what went wrong.

mod client;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{interval, sleep};

use self::client::{Client, Fault};
use super::Cluster;
use crate::world::eventually_within;

/// Between an answer and the next request of a client without a pace of its own, so that it leaves
/// something of the machine to the others.
const PAUSE: Duration = Duration::from_millis(2);
/// How many of the things that went wrong are kept to be shown.
const SHOWN_MAX: usize = 8;
/// How long a new domain may take to be live: parts that failed wait up to 10 s before they ask
/// again, and the machine is busy.
const LIVE_DEADLINE: Duration = Duration::from_secs(60);

/// The addresses of the proxies; may change at any time.
pub type Addresses = watch::Receiver<Vec<SocketAddr>>;

/// The reaction of the client when a proxy breaks a connection or takes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Counts an error.
    Never,
    /// Asks the other proxies, and counts an error when none answers: proxies are being killed.
    Elsewhere,
}

/// A client that asks until it is stopped.
pub struct Traffic {
    shared: Arc<Shared>,
    client: Arc<Client>,
    addresses: Addresses,
    per_second: Option<u32>,
    task: tokio::task::JoinHandle<()>,
}

/// The outcomes of all requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests whose outcome counts.
    pub asked: usize,
    /// Answers that were not those of the domain.
    pub wrong: usize,
    /// Requests without an answer.
    pub errors: usize,
    /// The first of those that went wrong, in words.
    pub shown: Vec<String>,
}

#[derive(Default)]
struct Shared {
    hosts: Mutex<Vec<String>>,
    tally: Mutex<Tally>,
    /// The time of the first request.
    since: OnceLock<Instant>,
}

impl Traffic {
    /// Asks all proxies at these addresses in turn, and pauses after each answer.
    pub fn start(cluster: &Cluster, addresses: Addresses, retry: Retry) -> Traffic {
        Traffic::begin(cluster, addresses, retry, None)
    }

    /// Asks all proxies at these addresses in turn, so often a second. What it could not ask in
    /// time, since an answer took long, it asks as soon as it can.
    pub fn steady(cluster: &Cluster, addresses: Addresses, per_second: u32) -> Traffic {
        Traffic::begin(cluster, addresses, Retry::Never, Some(per_second))
    }

    fn begin(
        cluster: &Cluster,
        addresses: Addresses,
        retry: Retry,
        per_second: Option<u32>,
    ) -> Traffic {
        let shared = Arc::new(Shared::default());
        let client = Arc::new(Client::new(cluster.authority.root()));
        let asking = Asking {
            shared: shared.clone(),
            client: client.clone(),
            addresses: addresses.clone(),
            retry,
            per_second,
        };
        Traffic {
            shared,
            client,
            addresses,
            per_second,
            task: tokio::spawn(asking.run()),
        }
    }

    /// Asks this domain too, once every proxy has answered for it: from then on it is live, and
    /// has to stay so.
    ///
    /// # Panics
    /// When it does not become live in time, or a proxy gives a wrong answer before.
    pub async fn add(&self, host: &str) {
        let mut last = None;
        let live = eventually_within(LIVE_DEADLINE, async || {
            let addresses = self.addresses.borrow().clone();
            for address in addresses {
                match self.client.ask_anew(address, host).await {
                    Ok(()) => {}
                    Err(fault) => {
                        last = Some(fault.to_string());
                        return None;
                    }
                }
            }
            Some(())
        });
        if live.await.is_none() {
            panic!("{host} does not become live: {last:?}");
        }
        lock(&self.shared.hosts).push(host.to_owned());
    }

    /// Waits for so many more requests.
    ///
    /// # Panics
    /// When they do not come.
    pub async fn go_on(&self, requests: usize) {
        let asked = lock(&self.shared.tally).asked;
        self.reach(asked + requests).await;
    }

    /// Waits until a steady client has asked as often as it should have by now.
    ///
    /// # Panics
    /// When it does not get there.
    pub async fn keep_pace(&self) {
        let since = self.shared.since.get().zip(self.per_second);
        let due = since.map_or(Duration::ZERO, |(since, each)| since.elapsed() * each);
        let due = usize::try_from(due.as_secs()).expect("not that many");
        self.reach(due).await;
    }

    async fn reach(&self, enough: usize) {
        let asked = eventually_within(LIVE_DEADLINE, async || {
            (lock(&self.shared.tally).asked >= enough).then_some(())
        });
        asked.await.expect("the client goes on");
    }

    /// The outcomes so far.
    pub fn tally(&self) -> Tally {
        lock(&self.shared.tally).clone()
    }

    /// Stops, and says what became of all requests.
    pub fn stop(self) -> Tally {
        self.tally()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tally {
    /// Holds when nothing went wrong.
    ///
    /// # Panics
    /// When something did, or hardly anything was asked.
    pub fn assert_flawless(&self) {
        assert!(self.asked > 50, "{self:?}");
        assert!(self.wrong == 0 && self.errors == 0, "{self:?}");
    }

    fn count(&mut self, host: &str, outcome: Result<(), Fault>) {
        self.asked += 1;
        let Err(fault) = outcome else {
            return;
        };
        match fault {
            Fault::Wrong(_) => self.wrong += 1,
            Fault::Broken(_) => self.errors += 1,
        }
        if self.shown.len() < SHOWN_MAX {
            let number = self.asked;
            self.shown
                .push(format!("request {number}, {host}: {fault}"));
        }
    }
}

/// The task that asks.
struct Asking {
    shared: Arc<Shared>,
    client: Arc<Client>,
    addresses: Addresses,
    retry: Retry,
    per_second: Option<u32>,
}

impl Asking {
    async fn run(self) {
        while lock(&self.shared.hosts).is_empty() {
            sleep(PAUSE).await;
        }
        self.shared.since.get_or_init(Instant::now);
        let mut pace = self
            .per_second
            .map(|it| interval(Duration::from_secs(1) / it));
        for turn in 0_usize.. {
            match &mut pace {
                Some(pace) => drop(pace.tick().await),
                None => sleep(PAUSE).await,
            }
            let hosts = lock(&self.shared.hosts).clone();
            let addresses = self.addresses.borrow().clone();
            if addresses.is_empty() {
                continue;
            }
            let host = &hosts[turn % hosts.len()];
            let first = turn / hosts.len() % addresses.len();
            let outcome = self.ask(host, &addresses, first).await;
            lock(&self.shared.tally).count(host, outcome);
        }
    }

    async fn ask(&self, host: &str, addresses: &[SocketAddr], first: usize) -> Result<(), Fault> {
        let tries = match self.retry {
            Retry::Never => 1,
            Retry::Elsewhere => addresses.len(),
        };
        let mut outcome = Ok(());
        for address in addresses.iter().cycle().skip(first).take(tries) {
            outcome = self.client.ask(*address, host).await;
            if !matches!(outcome, Err(Fault::Broken(_))) {
                break;
            }
        }
        outcome
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
