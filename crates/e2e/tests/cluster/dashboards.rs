//! Every panel of every dashboard, over a real Prometheus that reads a controller, a gateway and
//! two sidecars.

use myriad_e2e::Site;
use myriad_e2e::cluster::{Cluster, Mesh, Workload};
use myriad_e2e::dashboards::{all_answer, all_known, metrics, queries};
use myriad_e2e::prometheus::{Prometheus, Scraped};
use myriad_e2e::world::repository;

use super::istio::installed;
use super::measured::{METRICS_PORT, expose, serve};

/// Metrics of rules of which either one or the other is there: native histograms take the place of
/// classic buckets.
const ALTERNATIVES: [&str; 2] = [
    "myriad_activation_seconds",
    "myriad_activation_seconds_bucket",
];

/// A workload with a sidecar that tells its metrics.
async fn workload(mesh: &Mesh, number: u8, name: &str) -> Workload {
    let metrics = format!("0.0.0.0:{METRICS_PORT}");
    mesh.workload_with(number, name, |it| it.set("--probes", metrics))
        .await
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
