//! Endpoints and clients of HTTP/2 that want a connection which others share to end, or the worker
//! to be busy or full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use myriad_base::task;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::super::http2::connect;
use super::super::inquiries::{guard, inquiry};
use super::super::world::{Backend, Client, PATIENCE, World, route};
use super::put;
use super::raw::{frame, read_streams};
use crate::codec::frame::PREFACE;
use crate::limits::Limits;

const OK: &[u8] = &[0x88];

/// A world with one upstream of HTTP/2, and its endpoint's socket.
async fn world() -> (World, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    put(&mut world, "u", listener.local_addr().unwrap());
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    (world, listener)
}

/// Reads the preface, and says hello. The windows that the proxy told hold from then on.
async fn greet(tcp: &mut TcpStream) {
    tcp.read_exact(&mut [0; 24]).await.unwrap();
    let hello = [frame(4, 0, 0, &[]), frame(4, 1, 0, &[])].concat();
    tcp.write_all(&hello).await.unwrap();
}

/// Reads one frame: kind, flags, stream and payload; none at the end.
async fn read_frame(reading: &mut (impl AsyncReadExt + Unpin)) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    reading.read_exact(&mut head).await.ok()?;
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    reading.read_exact(&mut payload).await.ok()?;
    Some((kind, flags, u32::from_be_bytes(stream), payload))
}

/// Waits for a condition.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{what}");
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
}

/// A client whose socket takes little, since it reads nothing.
async fn deaf(world: &World, request: impl AsRef<[u8]>) -> Client<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut client = Client::new(socket.connect(world.address("http")).await.unwrap());
    client.send(request).await;
    client
}

/// The state of an endpoint that sends its first stream one byte at a time, as far as the window
/// goes, and answers all others.
#[derive(Default)]
struct Drip {
    connections: AtomicUsize,
    window: AtomicI64,
    sent: AtomicUsize,
    is_done: AtomicBool,
}

async fn drip(listener: TcpListener, state: Arc<Drip>) {
    while let Ok((mut tcp, _)) = listener.accept().await {
        state.connections.fetch_add(1, Ordering::SeqCst);
        greet(&mut tcp).await;
        let (mut reading, mut writing) = tcp.into_split();
        let (tell, mut asked) = tokio::sync::mpsc::channel(64);
        let heard = state.clone();
        task::spawn("reading", async move {
            while let Some((kind, flags, stream, payload)) = read_frame(&mut reading).await {
                match (kind, stream) {
                    (4, _) if flags == 0 => {
                        let all = payload.chunks(6).filter(|it| it[..2] == [0, 4]);
                        for it in all {
                            let bytes = u32::from_be_bytes(it[2..6].try_into().unwrap());
                            heard.window.store(bytes.into(), Ordering::SeqCst);
                        }
                    }
                    (8, 1) => {
                        let more = u32::from_be_bytes(payload[..4].try_into().unwrap());
                        heard.window.fetch_add(more.into(), Ordering::SeqCst);
                    }
                    (1, _) => _ = tell.send(stream).await,
                    _ => {}
                }
            }
        });
        let state = state.clone();
        task::spawn("writing", async move {
            let mut is_dripping = false;
            loop {
                while let Ok(stream) = asked.try_recv() {
                    is_dripping |= stream == 1;
                    let flags = if stream == 1 { 4 } else { 5 };
                    if writing
                        .write_all(&frame(1, flags, stream, OK))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
                let window = state.window.load(Ordering::SeqCst).min(1_000);
                if is_dripping && state.is_done.load(Ordering::SeqCst) {
                    let _ = writing.write_all(&frame(0, 1, 1, &[])).await;
                    is_dripping = false;
                } else if is_dripping && window > 0 {
                    let count = usize::try_from(window).unwrap();
                    state.window.fetch_sub(window, Ordering::SeqCst);
                    let drops = frame(0, 0, 1, b"y").repeat(count);
                    if writing.write_all(&drops).await.is_err() {
                        return;
                    }
                    state.sent.fetch_add(count, Ordering::SeqCst);
                } else {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_small_messages_ends_nobody_elses_requests() {
    let (world, listener) = world().await;
    let state = Arc::new(Drip::default());
    task::spawn("endpoint", drip(listener, state.clone()));
    let mut client = deaf(&world, &get("/")).await;
    // The window stays closed for as long as several others take.
    let mut closed = 0;
    while closed < 20 {
        let answer = world.ask(&get("/other")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let is_closed =
            state.sent.load(Ordering::SeqCst) > 0 && state.window.load(Ordering::SeqCst) == 0;
        closed = if is_closed { closed + 1 } else { 0 };
    }
    assert_eq!(state.connections.load(Ordering::SeqCst), 1);
    state.is_done.store(true, Ordering::SeqCst);
    let socket = SockRef::from(&client.stream);
    socket.set_recv_buffer_size(1 << 20).unwrap();
    let answer = client.read_to_end().await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let read = body.bytes().filter(|byte| *byte == b'y').count();
    assert_eq!(read, state.sent.load(Ordering::SeqCst));
    assert!(body.ends_with("0\r\n\r\n"));
}

#[tokio::test]
async fn frames_with_nothing_in_them_use_nothing_up() {
    let (world, listener) = world().await;
    task::spawn("endpoint", async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        greet(&mut tcp).await;
        while let Some((kind, _, stream, _)) = read_frame(&mut tcp).await {
            if kind == 1 {
                tcp.write_all(&frame(1, 4, stream, OK)).await.unwrap();
                // Cut within the head of one, so that the parts come alone.
                let empty = frame(0, 0, stream, &[]).repeat(30);
                let (first, rest) = empty.split_at(9 * 15 + 5);
                for part in [first, rest, &frame(0, 1, stream, b"end")] {
                    tcp.write_all(part).await.unwrap();
                    tcp.flush().await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    for number in 0..20 {
        let answer = world.ask(&get("/")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{number}: {answer}");
        assert!(answer.contains("end"), "{number}: {answer}");
    }
    world
        .counts("upstream_connections_total{event=\"opened\"} 1\n")
        .await;
}

#[tokio::test]
async fn clients_that_cancel_end_nobody_elses_requests() {
    const STREAMS: usize = 50;
    let (world, listener) = world().await;
    let (ended, opened) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, accepted) = (ended.clone(), opened.clone());
    task::spawn("endpoint", async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::SeqCst);
            let ended = counted.clone();
            task::spawn("connection", async move {
                greet(&mut tcp).await;
                while let Some((kind, flags, stream, _)) = read_frame(&mut tcp).await {
                    let said = match kind {
                        1 if flags & 1 == 1 => frame(1, 4, stream, OK),
                        0 if flags & 1 == 1 => frame(1, 5, stream, OK),
                        3 => {
                            ended.fetch_add(1, Ordering::SeqCst);
                            frame(0, 0, stream, b"y")
                        }
                        _ => continue,
                    };
                    if tcp.write_all(&said).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    for round in 1..=20 {
        let client = connect(&world, "a.example").await;
        let mut answers = Vec::new();
        for _ in 0..STREAMS {
            let request = Request::get("https://a.example/").body(()).unwrap();
            let mut ready = client.clone().ready().await.unwrap();
            answers.push(ready.send_request(request, true).unwrap().0);
        }
        let mut bodies = Vec::new();
        for answer in answers {
            bodies.push(answer.await.unwrap());
        }
        drop((bodies, client));
        let is_ended = || ended.load(Ordering::SeqCst) >= round * STREAMS;
        eventually("all are cancelled", is_ended).await;
        assert_eq!(opened.load(Ordering::SeqCst), 1, "{round}");
    }
    let body = "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\
                Content-Length: 1\r\n\r\nx";
    let answer = world.ask(body).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(opened.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_question_that_the_proxy_cut_off_is_asked_again() {
    let backend = Backend::echo().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    put(&mut world, "auth", listener.local_addr().unwrap());
    guard(&mut world, inquiry(), |_| {});
    let endpoint = async {
        let (mut first, _) = listener.accept().await.unwrap();
        read_streams(&mut first, 1).await;
        // DATA of no stream.
        first.write_all(&frame(0, 0, 0, b"x")).await.unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        for stream in read_streams(&mut second, 1).await {
            second.write_all(&frame(1, 5, stream, OK)).await.unwrap();
        }
        (first, second)
    };
    let get = get("/");
    let asking = async { tokio::join!(world.ask(&get), endpoint) };
    let (answer, _open) = tokio::time::timeout(PATIENCE, asking).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(backend.requests(), 1);
}

/// A string of a head as it is, neither packed nor short.
fn string(text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x7f];
    let mut rest = text.len() - 127;
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).unwrap() | 0x80);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).unwrap());
    [&bytes, text].concat()
}

#[tokio::test]
async fn interim_responses_end_a_request_though_its_client_reads_nothing() {
    const STREAMS: u32 = 110;
    const GET: &[u8] = &[0x82, 0x84, 0x86, 0x01, 9];
    let (world, listener) = world().await;
    let asks = (0..STREAMS).map(|number| {
        let head = [GET, b"a.example"].concat();
        frame(1, 5, 2 * number + 1, &head)
    });
    let asks: Vec<u8> = asks.flatten().collect();
    let asks = [PREFACE, &frame(4, 0, 0, &[]), &asks].concat();
    let _client = deaf(&world, asks).await;
    let (mut tcp, _) = listener.accept().await.unwrap();
    let mut streams = read_streams(&mut tcp, STREAMS as usize).await;
    streams.sort_unstable();
    let last = streams.pop().unwrap();
    // One field of 3,900 bytes, which is remembered, and then fifteen times in each head: the
    // client's connection has no room for more of them, nor for interim responses.
    let field = [&[0x40, 0x01, b'a'], &string(&[b'y'; 3_900])[..]].concat();
    let mut said = frame(1, 5, streams[0], &[OK, &field].concat());
    for stream in &streams[1..] {
        said.extend(frame(1, 5, *stream, &[OK, &[0xbe; 15]].concat()));
    }
    let interim = [&[0x08, 0x03], &b"103"[..], &[0xbe]].concat();
    said.extend(frame(1, 4, last, &interim).repeat(100));
    let (mut reading, mut writing) = tcp.into_split();
    let ending = async {
        writing.write_all(&said).await.unwrap();
        while let Some((kind, _, of, _)) = read_frame(&mut reading).await {
            if kind == 3 && of == last {
                return true;
            }
        }
        false
    };
    let ended = tokio::time::timeout(PATIENCE, ending).await;
    assert_eq!(ended, Ok(true), "the stream ends, and no other");
}

#[tokio::test]
async fn heads_that_unpack_to_very_much_end_the_connection() {
    for is_asked in [true, false] {
        let (world, listener) = world().await;
        let mut client = world.client().await;
        client
            .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .await;
        let (mut tcp, _) = listener.accept().await.unwrap();
        let stream = read_streams(&mut tcp, 1).await[0];
        if !is_asked {
            tcp.write_all(&frame(1, 5, stream, OK)).await.unwrap();
            client.read_until("\r\n\r\n").await;
        }
        // 16,000 fields in each, which are one byte as they are packed.
        let late = frame(1, 5, stream, &[0x90; 16_000]);
        let sending = async {
            for _ in 0..10 {
                if tcp.write_all(&late).await.is_err() {
                    return;
                }
            }
            while read_frame(&mut tcp).await.is_some() {}
        };
        let ended = tokio::time::timeout(PATIENCE, sending).await;
        assert!(ended.is_ok(), "goes on with {is_asked}");
        world
            .counts("upstream_connections_total{event=\"evicted\"} 1\n")
            .await;
    }
}

/// An endpoint that offers no further streams, and answers or does not. How many of its
/// connections are open, and were.
async fn full(listener: TcpListener, answers: bool, counts: Arc<[AtomicUsize; 2]>) {
    while let Ok((mut tcp, _)) = listener.accept().await {
        counts
            .iter()
            .for_each(|count| _ = count.fetch_add(1, Ordering::SeqCst));
        let counts = counts.clone();
        task::spawn("connection", async move {
            greet(&mut tcp).await;
            while let Some((kind, _, stream, _)) = read_frame(&mut tcp).await {
                if kind == 1 {
                    let none = frame(4, 0, 0, &[0, 3, 0, 0, 0, 0]);
                    let answer = frame(1, 5, stream, OK);
                    let said = match answers {
                        true => [none, answer].concat(),
                        false => none,
                    };
                    tcp.write_all(&said).await.unwrap();
                }
            }
            counts[0].fetch_sub(1, Ordering::SeqCst);
        });
    }
}

#[tokio::test]
async fn connections_that_offer_no_streams_do_not_stay() {
    let (world, listener) = world().await;
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    task::spawn("endpoint", full(listener, true, counts.clone()));
    for _ in 0..20 {
        let answer = world.ask(&get("/")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    eventually("all but one are closed", || {
        counts[0].load(Ordering::SeqCst) <= 1
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_that_offers_no_streams_gets_few_connections() {
    const MAX: usize = 8;
    let (world, listener) = world().await;
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    task::spawn("endpoint", full(listener, false, counts.clone()));
    let mut waiting = Vec::new();
    for number in 1..=MAX {
        let mut client = world.client().await;
        client.send(get("/")).await;
        waiting.push(client);
        eventually("each has one", || {
            counts[1].load(Ordering::SeqCst) == number
        })
        .await;
        // What the endpoint offers is known once it is answered.
        world
            .counts(&format!(
                "upstream_connections_total{{event=\"opened\"}} {number}\n"
            ))
            .await;
    }
    // The last of them may not have said so yet.
    let mut refused = 0;
    for _ in 0..10 {
        let mut client = world.client().await;
        client.send(get("/")).await;
        let head = client.read_until("\r\n\r\n");
        if let Ok(head) = tokio::time::timeout(Duration::from_secs(1), head).await {
            assert!(head.starts_with("HTTP/1.1 503"), "{head}");
            refused += 1;
        } else {
            waiting.push(client);
        }
        if refused > 3 {
            break;
        }
    }
    assert!(refused > 3);
    assert!(counts[1].load(Ordering::SeqCst) <= MAX + 2);
    world
        .counts("upstream_overflows_total{limit=\"streams\"} 4\n")
        .await;
}

#[tokio::test]
async fn the_connection_that_was_idle_for_longest_makes_room() {
    let backends = [
        Backend::saying("ok").await,
        Backend::saying("ok").await,
        Backend::saying("ok").await,
    ];
    let mut limits = Limits::default();
    limits.set("idle_endpoints=2").unwrap();
    let mut world = World::limited(limits);
    for (number, backend) in backends.iter().enumerate() {
        let (host, name) = (format!("{number}.example"), format!("u{number}"));
        world.put_upstream(&name, &[backend.address]);
        world.put_route(&name, route(&host, "/", &name));
    }
    for number in [0, 1, 2, 2, 1, 0] {
        let host = format!("{number}.example");
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert!(world.ask(&request).await.starts_with("HTTP/1.1 200"));
    }
    let opened = backends.each_ref().map(Backend::connections);
    assert_eq!(opened, [2, 1, 1]);
}
