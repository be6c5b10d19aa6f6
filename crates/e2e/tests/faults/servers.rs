//! The servers of the cluster fail: its API, its store, and what is in the store.

use myriad_e2e::cluster::{Retry, Servers};
use myriad_e2e::world::eventually;
use tokio::sync::watch;

use crate::scene::{Changes, Fleet, Scene, is_refused, is_served};

#[tokio::test]
async fn an_older_store_is_put_back_and_only_what_it_does_not_know_goes() {
    let servers = Servers::alone().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let _serving = scene.serve().await;
    let traffic = scene.traffic();
    scene.apply(&["kept.test", "deleted.test"]).await;
    traffic.add("kept.test").await;
    let saved = servers.save().await;
    cluster.delete(&scene.site("deleted.test")).await;
    scene.apply(&["later.test"]).await;
    cluster.eventually("later.test", is_served).await;
    cluster.eventually("deleted.test", is_refused).await;

    servers.restore(saved).await;
    traffic.go_on(100).await;
    servers.start().await;
    cluster.eventually("deleted.test", is_served).await;
    cluster.eventually("later.test", is_refused).await;
    scene.apply(&["new.test"]).await;
    traffic.add("new.test").await;
    traffic.go_on(100).await;
    traffic.stop().assert_flawless();
}

#[tokio::test]
async fn whatever_is_killed_no_domain_fails_and_no_change_is_lost() {
    let servers = Servers::alone().await;
    let scene = Scene::set().await;
    let mut fleet = Fleet::new(&scene.cluster).await;
    let controller = fleet.controller(0).start();
    scene.cluster.provide_trust("proxy", "myriad").await;
    fleet.start(0);
    fleet.start(1);
    let (_, addresses) = watch::channel(fleet.addresses());
    let traffic = scene.traffic_to(addresses, Retry::Elsewhere);
    scene.apply(&["steady.test"]).await;
    traffic.add("steady.test").await;
    let changes = Changes::start(&scene.cluster);

    controller.kill().await;
    traffic.go_on(200).await;
    let controller = fleet.controller(0).start();

    fleet.take(0).kill().await;
    traffic.go_on(200).await;
    fleet.start(0);
    fleet.ready(0).await;

    for server in ["kube-apiserver", "etcd"] {
        servers.kill(server).await;
        traffic.go_on(200).await;
        servers.start().await;
    }

    for server in ["etcd", "kube-apiserver"] {
        servers.kill(server).await;
    }
    controller.kill().await;
    fleet.take(1).kill().await;
    traffic.go_on(200).await;
    fleet.start(1);
    fleet.ready(1).await;
    let _controller = fleet.controller(0).start();
    servers.start().await;

    let taken = changes.stop().await;
    assert!(taken.len() > 2, "{taken:?}");
    for host in taken {
        traffic.add(&host).await;
    }
    traffic.stop().assert_flawless();
}

#[tokio::test]
async fn a_list_that_breaks_off_empties_nothing() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let hosts: Vec<String> = (0..8)
        .map(|number| format!("listed-{number}.test"))
        .collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    scene.apply(&hosts).await;
    let (controller, _proxy) = scene.serve().await;
    let traffic = scene.traffic();
    for host in &hosts {
        traffic.add(host).await;
    }

    controller.kill().await;
    let (relay, kubeconfig) = scene.relay_of_api("broken").await;
    relay.break_off_after(16 << 10);
    let launch = scene.cluster.controller_launch(0);
    let controller = launch.environment("KUBECONFIG", kubeconfig).start();
    let broken_off = eventually(async || (relay.broken_off() > 5).then_some(()));
    broken_off.await.expect("lists break off");
    assert_eq!(
        scene.cluster.admin(&controller, "/readyz").await.status,
        503
    );
    traffic.go_on(100).await;

    relay.break_off_after(u64::MAX);
    scene.cluster.ready(&controller).await;
    scene.apply(&["new.test"]).await;
    traffic.add("new.test").await;
    traffic.stop().assert_flawless();
}
