//! The figures of a run, as JSON or as a table.

use std::collections::BTreeMap;
use std::io::Write;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::samples::{PerDomain, Quantiles, Samples};
use super::served::{Changed, ClusterFigures, Source};
use crate::child::Counts;
use crate::domains::{Certificates, DomainObjects};
use crate::load::{Measured, Trouble};

/// One run.
pub(super) struct Row {
    /// Domains that exist beside the sampled ones.
    pub domains: u64,
    /// The source of changes.
    pub source: Source,
    /// The objects that lead to domains.
    pub objects: DomainObjects,
    /// How certificates are spread.
    pub certificates: Certificates,
    /// Domains per file, for directories.
    pub domains_per_file: u64,
    /// Times and counts.
    pub samples: Samples,
    /// Resident memory after the start.
    pub rss_mib: f64,
    /// Its peak up to there.
    pub rss_peak_mib: f64,
    /// Resident memory after all samples.
    pub rss_after_mib: f64,
    /// Start to serving.
    pub start_s: f64,
    /// Live traffic.
    pub live: Live,
    /// Changes beside traffic at half of the capacity.
    pub live_at_half: Option<(Samples, Live)>,
    /// Changes beside changes of others' routes.
    pub live_under_churn: Option<(Samples, Live)>,
    /// The figures of a cluster alone.
    pub cluster: Option<ClusterFigures>,
}

/// Live traffic without and with changes.
pub(super) struct Live {
    /// Requests per second.
    pub rps: f64,
    /// Without changes.
    pub idle: Measured,
    /// With them.
    pub during: Measured,
    /// The changes of others meanwhile.
    pub changed: Option<Changed>,
}

/// A row in JSON, in this order.
#[derive(Serialize)]
struct Figures<'a> {
    domains: u64,
    source: Source,
    objects: DomainObjects,
    certificates: Certificates,
    domains_per_file: u64,
    activation_ms: Quantiles,
    change_ms: Quantiles,
    remove_ms: Quantiles,
    /// Per added domain; means of those that differ from sample to sample.
    #[serde(flatten)]
    counts: Pairs<Value>,
    /// The ends of those that differ.
    spread: Pairs<PerDomain>,
    rss_mib: f64,
    rss_peak_mib: f64,
    rss_after_mib: f64,
    start_s: f64,
    live: LiveFigures<'a>,
    live_at_half: Option<LiveFigures<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live_under_churn: Option<LiveFigures<'a>>,
    #[serde(flatten)]
    cluster: Option<&'a ClusterFigures>,
}

#[derive(Serialize)]
struct LiveFigures<'a> {
    rps: f64,
    p50_idle_ms: f64,
    p99_idle_ms: f64,
    p50_during_ms: f64,
    p99_during_ms: f64,
    max_during_ms: f64,
    requests_idle: u64,
    requests_during: u64,
    errors: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    errors_idle: &'a BTreeMap<Trouble, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    errors_during: &'a BTreeMap<Trouble, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activation_ms: Option<Quantiles>,
    #[serde(flatten)]
    changed: Option<Changed>,
}

/// A map that keeps its order.
struct Pairs<T>(Vec<(&'static str, T)>);

impl<T: Serialize> Serialize for Pairs<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Counts per added domain, by their keys in the report.
type Count = (&'static str, fn(&Counts) -> u64);

/// Counted in a child alone: the processes of a cluster have no allocator that counts.
const BYTES_ALLOCATED: &str = "bytes_allocated";

const COUNTS: [Count; 6] = [
    ("units_translated", |counts| counts.units_translated),
    ("objects_visited", |counts| counts.objects_visited),
    ("resources_changed", |counts| counts.resources_changed),
    ("table_nodes_copied", |counts| counts.table_nodes_copied),
    (BYTES_ALLOCATED, |counts| counts.bytes_allocated),
    ("bytes_encoded", |counts| counts.bytes_encoded),
];

/// The count of what is sent to a proxy, which a cluster and peers alone have.
const BYTES_PER_PROXY: Count = ("bytes_per_proxy", |counts| counts.bytes_received);

/// Headings of the table, with the widths of their columns.
const COLUMNS: [(&str, usize); 15] = [
    ("domains", 8),
    ("p50 ms", 7),
    ("p99 ms", 7),
    ("max ms", 7),
    ("units", 6),
    ("objects", 7),
    ("resources", 9),
    ("nodes", 6),
    ("allocated", 9),
    ("encoded", 8),
    ("RSS MiB", 8),
    ("start s", 8),
    ("live p99", 8),
    ("idle p99", 8),
    ("errors", 6),
];

/// Writes rows as they come.
pub(super) struct Report {
    is_json: bool,
    has_head: bool,
}

impl Report {
    /// JSON lines, or a table.
    pub(super) fn new(is_json: bool) -> Self {
        Report {
            is_json,
            has_head: false,
        }
    }

    /// Writes a row.
    pub(super) fn add(&mut self, row: &Row) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.is_json {
            serde_json::to_writer(&mut out, &row.figures())?;
            writeln!(out)?;
            return Ok(out.flush()?);
        }
        if !std::mem::replace(&mut self.has_head, true) {
            writeln!(
                out,
                "{}",
                line(COLUMNS.map(|(heading, _)| heading.to_owned()))
            )?;
        }
        writeln!(out, "{}", line(row.cells()))?;
        if let Some((samples, live)) = &row.live_at_half {
            writeln!(out, "{}", at_half(samples, live))?;
        }
        if let Some((samples, live)) = &row.live_under_churn {
            writeln!(out, "{}", under_churn(samples, live))?;
        }
        if let Some(cluster) = &row.cluster {
            let text = serde_json::to_string_pretty(cluster)?;
            writeln!(out, "in the cluster: {text}")?;
        }
        Ok(out.flush()?)
    }
}

impl Live {
    fn errors(&self) -> u64 {
        let both = [&self.idle, &self.during];
        both.iter().flat_map(|it| it.errors.values()).sum()
    }

    fn figures(&self) -> LiveFigures<'_> {
        let (idle, during) = (&self.idle, &self.during);
        let last_error = during.last_error.as_ref().or(idle.last_error.as_ref());
        LiveFigures {
            rps: self.rps.round(),
            p50_idle_ms: idle.p50_ms,
            p99_idle_ms: idle.p99_ms,
            p50_during_ms: during.p50_ms,
            p99_during_ms: during.p99_ms,
            max_during_ms: during.max_ms,
            requests_idle: idle.requests,
            requests_during: during.requests,
            errors: self.errors(),
            errors_idle: &idle.errors,
            errors_during: &during.errors,
            last_error: last_error.map(String::as_str),
            activation_ms: None,
            changed: self.changed,
        }
    }
}

impl Row {
    fn figures(&self) -> Figures<'_> {
        let samples = &self.samples;
        let counts: Vec<Count> = match &self.cluster {
            // Of a peer nothing else is known.
            None if self.source.is_peer() => vec![BYTES_PER_PROXY],
            None => COUNTS.into(),
            Some(_) => {
                let counts = COUNTS.into_iter().filter(|it| it.0 != BYTES_ALLOCATED);
                counts.chain([BYTES_PER_PROXY]).collect()
            }
        };
        let counts = counts.into_iter();
        let counts = counts.map(|(key, count)| (key, samples.per_domain(count)));
        let counts: Vec<_> = counts.collect();
        let differ = counts.iter().filter(|(_, count)| !count.is_constant());
        Figures {
            domains: self.domains,
            source: self.source,
            objects: self.objects,
            certificates: self.certificates,
            domains_per_file: self.domains_per_file,
            activation_ms: samples.activation(),
            change_ms: samples.change(),
            remove_ms: samples.removal(),
            spread: Pairs(differ.copied().collect()),
            counts: Pairs(
                counts
                    .iter()
                    .map(|&(key, count)| (key, number(count)))
                    .collect(),
            ),
            rss_mib: tenth(self.rss_mib),
            rss_peak_mib: tenth(self.rss_peak_mib),
            rss_after_mib: tenth(self.rss_after_mib),
            start_s: (self.start_s * 1e3).round() / 1e3,
            live: self.live.figures(),
            live_at_half: self.live_at_half.as_ref().map(figures_with_times),
            live_under_churn: self.live_under_churn.as_ref().map(figures_with_times),
            cluster: self.cluster.as_ref(),
        }
    }

    fn cells(&self) -> [String; COLUMNS.len()] {
        let Quantiles { p50, p99, max, .. } = self.samples.activation();
        let [units, objects, resources, nodes, allocated, encoded] =
            COUNTS.map(|(_, count)| number(self.samples.per_domain(count)).to_string());
        [
            self.domains.to_string(),
            format!("{p50:.2}"),
            format!("{p99:.2}"),
            format!("{max:.2}"),
            units,
            objects,
            resources,
            nodes,
            allocated,
            encoded,
            format!("{:.1}", self.rss_mib),
            format!("{:.3}", self.start_s),
            format!("{:.2}", self.live.during.p99_ms),
            format!("{:.2}", self.live.idle.p99_ms),
            self.live.errors().to_string(),
        ]
    }
}

fn figures_with_times((samples, live): &(Samples, Live)) -> LiveFigures<'_> {
    LiveFigures {
        activation_ms: Some(samples.activation()),
        ..live.figures()
    }
}

fn under_churn(samples: &Samples, live: &Live) -> String {
    let Quantiles { p50, p99, max, .. } = samples.activation();
    let rate = live.changed.map_or(0.0, |it| it.changes_per_second);
    format!(
        "         beside {rate:.1} changes/s: p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms; \
         live p99 {:.2} ms, idle {:.2} ms; {} errors",
        live.during.p99_ms,
        live.idle.p99_ms,
        live.errors(),
    )
}

fn at_half(samples: &Samples, live: &Live) -> String {
    let Quantiles { p50, p99, max, .. } = samples.activation();
    format!(
        "         at {:.0} requests/s: p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms; live p99 \
         {:.2} ms, idle {:.2} ms; {} errors",
        live.rps,
        live.during.p99_ms,
        live.idle.p99_ms,
        live.errors(),
    )
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let pairs = cells.into_iter().zip(COLUMNS);
    let cells = pairs.map(|(cell, (_, width))| format!("{cell:>width$}"));
    cells.collect::<Vec<_>>().join(" ")
}

/// A whole number where all samples agree.
fn number(count: PerDomain) -> Value {
    if count.is_constant() {
        json!(count.min)
    } else {
        json!(count.mean)
    }
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
