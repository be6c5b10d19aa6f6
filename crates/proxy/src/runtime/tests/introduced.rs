//! Clients that a load balancer introduces by headers of the PROXY protocol.

use std::net::SocketAddr;
use std::time::Duration;

use myriad_model::{
    AccessAction, AccessCheck, AccessMatcher, AccessPolicy, AccessRule, AccessSubject, AccessTest,
    Authorize, ProxyProtocol, TlsSettings, Value,
};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::streams::{ask_plain, plain_endpoint, stream_route, with_tcp};
use super::world::{Backend, Client, World, header, route, trusting};
use crate::codec::proxy_header::{Ends, write};
use crate::{Introductions, Limits, Settings};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
const V1: &str = "PROXY TCP4 192.0.2.7 203.0.113.9 4711 443\r\n";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

fn settings(senders: &str) -> Settings {
    Settings {
        workers: 1,
        introductions: Some(Introductions {
            ports: None,
            senders: [senders.parse().unwrap()].into(),
        }),
        limits: Limits {
            head_timeout: Duration::from_millis(300),
            ..Limits::default()
        },
        ..Settings::default()
    }
}

async fn world(senders: &str) -> World {
    let backend = Backend::echo().await;
    let mut world = World::start_with(settings(senders));
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world
}

/// The endpoint's account of the client.
fn told(answer: &str) -> Option<&str> {
    header(answer.split_once("\r\n\r\n")?.1, "x-forwarded-for")
}

fn v2() -> Vec<u8> {
    let ends = Ends {
        client: "[2001:db8::7]:4711".parse().unwrap(),
        server: "[2001:db8::9]:443".parse().unwrap(),
    };
    write(ProxyProtocol::V2, ends)
}

#[tokio::test]
async fn the_client_is_whom_the_header_names() {
    let world = world("127.0.0.0/8").await;
    for (start, client) in [
        (V1.as_bytes(), "192.0.2.7"),
        (&v2(), "2001:db8::7"),
        (LOCAL, "127.0.0.1"),
        (b"PROXY UNKNOWN\r\n", "unknown"),
    ] {
        let mut connection = world.client().await;
        connection.send([start, GET.as_bytes()].concat()).await;
        let answer = connection.read_to_end().await;
        assert_eq!(told(&answer), Some(client), "{answer}");
    }
    for (outcome, count) in [("taken", 2), ("empty", 2)] {
        let line =
            format!("myriad_proxy_protocol_headers_total{{outcome=\"{outcome}\"}} {count}\n");
        world.counts(&line).await;
    }
}

#[tokio::test]
async fn a_header_may_come_byte_by_byte_and_in_front_of_tls() {
    let mut world = world("127.0.0.1/32").await;
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let mut tcp = Client::new(TcpStream::connect(world.address("https")).await.unwrap());
    tcp.stream.set_nodelay(true).unwrap();
    for byte in v2() {
        tcp.send([byte]).await;
        tokio::task::yield_now().await;
    }
    let name = ServerName::try_from("a.example").unwrap();
    let connected = TlsConnector::from(trusting()).connect(name, tcp.stream);
    let mut client = Client::new(connected.await.unwrap());
    client.send(GET).await;
    let answer = client.read_to_end().await;
    assert_eq!(told(&answer), Some("2001:db8::7"), "{answer}");
}

#[tokio::test]
async fn connections_without_a_header_are_closed() {
    let world = world("127.0.0.0/8").await;
    for start in [
        GET,
        "PROXY TCP4 192.0.2.7 203.0.113.9 4711\r\n",
        "PROXY TCP4 1",
    ] {
        let mut connection = world.client().await;
        connection.send(start).await;
        assert_eq!(connection.read_to_end().await, "", "{start}");
    }
    for (outcome, count) in [("malformed", 2), ("timeout", 1), ("taken", 0)] {
        let line =
            format!("myriad_proxy_protocol_headers_total{{outcome=\"{outcome}\"}} {count}\n");
        world.counts(&line).await;
    }
}

#[tokio::test]
async fn headers_of_strangers_are_not_taken() {
    let world = world("10.0.0.0/8").await;
    let mut connection = world.client().await;
    connection.send([V1, GET].concat()).await;
    assert_eq!(connection.read_to_end().await, "");
    let line = "myriad_proxy_protocol_headers_total{outcome=\"untrusted\"} 1\n";
    world.counts(line).await;
}

/// Lets in only what fits.
fn only(subject: AccessSubject, block: &str) -> Value {
    policy("http", AccessAction::Allow, subject, block)
}

/// A policy of a listener about what fits.
fn policy(listener: &str, action: AccessAction, subject: AccessSubject, block: &str) -> Value {
    let test = AccessTest {
        subject,
        any: [AccessMatcher::Block(block.parse().unwrap())].into(),
        none: Box::default(),
    };
    Value::AccessPolicy(Box::new(AccessPolicy {
        listeners: [listener.into()].into(),
        check: AccessCheck::Authorize(Authorize {
            action,
            is_dry_run: false,
            rules: [AccessRule {
                when: [test].into(),
                ..AccessRule::default()
            }]
            .into(),
        }),
    }))
}

#[tokio::test]
async fn policies_tell_the_client_from_the_balancer() {
    let mut world = world("127.0.0.0/8").await;
    for (subject, block, status) in [
        (AccessSubject::ClientAddress, "192.0.2.0/24", "200"),
        (AccessSubject::ClientAddress, "127.0.0.0/8", "403"),
        (AccessSubject::PeerAddress, "127.0.0.0/8", "200"),
        (AccessSubject::PeerAddress, "192.0.2.0/24", "403"),
    ] {
        world.put("g", only(subject, block));
        let mut connection = world.client().await;
        connection.send([V1, GET].concat()).await;
        let answer = connection.read_to_end().await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
}

/// A client that a balancer does not know had the balancer's address, which lists tend to allow.
#[tokio::test]
async fn a_client_that_the_balancer_does_not_know_is_nobody_to_lists() {
    let mut world = world("127.0.0.0/8").await;
    let start = [&LOCAL[..12], b"\x21"].concat();
    let unspecified = [&start[..], &[0, 0, 0]].concat();
    let unix = [&start[..], &[0x31, 0, 216], &[b'/'; 216]].concat();
    let plain = b"PROXY UNKNOWN 127.0.0.1 127.0.0.1 1 1\r\n";
    let zero = b"PROXY TCP4 0.0.0.0 127.0.0.1 1 1\r\n";
    for action in [AccessAction::Allow, AccessAction::Deny] {
        let client = AccessSubject::ClientAddress;
        world.put("g", policy("http", action, client, "127.0.0.0/8"));
        for start in [&unspecified[..], &unix, plain, zero] {
            let mut connection = world.client().await;
            connection.send([start, GET.as_bytes()].concat()).await;
            let answer = connection.read_to_end().await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        }
    }
    // The balancer's own are its own.
    world.put("g", only(AccessSubject::ClientAddress, "127.0.0.0/8"));
    let mut connection = world.client().await;
    connection.send([LOCAL, GET.as_bytes()].concat()).await;
    let answer = connection.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn ports_that_are_not_named_take_no_header() {
    let backend = Backend::echo().await;
    let mut settings = settings("127.0.0.0/8");
    // The system never gives this port to a listener on port 0.
    let elsewhere = Some([1].into());
    settings.introductions.as_mut().unwrap().ports = elsewhere;
    let mut world = World::start_with(settings);
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    let answer = world.ask(GET).await;
    assert_eq!(told(&answer), Some("127.0.0.1"), "{answer}");
    let answer = world.ask(&[V1, GET].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

/// A proxy that believes these senders, with a listener whose streams an endpoint gets.
async fn with_streams(senders: &str) -> World {
    let mut world = with_tcp(World::start_with(settings(senders)));
    world.put_upstream("s", &[plain_endpoint("heard:").await]);
    let stream_route = stream_route("tcp", &[], &[("s", 1)]);
    world.put("s", Value::StreamRoute(Box::new(stream_route)));
    world
}

/// Says something that does not get through, until the end of the connection.
async fn is_closed_to(world: &World, text: &str) {
    let tcp = TcpStream::connect(world.address("tcp")).await.unwrap();
    let mut client = Client::new(tcp);
    client.send(text).await;
    assert_eq!(client.read_to_end().await, "", "{text}");
}

#[tokio::test]
async fn streams_in_plain_text_are_introduced_like_any_other() {
    let mut world = with_streams("127.0.0.0/8").await;
    let introduced = format!("{V1}hello");
    // The endpoint hears what is behind the header, and not the header.
    assert_eq!(ask_plain(&world, &introduced).await, "heard:hello");
    is_closed_to(&world, "hello, and no header").await;
    let client = AccessSubject::ClientAddress;
    for (block, is_denied) in [("192.0.2.0/24", true), ("127.0.0.0/8", false)] {
        world.put(
            "g",
            policy("tcp", AccessAction::Deny, client.clone(), block),
        );
        match is_denied {
            true => is_closed_to(&world, &introduced).await,
            false => assert_eq!(ask_plain(&world, &introduced).await, "heard:hello"),
        }
    }
    for (outcome, count) in [("taken", 3), ("malformed", 1)] {
        let line =
            format!("myriad_proxy_protocol_headers_total{{outcome=\"{outcome}\"}} {count}\n");
        world.counts(&line).await;
    }
}

#[tokio::test]
async fn streams_of_strangers_are_closed() {
    let world = with_streams("10.0.0.0/8").await;
    is_closed_to(&world, &format!("{V1}hello")).await;
    is_closed_to(&world, "hello, and no header").await;
    let line = "myriad_proxy_protocol_headers_total{outcome=\"untrusted\"} 2\n";
    world.counts(line).await;
}

#[test]
fn what_endpoints_are_told_is_what_the_balancer_told() {
    let peer: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let mut visit =
        crate::route::downstream_connection::DownstreamConnection::new("http".into(), peer, 8443);
    visit.address = Some([127, 0, 0, 2].into());
    assert_eq!(visit.ends().server, "127.0.0.2:8443".parse().unwrap());
    let ends = Ends {
        client: "192.0.2.7:4711".parse().unwrap(),
        server: "203.0.113.9:443".parse().unwrap(),
    };
    visit.introduce(ends);
    assert_eq!((visit.ends(), visit.peer()), (ends, peer.ip()));
    assert_eq!(&*visit.client_text, "192.0.2.7");
}
