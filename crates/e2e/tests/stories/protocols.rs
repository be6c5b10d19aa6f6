//! Bytes in front of requests, and protocols in their place: headers of load balancers, and other
//! protocols on a connection of HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

/// A world behind a load balancer at this machine's addresses, with TLS for one of two hosts.
async fn balanced() -> (Backend, World) {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test"]));
    let plain = Site::new("b.test").to(backend.address());
    let files = [("a.yaml", site.yaml()), ("b.yaml", plain.yaml())];
    let arguments = ["--proxy-protocol=all", "--proxy-protocol-from=127.0.0.0/25"];
    let world = World::serve_with(authority, &files, &arguments).await;
    (backend, world)
}

/// Everything that comes back until the proxy closes.
async fn say(world: &World, from: &str, text: &str) -> String {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    let from = format!("{from}:0").parse().expect("an address");
    socket.bind(from).expect("it is free");
    let mut tcp: TcpStream = socket.connect(world.http()).await.expect("a connection");
    tcp.write_all(text.as_bytes()).await.expect("it is heard");
    let mut heard = String::new();
    // A reset is an end as well.
    let _ = tcp.read_to_string(&mut heard).await;
    heard
}

#[tokio::test]
async fn a_load_balancer_tells_who_the_client_is() {
    let (_backend, world) = balanced().await;
    // curl sends the header that a balancer would, in front of any version of HTTP.
    for (url, version) in [
        ("http://b.test/", "--http1.1"),
        ("http://b.test/", "--http2-prior-knowledge"),
        ("https://a.test/", "--http1.1"),
        ("https://a.test/", "--http2"),
    ] {
        let curl = world.curl(url).args(&["--haproxy-protocol", version]);
        let answer = curl.args(&["--interface", "127.0.0.9"]).ask().await;
        assert_eq!(answer.status, 200, "{url} {version}");
        let told = answer.told()["headers"]["x-forwarded-for"].to_string();
        assert!(told.contains("127.0.0.9"), "{told}");
    }
    let get = "GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n";
    let header = "PROXY TCP4 203.0.113.7 192.0.2.1 4711 80\r\n";
    let answer = say(&world, "127.0.0.9", &format!("{header}{get}")).await;
    assert!(answer.contains("203.0.113.7"), "{answer}");
    // Neither is served who says nothing, nor who may not say it.
    assert_eq!(say(&world, "127.0.0.9", get).await, "");
    let forged = say(&world, "127.0.0.200", &format!("{header}{get}")).await;
    assert_eq!(forged, "");
    for outcome in ["malformed", "untrusted"] {
        let name = format!("myriad_proxy_protocol_headers_total{{outcome=\"{outcome}\"}}");
        assert_eq!(world.metric(&name).await, 1.0, "{outcome}");
    }
    world.stop().await;
}

/// An endpoint of WebSocket over HTTP/1.1 that says whom it met, and then repeats what it hears;
/// below `/static` it answers as a server that knows no WebSocket.
async fn chat() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(tcp.read_u8().await?);
                }
                let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
                let is_asked = head.contains("upgrade: websocket\r\n")
                    && head.contains("connection: upgrade\r\n")
                    && head.contains("sec-websocket-key: ");
                if !is_asked || head.contains("/static") {
                    let text = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage";
                    return tcp.write_all(text.as_bytes()).await;
                }
                let text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                            Connection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nwelcome";
                tcp.write_all(text.as_bytes()).await?;
                let (mut reading, mut writing) = tcp.split();
                tokio::io::copy(&mut reading, &mut writing).await?;
                writing.write_all(b"bye").await?;
                writing.shutdown().await
            });
        }
    });
    address
}

/// A client of HTTP/2, as browsers are.
async fn browser(world: &World) -> SendRequest<Bytes> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(world.authority.root().as_bytes());
    roots.add(root.expect("a root")).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = TcpStream::connect(world.https())
        .await
        .expect("a connection");
    let name = ServerName::try_from("a.test").expect("a name");
    let tls = TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await;
    let tls = tls.expect("a handshake");
    let (client, connection) = h2::client::handshake(tls).await.expect("HTTP/2");
    tokio::spawn(connection);
    client
}

fn websocket(path: &str) -> http::Request<()> {
    http::Request::builder()
        .method("CONNECT")
        .uri(format!("https://a.test{path}"))
        .header("sec-websocket-version", "13")
        .extension(h2::ext::Protocol::from_static("websocket"))
        .body(())
        .expect("a request")
}

#[tokio::test]
async fn a_browser_opens_websockets_on_the_connection_that_it_has() {
    let endpoint = chat().await;
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(endpoint)
        .tls(&authority.issue(&["a.test"]));
    let world = World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await;
    let mut client = browser(&world).await;
    let page = http::Request::get("https://a.test/")
        .body(())
        .expect("a request");
    let (response, _) = client.send_request(page, true).expect("it is sent");
    assert_eq!(response.await.expect("an answer").status(), 200);
    assert!(client.is_extended_connect_protocol_enabled());
    // Several at a time, each ended by its client, and then by the endpoint.
    let mut opened = Vec::new();
    for _ in 0..3 {
        let asked = client.send_request(websocket("/chat"), false);
        let (response, send) = asked.expect("it is sent");
        let response = response.await.expect("an answer");
        assert_eq!(response.status(), 200);
        opened.push((response.into_body(), send));
    }
    for (number, (mut receive, mut send)) in opened.into_iter().enumerate() {
        let said = Bytes::from(format!(" {number} "));
        send.send_data(said, true).expect("it is sent");
        let mut heard = Vec::new();
        while let Some(data) = receive.data().await {
            let data = data.expect("a whole stream");
            let _ = receive.flow_control().release_capacity(data.len());
            heard.extend_from_slice(&data);
        }
        assert_eq!(heard, format!("welcome {number} bye").into_bytes());
    }
    // A page is no WebSocket, whatever its status.
    let (response, _) = client
        .send_request(websocket("/static"), false)
        .expect("it is sent");
    assert_eq!(response.await.expect("an answer").status(), 502);
    let name = "myriad_request_failures_total{reason=\"no_upgrade\"}";
    assert_eq!(world.metric(name).await, 1.0);
    world.stop().await;
}

/// An endpoint of HTTP/1.1 that reads a body only where it was asked whether it wants one, hints
/// before it answers, and says in the answer which trailers came.
async fn hinting() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut said = read_to(&mut tcp, "\r\n\r\n").await?;
                if said
                    .to_ascii_lowercase()
                    .contains("expect: 100-continue\r\n")
                {
                    tcp.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                }
                said = read_to(&mut tcp, "0\r\n").await?;
                while !said.ends_with("\r\n\r\n") {
                    said.push(char::from(tcp.read_u8().await?));
                }
                let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
                tcp.write_all(hint.as_bytes()).await?;
                let body = format!("{:x}\r\n{said}\r\n0\r\nX-Back: 1\r\n\r\n", said.len());
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close";
                tcp.write_all(format!("{head}\r\n\r\n{body}").as_bytes())
                    .await
            });
        }
    });
    address
}

/// Everything up to and with a text.
async fn read_to(tcp: &mut TcpStream, text: &str) -> std::io::Result<String> {
    let mut said = String::new();
    while !said.ends_with(text) {
        said.push(char::from(tcp.read_u8().await?));
    }
    Ok(said)
}

/// An endpoint of HTTP/2 by prior knowledge that sends hints.
async fn hinting_http2() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(tcp).await.expect("HTTP/2");
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(hint(request, respond));
                }
            });
        }
    });
    address
}

async fn hint(request: http::Request<h2::RecvStream>, mut respond: SendResponse<Bytes>) {
    let interim = |status: u16| {
        let response = http::Response::builder().status(status);
        let response = response.header("link", "</a.css>; rel=preload");
        response.body(()).expect("a response")
    };
    if request.headers().contains_key("expect") {
        let told = respond.send_informational(interim(100));
        told.expect("it is sent");
    }
    let (mut said, mut body) = (String::new(), request.into_body());
    while let Some(data) = body.data().await {
        let data = data.expect("a whole body");
        let _ = body.flow_control().release_capacity(data.len());
        said += &String::from_utf8_lossy(&data);
    }
    for (name, value) in &body.trailers().await.expect("an end").unwrap_or_default() {
        said += &format!("\r\n{name}: {}", value.to_str().expect("text"));
    }
    let told = respond.send_informational(interim(103));
    told.expect("it is sent");
    let sending = respond.send_response(http::Response::new(()), false);
    let mut sending = sending.expect("it is sent");
    sending.send_data(said.into(), false).expect("it is sent");
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-back", "1".parse().expect("a value"));
    sending.send_trailers(trailers).expect("it is sent");
}

/// Serves an endpoint at both ports.
async fn at_both_ports(endpoint: SocketAddr, speaks: &str) -> World {
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(endpoint)
        .tls(&authority.issue(&["a.test"]))
        .annotation("nginx.ingress.kubernetes.io/ssl-redirect", "false")
        .annotation("nginx.ingress.kubernetes.io/backend-protocol", speaks);
    World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await
}

#[tokio::test]
async fn who_asks_before_it_sends_a_body_is_told_and_so_is_whoever_can_use_a_hint() {
    for (endpoint, speaks) in [(hinting().await, "HTTP"), (hinting_http2().await, "GRPC")] {
        let world = at_both_ports(endpoint, speaks).await;
        for (url, version) in [
            ("http://a.test/", "--http1.1"),
            ("https://a.test/", "--http1.1"),
            ("https://a.test/", "--http2"),
        ] {
            // One that is told nothing would wait for longer than curl may take.
            let curl = world.curl(url).args(&[version, "--data-binary", "hello"]);
            let curl = curl.args(&["-H", "Transfer-Encoding: chunked"]);
            let curl = curl.args(&["-H", "Expect: 100-continue", "--expect100-timeout", "60"]);
            let answer = curl.ask().await;
            assert_eq!(answer.status, 200, "{speaks} {url} {version}: {answer:?}");
            assert_eq!(answer.interims, [100, 103], "{speaks} {url} {version}");
            assert!(answer.body.contains("hello"), "{answer:?}");
            // curl tells of trailers where they come.
            assert!(
                answer.body.to_ascii_lowercase().contains("x-back: 1"),
                "{answer:?}"
            );
        }
        world.stop().await;
    }
}

#[tokio::test]
async fn trailers_pass_both_ways_between_all_versions() {
    for (endpoint, speaks) in [(hinting().await, "HTTP"), (hinting_http2().await, "GRPC")] {
        let world = at_both_ports(endpoint, speaks).await;
        let chunked = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\
                       Connection: close\r\n\r\n5\r\nhello\r\n0\r\nX-There: 1\r\n\r\n";
        let answer = say(&world, "127.0.0.1", chunked).await.to_ascii_lowercase();
        assert!(
            answer.contains("\r\nlink: </a.css>; rel=preload\r\n"),
            "{answer}"
        );
        assert!(
            answer.contains("hello") && answer.contains("x-there: 1"),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n0\r\nx-back: 1\r\n\r\n"), "{answer}");

        let request = http::Request::post("https://a.test/");
        let request = request.body(()).expect("a request");
        let sent = browser(&world).await.send_request(request, false);
        let (response, mut send) = sent.expect("it is sent");
        send.send_data("hello".into(), false).expect("it is sent");
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-there", "1".parse().expect("a value"));
        send.send_trailers(trailers).expect("it is sent");
        let mut body = response.await.expect("an answer").into_body();
        let mut heard = Vec::new();
        while let Some(data) = body.data().await {
            heard.extend_from_slice(&data.expect("a whole body"));
        }
        let heard = String::from_utf8_lossy(&heard);
        assert!(
            heard.contains("hello") && heard.contains("x-there: 1"),
            "{heard}"
        );
        let trailers = body.trailers().await.expect("an end").expect("trailers");
        assert_eq!(trailers["x-back"], "1");
        world.stop().await;
    }
}

#[tokio::test]
async fn nobody_is_led_to_wherever_it_wants() {
    let (_backend, world) = World::serve_one("a.test").await;
    for host in ["a.test:443", "elsewhere.test:443"] {
        let text = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = say(&world, "127.0.0.1", &text).await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }
    world.stop().await;
}
