//! What a connection holds while it waits, counted on the thread that serves it.

use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use myriad_base::metrics::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::world::{World, route};
use crate::Limits;
use crate::http::h1::{self, Start};
use crate::http::spans::Spans;
use crate::http::worker::Worker;
use crate::net::buffer::{HEAD_BYTES, held_bytes};
use crate::net::count::Counts;
use crate::net::dice::Dice;
use crate::net::journal::Journal;
use crate::net::local::Local;
use crate::net::names::{NameSettings, Names};
use crate::net::request_id::RequestIds;
use crate::net::room::Room;
use crate::net::share::Fairness;
use crate::net::standard::Library;
use crate::net::stream::Stream;
use crate::route::visit::Visit;

/// A client and an endpoint of a connection that this thread serves.
struct Ends {
    client: TcpStream,
    endpoint: TcpStream,
}

impl Ends {
    /// Has a request sent, until the endpoint has read so many bytes of it.
    async fn ask(request: &[u8], bytes: impl Fn(&[u8]) -> bool) -> Ends {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let backend = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut world = World::start();
        world.put_upstream("u", &[backend.local_addr().unwrap()]);
        world.put_route("r", route("a.example", "/", "u"));
        let limits = Arc::new(Limits::default());
        let local = Rc::new(Local {
            fairness: Fairness::new(&limits, &Arc::default()),
            room: Rc::new(Room::new(&limits, Arc::default())),
            limits,
            buckets: Arc::default(),
            counts: Arc::new(Counts::new()),
            dice: Dice::new(1),
            journal: Journal::default(),
            logs_all: false,
            number: 0,
            library: Arc::new(Library::new(1)),
            counts_all: false,
            names: Names::new(NameSettings::default(), &Metrics::new()),
            trusted_hops: 0,
            request_ids: RequestIds::Keep,
            introductions: None,
        });
        let worker = Rc::new(Worker::new(
            local,
            Arc::new(ArcSwap::new(world.proxy.tables())),
            Spans::default(),
        ));
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (mut client, served) = (client.await.unwrap(), listener.accept().await.unwrap());
        let visit = Visit::new("http".into(), served.1, 80);
        myriad_base::task::spawn_local(
            "served",
            h1::serve(worker, visit, Stream::Plain(served.0), Start::default()),
        );
        client.write_all(request).await.unwrap();
        let mut endpoint = backend.accept().await.unwrap().0;
        let mut read = Vec::new();
        while !bytes(&read) {
            assert!(endpoint.read_buf(&mut read).await.unwrap() > 0);
        }
        Ends { client, endpoint }
    }

    /// Answers, until the client has all of it.
    async fn answer(&mut self) {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        self.endpoint.write_all(answer).await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"ok") {
            assert!(self.client.read_buf(&mut read).await.unwrap() > 0);
        }
    }
}

#[tokio::test]
async fn a_request_that_waits_for_its_endpoint_holds_its_head_and_nothing_else() {
    let story = async {
        let head = b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let mut ends = Ends::ask(head, |read| read.ends_with(b"\r\n\r\n")).await;
        assert_eq!(held_bytes(), HEAD_BYTES);
        ends.answer().await;
        assert_eq!(held_bytes(), 0);
    };
    LocalSet::new().run_until(story).await;
}

#[tokio::test]
async fn a_body_that_was_sent_on_is_not_held_while_more_of_it_is_waited_for() {
    let story = async {
        let mut request =
            b"POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 60000\r\n\r\n".to_vec();
        request.extend_from_slice(&[b'x'; 30_000]);
        let sent = |read: &[u8]| {
            memchr::memmem::find(read, b"\r\n\r\n").is_some_and(|at| read.len() == at + 4 + 30_000)
        };
        let mut ends = Ends::ask(&request, sent).await;
        assert_eq!(held_bytes(), 0);
        ends.client.write_all(&[b'x'; 30_000]).await.unwrap();
        let mut rest = vec![0; 30_000];
        ends.endpoint.read_exact(&mut rest).await.unwrap();
        assert_eq!(held_bytes(), 0);
        ends.answer().await;
        assert_eq!(held_bytes(), 0);
    };
    LocalSet::new().run_until(story).await;
}
