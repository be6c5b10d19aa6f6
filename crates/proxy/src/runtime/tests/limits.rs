//! Each limit is reached once, refuses as it says, and is counted.

use std::time::Duration;

use myriad_model::{Kind, Listener, ListenerProtocol, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::endpoints::{Streams, put};
use super::world::{Backend, PATIENCE, World, route};
use crate::limits::Limits;
use crate::limits::SPARE;
use crate::limits::table::ROWS;

/// Limits that a story of their own reaches elsewhere, with the place.
const ELSEWHERE: [&str; 16] = [
    // In `demanded`.
    "parked",
    "parked_per_name",
    "park_timeout",
    // In `datagrams`.
    "flows",
    // In `silent`.
    "silent_bytes",
    "turn_timeout",
    // In `balance::tables`.
    "hash_table_bytes",
    "idle_per_endpoint",
    "idle_endpoints",
    "parsed_keys",
    // Below.
    "upstream_idle_timeout",
    "listeners",
    "min_body_rate",
    // In `overload`.
    "requests",
    // In `memory` and `held`.
    "http2_held_bytes",
    "held_bytes",
];

/// A client: the port that it connects to, and what it sends.
#[derive(Clone)]
enum Way {
    /// In plain text; the answer up to the end of the connection begins so.
    Plain(String, &'static str),
    /// Bytes to the port of TLS.
    Secure(Vec<u8>),
    /// Connections at the port of TLS, so many, that say nothing.
    Silent(usize),
    /// Connections at the port of TLS, so many, that begin a handshake and do not go on with it.
    Begun(usize),
    /// A client that reads nothing.
    Deaf(&'static str),
}

#[derive(Clone)]
struct Case {
    set: &'static str,
    way: Way,
}

fn cases() -> Vec<Case> {
    let plain = |set, text: String, start| Case {
        set,
        way: Way::Plain(text, start),
    };
    let get = |more: &str| format!("GET / HTTP/1.1\r\nHost: a.example\r\n{more}\r\n");
    let post = |more: &str| format!("POST / HTTP/1.1\r\nHost: a.example\r\n{more}");
    let chunked = |more: &str| post(&format!("Transfer-Encoding: chunked\r\n\r\n{more}"));
    let fields: String = (0..9).map(|number| format!("a{number}: b\r\n")).collect();
    let long = "x".repeat(2_000);
    vec![
        plain(
            "head_bytes=1KiB",
            get(&format!("a: {long}\r\n")),
            "HTTP/1.1 431",
        ),
        plain("fields=8", get(&fields), "HTTP/1.1 431"),
        plain(
            "target_bytes=256",
            format!("GET /{long} HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            "HTTP/1.1 414",
        ),
        plain(
            "odd_path_bytes=256",
            format!(
                "GET /{} HTTP/1.1\r\nHost: a.example\r\n\r\n",
                "%20".repeat(90)
            ),
            "HTTP/1.1 414",
        ),
        plain("loop_hops=1", get("CDN-Loop: myriad\r\n"), "HTTP/1.1 508"),
        plain("head_timeout=500ms", "GET / HT".to_owned(), "HTTP/1.1 408"),
        plain(
            "body_timeout=500ms",
            post("Content-Length: 9\r\n\r\nab"),
            "HTTP/1.1 408",
        ),
        plain(
            "chunk_line_bytes=16",
            chunked(&format!("1;{long}")),
            "HTTP/1.1 400",
        ),
        plain(
            "trailer_bytes=256",
            chunked(&format!("0\r\na: {long}")),
            "HTTP/1.1 400",
        ),
        plain(
            "discard_bytes=1",
            "POST / HTTP/1.1\r\nHost: b.example\r\nContent-Length: 2\r\n\r\nab".to_owned(),
            "HTTP/1.1 404",
        ),
        plain("idle_timeout=500ms", String::new(), ""),
        plain("requests_per_connection=1", get(""), "HTTP/1.1 200"),
        plain(
            "response_head_bytes=1KiB",
            get("want: long\r\n"),
            "HTTP/1.1 502",
        ),
        plain("response_fields=8", get("want: many\r\n"), "HTTP/1.1 502"),
    ]
}

/// Cases beside HTTP/1 in plain text.
fn odd_cases() -> Vec<Case> {
    vec![
        Case {
            set: "write_timeout=500ms",
            way: Way::Deaf("GET / HTTP/1.1\r\nHost: a.example\r\nwant: much\r\n\r\n"),
        },
        Case {
            set: "client_hello_bytes=1KiB",
            way: Way::Secure([&[22, 3, 1, 16, 0, 1, 0, 15, 252, 3, 3][..], &[7; 2_000]].concat()),
        },
        Case {
            set: "handshake_timeout=500ms",
            way: Way::Silent(1),
        },
        Case {
            set: "handshakes=1",
            way: Way::Begun(2),
        },
        Case {
            set: "connections=16",
            way: Way::Silent(SPARE + 1),
        },
        Case {
            set: "silent=16",
            way: Way::Silent(17),
        },
    ]
}

#[tokio::test]
async fn what_is_beyond_a_limit_is_refused_and_counted() {
    let backend = Backend::answering(|request| {
        let (fields, body) = match request {
            it if it.contains("want: long") => (format!("a: {}\r\n", "x".repeat(2_000)), 0),
            it if it.contains("want: many") => ("a: b\r\n".repeat(9), 0),
            it if it.contains("want: much") => (String::new(), 32 << 20),
            _ => (String::new(), 2),
        };
        let body = "y".repeat(body);
        format!(
            "HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    })
    .await;
    for case in cases().into_iter().chain(odd_cases()) {
        let mut limits = Limits::default();
        limits.set(case.set).unwrap();
        let mut world = World::limited(limits);
        world.put_upstream("u", &[backend.address]);
        world.put_route("r", route("a.example", "/", "u"));
        world.put_domain("a.example", &["a.example"], Default::default());
        let (name, _) = case.set.split_once('=').unwrap();
        let row = ROWS.iter().find(|row| row.name == name).unwrap();
        let metric = row.metric();
        assert_eq!(counted(&world, &metric), 0, "{}", case.set);
        let mut held = Vec::new();
        match case.way {
            Way::Plain(text, start) => {
                let mut client = world.client().await;
                client.send(text).await;
                match start {
                    "" => assert_eq!(client.read_to_end().await, ""),
                    start => assert_eq!(client.read_until(start).await, start, "{}", case.set),
                }
            }
            Way::Secure(bytes) => {
                let tcp = tokio::net::TcpStream::connect(world.address("https"))
                    .await
                    .unwrap();
                let mut client = super::world::Client::new(tcp);
                client.send(bytes).await;
                client.read_bytes_to_end().await;
            }
            Way::Silent(count) => {
                for _ in 0..count {
                    let address = world.address("https");
                    held.push(tokio::net::TcpStream::connect(address).await.unwrap());
                }
            }
            Way::Begun(count) => {
                for _ in 0..count {
                    held.push(super::overload::begin(&world, "a.example").await);
                }
            }
            Way::Deaf(text) => {
                let mut client = world.client().await;
                client.send(text).await;
                held.push(client.stream);
            }
        }
        until_counted(&world, &metric).await;
    }
}

#[tokio::test]
async fn connections_that_nobody_uses_end_and_are_counted() {
    let backend = Backend::saying("ok").await;
    let streams = Streams::echo().await;
    for (protocol, address) in [("h1", backend.address), ("h2", streams.address)] {
        let mut limits = Limits::default();
        limits.set("upstream_idle_timeout=500ms").unwrap();
        let mut world = World::limited(limits);
        match protocol {
            "h1" => world.put_upstream("u", &[address]),
            _ => put(&mut world, "u", address),
        }
        world.put_route("r", route("a.example", "/", "u"));
        let mut client = world.client().await;
        client
            .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .await;
        assert!(client.response().await.0.contains("200"), "{protocol}");
        until_counted(&world, "upstream_connections_total{event=\"idle\"}").await;
    }
}

#[tokio::test]
async fn listeners_beyond_the_limit_are_refused_and_counted() {
    let limits = Limits {
        listeners_max: 2,
        ..Limits::default()
    };
    let mut world = World::limited(limits);
    let listener = |name| {
        let listener = Listener {
            address: ([127, 0, 0, 1], 0).into(),
            tls: false,
            default_certificate: None,
            protocol: ListenerProtocol::Http,
            capture: None,
        };
        (name, Value::Listener(Box::new(listener)))
    };
    // Two are there from the start.
    let (name, value) = listener("further");
    assert_eq!(world.put(name, value).refused.len(), 1);
    let metric = "limits_reached_total{limit=\"listeners\"}";
    assert_eq!(counted(&world, metric), 1);
}

/// A listener at whatever port is free.
fn any_port() -> Value {
    Value::Listener(Box::new(Listener {
        address: ([127, 0, 0, 1], 0).into(),
        tls: false,
        default_certificate: None,
        protocol: ListenerProtocol::Http,
        capture: None,
    }))
}

#[tokio::test]
async fn a_listener_beyond_the_limit_is_worth_another_try_once_another_is_gone() {
    let limits = Limits {
        listeners_max: 3,
        ..Limits::default()
    };
    let mut world = World::limited(limits);
    // Two are there from the start. Those of one commit count one by one.
    let all = ["a", "b", "c"].map(|name| (name, any_port()));
    let applied = world.put_all_of("flood", all.into());
    assert_eq!(applied.refused.len(), 2);
    assert!(!world.proxy.take_bindable());
    for receipt in &applied.refused {
        world.remove(Kind::Listener, receipt.key.name.as_str());
    }
    let refused = world.put_all_of("mine", vec![("mine", any_port())]).refused;
    assert_eq!(refused.len(), 1);
    assert!(!world.proxy.take_bindable());
    let opened = ["a", "b", "c"].into_iter();
    let mut opened = opened.filter(|name| {
        let mut refused = applied.refused.iter();
        !refused.any(|receipt| receipt.key.name.as_str() == *name)
    });
    world.remove(Kind::Listener, opened.next().unwrap());
    assert!(world.proxy.take_bindable());
    assert!(!world.proxy.take_bindable(), "it is said once");
    world.remove(Kind::Listener, "mine");
    let applied = world.put_all_of("mine", vec![("mine", any_port())]);
    assert!(applied.refused.is_empty());
}

#[tokio::test]
async fn a_namespace_has_at_most_a_quarter_of_the_listeners() {
    let limits = Limits {
        listeners_max: 24,
        ..Limits::default()
    };
    let mut world = World::limited(limits);
    let names: Vec<String> = (0..9).map(|number| format!("port-{number}")).collect();
    let all = names.iter().map(|name| (name.as_str(), any_port()));
    let applied = world.put_all_of("flood", all.collect());
    assert_eq!(applied.refused.len(), 3);
    assert!(applied.refused[0].reason.contains("its namespace"));
    let applied = world.put_all_of("mine", vec![("mine", any_port())]);
    assert!(applied.refused.is_empty());
}

#[test]
fn every_limit_is_reached_by_some_story() {
    let here = [cases(), odd_cases()].concat();
    let here = here.iter().filter_map(|case| case.set.split_once('='));
    let mut reached: Vec<&str> = here.map(|(name, _)| name).collect();
    reached.extend(super::floods::LIMITS);
    reached.extend(super::windows::LIMITS);
    reached.extend(ELSEWHERE);
    reached.sort_unstable();
    let mut all: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    all.sort_unstable();
    assert_eq!(reached, all);
}

#[tokio::test]
async fn a_head_of_http2_beyond_the_limit_is_refused_and_counted() {
    let backend = Backend::echo().await;
    let mut limits = Limits::default();
    limits.set("head_bytes=1KiB").unwrap();
    let mut world = World::limited(limits);
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    let mut client = super::http2::connect(&world, "a.example").await;
    let request = http::Request::get("https://a.example/")
        .header("a", "x".repeat(1_200))
        .body(())
        .unwrap();
    let (response, _) = super::http2::ask(&mut client, request, b"").await;
    assert_eq!(response.status(), 431);
    until_counted(&world, "request_failures_total{reason=\"head_too_large\"}").await;
}

/// The status that a request is answered with whose body comes piece by piece, each of them sooner
/// than one wait may take and all of them later.
async fn trickled(limits: &[&str], framing: &str, piece: &str, end: &str) -> String {
    let backend = Backend::saying("ok").await;
    let mut set = Limits::default();
    for limit in limits {
        set.set(limit).unwrap();
    }
    let mut world = World::limited(set);
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    let mut client = world.client().await;
    let head = format!("POST / HTTP/1.1\r\nHost: a.example\r\n{framing}\r\n\r\n");
    client.send(head).await;
    let (mut read, mut write) = client.stream.into_split();
    let sending = async {
        for piece in [vec![piece; 15], vec![end]].concat() {
            if write.write_all(piece.as_bytes()).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Whoever has sent all of it still waits for the answer.
        std::future::pending::<()>().await;
    };
    let mut answer = [0; 12];
    let reading = tokio::time::timeout(PATIENCE, read.read_exact(&mut answer));
    tokio::select! {
        () = sending => {}
        read = reading => assert_eq!(read.unwrap().unwrap(), 12),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up_and_a_stream_only_while_places_are_short() {
    let (least, none) = ("min_body_rate=1048576", "min_body_rate=0");
    let (short, alone) = ("body_timeout=500ms", "requests=1");
    let (exact, chunked) = ("Content-Length: 15", "Transfer-Encoding: chunked");
    let (chunk, last) = ("1\r\nx\r\n", "0\r\n\r\n");
    let (few, unbounded, crowded) = ([short, least], [short, none], [short, least, alone]);
    let all = tokio::join!(
        trickled(&few, exact, "x", ""),
        trickled(&unbounded, exact, "x", ""),
        trickled(&few, chunked, chunk, last),
        trickled(&crowded, chunked, chunk, last),
    );
    let [refused, taken] = ["HTTP/1.1 408", "HTTP/1.1 200"];
    assert_eq!(all.0, refused);
    assert_eq!(all.1, taken);
    assert_eq!(all.2, taken);
    assert_eq!(all.3, refused);
}

/// The value of a metric.
pub(super) fn counted(world: &World, metric: &str) -> u64 {
    let text = world.metrics.encode();
    let name = format!("myriad_{metric} ");
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name.as_str()));
    value
        .unwrap_or_else(|| panic!("no {metric}"))
        .parse()
        .unwrap()
}

/// Waits until a metric has counted something.
pub(super) async fn until_counted(world: &World, metric: &str) {
    let counting = async {
        while counted(world, metric) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(PATIENCE, counting).await;
    assert!(done.is_ok(), "{metric} stays 0");
}
