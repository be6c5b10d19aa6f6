//! Streams: handshakes that are passed through, TLS that ends here, and plain connections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::task;
use myriad_model::{
    Host, Kind, Listener, ListenerProtocol, Name, StreamRoute, TlsSettings, UpstreamTls, Value,
    WeightedUpstream,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::overload::hello;
use super::world::{
    Backend, Client, PATIENCE, World, certificate, domain, header, route, trusting,
};
use crate::{Limits, Settings};

pub(super) fn stream_route(
    listener: &str,
    hosts: &[&str],
    upstreams: &[(&str, u32)],
) -> StreamRoute {
    StreamRoute {
        listeners: [Name::from(listener)].into(),
        hosts: hosts
            .iter()
            .map(|host| Host::parse(host).unwrap())
            .collect(),
        sources: Box::default(),
        destinations: Box::default(),
        rank: 1,
        behind: 0,
        terminate: false,
        upstreams: upstreams
            .iter()
            .map(|(name, weight)| WeightedUpstream {
                upstream: Name::from(*name),
                weight: *weight,
                headers: None,
                filters: None,
            })
            .collect(),
        idle_timeout: Duration::ZERO,
        connect_timeout: Duration::from_secs(2),
    }
}

fn value(stream_route: StreamRoute) -> Value {
    Value::StreamRoute(Box::new(stream_route))
}

/// The story's proxy, with one listener for streams beside its HTTP listeners.
fn world() -> World {
    with_tcp(World::start())
}

pub(super) fn with_tcp(mut world: World) -> World {
    let listener = Listener {
        address: ([127, 0, 0, 1], 0).into(),
        tls: false,
        default_certificate: None,
        protocol: ListenerProtocol::Tcp,
        capture: None,
    };
    world.put("tcp", Value::Listener(Box::new(listener)));
    world
}

/// Says its name, then everything that it hears, and ends when the client has ended.
async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, name: &str) {
    let mut heard = name.as_bytes().to_vec();
    let mut bytes = vec![0; 16_384];
    while let Ok(count) = stream.read(&mut bytes).await {
        if count == 0 {
            break;
        }
        heard.extend_from_slice(&bytes[..count]);
    }
    stream.write_all(&heard).await.ok();
    stream.shutdown().await.ok();
}

pub(super) async fn plain_endpoint(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("endpoint", async move {
        while let Ok((tcp, _)) = listener.accept().await {
            task::spawn("endpoint connection", echo(tcp, name));
        }
    });
    address
}

/// An endpoint with a certificate of its own, and its leaf.
async fn tls_endpoint(name: &'static str, host: &str) -> (SocketAddr, Bytes) {
    tls_endpoint_at(([127, 0, 0, 1], 0).into(), name, host).await
}

/// An endpoint of TLS at an address.
pub(super) async fn tls_endpoint_at(
    address: SocketAddr,
    name: &'static str,
    host: &str,
) -> (SocketAddr, Bytes) {
    let certificate = certificate(&[host]);
    let leaf = certificate.chain[0].clone();
    let key = PrivatePkcs8KeyDer::from(certificate.key.expose().to_vec());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(leaf.to_vec())], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("endpoint", async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            task::spawn("endpoint connection", async move {
                if let Ok(tls) = acceptor.accept(tcp).await {
                    echo(tls, name).await;
                }
            });
        }
    });
    (address, leaf)
}

/// Says something, ends its half, and returns the answer.
pub(super) async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut Client<S>,
    text: &str,
) -> String {
    client.send(text).await;
    client.stream.shutdown().await.unwrap();
    client.read_to_end().await
}

pub(super) async fn ask_plain(world: &World, text: &str) -> String {
    let tcp = TcpStream::connect(world.address("tcp")).await.unwrap();
    ask(&mut Client::new(tcp), text).await
}

#[tokio::test]
async fn a_handshake_is_passed_to_the_endpoint_of_its_name() {
    let mut world = world();
    let (a, leaf_of_a) = tls_endpoint("a:", "a.example").await;
    let (b, leaf_of_b) = tls_endpoint("b:", "b.example").await;
    world.put_upstream("a", &[a]);
    world.put_upstream("b", &[b]);
    world.put(
        "a",
        value(stream_route("https", &["a.example"], &[("a", 1)])),
    );
    world.put(
        "b",
        value(stream_route("https", &["**.b.example"], &[("b", 1)])),
    );
    for (name, leaf, said) in [
        ("a.example", leaf_of_a, "a:"),
        ("x.b.example", leaf_of_b, "b:"),
    ] {
        let mut client = world.tls_client(name).await.unwrap();
        let session = client.stream.get_ref().1;
        assert_eq!(session.peer_certificates().unwrap()[0].as_ref(), &*leaf);
        assert_eq!(ask(&mut client, "hello").await, format!("{said}hello"));
    }
    world
        .counts("myriad_streams_total{event=\"ended\"} 2")
        .await;
}

#[tokio::test]
async fn a_domain_beside_stream_routes_is_served_as_ever() {
    let mut world = world();
    let backend = Backend::saying("hello").await;
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("*", "/", "u"));
    let leaf = world.put_domain("a.example", &["a.example"], TlsSettings::default());
    world.put(
        "wild",
        value(stream_route("https", &["**.example"], &[("u", 1)])),
    );
    let mut client = world.tls_client("a.example").await.unwrap();
    let session = client.stream.get_ref().1;
    assert_eq!(session.peer_certificates().unwrap()[0].as_ref(), &*leaf);
    client
        .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    let (head, body) = client.response().await;
    assert_eq!(header(&head, "content-length"), Some("5"));
    assert_eq!(body, "hello");
}

#[tokio::test]
async fn a_name_whose_stream_route_leads_nowhere_is_closed_and_not_another_domain() {
    let mut world = world();
    world.put_domain("*.example", &["*.example"], TlsSettings::default());
    world.put("closed", value(stream_route("https", &["a.example"], &[])));
    let error = world
        .tls_client("a.example")
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(!error.contains("UnrecognisedName"), "{error}");
    assert!(world.tls_client("b.example").await.is_ok());
}

#[tokio::test]
async fn an_unknown_name_is_closed_without_an_alert_where_handshakes_are_handed_on() {
    let mut world = world();
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    world.put("pass", value(stream_route("https", &["pass.example"], &[])));
    let error = world.tls_client("b.example").await.err().unwrap();
    assert!(!error.to_string().contains("UnrecognisedName"), "{error}");
    assert!(world.tls_client("a.example").await.is_ok());
    world.remove(Kind::StreamRoute, "pass");
    let error = world.tls_client("b.example").await.err().unwrap();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
}

#[tokio::test]
async fn a_listener_keeps_its_alerts_where_handshakes_are_handed_on_at_another() {
    let mut world = world();
    let listener = Listener {
        address: ([127, 0, 0, 1], 0).into(),
        tls: true,
        default_certificate: None,
        protocol: ListenerProtocol::Http,
        capture: None,
    };
    world.put("other", Value::Listener(Box::new(listener)));
    let mut passed = domain("pass.example", None, TlsSettings::default());
    passed.listeners = [Name::from("other")].into();
    passed.section = Some("gateway/shop/edge/pass".into());
    let passing = stream_route("gateway/shop/edge/pass", &["pass.example"], &[]);
    world.put("pass", Value::Domain(Box::new(passed)));
    world.put("pass", value(passing));
    let mut gets_alert = Vec::new();
    for listener in ["https", "other"] {
        let tcp = TcpStream::connect(world.address(listener)).await.unwrap();
        let name = ServerName::try_from("b.example").unwrap();
        let connected = TlsConnector::from(trusting()).connect(name, tcp).await;
        let error = connected.err().unwrap().to_string();
        gets_alert.push(error.contains("UnrecognisedName"));
    }
    assert_eq!(gets_alert, [true, false]);
}

#[tokio::test]
async fn tls_ends_here_and_its_bytes_are_a_stream() {
    let mut world = world();
    let address = plain_endpoint("plain:").await;
    world.put_upstream("u", &[address]);
    let leaf = world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let mut ended = stream_route("https", &["a.example"], &[("u", 1)]);
    ended.terminate = true;
    world.put("p", value(ended));
    let mut client = world.tls_client("a.example").await.unwrap();
    let session = client.stream.get_ref().1;
    assert_eq!(session.peer_certificates().unwrap()[0].as_ref(), &*leaf);
    assert_eq!(session.alpn_protocol(), None);
    assert_eq!(ask(&mut client, "hello").await, "plain:hello");
}

#[tokio::test]
async fn a_plain_connection_is_handed_on_with_each_half_closed_on_its_own() {
    let mut world = world();
    let address = plain_endpoint("e:").await;
    world.put_upstream("u", &[address]);
    world.put("p", value(stream_route("tcp", &[], &[("u", 1)])));
    let long = "x".repeat(3 << 20);
    assert_eq!(ask_plain(&world, &long).await.len(), long.len() + 2);
    assert_eq!(ask_plain(&world, "").await, "e:");
    world
        .counts("myriad_streams_total{event=\"ended\"} 2")
        .await;
    let received = format!(
        "myriad_stream_bytes_total{{direction=\"received\"}} {}",
        3 << 20
    );
    world.counts(&received).await;
}

#[tokio::test]
async fn tls_towards_the_endpoint_begins_here() {
    let mut world = world();
    let (address, _) = tls_endpoint("t:", "db.example").await;
    let tls = UpstreamTls {
        server_name: "db.example".into(),
        ..UpstreamTls::unverified()
    };
    world.put_upstream_with("u", &[address], Some(tls));
    world.put("p", value(stream_route("tcp", &[], &[("u", 1)])));
    assert_eq!(ask_plain(&world, "hello").await, "t:hello");
}

#[tokio::test]
async fn weights_divide_streams_and_an_endpoint_that_is_down_is_passed_over() {
    let mut world = world();
    let (a, b) = (plain_endpoint("a").await, plain_endpoint("b").await);
    let down = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    world.put_upstream("a", &[a, down]);
    world.put_upstream("b", &[b]);
    world.put_upstream("gone", &[down]);
    let shares = [("a", 75), ("b", 25), ("none", 0)];
    world.put("p", value(stream_route("tcp", &[], &shares)));
    let mut of_a = 0;
    for _ in 0..200 {
        match ask_plain(&world, "").await.as_str() {
            "a" => of_a += 1,
            "b" => {}
            other => panic!("{other:?}"),
        }
    }
    assert!((120..180).contains(&of_a), "{of_a}");
    world.put("p", value(stream_route("tcp", &[], &[("gone", 1)])));
    assert_eq!(ask_plain(&world, "").await, "");
    world.put("p", value(stream_route("tcp", &[], &[("missing", 1)])));
    assert_eq!(ask_plain(&world, "").await, "");
    world
        .counts("myriad_streams_total{event=\"failed\"} 2")
        .await;
}

#[tokio::test]
async fn a_silent_stream_ends_and_so_does_one_that_no_stream_route_takes_any_more() {
    let limits = Limits {
        stream_look: Duration::from_millis(100),
        stream_drain: Duration::from_millis(100),
        ..Limits::default()
    };
    let settings = Settings {
        workers: 1,
        limits,
        ..Settings::default()
    };
    let mut world = with_tcp(World::start_with(settings));
    let address = plain_endpoint("e:").await;
    world.put_upstream("u", &[address]);
    let mut silent = stream_route("tcp", &[], &[("u", 1)]);
    silent.idle_timeout = Duration::from_millis(300);
    world.put("p", value(silent));
    let tcp = TcpStream::connect(world.address("tcp")).await.unwrap();
    assert_eq!(Client::new(tcp).read_to_end().await, "");
    world.counts("myriad_streams_total{event=\"idle\"} 1").await;
    world.put("p", value(stream_route("tcp", &[], &[("u", 1)])));
    let tcp = TcpStream::connect(world.address("tcp")).await.unwrap();
    let mut client = Client::new(tcp);
    client.send("hello").await;
    world
        .counts("myriad_streams_total{event=\"opened\"} 2")
        .await;
    world.remove(Kind::StreamRoute, "p");
    client.read_to_end().await;
    world
        .counts("myriad_streams_total{event=\"removed\"} 1")
        .await;
}

#[tokio::test]
async fn a_drain_lets_streams_end() {
    let mut world = world();
    let address = plain_endpoint("e:").await;
    world.put_upstream("u", &[address]);
    world.put("p", value(stream_route("tcp", &[], &[("u", 1)])));
    let tcp = TcpStream::connect(world.address("tcp")).await.unwrap();
    let mut client = Client::new(tcp);
    client.send("hel").await;
    world
        .counts("myriad_streams_total{event=\"opened\"} 1")
        .await;
    let proxy = world.proxy;
    let drained = task::spawn("drain", proxy.drain());
    assert_eq!(ask(&mut client, "lo").await, "e:hello");
    tokio::time::timeout(PATIENCE, drained).await.unwrap().ok();
}

#[tokio::test]
async fn many_streams_at_a_time_keep_their_bytes_apart() {
    let mut world = world();
    let address = plain_endpoint("").await;
    world.put_upstream("u", &[address]);
    world.put("p", value(stream_route("tcp", &[], &[("u", 1)])));
    let at = world.address("tcp");
    let mut clients = Vec::new();
    for number in 0..500 {
        let mut client = Client::new(TcpStream::connect(at).await.unwrap());
        client.send(format!("{number}-")).await;
        clients.push(client);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(ask(client, "end").await, format!("{number}-end"));
    }
}

/// A proxy with 40 places for connections, a stream route of a namespace at a listener, and a route
/// of another one.
async fn crowded(listener: &str, hosts: &[&str]) -> World {
    let limits = Limits {
        connections_max: 40,
        ..Limits::default()
    };
    let mut world = with_tcp(World::limited(limits));
    let (endpoint, backend) = (plain_endpoint("e:").await, Backend::saying("ok").await);
    world.put_upstream("u", &[endpoint]);
    world.put_upstream("v", &[backend.address]);
    let streams = value(stream_route(listener, hosts, &[("u", 1)]));
    world.put_all_of("flood", vec![("p", streams)]);
    let quiet = Value::Route(Box::new(route("quiet.example", "/", "v")));
    world.put_all_of("quiet", vec![("r", quiet)]);
    world
}

/// Sees to it that clients of the other namespace are answered, beside each other.
async fn others_are_answered(world: &World) {
    world.answers_all("quiet.example", 4).await;
    for refused in [
        "connections_evicted_total{state=\"idle\"} 0\n",
        "shed_total 0\n",
    ] {
        world.counts(refused).await;
    }
}

#[tokio::test]
async fn streams_of_one_namespace_leave_others_a_fifth_of_the_places_and_stay() {
    let world = crowded("tcp", &[]).await;
    let mut flood = Vec::new();
    for _ in 0..60 {
        flood.push(TcpStream::connect(world.address("tcp")).await.unwrap());
    }
    world
        .counts("fair_share_refused_total{of=\"connections\"} 28\n")
        .await;
    world
        .counts("myriad_streams_total{event=\"opened\"} 32\n")
        .await;
    others_are_answered(&world).await;
    let mut flood: Vec<_> = flood.into_iter().map(Client::new).collect();
    // Those that are beyond the share are closed, and no other.
    for client in &mut flood[32..] {
        assert_eq!(client.read_to_end().await, "");
    }
    for client in &mut flood[..32] {
        assert_eq!(ask(client, "hello").await, "e:hello");
    }
    // What has ended leaves its place to the next one.
    world
        .counts("myriad_streams_total{event=\"ended\"} 32\n")
        .await;
    assert_eq!(ask_plain(&world, "again").await, "e:again");
}

#[tokio::test]
async fn handshakes_that_are_passed_on_have_a_share_by_their_name() {
    let world = crowded("https", &["flood.example"]).await;
    let hello = hello("flood.example");
    let mut flood = Vec::new();
    for number in 1..=60 {
        let tcp = TcpStream::connect(world.address("https")).await.unwrap();
        let mut client = Client::new(tcp);
        client.send(&hello).await;
        match number {
            0..=32 => {
                let opened = format!("myriad_streams_total{{event=\"opened\"}} {number}\n");
                world.counts(&opened).await;
            }
            _ => assert_eq!(client.read_to_end().await, ""),
        }
        flood.push(client);
    }
    world
        .counts("fair_share_refused_total{of=\"connections\"} 28\n")
        .await;
    others_are_answered(&world).await;
}

/// Addresses at which everything that listens on `0.0.0.0` is met.
fn own_addresses() -> Vec<IpAddr> {
    let mut own: Vec<IpAddr> = ["127.0.0.1", "127.0.0.9", "0.0.0.0"]
        .map(|ip| ip.parse().unwrap())
        .into();
    // The one that this machine is seen by, where there is a way out; nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.7:9").is_ok() {
        own.push(socket.local_addr().unwrap().ip());
    }
    own
}

/// Each accepted half was one more client, and led to the next: a core for one connection.
#[tokio::test]
async fn a_listener_that_is_its_own_endpoint_accepts_its_clients_and_nobody_else() {
    let mut world = World::start();
    let listener = Listener {
        address: (Ipv4Addr::UNSPECIFIED, 0).into(),
        tls: false,
        default_certificate: None,
        protocol: ListenerProtocol::Tcp,
        capture: None,
    };
    world.put("tcp", Value::Listener(Box::new(listener)));
    world.put("p", value(stream_route("tcp", &[], &[("u", 1)])));
    let port = world.address("tcp").port();
    let mut accepted = 0;
    for ip in own_addresses() {
        world.put_upstream("u", &[SocketAddr::new(ip, port)]);
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        assert_eq!(Client::new(tcp.unwrap()).read_to_end().await, "", "{ip}");
        accepted += 1;
        let failed = format!("myriad_streams_total{{event=\"failed\"}} {accepted}\n");
        world.counts(&failed).await;
        // What the kernel has of an own connection would be accepted before this one.
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        assert_eq!(Client::new(tcp.unwrap()).read_to_end().await, "", "{ip}");
        accepted += 1;
        let line = format!("connections_accepted_total {accepted}\n");
        world.counts(&line).await;
    }
    let refused = format!("endpoint_connections_refused_total {accepted}\n");
    world.counts(&refused).await;
    let all = format!("connections_accepted_total {accepted}\n");
    assert!(world.metrics.encode().contains(&all));
}
