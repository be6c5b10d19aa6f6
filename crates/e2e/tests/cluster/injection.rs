//! Pods that get their proxy on their way into the cluster, by a real API server that asks.

use myriad_e2e::cluster::{Cluster, Process};
use myriad_e2e::world::{self, eventually};
use tokio::process::Command;
use tokio::sync::Mutex;

/// Held by a story whose webhook would answer for the Pods of others too.
pub(super) static WEBHOOKS: Mutex<()> = Mutex::const_new(());

/// The port of the webhook, of the story's own.
const PORTS_START: u16 = 24_000;

/// Starts a controller with a webhook, and leads the API server to it as the chart does.
async fn inject(cluster: &Cluster) -> Process {
    let webhook = PORTS_START + cluster.sync_address(0).port() - 15_000;
    let name = format!("story-{}", cluster.class());
    cluster
        .apply(&configuration(&name, webhook, &cluster.tenant()).await)
        .await;
    let controller = cluster.controller_launch(0).argument("--mesh");
    controller
        .set("--webhook", format!("127.0.0.1:{webhook}"))
        .set("--webhook-configuration", &name)
        .set("--sync-hosts", "localhost,127.0.0.1")
        .set("--sidecar-image", "myriad:story")
        .set("--sidecar-controller", cluster.sync_address(0))
        .start()
}

/// The chart's configuration; the API server of the stories reaches no Service, but an address.
async fn configuration(name: &str, port: u16, tenant: &str) -> String {
    let helm = std::env::var_os("MYRIAD_HELM")
        .expect("MYRIAD_HELM is the path of helm; `cargo xtask test --stage cluster` sets it");
    let mut command = Command::new(helm);
    command.args(["template", name]);
    command.arg(world::repository("deploy/helm/myriad"));
    command.args([
        "--set=sidecars.inject=true,mesh.enabled=true",
        "--kube-version=1.36.0",
    ]);
    command.arg("--show-only");
    command.arg("templates/injection.yaml");
    let output = command.output().await.expect("helm starts");
    assert!(output.status.success(), "{output:?}");
    let rendered = String::from_utf8(output.stdout).expect("text");
    let mut objects = rendered.split("\n---\n");
    let first = objects.find(|it| it.contains("kind: MutatingWebhookConfiguration"));
    let first = first.expect("the configuration");
    let (mut lines, mut is_of_namespace) = (Vec::new(), false);
    for line in first.lines() {
        let word = line.trim_start();
        match word.split_once(": ").unwrap_or((word, "")) {
            ("service:" | "port", _) => {}
            ("name", value) if value.ends_with("-controller") => {}
            ("namespace", _) => {}
            ("path", path) => lines.push(format!("    url: https://127.0.0.1:{port}{path}")),
            // A story has a webhook of its own, and leaves the namespaces of others alone.
            ("namespaceSelector:" | "namespaceSelector", _) => {
                lines.push(line.to_owned());
                is_of_namespace = !line.contains('*');
            }
            ("matchExpressions:", _) if is_of_namespace => {
                is_of_namespace = false;
                let own = "{key: kubernetes.io/metadata.name, operator: In, values: ";
                lines.push(format!("{line}\n    - {own}[{tenant}]}}"));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

fn pod(name: &str, namespace: &str, metadata: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {namespace}\n{metadata}\
         spec:\n  containers:\n  - name: app\n    image: app:1\n    readinessProbe:\n      \
         httpGet: {{path: /ready, port: 8080}}\n"
    )
}

async fn label(cluster: &Cluster, namespace: &str, label: &str) {
    let line = ["label", "namespace", namespace, label, "--overwrite"];
    cluster.kubectl(&line).await;
}

const INJECTED: &str = "myriad-init myriad-proxy";

/// Waits until the API server, which hears of labels and webhooks in time, would make this of a
/// Pod; and makes it.
async fn becomes(cluster: &Cluster, controller: &Process, manifest: &str, expected: &str) {
    let output = "--output=jsonpath={.spec.initContainers[*].name}";
    let asked = ["create", "--dry-run=server", output, "--filename=-"];
    let mut last = Ok(String::new());
    let settled = eventually(async || {
        last = cluster.try_kubectl(&asked, manifest).await;
        (last.as_deref() == Ok(expected)).then_some(())
    });
    assert!(settled.await.is_some(), "{last:?}\n{}", controller.log());
    let line = ["create", output, "--filename=-"];
    let made = cluster.try_kubectl(&line, manifest).await;
    assert_eq!(made.as_deref(), Ok(expected));
}

#[tokio::test]
async fn pods_get_their_proxy_where_labels_ask_for_it_and_nowhere_else() {
    let _alone = WEBHOOKS.lock().await;
    let cluster = Cluster::join().await;
    let controller = inject(&cluster).await;
    cluster.ready(&controller).await;
    let tenant = cluster.tenant();

    // Nobody asks; then the namespace does.
    becomes(&cluster, &controller, &pod("plain", &tenant, ""), "").await;
    label(&cluster, &tenant, "istio-injection=enabled").await;
    becomes(&cluster, &controller, &pod("cart", &tenant, ""), INJECTED).await;
    let output = "--output=jsonpath={.spec.containers[0].readinessProbe.httpGet.path} \
                  {.metadata.labels.security\\.istio\\.io/tlsMode}";
    let line = ["get", "pod", "cart", "--namespace", &tenant, output];
    let read = cluster.kubectl(&line).await;
    assert_eq!(read, "/workload/app/readyz istio");
    let output = "--output=jsonpath={.data}";
    let line = [
        "get",
        "configmap",
        "myriad-ca",
        "--namespace",
        &tenant,
        output,
    ];
    // The Pod is what tells of its namespace, so the roots come behind it.
    let published = eventually(async || {
        let read = cluster.try_kubectl(&line, "").await;
        read.is_ok_and(|it| it.contains("BEGIN CERTIFICATE"))
            .then_some(())
    });
    assert!(published.await.is_some(), "{}", controller.log());

    // A Pod that will not, one that asks for what cannot be, and one for what is not honoured.
    let no = "  labels: {sidecar.istio.io/inject: \"false\"}\n";
    becomes(&cluster, &controller, &pod("alone", &tenant, no), "").await;
    let wrong = "  annotations: {sidecar.istio.io/proxyCPU: much}\n";
    let wrong = pod("wrong", &tenant, wrong);
    let refused = cluster
        .try_kubectl(&["apply", "--filename=-"], &wrong)
        .await;
    let complaint = refused.expect_err("it is refused");
    assert!(
        complaint.contains("proxyCPU: \"much\" is no quantity"),
        "{complaint}"
    );
    let odd = "  annotations: {sidecar.istio.io/agentLogLevel: debug}\n";
    becomes(&cluster, &controller, &pod("odd", &tenant, odd), INJECTED).await;
    let metrics = cluster.admin(&controller, "/metrics").await;
    let counted = |name: &str| metrics.body.lines().any(|line| line.starts_with(name));
    assert!(counted("myriad_injections_total 2"), "{}", metrics.body);
    assert!(
        counted("myriad_injections_refused_total 1"),
        "{}",
        metrics.body
    );
}

#[tokio::test]
async fn a_pod_asks_for_itself_and_a_namespace_forbids() {
    let _alone = WEBHOOKS.lock().await;
    let cluster = Cluster::join().await;
    let controller = inject(&cluster).await;
    cluster.ready(&controller).await;
    let tenant = cluster.tenant();
    for (name, label) in [("a", "sidecar.istio.io/inject"), ("b", "myriad.dev/inject")] {
        let manifest = pod(name, &tenant, &format!("  labels: {{{label}: \"true\"}}\n"));
        becomes(&cluster, &controller, &manifest, INJECTED).await;
    }
    label(&cluster, &tenant, "myriad.dev/injection=disabled").await;
    let yes = "  labels: {sidecar.istio.io/inject: \"true\"}\n";
    becomes(&cluster, &controller, &pod("c", &tenant, yes), "").await;
}
