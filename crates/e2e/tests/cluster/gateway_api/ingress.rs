//! Ingresses, which have no conditions: an Event and an annotation say that they are live.

use myriad_e2e::Backend;
use myriad_e2e::cluster::{Api, Cluster, Process};
use myriad_e2e::world::eventually;
use serde_json::Value;

use super::scene::version;
use crate::site;

/// Resources of one host: its route, domain, certificate, upstream and endpoints.
const RESOURCES_OF_HOST: u64 = 5;

#[tokio::test]
async fn an_ingress_says_which_generation_is_live_and_nobody_else_notices() {
    let cluster = Cluster::join().await;
    let _endpoint = Backend::start_at("endpoint", cluster.endpoint()).await;
    let api = cluster.api().await;
    let launch = cluster.controller_launch(0);
    let _controller = launch
        .environment("MYRIAD_LIVE_ANNOTATIONS", "true")
        .start();
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;

    appears(&cluster, &api, "one.test").await;
    let first = live_at(&cluster, &api, "one-test", 1).await;
    let notes = eventually(async || {
        let notes = api.notes(&cluster.tenant()).await;
        let is_told = |it: &String| it.starts_with("one-test ") && it.contains("is live");
        notes.iter().any(is_told).then_some(())
    });
    notes.await.expect("an Event says so too");

    // The controller has read each annotation before it reads the Ingress that comes next.
    let before = received(&cluster, &proxy).await;
    appears(&cluster, &api, "two.test").await;
    live_at(&cluster, &api, "two-test", 1).await;
    appears(&cluster, &api, "three.test").await;
    let after = received(&cluster, &proxy).await;
    assert_eq!(
        after - before,
        2 * RESOURCES_OF_HOST,
        "no more than the two"
    );
    let now = api.get(&path(&cluster, "one-test")).await;
    assert_eq!(version(&now), version(&first), "it is written once");

    let edited = site(&cluster, "one.test")
        .path("/new")
        .documents()
        .remove(0);
    api.apply(&edited).await;
    live_at(&cluster, &api, "one-test", 2).await;
    let answer = cluster.ask("https://one.test:8443/new").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(cluster.get("one.test").await.status, 404);
}

/// Writes a host, its Ingress last, and waits until it is served.
async fn appears(cluster: &Cluster, api: &Api, host: &str) {
    for document in site(cluster, host).documents().iter().rev() {
        api.apply(document).await;
    }
    cluster.eventually(host, |it| it.status == 200).await;
}

/// The Ingress once it says that this generation is live.
async fn live_at(cluster: &Cluster, api: &Api, name: &str, generation: i64) -> Value {
    let start = format!("generation {generation} since 2");
    let path = path(cluster, name);
    let mut last = Value::Null;
    let told = eventually(async || {
        last = api.get(&path).await;
        let shown = last["metadata"]["annotations"]["myriad.dev/live"].as_str();
        shown?.starts_with(&start).then_some(())
    });
    let is_told = told.await.is_some();
    assert!(is_told, "{last:#}");
    assert_eq!(last["metadata"]["generation"], generation);
    last
}

fn path(cluster: &Cluster, name: &str) -> String {
    let tenant = cluster.tenant();
    format!("/apis/networking.k8s.io/v1/namespaces/{tenant}/ingresses/{name}")
}

/// Resources that the proxy was sent so far.
async fn received(cluster: &Cluster, proxy: &Process) -> u64 {
    let metrics = cluster.admin(proxy, "/metrics").await.body;
    let mut lines = metrics.lines();
    let found = lines.find_map(|line| line.strip_prefix("myriad_sync_resources_total "));
    found.expect("a counter").parse().expect("a number")
}
