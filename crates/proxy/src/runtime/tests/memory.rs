//! The memory that a connection holds while it waits, counted on the thread that serves it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use myriad_base::metrics::Metrics;
use myriad_model::{
    Action, Delay, Fault, HeaderEdit, HeaderEdits, Redirect, RedirectTarget, Respond, Route, Share,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{LocalSet, yield_now};

use super::floods::frame;
use super::world::{Backend, PATIENCE, World, route, with_policy};
use crate::Limits;
use crate::admission::pressure::Pressure;
use crate::admission::room::ConnectionRoom;
use crate::admission::share::Fairness;
use crate::admission::turns::HandshakeTurns;
use crate::codec::buffer::{BUFFER_BYTES, HEAD_BYTES, held_bytes};
use crate::codec::frame::PREFACE;
use crate::http::downstream::h1::{self, Start};
use crate::http::spans::Spans;
use crate::http::worker::Worker;
use crate::local::Local;
use crate::net::names::{NameSettings, Names};
use crate::net::stream::Stream;
use crate::random::rng::Rng;
use crate::route::downstream_connection::DownstreamConnection;
use crate::telemetry::access_log::AccessLogWriter;
use crate::telemetry::count::Counts;
use crate::telemetry::live_trace::LiveTraces;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::standard::Library;

/// The bytes that the kernel takes, about, of what a client does not read.
const SOCKET_BYTES: u32 = 16 << 10;

/// A client of a connection that this thread serves as the world says.
async fn serve(world: &World) -> TcpStream {
    serve_by(&worker(world, Limits::default())).await
}

/// A worker on this thread that does as the world says.
pub(super) fn worker(world: &World, limits: Limits) -> Rc<Worker> {
    worker_within(world, limits, &Arc::default())
}

/// The same in a process with so much memory.
pub(super) fn worker_within(world: &World, limits: Limits, pressure: &Arc<Pressure>) -> Rc<Worker> {
    let limits = Arc::new(limits);
    let local = Rc::new(Local {
        fairness: Fairness::new(&limits, pressure),
        turns: HandshakeTurns::new(),
        room: Rc::new(ConnectionRoom::new(&limits, Arc::default())),
        limits,
        buckets: Arc::default(),
        counts: Arc::new(Counts::new()),
        dice: Rng::new(1),
        access_log: AccessLogWriter::default(),
        live_traces: LiveTraces::default(),
        logs_all: false,
        number: 0,
        library: Arc::new(Library::new(1)),
        counts_all: false,
        names: Names::new(NameSettings::default(), &Metrics::new()),
        trusted_hops: 0,
        request_ids: RequestIds::Keep,
        introductions: None,
    });
    Rc::new(Worker::new(
        local,
        Arc::new(ArcSwap::new(world.proxy.tables())),
        Spans::default(),
    ))
}

/// A client of a connection that a worker serves on this thread.
pub(super) async fn serve_by(worker: &Rc<Worker>) -> TcpStream {
    let worker = worker.clone();
    let listening = TcpSocket::new_v4().unwrap();
    listening.set_send_buffer_size(SOCKET_BYTES).unwrap();
    listening.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = listening.listen(1).unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(SOCKET_BYTES).unwrap();
    let client = socket.connect(listener.local_addr().unwrap());
    let (client, served) = (client.await.unwrap(), listener.accept().await.unwrap());
    let visit = DownstreamConnection::new("http".into(), served.1, 80);
    myriad_base::task::spawn_local(
        "served",
        h1::serve(worker, visit, Stream::Plain(served.0), Start::default()),
    );
    client
}

/// A client and an endpoint of a connection that this thread serves.
struct Ends {
    client: TcpStream,
    endpoint: TcpStream,
}

impl Ends {
    /// Has a request sent, until the endpoint has read so many bytes of it.
    async fn ask(request: &[u8], bytes: impl Fn(&[u8]) -> bool) -> Ends {
        let backend = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut world = World::start();
        world.put_upstream("u", &[backend.local_addr().unwrap()]);
        world.put_route("r", route("a.example", "/", "u"));
        let mut client = serve(&world).await;
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

/// The streams that a client asks for at once.
const STREAMS: u32 = 100;

/// GET of `/` at `a.example` as HPACK has it.
const ASK: &[u8] = b"\x82\x86\x84\x01\x09a.example";

/// Asks by so many streams at once, none of which may be sent a body.
async fn ask_all(client: &mut TcpStream) {
    let window = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let mut said = [PREFACE, &window[..]].concat();
    (0..STREAMS).for_each(|number| said.extend(frame(1, 5, number * 2 + 1, ASK)));
    client.write_all(&said).await.unwrap();
}

/// The kind, flags and payload of the next frame.
pub(super) async fn read_frame(client: &mut TcpStream) -> (u8, u8, Vec<u8>) {
    let mut head = [0; 9];
    client.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    client.read_exact(&mut payload).await.unwrap();
    (head[3], head[4], payload)
}

/// Reads until all heads were sent, and sees to it that no more than this is held meanwhile.
async fn read_heads(client: &mut TcpStream, held_max: usize) {
    let mut heads = 0;
    while heads < STREAMS {
        let (kind, ..) = read_frame(client).await;
        heads += u32::from(kind == 1);
        let held = held_bytes();
        assert!(held <= held_max, "{held} bytes after {heads} heads");
    }
}

/// Gives the proxy time to do all that it can, and tells the most that it held.
async fn held_most() -> usize {
    let mut most = 0;
    for _ in 0..2_000 {
        yield_now().await;
        most = most.max(held_bytes());
    }
    most
}

fn answering(body: usize) -> Route {
    let body = vec![b'#'; body].into();
    Route {
        action: Action::Respond(Box::new(Respond { status: 200, body })),
        ..route("a.example", "/", "u")
    }
}

#[tokio::test]
async fn answers_that_wait_for_a_window_are_not_copied() {
    const BODY_BYTES: usize = 1 << 20;
    let story = async {
        let mut world = World::start();
        world.put_route("r", answering(BODY_BYTES));
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = serve(&world).await;
            ask_all(&mut client).await;
            read_heads(&mut client, 64 << 10).await;
            clients.push(client);
        }
        assert!(held_most().await <= BUFFER_BYTES);
        // A window for one of them, of its stream and of its connection.
        let client = clients.last_mut().unwrap();
        for stream in [0, 1] {
            let window = frame(8, 0, stream, &[0, 0x10, 0, 0]);
            client.write_all(&window).await.unwrap();
        }
        let mut read = 0;
        loop {
            let (kind, flags, payload) = read_frame(client).await;
            if kind == 0 {
                read += payload.len();
                assert!(payload.iter().all(|byte| *byte == b'#'));
                if flags & 1 != 0 {
                    break;
                }
            }
        }
        assert_eq!(read, BODY_BYTES);
    };
    LocalSet::new().run_until(story).await;
}

/// An endpoint that reads all that it is sent, and answers nothing; how many bytes that were.
pub(super) async fn swallowing() -> (SocketAddr, Rc<Cell<usize>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let read = Rc::new(Cell::new(0));
    let sum = read.clone();
    myriad_base::task::spawn_local("endpoint", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sum = sum.clone();
            myriad_base::task::spawn_local("swallowing", async move {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                    sum.set(sum.get() + count);
                }
            });
        }
    });
    (address, read)
}

/// A head of HTTP/2 that is much longer than its bytes: it has a field of 4,000 bytes 15 times,
/// that the first such head of a connection puts into the table, and others only name.
fn amplified(method: u8, is_first: bool) -> Vec<u8> {
    let start = [&[method][..], b"\x86\x84\x01\x09a.example"].concat();
    let field = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e][..], &[b'x'; 4_000]].concat();
    match is_first {
        true => [&start[..], &field, &[0xbe; 14]].concat(),
        false => [&start[..], &[0xbe; 15]].concat(),
    }
}

#[tokio::test]
async fn heads_that_few_bytes_stand_for_are_not_held_once_they_were_sent() {
    const LONG: usize = 15 * 4_000;
    let story = async {
        // GET and the end of it, and POST whose body never begins.
        for (method, flags) in [(0x82, 5), (0x83, 4)] {
            let (endpoint, read) = swallowing().await;
            let mut world = World::start();
            world.put_upstream("u", &[endpoint]);
            world.put_route("r", route("a.example", "/", "u"));
            let mut client = serve(&world).await;
            let hello = [PREFACE, &frame(4, 0, 0, &[])[..]].concat();
            client.write_all(&hello).await.unwrap();
            for number in 0..STREAMS {
                let head = amplified(method, number == 0);
                let head = frame(1, flags, number * 2 + 1, &head);
                client.write_all(&head).await.unwrap();
                let sent = async {
                    while read.get() < LONG * (number as usize + 1) {
                        yield_now().await;
                    }
                };
                tokio::time::timeout(PATIENCE, sent).await.unwrap();
            }
            let held = held_most().await;
            assert!(held <= 12 * BUFFER_BYTES, "{held} bytes");
        }
    };
    LocalSet::new().run_until(story).await;
}

#[tokio::test]
async fn a_connection_that_holds_too_much_gets_no_further_streams() {
    let story = async {
        let mut world = World::start();
        world.put_upstream("u", &[([127, 0, 0, 1], 9).into()]);
        // Nothing is sent on.
        let waiting = with_policy(route("a.example", "/", "u"), |policy| {
            policy.fault = Some(Box::new(Fault {
                delay: Some(Delay {
                    share: Share::ALL,
                    delay: PATIENCE,
                }),
                abort: None,
            }));
        });
        world.put_route("r", waiting);
        let mut client = serve(&world).await;
        let mut said = [PREFACE, &frame(4, 0, 0, &[])[..]].concat();
        for number in 0..STREAMS {
            let head = amplified(0x83, number == 0);
            said.extend(frame(1, 4, number * 2 + 1, &head));
        }
        client.write_all(&said).await.unwrap();
        let mut refused = 0;
        while refused < STREAMS / 2 {
            let (kind, _, payload) = read_frame(&mut client).await;
            if kind == 3 {
                assert_eq!(payload, [0, 0, 0, 7], "REFUSED_STREAM");
                refused += 1;
            }
        }
        let (held, max) = (held_most().await, Limits::default().held_bytes_max);
        // Each stream counts for more than its head.
        let about = max - (192 << 10)..max + (128 << 10);
        assert!(about.contains(&held), "{held} bytes");
    };
    LocalSet::new().run_until(story).await;
}

#[tokio::test]
async fn responses_that_nobody_reads_stay_with_their_endpoints() {
    const BODY_BYTES: usize = 48_000;
    let story = async {
        let body: &'static str = "#".repeat(BODY_BYTES).leak();
        let backend = Backend::saying(body).await;
        let mut world = World::start();
        world.put_upstream("u", &[backend.address]);
        world.put_route("r", route("a.example", "/", "u"));
        let mut client = serve(&world).await;
        ask_all(&mut client).await;
        // A little of each, and what passes through.
        let held_max = STREAMS as usize * (5 << 10) + 8 * BUFFER_BYTES;
        read_heads(&mut client, held_max).await;
        let held = held_most().await;
        assert!(held <= held_max, "{held} bytes");
        for stream in [0, 1] {
            let window = frame(8, 0, stream, &[0, 0x10, 0, 0]);
            client.write_all(&window).await.unwrap();
        }
        let mut read = 0;
        loop {
            let (kind, flags, payload) = read_frame(&mut client).await;
            if kind == 0 {
                read += payload.len();
                if flags & 1 != 0 {
                    break;
                }
            }
        }
        assert_eq!(read, BODY_BYTES);
    };
    LocalSet::new().run_until(story).await;
}

/// A route that adds many fields to its responses.
fn adding(route: Route) -> Route {
    let field = |number: u32| (format!("x-{number}").into(), "y".repeat(1 << 10).into());
    with_policy(route, |policy| {
        policy.headers = Some(Box::new(HeaderEdits {
            request: HeaderEdit::default(),
            response: HeaderEdit {
                add: (0..48).map(field).collect(),
                ..HeaderEdit::default()
            },
        }));
    })
}

#[tokio::test]
async fn heads_that_nobody_reads_are_bounded_for_each_connection() {
    const HELD_BYTES_MAX: usize = 768 << 10;
    let story = async {
        let backend = Backend::saying("").await;
        let url = format!("https://b.example/{}", "z".repeat(48 << 10));
        let redirect = Route {
            action: Action::Redirect(Arc::new(Redirect {
                status: 301,
                target: RedirectTarget::Url(url.into()),
            })),
            ..route("a.example", "/", "u")
        };
        let own = adding(answering(1));
        let forwarded = adding(route("a.example", "/", "u"));
        for (what, route) in [
            ("redirect", redirect),
            ("own", own),
            ("forwarded", forwarded),
        ] {
            let mut world = World::start();
            world.put_upstream("u", &[backend.address]);
            world.put_route("r", route);
            let mut client = serve(&world).await;
            ask_all(&mut client).await;
            let filled = async {
                while held_bytes() <= 64 << 10 {
                    yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, filled).await.unwrap();
            let held = held_most().await;
            assert!(held <= HELD_BYTES_MAX, "{what}: {held} bytes");
            read_heads(&mut client, HELD_BYTES_MAX).await;
        }
    };
    LocalSet::new().run_until(story).await;
}

#[tokio::test]
async fn pipelined_answers_are_sent_in_pieces_and_one_after_the_other() {
    const BODY_BYTES: usize = 1 << 20;
    const REQUESTS: usize = 8;
    let story = async {
        let mut world = World::start();
        world.put_route("r", answering(BODY_BYTES));
        let mut client = serve(&world).await;
        let get = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".repeat(REQUESTS);
        client.write_all(get.as_bytes()).await.unwrap();
        assert!(held_most().await <= 4 * BUFFER_BYTES);
        let (mut bodies, mut bytes) = (0, vec![0; BUFFER_BYTES]);
        while bodies < REQUESTS * BODY_BYTES {
            let count = client.read(&mut bytes).await.unwrap();
            assert!(count > 0);
            // No head has what bodies are made of.
            let of_body = bytes[..count].iter().filter(|byte| **byte == b'#');
            bodies += of_body.count();
            assert!(held_bytes() <= 4 * BUFFER_BYTES);
        }
    };
    LocalSet::new().run_until(story).await;
}
