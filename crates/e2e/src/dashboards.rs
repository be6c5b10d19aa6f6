//! The dashboards and alert rules of this repository, and what they ask of a Prometheus.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::prometheus::Prometheus;
use crate::world::{eventually_within, repository};

/// The folder of the dashboards.
const FOLDER: &str = "deploy/grafana";

/// How long all queries may take to have answers: rates take two reads, and counts of streams are
/// told every ten seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time that rates are over.
const RATE_INTERVAL: &str = "1m";

/// One query of one panel.
#[derive(Clone, Debug)]
pub struct PanelQuery {
    /// The file of the dashboard, without its end.
    pub dashboard: String,
    /// The title of the panel.
    pub panel: String,
    /// The query as it is written.
    pub query: String,
}

/// All dashboards by the names of their files, in order.
///
/// # Panics
/// Where one cannot be read.
pub fn dashboards() -> Vec<(String, Value)> {
    let folder = repository(FOLDER);
    let entries = std::fs::read_dir(&folder).expect("the folder of the dashboards");
    let mut all: Vec<(String, Value)> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let text = std::fs::read_to_string(&path).expect("a dashboard");
            let json = serde_json::from_str(&text);
            let json = json.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (name.expect("a name").to_owned(), json)
        })
        .collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

/// The panels of a dashboard that ask for something.
pub fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    panels.filter(|panel| panel["type"] != "row")
}

/// The queries of all dashboards, or of those of these names.
pub fn queries(names: &[&str]) -> Vec<PanelQuery> {
    let mut all = Vec::new();
    for (name, dashboard) in dashboards() {
        if !names.is_empty() && !names.contains(&&*name) {
            continue;
        }
        for panel in panels(&dashboard) {
            for target in panel["targets"].as_array().into_iter().flatten() {
                all.push(PanelQuery {
                    dashboard: name.clone(),
                    panel: panel["title"].as_str().unwrap_or_default().to_owned(),
                    query: target["expr"].as_str().unwrap_or_default().to_owned(),
                });
            }
        }
    }
    all
}

impl PanelQuery {
    /// The query as Grafana asks it, for all jobs and instances.
    pub fn asked(&self) -> String {
        let asked = self.query.replace("$__rate_interval", RATE_INTERVAL);
        let asked = asked.replace("$job", ".*").replace("$instance", ".*");
        assert!(!asked.contains('$'), "an unknown variable: {self:?}");
        asked
    }
}

/// The names of metrics in a query or in rules.
pub fn metrics(text: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_name(letter));
    let is_metric = |word: &&str| {
        let starts = ["myriad_", "istio_", "process_"];
        starts.iter().any(|start| word.starts_with(start))
    };
    words.filter(is_metric).map(str::to_owned).collect()
}

/// Waits until each query has an answer that is a number, while something goes on.
///
/// # Panics
/// Where one has none in time; all of them are named.
pub async fn all_answer(
    prometheus: &Prometheus,
    mut left: Vec<PanelQuery>,
    mut meanwhile: impl AsyncFnMut(),
) {
    assert!(!left.is_empty(), "there are queries");
    let answered = eventually_within(PATIENCE, async || {
        meanwhile().await;
        let mut without = Vec::new();
        for query in std::mem::take(&mut left) {
            let series = prometheus.ask(&query.asked()).await;
            if !series.iter().any(|(_, value)| value.is_finite()) {
                without.push(query);
            }
        }
        left = without;
        left.is_empty().then_some(())
    });
    let answered = answered.await;
    let missing: Vec<String> = left
        .iter()
        .map(|it| format!("{}, {}: {}", it.dashboard, it.panel, it.query))
        .collect();
    assert!(answered.is_some(), "no data:\n{}", missing.join("\n"));
}

/// Waits until a Prometheus knows all these metrics.
///
/// # Panics
/// Where it does not in time; those that it does not know are named.
pub async fn all_known(prometheus: &Prometheus, names: &BTreeSet<String>) {
    let mut unknown = Vec::new();
    let known = eventually_within(PATIENCE, async || {
        unknown.clear();
        for name in names {
            let query = format!("count({{__name__=\"{name}\"}})");
            if prometheus.ask(&query).await.is_empty() {
                unknown.push(name.clone());
            }
        }
        unknown.is_empty().then_some(())
    });
    assert!(known.await.is_some(), "nobody tells {unknown:?}");
}

#[cfg(test)]
mod tests {
    use super::metrics;

    #[test]
    fn metrics_are_told_from_labels_and_functions() {
        let query = "sum by (le) (rate(myriad_a_bucket{job=~\"$job\"}[5m])) / process_b";
        let names: Vec<String> = metrics(query).into_iter().collect();
        assert_eq!(names, ["myriad_a_bucket", "process_b"]);
    }
}
