//! The report as people run it, of an experiment that takes seconds and needs nobody.
#![allow(
    clippy::disallowed_methods,
    reason = "it reads what the program under test has written"
)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs the command, and reads what it wrote.
fn report(folder: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    command.args(["report", "--quick", "--alone", "--only=soak", "--out"]);
    let output = command.arg(folder).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Memory over changes"), "{text}");
    let file = std::fs::read(folder.join("report.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

#[test]
fn a_report_is_a_page_and_a_second_run_takes_up_what_is_there() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("out");
    let first = report(&folder);
    let point = &first["experiments"][0]["points"][0];
    assert_eq!(point["gaps"], Value::Array(Vec::new()), "{point}");
    assert_eq!(point["command"], "myriad-bench soak --short --json");
    assert_eq!(point["rows"][0]["errors"], 0, "{point}");
    assert!(point["rows"][0]["changes"].as_u64() > Some(0), "{point}");
    assert_eq!(
        (&first["points"], &first["finished"]),
        (&1.into(), &1.into())
    );
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(
        page.contains("<svg") && page.contains("MiB per hour"),
        "{page}"
    );
    let again = report(&folder);
    assert_eq!(again["experiments"], first["experiments"]);
}

#[test]
fn an_unknown_experiment_is_refused_with_the_known_ones() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    command.args(["report", "--quick", "--alone", "--only=nothing", "--out"]);
    let output = command.arg(place.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("activation"),
        "{errors}"
    );
}
