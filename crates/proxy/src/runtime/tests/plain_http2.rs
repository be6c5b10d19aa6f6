//! HTTP/2 by prior knowledge on a listener in plain text (RFC 9113, section 3.3).

use std::net::SocketAddr;

use ::h2::client::SendRequest;
use bytes::Bytes;
use http::Request;
use myriad_base::task;
use myriad_model::TlsRedirect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::floods::frame;
use super::http2::ask;
use super::world::{Backend, World, header, route, with_policy};
use crate::codec::frame::{PREFACE, PREFACE_HEAD};
use crate::{Introductions, Settings};

async fn world(introductions: Option<Introductions>) -> World {
    let backend = Backend::echo().await;
    let mut world = World::start_with(Settings {
        workers: 1,
        introductions,
        ..Settings::default()
    });
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    world
}

async fn connect(address: SocketAddr, before: &[u8]) -> SendRequest<Bytes> {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(before).await.unwrap();
    let (client, connection) = ::h2::client::handshake(tcp).await.unwrap();
    task::spawn("client connection", async move {
        let _ = connection.await;
    });
    client
}

fn post() -> Request<()> {
    Request::post("http://a.example/x").body(()).unwrap()
}

#[tokio::test]
async fn a_plain_listener_is_spoken_to_in_either_version() {
    let world = world(None).await;
    let mut client = connect(world.address("http"), b"").await;
    let mut second = client.clone();
    let (one, other) = tokio::join!(
        ask(&mut client, post(), b"body"),
        ask(&mut second, post(), b"body")
    );
    for (response, head) in [one, other] {
        assert_eq!(response.status(), 200);
        assert!(head.starts_with("POST /x HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(&head, "x-forwarded-proto"), Some("http"), "{head}");
        assert_eq!(
            header(&head, "x-forwarded-for"),
            Some("127.0.0.1"),
            "{head}"
        );
    }
    let get = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    assert!(world.ask(get).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_scheme_that_a_client_tells_decides_nothing() {
    let mut world = world(None).await;
    let guarded = with_policy(route("a.example", "/tls", "u"), |policy| {
        policy.tls_redirect = Some(TlsRedirect {
            status: 308,
            port: 443,
            except_prefix: Box::default(),
        });
    });
    world.put_route("tls", guarded);
    let plain = connect(world.address("http"), b"").await;
    let secure = super::http2::connect(&world, "a.example").await;
    for (mut client, own, status) in [(plain, "http", 308), (secure, "https", 200)] {
        for scheme in ["http", "https"] {
            let get = |path: &str| {
                let uri = format!("{scheme}://a.example{path}");
                Request::get(uri).body(()).unwrap()
            };
            let (response, head) = ask(&mut client, get("/"), b"").await;
            assert_eq!(response.status(), 200, "{scheme}");
            assert_eq!(header(&head, "x-forwarded-proto"), Some(own), "{scheme}");
            let (response, _) = ask(&mut client, get("/tls"), b"").await;
            assert_eq!(response.status(), status, "{scheme} over {own}");
        }
        for scheme in ["ftp", "wss", "x-y"] {
            let uri = format!("{scheme}://a.example/");
            let request = Request::get(uri).body(()).unwrap();
            let (response, _) = ask(&mut client, request, b"").await;
            assert_eq!(response.status(), 400, "{scheme} over {own}");
        }
    }
}

#[tokio::test]
async fn a_preface_may_come_byte_by_byte_and_behind_a_header_of_a_balancer() {
    let introductions = Introductions {
        ports: None,
        senders: ["127.0.0.0/8".parse().unwrap()].into(),
    };
    let world = world(Some(introductions)).await;
    let before = b"PROXY TCP4 192.0.2.7 203.0.113.9 4711 80\r\n";
    let mut client = connect(world.address("http"), before).await;
    let (_, head) = ask(&mut client, post(), b"").await;
    assert_eq!(
        header(&head, "x-forwarded-for"),
        Some("192.0.2.7"),
        "{head}"
    );

    let mut tcp = TcpStream::connect(world.address("http")).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    tcp.write_all(before).await.unwrap();
    for byte in PREFACE {
        tcp.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    tcp.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    let mut start = [0; 9];
    tcp.read_exact(&mut start).await.unwrap();
    assert_eq!(start[3], 4, "SETTINGS come first");
}

#[tokio::test]
async fn a_preface_is_no_request_behind_tls_or_behind_another_request() {
    let world = world(None).await;
    let mut client = world.tls_client("a.example").await.unwrap();
    client.send(PREFACE).await;
    let answer = client.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 505"), "{answer}");

    let mut client = world.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    client.send(PREFACE_HEAD).await;
    let answer = client.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 505"), "{answer}");
}
