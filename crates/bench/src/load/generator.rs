//! One generator: connections that send requests by a schedule that no response slows down, or one
//! after the other as fast as they are answered.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::destination::Destination;
use super::exchange::Exchange;
use super::outcome::Outcome;
use super::schedule::Schedule;
use super::segment::Stripes;
use super::{Failure, QUEUE_REQUESTS_MAX, Trouble};

/// Between two looks at a queue that is full.
const FULL_INTERVAL: Duration = Duration::from_micros(200);

/// The work of a generator.
pub(crate) struct Plan {
    pub(crate) destination: Destination,
    /// The bytes of each request.
    pub(crate) request: Vec<u8>,
    /// Its own connections.
    pub(crate) connections: usize,
    pub(crate) pace: Pace,
    /// How long a connection, and a response, may take.
    pub(crate) timeout: Duration,
}

/// When requests are sent.
pub(crate) enum Pace {
    /// The requests of a schedule of the whole run that are its own.
    Open(Schedule, Stripes),
    /// As soon as the one before has been answered.
    Closed {
        /// How long.
        time: Option<Duration>,
        /// How many at most.
        requests: Option<u64>,
    },
}

/// The state that connections share.
struct Shared {
    plan: Plan,
    outcome: Mutex<Outcome>,
    /// Requests that may still be sent, where they go by their number.
    left: AtomicU64,
}

/// Makes the connections, calls `begin` once they are there, and sends the requests; the outcome is
/// there once all have been answered, or have failed.
pub(crate) fn run(
    plan: Plan,
    begin: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let connections = plan.connections;
    let requests = match plan.pace {
        Pace::Closed { requests, .. } => requests.unwrap_or(u64::MAX),
        Pace::Open(..) => u64::MAX,
    };
    let shared = Arc::new(Shared {
        plan,
        outcome: Mutex::new(Outcome::new()?),
        left: AtomicU64::new(requests),
    });
    let (queues, due): (Vec<_>, Vec<_>) = (0..connections)
        .map(|_| mpsc::channel(QUEUE_REQUESTS_MAX))
        .unzip();
    let (open, opened) = std::sync::mpsc::sync_channel(connections);
    let of_thread = shared.clone();
    let thread = std::thread::Builder::new().name("load".to_owned());
    let thread = thread.spawn(move || serve(&of_thread, due, &open))?;
    for _ in 0..connections {
        opened
            .recv()
            .context("the thread of the connections ended")?;
    }
    begin()?;
    let start = Instant::now();
    send(&shared, &queues, start)?;
    // Connections end with their queues.
    drop(queues);
    let ended = thread.join();
    ended
        .ok()
        .context("the thread of the connections panicked")??;
    let time = start.elapsed();
    let mut outcome = std::mem::replace(&mut *shared.outcome(), Outcome::new()?);
    outcome.time = time;
    Ok(outcome)
}

/// Tells connections what is due: each request by the clock, or to begin.
fn send(shared: &Shared, queues: &[Sender<Instant>], start: Instant) -> anyhow::Result<()> {
    let (schedule, stripes) = match &shared.plan.pace {
        Pace::Closed { .. } => {
            for queue in queues {
                // One that has ended has said why.
                let _ = queue.try_send(start);
            }
            return Ok(());
        }
        Pace::Open(schedule, stripes) => (schedule, stripes),
    };
    // What the kernel may add to each sleep, so as to wake less often.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let own = (0_u64..).zip(schedule.due());
    let own = own.filter(|(number, _)| stripes.owns(*number));
    for ((_, (after, _)), queue) in own.zip(queues.iter().cycle()) {
        let due = start + after;
        if let Some(rest) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(rest);
        }
        while let Err(TrySendError::Full(_)) = queue.try_send(due) {
            // Requests of connections that stand still fail one after the other as they become
            // too late, so that the clock is never further behind than that.
            if due.elapsed() > shared.plan.timeout {
                let text = "no connection was free for it in time".to_owned();
                shared.outcome().fail(due.elapsed(), text);
                break;
            }
            std::thread::sleep(FULL_INTERVAL);
        }
    }
    Ok(())
}

fn serve(
    shared: &Arc<Shared>,
    due: Vec<Receiver<Instant>>,
    open: &std::sync::mpsc::SyncSender<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let tasks = due.into_iter().map(|due| {
            let connection = connection(shared.clone(), due, open.clone());
            tokio::spawn(connection)
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await?;
        }
        Ok(())
    })
}

/// One connection, and those that take its place.
async fn connection(
    shared: Arc<Shared>,
    mut due: Receiver<Instant>,
    open: std::sync::mpsc::SyncSender<()>,
) {
    // Should it fail, the first request makes another one, and says so.
    let mut exchange = shared.connect().await.ok();
    // Who no longer listens has failed, and says so.
    let _ = open.send(());
    drop(open);
    while let Some(meant) = due.recv().await {
        match shared.plan.pace {
            Pace::Open(..) => exchange = shared.ask(exchange, meant).await,
            Pace::Closed { time, .. } => {
                while time.is_none_or(|time| meant.elapsed() < time) && shared.takes_one() {
                    exchange = shared.ask(exchange, Instant::now()).await;
                }
            }
        }
    }
}

impl Shared {
    /// Sends a request that was meant for then, and says which connection may take the next one.
    async fn ask(&self, exchange: Option<Exchange>, meant: Instant) -> Option<Exchange> {
        let (request, timeout) = (&self.plan.request, self.plan.timeout);
        let asked = async {
            if meant.elapsed() > timeout {
                let text = "the connection was busy for too long".to_owned();
                return Err(((Trouble::Behind, text), exchange));
            }
            let mut exchange = match exchange {
                Some(exchange) => exchange,
                None => self
                    .connect()
                    .await
                    .map_err(|failure| (failure, None::<Exchange>))?,
            };
            let response = exchange.ask(request, timeout).await;
            let response = response.map_err(|failure| (failure, None::<Exchange>))?;
            Ok((response, (!response.is_last).then_some(exchange)))
        };
        match asked.await {
            Ok((response, exchange)) => {
                let bytes = (response.head_bytes, response.body_bytes);
                let mut outcome = self.outcome();
                outcome.answer(meant.elapsed(), response.status, bytes);
                exchange
            }
            Err(((trouble, text), exchange)) => {
                let text = format!("{}: {trouble:?}: {text}", self.plan.destination.address);
                self.outcome().fail(meant.elapsed(), text);
                exchange
            }
        }
    }

    async fn connect(&self) -> Result<Exchange, Failure> {
        let start = Instant::now();
        let exchange = Exchange::connect(&self.plan.destination, self.plan.timeout).await?;
        self.outcome().connect(start.elapsed());
        Ok(exchange)
    }

    fn takes_one(&self) -> bool {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        taken.is_ok()
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::destination::{Extra, Trust};
    use super::super::segment::Sequence;
    use super::*;
    use crate::backend;

    fn plan(url: &str, connections: usize, pace: Pace) -> Plan {
        let destination = Destination::new(url, None, Trust::Unsaid).unwrap();
        let extra = Extra {
            headers: &[],
            payload: None,
        };
        Plan {
            request: destination.request(extra).unwrap(),
            destination,
            connections,
            pace,
            timeout: Duration::from_secs(2),
        }
    }

    fn schedule(rps: f64, requests: u64) -> Schedule {
        Schedule {
            rps,
            connections: 4,
            requests,
            has_jitter: false,
        }
    }

    fn backend() -> String {
        let [address, _] = backend::start(Ipv4Addr::LOCALHOST.into()).unwrap();
        format!("http://{address}/")
    }

    #[test]
    fn generators_of_all_segments_send_the_whole_run_together() {
        let url = backend();
        let sequence: Sequence = "0,1/4,1".parse().unwrap();
        let mut all = Outcome::new().unwrap();
        for (number, wanted) in [(0, 25), (1, 75)] {
            let segment = sequence.segment(number).unwrap();
            let stripes = Stripes::new(segment, Some(&sequence)).unwrap();
            let pace = Pace::Open(schedule(500.0, 100), stripes);
            let outcome = run(plan(&url, 2, pace), || Ok(())).unwrap();
            assert_eq!(outcome.latency.count(), wanted);
            all.add(outcome).unwrap();
        }
        assert_eq!(all.codes, [(200, 100)].into(), "{:?}", all.last_error);
        assert_eq!(all.connects.count(), 4);
        assert!(all.time > Duration::from_millis(150), "{:?}", all.time);
    }

    #[test]
    fn a_closed_loop_ends_by_number_or_by_time() {
        let url = backend();
        let by_number = Pace::Closed {
            time: None,
            requests: Some(50),
        };
        let outcome = run(plan(&url, 4, by_number), || Ok(())).unwrap();
        assert_eq!(outcome.codes, [(200, 50)].into());
        let by_time = Pace::Closed {
            time: Some(Duration::from_millis(100)),
            requests: None,
        };
        let outcome = run(plan(&url, 2, by_time), || Ok(())).unwrap();
        assert!(outcome.latency.count() > 4);
        assert!(outcome.time >= Duration::from_millis(100));
    }

    #[test]
    fn other_statuses_and_no_responses_are_failures() {
        let missing = plan(
            &format!("{}nothing", backend()),
            1,
            Pace::Open(schedule(1_000.0, 5), Stripes::whole()),
        );
        let outcome = run(missing, || Ok(())).unwrap();
        assert_eq!(outcome.codes, [(404, 5)].into());
        assert_eq!(outcome.failed.count(), 5);
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        drop(listener);
        let pace = Pace::Open(schedule(1_000.0, 5), Stripes::whole());
        let outcome = run(plan(&url, 2, pace), || Ok(())).unwrap();
        assert_eq!(outcome.codes, [(-1, 5)].into());
        assert!(
            outcome
                .last_error
                .is_some_and(|text| text.contains("Connect"))
        );
    }
}
