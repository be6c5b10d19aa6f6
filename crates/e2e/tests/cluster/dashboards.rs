//! Every panel of every dashboard, over a real Prometheus that reads a controller, a gateway and
//! two sidecars.

use myriad_e2e::Site;
use myriad_e2e::cluster::{Cluster, Mesh, Process, Resident, Workload};
use myriad_e2e::dashboards::{all_answer, all_known, metrics, queries};
use myriad_e2e::prometheus::{Prometheus, Scraped};
use myriad_e2e::world::repository;

use super::istio::installed;

/// The ports of the server for requests and for streams, behind ports 80 and 81 of its Service.
const PORTS: [u16; 2] = [8080, 8081];

/// Where sidecars tell their metrics to those outside of the mesh.
const METRICS_PORT: u16 = 15020;

/// Metrics of rules of which either one or the other is there: native histograms take the place of
/// classic buckets.
const ALTERNATIVES: [&str; 2] = [
    "myriad_activation_seconds",
    "myriad_activation_seconds_bucket",
];

/// A workload with a sidecar that tells its metrics.
async fn workload(mesh: &Mesh, number: u8, name: &str) -> Workload {
    let tenant = mesh.cluster.tenant();
    let line = ["create", "serviceaccount", name, "--namespace", &tenant];
    mesh.cluster.kubectl(&line).await;
    let object = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {tenant}\n  \
         labels: {{app: {name}, security.istio.io/tlsMode: istio}}\nspec:\n  \
         serviceAccountName: {name}\n  containers: [{{name: app, image: app}}]\n"
    );
    mesh.cluster.apply(&object).await;
    let resident = Resident {
        number,
        namespace: &tenant,
        name,
        account: name,
        rules: Some(Vec::new()),
    };
    let metrics = format!("0.0.0.0:{METRICS_PORT}");
    mesh.settle(&resident, |it| it.set("--probes", metrics))
        .await
}

/// The processes of the server beside its sidecar.
fn serve(mesh: &Mesh, workload: &Workload) -> [Process; 2] {
    PORTS.map(|port| {
        let launch = mesh
            .cluster
            .backend_launch(&format!("cart-{port}"), "the-cart");
        let launch = workload.pod.place(launch.set("--http", port));
        let admin = format!("127.0.0.1:{}", port + 1_000);
        launch.set("--admin", admin).start()
    })
}

/// The Service in front of the server; its address.
async fn expose(mesh: &Mesh) -> String {
    let tenant = mesh.cluster.tenant();
    let [http, tcp] = PORTS;
    let object = format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: cart\n  namespace: {tenant}\nspec:\n  \
         selector: {{app: cart}}\n  ports:\n  - {{name: http, port: 80, targetPort: {http}}}\n  \
         - {{name: tcp, port: 81, targetPort: {tcp}}}\n"
    );
    mesh.cluster.apply(&object).await;
    let output = "--output=jsonpath={.spec.clusterIP}";
    let line = ["get", "service", "cart", "--namespace", &tenant, output];
    mesh.cluster.kubectl(&line).await
}

/// A site of the gateway; each number is another state of it.
fn site(cluster: &Cluster, host: &str, number: usize) -> Site {
    Site::new(host)
        .namespace(&cluster.tenant())
        .class(&cluster.class())
        .path(&format!("/{number}"))
        .tls(&cluster.authority.issue(&[host]))
}

/// A change, and traffic at the gateway and between the workloads.
async fn stir(mesh: &Mesh, web: &Workload, address: &str, number: usize) {
    let cluster = &mesh.cluster;
    let changed = site(cluster, "b.test", number).to(cluster.endpoint());
    cluster.apply(&changed.yaml()).await;
    cluster.get("a.test").await;
    cluster.get("c.test").await;
    let url = format!("http://{address}/");
    web.gets("cart", &url, "the-cart 200").await;
    let stream = format!("http://{address}:81/");
    web.gets("cart", &stream, "the-cart 200").await;
}

#[tokio::test]
async fn every_panel_of_every_dashboard_has_data() {
    installed().await;
    let cluster = Cluster::join().await;
    // Nothing is ordered: it is enough that it would be.
    let mesh = Mesh::start(cluster, |launch| launch.argument("--acme")).await;
    let cluster = &mesh.cluster;
    let _endpoint = cluster.backend("hello");
    let gateway = cluster.restart_proxy(0, "proxy");
    cluster.ready(&gateway).await;
    let served = site(cluster, "a.test", 0).path("/").to(cluster.endpoint());
    cluster.apply(&served.yaml()).await;
    // It has no endpoints.
    let broken = site(cluster, "c.test", 0).path("/");
    cluster.apply(&broken.yaml()).await;
    let address = expose(&mesh).await;
    let cart = workload(&mesh, 1, "cart").await;
    let _app = serve(&mesh, &cart);
    let web = workload(&mesh, 2, "web").await;
    cluster.eventually("a.test", |it| it.status == 200).await;

    let sidecars = [&cart, &web].map(|it| format!("{}:{METRICS_PORT}", it.pod.address()));
    let own = [mesh.controller().admin(), gateway.admin()].map(str::to_owned);
    let targets: Vec<String> = own.into_iter().chain(sidecars).collect();
    let rules = repository("deploy/prometheus/rules.yaml");
    let rules = std::fs::read_to_string(rules).expect("the rules");
    let expressions = rules.split("expr:").skip(1);
    let expressions = expressions.filter_map(|it| it.split("labels:").next());
    let mut known = metrics(&expressions.collect::<String>());
    known.retain(|name| !ALTERNATIVES.contains(&&**name));
    let mut number = 1;
    for is_native in [false, true] {
        let scraped = Scraped {
            targets: &targets,
            path: "/metrics",
            is_native,
            entry: Some(cluster.entry()),
        };
        let prometheus = Prometheus::reading(&scraped).await;
        prometheus.says("sum(up)", 4.0).await;
        all_answer(&prometheus, queries(&[]), async || {
            number += 1;
            stir(&mesh, &web, &address, number).await;
        })
        .await;
        all_known(&prometheus, &known).await;
    }
}
