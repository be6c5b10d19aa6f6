//! Places that answers of the proxy itself hold: none where another connection needs it.

use std::time::Duration;

use myriad_model::{Action, Respond};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::floods::frame;
use super::world::{Backend, Client, PATIENCE, World, route};
use crate::codec::frame::PREFACE;
use crate::limits::Limits;

/// The connections that there may be.
const PLACES: usize = 4;

const ASK: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// A body that no socket takes whole while nobody reads.
const LARGE: usize = 16 << 20;

/// A world with a host that is forwarded, one that is answered at length, and no other.
async fn world() -> World {
    let backend = Backend::saying("ok").await;
    let mut world = World::limited(Limits {
        connections_max: PLACES,
        ..Limits::default()
    });
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    let mut fixed = route("large.example", "/", "u");
    fixed.action = Action::Respond(Box::new(Respond {
        status: 200,
        body: vec![b'x'; LARGE].into(),
    }));
    world.put_route("large", fixed);
    world
}

/// Connections that have sent this, and whose answer has begun so.
async fn flood(world: &World, says: &[u8], begins: &[u8]) -> Vec<Client<TcpStream>> {
    let mut all = Vec::new();
    for _ in 0..PLACES {
        let mut client = world.client().await;
        client.send(says).await;
        assert_eq!(client.read_exact(begins.len()).await, begins);
        all.push(client);
    }
    all
}

/// A newcomer is served, and one connection has gone for it.
async fn newcomer_is_served(world: &World, flood: Vec<Client<TcpStream>>) {
    let evicted = |count| format!("connections_evicted_total{{state=\"idle\"}} {count}\n");
    world.counts(&evicted(0)).await;
    let mut client = world.client().await;
    client.send(ASK).await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    world.counts(&evicted(1)).await;
    let closed = async {
        while world.proxy.connections() > PLACES as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.unwrap();
    drop(flood);
}

#[tokio::test]
async fn a_body_that_is_thrown_away_keeps_no_place() {
    let world = world().await;
    let post = "POST / HTTP/1.1\r\nHost: b.example\r\nContent-Length: 60000\r\n\r\n";
    let flood = flood(&world, post.as_bytes(), b"HTTP/1.1 404").await;
    newcomer_is_served(&world, flood).await;
}

#[tokio::test]
async fn an_answer_that_nobody_reads_keeps_no_place() {
    let world = world().await;
    let get = "GET / HTTP/1.1\r\nHost: large.example\r\n\r\n";
    let flood = flood(&world, get.as_bytes(), b"HTTP/1.1 200").await;
    newcomer_is_served(&world, flood).await;
}

#[tokio::test]
async fn streams_whose_answers_nobody_reads_keep_no_place() {
    let world = world().await;
    // No window for any stream, and GET of `/` at `b.example`.
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let head = b"\x82\x87\x84\x01\x09b.example";
    let says = [
        PREFACE,
        &settings,
        &frame(1, 5, 1, head),
        &frame(1, 5, 3, head),
    ]
    .concat();
    let mut flood = Vec::new();
    for _ in 0..PLACES {
        let mut client = world.client().await;
        client.send(&says).await;
        // The heads of both answers; their bodies wait.
        let mut heads = 0;
        while heads < 2 {
            let start = client.read_exact(9).await;
            let length = u32::from_be_bytes([0, start[0], start[1], start[2]]) as usize;
            client.read_exact(length).await;
            assert_ne!(start[3], 0, "no window for a body");
            heads += usize::from(start[3] == 1);
        }
        flood.push(client);
    }
    newcomer_is_served(&world, flood).await;
}

#[tokio::test]
async fn a_client_that_resets_its_connection_waits_for_no_endpoint() {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[endpoint.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    let mut closed = world.client().await;
    closed.send(ASK).await;
    let (mut answering, _) = endpoint.accept().await.unwrap();
    let mut reset = world.client().await;
    reset.send(ASK).await;
    let _silent = endpoint.accept().await.unwrap();
    // One has nothing more to say, and the other is gone.
    closed.stream.shutdown().await.unwrap();
    let socket = socket2::SockRef::from(&reset.stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(reset);
    let gone = async {
        while world.proxy.connections() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    answering.write_all(answer).await.unwrap();
    assert!(closed.response().await.0.starts_with("HTTP/1.1 200"));
}
