//! Istio's published setup, at a size that takes seconds.

use std::process::Command;

use clap::Parser;
use myriad::cli::{Cli, Command as MyriadCommand};
use serde_json::Value;

const SAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/istio-at-scale/sample"
);

#[test]
fn nothing_of_the_sample_is_left_out() {
    let cli = Cli::parse_from(["myriad", "check", SAMPLE]);
    let MyriadCommand::Check(raw) = cli.command else {
        panic!("it is a check");
    };
    let code = myriad::check::run(&raw).unwrap();
    let success = std::process::ExitCode::SUCCESS;
    assert_eq!(format!("{code:?}"), format!("{success:?}"));
}

#[test]
fn every_request_of_a_short_run_is_answered() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    command.args(["scale", "--requests=istio", "--short", "--json"]);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["errors"], 0, "{report}");
    assert_eq!(report["peer_rps"], Value::Null, "{report}");
    for key in ["rps", "p50_ms", "p99_ms", "cpu_ms_per_1000", "rss_mib"] {
        assert!(report[key].as_f64() > Some(0.0), "{key} of {report}");
    }
}
