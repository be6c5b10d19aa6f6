//! Streams that go through a proxy, and requests that go on as their clients speak.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use myriad_e2e::istio::{
    Scene, destination_rule, free_port, gateway, service, service_speaking, virtual_service,
};
use myriad_e2e::world::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The heads that a proxy received.
type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy that answers CONNECT with this, and where that is success connects to the endpoint.
async fn proxy(answer: &'static str, endpoint: SocketAddr) -> (SocketAddr, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let heads = Heads::default();
    let seen = heads.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(lead(tcp, answer, endpoint, seen.clone()));
        }
    });
    (address, heads)
}

async fn lead(mut tcp: TcpStream, answer: &str, endpoint: SocketAddr, heads: Heads) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = tcp.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heads.lock().expect("nobody panicked").push(head);
    let head = format!("HTTP/1.1 {answer}\r\nVia: 1.1 proxy\r\n\r\n");
    if !answer.starts_with("200") {
        let _ = tcp.write_all(head.as_bytes()).await;
        return;
    }
    // What the endpoint says first comes in one piece with the head.
    let mut further = TcpStream::connect(endpoint).await.expect("an endpoint");
    let mut first = vec![0; 2];
    further.read_exact(&mut first).await.expect("a greeting");
    let both = [head.as_bytes(), &first].concat();
    let _ = tcp.write_all(&both).await;
    let _ = tokio::io::copy_bidirectional(&mut tcp, &mut further).await;
}

/// An endpoint that greets, hears its client out, and says it again.
async fn greeting() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = tcp.write_all(b"hi").await;
                let mut heard = Vec::new();
                let _ = tcp.read_to_end(&mut heard).await;
                let _ = tcp.write_all(&heard).await;
            });
        }
    });
    address
}

/// Says something to a port, ends its half, and returns what came until the end, however that
/// came; none where nobody listens.
async fn say(port: u16, text: &str) -> Option<String> {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let _ = tcp.write_all(text.as_bytes()).await;
    let _ = tcp.shutdown().await;
    let mut heard = String::new();
    let _ = tcp.read_to_string(&mut heard).await;
    Some(heard)
}

#[tokio::test]
async fn streams_go_through_a_proxy_where_the_rule_says_so() {
    let endpoint = greeting().await;
    for (answer, wanted) in [
        ("200 Connection established", "hihello"),
        ("407 Proxy Authentication Required", ""),
        ("302 Found", ""),
    ] {
        let (address, heads) = proxy(answer, endpoint).await;
        let port = free_port();
        let server = format!("port: {{number: {port}, name: t, protocol: TCP}}, hosts: ['*']");
        let to = "route: [{destination: {host: squid, port: {number: 80}}}]";
        let tunnel = "trafficPolicy: {tunnel: {targetHost: far.test, targetPort: 5432}}";
        let text = gateway("streams", &[&server])
            + &service("squid", &[address])
            + &destination_rule("squid", tunnel)
            + &virtual_service("s", "hosts: ['*'], gateways: [streams]", "tcp", &[to]);
        let world = Scene::new().with(&text).serve().await;
        let heard = eventually(async || {
            let heard = say(port, "hello").await?;
            let is_asked = !heads.lock().expect("nobody panicked").is_empty();
            (is_asked && heard == wanted).then_some(())
        });
        assert!(heard.await.is_some(), "{answer}");
        let heads = heads.lock().expect("nobody panicked").clone();
        let wanted = "CONNECT far.test:5432 HTTP/1.1\r\nHost: far.test:5432\r\n\r\n";
        assert!(
            !heads.is_empty() && heads.iter().all(|head| head == wanted),
            "{heads:?}"
        );
        world.stop().await;
    }
}

/// An endpoint that speaks both versions, and says by which it was asked.
async fn of_both_versions() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut first = [0; 3];
                let seen = tcp.peek(&mut first).await.unwrap_or(0);
                if first.get(..seen) == Some(&b"PRI"[..]) {
                    let mut connection = h2::server::handshake(tcp).await.expect("HTTP/2");
                    while let Some(Ok((_, mut respond))) = connection.accept().await {
                        let head = http::Response::new(());
                        let mut send = respond.send_response(head, false).expect("a stream");
                        let said = Bytes::from_static(b"two");
                        send.send_data(said, true).expect("a stream");
                    }
                } else {
                    answer_in_version_1(tcp).await;
                }
            });
        }
    });
    address
}

async fn answer_in_version_1(mut tcp: TcpStream) {
    let mut head = [0; 4_096];
    while tcp.read(&mut head).await.is_ok_and(|length| length > 0) {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none";
        let _ = tcp.write_all(answer).await;
    }
}

#[tokio::test]
async fn endpoints_are_asked_in_the_version_that_the_client_speaks_where_the_rule_says_so() {
    for (port, policy, versions) in [
        ("http", "{}", ["one", "one"]),
        ("http2", "{}", ["two", "two"]),
        ("http", "{useClientProtocol: true}", ["one", "two"]),
        ("http2", "{useClientProtocol: true}", ["one", "two"]),
        (
            "http",
            "{useClientProtocol: true, h2UpgradePolicy: UPGRADE}",
            ["one", "two"],
        ),
    ] {
        let address = of_both_versions().await;
        let rule = format!("trafficPolicy: {{connectionPool: {{http: {policy}}}}}");
        let world = Scene::new()
            .with(&service_speaking(port, "api", &[address]))
            .with(&destination_rule("api", &rule))
            .serve()
            .await;
        for (version, wanted) in ["--http1.1", "--http2"].into_iter().zip(versions) {
            let curl = world.curl("https://a.test/").args(&[version]);
            assert_eq!(curl.ask().await.body, wanted, "{port}, {policy}, {version}");
        }
        world.stop().await;
    }
}
