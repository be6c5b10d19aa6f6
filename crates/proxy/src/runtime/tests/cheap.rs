//! Requests that cost no more than any, of which one client has very many at once: others have
//! their turns in between, and so has whoever has only just connected.

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use myriad_base::metrics::Metrics;
use myriad_model::Name;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, yield_now};
use tokio_util::sync::CancellationToken;

use super::floods::frame;
use super::memory::worker;
use super::turns::{begun, packed, silent_world};
use super::world::{PATIENCE, World};
use crate::admission::planning::PlanTurns;
use crate::http::downstream::h1::{self, Start};
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::net::socket::{self, Transport};
use crate::net::stream::Stream;
use crate::pattern::STEPS_MAX;
use crate::route::downstream_connection::DownstreamConnection;
use crate::runtime::accept::{Acceptor, Door};
use crate::runtime::open::Handshaking;
use crate::runtime::parts::tickets;
use crate::telemetry::count::Count;
use crate::tls::accept::Handshakes;
use crate::tls::demand::Demand;

/// The streams of a connection of HTTP/2 that are begun in one turn.
const STREAMS: usize = 8;

/// The requests that a source may have in a round.
const ROUND: usize = 256;

/// The requests that all sources together may have before each has a few.
const OF_ALL: usize = 512;

/// The few.
const FEW: usize = 8;

/// The connections that wait in the queue of a socket: more than what the runtime lets a task do.
const WAITING: usize = 160;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Something that a test polls by hand.
type Running = Pin<Box<dyn Future<Output = ()>>>;

fn poll(running: &mut Running) -> Poll<()> {
    let mut context = Context::from_waker(Waker::noop());
    running.as_mut().poll(&mut context)
}

fn client(number: u8) -> SocketAddr {
    ([192, 0, 2, number], 4_711).into()
}

/// The beginning of a connection of HTTP/2 with so many requests.
fn streams(count: u32) -> Vec<u8> {
    let one = |number| frame(1, 5, number * 2 + 1, &packed("a.example"));
    [begun(), (0..count).flat_map(one).collect()].concat()
}

/// A connection of a client that has said this, and the client's end of it.
async fn served(worker: &Rc<Worker>, client: SocketAddr, said: &[u8]) -> (Running, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap());
    let mut far = far.await.unwrap();
    let (near, _) = listener.accept().await.unwrap();
    far.write_all(said).await.unwrap();
    let mut there = vec![0; said.len()];
    while near.peek(&mut there).await.unwrap() < there.len() {}
    near.writable().await.unwrap();
    let visit = DownstreamConnection::new("http".into(), client, 80);
    let stream = Stream::Plain(near);
    let serving = h1::serve(worker.clone(), visit, stream, Start::default());
    (Box::pin(serving), far)
}

async fn in_time(story: impl Future<Output = ()>) {
    let local = LocalSet::new();
    let told = local.run_until(story);
    tokio::time::timeout(PATIENCE, told).await.unwrap();
}

/// All that a client had sent were planned at once, and nobody else had a turn meanwhile.
#[tokio::test]
async fn forwarded_streams_of_a_connection_are_begun_a_few_at_a_time() {
    let story = async {
        let (world, _endpoint) = silent_world().await;
        let worker = worker(&world, Limits::default());
        let (mut serving, _far) = served(&worker, client(1), &streams(40)).await;
        for polls in 1..=3 {
            assert!(poll(&mut serving).is_pending());
            let held = worker.local.fairness.requests.held();
            assert_eq!(held, polls * STREAMS);
        }
    };
    in_time(story).await;
}

#[tokio::test]
async fn streams_that_find_no_room_are_refused_one_at_a_time() {
    let story = async {
        let (world, _endpoint) = silent_world().await;
        let limits = Limits {
            requests_max: 4,
            ..Limits::default()
        };
        let worker = worker(&world, limits);
        let (mut serving, _far) = served(&worker, client(1), &streams(40)).await;
        for refused in 1..=5 {
            assert!(poll(&mut serving).is_pending());
            let counts = &worker.local.counts;
            assert_eq!(counts.get(Count::ShareRequests), refused);
            assert_eq!(worker.local.fairness.requests.held(), 4);
        }
    };
    in_time(story).await;
}

/// Each connection had its turn, however many its client had.
#[tokio::test]
async fn requests_of_a_source_that_has_had_its_turn_wait_and_others_do_not() {
    let story = async {
        let (world, _endpoint) = silent_world().await;
        let worker = worker(&world, Limits::default());
        let (turns, requests) = (
            &worker.local.fairness.plans,
            &worker.local.fairness.requests,
        );
        let source = PlanTurns::source(client(1).ip());
        let of_others = PlanTurns::source(client(3).ip());
        let mut kept = Vec::new();
        for (said, count, of_all) in [
            (streams(1), ROUND, 0),
            (GET.to_vec(), ROUND, 0),
            (streams(1), FEW, OF_ALL),
            (GET.to_vec(), FEW, OF_ALL),
        ] {
            let (mut waiting, far) = served(&worker, client(1), &said).await;
            let (mut other, beside) = served(&worker, client(2), &said).await;
            let before = requests.held();
            (0..of_all).for_each(|_| turns.note_request(of_others));
            (0..count).for_each(|_| turns.note_request(source));
            assert!(poll(&mut waiting).is_pending());
            assert_eq!(requests.held(), before);
            assert!(poll(&mut other).is_pending());
            assert_eq!(requests.held(), before + 1);
            // The next round follows once all else that is ready has had its turn.
            for _ in 0..8 {
                yield_now().await;
                assert!(poll(&mut waiting).is_pending());
            }
            assert_eq!(requests.held(), before + 2);
            kept.push((waiting, far, other, beside));
        }
    };
    in_time(story).await;
}

/// Has the runtime look at sockets, and at all else that is ready.
async fn pass() {
    for _ in 0..8 {
        yield_now().await;
    }
}

/// Polls a connection until it has done what there is.
async fn go_on(serving: &mut Running) {
    for _ in 0..8 {
        pass().await;
        assert!(poll(serving).is_pending());
    }
    pass().await;
}

/// All that a client has been sent by now.
fn told(far: &TcpStream) -> Vec<u8> {
    let (mut told, mut bytes) = (Vec::new(), [0; 4_096]);
    while let Ok(count @ 1..) = far.try_read(&mut bytes) {
        told.extend_from_slice(&bytes[..count]);
    }
    told
}

/// Each source has few, and all of them ask for one namespace.
#[tokio::test]
async fn requests_for_a_namespace_that_very_many_ask_for_wait_and_others_do_not() {
    let story = async {
        let (world, _endpoint) = silent_world().await;
        let worker = worker(&world, Limits::default());
        let (turns, requests) = (
            &worker.local.fairness.plans,
            &worker.local.fairness.requests,
        );
        let tables = worker.tables.load();
        let namespace = tables.namespace_of(&Name::from("http"), "a.example");
        let namespace = namespace.unwrap();
        let of_others = PlanTurns::source(client(3).ip());
        let nowhere = b"GET / HTTP/1.1\r\nHost: none.example\r\n\r\n";
        let mut kept = Vec::new();
        for said in [streams(1), GET.to_vec()] {
            let (mut waiting, far) = served(&worker, client(1), &said).await;
            let (mut other, beside) = served(&worker, client(2), nowhere).await;
            let before = requests.held();
            (0..OF_ALL).for_each(|_| turns.note_request(of_others));
            (0..ROUND).for_each(|_| turns.note_request_for(namespace));
            assert!(poll(&mut waiting).is_pending());
            assert_eq!(requests.held(), before);
            assert!(poll(&mut other).is_pending());
            pass().await;
            assert!(told(&beside).starts_with(b"HTTP/1.1 404"));
            go_on(&mut waiting).await;
            assert_eq!(requests.held(), before + 1);
            kept.push((waiting, far, other, beside));
        }
    };
    in_time(story).await;
}

/// A frame of SETTINGS woke all streams of its connection, at nobody's cost.
#[tokio::test]
async fn settings_that_open_windows_are_charged_and_wait_for_a_turn() {
    let window = |bytes| frame(4, 0, 0, &[0, 4, 0, 0, 0, bytes]);
    let answers = |far: &TcpStream| {
        let told = told(far);
        let answers = told.windows(9).filter(|it| it == b"\0\0\0\x04\x01\0\0\0\0");
        answers.count()
    };
    let story = async {
        let (world, _endpoint) = silent_world().await;
        let worker = worker(&world, Limits::default());
        let turns = &worker.local.fairness.plans;
        let (mut serving, mut far) = served(&worker, client(1), &streams(2)).await;
        go_on(&mut serving).await;
        assert_eq!(worker.local.fairness.requests.held(), 2);
        assert_eq!(answers(&far), 1);
        // One less than a turn of its source.
        turns.spend(PlanTurns::source(client(1).ip()), 2 * STEPS_MAX - 1);
        for (bytes, is_charged) in [(0, false), (0, false), (1, true)] {
            far.write_all(&window(bytes)).await.unwrap();
            go_on(&mut serving).await;
            assert_eq!(answers(&far), 1);
            assert_eq!(turns.admits_any_request(), !is_charged, "{bytes}");
        }
        far.write_all(&window(0)).await.unwrap();
        pass().await;
        assert!(poll(&mut serving).is_pending());
        pass().await;
        assert_eq!(answers(&far), 0);
        go_on(&mut serving).await;
        assert_eq!(answers(&far), 1);
    };
    in_time(story).await;
}

/// A socket in whose queue connections wait, as they are accepted for so long at a time, and what
/// stops that.
async fn accepting(
    worker: &Rc<Worker>,
    time: Duration,
) -> (Running, CancellationToken, Vec<std::net::TcpStream>) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (address, mut sockets) = socket::open(Transport::Connections, any, 1).unwrap();
    let (metrics, limits) = (Metrics::new(), Limits::default());
    let demand = Demand::new(&metrics);
    let handshakes = Handshakes::new(&limits, tickets(None, &metrics).unwrap(), demand);
    let stop = CancellationToken::new();
    let acceptor = Acceptor {
        worker: worker.clone(),
        handshaking: Rc::new(Handshaking::new(Arc::new(handshakes), &limits)),
        door: Door::Listener("http".into()),
        stop: stop.clone(),
        is_closing: Arc::default(),
    };
    let mut running: Running = Box::pin(acceptor.run_by(sockets.remove(0).into(), time));
    assert!(poll(&mut running).is_pending());
    let connect = |_| std::net::TcpStream::connect(address).unwrap();
    let clients = (0..WAITING).map(connect).collect();
    // The runtime looks at sockets.
    for _ in 0..8 {
        yield_now().await;
    }
    (running, stop, clients)
}

/// Connections behind as many as the runtime lets a task accept waited for a pass of its loop, each
/// time.
#[tokio::test]
async fn all_connections_that_wait_are_accepted_in_one_turn_while_there_is_time() {
    let story = async {
        let world = World::start();
        let worker = worker(&world, Limits::default());
        let before = worker.connections.get();
        let (mut running, _stop, _clients) = accepting(&worker, PATIENCE).await;
        assert!(poll(&mut running).is_pending());
        // The acceptor counts for one.
        assert_eq!(worker.connections.get(), before + 1 + WAITING);
        let before = worker.connections.get();
        let (mut running, _stop, _clients) = accepting(&worker, Duration::ZERO).await;
        for polls in 1..=3 {
            assert!(poll(&mut running).is_pending());
            assert_eq!(worker.connections.get(), before + 1 + polls);
        }
    };
    in_time(story).await;
}

/// The rest of the queue was closed, though its clients were told that they are connected.
#[tokio::test]
async fn all_connections_that_wait_are_accepted_when_a_socket_closes() {
    let story = async {
        let world = World::start();
        let worker = worker(&world, Limits::default());
        let before = worker.connections.get();
        let (mut running, stop, _clients) = accepting(&worker, PATIENCE).await;
        stop.cancel();
        assert!(poll(&mut running).is_ready());
        assert_eq!(worker.connections.get(), before + WAITING);
    };
    in_time(story).await;
}
