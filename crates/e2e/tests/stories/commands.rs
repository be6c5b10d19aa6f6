//! The binary as a person meets it.

use std::process::Stdio;
use std::time::Duration;

use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::world::repository;
use myriad_e2e::{Site, World};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

pub(super) fn myriad() -> Command {
    let path = std::env::var("MYRIAD_BIN")
        .expect("MYRIAD_BIN is the path of the binary; `cargo xtask test` sets it");
    let mut command = Command::new(path);
    command.kill_on_drop(true);
    command
}

#[tokio::test]
async fn the_printed_curl_line_works_as_pasted() {
    let mut serve = myriad()
        .args([
            "serve",
            "--http=127.0.0.1:0",
            "--https=127.0.0.1:0",
            "--admin=127.0.0.1:0",
        ])
        .arg(repository("examples/hello"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(serve.stderr.take().expect("a pipe")).lines();
    let curl = tokio::time::timeout(Duration::from_secs(20), async {
        while let Some(line) = lines.next_line().await.expect("text") {
            if let Some(curl) = line.strip_prefix("try: ") {
                return curl.to_owned();
            }
        }
        panic!("no curl line before the end");
    });
    let curl = curl.await.expect("a curl line in time");
    let output = Command::new("sh")
        .args(["-c", &curl])
        .output()
        .await
        .expect("a shell");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim_end(),
        "Hello from Myriad",
        "{curl}"
    );

    let pid = serve.id().expect("it runs").to_string();
    let killed = Command::new("kill")
        .args(["-TERM", &pid])
        .status()
        .await
        .expect("kill");
    assert!(killed.success());
    let status = tokio::time::timeout(Duration::from_secs(20), serve.wait()).await;
    assert!(
        status
            .expect("it ends in time")
            .expect("a status")
            .success()
    );
}

#[tokio::test]
async fn check_says_file_line_object_and_remedy_and_fails_on_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new();
    let (pair, other) = (authority.issue(&["a.test"]), authority.issue(&["b.test"]));
    let misfit = Pair {
        key: other.key.clone(),
        ..pair
    };
    let text = format!(
        "# A comment first.\n---\n{}",
        Site::new("a.test").tls(&misfit).yaml()
    );
    std::fs::write(directory.path().join("a.yaml"), text).expect("a file");
    let check = async || {
        let output = myriad().arg("check").arg(directory.path()).output().await;
        let output = output.expect("the binary runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (code, text) = check().await;
    assert_eq!(code, Some(1), "{text}");
    let line = text
        .lines()
        .find(|line| line.contains("tls.key"))
        .expect("about the key");
    assert!(
        line.contains("a.yaml:") && line.contains("Secret default/a-test"),
        "{line}"
    );
    assert!(
        !text.contains(other.key.lines().nth(1).expect("a key")),
        "{text}"
    );

    let good = Site::new("b.test").tls(&other).yaml();
    std::fs::write(directory.path().join("a.yaml"), good).expect("a file");
    let (code, text) = check().await;
    assert_eq!(
        code,
        Some(0),
        "a missing endpoint is no error of the files: {text}"
    );
}

#[tokio::test]
async fn wrong_settings_are_all_named_at_once() {
    let output = myriad()
        .args(["serve", "/nowhere", "--workers=0", "--http=nowhere"])
        .output()
        .await
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("--workers") && text.contains("--http"),
        "{text}"
    );
}

/// Runs a command that asks a world; gives its exit code and what it prints.
pub(super) async fn ask(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let output = myriad()
        .args(arguments)
        .arg(format!("--admin={}", world.admin_address()))
        .output()
        .await
        .expect("the binary runs");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

#[tokio::test]
async fn status_says_how_the_process_is_and_where_an_ingress_is_live() {
    let (_backend, world) = World::serve_one("a.test").await;
    let (code, text) = ask(&world, &["status"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("myriad serve "), "{text}");
    assert!(text.contains("\nready\n"), "{text}");
    let (code, text) = ask(&world, &["status", "--output=json"]).await;
    assert_eq!(code, Some(0), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["resources"]["certificate"], 1, "{json}");
    let config = world.admin("/config").await.body;
    let digest = json["digest"].as_str().expect("a digest");
    assert!(config.contains(digest), "{config}");

    let (code, text) = ask(&world, &["status", "ingress", "default/a-test"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("live on 1 of 1 proxies"), "{text}");
    let served = "host a.test: 1 routes, HTTPS by Secret default/a-test";
    assert!(text.contains(served), "{text}");
    let (code, text) = ask(&world, &["status", "ingress", "default/b-test"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("Ingress default/b-test is not served here"),
        "{text}"
    );
    world.stop().await;
}

#[tokio::test]
async fn what_changes_is_counted_when_it_is_live() {
    let (_backend, world) = World::serve_one("a.test").await;
    assert_eq!(world.metric("myriad_live_seconds_count").await, 1.0);
    assert_eq!(world.metric("myriad_proxies_behind").await, 0.0);
    world.write("b.yaml", &Site::new("b.test").yaml());
    world
        .eventually("http://b.test/", |answer| answer.status == 503)
        .await;
    let (code, text) = ask(&world, &["status", "ingress", "default/b-test"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(" ms after it changed"), "{text}");
    assert!(world.metric("myriad_live_seconds_count").await >= 2.0);
    world.stop().await;
}

#[tokio::test]
async fn explain_tells_what_a_request_meets_from_a_process_and_from_files() {
    let (backend, world) = World::serve_one("a.test").await;
    let (code, text) = ask(&world, &["explain", "https://a.test/x"]).await;
    assert_eq!(code, Some(0), "{text}");
    let endpoint = backend.address().to_string();
    for part in [
        "is sent to one of 1 endpoints",
        "a.test of Ingress default/a-test",
        "Secret default/a-test for a.test, issued by",
        "prefix / on a.test of Ingress default/a-test",
        &endpoint,
    ] {
        assert!(text.contains(part), "{part:?} not in {text}");
    }
    let served = world.served();
    let from_files = async |url: &str| {
        let mut command = myriad();
        let output = command.args(["explain", url]).arg(&served).output().await;
        let output = output.expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let (code, files) = from_files("https://a.test/x").await;
    assert_eq!(code, Some(0), "{files}");
    let rest = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.contains("listener"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(rest(&files), rest(&text), "but for the listener's port");
    let (code, files) = from_files("https://aa.test/").await;
    assert_eq!(code, Some(1), "{files}");
    assert!(files.contains("perhaps meant: a.test"), "{files}");

    let (code, text) = ask(&world, &["explain", "http://a.test/", "--output=json"]).await;
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &json["status"]), (Some(0), &308.into()), "{json}");
    let other = ["explain", "https://a.test/", "--header=Host: b.test"];
    let (code, text) = ask(&world, &other).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("421: b.test does not belong"), "{text}");
    let (code, text) = ask(&world, &["explain", "a.test"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("is not a URL"), "{text}");
    world.stop().await;
}

#[tokio::test]
async fn ten_thousand_errors_are_counted_and_bounded() {
    let mut text = String::new();
    for number in 0..10_000 {
        text += &format!("---\nkind: Ingress\napiVersion: networking.k8s.io/v1\nspec: [{number}\n");
    }
    let good = Site::new("a.test").yaml();
    let files = [("bad.yaml", text), ("good.yaml", good)];
    let world = World::serve(&files).await;
    assert!(world.findings().await.len() <= 1_000);
    assert_eq!(
        world.get("http://a.test/").await.status,
        503,
        "served, without endpoints"
    );
    world.stop().await;
}
