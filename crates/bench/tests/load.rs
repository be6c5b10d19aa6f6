//! The command that sends requests to any URL: fortio's results, thresholds, segments.
#![allow(
    clippy::disallowed_methods,
    reason = "it reads what the program under test has written"
)]

use std::net::Ipv4Addr;
use std::process::{Command, Output};

use myriad_bench::backend;
use serde_json::{Value, json};

/// The URLs of two endpoints, which answer with 200 and 203.
fn endpoints() -> [String; 2] {
    let addresses = backend::start(Ipv4Addr::LOCALHOST.into()).unwrap();
    addresses.map(|address| format!("http://{address}/"))
}

fn load(url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    command.arg("load").arg(url).args(arguments);
    command.output().unwrap()
}

/// The results of a run that ended well.
fn report(url: &str, arguments: &[&str]) -> Value {
    let output = load(url, &[arguments, &["--json=-"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn processes_share_a_run_and_one_report_tells_of_all() {
    let [url, _] = endpoints();
    let run = ["--qps=200", "-n=121", "-c=6", "--labels=three of them"];
    let report = report(&url, &[&run[..], &["--processes=3"]].concat());
    assert_eq!(report["RetCodes"], json!({"200": 121}), "{report}");
    assert_eq!(report["DurationHistogram"]["Count"], 121);
    assert_eq!(report["ErrorsDurationHistogram"]["Count"], 0);
    assert_eq!(report["Sizes"]["Count"], 121);
    assert!(report["Sizes"]["Min"].as_f64() > Some(backend::BODY_BYTES as f64));
    assert_eq!(report["SocketCount"], 6, "{report}");
    assert_eq!(report["NumThreads"], 6);
    assert_eq!(report["RequestedQPS"], "200");
    assert_eq!(report["RequestedDuration"], "exactly 121 calls");
    assert_eq!(report["Labels"], "three of them");
    assert_eq!(report["URL"], url.as_str());
    // The last of them is due after 0.6 s.
    assert!(report["ActualDuration"].as_u64() >= Some(590_000_000));
    let percentiles = report["DurationHistogram"]["Percentiles"].as_array();
    let wanted: Vec<f64> = vec![50.0, 75.0, 90.0, 99.0, 99.9];
    let found = percentiles.unwrap().iter();
    let found = found.map(|it| it["Percentile"].as_f64().unwrap());
    assert_eq!(found.collect::<Vec<_>>(), wanted);
}

#[test]
fn segments_of_a_sequence_add_up_to_the_whole() {
    let [url, _] = endpoints();
    let sequence = "--execution-segment-sequence=0,1/10,1/2,1";
    let mut counts = Vec::new();
    for segment in ["0:1/10", "10%:0.5", "1/2:1"] {
        let segment = format!("--execution-segment={segment}");
        let run = ["--qps=500", "-n=97", "-c=10", &segment, sequence];
        let report = report(&url, &run);
        counts.push(report["DurationHistogram"]["Count"].as_u64().unwrap());
    }
    assert_eq!(counts.iter().sum::<u64>(), 97, "{counts:?}");
    assert!(counts.is_sorted() && counts[0] >= 9, "{counts:?}");
}

#[test]
fn a_run_that_crosses_a_threshold_ends_with_the_code_of_k6() {
    let [url, _] = endpoints();
    let run = ["--qps=0", "-n=40", "-c=2"];
    let held = ["--threshold=p99<2s", "--threshold=errors<0.1%"];
    let output = load(&url, &[&run[..], &held].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let crossed = load(&url, &[&run[..], &["--threshold=p(50)<1ns"]].concat());
    assert_eq!(crossed.status.code(), Some(99), "{crossed:?}");
    let errors = String::from_utf8_lossy(&crossed.stderr);
    assert!(errors.contains("p(50)<1ns"), "{errors}");
    let missing = format!("{url}nothing");
    let failing = load(&missing, &[&run[..], &held].concat());
    assert_eq!(failing.status.code(), Some(99), "{failing:?}");
    let errors = String::from_utf8_lossy(&failing.stderr);
    assert!(
        errors.contains("errors<0.1%") && errors.contains("404"),
        "{errors}"
    );
    let wrong = load(&url, &["--threshold=p99"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

#[test]
fn results_go_to_a_file_and_a_run_is_told_to_people() {
    let [_, url] = endpoints();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let json = format!("--json={}", file.display());
    let output = load(&url, &["--qps=0", "-n=9", "-c=3", &json]);
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    let text = std::fs::read(&file).unwrap();
    let report: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(report["RetCodes"], json!({"203": 9}), "{report}");
    let output = load(&url, &["--qps=0", "-n=9", "-c=3"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.starts_with("9 requests in ") && text.contains("p99.9"),
        "{text}"
    );
}
