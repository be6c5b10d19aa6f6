//! Workloads outside of the cluster, found by their labels.

use std::net::SocketAddr;

use myriad_e2e::istio::{Scene, object};
use myriad_e2e::{Answer, Backend};

const VERSION: &str = "networking.istio.io/v1";

/// A ServiceEntry that finds the workloads with a label.
fn entry(label: &str) -> String {
    let spec = format!(
        "hosts: [out.test], resolution: STATIC, ports: [{{number: 80, name: web, protocol: \
         HTTP}}], workloadSelector: {{labels: {{app: {label}}}}}"
    );
    object(VERSION, "ServiceEntry", "out", &spec)
}

/// A workload with a label, whose port `web` is at this address.
fn workload(name: &str, label: &str, weight: u32, at: SocketAddr) -> String {
    let spec = format!(
        "address: {}, ports: {{web: {}}}, labels: {{app: {label}}}, weight: {weight}",
        at.ip(),
        at.port()
    );
    object(VERSION, "WorkloadEntry", name, &spec)
}

fn is_from(name: &'static str) -> impl Fn(&Answer) -> bool {
    move |answer| answer.status == 200 && answer.told()["backend"] == name
}

#[tokio::test]
async fn workloads_are_endpoints_while_their_labels_fit() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let entries = |first: &str, second: &str| {
        workload("first", first, 1, one.address()) + &workload("second", second, 1, two.address())
    };
    let to = "route: [{destination: {host: out.test, port: {number: 80}}}]";
    let world = Scene::new().rules(&[to]).with(&entry("w")).serve().await;
    let url = "https://a.test/";
    assert_eq!(world.get(url).await.status, 503, "nobody is there");
    world.write("entries.yaml", &entries("w", "other"));
    world.eventually(url, is_from("one")).await;
    assert_eq!(two.asked(), 0);
    world.write("entries.yaml", &entries("other", "w"));
    world.eventually(url, is_from("two")).await;
    let before = one.asked();
    for _ in 0..4 {
        assert_eq!(world.get(url).await.told()["backend"], "two");
    }
    assert_eq!(one.asked(), before);
    world.delete("entries.yaml");
    world.eventually(url, |answer| answer.status == 503).await;
    world.stop().await;
}

#[tokio::test]
async fn workloads_take_requests_by_their_weight() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let to = "route: [{destination: {host: out.test, port: {number: 80}}}]";
    let balance = "host: out.test, trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}";
    let world = Scene::new()
        .rules(&[to])
        .with(&entry("w"))
        .with(&workload("first", "w", 9, one.address()))
        .with(&workload("second", "w", 1, two.address()))
        .with(&object(VERSION, "DestinationRule", "out", balance))
        .serve()
        .await;
    for _ in 0..40 {
        assert_eq!(world.get("https://a.test/").await.status, 200);
    }
    assert!(
        one.asked() > 3 * two.asked(),
        "{} and {}",
        one.asked(),
        two.asked()
    );
    assert!(two.asked() > 0);
    world.stop().await;
}
