//! The cost of connections that say nothing to those who ask.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use super::report::{Spread, Subjects, Turn, errors, last_error, middle};
use super::traffic::Silent;
use super::work::{Case, NEW_RPS, SILENT_HELD, SILENT_RPS};
use crate::table;

/// Between two bursts of the flood.
const BEAT: Duration = Duration::from_millis(5);

/// Connections that come at an even rate, say nothing and stay for as long as they may.
pub(super) struct Flood {
    is_ending: Arc<AtomicBool>,
    begun: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Flood {
    /// Starts it.
    ///
    /// # Errors
    /// No thread is to be had.
    pub(super) fn start(address: SocketAddr) -> anyhow::Result<Flood> {
        let is_ending = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(AtomicU64::new(0));
        let (ending, count) = (is_ending.clone(), begun.clone());
        let thread = std::thread::Builder::new().name("flood".to_owned());
        let thread = thread.spawn(move || run(address, &ending, &count))?;
        Ok(Flood {
            is_ending,
            begun,
            thread,
        })
    }

    /// Ends it, and says how many connections there were.
    ///
    /// # Errors
    /// It has ended by itself.
    pub(super) fn end(self) -> anyhow::Result<u64> {
        self.is_ending.store(true, Ordering::Relaxed);
        let ended = self.thread.join().ok();
        ended.context("the thread of the flood panicked")?;
        Ok(self.begun.load(Ordering::Relaxed))
    }
}

fn run(address: SocketAddr, is_ending: &AtomicBool, count: &AtomicU64) {
    let started = Instant::now();
    let mut held = VecDeque::new();
    let mut begun = 0;
    while !is_ending.load(Ordering::Relaxed) {
        let due = started.elapsed().as_secs_f64() * f64::from(SILENT_RPS);
        while (begun as f64) < due {
            begun += 1;
            // One that is refused has reached its end.
            if let Ok(link) = Silent::begin(address) {
                held.push_back(link);
            }
            if held.len() > SILENT_HELD {
                held.pop_front();
            }
        }
        count.store(begun, Ordering::Relaxed);
        std::thread::sleep(BEAT);
    }
}

/// The turns of one proxy: alone, and beside the flood.
#[derive(Default)]
pub(super) struct Turns {
    pub idle: Vec<Turn>,
    pub flooded: Vec<Turn>,
    /// Connections of the flood.
    pub silent: u64,
}

impl Turns {
    fn ratio(&self) -> Spread {
        let pairs = self.idle.iter().zip(&self.flooded);
        Spread::of(pairs.map(|(idle, flooded)| flooded.quantile_us(0.99) / idle.quantile_us(0.99)))
    }

    fn errors(&self) -> u64 {
        errors(&self.idle) + errors(&self.flooded)
    }
}

/// A row.
#[derive(Debug, Serialize)]
pub(super) struct SilentRow {
    #[serde(flatten)]
    of: Subjects,
    rps: f64,
    silent_rps: u32,
    /// All that were begun.
    silent: u64,
    /// Medians of the rounds.
    idle_p99_us: f64,
    flooded_p99_us: f64,
    peer_idle_p99_us: f64,
    peer_flooded_p99_us: f64,
    /// The ratio of the latency beside the flood to that without, each of a round.
    ratio: Spread,
    peer_ratio: Spread,
    /// The largest of the rounds.
    rss_mib: f64,
    errors: u64,
    peer_errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl SilentRow {
    /// The figures of Myriad's turns and a peer's.
    pub(super) fn new(
        case: &Case,
        peer: &str,
        [own, theirs]: [&Turns; 2],
        is_shared: bool,
    ) -> SilentRow {
        let p99 = |turns: &[Turn]| middle(turns, |turn| turn.quantile_us(0.99));
        SilentRow {
            of: Subjects::new(case, peer, is_shared),
            rps: NEW_RPS,
            silent_rps: SILENT_RPS,
            silent: own.silent,
            idle_p99_us: p99(&own.idle),
            flooded_p99_us: p99(&own.flooded),
            peer_idle_p99_us: p99(&theirs.idle),
            peer_flooded_p99_us: p99(&theirs.flooded),
            ratio: own.ratio(),
            peer_ratio: theirs.ratio(),
            rss_mib: own.flooded.iter().map(|it| it.rss_mib).fold(0.0, f64::max),
            errors: own.errors(),
            peer_errors: theirs.errors(),
            last_error: last_error(&[&own.idle, &own.flooded, &theirs.idle, &theirs.flooded]),
        }
    }
}

impl table::Row<10> for SilentRow {
    const COLUMNS: [(&'static str, usize); 10] = [
        ("work", 4),
        ("conns", 5),
        ("peer", 16),
        ("idle p99", 8),
        ("silent us", 9),
        ("ratio", 6),
        ("peer p99", 8),
        ("silent us", 9),
        ("ratio", 6),
        ("errors", 6),
    ];

    fn cells(&self) -> [String; 10] {
        let [work, _, connections, peer] = self.of.cells();
        [
            work,
            connections,
            peer,
            format!("{:.0}", self.idle_p99_us),
            format!("{:.0}", self.flooded_p99_us),
            format!("{:.2}", self.ratio.median()),
            format!("{:.0}", self.peer_idle_p99_us),
            format!("{:.0}", self.peer_flooded_p99_us),
            format!("{:.2}", self.peer_ratio.median()),
            (self.errors + self.peer_errors).to_string(),
        ]
    }

    fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}
