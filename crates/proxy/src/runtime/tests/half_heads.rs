//! Half heads of HTTP/1 behind a request that was served: the bytes that they take, the end of
//! those that take too many, and that others are served beside them.

use std::rc::Rc;

use memchr::memmem;
use myriad_model::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::held::{held, held_most, others_are_served, until_nothing_is_held};
use super::memory::{serve_by, worker};
use super::world::{Backend, PATIENCE, World, route};
use crate::codec::buffer::BUFFER_BYTES;
use crate::http::worker::Worker;
use crate::limits::{Limits, Reached};

/// The bytes that may be held for all connections.
const MAX: usize = 1 << 20;

/// The bytes of half a head that is nearly as long as one may be.
const LONG: usize = 65_000;

/// The memory that it takes.
const LONG_BYTES: usize = 128 << 10;

/// A worker that has a host for each of two namespaces: `loud.example` and `a.example`.
async fn start() -> (Rc<Worker>, World, Backend) {
    let backend = Backend::saying("ok").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    let loud = Value::Route(Box::new(route("loud.example", "/", "u")));
    world.put_all_of("loud", vec![("loud", loud)]);
    let limits = Limits {
        all_held_bytes_max: MAX,
        ..Limits::default()
    };
    (worker(&world, limits), world, backend)
}

fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// Sends all of it, as far as the proxy takes it.
async fn send(client: &mut TcpStream, said: &[u8]) {
    let sent = tokio::time::timeout(PATIENCE, client.write_all(said)).await;
    drop(sent.unwrap());
}

/// The words of the proxy to a client, once these are among them.
async fn answer(client: &mut TcpStream, part: &[u8]) -> String {
    let mut answer = Vec::new();
    let reading = async {
        while memmem::find(&answer, part).is_none() {
            assert!(client.read_buf(&mut answer).await.unwrap() > 0);
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Asks, and sees to it that the endpoint answers.
async fn ask(client: &mut TcpStream, host: &str) {
    send(client, get(host).as_bytes()).await;
    let answer = answer(client, b"\r\n\r\nok").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// A client that has asked, and then says half a head of so many bytes.
async fn half_asked(worker: &Rc<Worker>, bytes: usize) -> TcpStream {
    let mut client = serve_by(worker).await;
    ask(&mut client, "loud.example").await;
    let mut half = b"GET / HTTP/1.1\r\nHost: loud.example\r\nX-A: ".to_vec();
    half.resize(bytes, b'a');
    send(&mut client, &half).await;
    client
}

/// Sees to it that a client was told to go, for want of room.
async fn is_refused(client: &mut TcpStream) {
    let answer = answer(client, b"\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}

/// Each kept its memory for as long as a head may take, whatever was held already, and every
/// request of everybody was refused.
#[tokio::test]
async fn long_half_heads_take_no_more_than_there_may_be_and_others_are_served() {
    let story = async {
        let (worker, _world, _backend) = start().await;
        let mut clients = Vec::new();
        for _ in 0..30 {
            clients.push(half_asked(&worker, LONG).await);
            let most = held_most(&worker).await;
            assert!(most <= MAX + MAX / 4, "{most} bytes");
        }
        assert!(held(&worker) > MAX - LONG_BYTES, "{} bytes", held(&worker));
        let counts = &worker.local.counts;
        let reached = counts.get_reached(Reached::AllHeldBytes);
        assert!(reached >= 30 - MAX as u64 / LONG_BYTES as u64, "{reached}");
        others_are_served(&worker).await;
        let mut other = serve_by(&worker).await;
        ask(&mut other, "loud.example").await;
        is_refused(&mut clients[0]).await;
        drop((clients, other));
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

/// They counted for the namespace that was asked before, and none could go.
#[tokio::test]
async fn short_half_heads_are_of_nobody_and_no_more_of_them_go_than_have_to() {
    const FIT: usize = MAX / BUFFER_BYTES;
    let story = async {
        let (worker, _world, _backend) = start().await;
        let mut clients = Vec::new();
        for _ in 0..FIT + 6 {
            clients.push(half_asked(&worker, 100).await);
        }
        held_most(&worker).await;
        assert_eq!(held(&worker), (FIT + 6) * BUFFER_BYTES);
        let holdings = &worker.local.fairness.holdings;
        assert_eq!(holdings.excess_of_nobody(), 6 * BUFFER_BYTES);
        worker.local.fairness.relieve(&worker.local.counts);
        held_most(&worker).await;
        assert_eq!(held(&worker), FIT * BUFFER_BYTES);
        for gone in &mut clients[..6] {
            is_refused(gone).await;
        }
        // The others may end theirs.
        send(&mut clients[6], b"\r\n\r\n").await;
        answer(&mut clients[6], b"\r\n\r\nok").await;
        drop(clients);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn a_head_in_two_parts_is_served_where_others_hold_too_many_halves() {
    let story = async {
        let (worker, _world, backend) = start().await;
        // Another namespace has its share.
        let mut other = worker.local.fairness.holdings.connection();
        other.belong([5, 6]);
        other.set(MAX / 8);
        let mut clients = Vec::new();
        for _ in 0..12 {
            clients.push(half_asked(&worker, LONG).await);
            held_most(&worker).await;
        }
        let mut client = serve_by(&worker).await;
        ask(&mut client, "a.example").await;
        let before = backend.requests();
        send(&mut client, b"GET / HTTP/1.1\r\nHost: a.ex").await;
        held_most(&worker).await;
        assert_eq!(backend.requests(), before);
        send(&mut client, b"ample\r\n\r\n").await;
        answer(&mut client, b"\r\n\r\nok").await;
        drop((other, clients, client));
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

/// The first half of the empty line was taken for one that had been looked at, and a line end of
/// one byte behind it was passed over.
#[tokio::test]
async fn an_empty_line_in_two_parts_hides_no_bare_line_end_behind_it() {
    let story = async {
        let (worker, _world, backend) = start().await;
        let mut client = serve_by(&worker).await;
        let said = [get("a.example").as_bytes(), b"\r"].concat();
        send(&mut client, &said).await;
        answer(&mut client, b"\r\n\r\nok").await;
        held_most(&worker).await;
        let said = [&b"\n\n"[..], get("a.example").as_bytes()].concat();
        send(&mut client, &said).await;
        let answer = answer(&mut client, b"\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert_eq!(backend.requests(), 1);
        drop(client);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}
