use std::sync::Arc;
use std::time::Duration;

use myriad_model::{Kind, TlsSettings, TlsVersion, Value};
use rustls::client::Resumption;
use tokio::net::TcpStream;

use super::world::{
    Backend, Client, World, certificate, domain, header, route, trusting, trusting_config,
};
use crate::{Limits, Settings, TicketSecret};

fn strict() -> TlsSettings {
    TlsSettings {
        version_min: TlsVersion::V13,
        ..TlsSettings::default()
    }
}

async fn world() -> World {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("*", "/", "u"));
    world
}

async fn status<S>(client: &mut Client<S>, host: &str) -> String
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    client
        .send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))
        .await;
    let (head, _) = client.response().await;
    head[9..12].to_owned()
}

#[tokio::test]
async fn a_domain_is_served_with_its_own_certificate() {
    let mut world = world().await;
    let leaf = world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let wild = world.put_domain("*.w.example", &["*.w.example"], TlsSettings::default());
    for (name, leaf) in [
        ("a.example", &leaf),
        ("A.EXAMPLE", &leaf),
        ("x.w.example", &wild),
    ] {
        let mut client = world.tls_client(name).await.unwrap();
        let session = client.stream.get_ref().1;
        assert_eq!(
            session.peer_certificates().unwrap()[0].as_ref(),
            &**leaf,
            "{name}"
        );
        assert_eq!(status(&mut client, name).await, "200");
    }
}

#[tokio::test]
async fn an_unknown_name_is_an_alert_until_there_is_a_default_certificate() {
    let mut world = world().await;
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    world.put(
        "bare",
        Value::Domain(Box::new(domain("bare.example", Some("gone"), strict()))),
    );
    for name in ["b.example", "bare.example", "x.a.example"] {
        let error = world.tls_client(name).await.err().unwrap().to_string();
        assert!(error.contains("UnrecognisedName"), "{name}: {error}");
    }
    let leaf = certificate(&["default.example"]);
    let der = leaf.chain[0].clone();
    world.put("default", Value::Certificate(Box::new(leaf)));
    let mut client = world.tls_client("b.example").await.unwrap();
    let session = client.stream.get_ref().1;
    assert_eq!(session.peer_certificates().unwrap()[0].as_ref(), &*der);
    assert_eq!(status(&mut client, "b.example").await, "200");
    // A domain whose certificate is missing does not get another's.
    assert!(world.tls_client("bare.example").await.is_err());
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_an_alert_for_its_name_only() {
    let mut world = world().await;
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let mut broken = certificate(&["b.example"]);
    broken.chain = [bytes::Bytes::from_static(b"nonsense")].into();
    world.put("b", Value::Certificate(Box::new(broken)));
    world.put(
        "b",
        Value::Domain(Box::new(domain(
            "b.example",
            Some("b"),
            TlsSettings::default(),
        ))),
    );
    assert!(world.tls_client("b.example").await.is_err());
    assert!(world.tls_client("a.example").await.is_ok());
}

#[tokio::test]
async fn a_new_certificate_is_served_to_the_next_handshake() {
    let mut world = world().await;
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let mut before = world.tls_client("a.example").await.unwrap();
    let leaf = world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let after = world.tls_client("a.example").await.unwrap();
    let session = after.stream.get_ref().1;
    assert_eq!(session.peer_certificates().unwrap()[0].as_ref(), &*leaf);
    assert_eq!(status(&mut before, "a.example").await, "200");
}

#[tokio::test]
async fn a_request_for_another_place_is_misdirected() {
    let mut world = world().await;
    let names = ["a.example", "strict.example"];
    world.put_domain("a.example", &names, TlsSettings::default());
    world.put_domain("b.example", &["b.example"], TlsSettings::default());
    world.put_domain("strict.example", &names, strict());
    let mut client = world.tls_client("a.example").await.unwrap();
    for (host, wanted) in [
        ("a.example", "200"),
        ("a.example:8443", "200"),
        ("b.example", "421"),
        ("strict.example", "421"),
        ("nobody.example", "421"),
        ("a.example", "200"),
    ] {
        assert_eq!(status(&mut client, host).await, wanted, "{host}");
    }
}

#[tokio::test]
async fn a_name_of_no_domain_leads_to_no_domain_whatever_the_default_certificate_is_for() {
    let mut world = world().await;
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    world.put(
        "bare",
        Value::Domain(Box::new(domain(
            "bare.example",
            None,
            TlsSettings::default(),
        ))),
    );
    let default = certificate(&["*.example"]);
    world.put("default", Value::Certificate(Box::new(default)));
    let mut client = world.tls_client("stranger.example").await.unwrap();
    for (host, wanted) in [
        ("stranger.example", "200"),
        ("a.example", "421"),
        ("A.example:443", "421"),
        ("bare.example", "421"),
        ("other.example", "200"),
    ] {
        assert_eq!(status(&mut client, host).await, wanted, "{host}");
    }
    // A client that cannot name a host is held to the certificate that it got.
    let mut config = trusting_config();
    config.enable_sni = false;
    let config = Arc::new(config);
    let mut client = world.tls_client_with("a.example", &config).await.unwrap();
    for host in ["a.example", "bare.example", "other.example"] {
        assert_eq!(status(&mut client, host).await, "200", "{host}");
    }
    let mut client = world.tls_client("bare.example").await.unwrap();
    assert_eq!(status(&mut client, "bare.example").await, "200");
}

#[tokio::test]
async fn a_connection_to_a_removed_domain_is_misdirected() {
    let mut world = world().await;
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let mut client = world.tls_client("a.example").await.unwrap();
    assert_eq!(status(&mut client, "a.example").await, "200");
    world.remove(Kind::Domain, "a.example");
    assert_eq!(status(&mut client, "a.example").await, "421");
    assert!(world.tls_client("a.example").await.is_err());
}

#[tokio::test]
async fn sessions_are_resumed_where_they_were_made_and_nowhere_else() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut world = world().await;
        world.put_domain("a.example", &["a.example"], TlsSettings::default());
        world.put_domain("b.example", &["b.example"], TlsSettings::default());
        let config = Arc::new(resuming(version));
        let kind = async |world: &World, name: &str| {
            let mut client = world.tls_client_with(name, &config).await.unwrap();
            assert_eq!(status(&mut client, name).await, "200");
            client.stream.get_ref().1.handshake_kind().unwrap()
        };
        assert_eq!(kind(&world, "a.example").await, rustls::HandshakeKind::Full);
        assert_eq!(
            kind(&world, "a.example").await,
            rustls::HandshakeKind::Resumed
        );
        assert_eq!(kind(&world, "b.example").await, rustls::HandshakeKind::Full);
        // With other settings the same name is another place: its tickets do not open it.
        let other = TlsSettings {
            version_min: if version.version == rustls::ProtocolVersion::TLSv1_3 {
                TlsVersion::V13
            } else {
                TlsVersion::V12
            },
            version_max: if version.version == rustls::ProtocolVersion::TLSv1_3 {
                TlsVersion::V13
            } else {
                TlsVersion::V12
            },
            ..TlsSettings::default()
        };
        world.put_domain("a.example", &["a.example"], other);
        assert_eq!(kind(&world, "a.example").await, rustls::HandshakeKind::Full);
        world.remove(Kind::Domain, "a.example");
        assert!(world.tls_client_with("a.example", &config).await.is_err());
        let line = "handshakes_total{outcome=\"resumed\"} 1\n";
        world.counts(line).await;
    }
}

#[tokio::test]
async fn sessions_are_resumed_by_another_replica_for_as_long_as_it_has_their_key() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut worlds = [world().await, world().await];
        for world in &mut worlds {
            world.put_domain("a.example", &["a.example"], TlsSettings::default());
        }
        let kind = async |world: &World, config: &Arc<rustls::ClientConfig>| {
            let mut client = world.tls_client_with("a.example", config).await.unwrap();
            assert_eq!(status(&mut client, "a.example").await, "200");
            client.stream.get_ref().1.handshake_kind().unwrap()
        };
        let give = |keys: &[u8]| {
            for world in &worlds {
                let secret = |key: &u8| TicketSecret {
                    since: 0,
                    bytes: [*key; 32],
                };
                let secrets = keys.iter().map(secret).collect();
                assert!(world.proxy.ticket_keys().take(secrets));
            }
        };
        let [one, other] = &worlds;
        let (full, resumed) = (rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed);
        let [stranger, roamer, sleeper] = [0; 3].map(|_| Arc::new(resuming(version)));
        assert_eq!(kind(one, &stranger).await, full);
        assert_eq!(kind(other, &stranger).await, full);
        give(&[1, 2]);
        assert_eq!(kind(one, &sleeper).await, full);
        assert_eq!(kind(one, &roamer).await, full);
        assert_eq!(kind(other, &roamer).await, resumed);
        give(&[2, 3, 1]);
        assert_eq!(kind(one, &roamer).await, resumed);
        give(&[3, 4, 2]);
        assert_eq!(kind(other, &roamer).await, resumed);
        assert_eq!(kind(other, &sleeper).await, full);
        let line = "handshakes_total{outcome=\"resumed\"} 2\n";
        other.counts(line).await;
    }
}

fn resuming(version: &'static rustls::SupportedProtocolVersion) -> rustls::ClientConfig {
    let all = trusting_config();
    let provider = all.crypto_provider().clone();
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config
        .dangerous()
        .set_certificate_verifier(super::world::trust());
    config.resumption = Resumption::in_memory_sessions(8);
    config
}

#[tokio::test]
async fn settings_say_which_versions_are_spoken() {
    let mut world = world().await;
    world.put_domain("strict.example", &["strict.example"], strict());
    let old = Arc::new(resuming(&rustls::version::TLS12));
    assert!(world.tls_client_with("strict.example", &old).await.is_err());
    assert!(world.tls_client("strict.example").await.is_ok());
}

#[tokio::test]
async fn protocols_are_agreed_on_or_refused() {
    let mut world = world().await;
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    for (offered, agreed) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&["spdy/1"], None),
    ] {
        let mut config = trusting_config();
        config.alpn_protocols = offered
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let client = world.tls_client_with("a.example", &Arc::new(config)).await;
        let found = client.ok().map(|client| {
            let session = client.stream.get_ref().1;
            String::from_utf8(session.alpn_protocol().unwrap().to_vec()).unwrap()
        });
        assert_eq!(found.as_deref(), agreed, "{offered:?}");
    }
}

#[tokio::test]
async fn what_is_no_handshake_is_ended_within_its_limits() {
    let mut world = World::start_with(Settings {
        workers: 1,
        limits: Limits {
            handshake_timeout: Duration::from_millis(100),
            ..Limits::default()
        },
        ..Settings::default()
    });
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let half = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
    let long = [
        b"\x16\x03\x01\x40\x00\x01\x00\xff\xff".to_vec(),
        vec![0; 20_000],
    ]
    .concat();
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        half,
        long,
        b"\x16".to_vec(),
    ] {
        let tcp = TcpStream::connect(world.address("https")).await.unwrap();
        let mut client = Client::new(tcp);
        client.send(bytes).await;
        client.read_bytes_to_end().await;
    }
    let mut client = world
        .tls_client_with("a.example", &trusting())
        .await
        .unwrap();
    assert_eq!(status(&mut client, "a.example").await, "404");
    for outcome in ["timeout", "failed"] {
        let line = format!("handshakes_total{{outcome=\"{outcome}\"}} 2\n");
        world.counts(&line).await;
    }
}

#[tokio::test]
async fn an_endpoint_over_tls_is_verified_where_the_upstream_says_so() {
    // The proxy itself is the endpoint: a second one, with a certificate that nobody trusts.
    let inner = {
        let backend = Backend::echo().await;
        let mut world = World::start();
        world.put_upstream("u", &[backend.address]);
        world.put_route("r", route("*", "/", "u"));
        world.put_domain("inner.example", &["inner.example"], TlsSettings::default());
        world
    };
    let mut world = World::start();
    for (name, verify) in [("trusted", true), ("any", false)] {
        let tls = myriad_model::UpstreamTls {
            server_name: "inner.example".into(),
            verify,
            ..myriad_model::UpstreamTls::unverified()
        };
        world.put_upstream_with(name, &[inner.address("https")], Some(tls));
        world.put_route(name, route(&format!("{name}.example"), "/", name));
    }
    let ask = async |host: &str| {
        world
            .ask(&format!(
                "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            ))
            .await
    };
    assert!(ask("trusted.example").await.starts_with("HTTP/1.1 502"));
    // The inner proxy sees a host that its certificate is not for.
    assert!(ask("any.example").await.starts_with("HTTP/1.1 421"));
    world.put_route("same", route("inner.example", "/", "any"));
    let answer = world
        .ask("GET / HTTP/1.1\r\nHost: inner.example\r\nConnection: close\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(header(&answer, "x-forwarded-proto"), Some("https"));
}
