//! Two gateways of one controller: each serves what is meant for it, and a proxy is of the one
//! that its token says.

use std::time::Duration;

use myriad_e2e::Answer;
use myriad_e2e::cluster::{Cluster, Pod, Process, Relay};
use myriad_e2e::world::{eventually, eventually_within};

use super::istio::{installed, shop};
use crate::is_refused;

/// The proxy of a service account in a pod, with a state of its own.
async fn proxy(cluster: &Cluster, service: &Relay, pod: (&Pod, u16), account: &str) -> Process {
    cluster.provide_trust(account, "myriad").await;
    let (pod, number) = pod;
    let state = cluster.path(&format!("state-{account}"));
    std::fs::create_dir_all(&state).expect("a directory");
    let launch = cluster.proxy_launch(number, account);
    let launch = launch.set("--controller", service.address());
    pod.place(launch.set("--state-dir", state.display()))
        .start()
}

/// How long a proxy may take that starts beside all that the other stories start.
const LIVE_DEADLINE: Duration = Duration::from_secs(60);

async fn until(cluster: &Cluster, pod: &Pod, host: &str, wanted: impl Fn(&Answer) -> bool) {
    let mut last = None;
    let address = pod.address().to_string();
    let asked = eventually_within(LIVE_DEADLINE, async || {
        let answer = cluster.get_at(host, &address).await;
        let fits = wanted(&answer);
        last = Some(answer);
        fits.then_some(())
    });
    assert!(asked.await.is_some(), "{host}: {last:?}");
}

#[tokio::test]
async fn each_gateway_answers_its_own_hosts_and_a_token_says_of_which_a_proxy_is() {
    installed().await;
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("both");
    let (tenant, home) = (cluster.tenant(), cluster.home());
    let line = ["create", "serviceaccount", "egress", "--namespace", &home];
    cluster.kubectl(&line).await;
    let gateways = cluster.path("gateways.yaml");
    let side = format!("{{story: {}-side}}", cluster.class());
    let text = format!(
        "- name: egress\n  namespace: {home}\n  labels: {side}\n  serviceAccounts: [egress]\n"
    );
    std::fs::write(&gateways, text).expect("a file");
    let service = Relay::start(cluster.service(), cluster.sync_address(0)).await;
    let names = format!("localhost,{}", cluster.service());
    let controller = cluster.controller_launch(0);
    let controller = controller
        .set("--sync-hosts", names)
        .set("--gateways", gateways.display());
    let _controller = controller.set("--http", 8080).set("--https", 8443).start();

    let own = format!("{{story: {}}}", cluster.class());
    cluster.apply(&shop(&cluster, &tenant, "main.test")).await;
    let of_side = shop(&cluster, &tenant, "side.test").replace(&own, &side);
    cluster.apply(&of_side).await;
    let pods = [Pod::new(&cluster, 0).await, Pod::new(&cluster, 1).await];
    let main = proxy(&cluster, &service, (&pods[0], 0), "proxy").await;
    let egress = proxy(&cluster, &service, (&pods[1], 1), "egress").await;
    until(&cluster, &pods[0], "main.test", |it| it.status == 200).await;
    until(&cluster, &pods[1], "side.test", |it| it.status == 200).await;
    until(&cluster, &pods[0], "side.test", is_refused).await;
    until(&cluster, &pods[1], "main.test", is_refused).await;

    // A host that changes hands leaves the one and comes to the other.
    cluster.apply(&shop(&cluster, &tenant, "side.test")).await;
    until(&cluster, &pods[0], "side.test", |it| it.status == 200).await;
    until(&cluster, &pods[1], "side.test", is_refused).await;
    cluster.apply(&of_side).await;
    until(&cluster, &pods[1], "side.test", |it| it.status == 200).await;

    // With the token of the other gateway it is a proxy of that one, whatever it has kept.
    main.kill().await;
    let state = cluster.path("state-proxy");
    std::fs::rename(state, cluster.path("state-taken")).expect("it was kept");
    let launch = cluster.proxy_launch(0, "egress");
    let launch = launch
        .set("--controller", service.address())
        .set("--state-dir", cluster.path("state-taken").display());
    let _turncoat = pods[0].place(launch).start();
    until(&cluster, &pods[0], "side.test", |it| it.status == 200).await;
    until(&cluster, &pods[0], "main.test", is_refused).await;

    // And who is of none is told nothing.
    egress.kill().await;
    let stranger = proxy(&cluster, &service, (&pods[1], 2), "stranger").await;
    let refused = eventually(async || {
        let log = stranger.log();
        log.contains("not accepted").then_some(())
    });
    assert!(refused.await.is_some(), "{}", stranger.log());
}
