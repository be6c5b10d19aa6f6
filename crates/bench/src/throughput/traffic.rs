//! The load generator: one thread that asks over many connections, by a schedule or as fast as it
//! is answered, and holds every connection and every answer to what they should be.

mod beat;
mod engine;
mod link;
pub(super) mod streams;
mod talk;
mod tls;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;

pub(crate) use link::{Silent, flush};

use super::requests::Requests;
use crate::cluster::usage;
use crate::load::{Failure, Schedule, Seen};

pub(crate) use tls::Leaves;

/// How long all connections may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The requests, and how they are sent.
#[derive(Clone)]
pub(super) struct Plan {
    /// The address that they go to.
    pub address: SocketAddr,
    /// The number of connections.
    pub connections: usize,
    /// The certificates by which hosts are known; `None` without TLS.
    pub leaves: Option<Arc<Leaves>>,
    /// How long a connection is used.
    pub life: Life,
    /// The requests.
    pub requests: Arc<Requests>,
    /// The most requests of each connection.
    pub requests_max: Option<u64>,
    /// The number of streams at a time over HTTP/2; `None` for HTTP/1.1.
    pub streams: Option<usize>,
    /// The schedule; without one, as soon as one before has been answered.
    pub schedule: Option<Schedule>,
}

/// How long a connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// A connection is kept until the end.
    Kept,
    /// A connection serves one request. The next one begins with a whole handshake.
    Fresh,
    /// A connection serves one request. The next one resumes its session.
    Resumed,
}

/// Traffic that runs.
pub(super) struct Traffic {
    counts: Arc<Counts>,
    connections: usize,
    thread: JoinHandle<anyhow::Result<Histogram<u64>>>,
}

/// The measurements of all, once it has ended.
pub(super) struct Ended {
    /// Latencies while they were measured, and errors at any time.
    pub seen: Seen,
    /// Requests that were sent at any time.
    pub sent: u64,
    /// Requests that were answered as they should.
    pub answered: u64,
}

/// The counts that the generator shares with those who watch it.
#[derive(Default)]
struct Counts {
    /// The thread of the generator.
    thread: AtomicI32,
    connected: AtomicUsize,
    sent: AtomicU64,
    answered: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
    is_measuring: AtomicBool,
    is_ending: AtomicBool,
}

impl Plan {
    /// The protocol over TLS.
    fn protocol(&self) -> &'static [u8] {
        match self.streams {
            Some(_) => b"h2",
            None => b"http/1.1",
        }
    }
}

impl Ended {
    /// Failures of connections and answers, or requests that were never answered.
    pub(super) fn failed(&self) -> u64 {
        self.seen
            .errors
            .max(self.sent.saturating_sub(self.answered))
    }
}

impl Traffic {
    /// Starts it.
    ///
    /// # Errors
    /// No thread is to be had.
    pub(super) fn start(plan: Plan) -> anyhow::Result<Traffic> {
        ensure!(plan.connections > 0, "there is a connection");
        let counts = Arc::new(Counts::default());
        let (of_thread, connections) = (counts.clone(), plan.connections);
        let thread = std::thread::Builder::new().name("traffic".to_owned());
        let thread = thread.spawn(move || engine::run(plan, of_thread))?;
        Ok(Traffic {
            counts,
            connections,
            thread,
        })
    }

    /// Waits until all connections are made.
    ///
    /// # Errors
    /// They are not in time.
    pub(super) fn wait_connected(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.counts.connected.load(Ordering::Relaxed) < self.connections {
            let is_late = begun.elapsed() > CONNECT_TIMEOUT;
            if is_late || self.thread.is_finished() {
                self.counts.is_ending.store(true, Ordering::Relaxed);
                let made = self.counts.connected.load(Ordering::Relaxed);
                let error = self.counts.last_error().clone().unwrap_or_default();
                bail!(
                    "{made} of {} connections are made: {error}",
                    self.connections
                );
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Takes latencies from now on.
    pub(super) fn measure(&self) {
        self.counts.is_measuring.store(true, Ordering::Relaxed);
    }

    /// Requests that have been answered.
    pub(super) fn answered(&self) -> u64 {
        self.counts.answered.load(Ordering::Relaxed)
    }

    /// Processor time of the generator.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn worked(&self) -> anyhow::Result<Duration> {
        let thread = self.counts.thread.load(Ordering::Relaxed);
        usage::thread_time(thread).context("the traffic has ended")
    }

    /// Lets what was asked be answered, and ends.
    ///
    /// # Errors
    /// It has ended by itself.
    pub(super) fn end(self) -> anyhow::Result<Ended> {
        self.counts.is_ending.store(true, Ordering::Relaxed);
        let latency = self.thread.join().ok();
        let latency = latency.context("the thread of the traffic panicked")?;
        let last_error = self.counts.last_error().clone();
        let latency = latency.with_context(|| format!("{last_error:?}"))?;
        Ok(Ended {
            seen: Seen {
                latency,
                errors: self.counts.errors.load(Ordering::Relaxed),
                last_error,
            },
            sent: self.counts.sent.load(Ordering::Relaxed),
            answered: self.counts.answered.load(Ordering::Relaxed),
        })
    }
}

impl Counts {
    fn last_error(&self) -> MutexGuard<'_, Option<String>> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, host: &str, (trouble, text): Failure) -> u64 {
        *self.last_error() = Some(format!("{host}: {trouble:?}: {text}"));
        self.errors.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[cfg(test)]
mod tests;
