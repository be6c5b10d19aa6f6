//! A short run of the activation benchmark: that it works, and that its report has the figures
//! which the budgets are stated in. What the figures are is for the real runs to judge.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Place;

/// A hundred domains over the inbox, twenty samples.
const ARGUMENTS: [&str; 14] = [
    "run",
    "--quiet",
    "--locked",
    "--package",
    "myriad-bench",
    "--",
    "activate",
    "--domains",
    "100",
    "--source",
    "inbox",
    "--samples",
    "20",
    "--json",
];

/// Figures of the report; a dot leads into an object.
const KEYS: [&str; 16] = [
    "domains",
    "activation_ms.p50",
    "activation_ms.p99",
    "activation_ms.max",
    "activation_ms.samples",
    "units_translated",
    "objects_visited",
    "resources_changed",
    "table_nodes_copied",
    "bytes_allocated",
    "bytes_encoded",
    "rss_mib",
    "start_s",
    "live.p99_idle_ms",
    "live.p99_during_ms",
    "live.errors",
];

/// Runs the benchmark and checks its report.
pub(super) fn run(place: &Place) -> Result<()> {
    println!("$ cargo {}", ARGUMENTS.join(" "));
    let mut command = Command::new("cargo");
    command.args(ARGUMENTS).current_dir(&place.root);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = place.with_tools(command).output()?;
    ensure!(output.status.success(), "it ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    println!("{}", text.trim_end());
    check(&text)
}

/// One object per line and number of domains; each has all figures, and no live request failed.
fn check(text: &str) -> Result<()> {
    let mut objects = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let report: Value = serde_json::from_str(line).context("a line is not a JSON object")?;
        let missing: Vec<&str> = KEYS
            .into_iter()
            .filter(|key| !figure(&report, key).is_some_and(Value::is_number))
            .collect();
        ensure!(
            missing.is_empty(),
            "figures missing: {}",
            missing.join(", ")
        );
        let errors = figure(&report, "live.errors").and_then(Value::as_u64);
        ensure!(errors == Some(0), "live requests failed: {errors:?}");
        objects += 1;
    }
    if objects == 0 {
        bail!("the report is empty");
    }
    Ok(())
}

fn figure<'a>(report: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.')
        .try_fold(report, |value, part| value.get(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"domains":100,
        "activation_ms":{"p50":1.5,"p99":2.0,"max":3.0,"samples":20},
        "units_translated":3,"objects_visited":4,"resources_changed":4,"table_nodes_copied":9,
        "bytes_allocated":9000,"bytes_encoded":2000,"rss_mib":40.5,"start_s":0.1,
        "live":{"p99_idle_ms":0.4,"p99_during_ms":0.5,"errors":0}}"#;

    fn one_line(text: &str) -> String {
        text.replace('\n', " ")
    }

    #[test]
    fn a_report_needs_every_figure_and_no_failed_request() {
        assert!(check(&one_line(GOOD)).is_ok());
        let partial = one_line(GOOD).replace("\"p99\"", "\"p90\"");
        let error = check(&partial)
            .expect_err("a figure is missing")
            .to_string();
        assert!(error.contains("activation_ms.p99"), "{error}");
        let failed = one_line(GOOD).replace("\"errors\":0", "\"errors\":1");
        assert!(check(&failed).is_err());
        assert!(check("").is_err());
        assert!(check("no json").is_err());
    }
}
