//! Mutual TLS between proxies of the mesh, by the identities that they are given.

use std::sync::Arc;

use bytes::Bytes;
use myriad_model::{
    Certificate, Endpoint, Endpoints, KeyEncoding, ListenerProtocol, MeshTls, MutualTls,
    PrivateKey, Protocol, Trust, Upstream, UpstreamTls, Users, Value,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::super::streams;
use super::super::world::{Backend, Client, World, trusting};
use super::{
    address, ask, ask_again, connect, is_closed, is_inside, listener, on, original, said,
    server_first, stream_route, world,
};
use crate::Identity;

/// An authority of a mesh.
pub(super) struct Authority(Issuer<'static, KeyPair>, Bytes);

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        let der = Bytes::from(own.der().to_vec());
        Authority(Issuer::new(params, key), der)
    }

    pub(super) fn identity(&self, account: &str, trusted: &[&Authority]) -> Identity {
        self.identity_of(account, trusted, CertificateParams::default())
    }

    pub(super) fn identity_of(
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

pub(super) fn uri(account: &str) -> String {
    format!("spiffe://cluster.local/ns/shop/sa/{account}")
}

/// Puts an upstream that speaks mutual TLS to `10.9.1.20:80`, and expects one of these accounts
/// there.
pub(super) fn put_secured(world: &mut World, name: &str, protocol: Protocol, accounts: &[&str]) {
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
        (name, Value::Upstream(Box::new(upstream))),
        (name, Value::Endpoints(Box::new(endpoints))),
    ]);
}

/// A workload behind `inbound/any:80`, and what leads to it.
pub(super) async fn meshed(protocol: ListenerProtocol, mutual: MutualTls) -> World {
    meshed_in(world(), protocol, mutual).await
}

/// The same in a world of its own.
pub(super) async fn meshed_in(
    mut world: World,
    protocol: ListenerProtocol,
    mutual: MutualTls,
) -> World {
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
    if !is_inside("mutual::under_strict_only_the_mesh_gets_through_and_only_to_whom_it_expects") {
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
    if !is_inside(
        "mutual::a_workload_of_another_trust_domain_is_nobody_unless_it_is_taken_for_this_one",
    ) {
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
    if !is_inside("mutual::the_scheme_of_the_first_client_is_believed_of_the_mesh_alone") {
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
pub(super) fn offering(protocol: &[u8]) -> Arc<rustls::ClientConfig> {
    let mut config = rustls::ClientConfig::clone(&trusting());
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}

#[tokio::test]
async fn an_identity_is_replaced_under_load_without_a_failed_request() {
    if !is_inside("mutual::an_identity_is_replaced_under_load_without_a_failed_request") {
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
    if !is_inside("mutual::permissive_takes_the_mesh_plain_text_and_tls_of_the_workload") {
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
    world.put("mail", Value::Endpoints(Box::new(endpoints)));
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
