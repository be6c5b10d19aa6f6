//! Settings of upstreams about their endpoints: which are chosen, spared, limited, and believed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::task;
use myriad_model::{
    Balancer, Certificate, Endpoint, Endpoints, Extent, HashBalancer, HashCookie, HashSource,
    HashTable, KeyEncoding, Outlier, Policy, PrivateKey, Protocol, ProxyProtocol, Trust, Upstream,
    UpstreamOptions, UpstreamTls, Users, Value,
};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::world::{Backend, Client, World, header, route, with_policy};
use crate::Settings;

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

fn put(world: &mut World, endpoints: &[SocketAddr], upstream: Upstream) {
    let mut endpoints: Vec<Endpoint> = endpoints.iter().map(|a| Endpoint::even(*a)).collect();
    endpoints.sort_by_key(|endpoint| endpoint.address);
    let endpoints = endpoints.into();
    world.put_all(vec![
        ("u", Value::Upstream(Box::new(upstream))),
        ("u", Value::Endpoints(Box::new(Endpoints::new(endpoints)))),
    ]);
}

/// A world with a route to an upstream whose options are changed.
pub(super) fn world_of(
    endpoints: &[SocketAddr],
    change: impl FnOnce(&mut UpstreamOptions),
) -> World {
    let mut world = World::start();
    put_with(&mut world, endpoints, change);
    world.put_route("r", route("a.example", "/", "u"));
    world
}

/// Puts the upstream, whose options are changed.
pub(super) fn put_with(
    world: &mut World,
    endpoints: &[SocketAddr],
    change: impl FnOnce(&mut UpstreamOptions),
) {
    let mut options = UpstreamOptions::default();
    change(&mut options);
    let upstream = Upstream {
        protocol: Protocol::Http1,
        dns: None,
        tls: None,
        options: Some(Box::new(options)),
        original_destination: false,
        source_address: None,
    };
    put(world, endpoints, upstream);
}

async fn failing() -> Backend {
    Backend::answering(|_| "HTTP/1.1 500 E\r\nContent-Length: 3\r\n\r\nbad".to_owned()).await
}

#[tokio::test]
async fn an_endpoint_that_fails_in_a_row_is_left_out() {
    let (good, bad) = (Backend::saying("good").await, failing().await);
    let world = world_of(&[good.address, bad.address], |options| {
        options.balancer = Balancer::RoundRobin;
        options.outlier = Some(Box::new(Outlier {
            server_errors: 2,
            gateway_errors: 0,
            local_errors: 0,
            is_split: false,
            interval: Duration::from_secs(10),
            ejection_time: Duration::from_secs(600),
            ejection_percent_max: 50,
            health_percent_min: 0,
            error_statuses: Box::default(),
        }));
    });
    for _ in 0..20 {
        world.ask(GET).await;
    }
    assert_eq!((good.requests(), bad.requests()), (18, 2));
    world.counts("myriad_upstream_ejections_total 1\n").await;
}

#[tokio::test]
async fn where_all_are_left_out_the_answer_says_so() {
    let bad = failing().await;
    let world = world_of(&[bad.address], |options| {
        options.outlier = Some(Box::new(Outlier {
            server_errors: 1,
            gateway_errors: 0,
            local_errors: 0,
            is_split: false,
            interval: Duration::from_secs(10),
            ejection_time: Duration::from_secs(600),
            ejection_percent_max: 100,
            health_percent_min: 0,
            error_statuses: Box::default(),
        }));
    });
    assert!(world.ask(GET).await.starts_with("HTTP/1.1 500 "));
    let answer = world.ask(GET).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\n\r\nno healthy endpoint\n"), "{answer}");
    assert_eq!(bad.requests(), 1);
}

/// Whether an endpoint of `ns`, which is left out for its first failure, is after one request for
/// a route of a namespace.
async fn is_left_out(
    namespace: &str,
    endpoint: SocketAddr,
    change: impl FnOnce(&mut Policy),
) -> bool {
    let mut world = world_of(&[endpoint], |options| {
        options.outlier = Some(Box::new(Outlier {
            server_errors: 1,
            gateway_errors: 1,
            local_errors: 0,
            is_split: false,
            interval: Duration::from_secs(10),
            ejection_time: Duration::from_secs(600),
            ejection_percent_max: 100,
            health_percent_min: 0,
            error_statuses: Box::default(),
        }));
    });
    let own = with_policy(route("a.example", "/own", "u"), change);
    world.put_all_of(namespace, vec![("own", Value::Route(Box::new(own)))]);
    let request = GET.replace("GET / ", "GET /own ");
    world.ask(&request).await;
    world.ask(&request).await.contains("no healthy endpoint")
}

#[tokio::test]
async fn a_route_of_another_namespace_has_no_endpoint_left_out_by_what_it_asks_for() {
    let bad = failing().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = (silent.local_addr().unwrap(), silent);
    let hasty = |policy: &mut Policy| policy.request_timeout = Duration::from_millis(20);
    for (namespace, counts) in [("ns", true), ("other", false)] {
        assert_eq!(is_left_out(namespace, bad.address, |_| ()).await, counts);
        assert_eq!(is_left_out(namespace, silent.0, hasty).await, counts);
    }
    let mixed = |policy: &mut Policy| policy.is_foreign = true;
    assert!(!is_left_out("ns", bad.address, mixed).await);
    let operators = |policy: &mut Policy| policy.is_operators = true;
    assert!(is_left_out("gateway", bad.address, operators).await);
    let both = |policy: &mut Policy| (policy.is_operators, policy.is_foreign) = (true, true);
    assert!(!is_left_out("gateway", bad.address, both).await);
    // What the endpoint does by itself counts, whoever asks.
    let mute = Backend::answering(|_| String::new()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = listener.local_addr().unwrap();
    drop(listener);
    for endpoint in [mute.address, gone] {
        assert!(is_left_out("other", endpoint, |_| ()).await);
    }
}

#[tokio::test]
async fn no_more_requests_are_in_flight_than_the_upstream_bears() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = world_of(&[listener.local_addr().unwrap()], |options| {
        options.limits.requests_max = 1;
    });
    let mut first = world.client().await;
    first.send(GET).await;
    let mut endpoint = Client::new(listener.accept().await.unwrap().0);
    endpoint.read_until("\r\n\r\n").await;
    let answer = world.ask(GET).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\n\r\nupstream overflow\n"), "{answer}");
    endpoint
        .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    assert!(first.read_to_end().await.ends_with("ok"));
    let line = "myriad_upstream_overflows_total{limit=\"requests\"} 1\n";
    world.counts(line).await;
}

#[tokio::test]
async fn requests_beyond_the_connections_wait_and_those_beyond_the_waiting_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = world_of(&[listener.local_addr().unwrap()], |options| {
        options.limits.connections_max = 1;
        options.limits.pending_max = 1;
    });
    let mut first = world.client().await;
    first.send(GET).await;
    let mut endpoint = Client::new(listener.accept().await.unwrap().0);
    endpoint.read_until("\r\n\r\n").await;
    let mut second = world.client().await;
    second.send(GET).await;
    // The third is refused once the second waits; until then it waits in its place.
    let refused = async {
        loop {
            let mut other = world.client().await;
            other.send(GET).await;
            let metrics = world.metrics.encode();
            let line = "myriad_upstream_overflows_total{limit=\"pending\"} 0";
            if !metrics.contains(line) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::world::PATIENCE, refused)
        .await
        .unwrap();
    endpoint
        .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    assert!(first.read_to_end().await.ends_with("ok"));
    // Whoever waited goes on, over the one connection.
    endpoint.read_until("\r\n\r\n").await;
}

#[tokio::test]
async fn a_connection_that_waits_makes_room_for_one_to_another_endpoint() {
    let backends = [
        Backend::saying("hello").await,
        Backend::saying("hello").await,
    ];
    let world = world_of(&[backends[0].address, backends[1].address], |options| {
        options.balancer = Balancer::RoundRobin;
        options.limits.connections_max = 1;
    });
    for _ in 0..4 {
        assert!(world.ask(GET).await.ends_with("hello"));
    }
    assert_eq!((backends[0].requests(), backends[1].requests()), (2, 2));
}

#[tokio::test]
async fn a_connection_carries_as_many_requests_as_the_upstream_says() {
    let backend = Backend::saying("hello").await;
    let world = world_of(&[backend.address], |options| {
        options.limits.connection_requests_max = 2;
    });
    for _ in 0..6 {
        assert!(world.ask(GET).await.ends_with("hello"));
    }
    assert_eq!((backend.requests(), backend.connections()), (6, 3));
}

#[tokio::test]
async fn a_cookie_that_was_made_keeps_a_client_on_its_endpoint() {
    let mut backends = Vec::new();
    for _ in 0..4 {
        backends.push(Backend::saying("hello").await);
    }
    let addresses: Vec<SocketAddr> = backends.iter().map(|backend| backend.address).collect();
    let world = world_of(&addresses, |options| {
        options.balancer = Balancer::Hash(Box::new(HashBalancer {
            source: HashSource::Cookie(Box::new(HashCookie {
                name: "user".into(),
                path: "/".into(),
                age: Some(Duration::from_secs(60)),
                attributes: Box::default(),
            })),
            parts: Box::default(),
            table: HashTable::Ring(1_024),
        }));
    });
    let answer = world.ask(GET).await;
    let cookie = header(&answer, "set-cookie").unwrap();
    let pair = cookie.split(';').next().unwrap();
    for _ in 0..20 {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a.example\r\nCookie: {pair}\r\nConnection: close\r\n\r\n"
        );
        let answer = world.ask(&request).await;
        assert_eq!(header(&answer, "set-cookie"), None);
    }
    let taken: Vec<usize> = backends.iter().map(Backend::requests).collect();
    assert!(taken.contains(&21), "{taken:?}");
}

#[tokio::test]
async fn an_endpoint_is_told_who_the_client_is() {
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let world = world_of(&[listener.local_addr().unwrap()], |options| {
            options.proxy_protocol = Some(version);
        });
        let mut client = world.client().await;
        let address = client.stream.local_addr().unwrap();
        client.send(GET).await;
        let mut endpoint = Client::new(listener.accept().await.unwrap().0);
        match version {
            ProxyProtocol::V1 => {
                let line = endpoint.read_until("\r\n").await;
                let port = world.address("http").port();
                let told = format!(
                    "PROXY TCP4 127.0.0.1 127.0.0.1 {} {port}\r\n",
                    address.port()
                );
                assert_eq!(line, told);
            }
            ProxyProtocol::V2 => {
                let head = endpoint.read_exact(28).await;
                assert!(head.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"));
                assert_eq!(head[16..20], [127, 0, 0, 1]);
                assert_eq!(head[24..26], address.port().to_be_bytes());
            }
        }
        endpoint.read_until("GET / HTTP/1.1\r\n").await;
    }
}

/// An authority, and a certificate that it made for a name.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        Authority { issuer }
    }

    fn root(&self) -> Bytes {
        Bytes::from(self.issuer.der().to_vec())
    }

    fn certificate(&self, names: Vec<rcgen::SanType>) -> Certificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Certificate {
            chain: [Bytes::from(certificate.der().to_vec())].into(),
            key: PrivateKey::new(KeyEncoding::Pkcs8, key.serialize_der().into()),
        }
    }

    fn trust(&self) -> Value {
        Value::Trust(Box::new(Trust {
            roots: [self.root()].into(),
            crls: Box::default(),
            users: Users::default(),
        }))
    }
}

fn dns(name: &str) -> rcgen::SanType {
    rcgen::SanType::DnsName(name.try_into().unwrap())
}

fn uri(name: &str) -> rcgen::SanType {
    rcgen::SanType::URI(name.try_into().unwrap())
}

/// An endpoint over TLS that asks its clients for a certificate, and says whether it got one.
async fn secured(
    authority: &Authority,
    names: Vec<rcgen::SanType>,
    alpn: &'static [u8],
) -> SocketAddr {
    let made = authority.certificate(names);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.root().to_vec().into()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .unwrap();
    let key = PrivateKeyDer::Pkcs8(made.key.expose().to_vec().into());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![made.chain[0].to_vec().into()], key)
        .unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("secured endpoint", async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(tls) = acceptor.accept(tcp).await else {
                continue;
            };
            let said = match tls.get_ref().1.peer_certificates() {
                Some(_) => "known",
                None => "stranger",
            };
            let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            task::spawn("secured connection", async move {
                if is_http2 {
                    let mut connection = ::h2::server::handshake(tls).await.unwrap();
                    while let Some(Ok((_, mut respond))) = connection.accept().await {
                        let head = http::Response::new(());
                        let mut send = respond.send_response(head, false).unwrap();
                        send.send_data(Bytes::from_static(said.as_bytes()), true)
                            .unwrap();
                    }
                    return;
                }
                let mut client = Client::new(tls);
                client.read_until("\r\n\r\n").await;
                let length = said.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                client.send(head + said).await;
            });
        }
    });
    address
}

fn tls(change: impl FnOnce(&mut UpstreamTls)) -> Upstream {
    let mut tls = UpstreamTls {
        server_name: "backend.example".into(),
        verify: true,
        trust: Some("ca".into()),
        ..UpstreamTls::unverified()
    };
    change(&mut tls);
    Upstream {
        protocol: Protocol::Https1,
        dns: None,
        tls: Some(Box::new(tls)),
        options: None,
        original_destination: false,
        source_address: None,
    }
}

#[tokio::test]
async fn an_endpoint_is_believed_by_its_authority_and_name_and_sees_the_certificate() {
    let (authority, other) = (Authority::new(), Authority::new());
    let address = secured(&authority, vec![dns("backend.example")], b"http/1.1").await;
    let mut world = World::start();
    world.put_route("r", route("a.example", "/", "u"));
    world.put("ca", authority.trust());
    let client = authority.certificate(vec![dns("client.example")]);
    world.put("client", Value::Certificate(Box::new(client)));
    let cases: [(&str, Upstream, &str); 7] = [
        ("one that is trusted", tls(|_| {}), "stranger"),
        (
            "with a certificate",
            tls(|tls| tls.certificate = Some("client".into())),
            "known",
        ),
        (
            "another name",
            tls(|tls| tls.server_name = "other.example".into()),
            "HTTP/1.1 502 ",
        ),
        (
            "one of the names listed",
            tls(|tls| {
                tls.server_name = "other.example".into();
                tls.subject_alt_names = ["backend.example".into(), "x.example".into()].into();
            }),
            "stranger",
        ),
        (
            "none of the names listed",
            tls(|tls| tls.subject_alt_names = ["x.example".into()].into()),
            "HTTP/1.1 502 ",
        ),
        (
            "a trust that is missing",
            tls(|tls| tls.trust = Some("missing".into())),
            "HTTP/1.1 503 ",
        ),
        (
            "a certificate that is missing",
            tls(|tls| tls.certificate = Some("missing".into())),
            "HTTP/1.1 503 ",
        ),
    ];
    for (case, upstream, expected) in cases {
        put(&mut world, &[address], upstream);
        let answer = world.ask(GET).await;
        let holds = answer.starts_with(expected) || answer.ends_with(expected);
        assert!(holds, "{case}: {answer}");
    }
    // Whoever is no longer trusted is not believed on connections made before either.
    put(&mut world, &[address], tls(|_| {}));
    assert!(world.ask(GET).await.ends_with("stranger"));
    world.put("ca", other.trust());
    let answer = world.ask(GET).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn a_workload_is_believed_by_its_identity() {
    let authority = Authority::new();
    let name = "spiffe://cluster.local/ns/a/sa/b";
    let address = secured(&authority, vec![uri(name)], b"h2").await;
    let mut world = World::start();
    world.put_route("r", route("a.example", "/", "u"));
    world.put("ca", authority.trust());
    for (listed, expected) in [(name, "stranger"), ("spiffe://other", "HTTP/1.1 502 ")] {
        let mut upstream = tls(|tls| tls.subject_alt_names = [listed.into()].into());
        upstream.protocol = Protocol::H2;
        put(&mut world, &[address], upstream);
        let answer = world.ask(GET).await;
        let holds = answer.starts_with(expected) || answer.contains(expected);
        assert!(holds, "{listed}: {answer}");
    }
}

#[tokio::test]
async fn endpoints_that_are_the_proxy_itself_or_its_machine_are_refused_at_connect_time() {
    let good = Backend::saying("good").await;
    let admin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = admin.local_addr().unwrap();
    let mut settings = Settings {
        workers: 1,
        ..Settings::default()
    };
    settings.names.border.own.push(own);
    let mut world = World::start_with(settings);
    world.put_route("r", route("a.example", "/", "u"));
    for endpoint in [own, world.address("http"), world.address("https")] {
        put(&mut world, &[endpoint], Upstream::plain(Protocol::Http1));
        let answer = world.ask(GET).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{endpoint}: {answer}");
    }
    put(
        &mut world,
        &[good.address],
        Upstream::plain(Protocol::Http1),
    );
    assert!(world.ask(GET).await.ends_with("good"));
    world.counts("endpoint_connections_refused_total 3").await;

    // A resource of an older controller, which has no border of its own.
    let mut settings = Settings {
        workers: 1,
        ..Settings::default()
    };
    settings.names.border.endpoints.extent = Extent::Elsewhere;
    let mut world = World::start_with(settings);
    world.put_route("r", route("a.example", "/", "u"));
    put(
        &mut world,
        &[good.address],
        Upstream::plain(Protocol::Http1),
    );
    assert!(world.ask(GET).await.starts_with("HTTP/1.1 503 "));
    // The workload beside a sidecar is connected to from an address of its own, and is no endpoint
    // that anybody names.
    let beside = Upstream {
        source_address: Some(Box::new([127, 0, 0, 6].into())),
        ..Upstream::plain(Protocol::Http1)
    };
    put(&mut world, &[good.address], beside);
    assert!(world.ask(GET).await.ends_with("good"));
    world.counts("endpoint_connections_refused_total 1").await;
}
