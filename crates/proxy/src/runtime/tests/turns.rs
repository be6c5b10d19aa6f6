//! The turns of connections: a client that asks for much at once waits between its requests, and
//! what costs it nothing makes up for nothing.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Waker};

use myriad_base::task;
use myriad_model::{Action, Respond, Route};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, yield_now};

use super::http2::{connect, get};
use super::memory::{serve_by, worker};
use super::world::{PATIENCE, World, route};
use crate::http::downstream::h1::{self, Start};
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::net::stream::Stream;
use crate::route::downstream_connection::DownstreamConnection;

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
