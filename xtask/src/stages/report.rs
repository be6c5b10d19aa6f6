//! The quick form of the report, beside a real peer: that every experiment is in it with its
//! figures, that counts which do not depend on the machine are exact, and that a second run takes
//! up what is there. Times are for the real runs to judge.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Place;
use crate::peer::{self, Peer};

/// An experiment, how many points it has, and the figures of each of its rows.
struct Expected {
    id: &'static str,
    points: usize,
    figures: &'static [&'static str],
}

const EXPERIMENTS: [Expected; 9] = [
    Expected {
        id: "activation",
        points: 6,
        figures: &[
            "domains",
            "activation_ms.p50",
            "activation_ms.p99",
            "live_at_half.activation_ms.p50",
            "rss_mib",
            "live.p99_during_ms",
        ],
    },
    Expected {
        id: "gateway",
        points: 2,
        figures: &["cores", "rps", "p50_ms", "p90_ms", "p99_ms", "rss_mib"],
    },
    Expected {
        id: "peers",
        points: 2,
        figures: &["connections", "cpu_us_per_request", "ratio.median"],
    },
    Expected {
        id: "latency",
        points: 2,
        figures: &[
            "bytes",
            "connections",
            "baseline_p99_ms",
            "added_p50_ms",
            "added_p99_ms",
            "peer_added_p99_ms",
        ],
    },
    Expected {
        id: "egress",
        points: 1,
        figures: &["case", "clients", "tps", "p90_ms", "cpu_ms_per_1000"],
    },
    Expected {
        id: "fleet",
        points: 2,
        figures: &[
            "proxies",
            "controllers",
            "changes.last_proxy_ms.p50",
            "rss_mib",
        ],
    },
    Expected {
        id: "services",
        points: 2,
        figures: &["replicas", "requests", "rows", "rps", "p99_ms"],
    },
    Expected {
        id: "routes",
        points: 3,
        figures: &["requests", "errors", "p50_ms", "p99_ms"],
    },
    Expected {
        id: "soak",
        points: 1,
        figures: &["changes", "slope_mib_per_hour", "slope_error_mib_per_hour"],
    },
];

/// The work for one new domain, at every number of domains.
const WORK: [(&str, u64); 3] = [
    ("units_translated", 4),
    ("objects_visited", 7),
    ("resources_changed", 5),
];

/// Counts that are the same in every run: an experiment, a figure, and its values in order.
const COUNTS: [(&str, &str, &[u64]); 12] = [
    ("activation", "domains", &[100, 1_000, 100, 100, 1_000, 50]),
    ("activation", "activation_ms.samples", &[5, 5, 5, 5, 5, 3]),
    ("activation", "live.errors", &[0; 6]),
    ("gateway", "errors", &[0; 2]),
    ("latency", "connections", &[2, 16, 16, 16]),
    ("egress", "case", &[1, 2, 3, 4, 5, 5]),
    ("fleet", "controllers", &[1, 2]),
    ("fleet", "changes.told", &[5, 5]),
    ("services", "requests", SERVICES_REQUESTS),
    ("services", "rows", SERVICES_ROWS),
    ("services", "errors", &[0; 12]),
    ("soak", "errors", &[0]),
];

/// Requests to each service of a chain and to its whole, and so of the shop, where the database
/// has queries: 50 of each whole.
const SERVICES_REQUESTS: &[u64] = &[50, 50, 50, 50, 50, 50, 200, 100, 50, 50, 400, 50];

/// The rows that they read: of a customer 1, of a route 10, of a booking 1 and 3.
const SERVICES_ROWS: &[u64] = &[0, 0, 0, 0, 0, 0, 200, 1_000, 200, 0, 1_400, 1_400];

/// The folder of the report below the workspace, which is new in each run.
const FOLDER: &str = "target/report";

/// Runs the command twice in a folder of its own; `enter` lets it into a cluster.
pub(super) fn run(place: &Place, enter: impl Fn(&mut Command)) -> Result<()> {
    // The others take part where they are.
    peer::provide(&place.root, Peer::Envoy, &place.cache)?;
    let folder = place.root.join(FOLDER);
    if folder.is_dir() {
        std::fs::remove_dir_all(&folder)?;
    }
    let report = measure(place, &folder, &enter)?;
    check(&report)?;
    let page = std::fs::read_to_string(folder.join("index.html"))?;
    let plots = page.matches("<svg").count();
    ensure!(plots >= EXPERIMENTS.len(), "the page has {plots} plots");
    let again = measure(place, &folder, &enter)?;
    ensure!(
        ends(&again) == ends(&report),
        "finished points were measured again"
    );
    Ok(())
}

fn measure(place: &Place, folder: &Path, enter: impl Fn(&mut Command)) -> Result<Value> {
    println!("$ myriad-bench report --quick --present");
    let mut command = Command::new(place.programs.join("myriad-bench"));
    enter(&mut command);
    command.args(["report", "--quick", "--present", "--out"]);
    command.arg(folder).current_dir(&place.root);
    command.stdin(Stdio::null());
    let status = place.with_tools(command).status()?;
    ensure!(status.success(), "it ended with {status}");
    let text = std::fs::read_to_string(folder.join("report.json"))?;
    serde_json::from_str(&text).context("report.json")
}

/// Checks the shape of a report, and its counts.
fn check(report: &Value) -> Result<()> {
    ensure!(report["mode"] == "quick", "not the quick form");
    let experiments = report["experiments"].as_array().context("experiments")?;
    let ids = experiments.iter().map(|it| it["id"].as_str());
    let expected = EXPERIMENTS.iter().map(|it| Some(it.id));
    ensure!(ids.eq(expected), "other experiments");
    for (experiment, expected) in experiments.iter().zip(&EXPERIMENTS) {
        check_experiment(experiment, expected).context(expected.id)?;
    }
    for (id, path, values) in COUNTS {
        let experiment = experiments.iter().find(|it| it["id"] == id);
        let rows = experiment.map(rows).unwrap_or_default();
        let found: Vec<Option<u64>> = rows.iter().map(|row| count(row, path)).collect();
        let expected: Vec<Option<u64>> = values.iter().copied().map(Some).collect();
        ensure!(found == expected, "{path} of {id}: {found:?}");
    }
    let activation = experiments.first().map(rows).unwrap_or_default();
    let own = |row: &&&Value| row["source"] == "inbox" || row["source"] == "kubernetes";
    for row in activation.iter().filter(own) {
        for (path, value) in WORK {
            let found = count(row, path);
            ensure!(found == Some(value), "{path}: {found:?}, not {value}");
        }
    }
    Ok(())
}

/// Checks the points of an experiment: all that failed is an error, and so is a figure that lacks.
fn check_experiment(experiment: &Value, expected: &Expected) -> Result<()> {
    let points = experiment["points"].as_array().context("points")?;
    let count = points.len();
    ensure!(count == expected.points, "{count} points");
    for point in points {
        let name = point["name"].as_str().context("a name")?;
        let gaps = point["gaps"].as_array().context("gaps")?;
        for gap in gaps {
            ensure!(gap["is_absent"] == true, "{name}: {}", gap["reason"]);
            println!("gap: {} of {name}: {}", gap["of"], gap["reason"]);
        }
        let rows = point["rows"].as_array().context("rows")?;
        ensure!(!rows.is_empty(), "{name} has no figures");
    }
    for row in rows(experiment) {
        let lacks = |path: &&&str| !at(row, path).is_some_and(Value::is_number);
        let lacking: Vec<&&str> = expected.figures.iter().filter(lacks).collect();
        ensure!(lacking.is_empty(), "figures missing: {lacking:?} in {row}");
    }
    Ok(())
}

/// All rows of an experiment.
fn rows(experiment: &Value) -> Vec<&Value> {
    let points = experiment["points"].as_array().into_iter().flatten();
    let rows = points.flat_map(|point| point["rows"].as_array().into_iter().flatten());
    rows.collect()
}

/// When each point ended.
fn ends(report: &Value) -> Vec<&Value> {
    let experiments = report["experiments"].as_array().into_iter().flatten();
    let points = experiments.flat_map(|it| it["points"].as_array().into_iter().flatten());
    points.map(|point| &point["ended"]).collect()
}

fn at<'a>(row: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(row, |value, part| value.get(part))
}

/// A whole number, however it was written.
fn count(row: &Value, path: &str) -> Option<u64> {
    let value = at(row, path)?;
    value.as_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SOAK: &Expected = &EXPERIMENTS[8];

    fn experiment(rows: &Value, gaps: &Value) -> Value {
        let point = json!({"name": "mixed traffic", "rows": rows, "gaps": gaps, "ended": "now"});
        json!({"id": "soak", "points": [point]})
    }

    #[test]
    fn an_experiment_needs_its_figures_and_no_failure() {
        let row = json!({"changes": 3, "slope_mib_per_hour": 0.5, "slope_error_mib_per_hour": 1});
        let (rows, none) = (json!([row]), json!([]));
        assert!(check_experiment(&experiment(&rows, &none), SOAK).is_ok());
        let absent = json!([{"of": "nginx", "reason": "not there", "is_absent": true}]);
        assert!(check_experiment(&experiment(&rows, &absent), SOAK).is_ok());
        let failed = json!([{"of": "soak", "reason": "memory grew", "is_absent": false}]);
        let error = check_experiment(&experiment(&rows, &failed), SOAK).expect_err("it failed");
        assert!(error.to_string().contains("memory grew"), "{error}");
        assert!(check_experiment(&experiment(&none, &none), SOAK).is_err());
        let half = json!([{"changes": 3, "slope_mib_per_hour": 0.5}]);
        let error = check_experiment(&experiment(&half, &none), SOAK).expect_err("half");
        assert!(error.to_string().contains("slope_error"), "{error}");
        let none = json!({"id": "soak", "points": []});
        assert!(check_experiment(&none, SOAK).is_err());
    }

    #[test]
    fn a_report_of_other_experiments_is_refused() {
        let report = json!({"mode": "quick", "experiments": [{"id": "soak", "points": []}]});
        let error = check(&report).expect_err("one of nine");
        assert!(error.to_string().contains("other experiments"), "{error}");
    }

    #[test]
    fn points_are_known_by_when_they_ended() {
        let report = json!({"experiments": [experiment(&json!([]), &json!([]))]});
        assert_eq!(ends(&report), [&json!("now")]);
    }
}
