//! Metrics, readiness and the other pages of operators, and keys, which no page and no log shows.

use std::process::Stdio;

use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::{Answer, Site, World};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::commands::myriad;

#[tokio::test]
async fn readiness_metrics_and_counts_are_served() {
    let (_backend, world) = World::serve_one("a.test").await;
    assert_eq!(world.admin("/healthz").await.status, 200);
    assert_eq!(world.admin("/readyz").await.body, "ready\n");
    let metrics = world.admin("/metrics").await.body;
    for name in [
        "myriad_translate_units_total",
        "myriad_control_commits_total",
    ] {
        assert!(metrics.contains(name), "{name} is not in: {metrics}");
    }
    let dump: serde_json::Value =
        serde_json::from_str(&world.admin("/config").await.body).expect("JSON");
    assert_eq!(dump["resources"]["domain"], 1);
    assert_eq!(dump["resources"]["certificate"], 1);
    assert!(world.findings().await.is_empty(), "{dump}");
    world.stop().await;
}

#[tokio::test]
async fn metrics_are_in_the_format_that_the_scraper_accepts_and_promtool_finds_them_clean() {
    let (_backend, world) = World::serve_one("a.test").await;
    assert_eq!(world.get("https://a.test/").await.status, 200);
    let counted = myriad_e2e::world::eventually(async || {
        let name = "myriad_request_duration_seconds_count{status=\"2xx\"}";
        (world.metric(name).await >= 1.0).then_some(())
    });
    assert!(counted.await.is_some());
    let open = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3";
    let open = world.admin_curl("/metrics").args(&["-H", open]);
    let open = open.ask().await;
    let said = |answer: &Answer| answer.header("content-type").unwrap_or_default().to_owned();
    assert!(
        said(&open).starts_with("application/openmetrics-text"),
        "{open:?}"
    );
    assert!(open.body.ends_with("# EOF\n"), "{open:?}");
    let text = world.admin("/metrics").await;
    assert!(
        said(&text).starts_with("text/plain; version=0.0.4"),
        "{text:?}"
    );
    for line in [
        "# TYPE myriad_requests_total counter",
        "myriad_certificates_expiring{within_days=\"0\"} ",
        "myriad_request_duration_seconds_count{status=\"2xx\"} 1",
        "myriad_build_info{version=\"",
        "process_cpu_seconds_total ",
        "process_open_fds ",
    ] {
        assert!(text.body.contains(line), "no {line} in {}", text.body);
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this needs `promtool`; `cargo xtask test --stage setup` installs prometheus");
    let mut input = promtool.stdin.take().expect("a pipe");
    let written = input.write_all(text.body.as_bytes()).await;
    written.expect("it reads");
    drop(input);
    let checked = promtool.wait_with_output().await.expect("it ends");
    let complaints = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(
        checked.status.success() && complaints.is_empty(),
        "{complaints}"
    );
    world.stop().await;
}

const CANARY: &str = "c4n4ry-c4n4ry-c4n4ry";

/// A key that does not fit, a key that is no key, and Secrets that are no YAML or of the wrong
/// type: each makes a finding, and none may quote what it is about. Also returns a line of the
/// real key.
fn leaky_files(authority: &Authority) -> (Vec<(&'static str, String)>, String) {
    let pair = authority.issue(&["a.test"]);
    let other = authority.issue(&["b.test"]);
    let misfit = Pair {
        key: other.key.clone(),
        ..pair.clone()
    };
    let garbage = Pair {
        key: CANARY.to_owned(),
        ..pair
    };
    let broken = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\ntype: kubernetes.io/tls\n\
         data:\n  tls.key: [{CANARY}\nstringData: {CANARY}\n"
    );
    let typed = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: y}}\ntype: kubernetes.io/tls\n\
         data: {CANARY}\n"
    );
    let nobody = ([127, 0, 0, 1], 1).into();
    let files = vec![
        ("a.yaml", Site::new("a.test").to(nobody).tls(&misfit).yaml()),
        ("b.yaml", Site::new("b.test").tls(&garbage).yaml()),
        ("c.yaml", broken),
        ("d.yaml", typed),
        (
            "e.yaml",
            Site::new("b.test").namespace("e").tls(&other).yaml(),
        ),
    ];
    let line = other.key.lines().nth(1).expect("a line of the key");
    (files, line.to_owned())
}

#[tokio::test]
async fn a_key_shows_up_on_no_page() {
    let authority = Authority::new();
    let (files, line) = leaky_files(&authority);
    let world = World::serve_with(authority, &files, &[]).await;
    let findings = world.findings().await;
    assert!(findings.len() >= 4, "each is a finding: {findings:?}");
    for page in [
        "/config",
        "/metrics",
        "/",
        "/history",
        "/history/entry?number=1",
        "/why?host=a.test",
        "/status",
        "/top",
        "/traces",
    ] {
        let body = world.admin(page).await.body;
        assert!(
            !body.contains(CANARY) && !body.contains(&line),
            "{page}: {body}"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn a_key_shows_up_in_no_log_and_no_report() {
    let (files, line) = leaky_files(&Authority::new());
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in &files {
        std::fs::write(directory.path().join(name), text).expect("a file");
    }
    let check = myriad().arg("check").arg(directory.path()).output().await;
    let check = check.expect("the binary runs");
    let mut serve = myriad()
        .args(["serve", "--log=trace", "--access-log"])
        .args(["--http=127.0.0.1:0", "--https=127.0.0.1:0"])
        .arg("--admin=127.0.0.1:0")
        .arg(directory.path())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(serve.stderr.take().expect("a pipe")).lines();
    let mut log = String::new();
    while let Some(next) = lines.next_line().await.expect("text") {
        log += &next;
        log.push('\n');
        if next.starts_with("try: ") {
            break;
        }
    }
    serve.kill().await.expect("it runs");
    let report = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(report.contains("tls.key") && log.contains("myriad serves"));
    for text in [
        report,
        String::from_utf8_lossy(&check.stderr).into_owned(),
        log,
    ] {
        assert!(!text.contains(CANARY) && !text.contains(&line), "{text}");
    }
}
