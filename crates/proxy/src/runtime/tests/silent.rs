//! Connections that say nothing, or too little, beside those of honest clients: none of these is
//! lost, and what goes is counted to the one.

use std::rc::Rc;
use std::time::Duration;

use myriad_base::task;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::limits::{counted, until_counted};
use super::overload::{begin, hello};
use super::world::{Backend, PATIENCE, World, route};
use crate::limits::Limits;

const ASK: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

async fn world(limits: Limits) -> World {
    let backend = Backend::saying("ok").await;
    let mut world = World::limited(limits);
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    world
}

/// Connections to a listener that say this and no more.
async fn flood(world: &World, listener: &str, says: &[u8], count: usize) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut one = TcpStream::connect(world.address(listener)).await.unwrap();
        one.write_all(says).await.unwrap();
        all.push(one);
    }
    all
}

/// Waits until the proxy has closed a connection.
async fn until_closed(one: &mut TcpStream) {
    let ended = tokio::time::timeout(PATIENCE, one.read(&mut [0; 1])).await;
    // What it did not read makes the kernel say so by a reset.
    assert!(matches!(ended.unwrap(), Ok(0) | Err(_)));
}

/// Whether a connection is open, and has nothing to read.
fn is_open(one: &TcpStream) -> bool {
    let read = one.try_read(&mut [0; 1]);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn floods_of_those_who_say_too_little_cost_honest_clients_nothing() {
    let hello = hello("a.example");
    let half = &hello[..hello.len() / 2];
    let floods: [(&str, &[u8]); 8] = [
        ("https", b""),
        ("https", &hello[..1]),
        ("https", half),
        // Half the header of a message, and a message in a record that goes on behind it.
        ("https", &[22, 3, 1, 0, 2, 1, 0]),
        ("https", &[22, 3, 1, 0x40, 0, 1, 0, 0, 0]),
        ("http", b""),
        ("http", b"G"),
        ("http", &ASK.as_bytes()[..20]),
    ];
    for (listener, says) in floods {
        let limits = Limits {
            silent_max: 32,
            // Slots are for those who have said enough.
            handshakes_max: 1,
            ..Limits::default()
        };
        let world = world(limits).await;
        let mut flood = flood(&world, listener, says, 100).await;
        let evicted = |count| format!("connections_evicted_total{{state=\"silent\"}} {count}\n");
        world.counts(&evicted(68)).await;
        for _ in 0..20 {
            let mut client = world.tls_client("a.example").await.unwrap();
            client.send(ASK).await;
            assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
            let mut client = world.client().await;
            client.send(ASK).await;
            assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
        }
        // The first honest client takes the room of one more, and its own is the next one's.
        let case = format!("{listener} {}", says.len());
        assert!(world.metrics.encode().contains(&evicted(69)), "{case}");
        assert_eq!(
            counted(&world, "limits_reached_total{limit=\"silent\"}"),
            69
        );
        assert_eq!(counted(&world, "connections_shed_total"), 0, "{case}");
        assert_eq!(counted(&world, "connections_accepted_total"), 140, "{case}");
        assert_eq!(counted(&world, "handshakes_total{outcome=\"full\"}"), 20);
        for gone in &mut flood[..69] {
            until_closed(gone).await;
        }
        assert!(flood[69..].iter().all(is_open), "{case}");
    }
}

/// Each had a place among the connections, for as long as a handshake may take.
#[tokio::test]
async fn what_will_never_be_a_hello_is_refused_at_once() {
    let world = world(Limits::default()).await;
    let refused: [&[u8]; 4] = [
        &[23, 3, 3, 0x40, 0],
        &[22, 3, 1, 0x40, 0, 2],
        &[22, 2, 0, 0, 1],
        &[22, 3, 1, 0x48, 0],
    ];
    for says in refused {
        let mut one = TcpStream::connect(world.address("https")).await.unwrap();
        one.write_all(says).await.unwrap();
        let mut alert = [0; 7];
        let told = tokio::time::timeout(PATIENCE, one.read_exact(&mut alert)).await;
        told.unwrap().unwrap();
        assert_eq!(alert, [21, 3, 3, 0, 2, 2, 10], "{says:?}");
        until_closed(&mut one).await;
    }
    world
        .counts("handshakes_total{outcome=\"failed\"} 4\n")
        .await;
    assert_eq!(counted(&world, "handshakes_total{outcome=\"timeout\"}"), 0);
}

#[tokio::test]
async fn at_the_limit_of_connections_silent_ones_go_first_and_served_ones_stay() {
    let limits = Limits {
        connections_max: 100,
        ..Limits::default()
    };
    let world = world(limits).await;
    let mut served = Vec::new();
    for _ in 0..10 {
        let mut client = world.client().await;
        client.send(ASK).await;
        client.response().await;
        served.push(client);
    }
    let mut flood = flood(&world, "https", b"", 150).await;
    // The 90 that there is room for stay.
    world
        .counts("connections_evicted_total{state=\"silent\"} 60\n")
        .await;
    for gone in &mut flood[..60] {
        until_closed(gone).await;
    }
    for client in &mut served {
        client.send(ASK).await;
        assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    }
    world
        .counts("connections_evicted_total{state=\"idle\"} 0\n")
        .await;
}

#[tokio::test]
async fn an_idle_connection_goes_for_one_that_has_asked_and_not_for_one_that_is_silent() {
    let limits = Limits {
        connections_max: 4,
        ..Limits::default()
    };
    let world = world(limits).await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut client = world.client().await;
        client.send(ASK).await;
        client.response().await;
        idle.push(client);
    }
    let mut streams = super::http2::connect(&world, "a.example").await;
    let request = || http::Request::get("https://a.example/").body(()).unwrap();
    super::http2::ask(&mut streams, request(), b"").await;
    let mut secure = world.tls_client("a.example").await.unwrap();
    secure.send(ASK).await;
    secure.response().await;
    let silent = flood(&world, "http", b"GET / HT", 3).await;
    let evicted = |count| format!("connections_evicted_total{{state=\"idle\"}} {count}\n");
    world.counts("connections_accepted_total 7\n").await;
    assert!(world.metrics.encode().contains(&evicted(0)));
    // The first two and then that of HTTP/2 have been unused longest.
    for number in 1..=3 {
        let mut client = world.client().await;
        client.send(ASK).await;
        assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
        world.counts(&evicted(number)).await;
        idle.push(client);
    }
    assert_eq!(idle[0].read_to_end().await, "");
    assert_eq!(idle[1].read_to_end().await, "");
    let gone = async {
        while streams.clone().ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    secure.send(ASK).await;
    assert!(secure.response().await.0.starts_with("HTTP/1.1 200"));
    drop(silent);
}

#[tokio::test]
async fn where_all_connections_have_requests_the_next_one_waits_for_the_first_that_ends() {
    let limits = Limits {
        connections_max: 1,
        ..Limits::default()
    };
    let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::limited(limits);
    world.put_upstream("u", &[backend.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    let mut first = world.client().await;
    first.send(ASK).await;
    let (mut endpoint, _) = backend.accept().await.unwrap();
    let mut second = world.client().await;
    second.send(ASK).await;
    world.counts("connections_accepted_total 2\n").await;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    endpoint.write_all(answer).await.unwrap();
    assert!(first.response().await.0.starts_with("HTTP/1.1 200"));
    assert_eq!(first.read_to_end().await, "");
    // It comes by the same connection to the endpoint or by another.
    let mut again = tokio::select! {
        accepted = backend.accept() => accepted.unwrap().0,
        () = readable(&endpoint) => endpoint,
    };
    again.write_all(answer).await.unwrap();
    assert!(second.response().await.0.starts_with("HTTP/1.1 200"));
}

/// Waits until a second request has come by a connection.
async fn readable(endpoint: &TcpStream) {
    let mut read = String::new();
    while read.matches("\r\n\r\n").count() < 2 {
        endpoint.readable().await.unwrap();
        let mut more = [0; 1_024];
        let count = endpoint.try_read(&mut more).unwrap_or_default();
        read += std::str::from_utf8(&more[..count]).unwrap();
    }
}

#[tokio::test]
async fn a_thousand_clients_of_one_domain_at_once_are_all_served() {
    let limits = Limits {
        handshakes_max: 64,
        ..Limits::default()
    };
    let world = Rc::new(world(limits).await);
    let local = LocalSet::new();
    let asked = world.clone();
    local
        .run_until(async move {
            let clients: Vec<_> = (0..1_000)
                .map(|_| {
                    let world = asked.clone();
                    task::spawn_local("client", async move {
                        let mut client = world.tls_client("a.example").await.unwrap();
                        client.send(ASK).await;
                        assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
                        client
                    })
                })
                .collect();
            let mut served = Vec::new();
            for client in clients {
                served.push(client.await.unwrap());
            }
            assert_eq!(served.len(), 1_000);
        })
        .await;
    assert_eq!(counted(&world, "handshakes_total{outcome=\"full\"}"), 1_000);
    for refused in [
        "connections_shed_total",
        "handshakes_total{outcome=\"timeout\"}",
        "fair_share_refused_total{of=\"handshakes\"}",
        "fair_share_refused_total{of=\"connections\"}",
        "connections_evicted_total{state=\"silent\"}",
    ] {
        assert_eq!(counted(&world, refused), 0, "{refused}");
    }
}

#[tokio::test]
async fn who_waits_too_long_for_its_turn_is_closed() {
    let limits = Limits {
        handshakes_max: 1,
        turn_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let world = world(limits).await;
    let _slot = begin(&world, "a.example").await;
    let mut late = begin(&world, "a.example").await;
    until_closed(&mut late).await;
    until_counted(&world, "limits_reached_total{limit=\"turn_timeout\"}").await;
    world.counts("connections_shed_total 1\n").await;
}

#[tokio::test]
async fn what_parts_of_a_message_take_is_bounded_in_all() {
    let limits = Limits {
        silent_bytes_max: 16 << 10,
        ..Limits::default()
    };
    let world = world(limits).await;
    let mut flood = flood(&world, "http", b"GET", 20).await;
    // Each takes a KiB.
    world
        .counts("limits_reached_total{limit=\"silent_bytes\"} 4\n")
        .await;
    for gone in &mut flood[..4] {
        until_closed(gone).await;
    }
    assert!(flood[4..].iter().all(is_open));
}

#[tokio::test]
async fn who_has_said_a_part_is_told_so_in_time() {
    let limits = Limits {
        head_timeout: Duration::from_millis(500),
        ..Limits::default()
    };
    let world = world(limits).await;
    let mut client = world.client().await;
    client.send("\r\n\r\nGET / HTTP/1.1\r\nHost: a.ex").await;
    assert!(client.read_to_end().await.starts_with("HTTP/1.1 408"));
}
