//! The bytes that a worker counts as held for its clients, the end of those that make it hold too
//! much, and that others are served beside them.

use std::net::SocketAddr;
use std::rc::Rc;

use myriad_model::{AccessAction, Action, CheckBody, Provider, Respond, Route, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, yield_now};

use super::checks::{access_policy_by, over_http};
use super::floods::frame;
use super::memory::{read_frame, serve_by, swallowing, worker};
use super::websocket::UPGRADE;
use super::world::{Backend, Client, PATIENCE, World, route};
use crate::codec::buffer::BUFFER_BYTES;
use crate::codec::frame::PREFACE;
use crate::http::worker::Worker;
use crate::limits::{Limits, Reached};
use crate::net::deadline::tick;
use crate::telemetry::count::Count;

/// The streams that a client asks for at once, as many as it may.
const STREAMS: usize = 128;

/// The bytes that each stream counts for at least.
const STREAM_BYTES: usize = 4 << 10;

/// GET of `/` at a host that has no route, as HPACK has it.
const LOST: &[u8] = b"\x82\x86\x84\x01\x09n.example";

/// The same at one that has, and POST.
pub(super) const GET: &[u8] = b"\x82\x86\x84\x01\x09a.example";
const POST: &[u8] = b"\x83\x86\x84\x01\x09a.example";

/// A field for which a provider is asked.
const ASKED: &[u8] = b"\x00\x05x-ask\x01y";

/// The number of the stream at a place.
pub(super) fn id(at: usize) -> u32 {
    u32::try_from(at * 2 + 1).unwrap()
}

/// Begins a connection of HTTP/2 whose client takes so many bytes of each body.
pub(super) async fn begin(worker: &Rc<Worker>, window: u8) -> TcpStream {
    let mut client = serve_by(worker).await;
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, window]);
    let said = [PREFACE, &settings[..]].concat();
    client.write_all(&said).await.unwrap();
    client
}

/// Asks for so many streams at once.
pub(super) async fn ask(client: &mut TcpStream, streams: usize, flags: u8, head: &[u8]) {
    let heads = (0..streams).flat_map(|at| frame(1, flags, id(at), head));
    client.write_all(&heads.collect::<Vec<u8>>()).await.unwrap();
}

/// The bytes that the worker counts as held.
pub(super) fn held(worker: &Worker) -> usize {
    worker.local.fairness.holdings.own()
}

/// Gives the worker time to do all that it can, and tells the most that it held.
pub(super) async fn held_most(worker: &Worker) -> usize {
    let mut most = 0;
    for _ in 0..2_000 {
        yield_now().await;
        most = most.max(held(worker));
    }
    most
}

/// Waits until nothing is held.
pub(super) async fn until_nothing_is_held(worker: &Worker) {
    let given_back = async {
        while held(worker) > 0 {
            yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, given_back).await;
    assert!(in_time.is_ok(), "{} bytes are held", held(worker));
}

/// How many streams were answered with 200, and how many were reset, once so many have ended.
pub(super) async fn read_ends(client: &mut TcpStream, streams: usize) -> (usize, usize) {
    let (mut served, mut reset) = (0, 0);
    let mut ended = 0;
    let reading = async {
        while ended < streams {
            let (kind, flags, payload) = read_frame(client).await;
            match kind {
                1 => {
                    let status = payload.iter().find(|byte| **byte != 0x20);
                    served += usize::from(status == Some(&0x88));
                    ended += usize::from(flags & 1 != 0);
                }
                0 => ended += usize::from(flags & 1 != 0),
                3 => {
                    reset += 1;
                    ended += 1;
                }
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
    (served, reset)
}

pub(super) fn answering() -> Route {
    let body = b"ok".to_vec().into();
    Route {
        action: Action::Respond(Box::new(Respond { status: 200, body })),
        ..route("a.example", "/", "u")
    }
}

/// Sees to it that clients of either version are answered.
pub(super) async fn others_are_served(worker: &Rc<Worker>) {
    let mut client = serve_by(worker).await;
    let get = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    client.write_all(get).await.unwrap();
    let mut answer = Vec::new();
    let reading = async { while client.read_buf(&mut answer).await.unwrap() > 0 {} };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(b"ok"));
    let mut client = begin(worker, 255).await;
    ask(&mut client, 3, 5, GET).await;
    assert_eq!(read_ends(&mut client, 3).await, (3, 0));
}

/// A provider that is asked about requests with a field.
fn put_provider(world: &mut World, body: Option<CheckBody>) {
    let provider = Provider {
        body,
        ..over_http()
    };
    world.put("p", Value::Provider(Box::new(provider)));
    let action = AccessAction::Custom("p".into());
    world.put("g", access_policy_by(action, "x-ask", "y"));
}

#[tokio::test]
async fn answers_that_nobody_reads_count_for_their_connection_and_are_given_back() {
    let story = async {
        let mut world = World::start();
        world.put_route("r", answering());
        let worker = worker(&world, Limits::default());
        let mut client = begin(&worker, 0).await;
        ask(&mut client, STREAMS, 5, LOST).await;
        let held = held_most(&worker).await;
        // A page of text each, and what the socket does not take of their heads.
        let most = STREAMS * (STREAM_BYTES + 512) + 4 * BUFFER_BYTES;
        assert!(
            (STREAMS * STREAM_BYTES..most).contains(&held),
            "{held} bytes"
        );
        others_are_served(&worker).await;
        drop(client);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn answers_that_nobody_reads_leave_room_for_others_and_go_for_them() {
    const MAX: usize = 1 << 20;
    const LAST: usize = MAX + MAX / 4;
    let story = async {
        let mut world = World::start();
        world.put_route("r", answering());
        let limits = Limits {
            all_held_bytes_max: MAX,
            ..Limits::default()
        };
        let worker = worker(&world, limits);
        let counts = &worker.local.counts;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = begin(&worker, 0).await;
            ask(&mut client, STREAMS, 5, LOST).await;
            assert!(held_most(&worker).await <= LAST);
            clients.push(client);
        }
        assert!(held(&worker) > MAX, "{} bytes", held(&worker));
        assert!(counts.get_reached(Reached::AllHeldBytes) > 0);
        assert_eq!(counts.get(Count::EvictedRead), 0, "they came a moment ago");
        others_are_served(&worker).await;
        // Now they have waited, and make room for as many that come.
        (0..20).for_each(|_| tick());
        let mut client = begin(&worker, 0).await;
        ask(&mut client, STREAMS, 5, LOST).await;
        assert!(held_most(&worker).await <= LAST);
        let evicted = counts.get(Count::EvictedRead);
        assert!((1..=STREAMS as u64).contains(&evicted), "{evicted} evicted");
        // And a part of them goes each second, until there is room.
        (0..20).for_each(|_| tick());
        while worker.local.fairness.holdings.is_over() {
            let before = counts.get(Count::EvictedRead);
            worker.local.fairness.relieve(counts);
            assert!(counts.get(Count::EvictedRead) > before);
            held_most(&worker).await;
        }
        others_are_served(&worker).await;
        drop((clients, client));
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn responses_that_nobody_reads_count_for_their_connection() {
    let story = async {
        let backend = Backend::saying("#".repeat(48_000).leak()).await;
        let mut world = World::start();
        world.put_upstream("u", &[backend.address]);
        world.put_route("r", route("a.example", "/", "u"));
        let worker = worker(&world, Limits::default());
        let mut client = begin(&worker, 0).await;
        ask(&mut client, STREAMS, 5, GET).await;
        let held = held_most(&worker).await;
        // Of each a little of its body, and nothing of its head.
        let each = STREAM_BYTES + (5 << 10);
        let most = STREAMS * each + 8 * BUFFER_BYTES;
        assert!(
            (STREAMS * STREAM_BYTES..most).contains(&held),
            "{held} bytes"
        );
        drop(client);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn heads_that_wait_for_a_provider_count_for_their_connection() {
    /// A head of one such request, twice as it is kept and asked with, and as it would go on.
    const EACH: usize = 3 * 60_000;
    let story = async {
        let (check, _) = swallowing().await;
        let mut world = World::start();
        world.put_upstream("check", &[check]);
        world.put_upstream("u", &[check]);
        put_provider(&mut world, None);
        let waiting = route("a.example", "/wait", "u");
        world.put_route("w", waiting);
        world.put_route("r", answering());
        let worker = worker(&world, Limits::default());
        let max = worker.local.limits.held_bytes_max;
        let mut client = begin(&worker, 255).await;
        // A field of 4,000 bytes that is there 15 times.
        let start = b"\x82\x86\x04\x05/wait\x01\x09a.example";
        let start = [&start[..], ASKED].concat();
        let field = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e][..], &[b'x'; 4_000]].concat();
        let first = [&start[..], &field, &[0xbe; 14]].concat();
        let more = [&start[..], &[0xbe; 15]].concat();
        let mut said = frame(1, 5, 1, &first);
        (1..STREAMS).for_each(|at| said.extend(frame(1, 5, id(at), &more)));
        client.write_all(&said).await.unwrap();
        // All but those that have room are refused, and may be tried again.
        let refused = STREAMS - max.div_ceil(EACH) - 1;
        assert_eq!(read_ends(&mut client, refused).await, (0, refused));
        let held = held_most(&worker).await;
        let most = max + EACH + (64 << 10) + 4 * BUFFER_BYTES;
        assert!((max..most).contains(&held), "{held} bytes");
        others_are_served(&worker).await;
        drop(client);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

/// A provider that wants whole bodies.
fn put_reader(world: &mut World) {
    put_provider(
        world,
        Some(CheckBody {
            bytes_max: Provider::BODY_BYTES_MAX,
            allows_part: false,
            is_raw: false,
        }),
    );
}

/// POST of which a provider is told.
fn asked() -> Vec<u8> {
    [POST, ASKED].concat()
}

#[tokio::test]
async fn bodies_for_a_provider_count_for_their_connection_and_are_gathered_in_turn() {
    const BODIES: usize = 8;
    const FRAMES: usize = 8;
    let story = async {
        let passing = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let check = Backend::answering(move |_| passing.to_owned()).await;
        let backend = Backend::saying("ok").await;
        let mut world = World::start();
        world.put_upstream("check", &[check.address]);
        world.put_upstream("u", &[backend.address]);
        put_reader(&mut world);
        world.put_route("r", route("a.example", "/", "u"));
        let limits = Limits {
            held_bytes_max: 256 << 10,
            ..Limits::default()
        };
        let worker = worker(&world, limits);
        let mut client = begin(&worker, 255).await;
        ask(&mut client, BODIES, 4, &asked()).await;
        // As much as the window of the connection lets it send, all of them together.
        let part = [b'x'; BUFFER_BYTES];
        let (mut reading, mut writing) = client.split();
        let mut said = Vec::new();
        for at in 0..BODIES * FRAMES {
            let is_last = u8::from(at / BODIES == FRAMES - 1);
            said.extend(frame(0, is_last, id(at % BODIES), &part));
        }
        let sending = async {
            writing.write_all(&said).await.unwrap();
            held_most(&worker).await
        };
        // What was received, in buffers that may be twice as long, and one body as it is told.
        let most = sending.await;
        let body = FRAMES * BUFFER_BYTES;
        assert!(most >= body, "{most} bytes");
        assert!(most <= (2 * BODIES + 4) * body, "{most} bytes");
        let mut bytes = Vec::new();
        let all = async {
            while served(&bytes) < BODIES {
                assert!(reading.read_buf(&mut bytes).await.unwrap() > 0);
            }
        };
        tokio::time::timeout(PATIENCE, all).await.unwrap();
        assert_eq!(check.requests(), BODIES);
        drop(client);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

/// How many heads that say 200 are among frames.
fn served(mut bytes: &[u8]) -> usize {
    let mut served = 0;
    while let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        let Some((payload, after)) = rest.split_at_checked(length) else {
            break;
        };
        let status = payload.iter().find(|byte| **byte != 0x20);
        served += usize::from(*kind == 1 && status == Some(&0x88));
        bytes = after;
    }
    served
}

#[tokio::test]
async fn a_body_for_which_there_is_no_room_is_refused_and_others_are_served() {
    let story = async {
        let (check, _) = swallowing().await;
        let mut world = World::start();
        world.put_upstream("check", &[check]);
        put_reader(&mut world);
        world.put_route("r", answering());
        let limits = Limits {
            all_held_bytes_max: 128 << 10,
            ..Limits::default()
        };
        let worker = worker(&world, limits);
        let mut client = serve_by(&worker).await;
        let head = "POST / HTTP/1.1\r\nHost: a.example\r\nX-Ask: y\r\nContent-Length: 600000\r\n";
        let said = [head.as_bytes(), b"\r\n", &[b'x'; 300_000]].concat();
        let (mut reading, mut writing) = client.split();
        // Whoever is refused need not be read to the end.
        let sending = async { drop(writing.write_all(&said).await) };
        let mut answer = Vec::new();
        let receiving = async {
            while !answer.windows(4).any(|at| at == b"\r\n\r\n") {
                assert!(reading.read_buf(&mut answer).await.unwrap() > 0);
            }
        };
        let both = async { tokio::join!(sending, receiving) };
        tokio::time::timeout(PATIENCE, both).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("retry-after: 1"), "{answer}");
        drop(client);
        others_are_served(&worker).await;
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn the_connection_that_holds_most_goes_where_far_too_much_is_held() {
    let story = async {
        let (check, _) = swallowing().await;
        let mut world = World::start();
        world.put_upstream("check", &[check]);
        put_provider(&mut world, None);
        world.put_route("r", answering());
        let limits = Limits {
            all_held_bytes_max: 512 << 10,
            ..Limits::default()
        };
        let worker = worker(&world, limits);
        let mut little = begin(&worker, 255).await;
        ask(&mut little, 2, 4, &asked()).await;
        held_most(&worker).await;
        // Bodies that nobody reads as long as the provider says nothing.
        let mut much = begin(&worker, 255).await;
        ask(&mut much, 4, 4, &asked()).await;
        let part = [b'x'; BUFFER_BYTES];
        let said: Vec<u8> = (0..64)
            .flat_map(|at| frame(0, 0, id(at % 4), &part))
            .collect();
        let (mut reading, mut writing) = much.split();
        let sending = async { drop(writing.write_all(&said).await) };
        let receiving = async {
            let mut bytes = Vec::new();
            while let Ok(1..) = reading.read_buf(&mut bytes).await {}
        };
        let both = async { tokio::join!(sending, receiving) };
        tokio::time::timeout(PATIENCE, both).await.unwrap();
        let reached = worker.local.counts.get_reached(Reached::AllHeldBytes);
        assert_eq!(reached, 1);
        drop(much);
        others_are_served(&worker).await;
        // The other one is where it was.
        let held = held_most(&worker).await;
        assert!((2 * STREAM_BYTES..64 << 10).contains(&held), "{held} bytes");
        drop(little);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn what_is_asked_about_without_an_endpoint_has_a_place_among_requests() {
    let story = async {
        let (check, _) = swallowing().await;
        let mut world = World::start();
        world.put_upstream("check", &[check]);
        put_provider(&mut world, None);
        world.put_route("r", answering());
        let limits = Limits {
            requests_max: 8,
            ..Limits::default()
        };
        let worker = worker(&world, limits);
        let mut client = begin(&worker, 255).await;
        ask(&mut client, 32, 5, &[LOST, ASKED].concat()).await;
        // Those that find no place are answered at once.
        assert_eq!(read_ends(&mut client, 24).await, (0, 0));
        let taken = worker.local.fairness.requests.held();
        assert!((4..=8).contains(&taken), "{taken} places");
        others_are_served(&worker).await;
        drop(client);
        until_nothing_is_held(&worker).await;
        assert_eq!(worker.local.fairness.requests.held(), 0);
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

/// An endpoint that changes to whatever it is asked for, and says 256 KiB then.
async fn talking() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    myriad_base::task::spawn_local("endpoint", async move {
        while let Ok((tcp, _)) = listener.accept().await {
            myriad_base::task::spawn_local("talking", async move {
                let mut client = Client::new(tcp);
                client.read_until("\r\n\r\n").await;
                let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                            Connection: Upgrade\r\n\r\n";
                client.send(head).await;
                let _ = client.stream.write_all(&[b'x'; 256 << 10]).await;
                std::future::pending::<()>().await;
            });
        }
    });
    address
}

/// A client that has changed to another protocol, and reads no more of it; none where there is no
/// room for one.
async fn upgraded(worker: &Rc<Worker>) -> Option<TcpStream> {
    let mut client = serve_by(worker).await;
    client.write_all(UPGRADE.as_bytes()).await.unwrap();
    let mut byte = [0; 1];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let read = client.read_exact(&mut byte);
        tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101") || head.starts_with(b"HTTP/1.1 503"));
    head.starts_with(b"HTTP/1.1 101").then_some(client)
}

#[tokio::test]
async fn tunnels_that_nobody_reads_are_bounded_and_leave_others_alone() {
    const MAX: usize = 2 << 20;
    const TUNNELS: usize = 256;
    let story = async {
        let mut world = World::start();
        world.put_upstream("talking", &[talking().await]);
        let chat = Value::Route(Box::new(route("a.example", "/chat", "talking")));
        world.put_all_of("loud", vec![("loud", chat)]);
        let quiet = Value::Route(Box::new(answering()));
        world.put_all_of("quiet", vec![("quiet", quiet)]);
        let limits = Limits {
            all_held_bytes_max: MAX,
            ..Limits::default()
        };
        let worker = worker(&world, limits);
        let mut clients = Vec::new();
        for _ in 0..TUNNELS {
            let Some(client) = upgraded(&worker).await else {
                break;
            };
            clients.push(client);
            let most = held_most(&worker).await;
            assert!(most <= MAX + MAX / 4 + 2 * BUFFER_BYTES, "{most} bytes");
        }
        assert!(held(&worker) > MAX, "{} bytes", held(&worker));
        others_are_served(&worker).await;
        drop(clients);
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn stuck_uploads_of_one_namespace_leave_those_of_another_alone() {
    const MAX: usize = 2 << 20;
    let story = async {
        let backend = Backend::saying("ok").await;
        let mut world = World::start();
        // It takes connections, and reads nothing.
        let stuck = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        world.put_upstream("stuck", &[stuck.local_addr().unwrap()]);
        world.put_upstream("u", &[backend.address]);
        let owned = |host, upstream| Value::Route(Box::new(route(host, "/", upstream)));
        world.put_all_of("loud", vec![("loud", owned("loud.example", "stuck"))]);
        world.put_all_of("quiet", vec![("quiet", owned("a.example", "u"))]);
        let limits = Limits {
            all_held_bytes_max: MAX,
            ..Limits::default()
        };
        let worker = worker(&world, limits);
        let counts = &worker.local.counts;
        let head = "POST / HTTP/1.1\r\nHost: loud.example\r\nContent-Length: 50000000\r\n\r\n";
        let mut clients = Vec::new();
        for _ in 0..80 {
            let mut client = serve_by(&worker).await;
            client.write_all(head.as_bytes()).await.unwrap();
            let (mut sent, mut rests) = (0, 0);
            // Until the sockets take no more.
            while rests < 200 && sent < 32 << 20 {
                match client.try_write(&[b'x'; 64 << 10]) {
                    Ok(count) => (sent, rests) = (sent + count, 0),
                    Err(_) => rests += 1,
                }
                yield_now().await;
            }
            clients.push(client);
            let most = held_most(&worker).await;
            assert!(most <= MAX + MAX / 2, "{most} bytes");
            if held(&worker) > MAX {
                break;
            }
        }
        assert!(held(&worker) > MAX, "{} bytes", held(&worker));
        others_are_served(&worker).await;
        (0..20).for_each(|_| tick());
        worker.local.fairness.relieve(counts);
        held_most(&worker).await;
        assert!(counts.get(Count::EvictedEndpoint) > 0);
        others_are_served(&worker).await;
        // Its end is noticed by the end of the other connection.
        drop((clients, stuck));
        until_nothing_is_held(&worker).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}
