//! The works at a size that takes seconds.

use std::process::Command;

use serde_json::Value;

fn run(args: &[&str]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    let output = command.args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    rows.collect()
}

fn bench(works: &str) -> Vec<Value> {
    let rows = run(&["throughput", works, "--short", "--json"]);
    for row in &rows {
        assert_eq!(row["errors"], 0, "{row}");
        assert_eq!(row["peer_errors"], 0, "{row}");
        assert_eq!(row["ratio"]["rounds"], 1, "{row}");
    }
    rows
}

#[test]
fn every_request_of_a_short_run_is_answered_beside_the_floor() {
    let rows = bench("--work=W1,W2,W3,W4");
    assert_eq!(rows.len(), 3 + 4, "{rows:?}");
    for row in &rows {
        let is_alone = row["work"] == "W3";
        assert_eq!(row["peer"] == "floor", !is_alone, "{row}");
        assert!(row["requests"].as_u64() > Some(50), "{row}");
        assert!(row["peer_requests"].as_u64() > Some(50), "{row}");
    }
}

#[test]
fn latency_and_memory_have_figures_of_their_own() {
    let rows = bench("--work=W5,W6");
    assert_eq!(rows.len(), 2 + 1, "{rows:?}");
    for row in &rows[..2] {
        assert!(row["direct_p50_us"].as_f64() > Some(0.0), "{row}");
        assert!(row["added_p90_us"].is_number(), "{row}");
    }
    assert!(rows[2]["rss_boot_mib"].as_f64() > Some(0.0), "{}", rows[2]);
    assert!(rows[2]["kib_per_connection"].is_number(), "{}", rows[2]);
}

#[test]
fn connections_that_say_nothing_cost_no_request() {
    let rows = run(&["throughput", "--work=W7", "--short", "--json"]);
    let [row] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(row["errors"], 0, "{row}");
    assert!(row["silent"].as_u64() > Some(500), "{row}");
    assert!(row["flooded_p99_us"].as_f64() > Some(0.0), "{row}");
}

#[test]
fn a_soak_answers_all_and_leaves_nothing_open() {
    let rows = run(&["soak", "--short", "--rps=200", "--json"]);
    let [row] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(row["errors"], 0, "{row}");
    assert!(row["requests"].as_u64() > Some(500), "{row}");
    assert!(row["changes"].as_u64() >= Some(2), "{row}");
    assert_eq!(
        row["stalled_clients"].as_u64(),
        row["changes"].as_u64().map(|changes| 20 * changes),
        "{row}"
    );
}
