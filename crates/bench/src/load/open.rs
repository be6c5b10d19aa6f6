//! Requests by a schedule that no answer can slow down: latency counts from when a request was
//! meant to be sent.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;
use tokio::sync::mpsc;

use super::schedule::Schedule;
use super::stream::{StreamClient, StreamRequest};
use super::{Client, Failure, QUEUE_REQUESTS_MAX};

/// How long answers may take to come in after the last request was due.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Between two looks at whether all are there.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The longest latency that is told apart, in nanoseconds.
const LATENCY_MAX: u64 = 60_000_000_000;

/// Connections that wait for their requests, on a thread of their own; they are closed when this
/// is dropped.
pub struct OpenLoop {
    queues: Vec<mpsc::Sender<Instant>>,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The requests, and the address that they go to.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The address.
    pub address: SocketAddr,
    /// The request, which has no body.
    pub request: String,
    /// The length of the answer's body.
    pub body_bytes: usize,
}

/// A request of either version of HTTP.
#[derive(Clone, Debug)]
pub enum AnyRequest {
    /// One of HTTP/1.1.
    Text(Asked),
    /// One of HTTP/2.
    Stream(StreamRequest),
}

/// A connection for such requests.
pub(crate) enum AnyClient {
    Text(Client, String),
    Stream(StreamClient),
}

/// The measurements.
pub struct Seen {
    /// The latencies in nanoseconds, to three digits.
    pub latency: Histogram<u64>,
    /// Requests that were not answered as they should.
    pub errors: u64,
    /// The last of them.
    pub last_error: Option<String>,
}

struct Shared {
    seen: Mutex<Seen>,
    /// Requests of which nothing is due any more.
    done: AtomicU64,
}

impl OpenLoop {
    /// Gets ready to ask. The thread calls `enter` first, so that its sockets are in the network
    /// that it goes to.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn start(
        asked: impl Into<AnyRequest>,
        connections: usize,
        enter: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<OpenLoop> {
        let shared = Arc::new(Shared {
            seen: Mutex::new(Seen::new()?),
            done: AtomicU64::new(0),
        });
        let (queues, due): (Vec<_>, Vec<_>) = (0..connections)
            .map(|_| mpsc::channel(QUEUE_REQUESTS_MAX))
            .unzip();
        let (asked, of_thread) = (asked.into(), shared.clone());
        let thread = std::thread::Builder::new().name("load".to_owned());
        let thread = thread.spawn(move || {
            let answered = enter().and_then(|()| serve(asked, due, of_thread.clone()));
            if let Err(error) = answered {
                of_thread.seen().last_error = Some(format!("the load: {error:#}"));
            }
        })?;
        Ok(OpenLoop {
            queues,
            shared,
            thread: Some(thread),
        })
    }

    /// Sends requests by the clock on this thread, and waits for all answers.
    ///
    /// # Errors
    /// They do not come in time, or the thread of the connections has ended.
    pub fn run(&self, schedule: Schedule) -> anyhow::Result<Seen> {
        // What the kernel may add to each sleep, so as to wake less often.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        self.shared.done.store(0, Ordering::Relaxed);
        let start = Instant::now();
        for (after, connection) in schedule.due() {
            let due = start + after;
            if let Some(rest) = due.checked_duration_since(Instant::now()) {
                std::thread::sleep(rest);
            }
            let queue = self.queues.get(connection);
            if queue.is_none_or(|queue| queue.try_send(due).is_err()) {
                self.shared
                    .fail("the queue of a connection is full".to_owned());
            }
        }
        let sent = Instant::now();
        while self.shared.done.load(Ordering::Relaxed) < schedule.requests {
            let seen = self.shared.seen().last_error.clone();
            ensure!(
                sent.elapsed() < ANSWER_TIMEOUT,
                "requests stay without answer: {seen:?}"
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(std::mem::replace(&mut self.shared.seen(), Seen::new()?))
    }
}

impl Drop for OpenLoop {
    fn drop(&mut self) {
        self.queues.clear();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

impl From<Asked> for AnyRequest {
    fn from(asked: Asked) -> AnyRequest {
        AnyRequest::Text(asked)
    }
}

impl AnyRequest {
    /// Connects to where it goes.
    pub(crate) async fn connect(&self) -> Result<AnyClient, Failure> {
        Ok(match self {
            AnyRequest::Text(asked) => {
                let client = Client::connect_for(asked.address, asked.body_bytes).await?;
                AnyClient::Text(client, asked.request.clone())
            }
            AnyRequest::Stream(request) => AnyClient::Stream(StreamClient::connect(request).await?),
        })
    }

    fn address(&self) -> SocketAddr {
        match self {
            AnyRequest::Text(asked) => asked.address,
            AnyRequest::Stream(request) => request.address,
        }
    }
}

impl AnyClient {
    /// Sends the request and reads its answer, which must be as it should.
    pub(crate) async fn ask(&mut self) -> Result<(), Failure> {
        match self {
            AnyClient::Text(client, request) => client.ask(request).await.map(drop),
            AnyClient::Stream(client) => client.ask().await,
        }
    }
}

impl Seen {
    /// Nothing yet.
    ///
    /// # Errors
    /// The bounds are impossible, which they are not.
    pub fn new() -> anyhow::Result<Seen> {
        Ok(Seen {
            latency: Histogram::new_with_bounds(1_000, LATENCY_MAX, 3)?,
            errors: 0,
            last_error: None,
        })
    }

    /// A request was answered so long after it was due.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record(nanos);
    }

    /// Adds what was seen another time.
    ///
    /// # Errors
    /// The bounds differ, which they do not.
    pub fn add(&mut self, other: Seen) -> anyhow::Result<()> {
        self.latency.add(&other.latency)?;
        self.errors += other.errors;
        self.last_error = other.last_error.or(self.last_error.take());
        Ok(())
    }

    /// Milliseconds within which this share of the requests was answered.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        self.latency.value_at_quantile(share) as f64 / 1e6
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, latency: Duration) {
        self.seen().record(latency);
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn fail(&self, text: String) {
        let mut seen = self.seen();
        seen.errors += 1;
        seen.last_error = Some(text);
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

fn serve(
    asked: AnyRequest,
    due: Vec<mpsc::Receiver<Instant>>,
    shared: Arc<Shared>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let asked = Arc::new(asked);
    runtime.block_on(async {
        let tasks = due.into_iter().map(|due| {
            let answer = answer(asked.clone(), due, shared.clone());
            tokio::spawn(answer)
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await?;
        }
        Ok(())
    })
}

/// Sends the requests of one connection, one after the other.
async fn answer(asked: Arc<AnyRequest>, mut due: mpsc::Receiver<Instant>, shared: Arc<Shared>) {
    let address = asked.address();
    let mut client = None;
    while let Some(meant) = due.recv().await {
        let open = match client.take() {
            Some(client) => Ok(client),
            None => asked.connect().await,
        };
        let outcome = match open {
            Ok(mut open) => open.ask().await.map(|()| open),
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(answered) => {
                shared.record(meant.elapsed());
                client = Some(answered);
            }
            Err((trouble, text)) => shared.fail(format!("{address}: {trouble:?}: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::backend::BODY_BYTES;

    #[test]
    fn a_quantile_is_the_time_within_which_that_share_was_answered() {
        let mut seen = Seen::new().unwrap();
        (1..=100).for_each(|millis| seen.record(Duration::from_millis(millis)));
        let mut other = Seen::new().unwrap();
        (101..=200).for_each(|millis| other.record(Duration::from_millis(millis)));
        other.errors = 2;
        seen.add(other).unwrap();
        for (share, expected) in [(0.5, 100.0), (0.9, 180.0), (0.99, 198.0)] {
            let found = seen.quantile_ms(share);
            assert!((found - expected).abs() < 0.2, "{share}: {found}");
        }
        assert_eq!((seen.latency.len(), seen.errors), (200, 2));
    }

    /// Answers at once but for one time in which it stands still.
    fn stalling_server(stall: Duration) -> SocketAddr {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let (mut stream, _) = listener.accept().await.unwrap();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
                let answer = [head.into_bytes(), vec![b'x'; BODY_BYTES]].concat();
                let mut bytes = [0; 1_024];
                let mut answered = 0;
                while let Ok(1..) = stream.read(&mut bytes).await {
                    if answered == 50 {
                        // The whole thread, as a proxy that does something else meanwhile.
                        std::thread::sleep(stall);
                    }
                    stream.write_all(&answer).await.unwrap();
                    answered += 1;
                }
            });
        });
        address
    }

    #[test]
    fn a_server_that_stands_still_cannot_hide_the_requests_that_should_have_been_sent() {
        let stall = Duration::from_millis(300);
        let asked = Asked {
            address: stalling_server(stall),
            request: "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            body_bytes: BODY_BYTES,
        };
        let load = OpenLoop::start(asked, 1, || Ok(())).unwrap();
        let schedule = Schedule {
            rps: 200.0,
            connections: 1,
            requests: 200,
            has_jitter: false,
        };
        let begun = Instant::now();
        let seen = load.run(schedule).unwrap();
        assert!(
            begun.elapsed() > Duration::from_millis(990),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(
            (seen.latency.len(), seen.errors),
            (200, 0),
            "{:?}",
            seen.last_error
        );
        let late = seen.latency.count_between(50_000_000, LATENCY_MAX);
        // Those of the last 250 ms of 300, at 200 a second; a closed loop would see a single one.
        assert!(late >= 40, "{late} were late");
        assert!(seen.quantile_ms(1.0) >= 299.0);
    }
}
