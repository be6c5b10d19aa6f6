//! The right to write: one leader at a time, whatever each believes.

use std::collections::BTreeMap;
use std::time::Duration;

use myriad_e2e::cluster::{Cluster, Process, Servers};
use myriad_e2e::world::{eventually, eventually_within};

use crate::scene::{Scene, site};

/// A Lease of 15 s, and a third of that between two looks at it.
const TAKEOVER_DEADLINE: Duration = Duration::from_secs(60);

/// Ingresses whose status is written: more than a leader writes at once.
const INGRESSES: usize = 60;

/// The addresses that the one that led first and the other one write into the same statuses.
const OLD: &str = "192.0.2.1";
const NEW: &str = "192.0.2.2";

#[tokio::test]
async fn a_leader_that_was_frozen_past_its_lease_writes_nothing_more() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let old = publishing(cluster, 0, "old", OLD).await;
    apply_ingresses(cluster, &["first.test".to_owned()]).await;
    let leads = eventually(async || statuses(cluster).await.contains(OLD).then_some(()));
    leads.await.expect("the first one leads");
    let new = publishing(cluster, 1, "new", NEW).await;

    // Some of these it is writing while it is frozen, the others it finds when it wakes up.
    let hosts: Vec<String> = (0..INGRESSES).map(|at| format!("host-{at}.test")).collect();
    let (before, after) = hosts.split_at(INGRESSES / 2);
    apply_ingresses(cluster, before).await;
    old.freeze();
    apply_ingresses(cluster, after).await;
    let taken_over = eventually_within(TAKEOVER_DEADLINE, async || {
        let written = statuses(cluster).await.matches(NEW).count();
        (written == INGRESSES + 1).then_some(())
    });
    taken_over.await.expect("the other one leads");
    let written = versions(cluster).await;

    old.resume();
    scene.apply(&["last.test"]).await;
    let told = eventually(async || {
        let written = statuses(cluster).await.matches(NEW).count();
        (written == INGRESSES + 2).then_some(())
    });
    told.await.expect("the other one still leads");
    let caught_up = eventually(async || {
        let digests = [digest(cluster, &old).await, digest(cluster, &new).await];
        (digests[0] == digests[1]).then_some(())
    });
    caught_up
        .await
        .expect("it has read all that the other one has");
    let mut now = versions(cluster).await;
    now.remove("last-test");
    assert_eq!(now, written, "nobody has written since");
}

#[tokio::test]
async fn a_leader_that_dies_before_it_takes_addresses_back_leaves_that_to_the_next() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let leader = publishing(cluster, 0, "mine", OLD).await;
    let hosts: Vec<String> = (0..INGRESSES).map(|at| format!("host-{at}.test")).collect();
    apply_ingresses(cluster, &hosts).await;
    let written = eventually_within(TAKEOVER_DEADLINE, async || {
        let written = statuses(cluster).await.matches(OLD).count();
        (written == INGRESSES).then_some(())
    });
    written.await.expect("the first one leads");

    // Half of them become somebody else's, and it is never told.
    leader.freeze();
    let (gone, kept) = hosts.split_at(INGRESSES / 2);
    let ingresses = gone.iter().map(|host| {
        let theirs = site(cluster, host).class("theirs");
        theirs.documents().remove(0)
    });
    let ingresses: Vec<String> = ingresses.collect();
    cluster.apply(&ingresses.join("---\n")).await;
    let before = versions(cluster).await;
    leader.kill().await;
    let launch = cluster.controller_launch(1);
    let next = launch
        .set("--publish-service", format!("{}/mine", cluster.home()))
        .start();
    cluster.ready(&next).await;
    let taken_back = eventually_within(TAKEOVER_DEADLINE, async || {
        let left = statuses(cluster).await.matches(OLD).count();
        (left == kept.len()).then_some(())
    });
    taken_back
        .await
        .expect("no address is left where it is not served");

    // One write for each of them, and none where the status was right.
    let after = versions(cluster).await;
    for (name, version) in &after {
        let is_kept = kept.iter().any(|host| host.replace('.', "-") == *name);
        assert_eq!(before[name] == *version, is_kept, "{name}");
    }
    let metrics = cluster.admin(&next, "/metrics").await.body;
    let line = format!("myriad_status_written_total {}", gone.len());
    assert!(metrics.lines().any(|it| it == line), "{metrics}");
}

/// A controller that is ready, and that writes this address.
async fn publishing(cluster: &Cluster, replica: u16, service: &str, address: &str) -> Process {
    let home = cluster.home();
    let line = ["create", "service", "loadbalancer", service, "--tcp=443"];
    let within = ["--namespace", &home];
    cluster.kubectl(&[&line[..], &within].concat()).await;
    let status = format!(r#"{{"status":{{"loadBalancer":{{"ingress":[{{"ip":"{address}"}}]}}}}}}"#);
    let line = [
        "patch",
        "service",
        service,
        "--subresource=status",
        "--patch",
        &status,
    ];
    cluster.kubectl(&[&line[..], &within].concat()).await;
    let launch = cluster.controller_launch(replica);
    let process = launch
        .set("--publish-service", format!("{home}/{service}"))
        .start();
    cluster.ready(&process).await;
    process
}

/// The digest of a controller after it has read everything.
async fn digest(cluster: &Cluster, controller: &Process) -> String {
    let config = cluster.admin(controller, "/config").await.body;
    let config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    config["digest"].as_str().expect("a digest").to_owned()
}

/// Writes Ingresses alone, which is enough for a status.
async fn apply_ingresses(cluster: &Cluster, hosts: &[String]) {
    let ingresses = hosts
        .iter()
        .map(|host| site(cluster, host).documents().remove(0));
    let ingresses: Vec<String> = ingresses.collect();
    cluster.apply(&ingresses.join("---\n")).await;
}

/// The addresses in the statuses of all Ingresses.
async fn statuses(cluster: &Cluster) -> String {
    let address = "--output=jsonpath={.items[*].status.loadBalancer.ingress[*].ip}";
    let tenant = cluster.tenant();
    let line = ["get", "ingresses", "--namespace", &tenant, address];
    cluster.kubectl(&line).await
}

/// The resourceVersion of each Ingress, which every write changes.
async fn versions(cluster: &Cluster) -> BTreeMap<String, String> {
    let fields = "{range .items[*]}{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    let output = format!("--output=jsonpath={fields}");
    let tenant = cluster.tenant();
    let line = ["get", "ingresses", "--namespace", &tenant, &output];
    let text = cluster.kubectl(&line).await;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect()
}
