//! Handshakes that are begun and left: they take nothing of what the domain of their name may have,
//! and go where others need the places or the memory.

use myriad_model::TlsSettings;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};

use super::overload::{begin, until_answered};
use super::world::{Backend, Client, World, route};
use crate::limits::Limits;

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

async fn world(limits: Limits) -> World {
    let backend = Backend::saying("ok").await;
    let mut world = World::limited(limits);
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    world
}

/// A room for twenty connections.
fn narrow() -> Limits {
    Limits {
        connections_max: 20,
        ..Limits::default()
    }
}

/// So many clients that have been answered a hello, and say no more.
async fn begun(world: &World, count: usize) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut one = begin(world, "a.example").await;
        until_answered(&mut one).await;
        all.push(one);
    }
    all
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(client: &mut Client<S>) {
    client.send(GET).await;
    let (head, _) = client.response().await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

/// Waits until so many connections of a state have made room.
async fn evicted(world: &World, state: &str, count: usize) {
    let line = format!("connections_evicted_total{{state=\"{state}\"}} {count}\n");
    world.counts(&line).await;
}

/// Each was one of the domain's for as long as a handshake may take, and with four fifths of the
/// places nobody else came to the domain, by plain text either.
#[tokio::test]
async fn half_handshakes_are_no_connections_of_the_domain_of_their_name() {
    let world = world(narrow()).await;
    let flood = begun(&world, 17).await;
    ask(&mut world.client().await).await;
    ask(&mut world.tls_client("a.example").await.unwrap()).await;
    let refused = "fair_share_refused_total{of=\"connections\"} 0\n";
    world.counts(refused).await;
    evicted(&world, "handshake", 0).await;
    drop(flood);
}

#[tokio::test]
async fn half_handshakes_of_one_source_go_for_others_and_push_out_nobody() {
    let world = world(narrow()).await;
    let mut idle = world.client().await;
    ask(&mut idle).await;
    let mut flood = begun(&world, 30).await;
    // All that there is beside the idle one.
    evicted(&world, "handshake", 11).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
    let other = socket.connect(world.address("http")).await.unwrap();
    ask(&mut Client::new(other)).await;
    evicted(&world, "handshake", 12).await;
    for gone in flood.drain(..12) {
        Client::new(gone).read_bytes_to_end().await;
    }
    ask(&mut idle).await;
    evicted(&world, "idle", 0).await;
    world.counts("connections_shed_total 0\n").await;
}

/// The namespace of the name had held what was held for them, and its requests were refused for it.
#[tokio::test]
async fn half_handshakes_hold_nothing_of_what_a_namespace_may_and_go_for_each_other() {
    // Forty of 8 KiB are a quarter more than that, and one is the first beyond.
    let limits = Limits {
        all_held_bytes_max: 256 << 10,
        ..Limits::default()
    };
    let world = world(limits).await;
    let mut flood = begun(&world, 60).await;
    evicted(&world, "handshake", 19).await;
    world
        .counts("limits_reached_total{limit=\"held_bytes\"} 19\n")
        .await;
    ask(&mut world.client().await).await;
    ask(&mut world.tls_client("a.example").await.unwrap()).await;
    evicted(&world, "handshake", 20).await;
    for gone in flood.drain(..20) {
        Client::new(gone).read_bytes_to_end().await;
    }
    world.counts("connections_shed_total 0\n").await;
}
