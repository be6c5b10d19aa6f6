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

fn bench(arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    let output = command.args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    output.stdout
}

#[test]
fn every_request_of_a_short_run_is_answered_in_every_mode() {
    for mode in ["nofilters", "onlyextauth", "all", "direct"] {
        let mode = format!("--mode={mode}");
        let report = bench(&["scale", "--requests=istio", &mode, "--short", "--json"]);
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["errors"], 0, "{report}");
        assert_eq!(report["peer_rps"], Value::Null, "{report}");
        for key in ["rps", "p50_ms", "p99_ms", "cpu_ms_per_1000", "rss_mib"] {
            assert!(report[key].as_f64() > Some(0.0), "{key} of {report}");
        }
    }
}

#[test]
fn nothing_of_what_a_mode_adds_is_left_out() {
    for mode in ["onlyextauth", "all"] {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("setup");
        std::fs::create_dir(&out).unwrap();
        let (path, mode) = (out.to_str().unwrap(), format!("--mode={mode}"));
        let sizes = ["--workspaces=1", "--domains=1", "--paths=2"];
        bench(&[&["generate", "istio", "--out", path, &mode][..], &sizes].concat());
        let mesh = format!("--mesh-config={path}/mesh-config");
        let cli = Cli::parse_from(["myriad", "check", &mesh, path]);
        let MyriadCommand::Check(raw) = cli.command else {
            panic!("it is a check");
        };
        let code = myriad::check::run(&raw).unwrap();
        let success = std::process::ExitCode::SUCCESS;
        assert_eq!(format!("{code:?}"), format!("{success:?}"), "{mode}");
    }
}
