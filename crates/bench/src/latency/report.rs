//! The figures, as JSON or as a table.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::{LatencyArgs, Protocol, Variant, Work};
use crate::load::Seen;
use crate::table;

/// The measurements of one pair in all its turns of a row.
pub(super) struct Side {
    pub seen: Seen,
    /// Processor time of both proxies.
    pub worked: Duration,
    /// Memory of the larger one, at its most.
    pub rss_mib: f64,
    rest_mib: f64,
}

/// One number of connections of one variant.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    variant: Variant,
    protocol: Protocol,
    /// The length of the body of each answer.
    bytes: usize,
    connections: usize,
    jitter: bool,
    rps: f64,
    services: u16,
    /// Without any proxy.
    baseline_p50_ms: f64,
    baseline_p90_ms: f64,
    baseline_p99_ms: f64,
    #[serde(flatten)]
    proxied: Option<Proxied>,
    /// The errors of all, the peer included.
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// The figures that proxies add to that.
#[derive(Debug, Default, Serialize)]
struct Proxied {
    added_p50_ms: f64,
    added_p90_ms: f64,
    added_p99_ms: f64,
    peer_added_p50_ms: Option<f64>,
    peer_added_p90_ms: Option<f64>,
    peer_added_p99_ms: Option<f64>,
    /// Ours by the peer's.
    ratio_p50: Option<f64>,
    /// The same at p90.
    ratio: Option<f64>,
    cpu_ms_per_1000: f64,
    peer_cpu_ms_per_1000: Option<f64>,
    cpu_ratio: Option<f64>,
    /// The memory of one sidecar under load, the larger of both.
    rss_mib: f64,
    peer_rss_mib: Option<f64>,
    /// The same before any load, with all Services in scope.
    rss_rest_mib: f64,
    peer_rss_rest_mib: Option<f64>,
}

/// The columns of the table, with their width.
impl Side {
    /// Nothing yet.
    pub(super) fn new(rest_mib: f64) -> anyhow::Result<Side> {
        Ok(Side {
            seen: Seen::new()?,
            worked: Duration::ZERO,
            rss_mib: rest_mib,
            rest_mib,
        })
    }

    /// Milliseconds of processor time for 1,000 requests.
    fn cpu_ms_per_1000(&self) -> f64 {
        let requests = self.seen.latency.len() + self.seen.errors;
        self.worked.as_secs_f64() * 1e6 / requests.max(1) as f64
    }
}

impl Row {
    /// The figures of these turns: ours are the first, the peer's the second.
    pub(super) fn new(
        variant: Variant,
        work: Work,
        args: &LatencyArgs,
        direct: &Seen,
        sides: &[Side],
    ) -> Row {
        let all = || std::iter::once(direct).chain(sides.iter().map(|side| &side.seen));
        let ours = sides.first();
        let schedule = work.schedule;
        Row {
            variant,
            protocol: work.protocol,
            bytes: work.bytes,
            connections: schedule.connections,
            jitter: schedule.has_jitter,
            rps: schedule.rps,
            services: args.services,
            baseline_p50_ms: thousandth(direct.quantile_ms(0.5)),
            baseline_p90_ms: thousandth(direct.quantile_ms(0.9)),
            baseline_p99_ms: thousandth(direct.quantile_ms(0.99)),
            proxied: ours.map(|ours| Proxied::new(direct, ours, sides.get(1))),
            errors: all().map(|seen| seen.errors).sum(),
            last_error: all().find_map(|seen| seen.last_error.clone()),
        }
    }
}

impl Proxied {
    fn new(direct: &Seen, ours: &Side, peer: Option<&Side>) -> Proxied {
        let added = |side: &Side, share| side.seen.quantile_ms(share) - direct.quantile_ms(share);
        let by = |ours: f64, peer: Option<f64>| peer.map(|peer| thousandth(ours / peer));
        let of_peer = |figure: &dyn Fn(&Side) -> f64| peer.map(figure);
        let shares = [0.5, 0.9, 0.99];
        let [p50, p90, p99] = shares.map(|share| added(ours, share));
        let [peer_p50, peer_p90, peer_p99] = shares.map(|share| of_peer(&|it| added(it, share)));
        let cpu = ours.cpu_ms_per_1000();
        let peer_cpu = of_peer(&Side::cpu_ms_per_1000);
        Proxied {
            added_p50_ms: thousandth(p50),
            added_p90_ms: thousandth(p90),
            added_p99_ms: thousandth(p99),
            peer_added_p50_ms: peer_p50.map(thousandth),
            peer_added_p90_ms: peer_p90.map(thousandth),
            peer_added_p99_ms: peer_p99.map(thousandth),
            ratio_p50: by(p50, peer_p50),
            ratio: by(p90, peer_p90),
            cpu_ms_per_1000: thousandth(cpu),
            peer_cpu_ms_per_1000: peer_cpu.map(thousandth),
            cpu_ratio: by(cpu, peer_cpu),
            rss_mib: thousandth(ours.rss_mib),
            peer_rss_mib: of_peer(&|it| thousandth(it.rss_mib)),
            rss_rest_mib: thousandth(ours.rest_mib),
            peer_rss_rest_mib: of_peer(&|it| thousandth(it.rest_mib)),
        }
    }
}

impl table::Row<15> for Row {
    const COLUMNS: [(&'static str, usize); 15] = [
        ("variant", 13),
        ("protocol", 8),
        ("bytes", 6),
        ("conns", 5),
        ("jitter", 6),
        ("base p50", 8),
        ("base p90", 8),
        ("+p50 ms", 7),
        ("+p90 ms", 7),
        ("x p50", 6),
        ("x p90", 6),
        ("cpu ms/1000", 11),
        ("x cpu", 6),
        ("MiB at rest", 11),
        ("errors", 6),
    ];

    fn cells(&self) -> [String; 15] {
        let with_peer = |own: f64, peer: Option<f64>| match peer {
            Some(peer) => format!("{own:.2}/{peer:.2}"),
            None => format!("{own:.2}"),
        };
        let ratio = |ratio: Option<f64>| ratio.map_or(String::new(), |it| format!("{it:.2}"));
        let empty = Proxied::default();
        let it = self.proxied.as_ref().unwrap_or(&empty);
        let named = |value: serde_json::Result<Value>| {
            let value = value.unwrap_or_default();
            value.as_str().unwrap_or_default().to_owned()
        };
        [
            named(serde_json::to_value(self.variant)),
            named(serde_json::to_value(self.protocol)),
            self.bytes.to_string(),
            self.connections.to_string(),
            self.jitter.to_string(),
            format!("{:.3}", self.baseline_p50_ms),
            format!("{:.3}", self.baseline_p90_ms),
            with_peer(it.added_p50_ms, it.peer_added_p50_ms),
            with_peer(it.added_p90_ms, it.peer_added_p90_ms),
            ratio(it.ratio_p50),
            ratio(it.ratio),
            with_peer(it.cpu_ms_per_1000, it.peer_cpu_ms_per_1000),
            ratio(it.cpu_ratio),
            with_peer(it.rss_rest_mib, it.peer_rss_rest_mib),
            self.errors.to_string(),
        ]
    }

    fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}

fn thousandth(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(millis: std::ops::RangeInclusive<u64>) -> Seen {
        let mut seen = Seen::new().unwrap();
        millis.for_each(|it| seen.record(Duration::from_millis(it)));
        seen
    }

    fn side(millis: std::ops::RangeInclusive<u64>, worked: u64) -> Side {
        Side {
            seen: seen(millis),
            worked: Duration::from_millis(worked),
            rss_mib: 15.0,
            rest_mib: 14.0,
        }
    }

    #[test]
    fn what_is_added_is_what_goes_beyond_the_way_without_proxies() {
        let direct = seen(1..=100);
        let (ours, peer) = (side(11..=110, 5), side(21..=120, 20));
        let figures = Proxied::new(&direct, &ours, Some(&peer));
        let close = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 0.2, "{found}, not {expected}");
        };
        close(figures.added_p50_ms, 10.0);
        close(figures.added_p90_ms, 10.0);
        close(figures.peer_added_p90_ms.unwrap(), 20.0);
        close(figures.added_p99_ms, 10.0);
        close(figures.peer_added_p99_ms.unwrap(), 20.0);
        close(figures.ratio.unwrap(), 0.5);
        // 5 ms for 100 requests.
        assert_eq!(figures.cpu_ms_per_1000, 50.0);
        assert_eq!(figures.cpu_ratio, Some(0.25));
        let alone = Proxied::new(&direct, &ours, None);
        assert_eq!((alone.ratio, alone.peer_rss_mib), (None, None));
    }
}
