//! The turns of connections: a client that asks for much at once waits between its requests, and
//! what costs it nothing makes up for nothing.

use std::rc::Rc;

use myriad_model::{Action, Respond, Route};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::http2::{connect, get};
use super::memory::worker;
use super::world::{PATIENCE, World, route};
use crate::http::downstream::h1::{self, Start};
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::net::stream::Stream;
use crate::route::downstream_connection::DownstreamConnection;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// The requests that are sent ahead, more than one turn of a task would answer.
const AHEAD: usize = 200;

fn answering(path: &str) -> Route {
    let body = b"ok".to_vec().into();
    Route {
        action: Action::Respond(Box::new(Respond { status: 200, body })),
        ..route("a.example", path, "u")
    }
}

/// A client of a connection that a worker serves on this thread.
async fn serve(worker: &Rc<Worker>) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let client = client.await.unwrap();
    let (served, address) = listener.accept().await.unwrap();
    let visit = DownstreamConnection::new("http".into(), address, 80);
    let serving = h1::serve(
        worker.clone(),
        visit,
        Stream::Plain(served),
        Start::default(),
    );
    myriad_base::task::spawn_local("served", serving);
    client
}

/// Answers of the proxy pend on nothing, so that a client who has sent many requests ahead would
/// have all of them answered before anybody else is.
#[tokio::test]
async fn requests_that_are_sent_ahead_take_one_turn_each() {
    let story = async {
        let mut world = World::start();
        world.put_route("r", answering("/"));
        let worker = worker(&world, Limits::default());
        let (mut greedy, mut modest) = (serve(&worker).await, serve(&worker).await);
        greedy.write_all(&GET.repeat(AHEAD)).await.unwrap();
        modest.write_all(GET).await.unwrap();
        let mut answer = [0; 12];
        let reading = modest.read_exact(&mut answer);
        tokio::time::timeout(PATIENCE, reading)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let mut answered = vec![0; 1 << 20];
        let read = greedy.try_read(&mut answered).unwrap_or(0);
        let answers = answered[..read].windows(4).filter(|it| it == b"HTTP");
        let answers = answers.count();
        assert!(answers < AHEAD / 2, "{answers} answers");
    };
    Box::pin(LocalSet::new().run_until(story)).await;
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
