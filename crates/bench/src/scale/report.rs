//! The figures of a run, as JSON or as a table.

use std::io::Write as _;

use serde::Serialize;

use super::ScaleArgs;
use super::cores::Cores;
use super::subject::{Outcome, Round};
use crate::istio::Mode;

/// The figures for one number of cores. Those of several rounds are their medians, but for
/// memory and errors: these are the largest, and the sum.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    mode: Mode,
    cores: usize,
    /// Whether the traffic and the endpoint run on the same cores.
    is_shared: bool,
    domains: u32,
    paths: u32,
    connections: usize,
    rounds: usize,
    rps: f64,
    peer_rps: Option<f64>,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    peer_p50_ms: Option<f64>,
    peer_p90_ms: Option<f64>,
    peer_p99_ms: Option<f64>,
    cpu_ms_per_1000: f64,
    peer_cpu_ms_per_1000: Option<f64>,
    /// Requests per second of the proxy's own processor time: what holds where the traffic is
    /// what limits the rate.
    rps_per_core: f64,
    peer_rps_per_core: Option<f64>,
    /// The median of the rounds' own ratios: both had their turn in each of them.
    ratio_per_core: Option<f64>,
    /// Cores that the proxy was busy on.
    busy_cores: f64,
    peer_busy_cores: Option<f64>,
    rss_idle_mib: f64,
    peer_rss_idle_mib: Option<f64>,
    rss_mib: f64,
    peer_rss_mib: Option<f64>,
    bytes_per_s: f64,
    peer_bytes_per_s: Option<f64>,
    start_s: f64,
    peer_start_s: Option<f64>,
    errors: u64,
    peer_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    name: String,
    peer: Option<String>,
    /// Cores that the traffic and the endpoint were busy on, while Myriad had its turn.
    driver_busy_cores: f64,
}

/// Prints rows as they come.
pub(crate) struct Report {
    is_json: bool,
    rows: usize,
}

/// The figures of one proxy.
struct Figures {
    rps: f64,
    quantiles_ms: [f64; 3],
    cpu_ms_per_1000: f64,
    busy_cores: f64,
    rss_mib: f64,
    bytes_per_s: f64,
    errors: u64,
}

impl Row {
    /// The figures of Myriad, which comes first, and of its peer.
    pub(crate) fn new(
        args: &ScaleArgs,
        proxy: &Cores,
        rest: &Cores,
        mut outcomes: Vec<Outcome>,
    ) -> Row {
        let peer = (outcomes.len() > 1).then(|| outcomes.pop()).flatten();
        let Some(own) = outcomes.pop() else {
            return Row::default();
        };
        let ratios = peer.as_ref().map(|peer| {
            let pairs = own.rounds.iter().zip(&peer.rounds);
            median(pairs.map(|(own, peer)| cpu_ms(peer) / cpu_ms(own)))
        });
        let last_error = [Some(&own), peer.as_ref()].into_iter().flatten();
        let last_error = last_error.flat_map(|it| &it.rounds);
        let last_error = last_error
            .filter_map(|it| it.seen.last_error.clone())
            .next();
        let figures = Figures::of(&own.rounds);
        let theirs = peer.as_ref().map(|peer| Figures::of(&peer.rounds));
        let them = theirs.as_ref();
        let [p50_ms, p90_ms, p99_ms] = figures.quantiles_ms;
        let quantile = |at: usize| them?.quantiles_ms.get(at).copied();
        Row {
            mode: args.mode,
            cores: proxy.count(),
            is_shared: proxy.overlap(rest),
            domains: args.setup.workspaces * args.setup.domains,
            paths: args.setup.paths,
            connections: args.connections,
            rounds: args.rounds,
            rps: figures.rps,
            peer_rps: them.map(|it| it.rps),
            p50_ms,
            p90_ms,
            p99_ms,
            peer_p50_ms: quantile(0),
            peer_p90_ms: quantile(1),
            peer_p99_ms: quantile(2),
            cpu_ms_per_1000: figures.cpu_ms_per_1000,
            peer_cpu_ms_per_1000: them.map(|it| it.cpu_ms_per_1000),
            rps_per_core: (1e6 / figures.cpu_ms_per_1000).round(),
            peer_rps_per_core: them.map(|it| (1e6 / it.cpu_ms_per_1000).round()),
            ratio_per_core: ratios.map(hundredth),
            busy_cores: figures.busy_cores,
            peer_busy_cores: them.map(|it| it.busy_cores),
            rss_idle_mib: tenth(own.rss_idle_mib),
            peer_rss_idle_mib: peer.as_ref().map(|it| tenth(it.rss_idle_mib)),
            rss_mib: figures.rss_mib,
            peer_rss_mib: them.map(|it| it.rss_mib),
            bytes_per_s: figures.bytes_per_s,
            peer_bytes_per_s: them.map(|it| it.bytes_per_s),
            start_s: hundredth(own.start.as_secs_f64()),
            peer_start_s: peer.as_ref().map(|it| hundredth(it.start.as_secs_f64())),
            errors: figures.errors,
            peer_errors: them.map(|it| it.errors),
            last_error,
            driver_busy_cores: hundredth(median(own.rounds.iter().map(driver_busy))),
            name: own.name,
            peer: peer.map(|it| it.name),
        }
    }
}

impl Report {
    /// A report that prints JSON, or a table.
    pub(crate) fn new(is_json: bool) -> Report {
        Report { is_json, rows: 0 }
    }

    /// Prints a row.
    pub(crate) fn add(&mut self, row: &Row) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.is_json {
            serde_json::to_writer(&mut out, row)?;
            writeln!(out)?;
            return Ok(());
        }
        if self.rows == 0 {
            writeln!(
                out,
                "{:>5}  {:14} {:>9} {:>8} {:>8} {:>8} {:>13} {:>10} {:>9} {:>9} {:>7}",
                "cores",
                "",
                "rps",
                "p50 ms",
                "p90 ms",
                "p99 ms",
                "CPU ms/1000",
                "rps/core",
                "idle MiB",
                "load MiB",
                "errors"
            )?;
        }
        self.rows += 1;
        for (name, is_peer) in [(Some(&row.name), false), (row.peer.as_ref(), true)] {
            let Some(name) = name else { continue };
            let pick =
                |own: f64, peer: Option<f64>| if is_peer { peer.unwrap_or(0.0) } else { own };
            let errors = if is_peer {
                row.peer_errors.unwrap_or(0)
            } else {
                row.errors
            };
            writeln!(
                out,
                "{:>5}  {name:14} {:>9.0} {:>8.2} {:>8.2} {:>8.2} {:>13.2} {:>10.0} {:>9.1} \
                 {:>9.1} {errors:>7}",
                row.cores,
                pick(row.rps, row.peer_rps),
                pick(row.p50_ms, row.peer_p50_ms),
                pick(row.p90_ms, row.peer_p90_ms),
                pick(row.p99_ms, row.peer_p99_ms),
                pick(row.cpu_ms_per_1000, row.peer_cpu_ms_per_1000),
                pick(row.rps_per_core, row.peer_rps_per_core),
                pick(row.rss_idle_mib, row.peer_rss_idle_mib),
                pick(row.rss_mib, row.peer_rss_mib),
            )?;
        }
        if row.is_shared {
            writeln!(
                out,
                "       (the traffic and the endpoint share these cores)"
            )?;
        }
        Ok(())
    }
}

impl Figures {
    fn of(rounds: &[Round]) -> Figures {
        let middle = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
        let quantile = |quantile: f64| {
            let millis =
                |round: &Round| round.seen.latency.value_at_quantile(quantile) as f64 / 1_000.0;
            hundredth(median(rounds.iter().map(millis)))
        };
        Figures {
            rps: middle(rate).round(),
            quantiles_ms: [quantile(0.5), quantile(0.9), quantile(0.99)],
            cpu_ms_per_1000: hundredth(middle(cpu_ms)),
            busy_cores: hundredth(middle(busy)),
            rss_mib: tenth(rounds.iter().map(|it| it.rss_mib).fold(0.0, f64::max)),
            bytes_per_s: middle(|it| it.seen.bytes as f64 / it.time.as_secs_f64()).round(),
            errors: rounds.iter().map(|it| it.seen.errors).sum(),
        }
    }
}

fn rate(round: &Round) -> f64 {
    round.seen.latency.len() as f64 / round.time.as_secs_f64()
}

/// Processor time of the proxy for 1,000 requests.
fn cpu_ms(round: &Round) -> f64 {
    let requests = round.seen.latency.len().max(1) as f64;
    round.worked.as_secs_f64() * 1e6 / requests
}

fn busy(round: &Round) -> f64 {
    round.worked.as_secs_f64() / round.time.as_secs_f64()
}

fn driver_busy(round: &Round) -> f64 {
    round.driven.as_secs_f64() / round.time.as_secs_f64()
}

/// The one in the middle; of an even number, the upper of the two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Rounds to a tenth.
pub(crate) fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Rounds to a hundredth.
pub(crate) fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
