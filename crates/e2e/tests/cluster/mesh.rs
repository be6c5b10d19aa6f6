//! A mesh of three workloads, each in a network of its own with rules and a sidecar: who reaches
//! whom, by what identity, and what becomes of those outside.

use myriad_e2e::cluster::{Api, Cluster, Pod, Process, Relay};
use myriad_e2e::world::eventually;
use serde_json::json;

use super::istio::installed;

/// Where the workload of the server listens, behind its Service's port 80.
const PORT: u16 = 8080;

struct Mesh {
    cluster: Cluster,
    api: Api,
    service: Relay,
    node: String,
    _controller: Process,
}

struct Workload {
    pod: Pod,
    proxy: Process,
}

impl Mesh {
    async fn new() -> Mesh {
        installed().await;
        let cluster = Cluster::join().await;
        let api = cluster.api().await;
        let node = format!("node-of-{}", cluster.class());
        let object = format!("apiVersion: v1\nkind: Node\nmetadata:\n  name: {node}\n");
        api.apply(&object).await;
        let service = Relay::start(cluster.service(), cluster.sync_address(0)).await;
        let names = format!("localhost,{}", cluster.service());
        let controller = cluster.controller_launch(0).argument("--mesh");
        let controller = controller.set("--sync-hosts", names).start();
        cluster.ready(&controller).await;
        cluster.provide_trust("proxy", "myriad").await;
        Mesh {
            cluster,
            api,
            service,
            node,
            _controller: controller,
        }
    }

    /// A Pod with rules and a proxy, as injection makes them.
    async fn workload(&self, number: u16, name: &str) -> Workload {
        let tenant = self.cluster.tenant();
        let line = ["create", "serviceaccount", name, "--namespace", &tenant];
        self.cluster.kubectl(&line).await;
        let place = u8::try_from(number).expect("a few");
        let pod = Pod::new(&self.cluster, place).await;
        let program = std::env::var("MYRIAD_BIN").expect("`cargo xtask test` sets MYRIAD_BIN");
        // The story looks at admin pages from outside.
        let excluded = "--inbound-ports-excluded=9901";
        let ruled = pod.run(&[&program, "redirect", excluded]).await;
        assert!(ruled.status.success(), "{ruled:?}");
        let object = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {tenant}\n  \
             labels: {{app: {name}, security.istio.io/tlsMode: istio}}\nspec:\n  \
             serviceAccountName: {name}\n  containers: [{{name: app, image: app}}]\n"
        );
        self.cluster.apply(&object).await;
        let path = format!("/api/v1/namespaces/{tenant}/pods/{name}");
        self.api.bind(&path, &self.node).await;
        let proxy = self.proxy(&pod, number, name).await;
        self.cluster.ready(&proxy).await;
        let is_true = |kind: &str| json!({"type": kind, "status": "True"});
        let status = json!({
            "phase": "Running",
            "podIP": pod.address(),
            "podIPs": [{"ip": pod.address()}],
            "conditions": [is_true("ContainersReady"), is_true("Ready")],
        });
        self.api.set_status(&path, &status).await;
        Workload { pod, proxy }
    }

    async fn proxy(&self, pod: &Pod, number: u16, name: &str) -> Process {
        let tenant = self.cluster.tenant();
        let bound = format!("--bound-object-name={name}");
        let line = [
            "create",
            "token",
            name,
            "--namespace",
            &tenant,
            "--audience=myriad",
            "--bound-object-kind=Pod",
            &bound,
        ];
        let token = self.cluster.kubectl(&line).await;
        std::fs::write(self.cluster.path(&format!("{name}.token")), token).expect("a file");
        let state = self.cluster.path(&format!("state-{name}"));
        std::fs::create_dir_all(&state).expect("a directory");
        let launch = self.cluster.proxy_launch(number, name).argument("--mesh");
        let launch = launch
            .set("--controller", self.service.address())
            .set("--state-dir", state.display())
            .set("--capture-outbound", "127.0.0.1:15001")
            .set("--capture-inbound", "0.0.0.0:15006");
        // The group is what rules know the proxy by.
        let launch = pod.place(launch);
        let own = ["setpriv", "--regid=1337", "--clear-groups"];
        launch.through(&own).start()
    }

    /// What the server runs beside its proxy.
    fn serve(&self, workload: &Workload) -> Process {
        let launch = self.cluster.backend_launch("cart", "the-cart");
        let launch = workload.pod.place(launch.set("--http", PORT));
        launch.set("--admin", "127.0.0.1:9902").start()
    }

    /// The Service in front of the server; its address.
    async fn expose(&self) -> String {
        let tenant = self.cluster.tenant();
        let object = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: cart\n  namespace: {tenant}\n\
             spec:\n  selector: {{app: cart}}\n  \
             ports: [{{name: http, port: 80, targetPort: {PORT}}}]\n"
        );
        self.cluster.apply(&object).await;
        let output = "--output=jsonpath={.spec.clusterIP}";
        let line = ["get", "service", "cart", "--namespace", &tenant, output];
        self.cluster.kubectl(&line).await
    }

    async fn apply(&self, kind: &str, version: &str, spec: &str) {
        let tenant = self.cluster.tenant();
        let object = format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: own\n  namespace: {tenant}\n\
             spec: {spec}\n"
        );
        self.cluster.apply(&object).await;
    }
}

impl Workload {
    /// Asks as the workload would, until the answer is this: a status, or 000 for none.
    async fn gets(&self, host: &str, url: &str, expected: &str) {
        let header = format!("Host: {host}");
        let mut words = vec!["curl", "--silent", "--show-error", "--max-time", "5"];
        words.extend(["--noproxy", "*", "--header", &header]);
        words.extend(["--write-out", " %{http_code}", url]);
        let mut last = String::new();
        let asked = eventually(async || {
            let output = self.pod.run(&words).await;
            last = String::from_utf8_lossy(&output.stdout).into_owned();
            last += &String::from_utf8_lossy(&output.stderr);
            last.contains(expected).then_some(())
        });
        let log = self.proxy.log();
        assert!(
            asked.await.is_some(),
            "{host} {url}: {last}, not {expected}\n{log}"
        );
    }
}

#[tokio::test]
async fn workloads_reach_each_other_by_identity_and_others_do_not() {
    let mesh = Mesh::new().await;
    let outside = mesh.cluster.backend("outside");
    let address = mesh.expose().await;
    let server = mesh.workload(0, "cart").await;
    let _app = mesh.serve(&server);
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
    mesh.apply("PeerAuthentication", security, "{mtls: {mode: STRICT}}")
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
    mesh.apply("AuthorizationPolicy", security, &policy).await;
    other.gets("cart", &url, " 403").await;
    client.gets("cart", &url, "the-cart 200").await;

    // What nobody names is closed where the Sidecar says so; what is named is not.
    let scope = "{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}";
    mesh.apply("Sidecar", "networking.istio.io/v1", scope).await;
    client.gets("outside.test", &elsewhere, " 000").await;
    client.gets("cart", &url, "the-cart 200").await;
    drop(outside);
}
