//! The owner of a host when an old object is edited to claim it, and when DNS says whose it is.

use myriad_e2e::Site;
use myriad_e2e::cluster::{Cluster, Process};
use myriad_e2e::world::eventually;
use myriad_lab::bind::{BindServer, BindZone};

#[tokio::test]
async fn an_old_ingress_that_is_edited_takes_no_host_that_is_served() {
    let cluster = Cluster::join().await;
    let mine = cluster.tenant();
    let theirs = format!("{mine}-theirs");
    cluster.kubectl(&["create", "namespace", &theirs]).await;
    let site = |host: &str, namespace: &str, text: &str| {
        Site::new(host)
            .namespace(namespace)
            .class(&cluster.class())
            .to(cluster.endpoint())
            .annotation("myriad.dev/respond", text)
            .tls(
                &cluster
                    .authority
                    .issue(&["first.test", "live.test", "second.test"]),
            )
    };
    let controller = cluster.controller(0).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let old = site("first.test", &mine, "mine");
    cluster.apply(&old.yaml()).await;
    serves(&cluster, "first.test", "mine").await;
    let live = site("live.test", &theirs, "theirs").yaml();
    cluster.apply(&live).await;
    serves(&cluster, "live.test", "theirs").await;

    let ingress = old.documents().remove(0);
    let edited = ingress.replace("first.test", "live.test");
    assert_ne!(ingress, edited);
    cluster.apply(&edited).await;
    told_off(&cluster, &mine, &theirs).await;
    kept(&cluster).await;
    serves(&cluster, "live.test", "theirs").await;

    // One that starts again has seen no edit.
    controller.kill().await;
    let controller = cluster.controller(0).await;
    followed(
        &cluster,
        &controller,
        &site("second.test", &mine, "mine").yaml(),
    )
    .await;
    let answer = cluster.get("live.test").await;
    assert!(answer.body.contains("theirs"), "{answer:?}");

    // It is a claim all the same.
    cluster.delete(&live).await;
    serves(&cluster, "live.test", "mine").await;
}

#[tokio::test]
async fn a_host_is_of_who_is_named_in_its_zone_whichever_controller_leads() {
    let cluster = Cluster::join().await;
    let mine = cluster.tenant();
    let theirs = format!("{mine}-theirs");
    cluster.kubectl(&["create", "namespace", &theirs]).await;
    let record = format!("_myriad-host.live IN TXT \"installation=edge.test;namespace={mine}\"");
    let zones = BindServer::start(&[BindZone {
        name: "test",
        records: &record,
        takes_updates: false,
    }]);
    let zones = zones.expect("a server of zones");
    let launch = cluster
        .controller_launch(0)
        .set("--host-proof", "edge.test")
        .set("--acme-dns-proof", "off")
        .set("--resolver", zones.address);
    let pair = cluster.authority.issue(&["live.test", "second.test"]);
    let site = |host: &str, namespace: &str, text: &str| {
        let site = Site::new(host).namespace(namespace).class(&cluster.class());
        let site = site.to(cluster.endpoint()).tls(&pair);
        site.annotation("myriad.dev/respond", text).yaml()
    };
    let controller = launch.start();
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    cluster.apply(&site("live.test", &theirs, "theirs")).await;
    serves(&cluster, "live.test", "theirs").await;
    // The younger one is named.
    let own = site("live.test", &mine, "mine");
    cluster.apply(&own).await;
    serves(&cluster, "live.test", "mine").await;
    let home = cluster.home();
    let texts = "--output=jsonpath={.data.proofs}";
    let line = [
        "get",
        "configmap",
        "myriad-host-proofs",
        "--namespace",
        &home,
        texts,
    ];
    let kept = cluster.kubectl(&line).await;
    assert!(kept.contains(&format!("live.test {mine} ")), "{kept}");

    // Another controller knows it without DNS, and keeps the host for who makes its Ingress anew.
    drop(zones);
    controller.kill().await;
    let controller = launch.start();
    followed(&cluster, &controller, &site("second.test", &mine, "mine")).await;
    let answer = cluster.get("live.test").await;
    assert!(answer.body.contains("mine"), "{answer:?}");
    cluster.delete(&own).await;
    cluster.eventually("live.test", |it| it.status != 200).await;
    cluster.apply(&own).await;
    serves(&cluster, "live.test", "mine").await;
}

async fn serves(cluster: &Cluster, host: &str, text: &str) {
    let is_served = |it: &myriad_e2e::Answer| it.status == 200 && it.body.contains(text);
    cluster.eventually(host, is_served).await;
}

/// Waits for the Event that says whose the host is.
async fn told_off(cluster: &Cluster, mine: &str, theirs: &str) {
    let note = "--output=jsonpath={.items[*].note}";
    let line = ["get", "events.events.k8s.io", "--namespace", mine, note];
    let wanted = format!("live.test belongs to namespace {theirs}");
    let told = eventually(async || {
        let notes = cluster.kubectl(&line).await;
        notes.contains(&wanted).then_some(())
    });
    told.await.expect("an Event on the Ingress");
}

/// Waits until the leader has written since when the host is claimed.
async fn kept(cluster: &Cluster) {
    let home = cluster.home();
    let texts = "--output=jsonpath={.items[*].data.claims}";
    let line = ["get", "configmaps", "--namespace", &home, texts];
    let kept = eventually(async || {
        let texts = cluster.kubectl(&line).await;
        texts.contains("live.test=").then_some(())
    });
    kept.await.expect("the claim is kept");
}

/// Waits until the proxies serve what a controller has made of objects that are new.
async fn followed(cluster: &Cluster, controller: &Process, objects: &str) {
    cluster.ready(controller).await;
    cluster.apply(objects).await;
    serves(cluster, "second.test", "mine").await;
}
