//! Messages to a collector of OpenTelemetry, by OTLP over HTTP: metrics now and then, and lines of
//! the access log soon after they come.
//!
//! Nobody waits for it. What the collector does not take is lost and counted; metrics are told
//! since the start, so that of them nothing is.

mod lines;
mod post;

use std::io;
use std::time::Duration;

use myriad_base::clock;
use myriad_base::drain::{Drain, Drained};
use myriad_base::metrics::{Counter, Family, Metrics};
use myriad_proxy::telemetry::otlp::{logs_message, metrics_message};

pub use self::lines::{LineQueue, LineWriter};
pub use self::post::Collector;

use self::lines::Lines;
use self::post::Connection;

/// How long lines wait for others.
const GATHER: Duration = Duration::from_millis(200);

/// How long the end of a process waits for its last messages.
const LAST: Duration = Duration::from_secs(1);

/// The paths of metrics and logs behind that of the collector.
const METRICS_PATH: &str = "/v1/metrics";
const LOGS_PATH: &str = "/v1/logs";

/// The settings of what is sent.
#[derive(Clone, Debug)]
pub struct Otlp {
    /// The collector.
    pub collector: Collector,
    /// How often metrics are sent.
    pub interval: Duration,
    /// The lines of the access log; none where it goes elsewhere.
    pub lines: Option<LineQueue>,
}

/// The words of a process about itself, as attributes of OpenTelemetry.
#[derive(Clone, Debug)]
pub struct SenderName {
    /// The command that it runs.
    pub role: &'static str,
    /// The name of the machine or Pod.
    pub instance: String,
    /// Its version.
    pub version: &'static str,
}

/// Counts of messages, by what they carried and what became of them.
type Exports = Family<[(&'static str, &'static str); 2], Counter>;

impl Otlp {
    /// Sends, on a thread of its own, until the drain is asked for.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(self, name: SenderName, metrics: &Metrics, drain: &Drain) -> io::Result<()> {
        let exports = Exports::default();
        let help = "Messages for the collector of OpenTelemetry, by what became of them";
        metrics.register("otlp_exports", help, exports.clone());
        let lines = self.lines.as_ref().and_then(LineQueue::take_lines);
        if let Some(queue) = &self.lines {
            let help = "Lines of the access log that the collector did not take in time";
            metrics.register("otlp_log_lines_dropped", help, queue.dropped().clone());
        }
        let sending = Sending {
            connection: Connection::new(self.collector),
            lines,
            dropped: self.lines.as_ref().map(|queue| queue.dropped().clone()),
            metrics: metrics.clone(),
            exports,
            name,
            started: clock::since_epoch(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (interval, drained) = (self.interval, drain.holder());
        std::thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || {
                runtime.block_on(sending.run(interval, &drained));
                // The end of the process does not wait for a name that is still looked up.
                runtime.shutdown_background();
            })?;
        Ok(())
    }
}

/// The sender, on its thread.
struct Sending {
    connection: Connection,
    lines: Option<Lines>,
    dropped: Option<Counter>,
    metrics: Metrics,
    exports: Exports,
    name: SenderName,
    /// When the process began to count, since 1970.
    started: Duration,
}

impl Sending {
    async fn run(mut self, interval: Duration, drained: &Drained) {
        let given_up = async {
            drained.signalled().await;
            tokio::time::sleep(LAST).await;
        };
        tokio::select! {
            () = self.send_until(interval, drained) => {}
            () = given_up => {}
        }
        // What was counted until the end is worth a moment.
        let last = async {
            while self.send_waiting().await {}
            self.send_metrics().await;
        };
        if tokio::time::timeout(LAST, last).await.is_err() {
            tracing::warn!("the collector of OpenTelemetry did not take the last messages");
        }
    }

    /// Sends whatever is due. A message that is on its way goes to its end, or is given up where
    /// that takes too long.
    async fn send_until(&mut self, interval: Duration, drained: &Drained) {
        let mut due = clock::now() + interval;
        loop {
            tokio::select! {
                () = drained.signalled() => return,
                () = tokio::time::sleep_until(due) => {
                    self.send_metrics().await;
                    due = clock::now() + interval;
                }
                () = wait(self.lines.as_mut()) => {
                    if !self.lines.as_ref().is_some_and(Lines::fill_a_message) {
                        tokio::time::sleep(GATHER).await;
                    }
                    self.send_waiting().await;
                }
            }
        }
    }

    async fn send_metrics(&mut self) {
        let (families, now) = (self.metrics.families(), clock::since_epoch());
        let message = metrics_message(&families, &self.resource(), self.started, now);
        self.send("metrics", METRICS_PATH, message).await;
    }

    /// Sends lines that wait, at most so many as one message has. Returns whether there were any.
    async fn send_waiting(&mut self) -> bool {
        let lines = self.lines.as_mut().map(Lines::take).unwrap_or_default();
        if lines.is_empty() {
            return false;
        }
        let count = lines.len() as u64;
        let message = logs_message(lines, &self.resource());
        if !self.send("logs", LOGS_PATH, message).await
            && let Some(dropped) = &self.dropped
        {
            dropped.inc_by(count);
        }
        true
    }

    /// Sends a message; false where it was not taken.
    async fn send(&mut self, signal: &'static str, path: &str, message: Vec<u8>) -> bool {
        let outcome = match self.connection.post(path, message.into()).await {
            Ok(()) => "sent",
            Err(error) => {
                tracing::debug!(signal, %error, "the collector of OpenTelemetry took nothing");
                "failed"
            }
        };
        let labels = [("signal", signal), ("outcome", outcome)];
        self.exports.get_or_create(&labels).inc();
        outcome == "sent"
    }

    fn resource(&self) -> [(&str, &str); 4] {
        [
            ("service.name", "myriad"),
            ("service.instance.id", &self.name.instance),
            ("service.version", self.name.version),
            ("myriad.role", self.name.role),
        ]
    }
}

/// Waits until there is a line.
async fn wait(lines: Option<&mut Lines>) {
    match lines {
        Some(lines) => lines.wait().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
