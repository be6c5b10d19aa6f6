//! `myriad trace`: the way of real requests, and none of their secrets.

use std::process::Stdio;

use myriad_e2e::World;
use myriad_e2e::world::eventually;
use tokio::process::Child;

use super::commands::myriad;

const CANARY: &str = "c4n4ry-c4n4ry-c4n4ry";

/// The command, once the process knows what it waits for.
async fn trace(world: &World, arguments: &[&str]) -> Child {
    let known = world.admin("/traces").await.told();
    let known = known.as_array().map_or(0, Vec::len);
    let child = myriad()
        .arg("trace")
        .args(arguments)
        .arg(format!("--admin={}", world.admin_address()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let ordered = eventually(async || {
        let now = world.admin("/traces").await.told();
        (now.as_array()?.len() > known).then_some(())
    });
    assert!(ordered.await.is_some(), "the trace is ordered");
    child
}

/// The exit code of the command, and its words.
async fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().await.expect("it ends");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

#[tokio::test]
async fn a_real_request_is_traced_over_both_versions_and_shows_no_secret() {
    let (backend, world) = World::serve_one("a.test").await;
    let waiting = trace(&world, &["https://a.test/shop", "--count=2", "--for=60s"]).await;
    // Neither is asked for.
    world.get("https://a.test/other").await;
    for version in ["--http1.1", "--http2"] {
        let url = format!("https://a.test/shop/cart?page=2&access_token={CANARY}");
        let headers = [
            version.to_owned(),
            format!("-HAuthorization: Bearer {CANARY}"),
            format!("-HCookie: session={CANARY}"),
            format!("-HX-Api-Key: {CANARY}"),
        ];
        let arguments: Vec<&str> = headers.iter().map(String::as_str).collect();
        let answer = world.curl(&url).args(&arguments).ask().await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let (code, text) = ended(waiting).await;
    assert_eq!(code, Some(0), "{text}");
    let endpoint = format!("endpoint     {} of ", backend.address());
    for part in [
        "GET https://a.test/shop/cart?page=2&access_token=[redacted]\n200 after ",
        "by HTTP/1.1 at ",
        "by HTTP/2 at ",
        "passed       route: the route is of Ingress default/a-test",
        "forwarded    action: is sent to one of 1 endpoints",
        &endpoint,
    ] {
        assert!(text.contains(part), "{part:?} not in {text}");
    }
    assert!(!text.contains("/other"), "{text}");
    let pages = world.admin("/traces").await.body;
    for shown in [&text, &pages] {
        assert!(!shown.contains("c4n4ry"), "{shown}");
    }
    world.stop().await;
}

#[tokio::test]
async fn requests_are_picked_by_a_header_and_told_as_json() {
    let (_backend, world) = World::serve_one("a.test").await;
    let arguments = [
        "https://a.test/",
        "--header=x-user=eve",
        "--for=1m",
        "--output=json",
    ];
    let waiting = trace(&world, &arguments).await;
    let other = world.curl("https://a.test/").args(&["-HX-User: bob"]);
    assert_eq!(other.ask().await.status, 200);
    let missing = world.curl("https://a.test/nowhere");
    let missing = missing.args(&["-HX-User: eve"]).ask().await;
    let (code, text) = ended(waiting).await;
    assert_eq!(code, Some(0), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let requests = json["requests"].as_array().expect("requests");
    assert_eq!(requests.len(), 1, "{json}");
    assert_eq!(requests[0]["target"], "/nowhere", "{json}");
    assert_eq!(requests[0]["status"], missing.status, "{json}");
    assert_eq!(requests[0]["is_over"], true, "{json}");
    assert_eq!(json["headers"][0], "x-user", "{json}");
    world.stop().await;
}

#[tokio::test]
async fn a_trace_that_meets_nothing_says_so_and_what_is_no_order_is_refused() {
    let (_backend, world) = World::serve_one("a.test").await;
    let waiting = trace(&world, &["https://b.test/", "--for=1s"]).await;
    let (code, text) = ended(waiting).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("no request to b.test/ came"), "{text}");
    for (arguments, problem) in [
        (["trace", "b.test", "--for=1s"], "is not a URL"),
        (["trace", "https://b.test", "--for=20m"], "within 1 to 600"),
        (["trace", "https://b.test", "--count=51"], "51"),
    ] {
        let output = myriad()
            .args(arguments)
            .arg(format!("--admin={}", world.admin_address()))
            .output()
            .await
            .expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(problem), "{text}");
    }
    // Only a command orders one: no page of a browser sends such a request unasked.
    let asked = world.admin("/trace?url=https://a.test/&count=1&seconds=1");
    assert_eq!(asked.await.status, 405);
    world.stop().await;
}
