//! Endpoints of HTTP/2 that send as many frames as they can, or take as few streams: what is kept
//! for them, and how often somebody looks.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{
    Endpoint, Endpoints, Limits as UpstreamLimits, Protocol, Upstream, UpstreamOptions, Value,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::super::memory::{serve_by, worker, worker_within};
use super::super::world::{Backend, PATIENCE, World, route};
use super::raw::{frame, read_streams};
use super::{Streams, put};
use crate::admission::pressure::Pressure;
use crate::limits::Limits;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// The frames of one byte in an answer.
const FRAMES: usize = 40_000;

/// The requests that come at once.
const MANY: usize = 60;

/// Waits for a condition on this thread.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{what}");
}

/// Reads until a text has come so often.
async fn read_until(client: &mut TcpStream, text: &str, count: usize) {
    let mut read = Vec::new();
    let reading = async {
        while memchr::memmem::find_iter(&read, text.as_bytes()).count() < count {
            assert!(client.read_buf(&mut read).await.unwrap() > 0);
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
}

/// Each connection kept 2 MB for such an answer, for as long as it stayed, and nobody counted it.
#[tokio::test]
async fn an_answer_in_frames_of_one_byte_counts_as_held_and_leaves_nothing() {
    let story = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut world = World::start();
        put(&mut world, "u", listener.local_addr().unwrap());
        world.put_route("r", route("a.example", "/", "u"));
        let worker = worker(&world, Limits::default());
        let holdings = worker.local.fairness.holdings.clone();
        let mut client = serve_by(&worker).await;
        client.write_all(GET).await.unwrap();
        let (mut tcp, _) = listener.accept().await.unwrap();
        let stream = read_streams(&mut tcp, 1).await[0];
        let body = frame(0, 0, stream, b"z").repeat(FRAMES);
        let said = [frame(1, 4, stream, &[0x88]), body].concat();
        tcp.write_all(&said).await.unwrap();
        read_until(&mut client, "z", FRAMES).await;
        let held = holdings.own();
        assert!((64 << 10..512 << 10).contains(&held), "{held}");
        assert_eq!(worker.h2_pool.len(), 1);
        tcp.write_all(&frame(0, 1, stream, &[])).await.unwrap();
        read_until(&mut client, "0\r\n\r\n", 1).await;
        eventually("it is closed", || worker.h2_pool.is_empty()).await;
        eventually("nothing is held", || holdings.own() < 64 << 10).await;
    };
    LocalSet::new().run_until(story).await;
}

#[tokio::test]
async fn idle_connections_to_endpoints_go_with_the_first_step_of_pressure() {
    let story = async {
        let (streams, backend) = (Streams::echo().await, Backend::saying("ok").await);
        let mut world = World::start();
        put(&mut world, "u", streams.address);
        world.put_route("r", route("a.example", "/", "u"));
        world.put_upstream("other", &[backend.address]);
        world.put_route("other", route("other.example", "/", "other"));
        let pressure = Arc::new(Pressure::new(Some(1_000)));
        let worker = worker_within(&world, Limits::default(), &pressure);
        let mut clients: Vec<TcpStream> = Vec::new();
        for host in ["a.example", "other.example"] {
            let mut client = serve_by(&worker).await;
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            read_until(&mut client, "HTTP/1.1 200", 1).await;
            clients.push(client);
        }
        let kept = || (worker.h1_pool.len(), worker.h2_pool.len());
        eventually("both are idle", || kept() == (1, 1)).await;
        worker.h1_pool.sweep();
        assert_eq!(kept(), (1, 1));
        pressure.look(800);
        // What is not idle yet stays until the next time.
        eventually("both are closed", || {
            worker.h1_pool.sweep();
            kept() == (0, 0)
        })
        .await;
    };
    LocalSet::new().run_until(story).await;
}

/// An upstream whose connections carry one request each.
fn put_narrow(world: &mut World, address: std::net::SocketAddr) {
    let limits = UpstreamLimits {
        streams_max: 1,
        ..UpstreamLimits::default()
    };
    let upstream = Upstream {
        protocol: Protocol::H2c,
        dns: None,
        tls: None,
        options: Some(Box::new(UpstreamOptions {
            limits,
            ..UpstreamOptions::default()
        })),
        original_destination: false,
        source_address: None,
    };
    let endpoints = [Endpoint::even(address)].into();
    world.put_all(vec![
        ("u", Value::Upstream(Box::new(upstream))),
        ("u", Value::Endpoints(Box::new(Endpoints::new(endpoints)))),
    ]);
}

/// All who waited were woken by each connection, and each looked at all of them.
#[tokio::test]
async fn requests_that_wait_for_streams_look_a_few_times_each() {
    let story = async {
        let streams = Streams::serving(|_, _, respond| async move {
            let _respond = respond;
            std::future::pending::<()>().await;
        })
        .await;
        let mut world = World::start();
        put_narrow(&mut world, streams.address);
        world.put_route("r", route("a.example", "/", "u"));
        let worker = worker(&world, Limits::default());
        let mut clients: Vec<TcpStream> = Vec::new();
        for _ in 0..MANY {
            clients.push(serve_by(&worker).await);
        }
        for client in &mut clients {
            client.write_all(GET).await.unwrap();
        }
        eventually("each has a stream", || worker.h2_pool.len() == MANY).await;
        let looks = worker.h2_pool.looks();
        assert!((MANY..=6 * MANY).contains(&looks), "{looks}");
    };
    LocalSet::new().run_until(story).await;
}
