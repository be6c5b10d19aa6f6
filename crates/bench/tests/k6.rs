//! The scripts for k6, run by a real one, and the manifest for its operator.
//!
//! `MYRIAD_K6` is the path of the program; `cargo xtask test` sets it, and `cargo xtask peer k6`
//! builds it. The definition of the operator's kind is in no registry that tests reach: what the
//! manifest uses of it stands in `k6/testrun.json`, and `MYRIAD_K6_TESTRUN_DEFINITION` names a
//! file with the whole one.
#![allow(clippy::disallowed_methods, reason = "these are files of ours")]

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use myriad_bench::backend;
use myriad_bench::child::Ready;
use myriad_bench::domains::{Certificates, DomainObjects, Generator};
use serde_json::Value;

#[path = "k6/schema.rs"]
mod schema;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/k6");

/// Domains that the gateway serves.
const DOMAINS: u64 = 12;

/// The program, where it is; without it nothing is run, and says so.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("MYRIAD_K6").map(PathBuf::from);
    let path = path.filter(|path| path.is_file());
    if path.is_none() {
        assert!(std::env::var_os("CI").is_none(), "MYRIAD_K6 names no file");
        eprintln!("SKIPPED: k6 was not run, since MYRIAD_K6 names no file");
    }
    path
}

/// Runs a script to its end.
fn k6(program: &Path, script: &str, settings: &[(&str, &str)], more: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(["run", "--quiet", "--address="]).args(more);
    for (name, value) in settings {
        command.arg("-e").arg(format!("{name}={value}"));
    }
    command.arg(format!("{SCRIPTS}/{script}"));
    // It tells nobody of its runs, and fetches nothing for them.
    command.env("K6_NO_USAGE_REPORT", "true");
    command.env("K6_AUTO_EXTENSION_RESOLUTION", "false");
    command.stdin(Stdio::null()).output().unwrap()
}

fn assert_code(output: &Output, code: i32) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}{errors}");
}

/// The URL of an endpoint.
fn endpoint() -> String {
    let [address, _] = backend::start(Ipv4Addr::LOCALHOST.into()).unwrap();
    format!("http://{address}/")
}

/// Myriad with domains; it ends when this is dropped.
struct Gateway {
    child: Child,
    https: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Gateway {
    fn start() -> Gateway {
        let endpoints = backend::start(Ipv4Addr::LOCALHOST.into()).unwrap();
        let generator = Generator::new(Certificates::Unique, endpoints).unwrap();
        let layout = generator.layout(DomainObjects::Ingresses, DOMAINS);
        let directory = tempfile::tempdir().unwrap();
        for number in (0..DOMAINS).map(Generator::existing) {
            let domain = generator.domain(number, 0).unwrap();
            let text = layout.documents(&domain, generator.issuer());
            let file = directory.path().join(format!("{number}.yaml"));
            std::fs::write(file, text).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
        command.args(["child", "--dir"]).arg(directory.path());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let ready: Ready = serde_json::from_str(&line).unwrap();
        Gateway {
            child,
            https: ready.https,
            _directory: directory,
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Both fail where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn requests_at_a_constant_rate_are_answered_and_held_to_their_thresholds() {
    let Some(program) = program() else { return };
    let url = endpoint();
    let run = [
        ("URL", url.as_str()),
        ("RATE", "50"),
        ("DURATION", "2s"),
        ("VUS", "50"),
    ];
    let good = k6(&program, "constant-rate.js", &run, &[]);
    assert_code(&good, 0);
    let mut beyond = run.to_vec();
    beyond.push(("P99_MS", "0"));
    assert_code(&k6(&program, "constant-rate.js", &beyond, &[]), 99);
}

#[test]
fn segments_of_k6_have_the_requests_that_they_have_here() {
    let Some(program) = program() else { return };
    let url = endpoint();
    let sequence = "0,1/4,1/2,1";
    for (segment, expected) in [("0:1/4", "3"), ("1/4:1/2", "3"), ("1/2:1", "6")] {
        let run = [
            ("URL", url.as_str()),
            ("ITERATIONS", "12"),
            ("VUS", "4"),
            ("EXPECTED", expected),
        ];
        let part = [
            "--execution-segment",
            segment,
            "--execution-segment-sequence",
            sequence,
        ];
        assert_code(&k6(&program, "saturate.js", &run, &part), 0);
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
        command.args(["load", &url, "--qps=0", "-n=12", "-c=4", "--json=-"]);
        let output = command.args(part).output().unwrap();
        assert_code(&output, 0);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let count = &report["DurationHistogram"]["Count"];
        assert_eq!(count.to_string(), expected, "{segment}");
    }
}

#[test]
fn many_domains_are_asked_over_kept_connections_and_over_new_ones() {
    let Some(program) = program() else { return };
    let gateway = Gateway::start();
    let (address, domains) = (gateway.https.to_string(), DOMAINS.to_string());
    let run = [
        ("GATEWAY", address.as_str()),
        ("DOMAINS", domains.as_str()),
        ("RATE", "40"),
        ("DURATION", "2s"),
        ("VUS", "50"),
    ];
    assert_code(&k6(&program, "domains.js", &run, &[]), 0);
    let mut anew = run.to_vec();
    anew.push(("NEW", "1"));
    assert_code(&k6(&program, "domains.js", &anew, &[]), 0);
    // One that is not there is refused by an alert, and its request fails.
    let mut absent = run.to_vec();
    absent.push(("PATTERN", "www.e#.custom.test"));
    assert_code(&k6(&program, "domains.js", &absent, &[]), 99);
}

fn manifest(name: &str) -> Value {
    let text = std::fs::read_to_string(format!("{SCRIPTS}/{name}")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// The schema of the whole kind out of its definition, or of what is used of it.
fn definition() -> Value {
    let Some(path) = std::env::var_os("MYRIAD_K6_TESTRUN_DEFINITION") else {
        return serde_json::from_str(include_str!("k6/testrun.json")).unwrap();
    };
    let text = std::fs::read_to_string(path).unwrap();
    let definition: Value = serde_saphyr::from_str(&text).unwrap();
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let mut versions = versions.iter();
    let version = versions.find(|it| it["name"] == "v1alpha1").unwrap();
    version["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn the_manifest_for_the_operator_is_a_test_run() {
    let (run, schema) = (manifest("testrun.yaml"), definition());
    assert_eq!(schema::violations(&run, &schema), Vec::<String>::new());
    assert_eq!(run["apiVersion"], "k6.io/v1alpha1");
    assert_eq!(run["kind"], "TestRun");
    let map = &run["spec"]["script"]["configMap"];
    let kustomization = manifest("kustomization.yaml");
    let made = &kustomization["configMapGenerator"][0];
    assert_eq!(made["name"], map["name"]);
    let files = made["files"].as_array().unwrap();
    assert!(files.contains(&map["file"]), "{files:?}");
    for file in files {
        let path = format!("{SCRIPTS}/{}", file.as_str().unwrap());
        assert!(Path::new(&path).is_file(), "{path}");
    }
}

#[test]
fn a_manifest_that_is_no_test_run_is_found_out() {
    let schema = definition();
    for (pointer, value) in [
        ("/spec/parallelism", Value::from("four")),
        ("/spec/separate", Value::from("yes")),
        ("/spec/cleanup", Value::from("pre")),
        ("/spec/script/configMap/name", Value::from(1)),
        ("/spec/runner/env/0/value", Value::from(7)),
    ] {
        let mut run = manifest("testrun.yaml");
        *run.pointer_mut(pointer).unwrap() = value;
        assert_eq!(schema::violations(&run, &schema).len(), 1, "{pointer}");
    }
    let mut run = manifest("testrun.yaml");
    let spec = run["spec"].as_object_mut().unwrap();
    spec.remove("parallelism");
    spec.insert("users".to_owned(), Value::from(1));
    assert_eq!(schema::violations(&run, &schema).len(), 2);
}
