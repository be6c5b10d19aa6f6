//! The servers of the cluster fail: its API, its store, and what is in the store.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use myriad_e2e::cluster::{Retry, Servers};
use myriad_e2e::world::eventually;
use tokio::sync::watch;

use crate::scene::{Changes, Fleet, Scene, is_refused, is_served};

/// The address of the API.
const API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);

/// An address where nobody listens.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

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
async fn a_history_that_the_store_has_forgotten_costs_a_list_and_no_change() {
    let servers = Servers::alone().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let (relay, kubeconfig) = scene.relay_of_api("forgotten").await;
    let launch = cluster.controller_launch(0);
    let controller = launch.environment("KUBECONFIG", kubeconfig).start();
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let traffic = scene.traffic();
    scene.apply(&["kept.test", "deleted.test"]).await;
    traffic.add("kept.test").await;
    cluster.eventually("deleted.test", is_served).await;

    // While the controller is cut off, what it would have been told is forgotten.
    relay.lead_to(NOWHERE);
    cluster.delete(&scene.site("deleted.test")).await;
    scene.apply(&["later.test"]).await;
    let path = format!(
        "/apis/networking.k8s.io/v1/namespaces/{}/ingresses?limit=1",
        cluster.tenant()
    );
    let page = cluster.kubectl(&["get", "--raw", &path]).await;
    let page: serde_json::Value = serde_json::from_str(&page).expect("a list");
    let token = page["metadata"]["continue"]
        .as_str()
        .expect("there are two");
    let next = format!("{path}&continue={token}");
    cluster.kubectl(&["get", "--raw", &next]).await;
    scene.apply(&["last.test"]).await;
    servers.compact().await;
    servers.kill("kube-apiserver").await;
    servers.start().await;
    // So is the rest of a list that was read by pages.
    let refused = cluster.try_kubectl(&["get", "--raw", &next], "").await;
    let refused = refused.expect_err("it is too old");
    assert!(
        refused.contains("Expired") || refused.contains("410"),
        "{refused}"
    );

    relay.lead_to(API);
    for host in ["later.test", "last.test"] {
        traffic.add(host).await;
    }
    cluster.eventually("deleted.test", is_refused).await;
    let metrics = cluster.admin(&controller, "/metrics").await.body;
    let mut gone = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix("myriad_kubernetes_watch_gone_total")?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    assert!(gone.any(|count| count > 0.0), "{metrics}");
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
