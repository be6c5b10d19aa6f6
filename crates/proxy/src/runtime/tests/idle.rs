//! Connections of HTTP/2 that wait for their next request: the bytes that they keep meanwhile, and
//! the end of those that keep too many.

use std::rc::Rc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::floods::frame;
use super::held::{
    GET, answering, ask, begin, held, held_most, id, others_are_served, read_ends,
    until_nothing_is_held,
};
use super::memory::worker;
use super::world::{Backend, World, route};
use crate::admission::silent::source_of;
use crate::codec::frame::PREFACE;
use crate::http::downstream::h1::{self, Start};
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::net::stream::Stream;
use crate::route::downstream_connection::DownstreamConnection;

/// The bytes of a field that later heads may name, and its connection therefore keeps.
const FIELD_BYTES: usize = 4_000;

/// More than a connection keeps beside its fields.
const BESIDE_BYTES: usize = 6 << 10;

/// A request with such a field.
fn keeping(at: usize) -> Vec<u8> {
    let field = [0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
    let head = [GET, &field, &[b'x'; FIELD_BYTES]].concat();
    frame(1, 5, id(at), &head)
}

/// A client with one of the places of a worker.
async fn seated(worker: &Rc<Worker>) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let client = client.await.unwrap();
    let (served, address) = listener.accept().await.unwrap();
    let mut visit = DownstreamConnection::new("http".into(), address, 80);
    visit.seat = Some(worker.local.room.seat(source_of(address.ip())).await);
    let stream = Stream::Plain(served);
    let serving = h1::serve(worker.clone(), visit, stream, Start::default());
    myriad_base::task::spawn_local("served", serving);
    client
}

/// The place of a hundred streams at once took 25 KB for as long as the connection lasted, and
/// neither that nor its fields were counted.
#[tokio::test]
async fn an_idle_connection_counts_for_its_fields_and_keeps_nothing_of_many_streams() {
    const STREAMS: usize = 100;
    let story = async {
        let backend = Backend::saying("ok").await;
        let mut world = World::start();
        world.put_upstream("u", &[backend.address]);
        world.put_route("r", route("a.example", "/", "u"));
        let worker = worker(&world, Limits::default());
        let mut client = begin(&worker, 255).await;
        ask(&mut client, STREAMS, 5, GET).await;
        assert_eq!(read_ends(&mut client, STREAMS).await, (STREAMS, 0));
        client.write_all(&keeping(STREAMS)).await.unwrap();
        assert_eq!(read_ends(&mut client, 1).await, (1, 0));
        held_most(&worker).await;
        let kept = held(&worker);
        let about = FIELD_BYTES..FIELD_BYTES + BESIDE_BYTES;
        assert!(about.contains(&kept), "{kept} bytes");
        drop(client);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn idle_connections_go_where_they_keep_too_much_and_no_more_than_have_to() {
    const MAX: usize = 256 << 10;
    const CLIENTS: usize = 100;
    let story = async {
        let mut world = World::start();
        world.put_route("r", answering());
        let limits = Limits {
            all_held_bytes_max: MAX,
            ..Limits::default()
        };
        let worker = worker(&world, limits);
        let holdings = &worker.local.fairness.holdings;
        let said = [PREFACE, &frame(4, 0, 0, &[])[..], &keeping(0)].concat();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = seated(&worker).await;
            client.write_all(&said).await.unwrap();
            clients.push(client);
        }
        held_most(&worker).await;
        assert!(holdings.is_over(), "{} bytes", held(&worker));
        let excess = holdings.excess_of_nobody();
        assert_eq!(excess, held(&worker) - MAX);
        worker.local.room.relieve(excess);
        held_most(&worker).await;
        let left = held(&worker);
        let about = MAX - FIELD_BYTES - BESIDE_BYTES..=MAX;
        assert!(about.contains(&left), "{left} bytes");
        let seats = worker.local.room.taken();
        assert!((1..CLIENTS).contains(&seats), "{seats} connections");
        others_are_served(&worker).await;
        drop(clients);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}
