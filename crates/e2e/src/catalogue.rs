//! The table of metrics, beside what a process shows.

use std::collections::BTreeMap;

use myriad::metrics::{MetricRow, rows};

/// The metrics of a text in Prometheus' format that stand otherwise in the table, or not at all,
/// and how: their kinds, meanings and labels.
pub fn strangers(text: &str) -> Vec<String> {
    let known: BTreeMap<&str, MetricRow> = rows().map(|row| (row.name, row)).collect();
    let mut strangers = Vec::new();
    let (mut help, mut current) = ("", None);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            current = known.get(name);
            match current {
                None => strangers.push(format!("{name} is not in the table")),
                Some(row) if row.kind != kind => {
                    strangers.push(format!("{name} is a {kind}, not a {}", row.kind));
                }
                // Both ends of a stream have some by the same name, and each its own words.
                Some(row) if !name.starts_with("myriad_sync_") && !is_said(row, help) => {
                    strangers.push(format!("{name} means {help:?}, not {:?}", row.help));
                }
                Some(_) => {}
            }
        } else if let Some(row) = current {
            let unknown = labels(line).filter(|label| !has(row, label));
            strangers.extend(unknown.map(|label| format!("{} has a label {label}", row.name)));
        }
    }
    strangers
}

fn is_said(row: &MetricRow, help: &str) -> bool {
    help.trim_end_matches('.') == row.help
}

fn has(row: &MetricRow, label: &str) -> bool {
    row.labels.starts_with('(') || label == "le" || row.labels.split(' ').any(|it| it == label)
}

/// The labels of a line.
fn labels(line: &str) -> impl Iterator<Item = &str> {
    let inside = line
        .split_once('{')
        .and_then(|(_, rest)| rest.rsplit_once('}'));
    let pieces = inside.map_or("", |(inside, _)| inside).split("=\"");
    let names = pieces.filter_map(|piece| piece.rsplit([',', '"']).next());
    names.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::strangers;

    #[test]
    fn what_stands_otherwise_is_told() {
        let text = "# HELP myriad_requests_total Requests by class of status.\n\
                    # TYPE myriad_requests_total counter\n\
                    myriad_requests_total{status=\"2xx\"} 1\n\
                    # HELP myriad_connections Something else.\n\
                    # TYPE myriad_connections gauge\nmyriad_connections{a=\"b\"} 1\n\
                    # HELP myriad_new_total New.\n# TYPE myriad_new_total counter\n";
        let strangers = strangers(text);
        assert_eq!(strangers.len(), 3, "{strangers:?}");
        assert!(strangers[1].contains("label a"), "{strangers:?}");
    }
}
