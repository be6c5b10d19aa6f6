//! Live traffic: open-loop requests over keep-alive connections; and the command that sends such
//! traffic to any URL.

mod client;
mod command;
mod destination;
mod exchange;
mod fortio;
mod generator;
mod measure;
mod open;
mod outcome;
mod processes;
mod schedule;
mod segment;
mod stream;
mod tally;
mod threshold;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustls::ClientConfig;
use tokio::sync::mpsc;

use crate::probe::client_config;
use tally::Tally;

pub(crate) use client::{Client, Failure, is_complete};
pub use command::{LoadArgs, run};
pub(crate) use destination::{Destination, Extra, Trust};
pub(crate) use generator::{Pace, Plan, run as generate};
pub use open::{AnyRequest, Asked, OpenLoop, Seen};
pub use schedule::Schedule;
pub(crate) use segment::Stripes;
pub(crate) use stream::PREFIX_BYTES;
pub use stream::StreamRequest;
pub use tally::{Measured, Trouble};

/// Keep-alive connections, each to another domain.
const CONNECTIONS: usize = 64;

/// Requests that may wait for one connection.
const QUEUE_REQUESTS_MAX: usize = 1_024;

/// Traffic to domains that exist and are left alone, on a thread of its own.
pub struct Load {
    traffic: Traffic,
    thread: std::thread::JoinHandle<anyhow::Result<()>>,
}

/// The state that the thread of the traffic shares with those who watch it.
#[derive(Clone)]
struct Traffic {
    address: SocketAddr,
    hosts: Arc<[String]>,
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
}

impl Load {
    /// Starts traffic: `rps` requests per second, spread over `hosts`.
    ///
    /// # Errors
    /// There is no host, or a thread cannot be started.
    pub fn start(address: SocketAddr, hosts: &[String], rps: f64) -> anyhow::Result<Load> {
        let traffic = Traffic::new(address, hosts)?;
        let thread = spawn(traffic.clone().pace(rps))?;
        Ok(Load { traffic, thread })
    }

    /// The measurements since the last look.
    pub fn take(&self) -> Measured {
        self.traffic.tally.take()
    }

    /// Ends the traffic, once all requests have been answered.
    ///
    /// # Errors
    /// The traffic ended by itself, which it must not.
    pub fn stop(self) -> anyhow::Result<()> {
        self.traffic.stop.store(true, Ordering::Relaxed);
        join(self.thread)
    }
}

/// Requests per second that the proxy answers in a closed loop over the same connections.
///
/// # Errors
/// A request failed, or none was answered.
pub fn capacity(address: SocketAddr, hosts: &[String], time: Duration) -> anyhow::Result<f64> {
    let traffic = Traffic::new(address, hosts)?;
    let thread = spawn(traffic.clone().saturate())?;
    // The first half second makes the connections.
    std::thread::sleep(Duration::from_millis(500));
    traffic.tally.take();
    let start = Instant::now();
    std::thread::sleep(time);
    let answered = traffic.tally.take().requests;
    let rate = answered as f64 / start.elapsed().as_secs_f64();
    traffic.stop.store(true, Ordering::Relaxed);
    join(thread)?;
    ensure!(answered > 0, "no request was answered");
    Ok(rate)
}

impl Traffic {
    fn new(address: SocketAddr, hosts: &[String]) -> anyhow::Result<Self> {
        ensure!(!hosts.is_empty(), "traffic needs a host");
        Ok(Traffic {
            address,
            hosts: hosts.into(),
            tally: Arc::new(Tally::new()?),
            stop: Arc::default(),
        })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The host of a connection.
    fn host(&self, connection: usize) -> &str {
        let stride = (self.hosts.len() / CONNECTIONS).max(1);
        &self.hosts[connection * stride % self.hosts.len()]
    }

    /// Opens connections and a thread that gives them their requests.
    async fn pace(self, rps: f64) -> anyhow::Result<()> {
        let config = client_config(true)?;
        let (mut queues, mut tasks) = (Vec::new(), Vec::new());
        for connection in 0..CONNECTIONS {
            let (queue, due) = mpsc::channel(QUEUE_REQUESTS_MAX);
            queues.push(queue);
            let answer = self.clone().answer(config.clone(), connection, due);
            tasks.push(tokio::spawn(answer));
        }
        let traffic = self.clone();
        let thread = std::thread::Builder::new().name("metronome".to_owned());
        let thread = thread.spawn(move || traffic.beat(rps, &queues))?;
        for task in tasks {
            task.await?;
        }
        thread.join().ok().context("the metronome panicked")
    }

    /// Sends by the clock. A request that cannot be sent in time counts from when it should have
    /// been, so that a proxy that stalls cannot hide it by slowing the generator down. The clock
    /// is a thread of its own, because the runtime's timers count whole milliseconds, which is
    /// more than the latencies that are measured.
    fn beat(&self, rps: f64, queues: &[mpsc::Sender<Instant>]) {
        let start = Instant::now();
        for (request, queue) in (0_u32..).zip(queues.iter().cycle()) {
            let due = start + Duration::from_secs_f64(f64::from(request) / rps);
            if let Some(rest) = due.checked_duration_since(Instant::now()) {
                std::thread::sleep(rest);
            }
            if self.is_stopped() {
                return;
            }
            if queue.try_send(due).is_err() {
                let text = "the queue of a connection is full";
                self.tally.fail(Trouble::Behind, text);
            }
        }
    }

    /// Sends the requests of one connection, one after the other.
    async fn answer(
        self,
        config: Arc<ClientConfig>,
        connection: usize,
        mut due: mpsc::Receiver<Instant>,
    ) {
        let host = self.host(connection);
        let request = request(host);
        let mut client = None;
        while let Some(meant) = due.recv().await {
            let result = match client.take() {
                Some(client) => Ok(client),
                None => Client::connect(&config, self.address, host).await,
            };
            let result = match result {
                Ok(mut opened) => opened.ask(&request).await.map(|_| opened),
                Err(failure) => Err(failure),
            };
            match result {
                Ok(answered) => {
                    self.tally.record(meant.elapsed());
                    client = Some(answered);
                }
                Err((trouble, text)) => self.tally.fail(trouble, &format!("{host}: {text}")),
            }
        }
    }

    /// Sends on every connection as soon as the request before has been answered.
    async fn saturate(self) -> anyhow::Result<()> {
        let config = client_config(true)?;
        let mut tasks = Vec::new();
        for connection in 0..CONNECTIONS {
            let (traffic, config) = (self.clone(), config.clone());
            tasks.push(tokio::spawn(async move {
                let host = traffic.host(connection);
                let mut client = Client::connect(&config, traffic.address, host).await?;
                let request = request(host);
                while !traffic.is_stopped() {
                    let start = Instant::now();
                    client.ask(&request).await?;
                    traffic.tally.record(start.elapsed());
                }
                Ok(())
            }));
        }
        for task in tasks {
            let ended: Result<(), client::Failure> = task.await?;
            ended.map_err(|(trouble, text)| anyhow::anyhow!("{trouble:?}: {text}"))?;
        }
        Ok(())
    }
}

fn request(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

fn spawn(
    work: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) -> anyhow::Result<std::thread::JoinHandle<anyhow::Result<()>>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = std::thread::Builder::new().name("load".to_owned());
    Ok(thread.spawn(move || runtime.block_on(work))?)
}

fn join(thread: std::thread::JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    let ended = thread.join();
    ended.ok().context("the load thread panicked")?
}

#[cfg(test)]
mod tests;
