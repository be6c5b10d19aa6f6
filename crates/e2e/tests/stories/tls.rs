//! Certificates by name, and no way across.

use std::process::Stdio;
use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};
use tokio::process::Command;

#[tokio::test]
async fn an_exact_name_goes_before_a_wildcard_and_a_wildcard_covers_one_label() {
    let (exact, wildcard) = (
        Backend::start("exact").await,
        Backend::start("wildcard").await,
    );
    let authority = Authority::new();
    let sites = [
        Site::new("*.a.test")
            .to(wildcard.address())
            .tls(&authority.issue(&["*.a.test"])),
        Site::new("x.a.test")
            .to(exact.address())
            .tls(&authority.issue(&["x.a.test"])),
    ];
    let files = [("w.yaml", sites[0].yaml()), ("x.yaml", sites[1].yaml())];
    let world = World::serve_with(authority, &files, &[]).await;
    assert_eq!(
        world.get("https://x.a.test/").await.told()["backend"],
        "exact"
    );
    assert_eq!(
        world.get("https://y.a.test/").await.told()["backend"],
        "wildcard"
    );
    assert_eq!(world.get("https://z.y.a.test/").await.status, 0);
    assert_eq!(world.get("https://a.test/").await.status, 0);
    world.stop().await;
}

#[tokio::test]
async fn a_default_certificate_answers_for_names_that_no_other_covers() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let pair = authority.issue(&["d.test", "*.elsewhere.test"]);
    let site = Site::new("d.test").to(backend.address()).tls(&pair);
    let world = World::serve_with(
        authority,
        &[("d.yaml", site.yaml())],
        &["--default-certificate=default/d-test"],
    )
    .await;
    assert_eq!(
        world.get("https://x.elsewhere.test/").await.status,
        404,
        "a name, but no route"
    );
    assert_eq!(world.get("https://d.test/").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_connection_for_one_name_does_not_reach_another() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = |host: &str, names: &[&str]| {
        Site::new(host)
            .to(backend.address())
            .tls(&authority.issue(names))
            .yaml()
    };
    let files = [
        ("a.yaml", site("a.test", &["a.test"])),
        ("b.yaml", site("b.test", &["b.test"])),
    ];
    let world = World::serve_with(authority, &files, &[]).await;
    for version in ["--http1.1", "--http2"] {
        let across = world
            .curl("https://a.test/")
            .args(&["-H", "Host: b.test", version]);
        let answer = across.ask().await;
        assert_eq!(answer.status, 421, "{version}: {answer:?}");
    }
    assert_eq!(backend.asked(), 0);
    world.stop().await;
}

/// One handshake by openssl; whether it was resumed, and what it said.
async fn handshake(world: &World, name: &str, version: &str, session: &[&str]) -> (bool, String) {
    let connect = world.https().to_string();
    let mut command = Command::new("openssl");
    command.args([
        "s_client",
        "-connect",
        &connect,
        "-servername",
        name,
        version,
        "-ign_eof",
    ]);
    command
        .args(session)
        .arg("-CAfile")
        .arg(world.root())
        .stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed; `cargo xtask test` sees to it");
    let mut stdin = child.stdin.take().expect("a pipe");
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    // A handshake that failed has closed the pipe already.
    let _ = tokio::io::AsyncWriteExt::write_all(&mut stdin, request.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.expect("openssl ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (text.contains("Reused, TLS"), text)
}

#[tokio::test]
async fn a_session_is_resumed_under_its_name_and_not_under_another() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = |host: &str| {
        Site::new(host)
            .to(backend.address())
            .tls(&authority.issue(&[host]))
            .yaml()
    };
    let files = [("a.yaml", site("a.test")), ("b.yaml", site("b.test"))];
    let world = World::serve_with(authority, &files, &[]).await;
    for version in ["-tls1_2", "-tls1_3"] {
        let file = world.served().join("..session").display().to_string();
        let (reused, text) = handshake(&world, "a.test", version, &["-sess_out", &file]).await;
        assert!(!reused && text.contains("200 OK"), "{text}");
        let (reused, text) = handshake(&world, "a.test", version, &["-sess_in", &file]).await;
        assert!(
            reused && text.contains("200 OK"),
            "{version} resumes: {text}"
        );
        let (reused, text) = handshake(&world, "b.test", version, &["-sess_in", &file]).await;
        assert!(!reused, "{version} must not resume across: {text}");
    }
    world.stop().await;
}

#[tokio::test]
async fn old_versions_and_unknown_names_get_an_alert() {
    let (_backend, world) = World::serve_one("a.test").await;
    let (_, text) = handshake(&world, "nobody.test", "-tls1_3", &[]).await;
    assert!(text.contains("unrecognized name"), "{text}");
    let (_, text) = handshake(&world, "a.test", "-tls1_1", &["-cipher", "ALL:@SECLEVEL=0"]).await;
    assert!(text.contains("SSL alert number"), "{text}");
    world.stop().await;
}

#[tokio::test]
async fn a_client_cannot_renegotiate() {
    let (_backend, world) = World::serve_one("a.test").await;
    let mut openssl = Command::new("openssl")
        .args(["s_client", "-tls1_2", "-servername", "a.test", "-connect"])
        .arg(world.https().to_string())
        .arg("-CAfile")
        .arg(world.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("openssl is installed; `cargo xtask test` sees to it");
    let mut stdin = openssl.stdin.take().expect("a pipe");
    // A line with nothing but R asks openssl to renegotiate.
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"R\n")
        .await
        .expect("openssl listens");
    let output = tokio::time::timeout(Duration::from_secs(20), openssl.wait_with_output()).await;
    let output = output
        .expect("the connection is ended")
        .expect("openssl ran");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("no renegotiation") || text.contains("SSL alert number"),
        "{text}"
    );
    assert_eq!(world.get("https://a.test/").await.status, 200);
    world.stop().await;
}
