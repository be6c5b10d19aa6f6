//! Floods of HTTP/2 by a client of raw frames: each ends its connection, and is counted.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::limits::until_counted;
use super::world::{Backend, PATIENCE, World, route, trusting_config};
use crate::codec::frame::PREFACE;

/// The limits that are reached here.
pub(super) const LIMITS: [&str; 7] = [
    "resets",
    "pings",
    "settings",
    "priorities",
    "window_updates",
    "data_frames",
    "head_frames",
];

/// GET of `/` at `a.example`.
const ASK: &[u8] = b"\x82\x87\x84\x01\x09a.example";

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
    ]
}

#[tokio::test]
async fn floods_of_frames_end_the_connection_and_are_counted() {
    let mut config = trusting_config();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    let backend = Backend::echo().await;
    for flood in floods() {
        let world = flooded(&backend);
        let client = world.tls_client_with("a.example", &config).await;
        flood.ends(&world, client.unwrap().stream).await;
    }
}

#[tokio::test]
async fn floods_by_prior_knowledge_end_the_same_way() {
    let backend = Backend::echo().await;
    for flood in floods() {
        let world = flooded(&backend);
        flood.ends(&world, world.client().await.stream).await;
    }
}

fn flooded(backend: &Backend) -> World {
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    world
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
fn goaway(mut bytes: &[u8]) -> Option<u8> {
    let mut reason = None;
    while let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        let (payload, after) = rest.split_at_checked(length)?;
        if *kind == 7 {
            reason = payload.get(7).copied();
        }
        bytes = after;
    }
    reason
}
