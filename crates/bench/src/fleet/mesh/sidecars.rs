//! Many followers in one process, each of which sees something else and tells how far it is.

use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use myriad_base::drain::Drain;
use myriad_model::{Kind, Snapshot, Value};
use myriad_sync::{Apply, Client, ClientCounters, ClientError, Delivery, Refusal};
use tokio::runtime::Runtime;

use super::objects::{FIRST_PORT, Pod, TELLING};
use crate::cluster::follower::{Received, Way};

/// How long sidecars may take to get in step.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// An endpoint of a Service.
    Endpoint,
    /// A port of a Service.
    Port,
}

/// Sidecars.
pub(super) struct Sidecars {
    /// The ways to all controllers.
    ways: Vec<Way>,
    services: usize,
    board: Arc<Board>,
    received: Vec<Received>,
    drain: Drain,
    runtime: Runtime,
}

/// How far each sidecar is.
#[derive(Default)]
struct Board {
    state: Mutex<Vec<State>>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
struct State {
    namespace: usize,
    /// When it first held all.
    complete: Option<Instant>,
    /// The newest change of an endpoint and of a port that it was told, and when.
    endpoint: (u32, Instant),
    port: (u32, Instant),
    /// How many changes of endpoints it was told, and of ports that it did not know.
    endpoints_told: u64,
    ports_told: u64,
}

/// Tells how far it is.
struct Follower {
    number: usize,
    services: usize,
    board: Arc<Board>,
}

impl Sidecars {
    /// None at first. Each is complete when it has so many Services.
    ///
    /// # Errors
    /// The errors of the system.
    pub(super) fn new(ways: Vec<Way>, services: usize, threads: usize) -> anyhow::Result<Sidecars> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?;
        Ok(Sidecars {
            ways,
            services,
            board: Arc::default(),
            received: Vec::new(),
            drain: Drain::new(),
            runtime,
        })
    }

    /// Starts that of a Pod, by whose number it is with one of the controllers.
    ///
    /// # Errors
    /// There is no controller.
    pub(super) fn start(&mut self, pod_number: usize, pod: Pod) -> anyhow::Result<()> {
        let received = Received::default();
        let way = self.ways.get(pod_number % self.ways.len().max(1));
        let way = way.context("there is a controller")?;
        let way = way.with_token(&pod.token);
        let settings = way.settings(pod.name, received.clone());
        let number = self.received.len();
        self.received.push(received);
        let now = Instant::now();
        self.board.lock().push(State {
            namespace: pod.namespace,
            complete: None,
            endpoint: (0, now),
            port: (0, now),
            endpoints_told: 0,
            ports_told: 0,
        });
        let mut follower = Follower {
            number,
            services: self.services,
            board: self.board.clone(),
        };
        let client = Client::new(settings, Snapshot::new(), None, ClientCounters::default());
        let drained = self.drain.holder();
        self.runtime
            .spawn(async move { client.run(&mut follower, drained).await });
        Ok(())
    }

    /// Waits until all hold everything, and says since when.
    ///
    /// # Errors
    /// They do not get there in time.
    pub(super) fn wait_complete(&self) -> anyhow::Result<Instant> {
        self.board.wait("hold everything", |states| {
            let mut last = Instant::now();
            for (at, state) in states.iter().enumerate() {
                let complete = state.complete?;
                last = if at == 0 {
                    complete
                } else {
                    last.max(complete)
                };
            }
            Some(last)
        })
    }

    /// Waits until all of a namespace were told a change, and says since when.
    ///
    /// # Errors
    /// They do not get there in time.
    pub(super) fn wait_told(
        &self,
        namespace: usize,
        what: Told,
        turn: u32,
    ) -> anyhow::Result<Instant> {
        self.board.wait("were told a change", |states| {
            let own = states.iter().filter(|state| state.namespace == namespace);
            let told = own.map(|state| match what {
                Told::Endpoint => state.endpoint,
                Told::Port => state.port,
            });
            let told: Option<Vec<Instant>> = told
                .map(|(known, at)| (known >= turn).then_some(at))
                .collect();
            told?.into_iter().max()
        })
    }

    /// The namespace of each, and how many changes of this kind it was told so far.
    pub(super) fn told(&self, what: Told) -> Vec<(usize, u64)> {
        let states = self.board.lock();
        let told = states.iter().map(|state| match what {
            Told::Endpoint => (state.namespace, state.endpoints_told),
            Told::Port => (state.namespace, state.ports_told),
        });
        told.collect()
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

impl Board {
    fn wait<T>(&self, what: &str, find: impl Fn(&[State]) -> Option<T>) -> anyhow::Result<T> {
        let waiting = |states: &mut Vec<State>| find(states).is_none();
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), TIMEOUT, waiting);
        let (states, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let complete = states.iter().filter(|state| state.complete.is_some());
        let (complete, all) = (complete.count(), states.len());
        find(&states).with_context(|| {
            format!("not all sidecars {what} in {TIMEOUT:?}; {complete} of {all} are complete")
        })
    }

    fn set(&self, number: usize, set: impl FnOnce(&mut State) -> bool) {
        let mut states = self.lock();
        if states.get_mut(number).is_some_and(set) {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Apply for Follower {
    async fn apply(&mut self, delivery: Delivery) -> Vec<Refusal> {
        let now = Instant::now();
        let (mut endpoint, mut port) = (0, 0);
        for change in &delivery.commit.changes {
            let Some(resource) = change.new.as_ref().and_then(|it| it.resource()) else {
                continue;
            };
            match &resource.value {
                Value::Endpoints(endpoints) => {
                    let all = endpoints.endpoints.iter();
                    endpoint = all
                        .filter_map(|it| turn_of(it.address.ip()))
                        .fold(endpoint, u32::max);
                }
                Value::Upstream(_) => {
                    let number = change.key.name.as_str().rsplit(':').next();
                    let number = number.and_then(|it| it.parse::<u32>().ok()).unwrap_or(0);
                    port = port.max(number.saturating_sub(FIRST_PORT));
                }
                _ => {}
            }
        }
        self.board.set(self.number, |state| {
            state.endpoints_told += u64::from(endpoint > 0);
            if endpoint > state.endpoint.0 {
                state.endpoint = (endpoint, now);
            }
            if port > state.port.0 {
                state.port = (port, now);
                state.ports_told += 1;
            }
            endpoint + port > 0
        });
        Vec::new()
    }

    fn rekey(&mut self, _: [u8; 32]) {}

    async fn holds(&mut self, held: &Snapshot) {
        // Removals and what refers to others go last, so a route has all that it leads to.
        let is_complete = held.count(Kind::Route) > self.services
            && held.count(Kind::Endpoints) >= self.services
            && held.count(Kind::Listener) > 0;
        self.board.set(self.number, |state| {
            let is_new = is_complete && state.complete.is_none();
            if is_new {
                state.complete = Some(Instant::now());
            }
            is_new
        });
    }

    fn disconnected(&mut self, _: &ClientError) {
        self.board.set(self.number, |state| {
            state.complete = None;
            true
        });
    }
}

/// The change that an address tells of.
fn turn_of(address: IpAddr) -> Option<u32> {
    let IpAddr::V4(address) = address else {
        return None;
    };
    let [first, high, middle, low] = address.octets();
    (first == TELLING).then(|| u32::from_be_bytes([0, high, middle, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_tells_which_change_it_was() {
        assert_eq!(turn_of("11.0.1.2".parse().unwrap()), Some(258));
        assert_eq!(turn_of("10.0.1.2".parse().unwrap()), None);
    }
}
