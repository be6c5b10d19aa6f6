//! Proxies that become more as clients ask more.

use myriad_e2e::cluster::Release;

use crate::scene::{PODS_DEADLINE, Scene, assert_flawless};

#[tokio::test]
async fn proxies_are_added_under_load_without_an_error() {
    let scene = Scene::set().await;
    let (cluster, home) = (&scene.cluster, scene.cluster.home());
    let settings = [
        "proxy.autoscaling.enabled=true",
        "proxy.autoscaling.minReplicas=1",
        "proxy.autoscaling.maxReplicas=2",
        "proxy.autoscaling.targetCPUUtilizationPercentage=30",
        "proxy.resources.requests.cpu=20m",
        "controller.replicas=1",
    ];
    let release = Release::install(cluster, &settings).await;
    let traffic = release.traffic("scaled.test", 4).await;
    let proxy = release.part("proxy");
    let form = "--output=jsonpath={.status.readyReplicas}";
    let line = ["get", "deployment", &proxy, "--namespace", &home, form];
    let more = cluster.until(PODS_DEADLINE, &line, |ready| ready == "2");
    more.await;
    traffic[0].go_on(100).await;
    assert_flawless(traffic);
    release.uninstall().await;
}
