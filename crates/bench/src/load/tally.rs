//! The measurements of traffic: latencies, and failures by kind.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// No connection.
    Connect,
    /// No session: an alert, an end, or nothing.
    Handshake,
    /// The connection ended or stood still within a request.
    Connection,
    /// Another answer than the endpoint's.
    Answer,
    /// The generator could not keep up.
    Behind,
}

/// The measurements between two looks.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Latency of requests in milliseconds, from when they were meant to be sent.
    pub p50_ms: f64,
    /// The latency that 99 of 100 do not exceed, likewise.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that failed.
    pub errors: BTreeMap<Trouble, u64>,
    /// The last failure.
    pub last_error: Option<String>,
}

pub(super) struct Tally {
    state: Mutex<State>,
}

struct State {
    /// The latencies in microseconds, up to a minute, to three digits.
    latency: Histogram<u64>,
    errors: BTreeMap<Trouble, u64>,
    last_error: Option<String>,
}

impl Tally {
    /// An empty tally.
    pub(super) fn new() -> anyhow::Result<Self> {
        let latency = Histogram::new_with_bounds(1, 60_000_000, 3)?;
        let state = State {
            latency,
            errors: BTreeMap::new(),
            last_error: None,
        };
        Ok(Tally {
            state: Mutex::new(state),
        })
    }

    /// A request was answered.
    pub(super) fn record(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.lock().latency.saturating_record(micros);
    }

    /// A request failed.
    pub(super) fn fail(&self, trouble: Trouble, text: &str) {
        let mut state = self.lock();
        *state.errors.entry(trouble).or_default() += 1;
        state.last_error = Some(text.to_owned());
    }

    /// Everything since the last look.
    pub(super) fn take(&self) -> Measured {
        let mut state = self.lock();
        let quantile = |quantile| state.latency.value_at_quantile(quantile) as f64 / 1_000.0;
        let measured = Measured {
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            max_ms: quantile(1.0),
            requests: state.latency.len(),
            errors: state.errors.clone(),
            last_error: state.last_error.clone(),
        };
        state.latency.reset();
        state.errors.clear();
        state.last_error = None;
        measured
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
