//! The figures of a case, of Myriad beside one peer.

use std::time::Duration;

use serde::Serialize;

use super::subject::Subject;
use super::traffic::Ended;
use super::work::{Case, Work};
use crate::scale::report::{hundredth, median, tenth};
use crate::table;

/// The measurements of one turn.
pub(super) struct Turn {
    /// How long was measured.
    pub time: Duration,
    /// Requests that were answered meanwhile.
    pub answered: u64,
    /// Processor time of the proxy meanwhile.
    pub proxy: Duration,
    /// The processor time of the load generator.
    pub load: Duration,
    /// The processor time of the backend.
    pub backend: Duration,
    /// Resident memory of the proxy at its end, before connections were closed.
    pub rss_mib: f64,
    /// The measurements of the load generator.
    pub ended: Ended,
}

/// A figure of several rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    median: f64,
    min: f64,
    max: f64,
    rounds: usize,
}

/// The subjects of a row.
#[derive(Debug, Serialize)]
pub(super) struct Subjects {
    work: Work,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'static str>,
    connections: usize,
    peer: String,
    /// Whether traffic and backend run on the same core as the proxies.
    is_shared: bool,
}

/// A row.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    of: Subjects,
    /// Medians of the rounds, as all figures but memory and errors.
    cpu_us_per_request: f64,
    peer_cpu_us_per_request: f64,
    /// The ratio of Myriad to the peer, each of a round of both.
    ratio: Spread,
    rps: f64,
    peer_rps: f64,
    busy_cores: f64,
    peer_busy_cores: f64,
    rss_boot_mib: f64,
    peer_rss_boot_mib: f64,
    /// The largest of the rounds.
    rss_mib: f64,
    peer_rss_mib: f64,
    /// Processor time of the load generator and of the backend, of both proxies' turns.
    load_us_per_request: f64,
    backend_us_per_request: f64,
    /// All that were sent, warm ones included.
    requests: u64,
    peer_requests: u64,
    errors: u64,
    peer_errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl Row {
    /// The figures of Myriad's turns and a peer's.
    pub(super) fn new(
        case: &Case,
        (subject, peer): (&Subject, &Subject),
        own: &[Turn],
        theirs: &[Turn],
        is_shared: bool,
    ) -> Row {
        let both = || own.iter().chain(theirs);
        let pairs = own.iter().zip(theirs);
        Row {
            of: Subjects::new(case, peer.name(), is_shared),
            cpu_us_per_request: middle(own, Turn::proxy_us),
            peer_cpu_us_per_request: middle(theirs, Turn::proxy_us),
            ratio: Spread::of(pairs.map(|(own, peer)| own.proxy_us() / peer.proxy_us())),
            rps: middle(own, Turn::rps).round(),
            peer_rps: middle(theirs, Turn::rps).round(),
            busy_cores: middle(own, Turn::busy),
            peer_busy_cores: middle(theirs, Turn::busy),
            rss_boot_mib: tenth(subject.rss_boot_mib()),
            peer_rss_boot_mib: tenth(peer.rss_boot_mib()),
            rss_mib: largest(own),
            peer_rss_mib: largest(theirs),
            load_us_per_request: hundredth(median(both().map(|it| it.us(it.load)))),
            backend_us_per_request: hundredth(median(both().map(|it| it.us(it.backend)))),
            requests: own.iter().map(|turn| turn.ended.sent).sum(),
            peer_requests: theirs.iter().map(|turn| turn.ended.sent).sum(),
            errors: errors(own),
            peer_errors: errors(theirs),
            last_error: last_error(&[own, theirs]),
        }
    }
}

impl Subjects {
    /// A case, and the peer beside Myriad.
    pub(super) fn new(case: &Case, peer: &str, is_shared: bool) -> Subjects {
        Subjects {
            work: case.work,
            variant: case.variant,
            connections: case.connections,
            peer: peer.to_owned(),
            is_shared,
        }
    }

    /// The first cells of the row.
    pub(super) fn cells(&self) -> [String; 4] {
        [
            format!("{:?}", self.work),
            self.variant.unwrap_or_default().to_owned(),
            self.connections.to_string(),
            self.peer.clone(),
        ]
    }
}

impl Turn {
    fn us(&self, of: Duration) -> f64 {
        of.as_secs_f64() * 1e6 / self.answered.max(1) as f64
    }

    /// Processor time of the proxy by request.
    pub(super) fn proxy_us(&self) -> f64 {
        self.us(self.proxy)
    }

    fn rps(&self) -> f64 {
        self.answered as f64 / self.time.as_secs_f64()
    }

    fn busy(&self) -> f64 {
        self.proxy.as_secs_f64() / self.time.as_secs_f64()
    }

    /// The latency within which this share was answered.
    pub(super) fn quantile_us(&self, share: f64) -> f64 {
        self.ended.seen.quantile_ms(share) * 1_000.0
    }
}

impl Spread {
    /// The spread of these values.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.collect();
        Spread {
            median: thousandth(median(values.iter().copied())),
            min: thousandth(values.iter().copied().fold(f64::INFINITY, f64::min)),
            max: thousandth(values.iter().copied().fold(0.0, f64::max)),
            rounds: values.len(),
        }
    }

    /// The value in the middle.
    pub(super) fn median(self) -> f64 {
        self.median
    }
}

impl table::Row<13> for Row {
    const COLUMNS: [(&'static str, usize); 13] = [
        ("work", 4),
        ("", 16),
        ("conns", 5),
        ("peer", 16),
        ("us", 7),
        ("peer us", 7),
        ("ratio", 6),
        ("min..max", 12),
        ("rps", 7),
        ("peer rps", 8),
        ("MiB", 6),
        ("peer MiB", 8),
        ("errors", 6),
    ];

    fn cells(&self) -> [String; 13] {
        let [work, variant, connections, peer] = self.of.cells();
        [
            work,
            variant,
            connections,
            peer,
            format!("{:.1}", self.cpu_us_per_request),
            format!("{:.1}", self.peer_cpu_us_per_request),
            format!("{:.2}", self.ratio.median),
            format!("{:.2}..{:.2}", self.ratio.min, self.ratio.max),
            format!("{:.0}", self.rps),
            format!("{:.0}", self.peer_rps),
            format!("{:.0}", self.rss_mib),
            format!("{:.0}", self.peer_rss_mib),
            (self.errors + self.peer_errors).to_string(),
        ]
    }

    fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}

/// All failures of these turns.
pub(super) fn errors(turns: &[Turn]) -> u64 {
    turns.iter().map(|turn| turn.ended.failed()).sum()
}

/// One of them, in words.
pub(super) fn last_error(of: &[&[Turn]]) -> Option<String> {
    let mut turns = of.iter().copied().flatten();
    turns.find_map(|turn| turn.ended.seen.last_error.clone())
}

/// The median of a figure.
pub(super) fn middle(turns: &[Turn], figure: fn(&Turn) -> f64) -> f64 {
    hundredth(median(turns.iter().map(figure)))
}

fn largest(turns: &[Turn]) -> f64 {
    tenth(turns.iter().map(|turn| turn.rss_mib).fold(0.0, f64::max))
}

fn thousandth(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
