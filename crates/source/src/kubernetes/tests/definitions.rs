//! Kinds whose definitions come and go.

use myriad_api::{Batch, Change, Object, ObjectKind};
use serde_json::{Value, json};
use std::time::Duration;

use super::super::{Cluster, ClusterSettings, WatchCounters};
use super::server::Server;
use super::{changed, names, settings, synced};

/// Long enough to be told apart from no hold at all.
const HOLD: Duration = Duration::from_millis(300);

const GROUP: &str = "networking.istio.io/v1";
const OLD_GROUP: &str = "networking.istio.io/v1beta1";
const SECURITY: &str = "security.istio.io/v1";
const ROUTES: &str = "/apis/networking.istio.io/v1/namespaces/n/virtualservices";
const OLD_ROUTES: &str = "/apis/networking.istio.io/v1beta1/namespaces/n/virtualservices";
const PODS: &str = "/api/v1/namespaces/n/pods";
const ENTRIES: &str = "/apis/networking.istio.io/v1/namespaces/n/serviceentries";
const POLICIES: &str = "/apis/security.istio.io/v1/namespaces/n/authorizationpolicies";
const MYRIAD: &str = "myriad.dev/v1alpha1";
const ALL_ISSUERS: &str = "/apis/myriad.dev/v1alpha1/issuers";
const OWN_ISSUERS: &str = "/apis/myriad.dev/v1alpha1/namespaces/n/issuers";
const ALL_POLICIES: &str = "/apis/security.istio.io/v1/authorizationpolicies";

fn all(server: &Server) -> ClusterSettings {
    ClusterSettings {
        kinds: ObjectKind::ALL.into(),
        look_interval: Duration::from_millis(10),
        whole_pods_for: Duration::from_millis(10),
        removal_hold: HOLD,
        ..settings(server)
    }
}

fn route(host: &str) -> Value {
    json!({"spec": {"hosts": [host]}})
}

fn policy() -> Value {
    json!({"spec": {}})
}

#[tokio::test]
async fn absent_kinds_keep_no_gate_closed_and_are_watched_once_they_are_defined() {
    let server = Server::start().await;
    let (mut cluster, first) = synced(all(&server)).await;
    assert!(first.changes.is_empty() && first.reports.is_empty());
    server.put(ROUTES, "a", route("a.test"));
    server.define(GROUP, &["virtualservices"]);
    assert_eq!(names(&changed(&mut cluster).await).0, ["a"]);
    server.put(ROUTES, "a", route("b.test"));
    assert_eq!(names(&changed(&mut cluster).await).0, ["a"]);
}

#[tokio::test]
async fn a_kind_whose_definition_goes_is_held_and_then_empty_until_it_is_back() {
    let server = Server::start().await;
    server.define(GROUP, &["virtualservices", "gateways"]);
    server.put(ROUTES, "a", route("a.test"));
    let (mut cluster, first) = synced(all(&server)).await;
    assert_eq!(names(&first).0, ["a"]);
    let gone = myriad_base::clock::now();
    server.define(GROUP, &["gateways"]);
    let held = told(&mut cluster, "suddenly empty").await;
    assert!(held.changes.is_empty());
    assert_eq!(names(&changed(&mut cluster).await).1, ["a"]);
    let passed = myriad_base::clock::now() - gone;
    assert!(passed >= HOLD, "{passed:?}");
    server.define(GROUP, &["virtualservices"]);
    assert_eq!(names(&changed(&mut cluster).await).0, ["a"]);
}

#[tokio::test]
async fn the_newest_version_that_the_server_has_is_read() {
    let server = Server::start().await;
    server.define(OLD_GROUP, &["virtualservices"]);
    server.put(OLD_ROUTES, "a", route("a.test"));
    let (mut cluster, first) = synced(all(&server)).await;
    assert_eq!(names(&first).0, ["a"]);
    // The server shows an object in all versions; one that did not change is no change.
    server.put(ROUTES, "a", route("a.test"));
    server.put(ROUTES, "b", route("b.test"));
    server.define(GROUP, &["virtualservices"]);
    assert_eq!(names(&changed(&mut cluster).await).0, ["b"]);
}

#[tokio::test]
async fn what_lets_requests_in_waits_for_what_keeps_them_out() {
    let server = Server::start().await;
    server.forbid(ALL_POLICIES);
    let (mut cluster, _) = synced(all(&server)).await;
    server.put(ROUTES, "a", route("a.test"));
    server.put(POLICIES, "p", policy());
    server.define(SECURITY, &["authorizationpolicies"]);
    server.define(GROUP, &["virtualservices"]);
    let told = told(
        &mut cluster,
        "kubernetes/AuthorizationPolicy cannot be watched",
    )
    .await;
    assert!(told.changes.is_empty());
    assert!(
        !server
            .log()
            .iter()
            .any(|line| line.contains("/virtualservices"))
    );
    server.permit(ALL_POLICIES);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let batch = changed(&mut cluster).await;
        seen.extend(batch.changes.iter().map(Change::key).map(|key| key.kind));
    }
    let expected = [ObjectKind::AuthorizationPolicy, ObjectKind::VirtualService];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_server_that_hides_its_kinds_opens_no_gate_until_it_tells_them() {
    let server = Server::start().await;
    server.forbid("/apis");
    let mut cluster = Cluster::connect(all(&server)).await.expect("a server");
    let mut is_synced = false;
    let mut take = |batch: &Batch| is_synced |= batch.synced;
    loop {
        let batch = cluster.next().await;
        take(&batch);
        let mut findings = batch.reports.iter().flat_map(|report| &report.findings);
        if findings.any(|it| it.to_string().contains("kubernetes/VirtualService")) {
            break;
        }
    }
    assert!(!is_synced, "nobody knows whether there are policies");
    server.permit("/apis");
    while !cluster.next().await.synced {}
}

#[tokio::test]
async fn pods_are_watched_for_destination_rules_and_by_their_metadata_alone() {
    let server = Server::start().await;
    let pod = |label: &str, phase: &str| {
        let metadata = json!({"labels": {"version": label}});
        json!({"metadata": metadata, "status": {"phase": phase}})
    };
    server.put(PODS, "a", pod("v1", "Pending"));
    let (mut cluster, first) = synced(all(&server)).await;
    assert!(first.changes.is_empty());
    server.define(GROUP, &["destinationrules"]);
    assert_eq!(names(&changed(&mut cluster).await).0, ["a"]);
    server.put(PODS, "b", pod("v1", "Pending"));
    assert_eq!(names(&changed(&mut cluster).await).0, ["b"]);
    server.put(PODS, "a", pod("v1", "Running"));
    server.put(PODS, "b", pod("v2", "Running"));
    assert_eq!(names(&changed(&mut cluster).await).0, ["b"]);
    let log = server.log();
    let mut asked = log.iter().filter(|line| line.contains("/pods"));
    assert!(asked.all(|line| line.ends_with("(metadata)")), "{log:?}");
}

#[tokio::test]
async fn addresses_of_pods_are_read_while_a_service_entry_selects_workloads() {
    let server = Server::start().await;
    server.define(GROUP, &["serviceentries"]);
    let pod = |address: &str, reason: &str| {
        let status = json!({"podIP": address, "reason": reason});
        json!({"metadata": {"labels": {"app": "a"}}, "status": status})
    };
    server.put(ENTRIES, "e", entry(json!({"labels": {"app": "a"}})));
    server.put(PODS, "a", pod("10.0.0.1", ""));
    // What the gate waits for is the whole Pod, so that no endpoint is missing at the start.
    let (mut cluster, first) = synced(all(&server)).await;
    assert_eq!(addresses(&first), ["10.0.0.1"]);
    server.put(PODS, "a", pod("10.0.0.1", "nothing that matters"));
    server.put(PODS, "a", pod("10.0.0.2", ""));
    assert_eq!(addresses(&changed(&mut cluster).await), ["10.0.0.2"]);
    let pods = |server: &Server| {
        let log = server.log().into_iter();
        log.filter(|line| line.contains("/pods"))
            .collect::<Vec<_>>()
    };
    assert!(
        pods(&server)
            .iter()
            .all(|line| !line.ends_with("(metadata)"))
    );
    server.put(ENTRIES, "e", entry(Value::Null));
    let mut seen = Vec::new();
    while seen != ["none"] {
        seen = addresses(&changed(&mut cluster).await);
    }
    assert!(
        pods(&server)
            .iter()
            .any(|line| line.ends_with("(metadata)"))
    );
    server.put(ENTRIES, "e", entry(json!({"labels": {"app": "a"}})));
    while seen != ["10.0.0.2"] {
        seen = addresses(&changed(&mut cluster).await);
    }
}

#[tokio::test]
async fn a_selector_that_comes_and_goes_lists_the_pods_once() {
    let server = Server::start().await;
    server.define(GROUP, &["serviceentries"]);
    let pod = |address: &str| json!({"status": {"podIP": address}});
    server.put(PODS, "a", pod("10.0.0.1"));
    server.put(ENTRIES, "e", entry(Value::Null));
    let settings = ClusterSettings {
        whole_pods_for: Duration::from_secs(3_600),
        ..all(&server)
    };
    let (mut cluster, first) = synced(settings).await;
    assert_eq!(addresses(&first), ["none"]);
    for number in 0..40 {
        let selector = match number % 2 {
            0 => json!({"labels": {"app": "a"}}),
            _ => Value::Null,
        };
        server.put(ENTRIES, "e", entry(selector));
        let is_entry = |change: &Change| change.key().kind == ObjectKind::ServiceEntry;
        while !changed(&mut cluster).await.changes.iter().any(is_entry) {}
    }
    // Nothing selects it any more, and still its address is known.
    server.put(PODS, "a", pod("10.0.0.2"));
    while addresses(&changed(&mut cluster).await) != ["10.0.0.2"] {}
    let lists = &cluster.counters().lists;
    assert_eq!(WatchCounters::get(lists, ObjectKind::Pod), 2);
}

#[tokio::test]
async fn issuers_that_may_not_be_watched_keep_no_gate_closed() {
    let server = Server::start().await;
    server.define(MYRIAD, &["issuers", "clusterissuers"]);
    server.forbid(ALL_ISSUERS);
    let mut cluster = Cluster::connect(all(&server)).await.expect("a server");
    let refused = told(&mut cluster, "kubernetes/Issuer cannot be watched").await;
    let mut findings = refused.reports.iter().flat_map(|report| &report.findings);
    let is_open = |text: String| text.contains("what is known stays in effect");
    assert!(findings.all(|it| is_open(it.to_string())), "{refused:?}");
    // Once there is a right to them they come.
    server.permit(ALL_ISSUERS);
    server.put(OWN_ISSUERS, "le", json!({"spec": {"acme": {}}}));
    while names(&changed(&mut cluster).await).0 != ["le"] {}
}

#[tokio::test]
async fn a_server_that_hides_its_kinds_hides_issuers_and_all_else_is_served() {
    let server = Server::start().await;
    server.forbid("/apis");
    let settings = ClusterSettings {
        kinds: [&ObjectKind::CORE[..], &ObjectKind::ISSUERS].concat(),
        ..all(&server)
    };
    let mut cluster = Cluster::connect(settings).await.expect("a server");
    loop {
        let batch = cluster.next().await;
        assert!(batch.reports.is_empty(), "{batch:?}");
        if batch.synced {
            break;
        }
    }
    assert_eq!(*cluster.cert_manager().borrow(), None);
}

#[tokio::test]
async fn cert_manager_is_found_once_its_kinds_are_there() {
    let server = Server::start().await;
    // Solvers for its webhooks are of other groups, and may be there without it.
    server.define("acme.cert-manager.io/v1", &["challenges"]);
    let (cluster, _) = synced(all(&server)).await;
    let mut found = cluster.cert_manager();
    let absent = found.wait_for(Option::is_some).await;
    assert_eq!(*absent.expect("somebody looks"), Some(false));
    server.define("cert-manager.io/v1", &["certificates"]);
    let present = found.wait_for(|it| *it != Some(false)).await;
    assert_eq!(*present.expect("somebody looks"), Some(true));
}

/// A ServiceEntry with a selector, or with null for none.
fn entry(selector: Value) -> Value {
    let mut spec = json!({"hosts": ["a.test"], "ports": [{"number": 80, "name": "http"}]});
    spec["workloadSelector"] = selector;
    json!({"spec": spec})
}

/// The addresses of the Pods that changed.
fn addresses(batch: &Batch) -> Vec<String> {
    let pods = batch.changes.iter().filter_map(|change| match change {
        Change::Put(Object::Pod(pod)) => Some(pod),
        _ => None,
    });
    let text = |address: std::net::IpAddr| address.to_string();
    pods.map(|pod| pod.address.map_or("none".to_owned(), text))
        .collect()
}

#[tokio::test]
async fn a_group_without_definitions_is_not_asked_about() {
    let server = Server::start().await;
    let (_cluster, _) = synced(all(&server)).await;
    server.asked("/apis", 5).await;
    let log = server.log();
    assert!(!log.iter().any(|line| line.contains("istio.io")), "{log:?}");
}

/// The next batch that tells something with these words.
async fn told(cluster: &mut Cluster, words: &str) -> Batch {
    loop {
        let batch = cluster.next().await;
        let mut findings = batch.reports.iter().flat_map(|report| &report.findings);
        if findings.any(|it| it.to_string().contains(words)) {
            return batch;
        }
    }
}
