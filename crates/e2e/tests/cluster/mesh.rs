//! A mesh of three workloads, each in a network of its own with rules and a sidecar: who reaches
//! whom, by what identity, and what becomes of those outside.

use myriad_e2e::cluster::{Cluster, Mesh, Process, Workload};
use myriad_e2e::world::eventually;

use super::istio::installed;

/// The port of the server's workload, behind its Service's port 80.
const PORT: u16 = 8080;

/// The mesh of this story.
struct Story(Mesh);

impl Story {
    /// The process of the server beside its proxy.
    fn serve(&self, workload: &Workload) -> Process {
        let launch = self.0.cluster.backend_launch("cart", "the-cart");
        let launch = workload.pod.place(launch.set("--http", PORT));
        launch.set("--admin", "127.0.0.1:9902").start()
    }

    async fn apply(&self, kind: &str, version: &str, spec: &str) {
        let tenant = self.0.cluster.tenant();
        let object = format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: own\n  namespace: {tenant}\n\
             spec: {spec}\n"
        );
        self.0.cluster.apply(&object).await;
    }
}

#[tokio::test]
async fn workloads_reach_each_other_by_identity_and_others_do_not() {
    installed().await;
    let story = Story(Mesh::start(Cluster::join().await, |launch| launch).await);
    let mesh = &story.0;
    let outside = mesh.cluster.backend("outside");
    let address = mesh.expose("cart", &[("http", 80, PORT)]).await;
    let server = mesh.workload(0, "cart").await;
    let _app = story.serve(&server);
    let client = mesh.workload(1, "web").await;
    let other = mesh.workload(2, "stray").await;
    let url = format!("http://{address}/");
    let full = format!("cart.{}.svc.cluster.local", mesh.cluster.tenant());

    // By each of its names, and by what is no name of the mesh where the workload asks.
    client.gets("cart", &url, "the-cart 200").await;
    client.gets(&full, &url, "the-cart 200").await;
    let elsewhere = format!("http://{}/", mesh.cluster.endpoint());
    client.gets("outside.test", &elsewhere, "outside 200").await;

    // Who has no identity is not let in any more, who has one is.
    let direct = format!("http://{}:{PORT}/", server.pod.address());
    let answer = mesh.cluster.curl(&direct, &[]).ask().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let security = "security.istio.io/v1";
    story
        .apply("PeerAuthentication", security, "{mtls: {mode: STRICT}}")
        .await;
    let refused = eventually(async || {
        let answer = mesh.cluster.curl(&direct, &[]).ask().await;
        (answer.status == 0).then_some(())
    });
    assert!(refused.await.is_some(), "{}", server.proxy.log());
    client.gets("cart", &url, "the-cart 200").await;
    other.gets("cart", &url, "the-cart 200").await;

    // And of those only whom the policy names.
    let tenant = mesh.cluster.tenant();
    let policy = format!(
        "{{selector: {{matchLabels: {{app: cart}}}}, rules: [{{from: [{{source: \
         {{principals: [cluster.local/ns/{tenant}/sa/web]}}}}]}}]}}"
    );
    story.apply("AuthorizationPolicy", security, &policy).await;
    other.gets("cart", &url, " 403").await;
    client.gets("cart", &url, "the-cart 200").await;

    // What nobody names is refused where the Sidecar says so; what is named is not.
    let scope = "{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}";
    story
        .apply("Sidecar", "networking.istio.io/v1", scope)
        .await;
    let refused = "not in the mesh\n 502";
    client.gets("outside.test", &elsewhere, refused).await;
    client.gets("cart", &url, "the-cart 200").await;
    drop(outside);
}
