//! Endpoints of HTTP/2 that say things frame by frame which no library would say.

use bytes::Bytes;
use http::Request;
use myriad_base::task;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::http2::connect;
use super::super::world::{Backend, PATIENCE, World, route};
use super::put;

/// A frame of HTTP/2.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Reads frames until that many streams have ended; their numbers.
pub(super) async fn read_streams(tcp: &mut TcpStream, count: usize) -> Vec<u32> {
    let mut preface = [0; 24];
    tcp.read_exact(&mut preface).await.unwrap();
    tcp.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    let mut ended = Vec::new();
    while ended.len() < count {
        let mut head = [0; 9];
        tcp.read_exact(&mut head).await.unwrap();
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        tcp.read_exact(&mut payload).await.unwrap();
        if kind <= 1 && flags & 1 == 1 {
            ended.push(u32::from_be_bytes(stream));
        }
    }
    ended
}

#[tokio::test]
async fn what_an_endpoint_that_goes_away_has_not_seen_is_sent_again() {
    const OK: &[u8] = &[0x88];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    put(&mut world, "u", listener.local_addr().unwrap());
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    let client = connect(&world, "a.example").await;
    let ask = async |body: &'static [u8]| {
        let mut ready = client.clone().ready().await.unwrap();
        let request = Request::post("https://a.example/").body(()).unwrap();
        let (response, mut send) = ready.send_request(request, false).unwrap();
        send.send_data(Bytes::from_static(body), true).unwrap();
        response.await.unwrap().status().as_u16()
    };
    let endpoint = async {
        let (mut first, _) = listener.accept().await.unwrap();
        let mut streams = read_streams(&mut first, 2).await;
        streams.sort_unstable();
        assert_eq!(streams, [1, 3]);
        // It has looked at the first one, and at no other, and says so.
        let last = [1_u32.to_be_bytes(), 0_u32.to_be_bytes()].concat();
        first.write_all(&frame(7, 0, 0, &last)).await.unwrap();
        first.write_all(&frame(1, 5, 1, OK)).await.unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        for stream in read_streams(&mut second, 1).await {
            second.write_all(&frame(1, 5, stream, OK)).await.unwrap();
        }
        // Closed any earlier, with bytes unread, they would take with them what was said last.
        (first, second)
    };
    let all = async { tokio::join!(ask(b"one"), ask(b"two"), endpoint) };
    let (one, two, _open) = tokio::time::timeout(PATIENCE, all).await.unwrap();
    assert_eq!((one, two), (200, 200));
}

#[tokio::test]
async fn an_endpoint_that_floods_a_connection_without_requests_loses_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    put(&mut world, "u", listener.local_addr().unwrap());
    world.put_route("r", route("a.example", "/", "u"));
    let flood = task::spawn("endpoint", async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        for stream in read_streams(&mut tcp, 1).await {
            tcp.write_all(&frame(1, 5, stream, &[0x88])).await.unwrap();
        }
        let (mut reading, mut writing) = tcp.into_split();
        // What is answered is read, so that the proxy never waits for this.
        task::spawn("answers", async move {
            let _ = tokio::io::copy(&mut reading, &mut tokio::io::sink()).await;
        });
        let pings = frame(6, 0, 0, &[0; 8]).repeat(1_000);
        while writing.write_all(&pings).await.is_ok() {}
    });
    let answer = world
        .ask("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    tokio::time::timeout(PATIENCE, flood)
        .await
        .unwrap()
        .unwrap();
    world
        .counts("upstream_connections_total{event=\"evicted\"} 1\n")
        .await;
}

/// Frames of an endpoint for a request that it lets wait: what comes once, and what comes again.
fn floods(stream: u32) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    vec![
        ("PING", Vec::new(), frame(6, 0, 0, &[0; 8])),
        ("SETTINGS", Vec::new(), frame(4, 0, 0, &[])),
        ("WINDOW_UPDATE", Vec::new(), frame(8, 0, 0, &[0, 0, 0, 1])),
        ("PRIORITY", Vec::new(), frame(2, 0, 9, &[0, 0, 0, 0, 1])),
        ("unknown", Vec::new(), frame(0xee, 0, 0, &[])),
        // The answer has begun with the first of these, and the other the library bounds by itself.
        (
            "DATA",
            frame(1, 4, stream, &[0x88]),
            frame(0, 0, stream, &[]),
        ),
        (
            "CONTINUATION",
            frame(1, 0, stream, &[0x88]),
            frame(9, 0, stream, &[]),
        ),
    ]
}

#[tokio::test]
async fn an_endpoint_that_floods_a_request_under_way_loses_its_connection() {
    let backend = Backend::saying("ok").await;
    let mut world = World::start();
    world.put_upstream("quiet", &[backend.address]);
    world.put_route("quiet", route("quiet.example", "/", "quiet"));
    for number in 0..floods(1).len() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        put(&mut world, "u", listener.local_addr().unwrap());
        world.put_route("r", route("a.example", "/", "u"));
        let flood = task::spawn("endpoint", async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let streams = read_streams(&mut tcp, 1).await;
            let (_, first, again) = floods(streams[0]).swap_remove(number);
            tcp.write_all(&first).await.unwrap();
            let (mut reading, mut writing) = tcp.into_split();
            // What is answered is read, so that the proxy never waits for this.
            task::spawn("answers", async move {
                let _ = tokio::io::copy(&mut reading, &mut tokio::io::sink()).await;
            });
            let again = again.repeat(1_000);
            while writing.write_all(&again).await.is_ok() {}
        });
        let label = floods(1).swap_remove(number).0;
        let mut client = world.client().await;
        client
            .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .await;
        // Others of the worker have their turns meanwhile.
        let answer = world
            .ask("GET / HTTP/1.1\r\nHost: quiet.example\r\nConnection: close\r\n\r\n")
            .await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{label}: {answer}");
        let ended = tokio::time::timeout(PATIENCE, flood).await;
        assert!(ended.is_ok(), "{label} goes on");
        if number < 5 {
            let answer = client.read_until("\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{label}: {answer}");
            let number = number + 1;
            let line = format!("upstream_connections_total{{event=\"evicted\"}} {number}\n");
            world.counts(&line).await;
        }
    }
}
