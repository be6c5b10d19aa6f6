//! The plots and notes of a pair of sidecars.

use serde_json::Value;

use super::lines::{self, bars};
use super::{at, figure, plot, rows, text};
use crate::plot::{Axis, Plot, number};
use crate::report::Results;

/// Requests per second of the published mesh.
const MESH_RPS: f64 = 70_000.0;

/// The quantiles that are drawn.
const QUANTILES: [&str; 3] = ["p50", "p90", "p99"];

/// The rate at which connections are swept, and the connections and the length of answers at which
/// everything else is.
const SWEPT_RPS: f64 = 1_000.0;
const SWEPT_CONNECTIONS: f64 = 16.0;
const SWEPT_BYTES: f64 = 1_024.0;

/// The rate at which lengths and protocols are swept.
const LENGTHS_RPS: f64 = 200.0;

/// The protocols, as rows and as titles name them.
const PROTOCOLS: [(&str, &str); 3] = [("http1", "HTTP/1.1"), ("http2", "HTTP/2"), ("grpc", "gRPC")];

/// The plots.
pub(super) fn plots(results: &Results) -> Vec<Plot> {
    let mut plots = by_connections(results);
    let rates = at_rest(results).filter(|row| text(row, "variant") == "metrics" && is_usual(row));
    let x = Axis::log("requests", "1/s");
    let title = "Latency, p99, against the rate";
    plots.push(three_ways(title, x, "p99", "rps", rates));
    let records = plot(
        "Processor time of a pair, by what is recorded",
        Axis::even("records", ""),
        Axis::even("processor time", "ms for 1,000 requests"),
    );
    let variant = |row: &Value| text(row, "variant").to_owned();
    let of_records = at_rest(results).filter(|row| is_of(row, "rps", SWEPT_RPS) && is_usual(row));
    plots.push(bars(records, of_records, variant, &COSTS));
    plots.extend(by_length(results));
    plots
}

/// The processor time of a pair.
const COSTS: [(&str, &str); 2] = [
    ("Myriad", "cpu_ms_per_1000"),
    ("Envoy", "peer_cpu_ms_per_1000"),
];

/// Quantiles against the number of connections, without and with jitter.
fn by_connections(results: &Results) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (jitter, how) in [(false, "evenly spaced"), (true, "with jitter")] {
        for quantile in QUANTILES {
            let all = rows(results).map(|(_, row)| row).filter(|row| {
                let is_meant = text(row, "variant") == "metrics" && is_of(row, "rps", SWEPT_RPS);
                is_meant && is_usual(row) && is_jittered(row) == Some(jitter)
            });
            let title = format!("Latency, {quantile}, 1,000 requests per second {how}");
            let x = Axis::log("connections", "");
            plots.push(three_ways(&title, x, quantile, "connections", all));
        }
    }
    plots
}

/// A quantile against the length of answers for each protocol, and what each protocol costs.
fn by_length(results: &Results) -> Vec<Plot> {
    let all = || at_rest(results).filter(|row| is_of(row, "rps", LENGTHS_RPS));
    let mut plots = Vec::new();
    for (protocol, name) in PROTOCOLS {
        let spoken = all().filter(|row| text(row, "protocol") == protocol);
        let title = format!("Latency, p90, by the length of answers, {name}");
        let x = Axis::log("length of an answer", "B");
        plots.push(three_ways(&title, x, "p90", "bytes", spoken));
    }
    let costs = plot(
        "Processor time of a pair, by protocol, 1 KiB",
        Axis::even("protocol", ""),
        Axis::even("processor time", "ms for 1,000 requests"),
    );
    let named = |row: &Value| {
        let found = PROTOCOLS.iter().find(|it| it.0 == text(row, "protocol"));
        found.map_or_else(String::new, |it| it.1.to_owned())
    };
    let short = all().filter(|row| figure(row, "bytes") == Some(SWEPT_BYTES));
    plots.push(bars(costs, short, named, &COSTS));
    plots
}

/// Rows of the usual number of connections, evenly spaced.
fn at_rest(results: &Results) -> impl Iterator<Item = &Value> {
    rows(results).map(|(_, row)| row).filter(|row| {
        is_of(row, "connections", SWEPT_CONNECTIONS) && is_jittered(row) == Some(false)
    })
}

/// Whether requests are those of all sweeps but one: HTTP/1.1, with answers of the usual length.
fn is_usual(row: &Value) -> bool {
    is_of(row, "bytes", SWEPT_BYTES) && matches!(text(row, "protocol"), "" | "http1")
}

fn is_jittered(row: &Value) -> Option<bool> {
    at(row, "jitter").and_then(Value::as_bool)
}

/// Whether a row has this figure, if it has any.
fn is_of(row: &Value, path: &str, value: f64) -> bool {
    figure(row, path).is_none_or(|found| (found - value).abs() < 0.5)
}

/// A quantile of latency without proxies, with Myriad and with Envoy.
fn three_ways<'a>(
    title: &str,
    x: Axis,
    quantile: &str,
    path: &str,
    rows: impl Iterator<Item = &'a Value>,
) -> Plot {
    let base = format!("baseline_{quantile}_ms");
    let ways = [
        ("Myriad as both sidecars", Some("")),
        ("Envoy as both sidecars", Some("peer_")),
        ("no proxy", None),
    ];
    let mut plot = plot(title, x, Axis::even(&format!("latency, {quantile}"), "ms"));
    let rows: Vec<&Value> = rows.collect();
    for (name, prefix) in ways {
        let added = prefix.map(|prefix| format!("{prefix}added_{quantile}_ms"));
        let points = rows.iter().filter_map(|row| {
            let more = match &added {
                Some(added) => figure(row, added)?,
                None => 0.0,
            };
            Some((figure(row, path)?, figure(row, &base)? + more))
        });
        plot.series.extend(lines::series(name, points));
    }
    plot
}

/// The cost of a mesh in proportion to what was measured.
pub(super) fn notes(results: &Results) -> Vec<String> {
    let sides = [
        ("Myriad", "cpu_ms_per_1000", "rss_mib"),
        ("Envoy", "peer_cpu_ms_per_1000", "peer_rss_mib"),
    ];
    let of_records = |row: &&Value| {
        text(row, "variant") == "metrics"
            && figure(row, "connections") == Some(SWEPT_CONNECTIONS)
            && figure(row, "rps") == Some(SWEPT_RPS)
    };
    let row = rows(results).map(|(_, row)| row).find(of_records);
    let notes = sides.into_iter().filter_map(|(name, cpu, memory)| {
        // Milliseconds for 1,000 requests of a pair: of one sidecar it is half of that.
        let vcpu = figure(row?, cpu)? / 2_000.0;
        let mesh = vcpu * MESH_RPS / 1_000.0;
        Some(format!(
            "{name}: for 1,000 requests per second a sidecar takes {} vCPU and {} MiB. \
             Extrapolated in proportion, and not measured: the sidecars of a mesh of {MESH_RPS} \
             requests per second take {} vCPU.",
            number(vcpu),
            number(figure(row?, memory)?),
            number(mesh)
        ))
    });
    notes.collect()
}
