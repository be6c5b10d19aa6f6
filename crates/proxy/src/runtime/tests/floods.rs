//! Floods of HTTP/2 by a client of raw frames: each ends its connection, and is counted.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{Delay, Fault, Route, Share};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::limits::{counted, until_counted};
use super::world::{Backend, Client, PATIENCE, World, route, trusting_config, with_policy};
use crate::codec::frame::PREFACE;
use crate::limits::Limits;
use crate::runtime::Settings;

/// The limits that are reached here.
pub(super) const LIMITS: [&str; 8] = [
    "resets",
    "pings",
    "settings",
    "priorities",
    "window_updates",
    "data_frames",
    "late_frames",
    "head_frames",
];

/// GET of `/` at `a.example`.
const ASK: &[u8] = b"\x82\x87\x84\x01\x09a.example";

/// `a: b`.
const TRAILERS: &[u8] = &[0, 1, b'a', 1, b'b'];

/// The reason `ENHANCE_YOUR_CALM`.
const CALM: u8 = 11;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A flood: what comes once, and what comes again, by its number.
struct Flood {
    label: &'static str,
    first: Vec<u8>,
    again: fn(u32) -> Vec<u8>,
}

fn floods() -> Vec<Flood> {
    let flood = |label, again| Flood {
        label,
        first: Vec::new(),
        again,
    };
    let with = |label, first, again| Flood {
        label,
        first,
        again,
    };
    vec![
        flood("pings", |_| frame(6, 0, 0, &[0; 8])),
        flood("settings", |_| frame(4, 0, 0, &[])),
        flood("priorities", |_| frame(2, 0, 1, &[0, 0, 0, 0, 1])),
        // Frames of a type that nobody knows are as many.
        flood("priorities", |_| frame(0xee, 0, 0, &[])),
        flood("window_updates", |_| frame(8, 0, 0, &[0, 0, 0, 1])),
        // Rapid reset (CVE-2023-44487).
        flood("resets", |number| {
            let stream = number * 2 + 1;
            [frame(1, 5, stream, ASK), frame(3, 0, stream, &[0, 0, 0, 8])].concat()
        }),
        // The proxy is made to reset them (CVE-2025-8671): a window that grows too far.
        flood("resets", |number| {
            let stream = number * 2 + 1;
            [
                frame(1, 4, stream, ASK),
                frame(8, 0, stream, &[0x7f, 255, 255, 255]),
            ]
            .concat()
        }),
        // A head without end (CVE-2024-27316).
        with("head_frames", frame(1, 0, 1, ASK), |_| frame(9, 0, 1, &[])),
        // A head of few bytes that stands for very many.
        flood("head_frames", |number| {
            let field = [&[0x40, 1, b'a', 0x7f, 0xc1, 6][..], &[b'x'; 960]].concat();
            let head = [ASK, &field[..], &[0xbe; 8_000]].concat();
            frame(1, 5, number * 2 + 1, &head)
        }),
        with("data_frames", frame(1, 4, 1, ASK), |_| frame(0, 0, 1, &[])),
        // What follows on a stream that the proxy has reset: trailers, bodies, and their end.
        with("late_frames", cut(), |_| frame(1, 5, 1, TRAILERS)),
        with("late_frames", cut(), |_| frame(0, 0, 1, b"x")),
        with("late_frames", cut(), |_| frame(0, 1, 1, &[])),
        // Trailers of few bytes that stand for very many.
        with("late_frames", cut(), |_| {
            let field = [&[0x40, 1, b'a', 0x7f, 0xc1, 6][..], &[b'x'; 960]].concat();
            frame(1, 5, 1, &[&field[..], &[0xbe; 100]].concat())
        }),
        // The end of a stream, over and over.
        with("late_frames", cut(), |_| frame(3, 0, 1, &[0, 0, 0, 8])),
        // Streams that are refused, since those before them do not end.
        flood("late_frames", |number| frame(1, 4, number * 2 + 1, ASK)),
    ]
}

/// A stream that the proxy resets: its window is opened by nothing.
fn cut() -> Vec<u8> {
    [frame(1, 4, 1, ASK), frame(8, 0, 1, &[0; 4])].concat()
}

#[tokio::test]
async fn floods_of_frames_end_the_connection_and_are_counted() {
    let mut config = trusting_config();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    let backend = Backend::echo().await;
    for flood in floods() {
        let world = flooded(&backend, flood.label);
        let client = world.tls_client_with("a.example", &config).await;
        flood.ends(&world, client.unwrap().stream).await;
    }
}

#[tokio::test]
async fn floods_by_prior_knowledge_end_the_same_way() {
    let backend = Backend::echo().await;
    for flood in floods() {
        let world = flooded(&backend, flood.label);
        flood.ends(&world, world.client().await.stream).await;
    }
}

fn flooded(backend: &Backend, label: &str) -> World {
    if label == "late_frames" {
        return unanswered(backend, "late_frames=1024");
    }
    let world = World::start();
    routed(world, backend, route("a.example", "/", "u"))
}

/// A world whose only route lets requests wait, so that streams end by resets alone.
fn unanswered(backend: &Backend, set: &str) -> World {
    let mut limits = Limits::default();
    limits.set(set).unwrap();
    let world = World::start_with(Settings {
        workers: 1,
        limits,
        drain_timeout: Duration::ZERO,
        ..Settings::default()
    });
    let slow = with_policy(route("a.example", "/", "u"), |policy| {
        policy.fault = Some(Box::new(Fault {
            delay: Some(Delay {
                share: Share::ALL,
                delay: PATIENCE * 6,
            }),
            abort: None,
        }));
    });
    routed(world, backend, slow)
}

fn routed(mut world: World, backend: &Backend, route: Route) -> World {
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route);
    world.put_domain("a.example", &["a.example"], Default::default());
    world
}

/// Says what is given and PING behind it, and reads until its answer or GOAWAY; all that was read.
async fn said_until_ping<S>(client: &mut Client<S>, frames: &[Vec<u8>]) -> Vec<u8>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    client.send(frames.concat()).await;
    client.send(frame(6, 0, 0, &[7; 8])).await;
    let mut said = Vec::new();
    let reading = async {
        loop {
            let head = client.read_exact(9).await;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let payload = client.read_exact(length).await;
            let is_last = head[3] == 7 || (head[3] == 6 && payload == [7; 8]);
            said.extend(head);
            said.extend(payload);
            if is_last {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
    said
}

#[tokio::test]
async fn frames_for_ended_streams_are_counted_one_by_one() {
    let backend = Backend::echo().await;
    let world = unanswered(&backend, "late_frames=64");
    let metric = "limits_reached_total{limit=\"late_frames\"}";
    let mut client = world.client().await;
    let begin = [PREFACE.to_vec(), frame(4, 0, 0, &[]), cut()].concat();
    let late = frame(3, 0, 1, &[0, 0, 0, 8]);
    // As many as may be are passed over.
    let said = said_until_ping(&mut client, &[begin, late.repeat(64)]).await;
    assert_eq!((goaway(&said), counted(&world, metric)), (None, 0));
    // All that was said gives room for some more, and one beyond ends the connection.
    let more = said.len() / 64 + 1;
    let said = said_until_ping(&mut client, &[late.repeat(more)]).await;
    assert_eq!(goaway(&said), Some(CALM));
    assert_eq!(counted(&world, metric), 1);
}

#[tokio::test]
async fn who_has_yet_to_hear_of_an_end_goes_on() {
    let backend = Backend::echo().await;
    let world = unanswered(&backend, "late_frames=65536");
    let metric = "limits_reached_total{limit=\"late_frames\"}";
    let mut client = world.client().await;
    // A body in small parts, and trailers, for a stream that was reset meanwhile.
    let begin = [PREFACE.to_vec(), frame(4, 0, 0, &[]), cut()].concat();
    let body = frame(0, 0, 1, &[b'x'; 100]).repeat(5_000);
    let trailers = frame(1, 5, 1, TRAILERS);
    let said = said_until_ping(&mut client, &[begin, body, trailers]).await;
    assert_eq!(goaway(&said), None);
    // A thousand streams more than may be at a time, each given up afterwards.
    let ids = || (1..1_129).map(|number| number * 2 + 1);
    let opened = ids().map(|id| frame(1, 4, id, ASK)).collect::<Vec<_>>();
    let said = said_until_ping(&mut client, &opened).await;
    assert_eq!(goaway(&said), None);
    assert_eq!(refusals(&said), 1_000);
    let given_up = ids().skip(128).map(|id| frame(3, 0, id, &[0, 0, 0, 8]));
    let said = said_until_ping(&mut client, &given_up.collect::<Vec<_>>()).await;
    assert_eq!((goaway(&said), counted(&world, metric)), (None, 0));
}

impl Flood {
    /// Floods a connection of HTTP/2 until it ends, and sees to it that the reason was the flood.
    async fn ends(self, world: &World, stream: impl AsyncRead + AsyncWrite) {
        let (mut reading, mut writing) = tokio::io::split(stream);
        let sending = async {
            let first = [PREFACE, &frame(4, 0, 0, &[])[..], &self.first].concat();
            writing.write_all(&first).await.unwrap();
            for number in 0..100_000 {
                // The end of the connection is the end of the flood.
                if writing.write_all(&(self.again)(number)).await.is_err() {
                    return;
                }
            }
            // It may have been taken in by the kernel whole.
            let _ = writing.flush().await;
        };
        let receiving = async {
            let mut bytes = Vec::new();
            let mut more = [0; 4_096];
            // A reset of the connection is an end, too.
            while let Ok(count @ 1..) = reading.read(&mut more).await {
                bytes.extend(&more[..count]);
            }
            bytes
        };
        let both = async { tokio::join!(sending, receiving) };
        let ((), said) = tokio::time::timeout(PATIENCE, both).await.unwrap();
        let metric = format!("limits_reached_total{{limit=\"{}\"}}", self.label);
        until_counted(world, &metric).await;
        // The word may be lost where the kernel has more to say of what nobody reads any more.
        if let Some(reason) = goaway(&said) {
            assert_eq!(reason, CALM, "{}", self.label);
        }
    }
}

/// The reason of the last GOAWAY among frames.
fn goaway(bytes: &[u8]) -> Option<u8> {
    let frames = frames_of(bytes);
    let last = frames.into_iter().rfind(|(kind, _)| *kind == 7)?;
    last.1.get(7).copied()
}

/// How many streams were refused.
fn refusals(bytes: &[u8]) -> usize {
    let frames = frames_of(bytes).into_iter();
    let refused = frames.filter(|(kind, payload)| *kind == 3 && *payload == [0, 0, 0, 7]);
    refused.count()
}

/// The kinds and payloads of those frames that are whole.
fn frames_of(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        let Some((payload, after)) = rest.split_at_checked(length) else {
            break;
        };
        frames.push((*kind, payload));
        bytes = after;
    }
    frames
}
