//! Istio's rules for TLS and TCP, as clients see them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, Site, World};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// An endpoint that ends TLS with a certificate of its own and answers HTTP with its name.
pub(super) async fn tls_endpoint(name: &'static str, pair: &Pair) -> SocketAddr {
    let chain = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("a leaf");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("a pair");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(tcp).await else {
                    return;
                };
                let mut head = vec![0; 4_096];
                let _ = tls.read(&mut head).await;
                let length = name.len();
                let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
                let _ = tls.write_all(text.as_bytes()).await;
                let _ = tls.shutdown().await;
            });
        }
    });
    address
}

/// An endpoint that hears its client out, and then says its own name and what it heard.
async fn echo_endpoint(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = name.as_bytes().to_vec();
                let _ = tcp.read_to_end(&mut heard).await;
                let _ = tcp.write_all(&heard).await;
            });
        }
    });
    address
}

/// A port that nobody listens on now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A Service of port 80 with these endpoints, without an Ingress.
fn service(name: &str, endpoints: &[SocketAddr]) -> String {
    let site = endpoints
        .iter()
        .fold(Site::new(name), |site, at| site.to(*at));
    let mut parts = site.documents();
    parts.remove(0);
    format!("---\n{}", parts.join("---\n"))
}

fn gateway(servers: &[&str]) -> String {
    let servers: String = servers.iter().map(|it| format!("  - {{{it}}}\n")).collect();
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: edge, \
         namespace: default}}\nspec:\n  selector: {{istio: ingressgateway}}\n  servers:\n{servers}"
    )
}

fn rules(name: &str, hosts: &str, kind: &str, rules: &[&str]) -> String {
    let rules: String = rules.iter().map(|it| format!("  - {{{it}}}\n")).collect();
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, \
         namespace: default}}\nspec:\n  hosts: {hosts}\n  gateways: [edge]\n  {kind}:\n{rules}"
    )
}

fn to(name: &str) -> String {
    format!("route: [{{destination: {{host: {name}, port: {{number: 80}}}}}}]")
}

/// Says something to a port, ends its half, and returns the answer; none where nobody listens.
async fn say(port: u16, text: &str) -> Option<String> {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    tcp.write_all(text.as_bytes()).await.ok()?;
    tcp.shutdown().await.ok()?;
    let mut heard = String::new();
    tcp.read_to_string(&mut heard).await.ok()?;
    Some(heard)
}

#[tokio::test]
async fn handshakes_are_handed_on_by_name_to_endpoints_with_certificates_of_their_own() {
    let authority = Authority::new();
    let a = tls_endpoint("a", &authority.issue(&["a.test"])).await;
    let b = tls_endpoint("b", &authority.issue(&["*.b.test"])).await;
    let servers = [
        "port: {number: 443, name: t, protocol: TLS}, hosts: [a.test, '*.b.test', \
                    c.test], tls: {mode: PASSTHROUGH}",
    ];
    let match_a = format!("match: [{{sniHosts: [a.test]}}], {}", to("a"));
    let match_b = format!("match: [{{sniHosts: ['*.b.test']}}], {}", to("b"));
    let base = gateway(&servers) + &service("a", &[a]) + &service("b", &[b]);
    let written = rules("a", "[a.test]", "tls", &[&match_a]);
    let wild = rules("b", "['*.b.test']", "tls", &[&match_b]);
    let files = [("base.yaml", base), ("a.yaml", written), ("b.yaml", wild)];
    let world = World::serve_with(authority, &files, &[]).await;
    // No certificate is known to Myriad: curl has verified that of the endpoint.
    assert_eq!(world.get("https://a.test/").await.body, "a");
    assert_eq!(world.get("https://x.b.test/").await.body, "b");
    let refused = world.get("https://c.test/").await;
    assert_eq!(refused.status, 0);
    let findings = world.findings().await;
    assert!(
        findings
            .iter()
            .any(|it| it.contains("leads nowhere for c.test")),
        "{findings:?}"
    );
    world.delete("a.yaml");
    world
        .eventually("https://a.test/", |answer| answer.status == 0)
        .await;
    assert_eq!(world.get("https://x.b.test/").await.body, "b");
    world.write("a.yaml", &rules("a", "[a.test]", "tls", &[&match_a]));
    world
        .eventually("https://a.test/", |answer| answer.body == "a")
        .await;
    world.stop().await;
}

#[tokio::test]
async fn weights_divide_handshakes_and_a_host_beside_them_is_served_as_ever() {
    let authority = Authority::new();
    let pair = authority.issue(&["a.test"]);
    let (one, two) = (
        tls_endpoint("1", &pair).await,
        tls_endpoint("2", &pair).await,
    );
    let backend = Backend::start("web").await;
    let site = Site::new("web.test")
        .to(backend.address())
        .tls(&authority.issue(&["web.test"]));
    let servers = [
        "port: {number: 443, name: t, protocol: TLS}, hosts: ['*.test'], \
                    tls: {mode: PASSTHROUGH}",
    ];
    let shares = "match: [{sniHosts: [a.test]}], route: [{destination: {host: one}, weight: 3}, \
                  {destination: {host: two}, weight: 1}]";
    let text = gateway(&servers) + &service("one", &[one]) + &service("two", &[two]);
    let files = [
        ("base.yaml", text),
        ("rules.yaml", rules("a", "[a.test]", "tls", &[shares])),
        ("web.yaml", site.yaml()),
    ];
    let world = World::serve_with(authority, &files, &[]).await;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..60 {
        let Answer { body, .. } = world.get("https://a.test/").await;
        *seen.entry(body).or_default() += 1;
    }
    assert_eq!(
        seen.values().sum::<usize>(),
        seen["1"] + seen["2"],
        "{seen:?}"
    );
    assert!((30..58).contains(&seen["1"]), "{seen:?}");
    assert_eq!(
        world.get("https://web.test/").await.told()["backend"],
        "web"
    );
    world.stop().await;
}

#[tokio::test]
async fn tls_ends_at_the_gateway_and_its_bytes_are_handed_on() {
    let authority = Authority::new();
    let backend = Backend::start("plain").await;
    let site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test", "b.test"]));
    let mut parts = site.documents();
    parts.remove(0);
    let servers = [
        "port: {number: 443, name: t, protocol: TLS}, hosts: [a.test, b.test], \
                    tls: {mode: SIMPLE, credentialName: a-test}",
    ];
    let text = format!("---\n{}{}", parts.join("---\n"), gateway(&servers));
    let written = rules("a", "[a.test]", "tcp", &[&to("a-test")]);
    let files = [("base.yaml", text), ("rules.yaml", written)];
    let world = World::serve_with(authority, &files, &[]).await;
    let answer = world.get("https://a.test/x").await;
    assert_eq!(answer.told()["uri"], "/x");
    // Nothing of HTTP was read on the way.
    assert_eq!(
        answer.told()["headers"]["x-forwarded-for"],
        serde_json::Value::Null
    );
    assert_eq!(
        world.get("https://b.test/").await.status,
        0,
        "it leads nowhere"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_tcp_port_hands_on_what_it_hears_until_its_gateway_is_gone() {
    let (port, dead) = (free_port(), free_port());
    let a = echo_endpoint("a:").await;
    let down = SocketAddr::from(([127, 0, 0, 1], dead));
    let server = format!("port: {{number: {port}, name: t, protocol: TCP}}, hosts: ['*']");
    let files = [
        ("gateway.yaml", gateway(&[&server])),
        ("base.yaml", service("a", &[a, down])),
        ("rules.yaml", rules("a", "['*']", "tcp", &[&to("a")])),
    ];
    let world = World::serve(&files).await;
    let reached = eventually(async || say(port, "hello").await.filter(|it| it == "a:hello"));
    assert!(reached.await.is_some(), "the port opens");
    let long = "x".repeat(5 << 20);
    let heard = say(port, &long).await.expect("an answer");
    assert_eq!(heard.len(), long.len() + 2);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..200 {
        clients.spawn(async move {
            let text = format!("{number}");
            assert_eq!(say(port, &text).await, Some(format!("a:{number}")));
        });
    }
    while let Some(joined) = clients.join_next().await {
        joined.expect("each hears its own");
    }
    world.delete("rules.yaml");
    let closed = eventually(async || say(port, "").await.filter(String::is_empty));
    assert!(closed.await.is_some(), "no rule, no endpoint");
    world.delete("gateway.yaml");
    let gone = eventually(async || TcpStream::connect(("127.0.0.1", port)).await.err());
    assert!(gone.await.is_some(), "the port closes");
    world.stop().await;
}
