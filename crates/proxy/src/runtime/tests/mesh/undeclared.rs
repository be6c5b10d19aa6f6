//! Ports of a workload whose protocol nobody has declared.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{ListenerProtocol, MutualTls};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::world::{PATIENCE, World};
use super::mutual::{Authority, meshed, meshed_in, uri};
use super::within::sidecar;
use super::{
    address, ask, connect, is_inside, listener, said, server_first, stream_route, world_within,
};
use crate::Limits;

const HTTP: &str = "10.9.1.20:80";
const MAIL: &str = "10.9.1.20:25";
const HELLO: &str = "hello 127.0.0.6\n";

/// The most bytes of an answer that are read.
const HEARD_MAX: u64 = 64 << 10;

/// The protocols that a handshake offers: none, or bytes as proxies of a mesh call them.
const NOTHING: &[&[u8]] = &[];
const BYTES: &[&[u8]] = &[b"istio"];

/// A request that claims to be of somebody else, by its first line and what is in front of it.
fn forged(line: &str) -> String {
    let claim = "x-forwarded-client-cert: By=x;URI=forged";
    format!("{line}\r\nHost: b\r\n{claim}\r\nConnection: close\r\n\r\n")
}

/// Everything that is heard after a text was sent, which may be once the server has spoken.
#[expect(clippy::disallowed_methods, reason = "bounded by `take`")]
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    is_late: bool,
    text: &str,
) -> String {
    let mut heard = Vec::new();
    if is_late {
        heard.resize(HELLO.len(), 0);
        stream.read_exact(&mut heard).await.unwrap();
    }
    // It may be broken off, which is no answer.
    stream.write_all(text.as_bytes()).await.ok();
    let mut stream = stream.take(HEARD_MAX);
    let reading = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard));
    reading.await.expect("an end").ok();
    String::from_utf8_lossy(&heard).into_owned()
}

/// A connection of somebody of the mesh whose handshake says, or does not say, what comes.
async fn within(at: &str, authority: &Authority, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
    let mut config = ClientConfig::clone(&sidecar(authority, "client"));
    config.alpn_protocols = alpn.iter().map(|it| it.to_vec()).collect();
    let tcp = TcpStream::connect(address(at)).await.unwrap();
    let name = ServerName::try_from("b.example").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, tcp);
    connecting.await.unwrap()
}

/// Has both ports of the workload ask for, or take, mutual TLS.
fn put_ports(world: &mut World, mutual: MutualTls) {
    let detected = |address| listener(address, ListenerProtocol::Detected, Some(mutual));
    world.put_all(vec![
        ("inbound/any:80", detected("0.0.0.0:80")),
        ("inbound/any:25", detected("0.0.0.0:25")),
        (
            "mail in",
            stream_route("inbound/any:25", &[], "0.0.0.0/0", "stream"),
        ),
    ]);
}

/// Each kept its place for as long as a detection may take, and nobody else got one meanwhile.
#[tokio::test]
async fn connections_that_say_nothing_yet_make_room_for_others() {
    if !is_inside("undeclared::connections_that_say_nothing_yet_make_room_for_others") {
        return;
    }
    let world = world_within(Limits {
        connections_max: 20,
        detection_timeout: Duration::from_secs(60),
        ..Limits::default()
    });
    let world = meshed_in(world, ListenerProtocol::Detected, MutualTls::Permissive).await;
    let mut flood = Vec::new();
    for count in 1..=30 {
        flood.push(connect(HTTP).await);
        // Each has its place before the next one comes.
        let accepted = format!("connections_accepted_total {count}\n");
        world.counts(&accepted).await;
    }
    let evicted = |count| format!("connections_evicted_total{{state=\"handshake\"}} {count}\n");
    world.counts(&evicted(10)).await;
    assert_eq!(ask(HTTP, "b").await, said("200", "nobody http"));
    world.counts(&evicted(11)).await;
    for mut gone in flood.drain(..11) {
        assert_eq!(gone.read_to_end().await, "");
    }
    world.counts("connections_shed_total 0\n").await;
    // Whoever has kept its place is served once it speaks.
    let last = flood.last_mut().unwrap();
    last.send("GET / HTTP/1.1\r\nHost: b\r\n\r\n").await;
    assert_eq!(last.response().await.1, "nobody http");
}

/// The workload was handed the bytes as they came, with a field that only the proxy may set.
#[tokio::test]
async fn no_request_reaches_the_workload_as_bytes() {
    if !is_inside("undeclared::no_request_reaches_the_workload_as_bytes") {
        return;
    }
    let mut world = meshed(ListenerProtocol::Detected, MutualTls::Strict).await;
    let authority = Authority::new();
    let identity = authority.identity("b", &[&authority]);
    world.proxy.identify(identity).unwrap();
    put_ports(&mut world, MutualTls::Strict);
    server_first(MAIL).await;
    let get = forged("GET / HTTP/1.1");
    // Where the handshake says nothing the first bytes do.
    let known = format!("{} http", uri("client"));
    let heard = answer(within(HTTP, &authority, NOTHING).await, false, &get).await;
    assert!(heard.ends_with(&known), "{heard}");
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
    let mut http2 = within(HTTP, &authority, NOTHING).await;
    http2.write_all(preface.as_bytes()).await.unwrap();
    let mut frame = [0; 9];
    http2.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4, "the server's SETTINGS");
    // Where it says bytes, or they look like those of a request, it must be none.
    let lines = [
        "\r\nGET / HTTP/1.1",
        " GET / HTTP/1.1",
        "get / HTTP/1.1",
        "GET / HTTP/1.2",
    ];
    assert_eq!(
        answer(within(HTTP, &authority, BYTES).await, false, &get).await,
        ""
    );
    for alpn in [NOTHING, BYTES] {
        for line in lines {
            let client = within(HTTP, &authority, alpn).await;
            let heard = answer(client, false, &forged(line)).await;
            assert_eq!(heard, "", "{line:?} {alpn:?}");
        }
    }
    let refused = lines.len() * 2 + 1;
    let failed = |count| format!("myriad_streams_total{{event=\"failed\"}} {count}\n");
    world.counts(&failed(refused)).await;
    // Other bytes pass, at once where the handshake says so, and a request in vain at any time.
    for alpn in [NOTHING, BYTES] {
        let mut client = within(MAIL, &authority, alpn).await;
        client.write_all(b"MAIL\r\n").await.unwrap();
        let mut heard = vec![0; HELLO.len() + 6];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, [HELLO, "MAIL\r\n"].concat().as_bytes());
        drop(client);
        let client = within(MAIL, &authority, alpn).await;
        assert_eq!(answer(client, true, &get).await, HELLO);
    }
    put_ports(&mut world, MutualTls::Permissive);
    for line in lines {
        let client = TcpStream::connect(address(HTTP)).await.unwrap();
        let heard = answer(client, false, &forged(line)).await;
        assert_eq!(heard, "", "{line:?}");
    }
    let client = TcpStream::connect(address(HTTP)).await.unwrap();
    let heard = answer(client, false, &get).await;
    assert!(heard.ends_with("nobody http"), "{heard}");
    let client = TcpStream::connect(address(MAIL)).await.unwrap();
    assert_eq!(answer(client, true, &get).await, HELLO);
    world.counts(&failed(refused + 2 + lines.len() + 1)).await;
}
