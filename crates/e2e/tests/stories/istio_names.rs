//! Hosts that a server of DNS tells of, as requests and streams meet them.

use std::net::{IpAddr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_e2e::authority::Authority;
use myriad_e2e::name_server::Saying;
use myriad_e2e::{Answer, Backend, NameServer, World};

use super::istio_tcp::tls_endpoint;

/// A Gateway for a host, with a VirtualService that leads to another.
pub(super) fn edge(host: &str, to: &str) -> String {
    format!(
        "---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge, namespace: default}}
spec:
  selector: {{istio: ingressgateway}}
  servers:
  - {{port: {{number: 80, name: http, protocol: HTTP}}, hosts: ['{host}']}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: edge, namespace: default}}
spec:
  hosts: ['{host}']
  gateways: [edge]
  http:
  - route: [{{destination: {{host: '{to}'}}}}]
"
    )
}

/// A ServiceEntry of one host whose port leads to another.
pub(super) fn entry(host: &str, port: u16, resolution: &str) -> String {
    format!(
        "---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: out, namespace: default}}
spec:
  hosts: ['{host}']
  ports: [{{number: 80, name: http, protocol: HTTP, targetPort: {port}}}]
  resolution: {resolution}
"
    )
}

async fn serve(server: &NameServer, text: String, more: &[&str]) -> World {
    let resolver = format!("--resolver={}", server.address());
    let mut arguments = vec![&*resolver];
    arguments.extend(more);
    World::serve_with(Authority::new(), &[("a.yaml", text)], &arguments).await
}

/// Two backends of one port, at two addresses of this machine.
async fn two() -> (Backend, Backend, u16) {
    let one = Backend::start_at("one", SocketAddr::from(([127, 0, 0, 2], 0))).await;
    let port = one.address().port();
    let two = Backend::start_at("two", SocketAddr::from(([127, 0, 0, 3], port))).await;
    (one, two, port)
}

fn at(last: u8, ttl: u32) -> Saying {
    Saying::Addresses(vec![IpAddr::from([127, 0, 0, last])], ttl)
}

fn is_from(name: &'static str) -> impl Fn(&Answer) -> bool {
    move |answer| answer.status == 200 && answer.told()["backend"] == name
}

#[tokio::test]
async fn endpoints_follow_dns_by_the_age_of_its_records_and_outlive_its_server() {
    let (_one, _two, port) = two().await;
    let server = NameServer::start();
    server.say("out.test", at(2, 1));
    let text = edge("a.test", "out.test") + &entry("out.test", port, "DNS");
    let world = serve(&server, text, &[]).await;
    world.eventually("http://a.test/", is_from("one")).await;
    server.say("out.test", at(3, 1));
    world.eventually("http://a.test/", is_from("two")).await;
    server.say("out.test", Saying::Failure);
    let failures = myriad_e2e::world::eventually(async || {
        assert!(is_from("two")(&world.get("http://a.test/").await));
        let failures = world.metric("myriad_dns_failures_total").await;
        (failures > 0.0).then_some(failures)
    });
    assert!(failures.await.is_some());
    server.say("out.test", Saying::Nothing);
    let gone = |answer: &Answer| answer.status == 503;
    world.eventually("http://a.test/", gone).await;
}

const ALLOW: &str = "--dynamic-dns-allow=127.0.0.0/8";

#[tokio::test]
async fn the_host_of_a_request_is_resolved_when_it_comes() {
    let (_one, _two, port) = two().await;
    let server = NameServer::start();
    server.say("one.out.test", at(2, 60));
    server.say("far.two.out.test", at(3, 60));
    let text = edge("*.out.test", "*.out.test") + &entry("*.out.test", port, "DYNAMIC_DNS");
    let world = serve(&server, text, &[ALLOW]).await;
    for _ in 0..3 {
        let one = world.get("http://one.out.test/").await;
        assert!(is_from("one")(&one), "{one:?}");
        // As the client has written it, with the port of the gateway.
        let told = one.told()["headers"]["host"].as_str().map(str::to_owned);
        let host = told.as_deref().and_then(|it| it.split(':').next());
        assert_eq!(host, Some("one.out.test"));
        let two = world.get("http://far.two.out.test/").await;
        assert!(is_from("two")(&two), "{two:?}");
    }
    assert_eq!(server.asked("one.out.test"), 1);
    let nobody = world.get("http://nobody.out.test/").await;
    assert_eq!(nobody.status, 503);
    world.stop().await;
}

#[tokio::test]
async fn a_host_that_points_at_the_gateways_own_surroundings_is_not_reached() {
    let (one, _two, port) = two().await;
    let server = NameServer::start();
    server.say("inside.out.test", at(2, 60));
    let text = edge("*.out.test", "*.out.test") + &entry("*.out.test", port, "DYNAMIC_DNS");
    let world = serve(&server, text.clone(), &[]).await;
    assert_eq!(world.get("http://inside.out.test/").await.status, 503);
    let refused = world.metric("myriad_dns_addresses_refused_total").await;
    assert!(refused >= 1.0);
    world.stop().await;
    // What is refused by name stays refused within what is allowed.
    let deny = "--dynamic-dns-deny=127.0.0.2";
    let world = serve(&server, text, &[ALLOW, deny]).await;
    assert_eq!(world.get("http://inside.out.test/").await.status, 503);
    assert_eq!(one.asked(), 0);
    world.stop().await;
}

/// Gateway, rules and DestinationRule that lead requests over TLS, and handshakes as they are.
fn secured(port: u16, authority: &Authority) -> String {
    let root = STANDARD.encode(authority.root());
    format!(
        "---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge, namespace: default}}
spec:
  selector: {{istio: ingressgateway}}
  servers:
  - {{port: {{number: 80, name: http, protocol: HTTP}}, hosts: ['*.out.test']}}
  - port: {{number: 443, name: tls, protocol: TLS}}
    hosts: ['*.out.test']
    tls: {{mode: PASSTHROUGH}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: edge, namespace: default}}
spec:
  hosts: ['*.out.test']
  gateways: [edge]
  http:
  - route: [{{destination: {{host: '*.out.test', port: {{number: 80}}}}}}]
  tls:
  - match: [{{sniHosts: ['*.out.test']}}]
    route: [{{destination: {{host: '*.out.test', port: {{number: 443}}}}}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: out, namespace: default}}
spec:
  hosts: ['*.out.test']
  ports:
  - {{number: 80, name: http, protocol: HTTP, targetPort: {port}}}
  - {{number: 443, name: tls, protocol: TLS, targetPort: {port}}}
  resolution: DYNAMIC_DNS
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: out, namespace: default}}
spec:
  host: '*.out.test'
  trafficPolicy:
    portLevelSettings:
    - {{port: {{number: 80}}, tls: {{mode: SIMPLE, credentialName: roots}}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: roots, namespace: istio-system}}
type: Opaque
data: {{ca.crt: {root}}}
"
    )
}

#[tokio::test]
async fn tls_passes_by_its_name_and_tls_that_begins_here_verifies_the_name_that_was_asked() {
    let authority = Authority::new();
    let endpoint = tls_endpoint("behind", &authority.issue(&["a.out.test"])).await;
    let server = NameServer::start();
    for host in ["a.out.test", "b.out.test"] {
        server.say(host, at(1, 60));
    }
    let text = secured(endpoint.port(), &authority);
    let resolver = format!("--resolver={}", server.address());
    let arguments = [&*resolver, ALLOW];
    let world = World::serve_with(authority, &[("a.yaml", text)], &arguments).await;
    assert_eq!(world.get("https://a.out.test/").await.body, "behind");
    assert_eq!(world.get("http://a.out.test/").await.body, "behind");
    // The same endpoint by a name that its certificate does not have.
    assert_eq!(world.get("http://b.out.test/").await.status, 502);
    // A name that nobody resolves ends its handshake.
    assert_eq!(world.get("https://c.out.test/").await.status, 0);
    world.stop().await;
}

/// A ServiceEntry of endpoints in localities, with what a DestinationRule says of them.
fn spread(endpoints: &[(&Backend, &str)], policy: &str) -> String {
    let mut text = edge("a.test", "out.test")
        + "---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: out, namespace: default}
spec:
  hosts: [out.test]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints:
";
    for (backend, locality) in endpoints {
        let (ip, port) = (backend.address().ip(), backend.address().port());
        text += &format!("  - {{address: {ip}, ports: {{http: {port}}}, locality: {locality}}}\n");
    }
    text + &format!(
        "---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: out, namespace: default}}
spec: {{host: out.test, trafficPolicy: {policy}}}
"
    )
}

async fn serve_at(locality: &str, text: String) -> World {
    let locality = format!("--locality={locality}");
    World::serve_with(Authority::new(), &[("a.yaml", text)], &[&locality]).await
}

#[tokio::test]
async fn the_nearest_endpoints_are_asked_until_they_fail() {
    let near = Backend::start_at("near", SocketAddr::from(([127, 0, 0, 2], 0))).await;
    let far = Backend::start_at("far", SocketAddr::from(([127, 0, 0, 3], 0))).await;
    let policy = "{outlierDetection: {consecutive5xxErrors: 1, interval: 1s, maxEjectionPercent: \
                  100}}";
    let text = spread(&[(&far, "eu/b"), (&near, "eu/a")], policy);
    let world = serve_at("eu/a", text.clone()).await;
    for _ in 0..20 {
        assert!(is_from("near")(&world.get("http://a.test/").await));
    }
    drop(near);
    world.eventually("http://a.test/", is_from("far")).await;
    world.stop().await;
    // For a proxy elsewhere the other is the near one.
    let world = serve_at("eu/b", text).await;
    for _ in 0..20 {
        assert!(is_from("far")(&world.get("http://a.test/").await));
    }
    world.stop().await;
}

#[tokio::test]
async fn localities_take_the_shares_that_are_written() {
    let near = Backend::start_at("near", SocketAddr::from(([127, 0, 0, 2], 0))).await;
    let far = Backend::start_at("far", SocketAddr::from(([127, 0, 0, 3], 0))).await;
    let other = Backend::start_at("other", SocketAddr::from(([127, 0, 0, 4], 0))).await;
    let policy = "{loadBalancer: {simple: RANDOM, localityLbSetting: {distribute: \
                  [{from: 'eu/a/*', to: {'eu/a/*': 50, 'eu/b/*': 50}}]}}}";
    let endpoints = [(&near, "eu/a"), (&far, "eu/b"), (&other, "us/a")];
    let world = serve_at("eu/a/1", spread(&endpoints, policy)).await;
    for _ in 0..40 {
        assert_eq!(world.get("http://a.test/").await.status, 200);
    }
    assert!(near.asked() > 5 && far.asked() > 5);
    assert_eq!(other.asked(), 0);
    world.stop().await;
}
