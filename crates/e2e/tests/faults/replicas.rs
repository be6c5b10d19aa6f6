//! Several controllers and several proxies, of which some are behind or on their way out.

use std::time::{Duration, Instant};

use myriad_e2e::cluster::{Retry, Servers, Slice};
use tokio::sync::watch;

use crate::scene::{Fleet, Scene};

/// How far one replica is behind the other.
const HELD_BACK: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_proxy_that_moves_to_a_replica_that_is_behind_loses_no_domain() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let mut fleet = Fleet::new(cluster).await;
    let _current = fleet.controller(0).start();
    let (api, kubeconfig) = scene.relay_of_api("behind").await;
    let behind = fleet
        .controller(1)
        .environment("KUBECONFIG", kubeconfig)
        .start();
    cluster.provide_trust("proxy", "myriad").await;
    cluster.ready(&behind).await;
    fleet.start(0);
    fleet.start(1);
    let (_, addresses) = watch::channel(fleet.addresses());
    let traffic = scene.traffic_to(addresses, Retry::Never);
    scene.apply(&["settled.test"]).await;
    traffic.add("settled.test").await;

    api.hold();
    let until = Instant::now() + HELD_BACK;
    for round in 0.. {
        if Instant::now() >= until {
            break;
        }
        let host = format!("round-{round}.test");
        scene.apply(&[&host]).await;
        traffic.add(&host).await;
        // This one has never heard of it.
        fleet.service.lead_to(cluster.sync_address(1));
        traffic.go_on(200).await;
        fleet.service.lead_to(cluster.sync_address(0));
        traffic.go_on(50).await;
    }
    fleet.service.lead_to(cluster.sync_address(1));
    api.release();
    scene.apply(&["released.test"]).await;
    traffic.add("released.test").await;
    traffic.stop().assert_flawless();
}

#[tokio::test]
async fn a_rolling_restart_of_controllers_and_proxies_loses_no_request() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let mut fleet = Fleet::new(cluster).await;
    let mut controllers = [fleet.controller(0).start(), fleet.controller(1).start()];
    cluster.provide_trust("proxy", "myriad").await;
    fleet.start(0);
    fleet.start(1);
    // Whether a proxy is ready is told by its pod, and its clients follow what is told.
    let slice = Slice::publish(cluster, &fleet.pods);
    slice.ready(2).await;
    let traffic = scene.traffic_to(slice.addresses(), Retry::Never);
    scene.apply(&["steady.test"]).await;
    traffic.add("steady.test").await;

    for number in 0..2 {
        let mut process = fleet.take(number);
        process.terminate();
        assert!(process.ended().await.success());
        slice.ready(1).await;
        traffic.go_on(100).await;
        fleet.start(number);
        slice.ready(2).await;
        let host = format!("after-proxy-{number}.test");
        scene.apply(&[&host]).await;
        traffic.add(&host).await;
    }
    for (number, controller) in (0..).zip(&mut controllers) {
        let other = cluster.sync_address(1 - number);
        let next = fleet.controller(number);
        controller.terminate();
        fleet.service.lead_to(other);
        let ended = controller.ended().await;
        assert!(ended.success());
        *controller = next.start();
        cluster.ready(controller).await;
        let host = format!("after-controller-{number}.test");
        scene.apply(&[&host]).await;
        traffic.add(&host).await;
    }
    traffic.stop().assert_flawless();
}
