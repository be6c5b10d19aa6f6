//! The API loses what it had, or a controller loses the API: proxies keep what they serve.

use std::process::{Command, Output};
use std::time::Duration;

use myriad_e2e::cluster::{Cluster, Process, Retry, Servers};
use myriad_e2e::world::{eventually, eventually_within};
use tokio::sync::watch;

use crate::scene::{Fleet, Scene, is_refused, is_served};

/// Longer than it takes to notice that the API is lost, and to look for another controller.
const LOST_DEADLINE: Duration = Duration::from_secs(60);

/// The domains of a story: more than may go unconfirmed.
const DOMAINS: usize = 60;

#[tokio::test]
async fn an_emptied_cluster_takes_no_domain_until_somebody_confirms() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let hosts: Vec<String> = (0..DOMAINS).map(|at| format!("kept-{at}.test")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    scene.apply(&hosts).await;
    let (controller, proxy) = scene.serve().await;
    let traffic = scene.traffic();
    for host in &hosts[..4] {
        traffic.add(host).await;
    }

    // Nobody sees these go.
    controller.kill().await;
    let tenant = cluster.tenant();
    let line = ["delete", "ingress", "--all", "--namespace", &tenant];
    cluster.kubectl(&line).await;
    let controller = cluster.controller(0).await;
    cluster.ready(&controller).await;
    assert!(
        eventually(async || held(cluster, &proxy).await)
            .await
            .is_some_and(|held| held == format!("{DOMAINS} of {DOMAINS} domains")),
        "{:?}",
        cluster.admin(&proxy, "/status").await
    );
    scene.apply(&["new.test"]).await;
    traffic.add("new.test").await;
    traffic.go_on(200).await;

    traffic.stop().assert_flawless();

    // What is seen to go is not held.
    cluster.delete(&scene.site("new.test")).await;
    cluster.eventually("new.test", is_refused).await;
    scene.apply(&["newer.test", hosts[0]]).await;
    cluster.eventually("newer.test", is_served).await;

    let told = confirm(cluster, &controller);
    assert!(told.status.success(), "{told:?}");
    for host in &hosts[1..4] {
        cluster.eventually(host, is_refused).await;
    }
    for host in ["newer.test", hosts[0]] {
        assert!(is_served(&cluster.get(host).await), "{host} is there");
    }
    assert_eq!(held(cluster, &proxy).await, None);
    let told = confirm(cluster, &controller);
    assert_eq!(told.status.code(), Some(1), "nothing is held: {told:?}");
}

#[tokio::test]
async fn proxies_leave_a_controller_that_lost_the_api_for_one_that_has_it_and_for_no_other() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let mut fleet = Fleet::new(cluster).await;
    let (api, kubeconfig) = scene.relay_of_api("lost").await;
    let cut_off = fleet
        .controller(1)
        .environment("KUBECONFIG", kubeconfig)
        .set("--lost-after", 5)
        .start();
    cluster.provide_trust("proxy", "myriad").await;
    cluster.ready(&cut_off).await;
    fleet.service.lead_to(cluster.sync_address(1));
    fleet.start(0);
    fleet.start(1);
    let (_, addresses) = watch::channel(fleet.addresses());
    let traffic = scene.traffic_to(addresses, Retry::Never);
    scene.apply(&["settled.test"]).await;
    traffic.add("settled.test").await;

    // There is no other: both stay with it.
    api.hold();
    let lost = eventually_within(LOST_DEADLINE, async || {
        let answer = cluster.admin(&cut_off, "/readyz").await;
        (answer.status == 503).then_some(())
    });
    lost.await.expect("it has lost the API and says so");
    traffic.go_on(400).await;
    // One that has just looked for another has two streams for a moment.
    let stayed = eventually_within(LOST_DEADLINE, async || {
        (followers(cluster, &cut_off).await == "2").then_some(())
    });
    stayed.await.expect("both follow the only one");

    // There is one, at the same address: both go there by themselves.
    let current = fleet.controller(0).start();
    cluster.ready(&current).await;
    fleet.service.lead_next_to(cluster.sync_address(0));
    let moved = eventually_within(LOST_DEADLINE, async || {
        (followers(cluster, &current).await == "2").then_some(())
    });
    moved.await.expect("both follow the one that has the API");
    scene.apply(&["later.test"]).await;
    traffic.add("later.test").await;

    api.release();
    cluster.ready(&cut_off).await;
    traffic.go_on(100).await;
    traffic.stop().assert_flawless();
}

/// The removals that a process holds, in its own words.
async fn held(cluster: &Cluster, process: &Process) -> Option<String> {
    let status = cluster.admin(process, "/status").await.body;
    let status: serde_json::Value = serde_json::from_str(&status).ok()?;
    let would_go = status.pointer("/held/holders/0/would_go")?.as_str()?;
    Some(would_go.to_owned())
}

/// Lets go of what a process holds.
fn confirm(cluster: &Cluster, process: &Process) -> Output {
    let program = std::env::var_os("MYRIAD_BIN").expect("the path of the binary");
    let mut command = Command::new(cluster.entry());
    command.arg(program).arg("confirm");
    command.arg(format!("--admin={}", process.admin()));
    command.output().expect("it runs")
}

/// The number of proxies that follow a controller.
async fn followers(cluster: &Cluster, controller: &Process) -> String {
    let metrics = cluster.admin(controller, "/metrics").await.body;
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix("myriad_sync_proxies "));
    line.unwrap_or_default().to_owned()
}
