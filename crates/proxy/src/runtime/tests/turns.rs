//! The turns of connections: a client that asks for much at once waits between its requests, and
//! what costs it nothing makes up for nothing.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use myriad_base::metrics::Metrics;
use myriad_base::task;
use myriad_model::{Action, Name, PathMatch, Respond, Route, Value};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, yield_now};

use super::floods::frame;
use super::http2::{connect, get};
use super::memory::{read_frame, serve_by, worker};
use super::world::{PATIENCE, World, route};
use crate::admission::planning::{Asker, PlanTurns, PlanWait};
use crate::codec::frame::PREFACE;
use crate::http::downstream::h1::{self, Start};
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::net::stream::Stream;
use crate::route::downstream_connection::DownstreamConnection;
use crate::telemetry::count;
use crate::telemetry::top::TopSeries;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// The requests that are sent ahead: far fewer than the runtime itself lets one poll answer.
const AHEAD: usize = 8;

fn answering(path: &str) -> Route {
    let body = b"ok".to_vec().into();
    Route {
        action: Action::Respond(Box::new(Respond { status: 200, body })),
        ..route("a.example", path, "u")
    }
}

/// How many of the requests that were sent ahead a connection has answered, once it was polled so
/// often by hand. Nothing that it could wait for is missing when it begins.
async fn answers_after(worker: &Rc<Worker>, polls: usize) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let mut client = client.await.unwrap();
    let (served, address) = listener.accept().await.unwrap();
    client.write_all(&GET.repeat(AHEAD)).await.unwrap();
    let mut there = [0; GET.len() * AHEAD];
    while served.peek(&mut there).await.unwrap() < there.len() {}
    served.writable().await.unwrap();
    let visit = DownstreamConnection::new("http".into(), address, 80);
    let stream = Stream::Plain(served);
    let mut serving = Box::pin(h1::serve(worker.clone(), visit, stream, Start::default()));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        assert!(serving.as_mut().poll(&mut context).is_pending());
    }
    // All requests were read from the socket, so that its end takes no answer with it.
    drop(serving);
    let mut answered = Vec::new();
    let reading = async { while client.read_buf(&mut answered).await.unwrap() > 0 {} };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
    let answers = answered.windows(12).filter(|it| it == b"HTTP/1.1 200");
    answers.count()
}

/// Answers of the proxy pend on nothing, so that a client who has sent many requests ahead would
/// have all of them answered before anybody else is.
#[tokio::test]
async fn requests_that_are_sent_ahead_take_one_turn_each() {
    let mut world = World::start();
    world.put_route("r", answering("/"));
    let worker = worker(&world, Limits::default());
    for polls in 1..=3 {
        assert_eq!(answers_after(&worker, polls).await, polls);
    }
}

/// The answers that an endpoint holds back: more than one turn has room for, and fewer than the
/// tasks that the runtime looks at before it looks at sockets.
const HELD: usize = 40;

/// Counts a client that has its answer, and reads on.
async fn read_answer(mut client: TcpStream, answered: Rc<Cell<usize>>) {
    let mut bytes = [0; 4_096];
    assert!(client.read(&mut bytes).await.unwrap() > 0);
    answered.set(answered.get() + 1);
    while client.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

/// Tasks that are ready go in turn, so that all answers that an endpoint lets go at once were
/// passed on before anybody else was served.
#[tokio::test]
async fn answers_that_were_held_back_are_passed_on_a_few_at_a_time() {
    let story = async {
        let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut world = World::start();
        world.put_upstream("u", &[endpoint.local_addr().unwrap()]);
        world.put_route("r", route("a.example", "/", "u"));
        let worker = worker(&world, Limits::default());
        let answered = Rc::<Cell<usize>>::default();
        let mut held = Vec::new();
        for _ in 0..HELD {
            let mut client = serve_by(&worker).await;
            client.write_all(GET).await.unwrap();
            let (mut asked, _) = endpoint.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert!(asked.read_buf(&mut head).await.unwrap() > 0);
            }
            task::spawn_local("client", read_answer(client, answered.clone()));
            held.push(asked);
        }
        let field = |number| format!("x-{number}: {}\r\n", "a".repeat(480));
        let fields: String = (0..40).map(field).collect();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
        for asked in &mut held {
            asked.write_all(answer.as_bytes()).await.unwrap();
        }
        let mut most = 0;
        while answered.get() < HELD {
            let before = answered.get();
            yield_now().await;
            most = most.max(answered.get() - before);
        }
        assert!(most <= HELD / 2, "{most} in one turn");
    };
    let local = LocalSet::new();
    let told = local.run_until(story);
    tokio::time::timeout(PATIENCE, told).await.unwrap();
}

/// Each reset makes a connection to an endpoint end, and an answer of the proxy is free.
#[tokio::test]
async fn answers_of_the_proxy_make_up_for_no_reset() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[silent.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_route("own", answering("/own"));
    world.put_domain("a.example", &["a.example"], Default::default());
    let client = connect(&world, "a.example").await;
    let flood = async {
        for _ in 0..200 {
            let mut ready = client.clone().ready().await?;
            let (_, mut send) = ready.send_request(get("https://a.example/"), false)?;
            tokio::task::yield_now().await;
            send.send_reset(::h2::Reason::CANCEL);
            let mut ready = ready.ready().await?;
            let (response, _) = ready.send_request(get("https://a.example/own"), true)?;
            assert_eq!(response.await?.status(), 200);
        }
        Ok::<(), ::h2::Error>(())
    };
    let error = tokio::time::timeout(PATIENCE, flood).await.unwrap();
    let error = error.unwrap_err();
    let calm = Some(::h2::Reason::ENHANCE_YOUR_CALM);
    assert!(error.reason() == calm || error.is_io(), "{error}");
}

/// The connections that ask for something costly.
const COSTLY: usize = 40;

/// The requests of each of them.
const EACH: usize = 4;

/// The path of a request that takes all the steps that one may.
fn costly_path() -> String {
    format!("/{}", "a".repeat(4_000))
}

/// A world with a host whose paths are costly to look for.
fn costly_world() -> World {
    let mut world = World::start();
    for number in 0..64 {
        let pattern = format!("/(a{{1,200}}){{1,3}}b{number}");
        let costly = Route {
            path: PathMatch::Regex(pattern.into()),
            ..answering("/")
        };
        world.put_route(&format!("r{number}"), costly);
    }
    world
}

/// Counts the answers that a client gets.
async fn count_answers(mut client: TcpStream, answered: Rc<Cell<usize>>) {
    let mut bytes = [0; 4_096];
    loop {
        let count = client.read(&mut bytes).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        let heads = bytes[..count].windows(9).filter(|it| it == b"HTTP/1.1 ");
        answered.set(answered.get() + heads.count());
    }
}

/// Has many connections of one client ask for something costly, and counts what they get.
async fn flood(worker: &Rc<Worker>) -> Rc<Cell<usize>> {
    let ask = format!("GET {} HTTP/1.1\r\nHost: a.example\r\n\r\n", costly_path());
    let mut clients = Vec::new();
    for _ in 0..COSTLY {
        let client = serve_by(worker).await;
        client.writable().await.unwrap();
        clients.push(client);
    }
    let answered = Rc::<Cell<usize>>::default();
    for client in clients {
        let asks = ask.repeat(EACH);
        assert_eq!(client.try_write(asks.as_bytes()).unwrap(), asks.len());
        task::spawn_local("client", count_answers(client, answered.clone()));
    }
    answered
}

/// The turn of each connection ended, and a round of all of them was what others waited for.
#[tokio::test]
async fn costly_requests_of_many_connections_are_planned_a_few_at_a_time() {
    let story = async {
        let world = costly_world();
        let worker = worker(&world, Limits::default());
        let answered = flood(&worker).await;
        let mut most = 0;
        while answered.get() < EACH * COSTLY {
            let before = answered.get();
            yield_now().await;
            most = most.max(answered.get() - before);
        }
        assert!(most <= COSTLY / 3, "{most} in one turn");
    };
    let local = LocalSet::new();
    let told = local.run_until(story);
    tokio::time::timeout(6 * PATIENCE, told).await.unwrap();
}

/// By the same address, as from the same office, it waited for a round of all of them.
#[tokio::test]
async fn a_request_that_is_not_costly_waits_for_none_that_are() {
    let story = async {
        let mut world = costly_world();
        world.put_route("own", answering("/own"));
        let worker = worker(&world, Limits::default());
        let answered = flood(&worker).await;
        // By then each of them has had one, and is known to be costly.
        while answered.get() < 2 * COSTLY {
            yield_now().await;
        }
        let mut client = serve_by(&worker).await;
        let before = answered.get();
        client
            .write_all(b"GET /own HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .await
            .unwrap();
        let mut bytes = [0; 4_096];
        let count = client.read(&mut bytes).await.unwrap();
        assert!(bytes[..count].starts_with(b"HTTP/1.1 200"));
        let meanwhile = answered.get() - before;
        assert!(meanwhile <= COSTLY / 2, "{meanwhile} in between");
    };
    let local = LocalSet::new();
    let told = local.run_until(story);
    tokio::time::timeout(6 * PATIENCE, told).await.unwrap();
}

/// GET of a path at a host as HPACK has it, nothing of which is remembered.
pub(super) fn packed(host: &str) -> Vec<u8> {
    let length = u8::try_from(host.len()).unwrap();
    [&b"\x82\x86\x84\x01"[..], &[length][..], host.as_bytes()].concat()
}

/// The beginning of a connection of HTTP/2.
pub(super) fn begun() -> Vec<u8> {
    [PREFACE, &frame(4, 0, 0, &[])[..]].concat()
}

/// The requests that wait for a namespace before another one: for many rounds.
const BEFORE: usize = 1_024;

/// Requests of the source of this test's client that wait for a namespace which has had its turn.
fn waits_for(turns: &PlanTurns, namespace: u64) -> Vec<PlanWait> {
    let asker = Asker {
        source: PlanTurns::source([127, 0, 0, 1].into()),
        is_costly: false,
    };
    turns.spend_for(namespace, 1 << 24);
    let mut context = Context::from_waker(Waker::noop());
    let one = |_| {
        let mut wait = PlanWait::default();
        let polled = turns.poll_namespace(namespace, asker, &mut wait, &mut context);
        assert!(polled.is_pending());
        wait
    };
    (0..BEFORE).map(one).collect()
}

/// Only the streams of that namespace wait.
#[tokio::test]
async fn a_stream_for_a_namespace_that_has_had_its_turn_lets_others_pass() {
    let story = async {
        let mut world = World::start();
        world.put_route("r", answering("/"));
        let other = Route {
            hosts: route("b.example", "/", "u").hosts,
            ..answering("/")
        };
        world.put_all_of("other", vec![("other", Value::Route(Box::new(other)))]);
        let worker = worker(&world, Limits::default());
        let tables = worker.tables.load();
        let namespace = |host| tables.namespace_of(&Name::from("http"), host).unwrap();
        assert_ne!(namespace("a.example"), namespace("b.example"));
        let mut client = serve_by(&worker).await;
        let turns = &worker.local.fairness.plans;
        let _before = waits_for(turns, namespace("a.example"));
        let asks = [(1, "a.example"), (3, "b.example")];
        let asks = asks.map(|(stream, host)| frame(1, 5, stream, &packed(host)));
        client
            .write_all(&[begun(), asks.concat()].concat())
            .await
            .unwrap();
        let mut answered = Vec::new();
        while answered.len() < 2 {
            let (stream, kind) = read_stream(&mut client).await;
            // The body is the end of each.
            if kind == 0 {
                answered.push(stream);
            }
        }
        assert_eq!(answered, [3, 1]);
    };
    let local = LocalSet::new();
    let told = local.run_until(story);
    tokio::time::timeout(PATIENCE, told).await.unwrap();
}

/// The stream and the kind of the next frame.
async fn read_stream(client: &mut TcpStream) -> (u32, u8) {
    let mut head = [0; 9];
    client.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    client.read_exact(&mut payload).await.unwrap();
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    (stream, head[3])
}

/// Streams that are reset as soon as they are opened.
fn resets(count: u32) -> Vec<u8> {
    let one = |number: u32| {
        let stream = number * 2 + 1;
        let ask = frame(1, 5, stream, &packed("a.example"));
        [ask, frame(3, 0, stream, &[0, 0, 0, 8])].concat()
    };
    (0..count).flat_map(one).collect()
}

/// Reads until the proxy has answered a PING; false where it ends the connection.
async fn is_open(client: &mut TcpStream) -> bool {
    loop {
        match read_frame(client).await {
            (6, flags, _) if flags & 1 == 1 => return true,
            (7, ..) => return false,
            _ => {}
        }
    }
}

/// A world whose endpoint answers nothing.
pub(super) async fn silent_world() -> (World, TcpListener) {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[endpoint.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    (world, endpoint)
}

/// An endpoint was chosen and connected to before it was seen that nobody waits any more.
#[tokio::test]
async fn streams_that_are_reset_at_once_reach_no_endpoint() {
    let story = async {
        let (world, endpoint) = silent_world().await;
        let mut client = serve_by(&worker(&world, Limits::default())).await;
        let said = [begun(), resets(32), frame(6, 0, 0, &[7; 8])].concat();
        client.write_all(&said).await.unwrap();
        assert!(is_open(&mut client).await);
        for _ in 0..20 {
            yield_now().await;
        }
        let accepted = poll_fn(|context| Poll::Ready(endpoint.poll_accept(context).is_ready()));
        assert!(!accepted.await);
    };
    let local = LocalSet::new();
    let told = local.run_until(story);
    tokio::time::timeout(PATIENCE, told).await.unwrap();
}

/// Each connection was let reset as many streams as any, one after the other.
#[tokio::test]
async fn a_source_that_resets_by_many_connections_has_fewer_on_each() {
    let story = async {
        let (world, _endpoint) = silent_world().await;
        let worker = worker(&world, Limits::default());
        let mut open = Vec::new();
        for _ in 0..12 {
            let mut client = serve_by(&worker).await;
            // Fewer than a connection may have.
            let said = [begun(), resets(60), frame(6, 0, 0, &[7; 8])].concat();
            client.write_all(&said).await.unwrap();
            let is_first = is_open(&mut client).await;
            let _ = client.write_all(&frame(6, 0, 0, &[8; 8])).await;
            open.push(is_first && is_open(&mut client).await);
        }
        assert_eq!(open[..8], [true; 8]);
        assert_eq!(open[9..], [false; 3]);
    };
    let local = LocalSet::new();
    let told = local.run_until(story);
    tokio::time::timeout(PATIENCE, told).await.unwrap();
}

/// Requests that had come before were worked off, one costly one after the other.
#[tokio::test]
async fn costly_requests_of_a_client_that_has_gone_are_dropped() {
    let story = async {
        let world = costly_world();
        let worker = worker(&world, Limits::default());
        let mut client = serve_by(&worker).await;
        let path = costly_path();
        // Authority and path are remembered, and told by their numbers from the second one on.
        let first = [
            &b"\x82\x86\x41\x09a.example\x44\x7f\xa2\x1e"[..],
            path.as_bytes(),
        ];
        let next = b"\x82\x86\xbf\xbe";
        let more = (1..100).flat_map(|number| frame(1, 5, number * 2 + 1, next));
        let asks = [frame(1, 5, 1, &first.concat()), more.collect()].concat();
        client.write_all(&[begun(), asks].concat()).await.unwrap();
        SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(client);
        let metrics = Metrics::new();
        let series = TopSeries::default();
        count::register(&metrics, std::slice::from_ref(&worker.local.counts), series);
        for _ in 0..400 {
            yield_now().await;
        }
        let text = metrics.encode();
        let failures = text.lines().filter_map(|line| {
            let (_, count) = line
                .strip_prefix("myriad_request_failures_total{")?
                .split_once("} ")?;
            count.parse::<u32>().ok()
        });
        let failed = failures.sum::<u32>();
        assert!(failed <= 4, "{failed}");
    };
    let local = LocalSet::new();
    let told = local.run_until(story);
    tokio::time::timeout(PATIENCE, told).await.unwrap();
}
