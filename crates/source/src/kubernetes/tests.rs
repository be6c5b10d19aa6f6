mod definitions;
mod described;
mod gateway_api;
mod server;
mod shelf;
mod writers;

use std::time::Duration;

use myriad_api::{Batch, Change, Object, ObjectKey, ObjectKind};
use serde_json::{Value, json};

use self::server::Server;
use super::{Access, Cluster, ClusterSettings, WatchCounters};

const SERVICES: &str = "/api/v1/namespaces/n/services";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/n/ingresses";

fn settings(server: &Server) -> ClusterSettings {
    ClusterSettings {
        access: Access::Plain(server.uri()),
        ..ClusterSettings::default()
    }
}

fn service(port: u16) -> Value {
    json!({"spec": {"ports": [{"port": port}]}})
}

/// The names that a batch puts, and those that it removes.
fn names(batch: &Batch) -> (Vec<String>, Vec<String>) {
    let (mut put, mut removed) = (Vec::new(), Vec::new());
    for change in &batch.changes {
        let name = change.key().name().to_owned();
        match change {
            Change::Put(_) => put.push(name),
            Change::Remove(_) => removed.push(name),
        }
    }
    put.sort();
    removed.sort();
    (put, removed)
}

/// A cluster that is synced, and all that it emitted until then as one batch.
async fn synced(settings: ClusterSettings) -> (Cluster, Batch) {
    let mut cluster = Cluster::connect(settings).await.expect("a client");
    let mut all = Batch::default();
    while !all.synced {
        let batch = cluster.next().await;
        all.changes.extend(batch.changes);
        all.reports.extend(batch.reports);
        all.positions = batch.positions;
        all.synced = batch.synced;
    }
    (cluster, all)
}

/// The next batch that has changes.
async fn changed(cluster: &mut Cluster) -> Batch {
    loop {
        let batch = cluster.next().await;
        if !batch.changes.is_empty() {
            return batch;
        }
    }
}

#[tokio::test]
async fn the_gate_opens_when_every_kind_is_listed() {
    let server = Server::start().await;
    server.put(SERVICES, "a", service(1));
    let last = server.put(INGRESSES, "b", json!({"spec": {}}));
    let (cluster, first) = synced(settings(&server)).await;
    assert_eq!(names(&first).0, ["a", "b"]);
    assert_eq!(first.positions, ObjectKind::CORE.map(|kind| (kind, last)));
    assert_ne!(cluster.epoch(), 0);
}

#[tokio::test]
async fn a_cluster_is_not_listed_before_it_has_an_epoch() {
    let server = Server::start().await;
    server.delete("/api/v1/namespaces", "kube-system");
    let mut cluster = Cluster::connect(settings(&server)).await.expect("a client");
    server.asked("/namespaces/kube-system", 2).await;
    server.put("/api/v1/namespaces", "kube-system", json!({}));
    while !cluster.next().await.synced {}
    assert_ne!(cluster.epoch(), 0);
}

#[tokio::test]
async fn what_happens_later_is_seen_once_and_only_if_it_matters() {
    let server = Server::start().await;
    server.put(SERVICES, "a", service(1));
    server.put(SERVICES, "b", service(1));
    let (mut cluster, _) = synced(settings(&server)).await;
    let mut same = service(1);
    same["status"] = json!({"loadBalancer": {}});
    server.put(SERVICES, "a", same);
    server.put(SERVICES, "b", service(2));
    assert_eq!(names(&changed(&mut cluster).await).0, ["b"]);
    server.delete(SERVICES, "a");
    assert_eq!(names(&changed(&mut cluster).await).1, ["a"]);
}

#[tokio::test]
async fn who_wrote_an_object_is_read_only_where_it_is_asked_for() {
    let server = Server::start().await;
    let written = |port: u16| {
        let mut service = service(port);
        service["metadata"]["managedFields"] = json!([{"manager": "kubectl-edit"}]);
        service
    };
    let (mut silent, _) = synced(settings(&server)).await;
    let (mut telling, _) = synced(ClusterSettings {
        names_writers: true,
        ..settings(&server)
    })
    .await;
    server.put(SERVICES, "a", written(1));
    assert!(changed(&mut silent).await.writers.is_empty());
    let key = ObjectKey::new(ObjectKind::Service, "n", "a");
    let writers = changed(&mut telling).await.writers;
    assert_eq!(writers, [(key, "kubectl-edit".into())]);
}

#[tokio::test]
async fn an_object_that_is_wanted_again_comes_as_if_it_had_changed() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        server.put(SERVICES, name, service(1));
    }
    let (mut cluster, _) = synced(settings(&server)).await;
    let key = |name: &str| ObjectKey::new(ObjectKind::Service, "n", name);
    cluster.read_again([key("b"), key("gone")]);
    assert_eq!(names(&changed(&mut cluster).await).0, ["b"]);
    // Nothing is asked for twice, and what comes later is seen as ever.
    server.put(SERVICES, "a", service(2));
    assert_eq!(names(&changed(&mut cluster).await).0, ["a"]);
    server.put(SERVICES, "b", service(1));
    server.put(SERVICES, "b", service(3));
    assert_eq!(names(&changed(&mut cluster).await).0, ["b"]);
}

#[tokio::test]
async fn a_large_object_that_changes_all_the_time_comes_with_its_newest_state() {
    let server = Server::start().await;
    let (mut cluster, _) = synced(settings(&server)).await;
    let large = |port: u16| {
        let selector = (0..8_000).map(|number| (format!("label-{number}"), json!("x")));
        let selector: serde_json::Map<String, Value> = selector.collect();
        json!({"spec": {"selector": selector, "ports": [{"port": port}]}})
    };
    let mut last = 0;
    for port in 1..=20 {
        last = server.put(SERVICES, "large", large(port));
    }
    let position = |batch: &Batch| {
        let mut positions = batch.positions.iter();
        let (_, version) = positions.find(|(kind, _)| *kind == ObjectKind::Service)?;
        Some(*version)
    };
    loop {
        let batch = changed(&mut cluster).await;
        let Some(Change::Put(Object::Service(service))) = batch.changes.first() else {
            panic!("the Service");
        };
        if service.ports[0].port == 20 {
            assert_eq!(position(&batch), Some(last));
            break;
        }
        // What waits is not counted as read.
        assert!(position(&batch) < Some(last));
    }
}

#[tokio::test]
async fn a_server_without_streaming_lists_is_read_page_by_page() {
    let server = Server::start().await;
    server.forget_streaming();
    for number in 0..25 {
        server.put(SERVICES, &format!("s{number:02}"), service(1));
    }
    let settings = ClusterSettings {
        page_objects: 10,
        ..settings(&server)
    };
    let (mut cluster, first) = synced(settings).await;
    assert_eq!(first.changes.len(), 25);
    let log = server.log();
    let pages = log
        .iter()
        .filter(|line| line.contains("/services?limit=10"));
    assert_eq!(pages.count(), 3, "{log:?}");
    server.put(SERVICES, "later", service(1));
    assert_eq!(names(&changed(&mut cluster).await).0, ["later"]);
}

#[tokio::test]
async fn a_list_by_pages_that_is_compacted_away_begins_again_with_larger_ones() {
    let server = Server::start().await;
    server.forget_streaming();
    for number in 0..25 {
        server.put(SERVICES, &format!("s{number:02}"), service(1));
    }
    let settings = ClusterSettings {
        page_objects: 5,
        ..settings(&server)
    };
    server.compact_lists(2);
    let (mut cluster, first) = synced(settings).await;
    assert_eq!(names(&first).0.len(), 25);
    let limits = |log: Vec<String>| {
        let limits = log.into_iter().filter_map(|line| {
            let (_, rest) = line.split_once("/services?limit=")?;
            rest.split('&').next()?.parse().ok()
        });
        limits.collect::<Vec<u32>>()
    };
    // It comes to its end however short the history is that the server remembers.
    assert_eq!(limits(server.log()), [5, 5, 10, 10, 20, 20]);

    // Where nothing is new but what changed meanwhile, nothing else is told.
    server.cut();
    server.put(SERVICES, "s03", service(2));
    server.delete(SERVICES, "s24");
    server.put(SERVICES, "t", service(1));
    server.compact();
    server.compact_lists(1);
    let mut batch = changed(&mut cluster).await;
    while batch.changes.len() < 3 {
        batch.changes.extend(changed(&mut cluster).await.changes);
    }
    assert_eq!(
        names(&batch),
        (vec!["s03".into(), "t".into()], vec!["s24".into()])
    );
    assert_eq!(limits(server.log())[6..], [20, 20, 40]);
}

#[tokio::test]
async fn after_410_only_the_difference_is_emitted() {
    let server = Server::start().await;
    for name in ["kept", "changed", "gone"] {
        server.put(SERVICES, name, service(1));
    }
    let (mut cluster, _) = synced(settings(&server)).await;
    // The server runs on this thread, so it answers nobody before the next await.
    server.cut();
    server.put(SERVICES, "changed", service(2));
    server.delete(SERVICES, "gone");
    server.put(SERVICES, "new", service(1));
    server.compact();
    let mut batch = changed(&mut cluster).await;
    while batch.changes.len() < 3 {
        batch.changes.extend(changed(&mut cluster).await.changes);
    }
    assert_eq!(
        names(&batch),
        (vec!["changed".into(), "new".into()], vec!["gone".into()])
    );
}

#[tokio::test]
async fn one_broken_object_is_named_and_hides_no_other() {
    let server = Server::start().await;
    server.put(SERVICES, "broken", json!({"spec": {"ports": "none"}}));
    server.put(SERVICES, "fine", service(1));
    let (_, first) = synced(settings(&server)).await;
    assert_eq!(names(&first).0, ["fine"]);
    let findings: Vec<_> = first
        .reports
        .iter()
        .flat_map(|report| &report.findings)
        .collect();
    assert!(
        matches!(findings[..], [one] if one.to_string().contains("Service n/broken")),
        "{findings:?}"
    );
}

#[tokio::test]
async fn namespaces_are_watched_one_by_one_and_no_right_beyond_them_is_needed() {
    let server = Server::start().await;
    server.put(SERVICES, "seen", service(1));
    server.put("/api/v1/namespaces/other/services", "unseen", service(1));
    server.forbid("/apis/networking.k8s.io/v1/ingressclasses");
    server.forbid("/api/v1/namespaces/kube-system");
    server.put("/api/v1/namespaces", "n", json!({}));
    let settings = ClusterSettings {
        namespaces: vec!["n".into(), "m".into(), "n".into()],
        ..settings(&server)
    };
    let (cluster, first) = synced(settings).await;
    assert_eq!(names(&first).0, ["seen"]);
    assert_ne!(cluster.epoch(), 0);
    for line in server.log() {
        let is_cluster_wide = !line.contains("/namespaces/");
        assert!(
            !is_cluster_wide || line.contains("ingressclasses"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn secrets_are_asked_for_by_their_types_in_one_watch() {
    let others = "fieldSelector=type%21%3Dhelm.sh%2Frelease.v1%2Ctype%21%3Dkubernetes.io";
    for (generic_secrets, selector) in [
        (false, "fieldSelector=type%3Dkubernetes.io%2Ftls"),
        (true, others),
    ] {
        let server = Server::start().await;
        let settings = ClusterSettings {
            generic_secrets,
            ..settings(&server)
        };
        synced(settings).await;
        let log = server.log();
        let mut asked = log.iter().filter(|line| line.contains("/secrets"));
        assert!(asked.all(|line| line.contains(selector)), "{log:?}");
        // Nothing comes but what was excluded by name.
        assert!(!log.iter().any(|line| line.contains("Opaque")));
    }
}

#[tokio::test]
async fn of_secrets_that_may_hold_anything_those_with_something_to_read_are_handed_on() {
    const SECRETS: &str = "/api/v1/namespaces/n/secrets";
    let server = Server::start().await;
    let opaque = |key: &str, value: &str| json!({"type": "Opaque", "data": {key: value}});
    let users = opaque("auth", "YTp7UExBSU59Yg==");
    server.put(SECRETS, "users", users.clone());
    server.put(SECRETS, "other", opaque("password", "aHVzaA=="));
    let (mut cluster, first) = synced(settings(&server)).await;
    assert_eq!(names(&first).0, ["users"]);
    server.put(SECRETS, "other", users);
    assert_eq!(names(&changed(&mut cluster).await).0, ["other"]);
    server.put(SECRETS, "users", opaque("password", "aHVzaA=="));
    assert_eq!(names(&changed(&mut cluster).await).1, ["users"]);
}

#[tokio::test]
async fn of_config_maps_the_one_that_is_named_is_asked_for_wherever_it_is() {
    const MAPS: &str = "/api/v1/namespaces/ingress-nginx/configmaps";
    let server = Server::start().await;
    let map = |value: &str| json!({"data": {"ssl-redirect": value}});
    server.put(MAPS, "controller", map("true"));
    let settings = ClusterSettings {
        namespaces: vec!["n".into()],
        kinds: ObjectKind::ALL.into(),
        config_map: Some(("ingress-nginx".into(), "controller".into())),
        ..settings(&server)
    };
    let (mut cluster, first) = synced(settings).await;
    assert_eq!(names(&first).0, ["controller"]);
    server.put(MAPS, "controller", map("false"));
    assert_eq!(names(&changed(&mut cluster).await).0, ["controller"]);
    let log = server.log();
    let mut asked = log.iter().filter(|line| line.contains("/configmaps"));
    assert!(asked.all(|line| {
        line.contains(MAPS) && line.contains("fieldSelector=metadata.name%3Dcontroller")
    }));
    server.delete(MAPS, "controller");
    assert_eq!(names(&changed(&mut cluster).await).1, ["controller"]);
}

#[tokio::test]
async fn all_config_maps_are_watched_where_they_are_wanted_and_each_once() {
    const MAPS: &str = "/api/v1/namespaces/n/configmaps";
    let server = Server::start().await;
    for name in ["controller", "headers"] {
        server.put(MAPS, name, json!({"data": {"X-A": "a"}}));
    }
    let settings = ClusterSettings {
        namespaces: vec!["n".into()],
        config_map: Some(("n".into(), "controller".into())),
        all_config_maps: true,
        ..settings(&server)
    };
    let (_cluster, first) = synced(settings).await;
    assert_eq!(names(&first).0, ["controller", "headers"]);
    let log = server.log();
    let mut asked = log.iter().filter(|line| line.contains("/configmaps"));
    assert!(asked.all(|line| line.contains(MAPS) && !line.contains("fieldSelector")));
}

#[tokio::test]
async fn config_maps_that_may_not_be_watched_keep_nobody_waiting() {
    const SERVICES_OF: &str = "/api/v1/namespaces/n/services";
    let server = Server::start().await;
    server.forbid("/api/v1/namespaces/n/configmaps");
    server.put(SERVICES_OF, "a", service(1));
    let settings = ClusterSettings {
        namespaces: vec!["n".into()],
        kinds: vec![ObjectKind::Service],
        all_config_maps: true,
        ..settings(&server)
    };
    let (_cluster, first) = synced(settings).await;
    assert_eq!(names(&first).0, ["a"]);
}

#[tokio::test]
async fn a_silent_connection_is_given_up_and_the_next_one_goes_on_where_it_ended() {
    let server = Server::start().await;
    let settings = ClusterSettings {
        idle_timeout: Duration::from_millis(50),
        kinds: vec![ObjectKind::Service],
        ..settings(&server)
    };
    let (mut cluster, _) = synced(settings).await;
    server.asked("/services?limit=1", 2).await;
    server.put(SERVICES, "a", service(1));
    assert_eq!(names(&changed(&mut cluster).await).0, ["a"]);
}

#[tokio::test]
async fn a_refusal_is_reported_and_keeps_the_gate_closed() {
    let server = Server::start().await;
    server.forbid("/api/v1/secrets");
    let mut cluster = Cluster::connect(settings(&server)).await.expect("a client");
    let batch = loop {
        let batch = cluster.next().await;
        assert!(!batch.synced);
        if !batch.reports.is_empty() {
            break batch;
        }
    };
    let text = batch.reports[0].findings[0].to_string();
    assert!(
        text.contains("kubernetes/Secret") && text.contains("403"),
        "{text}"
    );
}

#[tokio::test]
async fn a_busy_server_is_left_alone_for_as_long_as_it_says() {
    let server = Server::start().await;
    let begun = myriad_base::clock::now();
    server.be_busy(ObjectKind::CORE.len());
    synced(settings(&server)).await;
    let waited = myriad_base::clock::now() - begun;
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
}

#[tokio::test]
async fn what_the_watches_do_is_counted_by_kind() {
    let server = Server::start().await;
    server.put(SERVICES, "a", service(1));
    let (mut cluster, _) = synced(settings(&server)).await;
    let counters = cluster.counters().clone();
    let of = |family| WatchCounters::get(family, ObjectKind::Service);
    assert_eq!((of(&counters.lists), of(&counters.events)), (1, 1));
    assert_eq!(of(&counters.bookmarks), 1);
    server.put(SERVICES, "b", service(2));
    assert_eq!(names(&changed(&mut cluster).await).0, ["b"]);
    assert_eq!(of(&counters.events), 2);
    server.compact();
    server.put(SERVICES, "c", service(2));
    assert_eq!(names(&changed(&mut cluster).await).0, ["c"]);
    server.compact();
    assert_eq!((of(&counters.gone), of(&counters.restored)), (0, 0));
    let metrics = myriad_base::metrics::Metrics::new();
    counters.register(&metrics);
    let text = metrics.encode();
    let line = "myriad_kubernetes_events_total{kind=\"Service\"} 3";
    assert!(text.contains(line), "{text}");
}
