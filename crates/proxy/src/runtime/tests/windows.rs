//! The limits on what a client of HTTP/2 may do at a time, and the end of one that does more: told
//! by raw frames, since no client that keeps the rules gets there.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{Delay, Fault, Share};
use tokio::net::TcpStream;

use super::floods::frame;
use super::limits::until_counted;
use super::world::{Backend, Client, PATIENCE, World, route, trusting_config, with_policy};
use crate::limits::Limits;
use crate::runtime::Settings;

/// The limits that are reached here.
pub(super) const LIMITS: [&str; 3] = ["streams", "stream_window_bytes", "connection_window_bytes"];

/// POST of `/` at `a.example`.
const POST: &[u8] = b"\x83\x87\x84\x01\x09a.example";

/// Sends frames behind the preface.
type Frames = Client<tokio_rustls::client::TlsStream<TcpStream>>;

/// A world whose only route lets bodies wait for a while.
async fn world(set: &str) -> World {
    let backend = Backend::echo().await;
    let mut limits = Limits::default();
    limits.set(set).unwrap();
    let mut world = World::start_with(Settings {
        workers: 1,
        limits,
        drain_timeout: Duration::ZERO,
        ..Settings::default()
    });
    world.put_upstream("u", &[backend.address]);
    let slow = with_policy(route("a.example", "/", "u"), |policy| {
        policy.fault = Some(Box::new(Fault {
            delay: Some(Delay {
                share: Share::ALL,
                delay: PATIENCE,
            }),
            abort: None,
        }));
    });
    world.put_route("r", slow);
    world.put_domain("a.example", &["a.example"], Default::default());
    world
}

async fn open(world: &World, streams: u32) -> Frames {
    let mut config = trusting_config();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    let mut client = world.tls_client_with("a.example", &config).await.unwrap();
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    said.extend(frame(4, 0, 0, &[]));
    (0..streams).for_each(|number| said.extend(frame(1, 4, number * 2 + 1, POST)));
    client.send(said).await;
    client
}

/// The kind, stream and last byte of the next frame that ends something.
async fn end(client: &mut Frames) -> (u8, u8, u8) {
    let ended = async {
        loop {
            let head = client.read_exact(9).await;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let payload = client.read_exact(length).await;
            match head[3] {
                3 => return (3, head[8], payload[3]),
                7 => return (7, payload[3], payload[7]),
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap()
}

fn counted(limit: &str) -> String {
    format!("limits_reached_total{{limit=\"{limit}\"}}")
}

#[tokio::test]
async fn a_stream_beyond_the_limit_is_refused_alone() {
    let world = world("streams=3").await;
    let mut client = open(&world, 4).await;
    assert_eq!(end(&mut client).await, (3, 7, 7), "REFUSED_STREAM");
    until_counted(&world, &counted("streams")).await;
    // One that has ended makes room for another.
    client.send(frame(3, 0, 1, &[0, 0, 0, 8])).await;
    client.send(frame(1, 4, 9, POST)).await;
    client.send(frame(1, 4, 11, POST)).await;
    assert_eq!(end(&mut client).await, (3, 11, 7));
}

#[tokio::test]
async fn who_sends_more_than_a_window_allows_is_cut_off() {
    for (limit, ended) in [
        // FLOW_CONTROL_ERROR of the stream, and of the connection.
        ("stream_window_bytes", (3, 1, 3)),
        ("connection_window_bytes", (7, 1, 3)),
    ] {
        let world = world(&format!("{limit}=65535")).await;
        let mut client = open(&world, 1).await;
        for _ in 0..4 {
            client.send(frame(0, 0, 1, &[b'x'; 16 << 10])).await;
        }
        assert_eq!(end(&mut client).await, ended, "{limit}");
        until_counted(&world, &counted(limit)).await;
    }
}

/// The answer on the first stream: its status as packed, and its body, or the start of it that is
/// so long.
async fn answer(client: &mut Frames, until: usize) -> (u8, Vec<u8>) {
    let answered = async {
        let (mut status, mut body) = (0, Vec::new());
        loop {
            let head = client.read_exact(9).await;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let payload = client.read_exact(length).await;
            match head[3] {
                1 => status = *payload.iter().find(|byte| **byte != 0x20).unwrap(),
                0 => body.extend(payload),
                _ => continue,
            }
            if head[4] & 1 != 0 || body.len() >= until {
                return (status, body);
            }
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap()
}

#[tokio::test]
async fn the_end_of_a_body_may_come_by_itself() {
    let backend = Backend::echo().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    let mut client = open(&world, 1).await;
    client.send(frame(0, 0, 1, b"hello")).await;
    // The proxy has used up all that came before this.
    client.send(frame(6, 0, 0, b"question")).await;
    while client.read_exact(1).await != b"q" {}
    client.read_exact(7).await;
    client.send(frame(0, 1, 1, &[])).await;
    assert_eq!(answer(&mut client, usize::MAX).await.0, 0x88);
}

#[tokio::test]
async fn a_window_that_settings_open_lets_a_body_go_on() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    let mut client = open(&world, 0).await;
    let window = |bytes: u8| frame(4, 0, 0, &[0, 4, 0, 0, 0, bytes]);
    client.send(window(2)).await;
    let get = [&[0x82], &POST[1..]].concat();
    client.send(frame(1, 5, 1, &get)).await;
    let start = answer(&mut client, 2).await;
    assert_eq!(start, (0x88, b"he".to_vec()));
    client.send(window(200)).await;
    assert_eq!(answer(&mut client, usize::MAX).await.1, b"llo");
}
