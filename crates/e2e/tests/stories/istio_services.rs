//! Subsets of DestinationRules and hosts of ServiceEntries, as clients see them.

use std::net::SocketAddr;

use myriad_e2e::authority::Authority;
use myriad_e2e::{Answer, Backend, World};

/// A Gateway with one door, and a VirtualService behind it whose only destination is this one.
fn edge(destination: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: edge, namespace: \
         default}}\nspec:\n  servers:\n  - {{port: {{number: 80, name: http, protocol: HTTP}}, \
         hosts: [a.test]}}\n---\napiVersion: networking.istio.io/v1\nkind: \
         VirtualService\nmetadata: {{name: a, namespace: default}}\nspec:\n  hosts: [a.test]\n  \
         gateways: [edge]\n  http: [{{route: [{{destination: {{{destination}}}}}]}}]\n"
    )
}

/// A Service `app` and a Pod for each version at its address.
fn app(versions: &[(&str, SocketAddr)]) -> String {
    let mut text = "---\napiVersion: v1\nkind: Service\nmetadata: {name: app, namespace: \
                    default}\nspec: {ports: [{name: http, port: 80}]}\n"
        .to_owned();
    for (version, address) in versions {
        let (ip, port) = (address.ip(), address.port());
        text += &format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {version}, namespace: default, \
             labels: {{version: {version}}}}}\n---\napiVersion: discovery.k8s.io/v1\nkind: \
             EndpointSlice\nmetadata: {{name: {version}, namespace: default, labels: \
             {{kubernetes.io/service-name: app}}}}\naddressType: IPv4\nports: [{{name: http, port: \
             {port}}}]\nendpoints: [{{addresses: [{ip}], targetRef: {{kind: Pod, name: \
             {version}}}}}]\n"
        );
    }
    text
}

const SUBSETS: &str = "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: \
                       {name: app, namespace: default}\nspec: {host: app, subsets: [{name: one, \
                       labels: {version: v1}}, {name: two, labels: {version: v2}}]}\n";

/// A ServiceEntry of `out.test` with this resolution and what belongs to it.
fn entry(found: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: out, \
         namespace: default}}\nspec: {{hosts: [out.test], ports: [{{number: 80, name: http, \
         protocol: HTTP}}], {found}}}\n"
    )
}

async fn serve(text: String) -> World {
    World::serve_with(Authority::new(), &[("a.yaml", text)], &[]).await
}

fn is_from(name: &'static str) -> impl Fn(&Answer) -> bool {
    move |answer| answer.status == 200 && answer.told()["backend"] == name
}

#[tokio::test]
async fn a_subset_is_reached_by_the_labels_of_its_pods() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let app = app(&[("v1", one.address()), ("v2", two.address())]);
    let to = |subset: &str| {
        format!(
            "{}{app}{SUBSETS}",
            edge(&format!("host: app, subset: {subset}"))
        )
    };
    let world = serve(to("one")).await;
    for _ in 0..4 {
        assert_eq!(world.get("http://a.test/").await.told()["backend"], "one");
    }
    world.write("a.yaml", &to("two"));
    world.eventually("http://a.test/", is_from("two")).await;
    for _ in 0..4 {
        assert_eq!(world.get("http://a.test/").await.told()["backend"], "two");
    }
    world.write("a.yaml", &to("nobody"));
    world
        .eventually("http://a.test/", |answer| answer.status == 503)
        .await;
    world.write("a.yaml", &to("one"));
    world.eventually("http://a.test/", is_from("one")).await;
    world.stop().await;
}

#[tokio::test]
async fn a_rule_that_goes_takes_its_subsets_with_it() {
    let one = Backend::start("one").await;
    let rest = format!(
        "{}{}",
        edge("host: app, subset: one"),
        app(&[("v1", one.address())])
    );
    let world = serve(format!("{rest}{SUBSETS}")).await;
    assert_eq!(world.get("http://a.test/").await.status, 200);
    world.write("a.yaml", &rest);
    world
        .eventually("http://a.test/", |answer| answer.status == 503)
        .await;
    world.stop().await;
}

#[tokio::test]
async fn hosts_of_service_entries_are_destinations() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let at = |found: String| format!("{}{}", edge("host: out.test"), entry(&found));
    let fixed = format!(
        "resolution: STATIC, endpoints: [{{address: {}, ports: {{http: {}}}}}]",
        one.address().ip(),
        one.address().port()
    );
    let world = serve(at(fixed)).await;
    world.eventually("http://a.test/", is_from("one")).await;
    let named = format!(
        "resolution: DNS, endpoints: [{{address: localhost, ports: {{http: {}}}}}]",
        two.address().port()
    );
    world.write("a.yaml", &at(named));
    world.eventually("http://a.test/", is_from("two")).await;
    world.write("a.yaml", &edge("host: out.test"));
    world
        .eventually("http://a.test/", |answer| answer.status == 503)
        .await;
    world.stop().await;
}
