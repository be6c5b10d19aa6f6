//! Stories in a real cluster: what tenants write to its API, and what their users get.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may read a clock and start tasks"
)]

mod cluster {
    mod beside_cert_manager;
    mod cert_manager;
    mod certificates;
    mod claims;
    mod console;
    mod dashboards;
    mod extremes;
    mod gateway_api;
    mod identity;
    mod injection;
    mod issuers;
    mod istio;
    mod measured;
    mod mesh;
    mod mesh_faults;
    mod namespaces;
    mod newcomer;
    mod on_demand;
    mod orders;
    mod secrets;
    mod tickets;
    mod views;
}

use myriad_e2e::cluster::Cluster;
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Site};

fn site(cluster: &Cluster, host: &str) -> Site {
    Site::new(host)
        .namespace(&cluster.tenant())
        .class(&cluster.class())
        .to(cluster.endpoint())
        .tls(&cluster.authority.issue(&[host]))
}

#[tokio::test]
async fn a_new_ingress_is_served_and_its_end_is_the_domains_end() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("hello");
    let _controller = cluster.controller(0).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;

    let objects = site(&cluster, "a.test").yaml();
    cluster.apply(&objects).await;
    let answer = cluster
        .eventually("a.test", |answer| answer.status == 200)
        .await;
    assert!(answer.body.contains("hello"), "{answer:?}");

    // A renewed certificate is shown at once, under the same name.
    cluster.apply(&site(&cluster, "a.test").yaml()).await;
    cluster
        .eventually("a.test", |answer| answer.status == 200)
        .await;

    cluster.delete(&objects).await;
    cluster.eventually("a.test", is_refused).await;
}

#[tokio::test]
async fn a_proxy_starts_and_serves_without_a_controller() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("kept");
    let controller = cluster.controller(0).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.apply(&site(&cluster, "b.test").yaml()).await;
    cluster
        .eventually("b.test", |answer| answer.status == 200)
        .await;

    controller.kill().await;
    assert_eq!(
        cluster.get("b.test").await.status,
        200,
        "nothing is noticed"
    );
    proxy.kill().await;
    let proxy = cluster.restart_proxy(0, "proxy");
    cluster.ready(&proxy).await;
    assert_eq!(cluster.get("b.test").await.status, 200, "from its own disk");

    // What changed meanwhile comes with the next controller.
    cluster.apply(&site(&cluster, "c.test").yaml()).await;
    let _controller = cluster.controller(0).await;
    cluster
        .eventually("c.test", |answer| answer.status == 200)
        .await;
}

#[tokio::test]
async fn a_token_of_another_audience_or_account_gets_nothing() {
    let cluster = Cluster::join().await;
    let controller = cluster.controller(0).await;
    cluster.ready(&controller).await;
    for (account, audience) in [("proxy", "elsewhere"), ("stranger", "myriad")] {
        let proxy = cluster.proxy(0, account, audience).await;
        let refused = eventually(async || {
            let is_refused = proxy.log().contains("ended the stream");
            is_refused.then_some(())
        });
        assert!(
            refused.await.is_some(),
            "{account}, {audience}: {}",
            proxy.log()
        );
        assert_eq!(cluster.admin(&proxy, "/readyz").await.status, 503);
        assert!(
            !proxy.log().contains("a controller is followed"),
            "{}",
            proxy.log()
        );
        proxy.kill().await;
    }
}

#[tokio::test]
async fn a_proxy_moves_to_another_controller_and_fetches_only_what_differs() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("moved");
    let first = cluster.controller(0).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    for host in ["d.test", "e.test"] {
        cluster.apply(&site(&cluster, host).yaml()).await;
        cluster
            .eventually(host, |answer| answer.status == 200)
            .await;
    }
    first.kill().await;
    proxy.kill().await;
    let second = cluster.controller(1).await;
    cluster.ready(&second).await;
    let proxy = cluster.restart_proxy(1, "proxy");
    // The Ingress comes last, so that each resource is made once.
    for document in site(&cluster, "f.test").documents().iter().rev() {
        cluster.apply(document).await;
    }
    cluster
        .eventually("f.test", |answer| answer.status == 200)
        .await;
    let metrics = cluster.admin(&proxy, "/metrics").await.body;
    let received = metrics
        .lines()
        .find_map(|line| line.strip_prefix("myriad_sync_resources_total "))
        .expect("a counter");
    assert_eq!(received, "5", "the third domain alone: {metrics}");
    // What came while it followed counts from when the controller saw it.
    let activated = metrics
        .lines()
        .find_map(|line| line.strip_prefix("myriad_activation_seconds_count "))
        .and_then(|count| count.parse::<u64>().ok());
    assert!(activated.is_some_and(|count| count >= 1), "{metrics}");
    for process in [&second, &proxy] {
        let text = cluster.admin(process, "/metrics").await.body;
        let strangers = myriad_e2e::catalogue::strangers(&text);
        assert!(strangers.is_empty(), "{strangers:#?}");
    }
}

#[tokio::test]
async fn people_see_where_an_ingress_is_served_and_what_is_wrong_with_it() {
    let cluster = Cluster::join().await;
    let _first = cluster.controller(0).await;
    let _second = cluster.controller(1).await;
    let (home, tenant) = (cluster.home(), cluster.tenant());
    let line = ["create", "service", "loadbalancer", "proxies", "--tcp=443"];
    cluster
        .kubectl(&[&line[..], &["--namespace", &home]].concat())
        .await;
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}"#;
    let line = [
        "patch",
        "service",
        "proxies",
        "--subresource=status",
        "--patch",
        status,
    ];
    cluster
        .kubectl(&[&line[..], &["--namespace", &home]].concat())
        .await;
    let objects = site(&cluster, "told.test").documents();
    // The Ingress alone: its Service and its Secret are missing.
    cluster.apply(&objects[0]).await;
    let line = ["get", "ingress", "told-test", "--namespace", &tenant];
    let address = "--output=jsonpath={.status.loadBalancer.ingress[*].ip}";
    let told = eventually(async || {
        let ip = cluster.kubectl(&[&line[..], &[address]].concat()).await;
        (ip == "192.0.2.7").then_some(())
    });
    assert!(told.await.is_some(), "the status has the address");
    let line = ["get", "events.events.k8s.io", "--namespace", &tenant];
    let notes = "--output=jsonpath={range .items[*]}{.regarding.name} {.note}{\"\\n\"}{end}";
    let told = eventually(async || {
        let notes = cluster.kubectl(&[&line[..], &[notes]].concat()).await;
        let about = |words: &str| notes.lines().filter(|note| note.contains(words)).count();
        // Two controllers know it, and one tells it.
        (about("told-test") > 0 && about("Secret") == 1).then_some(())
    });
    assert!(told.await.is_some(), "an Event tells what is missing");

    // Handed over to somebody else, it is not said to be served here any more.
    let patch = r#"{"spec":{"ingressClassName":"elsewhere"}}"#;
    let line = ["patch", "ingress", "told-test", "--namespace", &tenant];
    cluster
        .kubectl(&[&line[..], &["--patch", patch]].concat())
        .await;
    let line = ["get", "ingress", "told-test", "--namespace", &tenant];
    let taken_back = eventually(async || {
        let ip = cluster.kubectl(&[&line[..], &[address]].concat()).await;
        ip.is_empty().then_some(())
    });
    assert!(taken_back.await.is_some(), "the status is empty again");
}

/// Whether the name was refused by an alert.
fn is_refused(answer: &Answer) -> bool {
    answer.error.contains("unrecognized name")
}
