//! Datagrams: flows to endpoints, and when they end.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use myriad_base::task;
use myriad_model::{
    AccessAction, AccessCheck, AccessPolicy, AccessRule, Authorize, Endpoint, Endpoints, Kind,
    Listener, ListenerProtocol, Protocol, StreamRoute, Upstream, UpstreamTls, Value,
};
use tokio::net::UdpSocket;

use super::streams::stream_route;
use super::world::{PATIENCE, World};
use crate::limits::Limits;
use crate::{Inherited, Settings};

/// How long a story waits for what does not come.
const SILENCE: Duration = Duration::from_millis(200);

const OPENED: &str = "myriad_flows_total{event=\"opened\"}";

fn listener(address: SocketAddr) -> Value {
    Value::Listener(Box::new(Listener {
        address,
        tls: false,
        default_certificate: None,
        protocol: ListenerProtocol::Udp,
        capture: None,
    }))
}

fn leading(upstreams: &[(&str, u32)]) -> StreamRoute {
    stream_route("dns", &[], upstreams)
}

fn value(stream_route: StreamRoute) -> Value {
    Value::StreamRoute(Box::new(stream_route))
}

/// Adds a listener for datagrams, which lead to `u`.
fn with_udp(mut world: World) -> World {
    world.put("dns", listener(([127, 0, 0, 1], 0).into()));
    world.put("p", value(leading(&[("u", 1)])));
    world
}

fn world() -> World {
    with_udp(World::start())
}

/// An endpoint that answers with its name, the port of whoever asks, and what it was asked.
async fn endpoint(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    task::spawn("endpoint", async move {
        let mut bytes = vec![0; 65_536];
        while let Ok((length, from)) = socket.recv_from(&mut bytes).await {
            let mut answer = format!("{name} {} ", from.port()).into_bytes();
            answer.extend_from_slice(&bytes[..length]);
            let _ = socket.send_to(&answer, from).await;
        }
    });
    address
}

/// A client with a port of its own.
async fn client(world: &World) -> UdpSocket {
    client_of(world.address("dns")).await
}

async fn client_of(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(address).await.unwrap();
    socket
}

async fn receive(client: &UdpSocket, patience: Duration) -> Option<String> {
    let mut bytes = vec![0; 65_536];
    let received = tokio::time::timeout(patience, client.recv(&mut bytes));
    let length = received.await.ok()?.ok()?;
    Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
}

async fn ask(client: &UdpSocket, text: &str) -> String {
    client.send(text.as_bytes()).await.unwrap();
    receive(client, PATIENCE).await.expect("an answer")
}

/// The answer to a client that may have to ask again, since datagrams get lost.
async fn ask_until_answered(client: &UdpSocket, text: &str) -> String {
    for _ in 0..50 {
        // The answer to one that nobody received comes with the next.
        let _ = client.send(text.as_bytes()).await;
        if let Some(answer) = receive(client, SILENCE).await {
            return answer;
        }
    }
    panic!("no answer");
}

async fn is_silent(client: &UdpSocket, text: &str) -> bool {
    client.send(text.as_bytes()).await.unwrap();
    receive(client, SILENCE).await.is_none()
}

/// The name of the endpoint in an answer, and the port that it was asked from.
fn parts(answer: &str) -> (&str, &str) {
    let (name, rest) = answer.split_once(' ').unwrap();
    (name, rest.split_once(' ').unwrap().0)
}

#[tokio::test]
async fn what_comes_from_one_port_of_a_client_is_one_flow() {
    let mut world = world();
    world.put_upstream("u", &[endpoint("a").await]);
    let (one, other) = (client(&world).await, client(&world).await);
    let first = ask(&one, "x").await;
    assert!(first.starts_with("a ") && first.ends_with(" x"), "{first}");
    let second = ask(&one, "").await;
    assert_eq!(parts(&first), parts(&second));
    let third = ask(&other, "z").await;
    assert_ne!(parts(&first), parts(&third));
    // Several before the first answer, and one as long as there are.
    one.send(b"1").await.unwrap();
    one.send(b"2").await.unwrap();
    for end in [" 1", " 2"] {
        assert!(receive(&one, PATIENCE).await.unwrap().ends_with(end));
    }
    let long = "x".repeat(60_000);
    assert!(ask(&other, &long).await.ends_with(&long));
    world.counts(&format!("{OPENED} 2")).await;
    world
        .counts("myriad_datagrams_total{event=\"sent\"} 6")
        .await;
}

#[tokio::test]
async fn shares_are_taken_by_weight_and_what_leads_nowhere_is_dropped() {
    let mut world = world();
    let client = client(&world).await;
    assert!(is_silent(&client, "there is no upstream").await);
    world.put_upstream("u", &[endpoint("a").await]);
    world.put_upstream("v", &[endpoint("b").await]);
    world.put("p", value(leading(&[("u", 0), ("v", 1)])));
    assert_eq!(parts(&ask(&client, "x").await).0, "b");
    world.put("p", value(leading(&[("v", 1), ("gone", 1)])));
    // It stays where it is, whatever becomes of others.
    assert_eq!(parts(&ask(&client, "x").await).0, "b");
    world.put("p", value(leading(&[])));
    assert!(is_silent(&client, "x").await);
    world.remove(Kind::StreamRoute, "p");
    assert!(is_silent(&client, "x").await);
    world.counts(&format!("{OPENED} 1")).await;
    world
        .counts("myriad_flows_total{event=\"removed\"} 1")
        .await;
}

#[tokio::test]
async fn a_flow_follows_its_route_and_leaves_an_endpoint_that_is_gone() {
    let mut world = world();
    let (a, b) = (endpoint("a").await, endpoint("b").await);
    world.put_upstream("u", &[a]);
    world.put_upstream("v", &[b]);
    let client = client(&world).await;
    let first = ask(&client, "x").await;
    // What concerns others changes nothing.
    world.put_upstream("other", &[b]);
    assert_eq!(parts(&first), parts(&ask(&client, "x").await));
    world.put("p", value(leading(&[("v", 1)])));
    assert_eq!(parts(&ask(&client, "x").await).0, "b");
    world.put_upstream("v", &[a]);
    assert_eq!(parts(&ask(&client, "x").await).0, "a");
    let kept = ask(&client, "x").await;
    world.put_upstream("v", &[a, b]);
    assert_eq!(parts(&kept), parts(&ask(&client, "x").await));
}

#[tokio::test]
async fn an_endpoint_that_does_not_receive_is_left() {
    let mut world = world();
    let gone = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    world.put_upstream("u", &[address]);
    let alone = client(&world).await;
    assert!(is_silent(&alone, "x").await);
    world.counts("myriad_flows_total{event=\"failed\"} 1").await;
    world.put_upstream("u", &[address, endpoint("a").await]);
    assert_eq!(parts(&ask_until_answered(&alone, "x").await).0, "a");
}

#[tokio::test]
async fn silence_ends_a_flow() {
    let mut world = world();
    world.put_upstream("u", &[endpoint("a").await]);
    let mut short = leading(&[("u", 1)]);
    short.idle_timeout = SILENCE;
    world.put("p", value(short));
    let client = client(&world).await;
    ask(&client, "x").await;
    world.counts("myriad_flows_total{event=\"idle\"} 1").await;
    ask(&client, "x").await;
    world.counts(&format!("{OPENED} 2")).await;
}

#[tokio::test]
async fn a_source_with_very_many_flows_loses_its_oldest_and_nobody_else_any() {
    let limits = Limits {
        flows_max: 16,
        ..Limits::default()
    };
    let mut world = with_udp(World::limited(limits));
    world.put_upstream("u", &[endpoint("a").await]);
    let mut flood = Vec::new();
    for _ in 0..64 {
        let one = client(&world).await;
        ask(&one, "x").await;
        flood.push(one);
    }
    world.counts(&format!("{OPENED} 64")).await;
    let text = world.metrics.encode();
    let evicted = text
        .lines()
        .find_map(|line| line.strip_prefix("myriad_flows_total{event=\"evicted\"} "));
    let evicted: usize = evicted.unwrap().parse().unwrap();
    assert!((48..64).contains(&evicted), "{evicted}");
    assert!(!text.contains("myriad_limits_reached_total{limit=\"flows\"} 0\n"));
    // The newest are there still.
    let newest = flood.last().unwrap();
    ask(newest, "x").await;
    world.counts(&format!("{OPENED} 64")).await;
}

#[tokio::test]
async fn whoever_is_not_admitted_opens_no_flow() {
    let mut world = world();
    world.put_upstream("u", &[endpoint("a").await]);
    let client = client(&world).await;
    ask(&client, "x").await;
    let nobody = AccessPolicy {
        listeners: ["dns".into()].into(),
        check: AccessCheck::Authorize(Authorize {
            action: AccessAction::Deny,
            is_dry_run: false,
            rules: [AccessRule::default()].into(),
        }),
    };
    world.put("g", Value::AccessPolicy(Box::new(nobody)));
    assert!(is_silent(&client, "x").await);
    world
        .counts("myriad_flows_total{event=\"removed\"} 1")
        .await;
    world.remove(Kind::AccessPolicy, "g");
    ask(&client, "x").await;
}

#[tokio::test]
async fn no_endpoint_is_the_proxy_itself_or_expects_more_than_datagrams() {
    let mut world = world();
    let own = world.address("dns");
    world.put_upstream("u", &[own]);
    let client = client(&world).await;
    assert!(is_silent(&client, "x").await);
    world.counts("myriad_flows_total{event=\"failed\"} 1").await;
    let secured = Upstream {
        tls: Some(Box::new(UpstreamTls::unverified())),
        ..Upstream::plain(Protocol::Https1)
    };
    let endpoints = Endpoints::new([Endpoint::even(endpoint("a").await)].into());
    world.put_all(vec![
        ("u", Value::Upstream(Box::new(secured))),
        ("u", Value::Endpoints(Box::new(endpoints))),
    ]);
    assert!(is_silent(&client, "x").await);
    world.counts("myriad_flows_total{event=\"failed\"} 2").await;
}

#[tokio::test]
async fn a_listener_that_goes_takes_its_flows_along() {
    let mut world = world();
    world.put_upstream("u", &[endpoint("a").await]);
    let client = client(&world).await;
    ask(&client, "x").await;
    let address = world.address("dns");
    world.remove(Kind::Listener, "dns");
    world
        .counts("myriad_flows_total{event=\"removed\"} 1")
        .await;
    // The address is free for others.
    let bound = async {
        while UdpSocket::bind(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, bound).await.unwrap();
}

#[tokio::test]
async fn a_drain_serves_flows_until_they_are_silent_and_opens_none() {
    let mut world = world();
    world.put_upstream("u", &[endpoint("a").await]);
    let (known, address) = (client(&world).await, world.address("dns"));
    let first = ask(&known, "x").await;
    let draining = task::spawn("drain", world.proxy.drain());
    // It has begun once strangers are not served.
    while !is_silent(&client_of(address).await, "x").await {
        assert_eq!(parts(&first), parts(&ask(&known, "x").await));
    }
    assert_eq!(parts(&first), parts(&ask(&known, "x").await));
    tokio::time::timeout(PATIENCE, draining)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn the_next_process_opens_flows_and_the_one_before_hands_on_late_answers() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let settings = || Settings {
        workers: 2,
        drain_timeout: PATIENCE,
        hands_over: true,
        ..Settings::default()
    };
    let mut before = with_udp(World::start_with(settings()));
    before.put_upstream("u", &[address]);
    let client = client(&before).await;
    client.send(b"early").await.unwrap();
    let mut bytes = [0; 64];
    let (_, first) = server.recv_from(&mut bytes).await.unwrap();
    let sockets = before.proxy.sockets();
    let mut next = World::start_with(Settings {
        inherited: Some(Inherited {
            sockets: sockets.copies().unwrap(),
            tickets: Vec::new(),
        }),
        ..settings()
    });
    next.put("dns", listener(before.address("dns")));
    next.put("p", value(leading(&[("u", 1)])));
    next.put_upstream("u", &[address]);
    next.proxy.go_live();
    sockets.succeed();
    let draining = task::spawn("drain", before.proxy.drain());
    let late = async {
        loop {
            client.send(b"late").await.unwrap();
            let (_, from) = server.recv_from(&mut bytes).await.unwrap();
            if from != first {
                return from;
            }
        }
    };
    let second = tokio::time::timeout(PATIENCE, late).await.unwrap();
    for (answer, to) in [("first", first), ("second", second)] {
        server.send_to(answer.as_bytes(), to).await.unwrap();
        assert_eq!(receive(&client, PATIENCE).await.as_deref(), Some(answer));
    }
    drop(draining);
}

#[tokio::test]
async fn a_listener_of_all_addresses_is_opened_at_those_that_are_bound_to() {
    let bind: [IpAddr; 2] = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
    let mut world = World::start_with(Settings {
        workers: 1,
        bind: bind.into(),
        ..Settings::default()
    });
    world.put("dns", listener(([0, 0, 0, 0], 0).into()));
    world.put("p", value(leading(&[("u", 1)])));
    world.put_upstream("u", &[endpoint("a").await]);
    let addresses = world.proxy.addresses();
    let own = addresses.iter().filter(|(name, _)| name.as_str() == "dns");
    let own: Vec<SocketAddr> = own.map(|(_, address)| *address).collect();
    let ips: Vec<_> = own.iter().map(SocketAddr::ip).collect();
    assert_eq!(ips, bind);
    assert_eq!(own[0].port(), own[1].port());
    for address in own {
        ask(&client_of(address).await, "x").await;
    }
    // What names an address has that one alone.
    assert!(world.address("http").ip().is_loopback());
    let applied = world.put("six", listener(SocketAddr::from(([0_u16; 8], 0))));
    assert!(applied.refused.is_empty(), "{:?}", applied.refused);
}
