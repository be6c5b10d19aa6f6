//! Bodies that come in very small parts, of many connections at once: others have their turns in
//! between, and no part goes on by itself.

use std::cell::Cell;
use std::rc::Rc;

use myriad_base::task;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, yield_now};

use super::floods::frame;
use super::memory::{serve_by, worker};
use super::world::{PATIENCE, World, route};
use crate::codec::frame::PREFACE;
use crate::limits::Limits;

/// The connections.
const CONNECTIONS: usize = 40;

/// The bytes of each body, every one of them a part of its own.
const EACH: usize = 10_000;

/// The bytes of all bodies.
const ALL: usize = CONNECTIONS * EACH;

/// The byte that all bodies are of. No head has it.
const BYTE: u8 = b'~';

/// The bytes that have come at the other end.
#[derive(Default)]
struct Received {
    /// Bytes of bodies.
    body: Cell<usize>,
    /// All bytes.
    all: Cell<usize>,
}

/// Counts what comes, for as long as anything does.
async fn count(mut stream: TcpStream, received: Rc<Received>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = stream.read(&mut bytes).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        let of_body = bytes[..count].iter().filter(|byte| **byte == BYTE);
        received.body.set(received.body.get() + of_body.count());
        received.all.set(received.all.get() + count);
    }
}

/// Says something, and keeps the connection open.
async fn say(mut stream: TcpStream, said: Vec<u8>) {
    stream.write_all(&said).await.unwrap();
    let mut byte = [0; 64];
    while stream.read(&mut byte).await.is_ok_and(|count| count > 0) {}
}

/// A worker whose endpoint is the listener.
async fn listening() -> (World, TcpListener) {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[endpoint.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    (world, endpoint)
}

/// The most bytes of bodies that come between two turns of somebody else, until all are there.
async fn most_in_a_turn(received: &Received) -> usize {
    let mut most = 0;
    while received.body.get() < ALL {
        let before = received.body.get();
        yield_now().await;
        most = most.max(received.body.get() - before);
    }
    most
}

/// Uploads of many clients, each of which says the same.
async fn upload(said: Vec<u8>) -> (usize, Rc<Received>) {
    let (world, endpoint) = listening().await;
    let worker = worker(&world, Limits::default());
    let received = Rc::<Received>::default();
    let counted = received.clone();
    let accepting = task::spawn_local("endpoint", async move {
        loop {
            let (stream, _) = endpoint.accept().await.unwrap();
            task::spawn_local("endpoint", count(stream, counted.clone()));
        }
    });
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(serve_by(&worker).await);
    }
    for client in clients {
        task::spawn_local("client", say(client, said.clone()));
    }
    let most = most_in_a_turn(&received).await;
    accepting.abort();
    (most, received)
}

async fn within<T>(story: impl Future<Output = T>) -> T {
    let local = LocalSet::new();
    let told = local.run_until(story);
    tokio::time::timeout(6 * PATIENCE, told).await.unwrap()
}

/// A turn was bounded by reads, and one of 16 KiB has thousands of chunks in it.
#[tokio::test]
async fn uploads_in_tiny_chunks_leave_others_their_turns() {
    let head = &b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"[..];
    let said = [head, &b"1\r\n~\r\n".repeat(EACH)].concat();
    let (most, received) = within(upload(said)).await;
    assert!(most <= ALL / 4, "{most} of {ALL}");
    // They were passed on as they came, with five bytes beside each.
    assert!(received.all.get() <= 2 * ALL, "{}", received.all.get());
}

/// Frames of bodies were charged to nobody, so that a round was a turn of each connection.
#[tokio::test]
async fn uploads_in_frames_of_one_byte_leave_others_their_turns() {
    let head = b"\x83\x86\x84\x01\x09a.example";
    let mut said = [PREFACE, &frame(4, 0, 0, &[])[..]].concat();
    said.extend(frame(1, 4, 1, head));
    said.extend(frame(0, 0, 1, &[BYTE]).repeat(EACH));
    let (most, _) = within(upload(said)).await;
    assert!(most <= ALL / 10, "{most} of {ALL}");
}

/// The same of an endpoint, to clients that each ask once.
#[tokio::test]
async fn answers_in_tiny_chunks_leave_others_their_turns() {
    let story = async {
        let (world, endpoint) = listening().await;
        let worker = worker(&world, Limits::default());
        let received = Rc::<Received>::default();
        let head = &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..];
        let said = [head, &b"1\r\n~\r\n".repeat(EACH)].concat();
        let mut asked = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut client = serve_by(&worker).await;
            let ask = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
            client.write_all(ask).await.unwrap();
            task::spawn_local("client", count(client, received.clone()));
            asked.push(endpoint.accept().await.unwrap().0);
        }
        for stream in asked {
            task::spawn_local("endpoint", say(stream, said.clone()));
        }
        let most = most_in_a_turn(&received).await;
        (most, received.all.get())
    };
    let (most, all) = within(story).await;
    assert!(most <= ALL / 4, "{most} of {ALL}");
    assert!(all <= 2 * ALL, "{all}");
}
