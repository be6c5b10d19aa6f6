//! Workloads whose Pods get a proxy: with an init container, checks and a last step of their own,
//! and replaced under load.

use std::process::Stdio;

use myriad_e2e::cluster::{Cluster, Release, application};
use tokio::process::{Child, Command};

use crate::scene::{PODS_DEADLINE, Scene, assert_flawless};

/// The init container asks another workload, by its own proxy; the checks and the last step are
/// asked by way of it.
const CHECKED: &str = "        \
        startupProbe: {httpGet: {path: /started, port: 80}, periodSeconds: 1}
        lifecycle: {preStop: {httpGet: {path: /bye, port: 80}}}
      initContainers:
      - name: first
        image: nginx:1.29
        command: [curl, --fail, --silent, --show-error, http://cart/first]
";

/// The last step asks another workload, while the proxies of the gateway hear that the Pod ends.
const LEAVING: &str = "        \
        lifecycle:
          preStop:
            exec: {command: [sh, -c, curl --fail --silent http://cart/bye; sleep 3]}
";

#[tokio::test]
async fn injected_pods_start_are_checked_and_are_replaced_without_an_error() {
    let scene = Scene::set().await;
    let (cluster, tenant) = (&scene.cluster, scene.cluster.tenant());
    let settings = ["mesh.enabled=true", "sidecars.inject=true"];
    let release = Release::install(cluster, &settings).await;
    let line = ["label", "namespace", &tenant, "istio-injection=enabled"];
    cluster.kubectl(&line).await;
    injects(cluster, &tenant).await;

    cluster.apply(&application(&tenant, "cart", "")).await;
    cluster.rolled_out("deployment/cart", &tenant).await;
    cluster.apply(&application(&tenant, "web", CHECKED)).await;
    cluster.rolled_out("deployment/web", &tenant).await;
    let pod = pod_of(cluster, &tenant, "web").await;
    let form = "--output=jsonpath={.spec.initContainers[*].name}";
    let line = ["get", "pod", &pod, "--namespace", &tenant, form];
    let names = cluster.kubectl(&line).await;
    assert_eq!(names, "myriad-init myriad-proxy first");

    // What it is told at its end is in its log.
    let log = follow_log(cluster, &tenant, &pod);
    let line = ["delete", "pod", &pod, "--namespace", &tenant];
    cluster.kubectl(&line).await;
    let output = log.wait_with_output().await.expect("kubectl ends");
    let log = String::from_utf8_lossy(&output.stdout);
    assert!(log.contains("GET /bye"), "{log}");

    let traffic = release.traffic_with("mesh.test", 4, LEAVING).await;
    let line = [
        "rollout",
        "restart",
        "deployment/mesh-test",
        "--namespace",
        &tenant,
    ];
    cluster.kubectl(&line).await;
    cluster.rolled_out("deployment/mesh-test", &tenant).await;
    let form = "--output=name";
    let line = [
        "get",
        "pods",
        "--namespace",
        &tenant,
        "--selector=app=mesh-test",
        form,
    ];
    let two = |printed: &str| printed.lines().count() == 2;
    cluster.until(PODS_DEADLINE, &line, two).await;
    traffic[0].go_on(50).await;
    assert_flawless(traffic);
    // The last steps reached another workload by proxies that were still there.
    let line = [
        "logs",
        "--selector=app=cart",
        "--namespace",
        &tenant,
        "--container=app",
    ];
    let all = cluster.kubectl(&line).await;
    assert_eq!(all.matches("GET /bye").count(), 2, "{all}");
    release.uninstall().await;
}

/// Waits until the API server asks for what a Pod of this namespace becomes.
async fn injects(cluster: &Cluster, tenant: &str) {
    let image = "--image=nginx:1.29";
    let form = "--output=jsonpath={.spec.initContainers[*].name}";
    let line = [
        "run",
        "asked",
        image,
        "--dry-run=server",
        form,
        "--namespace",
        tenant,
    ];
    let injected = |printed: &str| printed.contains("myriad-proxy");
    cluster.until(PODS_DEADLINE, &line, injected).await;
}

async fn pod_of(cluster: &Cluster, namespace: &str, app: &str) -> String {
    let selector = format!("--selector=app={app}");
    let form = "--output=jsonpath={.items[0].metadata.name}";
    let line = ["get", "pods", "--namespace", namespace, &selector, form];
    cluster.kubectl(&line).await
}

fn follow_log(cluster: &Cluster, namespace: &str, pod: &str) -> Child {
    let mut command = Command::new(cluster.entry());
    command.args(["kubectl", "logs", "--follow", "--namespace", namespace]);
    command.args([pod, "--container=app"]).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().expect("kubectl starts")
}
