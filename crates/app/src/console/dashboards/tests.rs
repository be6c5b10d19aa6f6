//! The dashboards beside those for Grafana, and beside the table of metrics.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{DASHBOARDS, lines};
use crate::console::panels::{LINES_MAX, Reading, Selector};
use crate::metrics::{MetricRow, rows};

/// The panels for Grafana that no process plots by itself: those of several processes, and those
/// whose lines are domains and routes.
const LEFT_OUT: [&str; 7] = [
    "fleet: Processes",
    "activation: Activation by proxy",
    "traffic: Domains by requests",
    "traffic: Domains by errors",
    "traffic: Domains by bytes",
    "traffic: Routes by requests",
    "certificates: Domains by handshakes",
];

macro_rules! grafana {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../deploy/grafana/",
                $name,
                ".json"
            )),
        )
    };
}

const GRAFANA: [(&str, &str); 6] = [
    grafana!("fleet"),
    grafana!("activation"),
    grafana!("traffic"),
    grafana!("certificates"),
    grafana!("mesh"),
    grafana!("control-plane"),
];

#[test]
fn every_panel_for_grafana_is_plotted_or_known_not_to_be() {
    let mut plotted: BTreeSet<String> = LEFT_OUT.map(str::to_owned).into();
    for dashboard in DASHBOARDS {
        for panel in dashboard.panels {
            let name = format!("{}: {}", dashboard.name, panel.title);
            assert!(plotted.insert(name), "{} stands twice", panel.title);
            assert!(!panel.lines.is_empty(), "{}", panel.title);
            assert!(panel.lines.len() <= LINES_MAX, "{}", panel.title);
        }
    }
    let mut expected = BTreeSet::new();
    for (name, text) in GRAFANA {
        let dashboard: Value = serde_json::from_str(text).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            expected.insert(format!("{name}: {title}"));
        }
    }
    assert_eq!(plotted, expected);
}

/// The metric that samples of a name are of.
fn row(name: &str) -> MetricRow {
    let found = rows().find(|row| {
        let rest = name.strip_prefix(row.name);
        match row.kind {
            "histogram" => matches!(rest, Some("_bucket" | "_sum" | "_count")),
            _ => rest == Some(""),
        }
    });
    found.unwrap_or_else(|| panic!("there is no metric {name}"))
}

#[test]
fn every_line_is_of_metrics_and_labels_that_there_are() {
    for line in lines() {
        let (one, other) = line.reading.selectors();
        for Selector { metric, labels } in [Some(one), other].into_iter().flatten() {
            let row = row(metric);
            let is_istio = row.labels.starts_with('(');
            for (label, _) in *labels {
                let mut known = row.labels.split_whitespace();
                assert!(is_istio || known.any(|it| it == *label), "{metric} {label}");
            }
            let is_fitting = match line.reading {
                Reading::Rate(_) | Reading::Ratio(..) => row.kind != "gauge",
                Reading::Quantile(..) => metric.ends_with("_bucket"),
                Reading::Level(_) | Reading::Part(..) => row.kind == "gauge",
                Reading::Since(_) | Reading::Until(_) => row.kind == "gauge",
            };
            assert!(is_fitting, "{metric} is a {}", row.kind);
        }
    }
}
