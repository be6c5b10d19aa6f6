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
