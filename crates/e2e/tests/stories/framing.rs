//! Malformed requests: the right status, and never a word to the endpoint.

use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn serve(backend: &Backend) -> World {
    let site = Site::new("a.test").to(backend.address());
    World::serve_with(Authority::new(), &[("a.yaml", site.yaml())], &[]).await
}

/// The status that raw bytes are answered with; 0 where the connection ends without one.
async fn status(world: &World, bytes: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(world.http())
        .await
        .expect("a connection");
    // Refused bytes may meet a closed socket.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer))
        .await
        .expect("the connection ends after a malformed request");
    let text = String::from_utf8_lossy(&answer);
    text.split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0)
}

/// A request whose head begins well, with these further headers and this body.
macro_rules! post {
    ($headers:literal, $body:literal) => {
        concat!(
            "POST / HTTP/1.1\r\nHost: a.test\r\n",
            $headers,
            "\r\n",
            $body
        )
    };
}

/// Heads that two readers may understand differently, or nobody should send.
const AMBIGUOUS: &[(&str, &str)] = &[
    (
        "length and chunked",
        post!(
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n"
        ),
    ),
    (
        "chunked and length",
        post!(
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "0\r\n\r\n"
        ),
    ),
    (
        "two lengths",
        post!("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
    ),
    (
        "a list of lengths",
        post!("Content-Length: 5, 6\r\n", "hello"),
    ),
    ("a signed length", post!("Content-Length: +5\r\n", "hello")),
    (
        "another coding",
        post!("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
    ),
    (
        "chunked twice",
        post!("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
    ),
    (
        "identity last",
        post!("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
    ),
    (
        "a space before the colon",
        post!("Content-Length : 5\r\n", "hello"),
    ),
    ("a folded header", post!("X-A: 1\r\n 2\r\n", "")),
    ("a bare CR", post!("X-A: 1\r2\r\n", "")),
    ("a NUL", post!("X-A: a\0b\r\n", "")),
    (
        "a bad chunk size",
        post!("Transfer-Encoding: chunked\r\n", "zz\r\nhello\r\n0\r\n\r\n"),
    ),
    (
        "a huge chunk size",
        post!("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n"),
    ),
    ("a bare LF", "GET / HTTP/1.1\nHost: a.test\n\n"),
    ("no host", "GET / HTTP/1.1\r\n\r\n"),
    (
        "two hosts",
        "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
    ),
    ("a bad host", "GET / HTTP/1.1\r\nHost: a test\r\n\r\n"),
    (
        "a user in the host",
        "GET / HTTP/1.1\r\nHost: me@a.test\r\n\r\n",
    ),
    ("no target", "GET HTTP/1.1\r\nHost: a.test\r\n\r\n"),
    (
        "a relative target",
        "GET x HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ),
    ("another protocol", "\x16\x03\x01\x00\x05hello\r\n\r\n"),
];

#[tokio::test]
async fn ambiguous_framing_is_refused() {
    let backend = Backend::start("a").await;
    let world = serve(&backend).await;
    for (name, request) in AMBIGUOUS {
        assert_eq!(status(&world, request.as_bytes()).await, 400, "{name}");
    }
    let connect = b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n";
    assert_eq!(status(&world, connect).await, 405);
    assert_eq!(backend.asked(), 0, "nothing malformed reaches an endpoint");
    let others = world.get("http://a.test/").await;
    assert_eq!(others.status, 200, "others are served as before");
    world.stop().await;
}

#[tokio::test]
async fn floods_of_headers_are_bounded() {
    let backend = Backend::start("a").await;
    let world = serve(&backend).await;
    let many: String = (0..5_000).map(|i| format!("X-{i}: y\r\n")).collect();
    let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{many}\r\n");
    assert_eq!(status(&world, request.as_bytes()).await, 431);
    let long = format!(
        "GET / HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n",
        "y".repeat(1 << 20)
    );
    assert_eq!(status(&world, long.as_bytes()).await, 431);
    let target = format!(
        "GET /{} HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "y".repeat(1 << 20)
    );
    assert_eq!(status(&world, target.as_bytes()).await, 414);
    assert_eq!(backend.asked(), 0);
    world.stop().await;
}

#[tokio::test]
async fn a_head_and_a_handshake_that_never_end_are_ended() {
    let (backend, world) = World::serve_one("a.test").await;
    let drip = async |address: std::net::SocketAddr, start: &[u8]| {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let (mut input, mut output) = stream.into_split();
        output.write_all(start).await.expect("bytes are taken");
        let dripping = tokio::spawn(async move {
            // A byte a second keeps no connection open for longer than its limit.
            while output.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(30), input.read_to_end(&mut answer));
        let _ = read.await.expect("the connection is ended");
        dripping.abort();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let head = drip(world.http(), b"GET / HTTP/1.1\r\nHost: a.test\r\nX: ");
    let hello = drip(
        world.https(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    );
    let (head, _) = tokio::join!(head, hello);
    assert!(head.starts_with("HTTP/1.1 408 "), "{head:?}");
    assert_eq!(backend.asked(), 0);
    assert_eq!(world.get("https://a.test/").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn truncated_and_random_tls_bytes_end_the_connection_and_nothing_else() {
    let (_backend, world) = World::serve_one("a.test").await;
    let cases: [&[u8]; 4] = [
        b"\x16\x03\x01\xff\xff\x01\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
        &[0xff; 3_000],
    ];
    for bytes in cases {
        let mut stream = TcpStream::connect(world.https())
            .await
            .expect("a connection");
        stream.write_all(bytes).await.expect("bytes are taken");
        stream.shutdown().await.expect("our side closes");
        let mut rest = Vec::new();
        // An alert or a reset: either ends it.
        let _ = stream.read_to_end(&mut rest).await;
    }
    assert_eq!(world.get("https://a.test/").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn the_http2_specification_is_met() {
    let h2spec = std::env::var("MYRIAD_H2SPEC")
        .expect("MYRIAD_H2SPEC is the path of h2spec; `cargo xtask test` sets it");
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let pair = authority.issue(&["localhost"]);
    let site = Site::new("localhost").to(backend.address()).tls(&pair);
    let world = World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await;
    let port = world.https().port().to_string();
    // Connecting by name sends the SNI; the name resolves to this machine everywhere.
    let arguments = [
        "generic",
        "http2",
        "hpack",
        // What it recommends is held too.
        "-S",
        "-t",
        "-k",
        "-h",
        "localhost",
        "-p",
        &port,
        "-o",
        "5",
    ];
    let output = tokio::process::Command::new(h2spec)
        .args(arguments)
        .output()
        .await;
    let output = output.expect("h2spec runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains(" 0 failed"),
        "{text}"
    );
    world.stop().await;
}

#[tokio::test]
async fn paths_are_brought_into_one_form_as_the_mesh_says_or_else_a_flag() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = "pathNormalization: {normalization: MERGE_SLASHES}\n";
    std::fs::write(file.path(), text).expect("a file");
    let mesh = format!("--mesh-config={}", file.path().display());
    for (arguments, path) in [
        (vec![], "/a//%62"),
        (vec![&*mesh], "/a/b"),
        (vec![&*mesh, "--path-normalization=BASE"], "/a//b"),
    ] {
        let backend = Backend::start("a").await;
        let site = Site::new("a.test").to(backend.address()).yaml();
        let files = [("a.yaml", site)];
        let world = World::serve_with(Authority::new(), &files, &arguments).await;
        let curl = world.curl("http://a.test/a//%62").args(&["--path-as-is"]);
        let told = curl.ask().await.told();
        assert_eq!(told["uri"], path, "{arguments:?}");
        world.stop().await;
    }
}
