//! The kinds of Gateway API, and those that are watched for its sake.

use std::collections::BTreeSet;
use std::time::Duration;

use myriad_api::{Batch, ObjectKind};
use serde_json::json;

use super::super::{Cluster, ClusterSettings};
use super::server::Server;
use super::{changed, settings, synced};

const GROUP: &str = "gateway.networking.k8s.io/v1";
const CLASSES: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/gateways";
const ISTIO_GATEWAYS: &str = "/apis/networking.istio.io/v1/gateways";
const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/httproutes";
const STREAMS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/tcproutes";
const POLICIES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/backendtlspolicies";
const ALL_POLICIES: &str = "/apis/gateway.networking.k8s.io/v1/backendtlspolicies";
const NAMESPACES: &str = "/api/v1/namespaces";
const MAPS: &str = "/api/v1/namespaces/n/configmaps";

fn all(server: &Server) -> ClusterSettings {
    ClusterSettings {
        kinds: ObjectKind::ALL.into(),
        look_interval: Duration::from_millis(10),
        removal_hold: Duration::from_millis(100),
        ..settings(server)
    }
}

/// The names of objects that are put and removed, without the namespace that every cluster has.
fn names(batch: &Batch) -> (Vec<String>, Vec<String>) {
    let (mut put, removed) = super::names(batch);
    put.retain(|name| name != "kube-system");
    (put, removed)
}

/// The names of the next objects that are put, so many.
async fn put(cluster: &mut Cluster, count: usize) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    while seen.len() < count {
        let (put, removed) = names(&changed(cluster).await);
        assert!(removed.is_empty(), "{removed:?}");
        seen.extend(put);
    }
    seen
}

#[tokio::test]
async fn namespaces_and_config_maps_are_watched_while_gateway_api_is_there() {
    let server = Server::start().await;
    server.put(NAMESPACES, "shop", json!({}));
    server.put(MAPS, "roots", json!({"data": {}}));
    server.put(ROUTES, "web", json!({"spec": {}}));
    let (mut cluster, first) = synced(all(&server)).await;
    assert!(first.changes.is_empty(), "{first:?}");
    server.define(GROUP, &["gatewayclasses", "httproutes"]);
    let expected = ["roots", "shop", "web"].map(str::to_owned);
    assert_eq!(put(&mut cluster, 3).await, BTreeSet::from(expected));
}

#[tokio::test]
async fn a_role_without_a_right_to_classes_keeps_no_gate_closed() {
    let server = Server::start().await;
    server.define(GROUP, &["gatewayclasses", "httproutes"]);
    server.forbid(CLASSES);
    server.put(ROUTES, "web", json!({"spec": {}}));
    let (mut cluster, first) = synced(all(&server)).await;
    assert!(first.changes.is_empty(), "{first:?}");
    assert!(!server.log().iter().any(|line| line.contains("/httproutes")));
    // Once there is a right to them they come.
    server.permit(CLASSES);
    assert_eq!(
        put(&mut cluster, 1).await,
        BTreeSet::from(["web".to_owned()])
    );
    // A right that is lost takes nothing away, and keeps nothing back.
    server.forbid(CLASSES);
    server.put(STREAMS, "db", json!({"spec": {"rules": []}}));
    server.define(GROUP, &["gatewayclasses", "httproutes", "tcproutes"]);
    assert_eq!(
        put(&mut cluster, 1).await,
        BTreeSet::from(["db".to_owned()])
    );
}

#[tokio::test]
async fn routes_wait_for_the_policies_of_their_backends() {
    let server = Server::start().await;
    let (mut cluster, _) = synced(all(&server)).await;
    server.forbid(ALL_POLICIES);
    server.put(ROUTES, "web", json!({"spec": {}}));
    let policy = json!({"spec": {"targetRefs": []}});
    server.put(POLICIES, "tls", policy);
    server.define(
        GROUP,
        &["gatewayclasses", "httproutes", "backendtlspolicies"],
    );
    server.asked("/backendtlspolicies", 2).await;
    assert!(!server.log().iter().any(|line| line.contains("/httproutes")));
    server.permit(ALL_POLICIES);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(names(&changed(&mut cluster).await).0);
    }
    assert_eq!(seen, ["tls", "web"]);
}

#[tokio::test]
async fn two_kinds_of_one_name_have_reports_of_their_own() {
    let server = Server::start().await;
    server.define(GROUP, &["gatewayclasses", "gateways"]);
    server.define("networking.istio.io/v1", &["gateways"]);
    server.forbid(GATEWAYS);
    server.forbid(ISTIO_GATEWAYS);
    let mut cluster = Cluster::connect(all(&server)).await.expect("a server");
    let expected = [
        "kubernetes/Gateway",
        "kubernetes/gateway.networking.k8s.io Gateway",
    ];
    let mut told: BTreeSet<String> = BTreeSet::new();
    while told.len() < expected.len() {
        let reports = cluster.next().await.reports.into_iter();
        let troubled = reports.filter(|report| !report.findings.is_empty());
        told.extend(troubled.map(|report| report.subject.to_string()));
    }
    assert_eq!(told, BTreeSet::from(expected.map(str::to_owned)));
}

#[tokio::test]
async fn a_config_map_that_is_named_needs_nothing_of_gateway_api() {
    let server = Server::start().await;
    server.put(
        MAPS,
        "controller",
        json!({"data": {"ssl-redirect": "true"}}),
    );
    let settings = ClusterSettings {
        config_map: Some(("n".into(), "controller".into())),
        ..all(&server)
    };
    let (_cluster, first) = synced(settings).await;
    assert_eq!(names(&first).0, ["controller"]);
    let is_of_all = |line: &String| line.contains("metadata.name%21%3Dcontroller");
    assert!(!server.log().iter().any(is_of_all));
    server.define(GROUP, &["gatewayclasses"]);
    server.asked("/api/v1/configmaps?", 1).await;
    let log = server.log();
    let mut asked = log
        .iter()
        .filter(|line| line.contains("/api/v1/configmaps?"));
    assert!(asked.all(is_of_all), "{log:?}");
}
