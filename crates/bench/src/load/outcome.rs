//! The findings of a run: latencies, sizes and codes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::measure::Measure;

/// The code of a request that no response came for.
pub(crate) const NO_RESPONSE: i32 = -1;

/// Statuses that count as success.
const GOOD: std::ops::RangeInclusive<u16> = 200..=299;

/// The findings of one generator, or of several together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Nanoseconds from when a request was meant to be sent, of all requests.
    pub latency: Measure,
    /// The same of the requests among them that failed.
    pub failed: Measure,
    /// Nanoseconds that connections took to be made, with their handshake.
    pub connects: Measure,
    /// Bytes of responses.
    pub sizes: Measure,
    /// Bytes of their heads.
    pub head_sizes: Measure,
    /// Requests by the status of their response, or [`NO_RESPONSE`].
    pub codes: BTreeMap<i32, u64>,
    /// How long it went on.
    pub time: Duration,
    /// The last failure.
    pub last_error: Option<String>,
}

impl Outcome {
    /// Nothing yet.
    pub(crate) fn new() -> anyhow::Result<Outcome> {
        Ok(Outcome {
            latency: Measure::new()?,
            failed: Measure::new()?,
            connects: Measure::new()?,
            sizes: Measure::new()?,
            head_sizes: Measure::new()?,
            codes: BTreeMap::new(),
            time: Duration::ZERO,
            last_error: None,
        })
    }

    /// A connection was made.
    pub(crate) fn connect(&mut self, time: Duration) {
        self.connects.record(nanos(time));
    }

    /// A request was answered, with so many bytes of head and body.
    pub(crate) fn answer(&mut self, latency: Duration, status: u16, (head, body): (u64, u64)) {
        self.latency.record(nanos(latency));
        self.head_sizes.record(head);
        self.sizes.record(head + body);
        *self.codes.entry(status.into()).or_default() += 1;
        if !GOOD.contains(&status) {
            self.failed.record(nanos(latency));
            self.last_error = Some(format!("a response with status {status}"));
        }
    }

    /// A request was not answered.
    pub(crate) fn fail(&mut self, latency: Duration, text: String) {
        self.latency.record(nanos(latency));
        self.failed.record(nanos(latency));
        *self.codes.entry(NO_RESPONSE).or_default() += 1;
        self.last_error = Some(text);
    }

    /// Adds that of a generator which ran at the same time.
    pub(crate) fn add(&mut self, other: Outcome) -> anyhow::Result<()> {
        self.latency.add(&other.latency)?;
        self.failed.add(&other.failed)?;
        self.connects.add(&other.connects)?;
        self.sizes.add(&other.sizes)?;
        self.head_sizes.add(&other.head_sizes)?;
        for (code, count) in other.codes {
            *self.codes.entry(code).or_default() += count;
        }
        self.time = self.time.max(other.time);
        self.last_error = other.last_error.or(self.last_error.take());
        Ok(())
    }

    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        match self.time.is_zero() {
            true => 0.0,
            false => self.latency.count() as f64 / self.time.as_secs_f64(),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
