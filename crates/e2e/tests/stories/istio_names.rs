//! Hosts that a server of DNS tells of, as requests and streams meet them.

use std::net::{IpAddr, SocketAddr};

use myriad_e2e::authority::Authority;
use myriad_e2e::name_server::Saying;
use myriad_e2e::{Answer, Backend, NameServer, World};

/// A Gateway for a host, with a VirtualService that leads to another.
fn edge(host: &str, to: &str) -> String {
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
fn entry(host: &str, port: u16, resolution: &str) -> String {
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
