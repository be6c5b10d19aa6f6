//! Requests that two servers could understand differently, sent by real clients: none of them
//! reaches an endpoint but in one plain form. And answers of endpoints that lie.

use std::sync::{Arc, Mutex};

use myriad_base::task;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::floods::frame;
use super::world::{Client, PATIENCE, World, header, route, trusting_config};
use crate::Settings;
use crate::codec::body::{BodyDecoder, BodyLength};
use crate::codec::head::HeadFinder;
use crate::limits::Limits;
use crate::limits::PathRule;
use crate::telemetry::request_id::RequestIds;

mod rows;

use rows::{Expected, HTTP2_ROWS, REQUEST_ROWS, RESPONSE_ROWS};

/// The request that stands behind each one, as if it were its body or the next one.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// An endpoint that keeps what reaches it, byte by byte, and answers each message.
struct Recorder {
    address: std::net::SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    async fn start() -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let recorder = Recorder {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
        };
        let seen = recorder.seen.clone();
        task::spawn("recorder", async move {
            while let Ok((tcp, _)) = listener.accept().await {
                task::spawn("recorded", record(tcp, seen.clone()));
            }
        });
        recorder
    }

    /// The requests since the last time, without the fields that tell of the client.
    fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.seen.lock().unwrap());
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.split_inclusive("\r\n");
        let is_own = |line: &str| {
            let names = ["x-forwarded-", "x-real", "cdn-loop"];
            names.iter().any(|name| line.starts_with(name))
        };
        lines.filter(|line| !is_own(line)).collect()
    }
}

async fn record(mut tcp: TcpStream, seen: Arc<Mutex<Vec<u8>>>) {
    let mut bytes = Vec::new();
    loop {
        while let Some(length) = message(&bytes) {
            bytes.drain(..length);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            if tcp.write_all(answer).await.is_err() {
                return;
            }
        }
        let mut more = [0; 4_096];
        match tcp.read(&mut more).await {
            Ok(count) if count > 0 => {
                seen.lock().unwrap().extend(&more[..count]);
                bytes.extend(&more[..count]);
            }
            _ => return,
        }
    }
}

/// The length of a whole message.
fn message(bytes: &[u8]) -> Option<usize> {
    let length = HeadFinder::default().find(bytes).unwrap()?;
    let head = std::str::from_utf8(&bytes[..length]).unwrap();
    let body = match (
        header(head, "content-length"),
        header(head, "transfer-encoding"),
    ) {
        (Some(length), None) => BodyLength::Exact(length.parse().unwrap()),
        (None, Some("chunked")) => BodyLength::Chunked,
        (None, None) => BodyLength::None,
        both => panic!("two framings at an endpoint: {both:?}"),
    };
    let mut decoder = BodyDecoder::new(body);
    let mut used = length;
    while !decoder.is_done() {
        let rest = bytes.get(used..).filter(|rest| !rest.is_empty())?;
        used += decoder.step(rest).unwrap().consumed;
    }
    Some(used)
}

fn world_of(recorder: &Recorder, rule: PathRule) -> World {
    let mut world = World::start_with(Settings {
        workers: 1,
        // One that is made would be another each time.
        request_ids: RequestIds::Pass,
        limits: Limits {
            paths: rule,
            ..Limits::default()
        },
        ..Settings::default()
    });
    world.put_upstream("u", &[recorder.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    world
}

#[tokio::test]
async fn nothing_ambiguous_reaches_an_endpoint() {
    let recorder = Recorder::start().await;
    let world = world_of(&recorder, PathRule::AsIs);
    assert!(REQUEST_ROWS.len() >= 60, "{} rows", REQUEST_ROWS.len());
    for (text, expected) in REQUEST_ROWS {
        let mut client = world.client().await;
        match expected {
            Expected::Refused(status) => {
                client.send(format!("{text}{SMUGGLED}")).await;
                // The end of the connection is part of the refusal.
                let answer = client.read_to_end().await;
                let start = format!("HTTP/1.1 {status} ");
                assert!(answer.starts_with(&start), "{text:?}: {answer:?}");
                assert_eq!(
                    answer.matches("HTTP/1.1 ").count(),
                    1,
                    "{text:?}: {answer:?}"
                );
                let seen = recorder.take();
                assert!(!seen.contains("smuggled"), "{text:?}: {seen:?}");
                // A body that turns out bad breaks off a request that had begun.
                let is_broken = text.contains("\r\n\r\n") && seen.starts_with("POST /broken");
                assert!(seen.is_empty() || is_broken, "{text:?}: {seen:?}");
            }
            Expected::Forwarded(passed) => {
                client.send(text).await;
                client.read_until("HTTP/1.1 200 OK\r\n").await;
                assert_eq!(recorder.take(), *passed, "{text:?}");
            }
        }
    }
}

#[tokio::test]
async fn paths_are_one_for_routes_and_endpoints_as_configured() {
    let recorder = Recorder::start().await;
    for (rule, target, expected) in [
        (PathRule::Base, "/a/%2e%2e/%62?q=/../x", Some("/b?q=/../x")),
        (PathRule::Base, "/a\\..\\b", Some("/b")),
        (PathRule::Base, "/a%2f..%2fb", None),
        (PathRule::MergeSlashes, "//a///b", Some("/a/b")),
        (PathRule::DecodeAndMergeSlashes, "/x%2f..%5C/b", Some("/b")),
        (PathRule::Strict, "/a%2fb", None),
        (PathRule::Strict, "/a//b", None),
        (PathRule::Strict, "/a/b%20c", Some("/a/b%20c")),
    ] {
        let mut world = world_of(&recorder, rule);
        world.remove(myriad_model::Kind::Route, "r");
        // Only who is asked for the one form is found.
        let path = expected.unwrap_or("/b").split('?').next().unwrap();
        world.put_route("b", route("a.example", path, "u"));
        let request = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let mut client = world.client().await;
        client.send(request).await;
        let (head, _) = client.response().await;
        match expected {
            Some(target) => {
                assert!(head.starts_with("HTTP/1.1 200"), "{target}: {head}");
                let seen = recorder.take();
                assert!(
                    seen.starts_with(&format!("GET {target} HTTP/1.1\r\n")),
                    "{seen}"
                );
            }
            None => {
                assert!(head.starts_with("HTTP/1.1 400"), "{target}: {head}");
                assert_eq!(recorder.take(), "");
            }
        }
    }
}

#[tokio::test]
async fn streams_of_http2_cannot_say_what_http1_would_read_differently() {
    let recorder = Recorder::start().await;
    let world = world_of(&recorder, PathRule::AsIs);
    let mut config = trusting_config();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    for (fields, body, expected) in HTTP2_ROWS {
        let mut client = world.tls_client_with("a.example", &config).await.unwrap();
        let mut block = Vec::new();
        for (name, value) in *fields {
            block.extend([0, name.len() as u8]);
            block.extend(name.as_bytes());
            block.push(value.len() as u8);
            block.extend(value.as_bytes());
        }
        let is_end = body.is_empty();
        let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        said.extend(frame(4, 0, 0, &[]));
        said.extend(frame(1, if is_end { 5 } else { 4 }, 1, &block));
        if !is_end {
            said.extend(frame(0, 1, 1, body.as_bytes()));
        }
        client.send(said).await;
        let answer = tokio::time::timeout(PATIENCE, answer(&mut client))
            .await
            .unwrap();
        match expected {
            Some(passed) => {
                assert_eq!(answer, 200, "{fields:?}");
                assert_eq!(recorder.take(), *passed, "{fields:?}");
            }
            None => {
                assert_ne!(answer, 200, "{fields:?}");
                let seen = recorder.take();
                let is_broken = seen.starts_with("POST /broken");
                assert!(seen.is_empty() || is_broken, "{fields:?}: {seen:?}");
                assert!(!seen.contains("smuggled"), "{fields:?}: {seen:?}");
            }
        }
    }
}

/// 200 where the stream is answered so, and otherwise 0, or the kind of frame that ends it.
async fn answer(client: &mut Client<tokio_rustls::client::TlsStream<TcpStream>>) -> u32 {
    loop {
        let head = client.read_exact(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = client.read_exact(length).await;
        // The first head says that it names no earlier ones.
        let status = payload.iter().find(|byte| **byte != 0x20);
        match (head[3], status) {
            // `:status: 200` is the eighth of the static table.
            (1, Some(0x88)) => return 200,
            (1, _) => return 0,
            (3 | 7, _) => return u32::from(head[3]),
            _ => {}
        }
    }
}

#[tokio::test]
async fn an_endpoint_that_lies_is_a_bad_gateway_and_is_asked_anew() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    task::spawn("liar", async move {
        for number in 0_u32.. {
            let Ok((tcp, _)) = listener.accept().await else {
                return;
            };
            task::spawn("lie", lie(tcp, number));
        }
    });
    for (number, (text, expected)) in RESPONSE_ROWS.iter().enumerate() {
        let mut client = world.client().await;
        let request = format!("GET /{number} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        client.send(request).await;
        let head = match expected {
            Some("") => client.read_to_end().await,
            _ => client.read_until("\r\n\r\n").await,
        };
        let first = header(&head, "connection-number").map(str::to_owned);
        match expected {
            None => assert!(head.starts_with("HTTP/1.1 502 "), "{text:?}: {head}"),
            Some("") => assert!(!head.ends_with("0\r\n\r\n"), "{text:?}: {head}"),
            Some(start) => assert!(head.starts_with(start), "{text:?}: {head}"),
        }
        drop(client);
        // Whoever asks next gets an answer to what was asked, by another connection.
        let mut next = world.client().await;
        next.send("GET /fine HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .await;
        let (head, body) = next.response().await;
        assert!(
            head.starts_with("HTTP/1.1 200 Fine\r\n") && body == "fine",
            "{text:?}: {head}"
        );
        let second = header(&head, "connection-number").map(str::to_owned);
        assert!(second.is_some() && second != first, "{text:?}: {second:?}");
        assert_eq!(header(&head, "requests"), Some("1"), "{text:?}");
    }
}

/// Answers as the rows say, and `/fine` with the number of the connection and of its requests.
async fn lie(tcp: TcpStream, number: u32) {
    let mut endpoint = Client::new(tcp);
    let mut requests = 0;
    loop {
        let mut head = [0; 1];
        if endpoint.stream.peek(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
        let request = endpoint.read_until("\r\n\r\n").await;
        requests += 1;
        let path = request.split(' ').nth(1).unwrap();
        let fine = format!(
            "HTTP/1.1 200 Fine\r\nconnection-number: {number}\r\nrequests: {requests}\r\n\
             content-length: 4\r\nconnection: close\r\n\r\nfine"
        );
        let row = path.trim_start_matches('/').parse::<usize>().ok();
        let text = row.map_or(fine.as_str(), |row| RESPONSE_ROWS[row].0);
        let text = text.replace("NUMBER", &number.to_string());
        endpoint.send(text).await;
    }
}
