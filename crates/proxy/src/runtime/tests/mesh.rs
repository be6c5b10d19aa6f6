//! Connections that network rules lead to the proxy. Each story runs in a network of its own,
//! which takes root, `unshare`, `ip` and `nft`; without them it fails and says so.
//!
//! In such a network 10.9.0.0/24 is elsewhere and captured as outbound, 10.9.1.0/24 is a workload
//! and captured as inbound; what comes from 127.0.0.6 is left alone.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::task;
use myriad_model::{
    Capture, CaptureDirection, Certificate, Endpoint, Endpoints, Host, KeyEncoding, Listener,
    ListenerProtocol, MeshTls, MutualTls, Name, PrivateKey, Protocol, Route, StreamRoute, Trust,
    Upstream, UpstreamTls, Users, Value, WeightedUpstream,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::streams;
use super::world::{Backend, Client, World, route, trusting};
use crate::{Identity, Limits, Settings};

mod counted;

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
    let capture = |direction, address: &str| (direction, address.parse().unwrap());
    World::start_with(Settings {
        workers: 1,
        captures: vec![
            capture(CaptureDirection::Outbound, OUTBOUND),
            capture(CaptureDirection::Inbound, INBOUND),
        ],
        limits: Limits {
            detection_timeout: Duration::from_millis(200),
            stream_look: Duration::from_millis(20),
            stream_drain: Duration::from_millis(20),
            ..Limits::default()
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
        capture: Some(Capture { direction, mutual }),
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
    };
    Value::StreamRoute(Box::new(StreamRoute {
        listeners: [Name::from(listener)].into(),
        hosts: hosts.collect(),
        sources: Box::default(),
        destinations: [destination.parse().unwrap()].into(),
        rank: 1,
        terminate: false,
        upstreams: [upstream].into(),
        idle_timeout: Duration::ZERO,
        connect_timeout: Duration::from_secs(2),
    }))
}

/// Leads to what connections were meant for, from where the rules leave them alone.
fn original(protocol: Protocol) -> Value {
    Value::Upstream(Upstream {
        original_destination: true,
        source_address: Some(Box::new([127, 0, 0, 6].into())),
        ..Upstream::plain(protocol)
    })
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
    world.put("tls", Value::Upstream(of_bytes));
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

/// An authority of a mesh.
struct Authority(Issuer<'static, KeyPair>, Bytes);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        let der = Bytes::from(own.der().to_vec());
        Authority(Issuer::new(params, key), der)
    }

    fn identity(&self, account: &str, trusted: &[&Authority]) -> Identity {
        self.identity_of(account, trusted, CertificateParams::default())
    }

    fn identity_of(
        &self,
        account: &str,
        trusted: &[&Authority],
        mut params: CertificateParams,
    ) -> Identity {
        let uri = uri(account);
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        Identity {
            certificate: Certificate {
                chain: [Bytes::from(leaf.der().to_vec())].into(),
                key: PrivateKey::new(KeyEncoding::Pkcs8, key.serialize_der().into()),
            },
            roots: Trust {
                roots: trusted.iter().map(|it| it.1.clone()).collect(),
                crls: Box::default(),
                users: Users::default(),
            },
            trust_domains: Arc::default(),
        }
    }
}

fn uri(account: &str) -> String {
    format!("spiffe://cluster.local/ns/shop/sa/{account}")
}

/// Puts an upstream that speaks mutual TLS to `10.9.1.20:80`, and expects one of these accounts
/// there.
fn put_secured(world: &mut World, name: &str, protocol: Protocol, accounts: &[&str]) {
    let upstream = Upstream {
        tls: Some(Box::new(UpstreamTls {
            server_name: "outbound_.80_._.b.shop.svc.cluster.local".into(),
            subject_alt_names: accounts.iter().map(|it| uri(it).into()).collect(),
            mesh: MeshTls::Flagged,
            ..UpstreamTls::unverified()
        })),
        ..Upstream::plain(protocol)
    };
    let endpoint = Endpoint {
        mesh: true,
        ..Endpoint::even(address("10.9.1.20:80"))
    };
    let endpoints = Endpoints::new([endpoint].into());
    world.put_all(vec![
        (name, Value::Upstream(upstream)),
        (name, Value::Endpoints(endpoints)),
    ]);
}

/// A workload behind `inbound/any:80`, and what leads to it.
async fn meshed(protocol: ListenerProtocol, mutual: MutualTls) -> World {
    let mut world = world();
    let of_client = ListenerProtocol::Http;
    world.put_all(vec![
        ("outbound/any:80", listener("0.0.0.0:80", of_client, None)),
        (
            "inbound/any:80",
            listener("0.0.0.0:80", protocol, Some(mutual)),
        ),
        ("original", original(Protocol::Http1)),
        ("stream", original(Protocol::Http1)),
        (
            "in",
            stream_route("inbound/any:80", &[], "0.0.0.0/0", "stream"),
        ),
    ]);
    world.put_route("out", on("outbound/any:80", "*", "b"));
    world.put_route("in", on("inbound/any:80", "*", "original"));
    put_secured(&mut world, "b", Protocol::Https1, &["b"]);
    Backend::answering_at(address("10.9.1.20:80"), |head| {
        let find = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or("nothing").to_owned()
        };
        let cert = find("x-forwarded-client-cert: ");
        let by = cert.rsplit_once("URI=").map_or("nobody", |(_, uri)| uri);
        let claim = match head.contains("\r\nx-scheme: ") {
            true => ", as claimed",
            false => "",
        };
        let text = format!("{by} {}{claim}", find("x-forwarded-proto: "));
        let length = text.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}")
    })
    .await;
    world
}

#[tokio::test]
async fn under_strict_only_the_mesh_gets_through_and_only_to_whom_it_expects() {
    if !is_inside("under_strict_only_the_mesh_gets_through_and_only_to_whom_it_expects") {
        return;
    }
    let mut world = meshed(ListenerProtocol::Http, MutualTls::Strict).await;
    let (outside, inside) = ("10.9.0.10:80", "10.9.1.20:80");
    let get = "GET / HTTP/1.1\r\nHost: b\r\n\r\n";
    assert_eq!(ask(outside, "b").await.0, "503", "nobody is anybody yet");
    assert!(is_closed(inside, get).await);
    let (authority, other) = (Authority::new(), Authority::new());
    let identify = |world: &mut World, account, by: &Authority, trusted: &[&Authority]| {
        world.proxy.identify(by.identity(account, trusted)).unwrap();
    };
    identify(&mut world, "b", &authority, &[&authority]);
    let known = said("200", &format!("{} http", uri("b")));
    assert_eq!(ask(outside, "b").await, known);
    assert!(is_closed(inside, get).await, "plain text");
    let tcp = TcpStream::connect(address(inside)).await.unwrap();
    let server = ServerName::try_from("b.example").unwrap();
    let config = offering(b"istio-http/1.1");
    let stranger = TlsConnector::from(config).connect(server, tcp).await;
    // In TLS 1.3 a client learns of an alert only when it reads.
    let refused = match stranger {
        Ok(mut stranger) => {
            stranger.write_all(get.as_bytes()).await.ok();
            !matches!(stranger.read(&mut [0; 64]).await, Ok(1..))
        }
        Err(_) => true,
    };
    assert!(refused, "a client without a certificate");
    put_secured(&mut world, "b", Protocol::H2, &["b"]);
    assert_eq!(ask(outside, "b").await, known, "HTTP/2 between the proxies");
    put_secured(&mut world, "b", Protocol::Https1, &["c", "d"]);
    assert_eq!(ask(outside, "b").await.0, "502", "another account");
    put_secured(&mut world, "b", Protocol::Https1, &["b"]);
    identify(&mut world, "b", &authority, &[&other]);
    assert_eq!(ask(outside, "b").await.0, "502", "another authority");
    identify(&mut world, "b", &other, &[&other]);
    assert_eq!(ask(outside, "b").await, known);
    let mut broken = authority.identity("b", &[&authority]);
    broken.certificate.key = PrivateKey::new(KeyEncoding::Pkcs8, Bytes::from_static(b"no"));
    assert!(world.proxy.identify(broken).is_err());
    assert_eq!(ask(outside, "b").await, known, "the one before stays");
}

#[tokio::test]
async fn a_workload_of_another_trust_domain_is_nobody_unless_it_is_taken_for_this_one() {
    if !is_inside("a_workload_of_another_trust_domain_is_nobody_unless_it_is_taken_for_this_one") {
        return;
    }
    let mut world = meshed(ListenerProtocol::Http, MutualTls::Strict).await;
    let authority = Authority::new();
    let identify = |world: &mut World, domains: &[&str]| {
        let mut identity = authority.identity("b", &[&authority]);
        identity.trust_domains = domains.iter().map(|it| Box::from(*it)).collect();
        world.proxy.identify(identity).unwrap();
    };
    let known = said("200", &format!("{} http", uri("b")));
    // Whom the client expects by name it takes, so that here the server refuses; without any
    // name the client does, too.
    for names in [&["b"][..], &[]] {
        put_secured(&mut world, "b", Protocol::Https1, names);
        identify(&mut world, &["other.example", "cluster"]);
        assert_ne!(ask("10.9.0.10:80", "b").await.0, "200", "{names:?}");
        identify(&mut world, &["other.example", "cluster.local"]);
        assert_eq!(ask("10.9.0.10:80", "b").await, known, "{names:?}");
    }
}

#[tokio::test]
async fn the_scheme_of_the_first_client_is_believed_of_the_mesh_alone() {
    if !is_inside("the_scheme_of_the_first_client_is_believed_of_the_mesh_alone") {
        return;
    }
    let mut world = meshed(ListenerProtocol::Detected, MutualTls::Permissive).await;
    let authority = Authority::new();
    let identity = authority.identity("b", &[&authority]);
    world.proxy.identify(identity).unwrap();
    // By both proxies, as a gateway would that ended TLS, and then in plain text.
    for protocol in [Protocol::Https1, Protocol::H2] {
        put_secured(&mut world, "b", protocol, &["b"]);
        for (at, told) in [
            ("10.9.0.10:80", format!("{} https, as claimed", uri("b"))),
            ("10.9.1.20:80", "nobody http".to_owned()),
        ] {
            let mut client = connect(at).await;
            let fields = "X-Forwarded-Proto: https\r\nx-scheme: https\r\n";
            client
                .send(format!("GET / HTTP/1.1\r\nHost: b\r\n{fields}\r\n"))
                .await;
            let (_, body) = client.response().await;
            assert_eq!(body, told, "{at}");
        }
    }
}

/// A client without a certificate that offers a protocol.
fn offering(protocol: &[u8]) -> Arc<rustls::ClientConfig> {
    let mut config = rustls::ClientConfig::clone(&trusting());
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}

#[tokio::test]
async fn an_identity_is_replaced_under_load_without_a_failed_request() {
    if !is_inside("an_identity_is_replaced_under_load_without_a_failed_request") {
        return;
    }
    let mut world = meshed(ListenerProtocol::Http, MutualTls::Strict).await;
    let (first, second) = (Authority::new(), Authority::new());
    // Peers trust the next authority before anybody shows its certificates.
    let steps = [
        first.identity("b", &[&first]),
        first.identity("b", &[&first, &second]),
        second.identity("b", &[&first, &second]),
        second.identity("b", &[&second]),
    ];
    let mut steps = steps.into_iter();
    world.proxy.identify(steps.next().unwrap()).unwrap();
    let asking = (0..4).map(|_| async {
        for _ in 0..100 {
            // Each by a connection of its own, half of which need a handshake of the mesh.
            assert_eq!(ask("10.9.0.10:80", "b").await.0, "200");
        }
    });
    let replacing = async {
        for identity in steps {
            for _ in 0..20 {
                assert_eq!(ask("10.9.0.10:80", "b").await.0, "200");
            }
            world.proxy.identify(identity).unwrap();
        }
    };
    tokio::join!(futures_util::future::join_all(asking), replacing);
}

#[tokio::test]
async fn permissive_takes_the_mesh_plain_text_and_tls_of_the_workload() {
    if !is_inside("permissive_takes_the_mesh_plain_text_and_tls_of_the_workload") {
        return;
    }
    let detected = ListenerProtocol::Detected;
    let mut world = meshed(detected, MutualTls::Permissive).await;
    let authority = Authority::new();
    let identity = authority.identity("b", &[&authority]);
    world.proxy.identify(identity).unwrap();
    let known = said("200", &format!("{} http", uri("b")));
    assert_eq!(ask("10.9.0.10:80", "b").await, known);
    let mut plain = connect("10.9.1.20:80").await;
    let unknown = said("200", "nobody http");
    assert_eq!(ask_again(&mut plain, "b").await, unknown);
    // TLS that offers nothing of the mesh is the workload's own.
    let all = stream_route("inbound/any:443", &[], "0.0.0.0/0", "stream");
    let mutual = Some(MutualTls::Permissive);
    world.put("inbound/any:443", listener("0.0.0.0:443", detected, mutual));
    world.put("own", all);
    streams::tls_endpoint_at(address("10.9.1.20:443"), "own:", "a.example").await;
    let tcp = TcpStream::connect(address("10.9.1.20:443")).await.unwrap();
    let server = ServerName::try_from("a.example").unwrap();
    let own = TlsConnector::from(trusting()).connect(server, tcp).await;
    let mut own = Client::new(own.unwrap());
    assert_eq!(streams::ask(&mut own, "x").await, "own:x");
    // Bytes go by TLS of the mesh as well, and the server may speak first.
    server_first("10.9.1.20:25").await;
    world.put("inbound/any:25", listener("0.0.0.0:25", detected, mutual));
    world.put(
        "mail in",
        stream_route("inbound/any:25", &[], "0.0.0.0/0", "stream"),
    );
    let tcp = ListenerProtocol::Tcp;
    world.put("outbound/any:25", listener("0.0.0.0:25", tcp, None));
    put_secured(&mut world, "mail", Protocol::Https1, &["b"]);
    let endpoint = Endpoint {
        mesh: true,
        ..Endpoint::even(address("10.9.1.20:25"))
    };
    let endpoints = Endpoints::new([endpoint].into());
    world.put("mail", Value::Endpoints(endpoints));
    world.put(
        "mail out",
        stream_route("outbound/any:25", &[], "0.0.0.0/0", "mail"),
    );
    for at in ["10.9.0.10:25", "10.9.1.20:25"] {
        let mut client = connect(at).await;
        assert_eq!(client.read_until("\n").await, "hello 127.0.0.6\n");
    }
    // Once it is strict, plain text ends, also on a connection that waits.
    let strict = Some(MutualTls::Strict);
    world.put("inbound/any:80", listener("0.0.0.0:80", detected, strict));
    assert_eq!(plain.read_to_end().await, "");
    assert_eq!(ask("10.9.0.10:80", "b").await, known);
}
