//! The figures of a run.

use std::time::Instant;

use myriad_lab::pebble::PebbleCounts;
use serde::Serialize;

use super::arrivals::Arrivals;
use super::drill::DrillFigures;
use super::ordinary::OrdinaryFigures;
use super::plan::proofs_max;
use super::{IssueArgs, Source};
use crate::activate::Quantiles;

/// The figures, in this order.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    domains: u64,
    failing: usize,
    source: Source,
    rate: f64,
    /// From the write of an Ingress to the first answer over HTTPS with the issued certificate.
    live_ms: Quantiles,
    /// Domains that are live, and those that are not although they should be.
    live: usize,
    lost: usize,
    /// Orders that the authority has taken in, the certificates that it has issued for them, and
    /// the most orders that it may have had.
    orders: usize,
    issued: usize,
    orders_max: u64,
    /// Steps that failed, and the most proofs of the names that fail by the waits between them.
    failed_attempts: u64,
    failed_attempts_max: u64,
    leaders_killed: usize,
    ordinary: OrdinaryFigures,
    /// Seconds from the first write until all were live.
    seconds: f64,
    rss_mib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    drill: Option<DrillFigures>,
    /// Domains that were lost, certificates beyond one each, certificates that were not replaced,
    /// and requests and connections that failed.
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// The measurements once all domains have come.
pub(super) struct Come {
    /// The domains.
    pub arrivals: Arrivals,
    /// The authority's count.
    pub counts: PebbleCounts,
    /// Steps that failed, and when they were counted.
    pub failed: u64,
    pub counted: Instant,
    /// The moments at which leaders were killed.
    pub kills: Vec<Instant>,
    /// The moment before the first domain was written, and the one at which all had come.
    pub begun: Instant,
    pub ended: Instant,
    /// Resident memory of all processes together, in MiB.
    pub rss_mib: f64,
    /// The figures of ordinary domains.
    pub ordinary: OrdinaryFigures,
}

impl Report {
    /// The report of a run.
    pub(super) fn new(args: &IssueArgs, come: Come, drill: Option<DrillFigures>) -> Report {
        let Come {
            arrivals,
            counts,
            failed,
            counted,
            kills,
            begun,
            ended,
            rss_mib,
            ordinary,
        } = come;
        let (live, lost) = (arrivals.live.len(), arrivals.lost.len());
        let attempts = arrivals.failing.iter();
        let attempts = attempts.map(|written| attempts_max(*written, &kills, counted));
        let extra = counts.issued.saturating_sub(live);
        let of_drill = drill.as_ref();
        let errors = of_drill.map_or(0, DrillFigures::errors_all);
        let why = arrivals.lost.into_iter().next_back();
        let why = why.or_else(|| of_drill.and_then(|drill| drill.last_error.clone()));
        Report {
            domains: args.domains,
            failing: arrivals.failing.len(),
            source: args.source,
            rate: args.rate,
            live_ms: Quantiles::of(arrivals.live.iter().map(|arrival| arrival.after)),
            live,
            lost,
            orders: counts.orders,
            issued: counts.issued,
            orders_max: args.orders(),
            failed_attempts: failed,
            failed_attempts_max: attempts.sum(),
            leaders_killed: kills.len(),
            ordinary,
            seconds: hundredth((ended - begun).as_secs_f64()),
            rss_mib: hundredth(rss_mib),
            drill,
            errors: errors + (lost + extra) as u64,
            last_error: why,
        }
    }
}

/// The most proofs of a name that always fails from one moment to another: whoever takes over from
/// a leader that was killed may ask at once.
fn attempts_max(from: Instant, kills: &[Instant], to: Instant) -> u64 {
    let later = kills.iter().copied().filter(|kill| *kill > from);
    let ends: Vec<Instant> = later.chain([to]).collect();
    let begins = [from].into_iter().chain(ends.iter().copied());
    let terms = begins.zip(&ends);
    let proofs = terms.map(|(begin, end)| proofs_max(end.saturating_duration_since(begin)));
    proofs.sum()
}

fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::attempts_max;

    #[test]
    fn each_leader_may_ask_at_once() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(attempts_max(at(0), &[], at(10)), 2);
        // Two seconds of the first one, eight of the second.
        assert_eq!(attempts_max(at(0), &[at(2)], at(10)), 1 + 2);
        assert_eq!(attempts_max(at(5), &[at(2)], at(6)), 1);
    }
}
