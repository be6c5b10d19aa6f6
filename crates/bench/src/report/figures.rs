//! The plots, tables and notes of each experiment, out of the objects that its commands printed.

mod columns;
mod latency;
mod lines;

use serde_json::Value;

use super::plan::{ACTIVATION, EGRESS, FLEET, GATEWAY, LATENCY, PEERS, ROUTES, SERVICES, SOAK};
use super::{Outcome, Results};
use crate::plot::{Axis, Plot, number};
use lines::{bars, by_value, line};

/// A table: the first column is text, the others are figures.
pub(super) struct Table {
    /// The heads of its columns.
    pub heads: Vec<String>,
    /// Its cells.
    pub rows: Vec<Vec<String>>,
}

/// The plots of an experiment that have something to show.
pub(super) fn plots(results: &Results) -> Vec<Plot> {
    let all = match results.id.as_str() {
        ACTIVATION => activation(results),
        GATEWAY => gateway(results),
        PEERS => peers(results),
        LATENCY => latency::plots(results),
        EGRESS => egress(results),
        FLEET => fleet(results),
        SERVICES => services(results),
        ROUTES => routes(results),
        SOAK => soak(results),
        _ => Vec::new(),
    };
    all.into_iter().filter(Plot::has_points).collect()
}

/// The table of an experiment: a line for each object.
pub(super) fn table(results: &Results) -> Table {
    let columns = columns::of(&results.id);
    let heads = std::iter::once("point").chain(columns.iter().map(|it| it.0));
    let heads = heads.map(str::to_owned).collect();
    let rows = rows(results).map(|(point, row)| {
        let cells = columns.iter().map(|(_, path)| cell(row, path));
        std::iter::once(point.name.clone()).chain(cells).collect()
    });
    let mut table = Table {
        heads,
        rows: rows.collect(),
    };
    table.drop_empty();
    table
}

/// Sentences that say what figures mean, where there are some.
pub(super) fn notes(results: &Results) -> Vec<String> {
    match results.id.as_str() {
        LATENCY => latency::notes(results),
        SOAK => slope_notes(results),
        _ => Vec::new(),
    }
}

/// The missing parts, each with its reason.
pub(super) fn gaps(results: &Results) -> Vec<String> {
    let of_points = results.points.iter().flat_map(|point| {
        let gaps = point.gaps.iter();
        gaps.map(move |gap| match gap.of == point.name {
            true => format!("{}: {}", point.name, gap.reason),
            false => format!("{} in {}: {}", gap.of, point.name, gap.reason),
        })
    });
    let missing = results.missing.iter();
    let missing = missing.map(|what| format!("not measured yet: {what}"));
    of_points.chain(missing).collect()
}

/// All objects, each with its point.
fn rows(results: &Results) -> impl Iterator<Item = (&Outcome, &Value)> {
    let points = results.points.iter();
    points.flat_map(|point| point.rows.iter().map(move |row| (point, row)))
}

/// The value at a path of names, or of places in lists, with dots between them.
fn at<'a>(row: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(row, |value, part| match (value, part.parse::<usize>()) {
            (Value::Array(all), Ok(place)) => all.get(place),
            _ => value.get(part),
        })
}

fn figure(row: &Value, path: &str) -> Option<f64> {
    at(row, path)?.as_f64()
}

fn text<'a>(row: &'a Value, path: &str) -> &'a str {
    at(row, path).and_then(Value::as_str).unwrap_or_default()
}

fn cell(row: &Value, path: &str) -> String {
    match at(row, path) {
        Some(Value::Number(value)) => value.as_f64().map(number).unwrap_or_default(),
        Some(Value::String(value)) => value.clone(),
        Some(Value::Bool(value)) => value.to_string(),
        _ => String::new(),
    }
}

fn plot(title: &str, x: Axis, y: Axis) -> Plot {
    Plot {
        title: title.to_owned(),
        x,
        y,
        groups: Vec::new(),
        series: Vec::new(),
    }
}

impl Table {
    /// Drops columns in which nothing stands.
    fn drop_empty(&mut self) {
        let is_kept = |column: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(column));
            column == 0 || cells.any(|cell| !cell.is_empty())
        };
        let kept: Vec<usize> = (0..self.heads.len()).filter(|it| is_kept(*it)).collect();
        let chosen = |row: &Vec<String>| -> Vec<String> {
            kept.iter().filter_map(|&it| row.get(it).cloned()).collect()
        };
        self.rows = self.rows.iter().map(chosen).collect();
        self.heads = chosen(&self.heads);
    }
}

/// The ways in which domains come, as series are named.
const SOURCES: [(&str, &str); 4] = [
    ("inbox", "Myriad, serve"),
    ("kubernetes", "Myriad, through the API of Kubernetes"),
    ("envoy-on-demand", "Envoy, certificates and hosts on demand"),
    ("envoy-chains", "Envoy, a filter chain per domain"),
];

fn activation(results: &Results) -> Vec<Plot> {
    let domains = || Axis::log("domains that exist already", "");
    let drawn = |title: &str, y: Axis, path: &str| {
        let mut plot = plot(title, domains(), y);
        for (source, name) in SOURCES {
            let of_source = rows(results).filter(|(_, row)| text(row, "source") == source);
            let of_source = of_source.map(|(_, row)| row);
            plot.series.extend(line(name, of_source, "domains", path));
        }
        plot
    };
    let time = || Axis::log("from its write to its first answer", "ms");
    let p99 = || Axis::even("latency of others, p99", "ms");
    vec![
        drawn(
            "Activation of a new domain, idle, median",
            time(),
            "activation_ms.p50",
        ),
        drawn(
            "Activation of a new domain, idle, p99",
            time(),
            "activation_ms.p99",
        ),
        drawn(
            "Activation of a domain, half load, median",
            time(),
            "live_at_half.activation_ms.p50",
        ),
        drawn(
            "Activation of a domain, half load, p99",
            time(),
            "live_at_half.activation_ms.p99",
        ),
        drawn(
            "Others' requests while domains come",
            p99(),
            "live.p99_during_ms",
        ),
        drawn("Memory of the proxy", Axis::log("memory", "MiB"), "rss_mib"),
        drawn(
            "Bytes that the proxy is sent for one domain",
            Axis::log("bytes", "B"),
            "bytes_per_proxy",
        ),
    ]
}

fn gateway(results: &Results) -> Vec<Plot> {
    let group = |row: &Value| {
        let cores = figure(row, "cores").map(number).unwrap_or_default();
        let mode = match text(row, "mode") {
            "direct" => "no gateway",
            mode => mode,
        };
        format!("{mode}, cores: {cores}")
    };
    let drawn = |title: &str, y: Axis, pair: [&str; 2]| {
        let all = rows(results).map(|(_, row)| row);
        let series = [("Myriad", pair[0]), ("Envoy", pair[1])];
        bars(
            plot(title, Axis::even("filters and cores", ""), y),
            all,
            group,
            &series,
        )
    };
    let quantiles = bars(
        plot(
            "Latency of a saturated gateway",
            Axis::even("filters and cores", ""),
            Axis::even("latency", "ms"),
        ),
        rows(results).map(|(_, row)| row),
        group,
        &[
            ("Myriad, p50", "p50_ms"),
            ("Myriad, p99", "p99_ms"),
            ("Envoy, p50", "peer_p50_ms"),
            ("Envoy, p99", "peer_p99_ms"),
        ],
    );
    let rate = Axis::even("requests", "1/s");
    let cost = Axis::even("processor time", "ms for 1,000 requests");
    vec![
        drawn("Requests per second", rate, ["rps", "peer_rps"]),
        drawn(
            "Processor time of the gateway",
            cost,
            ["cpu_ms_per_1000", "peer_cpu_ms_per_1000"],
        ),
        quantiles,
        drawn(
            "Memory under load",
            Axis::even("memory", "MiB"),
            ["rss_mib", "peer_rss_mib"],
        ),
    ]
}

fn peers(results: &Results) -> Vec<Plot> {
    let all = || rows(results).map(|(_, row)| row);
    let work = |row: &Value| match text(row, "work") {
        "W1" => "HTTPS/1.1".to_owned(),
        "W2" => "HTTP/1.1".to_owned(),
        "W3" => "HTTP/2".to_owned(),
        other => format!("{other} {}", text(row, "variant")),
    };
    let cost = plot(
        "Processor time of the proxy for one request",
        Axis::even("protocol of the client", ""),
        Axis::even("processor time", "µs"),
    );
    let open = |title: &str, paths: [&'static str; 2]| {
        let y = Axis::even("added to the backend's own", "µs");
        let plot = plot(title, Axis::even("arrival", ""), y);
        let open = all().filter(|row| text(row, "work") == "W5");
        by_value(plot, open, |row| text(row, "variant").to_owned(), paths)
    };
    let closed = all().filter(|row| text(row, "work") != "W5");
    let costs = ["cpu_us_per_request", "peer_cpu_us_per_request"];
    vec![
        by_value(cost, closed, work, costs),
        open(
            "Latency at 1,000 requests per second, median",
            ["added_p50_us", "peer_added_p50_us"],
        ),
        open(
            "Latency at 1,000 requests per second, p90",
            ["added_p90_us", "peer_added_p90_us"],
        ),
    ]
}

fn egress(results: &Results) -> Vec<Plot> {
    let drawn = |title: &str, y: Axis, path: &str| {
        let mut plot = plot(title, Axis::even("clients", ""), y);
        for (way, name) in [
            ("1", "around"),
            ("2", "sidecar"),
            ("3", "gateway"),
            ("4", "gateway, mutual TLS"),
            ("5", "wildcard"),
            ("5m", "wildcard, mutual TLS"),
        ] {
            let of_way = rows(results).map(|(_, row)| row);
            let of_way = of_way.filter(|row| text(row, "way") == way);
            let name = format!("{way} {name}");
            plot.series.extend(line(&name, of_way, "clients", path));
        }
        plot
    };
    vec![
        drawn("Transactions", Axis::even("transactions", "1/s"), "tps"),
        drawn("Latency, p90", Axis::even("latency, p90", "ms"), "p90_ms"),
        drawn(
            "Processor time of sidecar and gateway",
            Axis::even("processor time", "ms for 1,000 requests"),
            "cpu_ms_per_1000",
        ),
    ]
}

fn fleet(results: &Results) -> Vec<Plot> {
    let series = [
        ("median", "changes.last_proxy_ms.p50"),
        ("p99", "changes.last_proxy_ms.p99"),
        ("median, sidecars told", "endpoint_changes.in_step_ms.p50"),
        ("p99, sidecars told", "endpoint_changes.in_step_ms.p99"),
    ];
    let all = || rows(results).map(|(_, row)| row);
    let drawn = |title: &str, y: Axis| {
        let x = "fleet (sessions + processes), controllers";
        plot(title, Axis::even(x, ""), y)
    };
    let time = drawn(
        "Time until the last one has an endpoint",
        Axis::even("time", "ms"),
    );
    let memory = drawn("Memory of each controller", Axis::even("memory", "MiB"));
    let cost = drawn(
        "Processor time of each controller for a change",
        Axis::even("processor time", "ms"),
    );
    let bytes = drawn(
        "Bytes of each controller for a change",
        Axis::even("to its sessions", "B"),
    );
    let whole = drawn(
        "Memory of a sidecar that is a process",
        Axis::even("memory", "MiB"),
    );
    let is_whole = |row: &&Value| figure(row, "whole_sidecars.rss_mib").is_some();
    let of_whole = [("whole sidecar", "whole_sidecars.rss_mib")];
    vec![
        bars(time, all(), fleet_name, &series),
        bars(
            memory,
            all(),
            fleet_name,
            &[
                ("leader", "by_controller.0.rss_mib"),
                ("second", "by_controller.1.rss_mib"),
                ("third", "by_controller.2.rss_mib"),
            ],
        ),
        bars(
            cost,
            all(),
            fleet_name,
            &[
                ("leader", "by_controller.0.cpu_ms_per_change"),
                ("second", "by_controller.1.cpu_ms_per_change"),
                ("third", "by_controller.2.cpu_ms_per_change"),
            ],
        ),
        bars(
            bytes,
            all(),
            fleet_name,
            &[
                ("leader", "by_controller.0.bytes_per_change"),
                ("second", "by_controller.1.bytes_per_change"),
                ("third", "by_controller.2.bytes_per_change"),
            ],
        ),
        bars(whole, all().filter(is_whole), fleet_name, &of_whole),
    ]
}

/// A fleet, with its whole sidecars apart, and the number of its controllers.
fn fleet_name(row: &Value) -> String {
    let controllers = figure(row, "controllers").unwrap_or(1.0);
    let followers = match (figure(row, "sidecars"), figure(row, "processes")) {
        (Some(all), Some(whole)) if whole > 0.0 => {
            format!("{} + {} sidecars", number(all - whole), number(whole))
        }
        (Some(all), _) => format!("{} sidecars", number(all)),
        (None, _) => {
            let proxies = figure(row, "proxies").map(number);
            format!("{} gateways", proxies.unwrap_or_default())
        }
    };
    format!("{followers}, {}", number(controllers))
}

fn services(results: &Results) -> Vec<Plot> {
    let group = |row: &Value| text(row, "service").to_owned();
    let series = [("p50", "p50_ms"), ("p90", "p90_ms"), ("p99", "p99_ms")];
    let plots = results.points.iter().map(|point| {
        let title = format!("Latency of each service, {}", point.name);
        let (x, y) = (Axis::even("service", ""), Axis::even("latency", "ms"));
        bars(plot(&title, x, y), point.rows.iter(), group, &series)
    });
    plots.collect()
}

fn routes(results: &Results) -> Vec<Plot> {
    let all = rows(results).map(|(_, row)| row);
    let group = |row: &Value| text(row, "scenario").to_owned();
    let plot = plot(
        "Answers that were wrong, and none at all",
        Axis::even("scenario", ""),
        Axis::even("requests", ""),
    );
    let series = [("errors", "errors"), ("wrong answers", "wrong_answers")];
    vec![bars(plot, all, group, &series)]
}

fn soak(results: &Results) -> Vec<Plot> {
    let mut plot = plot(
        "Resident memory under mixed traffic and changes",
        Axis::even("time", "min"),
        Axis::even("memory", "MiB"),
    );
    for (_, row) in rows(results) {
        let looks = at(row, "looks_mib").and_then(Value::as_array);
        let points = looks.into_iter().flatten().filter_map(|look| {
            let of = |place: usize| look.get(place)?.as_f64();
            Some((of(0)?, of(1)?))
        });
        plot.series.extend(lines::series("Myriad", points));
    }
    vec![plot]
}

fn slope_notes(results: &Results) -> Vec<String> {
    let notes = rows(results).filter_map(|(_, row)| {
        Some(format!(
            "Memory: {} ± {} MiB per hour over {} changes (slope and standard error).",
            number(figure(row, "slope_mib_per_hour")?),
            number(figure(row, "slope_error_mib_per_hour")?),
            number(figure(row, "changes")?)
        ))
    });
    notes.collect()
}
