//! Tunnels, which nothing ends for others: how many there may be, and what is left beside them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::h2::client::SendRequest;
use bytes::Bytes;
use myriad_base::task;
use myriad_model::{Action, RateLimit, Respond, SourceRanges, TlsSettings, Value};
use tokio::net::{TcpListener, TcpStream};

use super::websocket::{Open, carry, offered, open};
use super::world::{Backend, Client, PATIENCE, World, header, route, with_policy};
use crate::limits::Limits;

/// An endpoint that changes to whatever it is asked for, and says what it hears.
async fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("endpoint", async move {
        while let Ok((tcp, _)) = listener.accept().await {
            task::spawn("endpoint connection", async move {
                let mut client = Client::new(tcp);
                client.read_until("\r\n\r\n").await;
                client
                    .send(
                        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                         Connection: Upgrade\r\n\r\n",
                    )
                    .await;
                let (mut reading, mut writing) = client.stream.into_split();
                let _ = tokio::io::copy(&mut reading, &mut writing).await;
            });
        }
    });
    address
}

/// An endpoint of streams, which says what it hears.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("endpoint", async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            task::spawn("endpoint connection", async move {
                let (mut reading, mut writing) = tcp.split();
                let _ = tokio::io::copy(&mut reading, &mut writing).await;
            });
        }
    });
    address
}

/// Room for forty connections, of which four are for no tunnel: hosts of six namespaces that lead
/// to such an endpoint, and one of a seventh that has both.
async fn crowded() -> World {
    let limits = Limits {
        connections_max: 40,
        ..Limits::default()
    };
    let mut world = World::limited(limits);
    let backend = Backend::saying("ok").await;
    world.put_upstream("u", &[endpoint().await]);
    world.put_upstream("v", &[backend.address]);
    for number in 0..6 {
        put(
            &mut world,
            &format!("ns-{number}"),
            &format!("{number}.example"),
            "u",
        );
    }
    put(&mut world, "quiet", "quiet.example", "v");
    put(&mut world, "quiet", "chat.example", "u");
    world
}

fn put(world: &mut World, namespace: &str, host: &str, upstream: &str) {
    let value = Value::Route(Box::new(route(host, "/", upstream)));
    world.put_all_of(namespace, vec![(host, value)]);
}

/// Asks for a WebSocket, and returns the head of the answer.
async fn upgrade(world: &World, host: &str) -> (Client<TcpStream>, String) {
    let mut client = world.client().await;
    client
        .send(format!(
            "GET /chat HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ))
        .await;
    let head = client.read_until("\r\n\r\n").await;
    (client, head)
}

/// Sees to it that clients of a seventh namespace are answered, each beside those before.
async fn newcomers_are_answered(world: &World) {
    world.answers_all("quiet.example", 12).await;
}

#[tokio::test]
async fn websockets_of_six_namespaces_leave_room_for_the_requests_of_a_seventh() {
    let world = crowded().await;
    let (mut held, mut refused) = (Vec::new(), 0);
    for number in 0..54 {
        let (mut client, head) = upgrade(&world, &format!("{}.example", number / 9)).await;
        if head.starts_with("HTTP/1.1 101") {
            held.push(client);
            continue;
        }
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        assert_eq!(header(&head, "retry-after"), Some("1"));
        assert_eq!(header(&head, "connection"), Some("close"));
        client.read_to_end().await;
        drop(client);
        refused += 1;
        let line = format!("connections_closed_total {refused}\n");
        world.counts(&line).await;
    }
    // Nine tenths are tunnels. Two more were beyond their namespace's share of connections.
    assert_eq!((held.len(), refused), (36, 18));
    for line in [
        "fair_share_refused_total{of=\"connections\"} 2\n",
        "fair_share_refused_total{of=\"tunnels\"} 16\n",
        "fair_share_refused_total{of=\"requests\"} 0\n",
        "request_failures_total{reason=\"overloaded\"} 18\n",
    ] {
        world.counts(line).await;
    }
    // What has ended leaves its place to another namespace's.
    drop(held.remove(0));
    world.counts("connections_closed_total 19\n").await;
    let (client, head) = upgrade(&world, "chat.example").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    held.push(client);
    newcomers_are_answered(&world).await;
    // Those that are refused, and stay for the end of their connections, stand in nobody's way.
    let mut lingering = Vec::new();
    for _ in 0..8 {
        let (client, head) = upgrade(&world, "5.example").await;
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        lingering.push(client);
    }
    newcomers_are_answered(&world).await;
    for client in &mut held {
        client.send("still here").await;
        assert_eq!(client.read_exact(10).await, b"still here");
    }
}

/// Asks for a WebSocket by a stream of its own.
async fn stream(client: &mut SendRequest<Bytes>) -> (u16, Open) {
    let (response, open) = open(client, carry("websocket")).await;
    (response.status().as_u16(), open)
}

#[tokio::test]
async fn streams_of_http2_that_carry_websockets_are_tunnels_each() {
    let mut world = crowded().await;
    put(&mut world, "ns-0", "a.example", "u");
    let mut none = route("a.example", "/none", "u");
    none.action = Action::Respond(Box::new(Respond {
        status: 204,
        body: Arc::default(),
    }));
    world.put_route("none", none);
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let mut client = offered(&world).await;
    let mut held = Vec::new();
    for _ in 0..32 {
        let (status, open) = stream(&mut client).await;
        assert_eq!(status, 200);
        held.push(open);
    }
    // One namespace alone has four fifths.
    assert_eq!(stream(&mut client).await.0, 503);
    world
        .counts("fair_share_refused_total{of=\"tunnels\"} 1\n")
        .await;
    // One that ends leaves its place. The endpoint ends its half once it has heard the end.
    let mut ended = held.remove(0);
    ended.say("bye", true).await;
    assert_eq!(ended.hear().await.as_deref(), Some("bye"));
    assert_eq!(ended.hear().await, None);
    let mut status = 503;
    let mut tries = 0;
    while status != 200 && tries < 100 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        status = stream(&mut client).await.0;
        tries += 1;
    }
    assert_eq!(status, 200);
}

/// Asks for a WebSocket by a stream until there is a place for one.
async fn opened(client: &mut SendRequest<Bytes>) -> Open {
    let opening = async {
        loop {
            let (status, open) = stream(client).await;
            if status == 200 {
                return open;
            }
            assert_eq!(status, 503);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let opened = tokio::time::timeout(PATIENCE, opening).await;
    opened.expect("a place is free again")
}

#[tokio::test]
async fn a_websocket_is_served_at_the_same_time_as_others_until_it_ends() {
    let mut world = World::start();
    world.put_upstream("u", &[endpoint().await]);
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let limited = with_policy(route("a.example", "/chat", "u"), |policy| {
        policy.rate_limits = [RateLimit {
            name: "websockets at the same time".into(),
            requests: 1,
            interval: Duration::from_secs(1),
            burst: RateLimit::REQUESTS_MAX,
            is_per_client: true,
            exempt: SourceRanges::default(),
            is_at_once: true,
        }]
        .into();
    });
    world.put_route("chat", limited);
    let mut none = route("a.example", "/none", "u");
    none.action = Action::Respond(Box::new(Respond {
        status: 204,
        body: Arc::default(),
    }));
    world.put_route("none", none);
    let (mut first, head) = upgrade(&world, "a.example").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    // What was said comes back, so that the request that it was is over by now.
    first.send("still here").await;
    assert_eq!(first.read_exact(10).await, b"still here");
    let (_, head) = upgrade(&world, "a.example").await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    let mut client = offered(&world).await;
    assert_eq!(stream(&mut client).await.0, 503);
    drop(first);
    // A stream of HTTP/2 counts as long as well.
    let mut second = opened(&mut client).await;
    second.say("still here", false).await;
    assert_eq!(second.hear().await.as_deref(), Some("still here"));
    let (_, head) = upgrade(&world, "a.example").await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    second.say("bye", true).await;
    assert_eq!(second.hear().await.as_deref(), Some("bye"));
    opened(&mut client).await;
}

/// The number that a metric tells.
fn number(world: &World, line: &str) -> usize {
    let all = world.metrics.encode();
    let found = all.lines().find_map(|it| it.strip_prefix(line));
    found.map_or(0, |text| text.trim().parse().unwrap())
}

#[tokio::test]
async fn streams_of_six_namespaces_leave_room_for_the_requests_of_a_seventh() {
    let mut world = crowded().await;
    world.put_upstream("w", &[echo().await]);
    for of in 0..6 {
        let host = format!("p{of}.example");
        let stream_route = super::streams::stream_route("https", &[host.as_str()], &[("w", 1)]);
        let value = Value::StreamRoute(Box::new(stream_route));
        world.put_all_of(&format!("ns-{of}"), vec![(host.as_str(), value)]);
    }
    let names = [
        "p0.example",
        "p1.example",
        "p2.example",
        "p3.example",
        "p4.example",
        "p5.example",
    ];
    let mut flood = Vec::new();
    for count in 0..54 {
        flood.push(super::overload::begin(&world, names[count / 9]).await);
        let told = async {
            let told = [
                "myriad_streams_total{event=\"opened\"}",
                "myriad_fair_share_refused_total{of=\"connections\"}",
                "myriad_fair_share_refused_total{of=\"tunnels\"}",
            ];
            while told.map(|line| number(&world, line)).iter().sum::<usize>() <= count {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
            told.map(|line| number(&world, line))
        };
        let told = tokio::time::timeout(super::world::PATIENCE, told).await;
        let told = told.expect("it is opened or refused");
        if count == 53 {
            assert_eq!(told, [36, 2, 16]);
        }
    }
    newcomers_are_answered(&world).await;
    assert_eq!(number(&world, "myriad_streams_total{event=\"opened\"}"), 36);
    assert_eq!(number(&world, "myriad_streams_total{event=\"ended\"}"), 0);
}
