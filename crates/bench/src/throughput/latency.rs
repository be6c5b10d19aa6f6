//! The latency that a proxy adds to requests at a rate that does not saturate it.

use serde::Serialize;

use super::report::{Spread, Subjects, Turn, errors, last_error, middle};
use super::work::{Case, RATE_RPS};
use crate::table;

/// A row.
#[derive(Debug, Serialize)]
pub(super) struct LatencyRow {
    #[serde(flatten)]
    of: Subjects,
    rps: f64,
    /// The backend asked directly, without TLS. Medians of the rounds, as all figures but errors.
    direct_p50_us: f64,
    direct_p90_us: f64,
    /// Above the backend in the same round.
    added_p50_us: f64,
    added_p90_us: f64,
    peer_added_p50_us: f64,
    peer_added_p90_us: f64,
    /// The ratio of what Myriad adds to what the peer does, each of a round of both.
    ratio: Spread,
    ratio_p90: Spread,
    cpu_us_per_request: f64,
    peer_cpu_us_per_request: f64,
    rss_mib: f64,
    errors: u64,
    peer_errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl LatencyRow {
    /// The figures of Myriad's turns, a peer's, and those of the backend alone.
    pub(super) fn new(
        case: &Case,
        peer: &str,
        [direct, own, theirs]: [&[Turn]; 3],
        is_shared: bool,
    ) -> LatencyRow {
        let added = |turns: &[Turn], share| {
            let pairs = turns.iter().zip(direct);
            let added =
                pairs.map(|(turn, direct)| turn.quantile_us(share) - direct.quantile_us(share));
            added.collect::<Vec<f64>>()
        };
        let ratio = |share| {
            let (own, theirs) = (added(own, share), added(theirs, share));
            Spread::of(own.into_iter().zip(theirs).map(|(own, peer)| own / peer))
        };
        let median = |values: Vec<f64>| Spread::of(values.into_iter()).median();
        LatencyRow {
            of: Subjects::new(case, peer, is_shared),
            rps: RATE_RPS,
            direct_p50_us: middle(direct, |turn| turn.quantile_us(0.5)),
            direct_p90_us: middle(direct, |turn| turn.quantile_us(0.9)),
            added_p50_us: median(added(own, 0.5)),
            added_p90_us: median(added(own, 0.9)),
            peer_added_p50_us: median(added(theirs, 0.5)),
            peer_added_p90_us: median(added(theirs, 0.9)),
            ratio: ratio(0.5),
            ratio_p90: ratio(0.9),
            cpu_us_per_request: middle(own, Turn::proxy_us),
            peer_cpu_us_per_request: middle(theirs, Turn::proxy_us),
            rss_mib: own.iter().map(|turn| turn.rss_mib).fold(0.0, f64::max),
            errors: errors(own) + errors(direct),
            peer_errors: errors(theirs),
            last_error: last_error(&[direct, own, theirs]),
        }
    }
}

impl table::Row<12> for LatencyRow {
    const COLUMNS: [(&'static str, usize); 12] = [
        ("work", 4),
        ("", 16),
        ("conns", 5),
        ("peer", 16),
        ("direct p50", 10),
        ("p90 us", 6),
        ("added p50", 9),
        ("p90 us", 6),
        ("peer p50", 8),
        ("p90 us", 6),
        ("ratio", 6),
        ("errors", 6),
    ];

    fn cells(&self) -> [String; 12] {
        let [work, variant, connections, peer] = self.of.cells();
        [
            work,
            variant,
            connections,
            peer,
            format!("{:.0}", self.direct_p50_us),
            format!("{:.0}", self.direct_p90_us),
            format!("{:.0}", self.added_p50_us),
            format!("{:.0}", self.added_p90_us),
            format!("{:.0}", self.peer_added_p50_us),
            format!("{:.0}", self.peer_added_p90_us),
            format!("{:.2}", self.ratio.median()),
            (self.errors + self.peer_errors).to_string(),
        ]
    }

    fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}
