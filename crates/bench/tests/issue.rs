//! Certificates that an issuer provides, at a size that takes seconds.

use std::process::Command;

use serde_json::Value;

/// Domains, those of them that fail for ever, and those that get a certificate.
const DOMAINS: u64 = 334;
const FAILING: u64 = 34;
const GOOD: u64 = DOMAINS - FAILING;

fn issue(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    command.args(["issue", "--json"]).args(arguments);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_domain_gets_one_certificate_and_another_one_when_all_are_to_be_replaced() {
    let (domains, failing) = (
        format!("--domains={DOMAINS}"),
        format!("--failing={FAILING}"),
    );
    let run = issue(&[
        &domains,
        &failing,
        "--rate=50",
        "--ordinary=10",
        "--drill",
        "--load=50",
        "--look-seconds=8",
    ]);
    assert_eq!(run["errors"], 0, "{run}");
    assert_eq!(run["live_ms"]["samples"], GOOD, "{run}");
    for (key, wanted) in [
        ("failing", FAILING),
        ("live", GOOD),
        ("lost", 0),
        ("orders", GOOD),
        ("issued", GOOD),
    ] {
        assert_eq!(run[key], wanted, "{key} of {run}");
    }
    // Each of those that fail was tried, and no more often than its waits allow.
    let failed = run["failed_attempts"].as_u64().unwrap();
    let most = run["failed_attempts_max"].as_u64().unwrap();
    assert!((FAILING..=most).contains(&failed), "{run}");
    assert!(run["ordinary"]["during_ms"]["samples"].as_u64() > Some(1));

    let drill = &run["drill"];
    for (key, wanted) in [
        ("certificates", GOOD),
        ("replaced", GOOD),
        ("orders", GOOD),
        ("issued", GOOD),
        ("status_renewed", GOOD),
        ("broken", 0),
        ("errors", 0),
    ] {
        assert_eq!(drill[key], wanted, "{key} of {run}");
    }
    // The rest was ordered once more without it.
    let found = ["replacements", "unfound"].map(|key| drill[key].as_u64().unwrap());
    assert_eq!(found.iter().sum::<u64>(), GOOD, "{run}");
    assert!(drill["requests"].as_u64() > Some(100), "{run}");
    assert!(drill["connections"].as_u64() > Some(50), "{run}");
    let orders_max = run["orders_max"].as_u64().unwrap();
    assert!(2 * GOOD <= orders_max, "the budget is held: {run}");
}

#[test]
fn leaders_are_of_clusters() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    let output = command.args(["issue", "--kill-leader=1"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("--source kubernetes"));
}
