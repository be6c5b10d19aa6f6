//! Closed-loop traffic: on every connection a request as soon as the one before was answered.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use rustls::ClientConfig;
use tokio::task::LocalSet;

use crate::istio::{self, Setup};
use crate::load::Client;
use crate::probe::client_config;

/// How long all connections may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a proxy may take until it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Between two looks at either.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How long a connection that failed stays away, so that failures do not become a storm.
const PENALTY: Duration = Duration::from_millis(50);

/// Handshakes at a time and thread: all at once would be a queue of seconds at the proxy.
const HANDSHAKES_MAX: usize = 32;

/// Traffic to all hosts and paths of a setup.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub address: SocketAddr,
    pub setup: Setup,
    pub connections: usize,
    pub threads: usize,
    /// Over TLS to a gateway, or without to the endpoint itself.
    pub is_tls: bool,
    /// The token that requests bear.
    pub token: Option<Arc<str>>,
}

/// A phase of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// It runs, and nothing counts but failures.
    Warm,
    /// Answers count.
    Measure,
    /// It ends.
    Stop,
}

/// The measurements.
pub(crate) struct Seen {
    /// The latencies in microseconds, up to a minute, to three digits.
    pub latency: Histogram<u64>,
    /// Failures in all phases: of connections and of answers.
    pub errors: u64,
    /// The last of them.
    pub last_error: Option<String>,
    /// Bytes of requests and answers, within TLS.
    pub bytes: u64,
}

/// Traffic that runs.
pub(super) struct Driver {
    control: Arc<Control>,
    connections: usize,
    threads: Vec<JoinHandle<anyhow::Result<Seen>>>,
}

struct Control {
    phase: AtomicU8,
    connected: AtomicUsize,
}

/// A connection's share of the work of its thread.
#[derive(Clone)]
struct Worker {
    traffic: Rc<Traffic>,
    config: Arc<ClientConfig>,
    control: Arc<Control>,
    seen: Rc<RefCell<Seen>>,
    handshakes: Rc<tokio::sync::Semaphore>,
}

impl Traffic {
    /// Starts it, on as many threads as it has.
    pub(super) fn start(&self) -> anyhow::Result<Driver> {
        let control = Arc::new(Control {
            phase: AtomicU8::new(Phase::Warm as u8),
            connected: AtomicUsize::new(0),
        });
        let hosts: Arc<[String]> = self.setup.all().map(istio::Domain::host).collect();
        let config = client_config(true)?;
        let mut threads = Vec::new();
        for thread in 0..self.threads {
            let (traffic, hosts, config) = (self.clone(), hosts.clone(), config.clone());
            let control = control.clone();
            let builder = std::thread::Builder::new().name("traffic".to_owned());
            threads.push(builder.spawn(move || traffic.run(thread, &hosts, config, control))?);
        }
        Ok(Driver {
            control,
            connections: self.connections,
            threads,
        })
    }

    /// Waits until a request of this traffic is answered, for as long as `check` holds.
    pub(super) fn wait_answered(
        &self,
        mut check: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let host = self.setup.all().next().context("there is a host")?.host();
        let config = client_config(false)?;
        let begun = Instant::now();
        loop {
            let ask = async {
                let mut client = Client::connect(&config, self.address, &host).await?;
                client.ask(&self.request(&host, 0)).await
            };
            match runtime.block_on(ask) {
                Ok(_) => return Ok(()),
                Err((trouble, text)) => ensure!(
                    begun.elapsed() < ANSWER_TIMEOUT,
                    "no answer from {}: {trouble:?}: {text}",
                    self.address
                ),
            }
            check()?;
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// A request. A gateway rewrites every path to `/`, which is all that the endpoint has.
    fn request(&self, host: &str, number: u32) -> String {
        let path = match self.is_tls {
            true => istio::path(number),
            false => "/".to_owned(),
        };
        let token = self.token.as_ref();
        let token = token.map(|it| format!("Authorization: Bearer {it}\r\n"));
        let token = token.unwrap_or_default();
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{token}\r\n")
    }

    fn run(
        self,
        thread: usize,
        hosts: &[String],
        config: Arc<ClientConfig>,
        control: Arc<Control>,
    ) -> anyhow::Result<Seen> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (all, threads) = (self.connections, self.threads);
        let worker = Worker {
            traffic: Rc::new(self),
            config,
            control,
            seen: Rc::new(RefCell::new(Seen::new()?)),
            handshakes: Rc::new(tokio::sync::Semaphore::new(HANDSHAKES_MAX)),
        };
        let local = LocalSet::new();
        for connection in (thread..all).step_by(threads) {
            // Neighbours lie far apart; a prime number of steps meets every host.
            let host = hosts.get(connection.wrapping_mul(7_919) % hosts.len());
            let host = host.context("there is a host")?.clone();
            local.spawn_local(worker.clone().drive(connection, host));
        }
        runtime.block_on(local);
        let seen = Rc::into_inner(worker.seen).context("all connections have ended")?;
        Ok(seen.into_inner())
    }
}

impl Worker {
    /// Asks over one connection until the end.
    async fn drive(self, connection: usize, host: String) {
        let traffic = &self.traffic;
        let requests = (0..traffic.setup.paths).map(|number| traffic.request(&host, number));
        let requests: Vec<String> = requests.collect();
        let mut state = connection as u64 | 1 << 32;
        let mut client = None;
        let mut is_counted = false;
        while !self.control.is(Phase::Stop) {
            let open = match client.take() {
                Some(client) => Ok(client),
                None => self.connect(&host).await,
            };
            let mut open = match open {
                Ok(open) => open,
                Err(text) => {
                    self.fail(text).await;
                    continue;
                }
            };
            if !is_counted {
                self.control.connected.fetch_add(1, Ordering::Relaxed);
                is_counted = true;
            }
            let Some(request) = requests.get(next(&mut state) as usize % requests.len()) else {
                return;
            };
            let begun = Instant::now();
            match open.ask(request).await {
                Ok(bytes) => {
                    if self.control.is(Phase::Measure) {
                        self.seen
                            .borrow_mut()
                            .record(begun.elapsed(), bytes + request.len());
                    }
                    client = Some(open);
                }
                Err((trouble, text)) => self.fail(format!("{host}: {trouble:?}: {text}")).await,
            }
        }
    }

    async fn connect(&self, host: &str) -> Result<Client, String> {
        let turn = self.handshakes.acquire().await;
        let address = self.traffic.address;
        let client = match self.traffic.is_tls {
            true => Client::connect(&self.config, address, host).await,
            false => Client::connect_plain(address).await,
        };
        drop(turn);
        client.map_err(|(trouble, text)| format!("{host}: {trouble:?}: {text}"))
    }

    async fn fail(&self, text: String) {
        self.seen.borrow_mut().fail(text);
        tokio::time::sleep(PENALTY).await;
    }
}

impl Driver {
    /// Waits until all connections are made.
    pub(super) fn wait_connected(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.control.connected.load(Ordering::Relaxed) < self.connections {
            if begun.elapsed() > CONNECT_TIMEOUT {
                self.set(Phase::Stop);
                anyhow::bail!("not all connections are made in {CONNECT_TIMEOUT:?}");
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Changes what it does.
    pub(super) fn set(&self, phase: Phase) {
        self.control.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Waits for its end, and says what was seen.
    pub(super) fn join(self) -> anyhow::Result<Seen> {
        let mut sum = Seen::new()?;
        for thread in self.threads {
            let seen = thread
                .join()
                .ok()
                .context("a thread of the traffic panicked")??;
            sum.latency.add(&seen.latency)?;
            sum.errors += seen.errors;
            sum.last_error = sum.last_error.or(seen.last_error);
            sum.bytes += seen.bytes;
        }
        Ok(sum)
    }
}

impl Control {
    fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u8
    }
}

impl Seen {
    /// Nothing yet.
    pub(crate) fn new() -> anyhow::Result<Seen> {
        Ok(Seen {
            latency: Histogram::new_with_bounds(1, 60_000_000, 3)?,
            errors: 0,
            last_error: None,
            bytes: 0,
        })
    }

    fn record(&mut self, latency: Duration, bytes: usize) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latency.saturating_record(micros);
        self.bytes += bytes as u64;
    }

    fn fail(&mut self, text: String) {
        self.errors += 1;
        self.last_error = Some(text);
    }
}

/// The next of a sequence that wanders over all paths: xorshift.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 16
}
