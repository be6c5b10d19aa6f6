//! A node that is emptied while clients ask, and budgets that keep it from being emptied at once.

use myriad_e2e::cluster::Release;

use crate::scene::{PODS_DEADLINE, Scene, assert_flawless};

#[tokio::test]
async fn a_node_is_drained_without_an_error() {
    let scene = Scene::set().await;
    let (cluster, home) = (&scene.cluster, scene.cluster.home());
    let release = Release::install(cluster, &[]).await;
    let traffic = release.traffic("drained.test", 4).await;
    let of_story = format!(
        "--pod-selector=app.kubernetes.io/instance={}",
        release.name()
    );
    let drain = [
        "drain",
        "node-2",
        "--delete-emptydir-data",
        &of_story,
        "--timeout=90s",
    ];
    let drained = cluster.try_kubectl(&drain, "").await;
    for part in ["proxy", "controller"] {
        let deployment = format!("deployment/{}", release.part(part));
        cluster.rolled_out(&deployment, &home).await;
        let pods = scene.pods(&release, part, 2).await;
        for pod in pods {
            let form = "--output=jsonpath={.spec.nodeName}";
            let line = ["get", "pod", &pod, "--namespace", &home, form];
            assert_eq!(cluster.kubectl(&line).await, "node-1", "{pod}");
        }
    }
    traffic[0].go_on(100).await;
    cluster.kubectl(&["uncordon", "node-2"]).await;
    drained.expect("the node is drained");
    assert_flawless(traffic);
    release.uninstall().await;
}

#[tokio::test]
async fn the_last_of_a_part_is_not_evicted() {
    let scene = Scene::set().await;
    let (cluster, home) = (&scene.cluster, scene.cluster.home());
    let release = Release::install(cluster, &[]).await;
    for part in ["proxy", "controller"] {
        let budget = release.part(part);
        let form = "--output=jsonpath={.status.disruptionsAllowed}";
        let line = [
            "get",
            "poddisruptionbudget",
            &budget,
            "--namespace",
            &home,
            form,
        ];
        cluster
            .until(PODS_DEADLINE, &line, |allowed| allowed == "1")
            .await;
        let pods = scene.pods(&release, part, 2).await;
        let mut outcomes = Vec::new();
        for pod in &pods {
            let path = format!("/api/v1/namespaces/{home}/pods/{pod}/eviction");
            let eviction = format!(
                r#"{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"name":"{pod}"}}}}"#
            );
            let line = ["create", "--raw", &path, "--filename=-"];
            outcomes.push(cluster.try_kubectl(&line, &eviction).await);
        }
        assert!(outcomes[0].is_ok(), "{outcomes:?}");
        let refused = outcomes[1].as_ref().expect_err("one of two is enough");
        assert!(refused.contains("disruption budget"), "{refused}");
    }
    release.uninstall().await;
}
