//! Traffic between workloads of a mesh, as a real Prometheus tells it to dashboards made for Istio:
//! their names of metrics and labels, and queries of their kind.

use myriad_e2e::cluster::{Cluster, Mesh, Process, Resident, Workload};
use myriad_e2e::prometheus::Prometheus;

use super::istio::installed;

/// The ports of workloads for requests and for streams, behind ports 80 and 81 of the Service.
const PORTS: [u16; 2] = [8080, 8081];

/// The port where injection has the proxy answer those outside of the mesh.
pub(super) const METRICS_PORT: u16 = 15020;

struct Story(Mesh);

impl Story {
    /// A workload as injection makes it, with the labels that it would have.
    async fn workload(&self, number: u8, name: &str) -> Workload {
        let tenant = self.0.cluster.tenant();
        let line = ["create", "serviceaccount", name, "--namespace", &tenant];
        self.0.cluster.kubectl(&line).await;
        let object = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}-0\n  namespace: {tenant}\n  \
             labels: {{app: {name}, version: v1, security.istio.io/tlsMode: istio}}\nspec:\n  \
             serviceAccountName: {name}\n  containers: [{{name: app, image: app}}]\n"
        );
        self.0.cluster.apply(&object).await;
        let pod = format!("{name}-0");
        let resident = Resident {
            number,
            namespace: &tenant,
            name: &pod,
            account: name,
            rules: Some(Vec::new()),
        };
        let metrics = format!("0.0.0.0:{METRICS_PORT}");
        let settled = self.0.settle(&resident, |it| it.set("--probes", metrics));
        settled.await
    }
}

/// The processes of the server beside its proxy.
pub(super) fn serve(mesh: &Mesh, workload: &Workload) -> [Process; 2] {
    PORTS.map(|port| {
        let name = format!("cart-{port}");
        let launch = mesh.cluster.backend_launch(&name, "the-cart");
        let launch = workload.pod.place(launch.set("--http", port));
        let admin = format!("127.0.0.1:{}", port + 1_000);
        launch.set("--admin", admin).start()
    })
}

/// The Service in front of the server; its address.
pub(super) async fn expose(mesh: &Mesh) -> String {
    let [http, tcp] = PORTS;
    let ports = [("http", 80, http), ("tcp", 81, tcp)];
    mesh.expose("cart", &ports).await
}

#[tokio::test]
async fn dashboards_made_for_istio_show_who_speaks_with_whom() {
    installed().await;
    let story = Story(Mesh::start(Cluster::join().await, |launch| launch).await);
    let mesh = &story.0;
    let tenant = mesh.cluster.tenant();
    let address = expose(mesh).await;
    let cart = story.workload(0, "cart").await;
    let _app = serve(mesh, &cart);
    let web = story.workload(1, "web").await;
    let pay = story.workload(2, "pay").await;
    let pods = [&cart, &web, &pay].map(|it| format!("{}:{METRICS_PORT}", it.pod.address()));
    let prometheus = Prometheus::start(&pods).await;
    prometheus.says("sum(up)", 3.0).await;

    let url = format!("http://{address}/");
    for (client, times) in [(&web, 3), (&pay, 2)] {
        for _ in 0..times {
            client.gets("cart", &url, "the-cart 200").await;
        }
    }
    let plain = format!("http://{}:{}/", cart.pod.address(), PORTS[0]);
    let answer = mesh.cluster.curl(&plain, &[]).ask().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    requests(&prometheus, &tenant).await;
    rates(&prometheus, &web, &url, &tenant).await;

    let stream = format!("http://{address}:81/");
    for _ in 0..4 {
        web.gets("cart", &stream, "the-cart 200").await;
    }
    streams(&prometheus, &tenant).await;
}

/// Counts by both ends, as the mesh and workload dashboards add them up.
async fn requests(prometheus: &Prometheus, tenant: &str) {
    let service = format!("cart.{tenant}.svc.cluster.local");
    let principal = |account: &str| format!("spiffe://cluster.local/ns/{tenant}/sa/{account}");
    let cart = format!(
        "response_code=\"200\",destination_service=\"{service}\",\
         destination_service_name=\"cart\",destination_service_namespace=\"{tenant}\",\
         destination_workload=\"cart-0\",destination_workload_namespace=\"{tenant}\",\
         destination_app=\"cart\",destination_version=\"v1\",\
         destination_canonical_service=\"cart\",destination_canonical_revision=\"v1\",\
         destination_principal=\"{}\",destination_cluster=\"Kubernetes\",\
         request_protocol=\"http\",response_flags=\"-\"",
        principal("cart")
    );
    for (client, count) in [("web", 3.0), ("pay", 2.0)] {
        let client = format!(
            "source_workload=\"{client}-0\",source_workload_namespace=\"{tenant}\",\
             source_app=\"{client}\",source_version=\"v1\",source_principal=\"{}\",\
             source_canonical_service=\"{client}\",source_cluster=\"Kubernetes\"",
            principal(client)
        );
        for reported in [
            "reporter=\"source\",connection_security_policy=\"unknown\"",
            "reporter=\"destination\",connection_security_policy=\"mutual_tls\"",
        ] {
            let query = format!("sum(istio_requests_total{{{reported},{client},{cart}}})");
            prometheus.says(&query, count).await;
        }
    }
    let stranger = "reporter=\"destination\",connection_security_policy=\"none\",\
                    source_workload=\"unknown\",source_principal=\"unknown\"";
    let query = format!("sum(istio_requests_total{{{stranger},{cart}}})");
    prometheus.says(&query, 1.0).await;
    let query = format!(
        "sum(istio_requests_total{{reporter=~\"source|waypoint\",\
         destination_workload_namespace=\"{tenant}\",response_code!~\"5.*\"}})"
    );
    prometheus.says(&query, 5.0).await;
    let query = format!(
        "sum(istio_response_bytes_count{{reporter=\"destination\",destination_service=\
         \"{service}\"}})"
    );
    prometheus.says(&query, 6.0).await;
}

/// Rates and quantiles, as the service dashboard draws them, while there is traffic.
async fn rates(prometheus: &Prometheus, web: &Workload, url: &str, tenant: &str) {
    let ask = async || web.gets("cart", url, "the-cart 200").await;
    let service = format!("destination_service=~\"cart\\\\.{tenant}.*\"");
    let of_cart = |labels: &serde_json::Value| {
        labels["destination_workload"] == "cart-0"
            && labels["destination_workload_namespace"] == *tenant
    };
    let quantile = format!(
        "histogram_quantile(0.90, sum(rate(istio_request_duration_milliseconds_bucket{{\
         reporter=\"source\",{service}}}[1m])) by (le, destination_workload, \
         destination_workload_namespace))"
    );
    let is_time = |labels: &_, value: f64| of_cart(labels) && value > 0.0 && value < 5_000.0;
    prometheus.finds(&quantile, ask, is_time).await;
    let rate = format!(
        "round(sum(irate(istio_requests_total{{reporter=\"source\",{service}}}[1m])) by \
         (destination_workload, destination_workload_namespace), 0.001)"
    );
    let is_rate = |labels: &_, value: f64| of_cart(labels) && value > 0.0;
    prometheus.finds(&rate, ask, is_rate).await;
    let success = format!(
        "sum(irate(istio_requests_total{{reporter=\"source\",{service},\
         response_code!~\"5.*\"}}[5m])) / \
         sum(irate(istio_requests_total{{reporter=\"source\",{service}}}[5m]))"
    );
    prometheus
        .finds(&success, ask, |_, value| value == 1.0)
        .await;
}

/// Streams and their bytes, as both ends tell them.
async fn streams(prometheus: &Prometheus, tenant: &str) {
    let ends = format!(
        "source_workload=\"web-0\",destination_workload=\"cart-0\",\
         destination_service_name=\"cart\",destination_workload_namespace=\"{tenant}\",\
         request_protocol=\"tcp\""
    );
    for reporter in ["source", "destination"] {
        for metric in ["opened", "closed"] {
            let query = format!(
                "sum(istio_tcp_connections_{metric}_total{{reporter=\"{reporter}\",{ends}}})"
            );
            prometheus.says(&query, 4.0).await;
        }
        for metric in ["sent", "received"] {
            let query = format!(
                "sum(istio_tcp_{metric}_bytes_total{{reporter=\"{reporter}\",{ends}}}) \
                 > bool 200"
            );
            prometheus.says(&query, 1.0).await;
        }
    }
    let secured = format!(
        "sum(istio_tcp_connections_opened_total{{reporter=\"destination\",\
         connection_security_policy=\"mutual_tls\",{ends}}})"
    );
    prometheus.says(&secured, 4.0).await;
}
