//! Streams within mutual TLS of the mesh that go where their client's own handshake says. These
//! stories need no network of their own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use myriad_model::{
    AccessAction, AccessSubject, Dns, DnsMode, Domain, Extent, Kind, Protocol, Reach, TlsSettings,
    Upstream, Value,
};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::checks::access_policy_on;
use super::super::streams;
use super::super::world::{Client, World, domain, trust, trusting};
use super::mutual::Authority;
use crate::net::name_server::{NameServer, Saying};
use crate::{BorderSettings, Limits, NameSettings, Settings};

/// The name that sidecars are told to name.
const OUTER: &str = "any.example.com";

type InnerClient = Client<TlsStream<TlsStream<TcpStream>>>;

/// A gateway of the mesh, a sidecar's side of its mutual TLS, and the names outside.
struct Story {
    world: World,
    authority: Authority,
    sidecar: Arc<ClientConfig>,
    names: NameServer,
}

impl Story {
    fn begin(limits: Limits) -> Story {
        let (authority, names) = (Authority::new(), NameServer::start());
        let mut world = World::start_with(Settings {
            workers: 1,
            limits,
            names: NameSettings {
                servers: vec![names.address()],
                border: BorderSettings {
                    chosen: Reach {
                        extent: Extent::Public,
                        allowed: vec!["127.0.0.0/8".parse().unwrap()],
                        denied: Vec::new(),
                    },
                    ..BorderSettings::default()
                },
                ..NameSettings::default()
            },
            ..Settings::default()
        });
        let identity = authority.identity("gateway", &[&authority]);
        world.proxy.identify(identity).unwrap();
        Story {
            sidecar: sidecar(&authority, "client"),
            world,
            authority,
            names,
        }
    }

    /// Leads what comes out of mutual TLS for a pattern to upstreams.
    fn lead(&mut self, host: &str, upstreams: &[(&str, u32)]) {
        let domain = Domain {
            mesh: true,
            ..domain(host, None, TlsSettings::default())
        };
        self.world.put(host, Value::Domain(Box::new(domain)));
        self.lead_only(host, upstreams);
    }

    fn lead_only(&mut self, host: &str, upstreams: &[(&str, u32)]) {
        let mut ended = streams::stream_route("https", &[host], upstreams);
        ended.terminate = true;
        self.world.put(host, Value::StreamRoute(Box::new(ended)));
    }

    /// An upstream of whatever host below a pattern is asked for.
    fn put_dynamic(&mut self, name: &str, pattern: &str, port: u16) {
        let mut dns = Dns::strict(pattern, port);
        dns.mode = DnsMode::Dynamic;
        let upstream = Upstream {
            dns: Some(Box::new(dns)),
            ..Upstream::plain(Protocol::Http1)
        };
        self.world.put(name, Value::Upstream(Box::new(upstream)));
    }

    fn say(&self, name: &str, ip: &str) {
        let addresses = vec![ip.parse().unwrap()];
        self.names.say(name, Saying::Addresses(addresses, 60));
    }

    /// A connection that a sidecar has opened, by the name that it was told to name.
    async fn outside(&self, outer: &str) -> Client<TlsStream<TcpStream>> {
        let opened = self.world.tls_client_with(outer, &self.sidecar).await;
        opened.unwrap()
    }

    /// The client of a sidecar of an account, with its own handshake within.
    async fn within(&self, config: &Arc<ClientConfig>, inner: &str) -> io::Result<InnerClient> {
        inside(self.world.tls_client_with(OUTER, config).await?, inner).await
    }

    /// The answer of the host of a name to the client; none where nobody is reached.
    async fn ask(&self, inner: &str) -> Option<String> {
        let mut client = self.within(&self.sidecar, inner).await.ok()?;
        Some(streams::ask(&mut client, "hello").await)
    }
}

async fn inside(outer: Client<TlsStream<TcpStream>>, inner: &str) -> io::Result<InnerClient> {
    let name = ServerName::try_from(inner.to_owned()).unwrap();
    let opened = TlsConnector::from(trusting()).connect(name, outer.stream);
    Ok(Client::new(opened.await?))
}

/// The side of a sidecar with the identity of an account.
pub(super) fn sidecar(authority: &Authority, account: &str) -> Arc<ClientConfig> {
    let certificate = authority.identity(account, &[authority]).certificate;
    let chain = certificate.chain.iter();
    let chain = chain.map(|it| CertificateDer::from(it.to_vec())).collect();
    let key = PrivatePkcs8KeyDer::from(certificate.key.expose().to_vec());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(trust())
        .with_client_auth_cert(chain, key.into())
        .unwrap();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Two hosts below `example.com` at one port, each at an address of its own.
async fn two_hosts() -> Story {
    two_hosts_within(Limits::default()).await
}

async fn two_hosts_within(limits: Limits) -> Story {
    let mut story = Story::begin(limits);
    let first = SocketAddr::from(([127, 0, 0, 1], 0));
    let (first, _) = streams::tls_endpoint_at(first, "a:", "a.example.com").await;
    let second = SocketAddr::from(([127, 0, 0, 2], first.port()));
    streams::tls_endpoint_at(second, "b:", "b.example.com").await;
    story.say("a.example.com", "127.0.0.1");
    story.say("b.example.com", "127.0.0.2");
    story.put_dynamic("out", "**.example.com", first.port());
    story.lead("**.example.com", &[("out", 1)]);
    story
}

#[tokio::test]
async fn the_name_within_says_which_host_below_a_wildcard_is_reached() {
    let story = two_hosts().await;
    for (name, said) in [("a.example.com", "a:hello"), ("b.example.com", "b:hello")] {
        assert_eq!(story.ask(name).await.as_deref(), Some(said));
    }
    assert_eq!(story.names.asked(OUTER), 0);
    // A name beyond the wildcard is nobody's, and one of it that points elsewhere is not reached.
    story.say("a.example.org", "127.0.0.1");
    story.say("inside.example.com", "10.0.0.1");
    for name in ["a.example.org", "inside.example.com"] {
        assert_eq!(story.ask(name).await, None, "{name}");
    }
    assert_eq!(story.names.asked("a.example.org"), 0);
    for counted in [
        "myriad_handshakes_total{outcome=\"unknown_name\"} 1\n",
        "myriad_streams_total{event=\"failed\"} 1\n",
    ] {
        story.world.counts(counted).await;
    }
}

#[tokio::test]
async fn policies_see_the_name_within_and_the_identity_outside() {
    let mut story = two_hosts().await;
    let name = AccessSubject::ServerName;
    let deny = access_policy_on(AccessAction::Deny, name, "b.example.com");
    story.world.put("deny", deny);
    assert_eq!(story.ask("a.example.com").await.as_deref(), Some("a:hello"));
    assert_eq!(story.ask("b.example.com").await, None);
    story.world.remove(Kind::AccessPolicy, "deny");
    let own = "cluster.local/ns/shop/sa/client";
    let allow = access_policy_on(AccessAction::Allow, AccessSubject::Principal, own);
    story.world.put("allow", allow);
    assert_eq!(story.ask("b.example.com").await.as_deref(), Some("b:hello"));
    let other = sidecar(&story.authority, "other");
    assert!(story.within(&other, "a.example.com").await.is_err());
    // Without an identity nobody is heard at all.
    assert!(story.within(&trusting(), "a.example.com").await.is_err());
}

#[tokio::test]
async fn a_more_specific_rule_for_the_name_within_has_it() {
    let mut story = two_hosts().await;
    let own = SocketAddr::from(([127, 0, 0, 1], 0));
    let (own, _) = streams::tls_endpoint_at(own, "own:", "b.example.com").await;
    story.world.put_upstream("own", &[own]);
    story.lead("b.example.com", &[("own", 1)]);
    assert_eq!(
        story.ask("b.example.com").await.as_deref(),
        Some("own:hello")
    );
    assert_eq!(story.ask("a.example.com").await.as_deref(), Some("a:hello"));
    // One that leads nowhere closes the name, and no broader one has it.
    story.lead_only("b.example.com", &[]);
    assert_eq!(story.ask("b.example.com").await, None);
}

/// A connection that is led to one place by the name outside is not asked for another.
#[tokio::test]
async fn the_name_within_is_nothing_where_the_one_outside_decides() {
    let mut story = Story::begin(Limits::default());
    let own = SocketAddr::from(([127, 0, 0, 1], 0));
    let (own, _) = streams::tls_endpoint_at(own, "own:", "a.example.org").await;
    story.say(OUTER, "127.0.0.1");
    story.put_dynamic("out", "**.example.com", own.port());
    story.world.put_upstream("own", &[own]);
    // Nothing is led to the upstream that any name would do for.
    story.lead("**.example.com", &[("out", 0), ("own", 1)]);
    let asked = story.ask("a.example.org").await;
    assert_eq!(asked.as_deref(), Some("own:hello"));
    assert_eq!(story.names.asked(OUTER), 0);
    // A rule for one host leads to that.
    story.lead(OUTER, &[("out", 1)]);
    let asked = story.ask("a.example.org").await;
    assert_eq!(asked.as_deref(), Some("own:hello"));
    assert!(story.names.asked(OUTER) > 0);
    assert_eq!(story.names.asked("a.example.org"), 0);
}

#[tokio::test]
async fn streams_are_connections_of_whoever_has_the_name_within() {
    let mut story = two_hosts_within(Limits {
        connections_max: 40,
        ..Limits::default()
    })
    .await;
    let own = SocketAddr::from(([127, 0, 0, 1], 0));
    let (own, _) = streams::tls_endpoint_at(own, "own:", "b.example.com").await;
    story.world.put_upstream("own", &[own]);
    let domain = Domain {
        mesh: true,
        ..domain("b.example.com", None, TlsSettings::default())
    };
    let mut ended = streams::stream_route("https", &["b.example.com"], &[("own", 1)]);
    ended.terminate = true;
    let of_flood = vec![
        ("b.example.com", Value::Domain(Box::new(domain))),
        ("b.example.com", Value::StreamRoute(Box::new(ended))),
    ];
    story.world.put_all_of("flood", of_flood);
    let mut flood = Vec::new();
    for number in 1..=32 {
        let opened = story.within(&story.sidecar, "b.example.com").await;
        flood.push(opened.unwrap());
        let opened = format!("myriad_streams_total{{event=\"opened\"}} {number}\n");
        story.world.counts(&opened).await;
    }
    let beyond = story.within(&story.sidecar, "b.example.com").await;
    assert!(beyond.is_err());
    let refused = "fair_share_refused_total{of=\"connections\"} 1\n";
    story.world.counts(refused).await;
    // Whoever has the name outside has all of his share.
    assert_eq!(story.ask("a.example.com").await.as_deref(), Some("a:hello"));
    for client in &mut flood {
        assert_eq!(streams::ask(client, "hello").await, "own:hello");
    }
}

#[tokio::test]
async fn bytes_that_are_no_handshake_go_by_the_name_outside() {
    let mut story = Story::begin(Limits {
        detection_timeout: Duration::from_millis(100),
        ..Limits::default()
    });
    let address = streams::plain_endpoint("plain:").await;
    story.say("db.example.com", "127.0.0.1");
    story.put_dynamic("out", "**.example.com", address.port());
    story.lead("**.example.com", &[("out", 1)]);
    for text in ["hello", "\u{16}", ""] {
        let mut client = story.outside("db.example.com").await;
        let expected = format!("plain:{text}");
        assert_eq!(streams::ask(&mut client, text).await, expected);
    }
    // Whoever waits for its server is not kept waiting for long.
    let mut client = story.outside("db.example.com").await;
    story
        .world
        .counts("myriad_streams_total{event=\"opened\"} 4\n")
        .await;
    assert_eq!(streams::ask(&mut client, "late").await, "plain:late");
}

#[tokio::test]
async fn where_the_name_outside_leads_nowhere_only_names_of_the_mesh_are_found_within() {
    let mut story = Story::begin(Limits::default());
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let (at, _) = streams::tls_endpoint_at(at, "u:", "a.example").await;
    story.world.put_upstream("u", &[at]);
    story.lead("*", &[]);
    story.lead("a.example", &[("u", 1)]);
    let settings = TlsSettings::default();
    story
        .world
        .put_domain("b.example", &["b.example"], settings);
    story.lead_only("b.example", &[("u", 1)]);
    let outer = "outbound_.443_._.gateway.mesh.svc.cluster.local";
    let mut client = inside(story.outside(outer).await, "a.example")
        .await
        .unwrap();
    assert_eq!(streams::ask(&mut client, "hello").await, "u:hello");
    // What is behind another certificate is reached by that alone.
    for name in ["b.example", "c.example"] {
        let refused = inside(story.outside(outer).await, name).await;
        assert!(refused.is_err(), "{name}");
    }
    assert!(story.world.tls_client("b.example").await.is_ok());
}

#[tokio::test]
async fn a_handshake_within_is_bounded_by_its_length_and_its_time() {
    let mut limits = Limits::default();
    limits.set("client_hello_bytes=4KiB").unwrap();
    limits.set("handshake_timeout=500ms").unwrap();
    let mut story = Story::begin(limits);
    story.put_dynamic("out", "**.example.com", 1);
    story.lead("**.example.com", &[("out", 1)]);
    let start: [u8; 11] = [22, 3, 1, 0x1f, 0x40, 1, 0, 0x1f, 0x3c, 3, 3];
    let mut client = story.outside(OUTER).await;
    client.send([&start[..], &[7; 6_000]].concat()).await;
    client.read_bytes_to_end().await;
    let failed = "myriad_handshakes_total{outcome=\"failed\"} 1\n";
    story.world.counts(failed).await;
    let mut client = story.outside(OUTER).await;
    client.send(start).await;
    client.read_bytes_to_end().await;
    let timeout = "myriad_handshakes_total{outcome=\"timeout\"} 1\n";
    story.world.counts(timeout).await;
    assert_eq!(story.names.asked(OUTER), 0);
}
