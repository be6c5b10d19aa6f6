//! Requests and what reaches the endpoint of them.

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn serve(backend: &Backend) -> World {
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test"]));
    World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await
}

#[tokio::test]
async fn both_versions_of_http_are_offered_and_reach_the_same_endpoint() {
    let backend = Backend::start("a").await;
    let world = serve(&backend).await;
    for (version, status_line) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2")] {
        let curl = world
            .curl("https://a.test/v")
            .args(&[version, "-w", "%{http_version}"]);
        let answer = curl.ask().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let spoken = &status_line["HTTP/".len()..];
        assert!(answer.body.ends_with(spoken), "{answer:?}");
    }
    world.stop().await;
}

#[tokio::test]
async fn the_endpoint_learns_who_asked_and_how() {
    let backend = Backend::start("a").await;
    let world = serve(&backend).await;
    let curl = world.curl("https://a.test/").args(&[
        "-H",
        "X-Forwarded-For: 6.6.6.6",
        "-H",
        "Connection: X-Secret",
        "-H",
        "X-Secret: 1",
        "-H",
        "TE: trailers",
        "--http1.1",
    ]);
    let told = curl.ask().await.told();
    let headers = &told["headers"];
    let authority = format!("a.test:{}", world.https().port());
    assert_eq!(headers["host"], authority);
    assert_eq!(headers["x-forwarded-proto"], "https");
    assert_eq!(headers["x-forwarded-host"], authority);
    assert_eq!(
        headers["x-forwarded-for"], "127.0.0.1",
        "a client's own word does not count"
    );
    assert!(
        headers.get("x-secret").is_none(),
        "named by Connection, so not for the endpoint"
    );
    world.stop().await;
}

#[tokio::test]
async fn unknown_hosts_and_paths_are_not_found() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = Site::new("a.test").to(backend.address()).path("/only");
    let world = World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await;
    assert_eq!(world.get("http://a.test/only/this").await.status, 200);
    assert_eq!(world.get("http://a.test/onlythis").await.status, 404);
    assert_eq!(world.get("http://b.test/only").await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn large_bodies_stream_both_ways() {
    let backend = Backend::start("a").await;
    let world = serve(&backend).await;
    let file = world.served().join("..upload");
    std::fs::write(&file, vec![b'x'; 1_900_000]).expect("a file");
    let data = format!("@{}", file.display());
    for version in ["--http1.1", "--http2"] {
        for framing in ["Content-Type: a/b", "Transfer-Encoding: chunked"] {
            if version == "--http2" && framing.starts_with("Transfer") {
                continue;
            }
            let arguments = ["--data-binary", &data, "-H", framing, version];
            let answer = world.curl("https://a.test/").args(&arguments).ask().await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(
                answer.told()["body_bytes"],
                1_900_000,
                "{version} {framing}"
            );
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_is_gone_is_passed_over() {
    let backend = Backend::start("alive").await;
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    let site = Site::new("a.test").to(gone).to(backend.address());
    let world = World::serve_with(Authority::new(), &[("a.yaml", site.yaml())], &[]).await;
    for _ in 0..20 {
        let answer = world.get("http://a.test/").await;
        assert_eq!(answer.status, 200, "one more try elsewhere: {answer:?}");
    }
    world.stop().await;
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let endpoint = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the proxy connects");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a request head"));
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        assert!(head.contains("upgrade: websocket") && head.contains("connection: upgrade"));
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                      Upgrade: websocket\r\n\r\n";
        stream
            .write_all(answer.as_bytes())
            .await
            .expect("an answer");
        let mut bytes = [0; 4];
        stream
            .read_exact(&mut bytes)
            .await
            .expect("bytes of the client");
        stream.write_all(&bytes).await.expect("the same back");
        assert_eq!(stream.read(&mut bytes).await.expect("the end"), 0);
    });
    let site = Site::new("a.test").to(address);
    let world = World::serve_with(Authority::new(), &[("a.yaml", site.yaml())], &[]).await;

    let mut client = tokio::net::TcpStream::connect(world.http())
        .await
        .expect("a connection");
    let request = "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n";
    client
        .write_all(request.as_bytes())
        .await
        .expect("a request");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.expect("a response head"));
    }
    assert!(
        head.starts_with(b"HTTP/1.1 101 "),
        "{}",
        String::from_utf8_lossy(&head)
    );
    client.write_all(b"ping").await.expect("bytes");
    let mut bytes = [0; 4];
    client.read_exact(&mut bytes).await.expect("the same back");
    assert_eq!(&bytes, b"ping");
    drop(client);
    endpoint.await.expect("the endpoint saw all of it");
    world.stop().await;
}
