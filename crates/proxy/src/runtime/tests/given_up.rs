//! Connections to endpoints that are given up: they are reset, so that they keep no port, and those
//! that come to their end are closed.

use std::io::ErrorKind;
use std::time::Duration;

use myriad_model::Value;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::streams::{stream_route, with_tcp};
use super::world::{Client, PATIENCE, World, route};
use crate::limits::Limits;

const ASK: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// A proxy with a route, and a stream route at the listener `tcp`, to an endpoint.
async fn world() -> (World, TcpListener) {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = Limits {
        upstream_idle_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let mut world = with_tcp(World::limited(limits));
    world.put_upstream("u", &[endpoint.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    let stream_route = stream_route("tcp", &[], &[("u", 1)]);
    world.put("s", Value::StreamRoute(Box::new(stream_route)));
    (world, endpoint)
}

/// A client that has said something, and the connection of the endpoint that has heard it.
async fn heard(
    (world, endpoint): &(World, TcpListener),
    listener: &str,
    text: &str,
) -> (Client<TcpStream>, TcpStream) {
    let tcp = TcpStream::connect(world.address(listener)).await.unwrap();
    let mut client = Client::new(tcp);
    client.send(text).await;
    let mut heard = endpoint.accept().await.unwrap().0;
    let mut said = Vec::new();
    while !said.ends_with(&text.as_bytes()[text.len() - 2..]) {
        assert!(heard.read_buf(&mut said).await.unwrap() > 0);
    }
    (client, heard)
}

/// Breaks a connection off.
fn reset(client: Client<TcpStream>) {
    let linger = Some(Duration::ZERO);
    SockRef::from(&client.stream).set_linger(linger).unwrap();
}

/// How the proxy ends a connection: by a reset, or not.
async fn end(endpoint: &mut TcpStream) -> Result<usize, ErrorKind> {
    let mut byte = [0; 1];
    let ended = tokio::time::timeout(PATIENCE, endpoint.read(&mut byte));
    ended.await.unwrap().map_err(|error| error.kind())
}

#[tokio::test]
async fn an_exchange_that_is_given_up_is_reset_and_one_that_is_over_is_closed() {
    let world = world().await;
    let (client, mut endpoint) = heard(&world, "http", ASK).await;
    reset(client);
    assert_eq!(end(&mut endpoint).await, Err(ErrorKind::ConnectionReset));
    let (mut client, mut endpoint) = heard(&world, "http", ASK).await;
    let last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    endpoint.write_all(last).await.unwrap();
    assert_eq!(client.response().await.1, "ok");
    assert_eq!(end(&mut endpoint).await, Ok(0));
}

#[tokio::test]
async fn a_connection_that_was_kept_is_closed_and_reset_when_it_is_used_again_and_given_up() {
    let world = world().await;
    let (mut client, mut endpoint) = heard(&world, "http", ASK).await;
    let kept = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    endpoint.write_all(kept).await.unwrap();
    assert_eq!(client.response().await.1, "ok");
    client.send(ASK).await;
    let mut again = Vec::new();
    while !again.ends_with(b"\r\n\r\n") {
        assert!(endpoint.read_buf(&mut again).await.unwrap() > 0);
    }
    reset(client);
    assert_eq!(end(&mut endpoint).await, Err(ErrorKind::ConnectionReset));
    let (mut client, mut endpoint) = heard(&world, "http", ASK).await;
    endpoint.write_all(kept).await.unwrap();
    assert_eq!(client.response().await.1, "ok");
    // It waits for its next request for too long.
    assert_eq!(end(&mut endpoint).await, Ok(0));
}

#[tokio::test]
async fn a_stream_that_breaks_is_reset_and_one_that_ends_is_closed() {
    let world = world().await;
    let (client, mut endpoint) = heard(&world, "tcp", "hello").await;
    reset(client);
    assert_eq!(end(&mut endpoint).await, Err(ErrorKind::ConnectionReset));
    let (mut client, mut endpoint) = heard(&world, "tcp", "hello").await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(end(&mut endpoint).await, Ok(0));
    // What was said last arrives, whoever ends first.
    endpoint.write_all(b"bye").await.unwrap();
    endpoint.shutdown().await.unwrap();
    assert_eq!(client.read_to_end().await, "bye");
}
