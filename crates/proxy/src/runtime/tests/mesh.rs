//! Connections that network rules lead to the proxy. Each story runs in a network of its own,
//! which takes root, `unshare`, `ip` and `nft`; without them it fails and says so. Those of
//! [`within`] need none: what they begin with is what others have captured.
//!
//! In such a network 10.9.0.0/24 is elsewhere and captured as outbound, 10.9.1.0/24 is a workload
//! and captured as inbound; what comes from 127.0.0.6 is left alone.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use myriad_base::task;
use myriad_model::{
    Capture, CaptureDirection, Endpoint, Endpoints, Host, Listener, ListenerProtocol, MutualTls,
    Name, Protocol, Retry, RetryConditions, Route, StreamRoute, Upstream, Value, WeightedUpstream,
};
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use super::limits::counted;
use super::streams;
use super::world::{Backend, Client, World, route, trusting, with_policy};
use crate::{Limits, Settings};

mod counted;
mod mutual;
mod traced;
mod undeclared;
mod within;

const OUTBOUND: &str = "127.0.0.1:15001";
const INBOUND: &str = "0.0.0.0:15006";

/// Tells a story that it is in a network of its own.
const INSIDE: &str = "MYRIAD_TEST_NETWORK";

const NETWORK: &str = r#"
set -e
ip link set lo up
ip addr add 10.9.0.1/24 dev lo
ip addr add 10.9.1.1/24 dev lo
nft -f - <<'RULES'
table ip capture {
    chain output {
        type nat hook output priority -100;
        ip saddr 127.0.0.6 accept
        ip daddr 10.9.0.0/24 meta l4proto tcp redirect to :15001
        ip daddr 10.9.1.0/24 meta l4proto tcp redirect to :15006
    }
}
RULES
exec "$@"
"#;

/// Whether the story is in a network of its own. Outside, it is run in one first.
fn is_inside(story: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let status = Command::new("unshare")
        .args(["--net", "sh", "-c", NETWORK, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("runtime::tests::mesh::{story}")])
        .arg("--nocapture")
        .env(INSIDE, "yes")
        .status();
    let status = status.expect("this test needs `unshare`");
    assert!(
        status.success(),
        "the story failed in a network of its own, or there is none: it needs root, ip and nft"
    );
    false
}

fn world() -> World {
    world_that_waits(Duration::from_millis(200))
}

/// One in which first bytes are waited for so long.
fn world_that_waits(detection_timeout: Duration) -> World {
    world_within(Limits {
        detection_timeout,
        ..Limits::default()
    })
}

/// One with these limits.
fn world_within(limits: Limits) -> World {
    let capture = |direction, address: &str| (direction, address.parse().unwrap());
    World::start_with(Settings {
        workers: 1,
        captures: vec![
            capture(CaptureDirection::Outbound, OUTBOUND),
            capture(CaptureDirection::Inbound, INBOUND),
        ],
        limits: Limits {
            stream_look: Duration::from_millis(20),
            stream_drain: Duration::from_millis(20),
            ..limits
        },
        ..Settings::default()
    })
}

fn listener(address: &str, protocol: ListenerProtocol, mutual: Option<MutualTls>) -> Value {
    let direction = match mutual {
        None => CaptureDirection::Outbound,
        Some(_) => CaptureDirection::Inbound,
    };
    let mutual = mutual.unwrap_or_default();
    Value::Listener(Box::new(Listener {
        address: address.parse().unwrap(),
        tls: false,
        default_certificate: None,
        protocol,
        capture: Some(Capture {
            direction,
            mutual,
            detects_hosts: false,
        }),
    }))
}

fn on(listener: &str, host: &str, upstream: &str) -> Route {
    Route {
        listeners: [Name::from(listener)].into(),
        ..route(host, "/", upstream)
    }
}

fn stream_route(listener: &str, hosts: &[&str], destination: &str, upstream: &str) -> Value {
    let hosts = hosts.iter().map(|host| Host::parse(host).unwrap());
    let upstream = WeightedUpstream {
        upstream: upstream.into(),
        weight: 1,
        headers: None,
        filters: None,
    };
    Value::StreamRoute(Box::new(StreamRoute {
        listeners: [Name::from(listener)].into(),
        hosts: hosts.collect(),
        sources: Box::default(),
        destinations: [destination.parse().unwrap()].into(),
        rank: 1,
        behind: 0,
        terminate: false,
        upstreams: [upstream].into(),
        idle_timeout: Duration::ZERO,
        connect_timeout: Duration::from_secs(2),
    }))
}

/// Leads to what connections were meant for, from where the rules leave them alone.
fn original(protocol: Protocol) -> Value {
    Value::Upstream(Box::new(Upstream {
        original_destination: true,
        source_address: Some(Box::new([127, 0, 0, 6].into())),
        ..Upstream::plain(protocol)
    }))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

async fn connect(text: &str) -> Client<TcpStream> {
    Client::new(TcpStream::connect(address(text)).await.unwrap())
}

/// Status and body of a request.
async fn ask(at: &str, host: &str) -> (String, String) {
    let mut client = connect(at).await;
    ask_again(&mut client, host).await
}

async fn ask_again(client: &mut Client<TcpStream>, host: &str) -> (String, String) {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    client.send(request).await;
    let (head, body) = client.response().await;
    (head[9..12].to_owned(), body)
}

fn said(status: &str, body: &str) -> (String, String) {
    (status.to_owned(), body.to_owned())
}

async fn app(at: &str, text: &'static str) {
    let answer = move |_: &str| {
        let length = text.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}")
    };
    Backend::answering_at(address(at), answer).await;
}

/// Says who connected before it hears anything, and then what it heard.
async fn server_first(at: &str) {
    let listener = TcpListener::bind(address(at)).await.unwrap();
    task::spawn("server first", async move {
        while let Ok((mut tcp, peer)) = listener.accept().await {
            task::spawn("server first connection", async move {
                let hello = format!("hello {}\n", peer.ip());
                tcp.write_all(hello.as_bytes()).await.unwrap();
                let (mut reader, mut writer) = tcp.split();
                tokio::io::copy(&mut reader, &mut writer).await.ok();
            });
        }
    });
}

/// Whether there is no answer; an alert of TLS is none.
async fn is_closed(at: &str, text: &str) -> bool {
    let Ok(mut tcp) = TcpStream::connect(address(at)).await else {
        return true;
    };
    let sent = tcp.write_all(text.as_bytes()).await;
    let mut bytes = [0; 64];
    let read = tcp.read(&mut bytes).await;
    sent.is_err() || read.is_err() || !bytes.starts_with(b"HTTP")
}

#[tokio::test]
async fn a_captured_connection_belongs_to_the_nearest_listener() {
    if !is_inside("a_captured_connection_belongs_to_the_nearest_listener") {
        return;
    }
    let mut world = world();
    let (exact, port) = (
        Backend::saying("exact").await,
        Backend::saying("port").await,
    );
    world.put_upstream("exact", &[exact.address]);
    world.put_upstream("port", &[port.address]);
    app("10.9.0.20:81", "itself").await;
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(is_closed("10.9.0.10:80", get).await, "no listener");
    let http = ListenerProtocol::Http;
    world.put_all(vec![
        (
            "outbound/10.9.0.10:80",
            listener("10.9.0.10:80", http, None),
        ),
        ("outbound/any:80", listener("0.0.0.0:80", http, None)),
        (
            "inbound/any:80",
            listener("0.0.0.0:80", http, Some(MutualTls::None)),
        ),
    ]);
    world.put_route("a", on("outbound/10.9.0.10:80", "*", "exact"));
    world.put_route("b", on("outbound/any:80", "b.example", "port"));
    assert_eq!(ask("10.9.0.10:80", "a").await, said("200", "exact"));
    assert_eq!(ask("10.9.0.11:80", "b.example").await, said("200", "port"));
    assert_eq!(ask("10.9.0.11:80", "c.example").await.0, "502");
    assert_eq!(ask("10.9.1.11:80", "b.example").await.0, "502");
    assert!(
        is_closed("10.9.0.10:81", get).await,
        "no listener for the port"
    );
    // What nobody knows is passed on to where it was meant for, from the address of the rules.
    let tcp = ListenerProtocol::Tcp;
    world.put("outbound/any:any", listener("0.0.0.0:0", tcp, None));
    assert!(is_closed("10.9.0.20:81", get).await, "no stream route");
    world.put("original", original(Protocol::Http1));
    let name = "outbound/any:any";
    world.put("all", stream_route(name, &[], "10.9.0.0/25", "original"));
    assert_eq!(ask("10.9.0.20:81", "a").await, said("200", "itself"));
    assert!(is_closed("10.9.0.200:81", get).await, "another destination");
    assert!(
        is_closed(OUTBOUND, get).await,
        "a connection to the proxy itself"
    );
    assert!(
        is_closed("10.9.1.1:15006", get).await,
        "and to its other socket"
    );
    world.remove(myriad_model::Kind::Listener, "outbound/10.9.0.10:80");
    assert_eq!(ask("10.9.0.10:80", "b.example").await, said("200", "port"));
    world.proxy.drain().await;
}

#[tokio::test]
async fn a_stream_to_nobody_who_is_known_stays_whoever_comes_and_goes_at_its_port() {
    if !is_inside("a_stream_to_nobody_who_is_known_stays_whoever_comes_and_goes_at_its_port") {
        return;
    }
    let mut world = world();
    let (any, port) = ("outbound/any:any", "outbound/any:25");
    let tcp = ListenerProtocol::Tcp;
    for upstream in ["elsewhere", "service"] {
        world.put(upstream, original(Protocol::Http1));
    }
    for at in ["10.9.0.20:25", "10.9.0.21:25"] {
        server_first(at).await;
    }
    let to_all = |listener| stream_route(listener, &[], "0.0.0.0/0", "elsewhere");
    let to_service = || stream_route(port, &[], "10.9.0.21/32", "service");
    world.put(any, listener("0.0.0.0:0", tcp, None));
    world.put("all", to_all(any));
    let mut strangers: Vec<Client<TcpStream>> = Vec::new();
    for protocol in [tcp, ListenerProtocol::Detected] {
        // Somebody comes with a Service at the port, and all connections to it are of his listener.
        world.put(port, listener("0.0.0.0:25", protocol, None));
        world.put("a service", to_service());
        world.put("rest", to_all(port));
        let mut undeclared = connect("10.9.0.20:25").await;
        assert_eq!(undeclared.read_until("\n").await, "hello 127.0.0.6\n");
        strangers.push(undeclared);
        let mut led = connect("10.9.0.21:25").await;
        assert_eq!(led.read_until("\n").await, "hello 127.0.0.6\n");
        // He goes, and with him what he has led: it is looked at after the others.
        world.remove(myriad_model::Kind::Listener, port);
        world.remove(myriad_model::Kind::StreamRoute, "a service");
        world.remove(myriad_model::Kind::StreamRoute, "rest");
        assert_eq!(led.read_to_end().await, "");
        for stream in &mut strangers {
            stream.send("MAIL\r\n").await;
            assert_eq!(stream.read_until("\n").await, "MAIL\r\n");
        }
    }
    // Where nothing takes what is undeclared any more, they end.
    world.remove(myriad_model::Kind::StreamRoute, "all");
    for stream in &mut strangers {
        assert_eq!(stream.read_to_end().await, "");
    }
    world.proxy.drain().await;
}

/// A client that has a port of its own, so that those of the system are left alone.
async fn connect_from(port: u16, at: &str) -> Client<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([0; 4], port).into()).unwrap();
    Client::new(socket.connect(address(at)).await.unwrap())
}

#[tokio::test]
async fn where_no_port_is_free_for_an_endpoint_its_next_connection_waits_and_no_other_does() {
    if !is_inside(
        "where_no_port_is_free_for_an_endpoint_its_next_connection_waits_and_no_other_does",
    ) {
        return;
    }
    let mut world = world();
    let any = "outbound/any:any";
    world.put(any, listener("0.0.0.0:0", ListenerProtocol::Tcp, None));
    world.put("elsewhere", original(Protocol::Http1));
    world.put("all", stream_route(any, &[], "0.0.0.0/0", "elsewhere"));
    for at in ["10.9.0.20:25", "10.9.0.21:25"] {
        server_first(at).await;
    }
    // The system has one port to connect from, in this network.
    let range = "/proc/sys/net/ipv4/ip_local_port_range";
    std::fs::write(range, "40000 40000").unwrap();
    let mut first = connect_from(50_001, "10.9.0.20:25").await;
    assert_eq!(first.read_until("\n").await, "hello 127.0.0.6\n");
    let mut second = connect_from(50_002, "10.9.0.20:25").await;
    let crowded = "upstream_connections_total{event=\"crowded\"} 1\n";
    world.counts(crowded).await;
    let mut elsewhere = connect_from(50_003, "10.9.0.21:25").await;
    assert_eq!(elsewhere.read_until("\n").await, "hello 127.0.0.6\n");
    // One that breaks off keeps no port.
    let linger = Some(Duration::ZERO);
    SockRef::from(&first.stream).set_linger(linger).unwrap();
    drop(first);
    assert_eq!(second.read_until("\n").await, "hello 127.0.0.6\n");
    // One for which none becomes free in time says nothing of the endpoint.
    let mut third = connect_from(50_004, "10.9.0.20:25").await;
    assert_eq!(third.read_to_end().await, "");
    world.counts(&crowded.replace(" 1", " 2")).await;
    let failed = "upstream_connections_total{event=\"failed\"}";
    assert_eq!(counted(&world, failed), 0);
    world.proxy.drain().await;
}

/// An upstream in plain text whose connections are left alone.
fn put_left_alone(world: &mut World, name: &str, endpoints: &[&str]) {
    let upstream = Upstream {
        source_address: Some(Box::new([127, 0, 0, 6].into())),
        ..Upstream::plain(Protocol::Http1)
    };
    let endpoints = endpoints.iter().map(|at| Endpoint::even(address(at)));
    let endpoints = Endpoints::new(endpoints.collect::<Vec<_>>().into());
    world.put_all(vec![
        (name, Value::Upstream(Box::new(upstream))),
        (name, Value::Endpoints(Box::new(endpoints))),
    ]);
}

/// A route that says what leads to repetitions had none where a port was missing.
#[tokio::test]
async fn where_no_port_is_free_for_an_endpoint_a_rule_leads_to_another_one() {
    if !is_inside("where_no_port_is_free_for_an_endpoint_a_rule_leads_to_another_one") {
        return;
    }
    let mut world = world();
    let any = "outbound/any:any";
    world.put(any, listener("0.0.0.0:0", ListenerProtocol::Tcp, None));
    world.put("elsewhere", original(Protocol::Http1));
    world.put("all", stream_route(any, &[], "0.0.0.0/0", "elsewhere"));
    server_first("10.9.0.20:25").await;
    app("10.9.0.21:80", "ok").await;
    put_left_alone(&mut world, "one", &["10.9.0.20:25"]);
    put_left_alone(&mut world, "both", &["10.9.0.20:25", "10.9.0.21:80"]);
    let name = "outbound/10.9.0.10:80";
    world.put(name, listener("10.9.0.10:80", ListenerProtocol::Http, None));
    for upstream in ["one", "both"] {
        let retrying = with_policy(on(name, upstream, upstream), |policy| {
            policy.connect_timeout = Duration::from_millis(300);
            policy.retry = Some(Box::new(Retry {
                attempts: 1,
                try_timeout: Duration::ZERO,
                conditions: RetryConditions::CONNECT_FAILURE,
                statuses: Box::default(),
                backoff: Duration::from_millis(1),
            }));
        });
        world.put_route(upstream, retrying);
    }
    // The only port is taken for one of them.
    let range = "/proc/sys/net/ipv4/ip_local_port_range";
    std::fs::write(range, "40000 40000").unwrap();
    let mut first = connect_from(50_001, "10.9.0.20:25").await;
    assert_eq!(first.read_until("\n").await, "hello 127.0.0.6\n");
    let crowded = "upstream_connections_total{event=\"crowded\"}";
    let mut client = connect_from(50_002, "10.9.0.10:80").await;
    for _ in 0..64 {
        let answer = ask_again(&mut client, "both").await;
        assert_eq!(answer, said("200", "ok"));
        if counted(&world, crowded) > 0 {
            break;
        }
    }
    let before = counted(&world, crowded);
    assert!(before > 0, "the endpoint was never chosen");
    // Where there is no other one, nobody waits once more.
    assert_eq!(ask_again(&mut client, "one").await.0, "503");
    assert_eq!(counted(&world, crowded), before + 1);
    world.proxy.drain().await;
}

#[tokio::test]
async fn an_endpoint_that_no_address_leads_to_fails_at_once_and_is_not_waited_for() {
    if !is_inside("an_endpoint_that_no_address_leads_to_fails_at_once_and_is_not_waited_for") {
        return;
    }
    let mut world = world();
    for of in ["all", "lo"] {
        let path = format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6");
        std::fs::write(path, "1").unwrap();
    }
    let name = "outbound/10.9.0.10:80";
    world.put(name, listener("10.9.0.10:80", ListenerProtocol::Http, None));
    world.put_upstream("six", &[address("[2001:db8::7]:80")]);
    world.put_route("a", on(name, "*", "six"));
    assert_eq!(ask("10.9.0.10:80", "a").await.0, "502");
    let crowded = "upstream_connections_total{event=\"crowded\"}";
    assert_eq!(counted(&world, crowded), 0);
    world.proxy.drain().await;
}

#[tokio::test]
async fn http_that_strangers_alone_speak_delays_nobody_who_is_not_theirs() {
    if !is_inside("http_that_strangers_alone_speak_delays_nobody_who_is_not_theirs") {
        return;
    }
    // Whoever waits for it gets nothing in this story.
    let mut world = world_that_waits(Duration::from_secs(600));
    let backend = Backend::saying("a stranger").await;
    world.put_upstream("strangers", &[backend.address]);
    world.put("elsewhere", original(Protocol::Http1));
    let name = "outbound/any:80";
    let mut detecting = listener("0.0.0.0:80", ListenerProtocol::Detected, None);
    if let Value::Listener(listener) = &mut detecting {
        listener.capture.as_mut().unwrap().detects_hosts = true;
    }
    world.put(name, detecting);
    world.put_route("a", on(name, "10.9.0.20", "strangers"));
    world.put_route("b", on(name, "cart.shop", "strangers"));
    world.put_route("c", on("outbound/any:8080", "10.9.0.22", "strangers"));
    world.put("all", stream_route(name, &[], "0.0.0.0/0", "elsewhere"));
    for at in ["10.9.0.21:80", "10.9.0.22:80"] {
        server_first(at).await;
    }
    // At the address of a Service requests are told by their host.
    for host in ["cart.shop", "10.9.0.20"] {
        assert_eq!(ask("10.9.0.20:80", host).await, said("200", "a stranger"));
    }
    // Elsewhere bytes pass at once, whoever speaks first, and also where another listener has the
    // address for a host.
    for at in ["10.9.0.21:80", "10.9.0.22:80"] {
        let mut client = connect(at).await;
        assert_eq!(client.read_until("\n").await, "hello 127.0.0.6\n");
    }
    // Where nobody takes bytes, requests are all that anybody could serve.
    world.remove(myriad_model::Kind::StreamRoute, "all");
    let asked = ask("10.9.0.21:80", "cart.shop").await;
    assert_eq!(asked, said("200", "a stranger"));
    world.proxy.drain().await;
}

#[tokio::test]
async fn what_is_not_declared_is_found_out() {
    if !is_inside("what_is_not_declared_is_found_out") {
        return;
    }
    let mut world = world();
    let name = "outbound/any:any";
    let detected = ListenerProtocol::Detected;
    world.put(name, listener("0.0.0.0:0", detected, None));
    world.put("http", original(Protocol::Http1));
    world.put("bytes", original(Protocol::Http1));
    world.put_route("all", on(name, "*", "http"));
    world.put("all", stream_route(name, &[], "0.0.0.0/0", "bytes"));
    app("10.9.0.20:80", "itself").await;
    server_first("10.9.0.20:25").await;
    assert_eq!(ask("10.9.0.20:80", "a").await, said("200", "itself"));
    let mut client = connect("10.9.0.20:25").await;
    assert_eq!(client.read_until("\n").await, "hello 127.0.0.6\n");
    client.send("MAIL\r\n").await;
    assert_eq!(client.read_until("\n").await, "MAIL\r\n");
    // A handshake is handed on by its name.
    let at = address("10.9.0.20:443");
    let (tls, _) = streams::tls_endpoint_at(at, "own:", "a.example").await;
    world.put_upstream("tls", &[tls]);
    let of_bytes = Upstream {
        source_address: Some(Box::new([127, 0, 0, 6].into())),
        ..Upstream::plain(Protocol::Http1)
    };
    world.put("tls", Value::Upstream(Box::new(of_bytes)));
    world.put(
        "sni",
        stream_route(name, &["a.example"], "0.0.0.0/0", "tls"),
    );
    let tcp = TcpStream::connect(address("10.9.0.99:443")).await.unwrap();
    let server = ServerName::try_from("a.example").unwrap();
    let tls = TlsConnector::from(trusting()).connect(server, tcp).await;
    let mut client = Client::new(tls.unwrap());
    assert_eq!(streams::ask(&mut client, "x").await, "own:x");
    // HTTP/2 by prior knowledge is served as such.
    let tcp = TcpStream::connect(address("10.9.0.20:80")).await.unwrap();
    let (mut send, connection) = ::h2::client::handshake(tcp).await.unwrap();
    task::spawn("connection", async move {
        connection.await.ok();
    });
    let request = http::Request::get("http://a/").body(()).unwrap();
    let (response, _) = send.send_request(request, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
}
