//! A mesh: a controller that gives identities, and Pods in networks of their own, each with its
//! rules and its proxy.

use serde_json::json;

use super::{Api, Cluster, Launch, Pod, Process, Relay};
use crate::world::eventually;

/// An argument for ports that stories look at from outside: they are led nowhere.
const EXCLUDED: &str = "--inbound-ports-excluded=9901";

/// A controller with `--mesh`, and the node that its Pods are on.
pub struct Mesh {
    /// The cluster.
    pub cluster: Cluster,
    /// The API.
    pub api: Api,
    service: Relay,
    node: String,
    controller: Process,
}

/// A Pod of the API that is about to be given a network and a proxy.
pub struct Resident<'a> {
    /// Proxies and networks of a story differ by number.
    pub number: u8,
    /// The namespace of the Pod.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its service account.
    pub account: &'a str,
    /// The arguments of `redirect`; `None` where the proxy is a gateway, which captures nothing.
    pub rules: Option<Vec<String>>,
}

/// A Pod that runs.
pub struct Workload {
    /// Its network.
    pub pod: Pod,
    /// Its proxy.
    pub proxy: Process,
}

impl Mesh {
    /// Starts the controller with further settings.
    ///
    /// # Panics
    /// Where it does not get ready.
    pub async fn start(cluster: Cluster, settings: impl FnOnce(Launch) -> Launch) -> Mesh {
        let api = cluster.api().await;
        let node = format!("node-of-{}", cluster.class());
        let object = format!("apiVersion: v1\nkind: Node\nmetadata:\n  name: {node}\n");
        api.apply(&object).await;
        let service = Relay::start(cluster.service(), cluster.sync_address(0)).await;
        let names = format!("localhost,{}", cluster.service());
        let controller = cluster.controller_launch(0).argument("--mesh");
        let controller = settings(controller.set("--sync-hosts", names)).start();
        cluster.ready(&controller).await;
        cluster.provide_trust("proxy", "myriad").await;
        Mesh {
            cluster,
            api,
            service,
            node,
            controller,
        }
    }

    /// The controller.
    pub fn controller(&self) -> &Process {
        &self.controller
    }

    /// Makes a service account and a Pod with a sidecar in the namespace of the story's tenants,
    /// all of this name, as injection makes them.
    ///
    /// # Panics
    /// Where the Pod does not get ready.
    pub async fn workload(&self, number: u8, name: &str) -> Workload {
        self.workload_with(number, name, |launch| launch).await
    }

    /// The same with further settings of the sidecar.
    ///
    /// # Panics
    /// Where the Pod does not get ready.
    pub async fn workload_with(
        &self,
        number: u8,
        name: &str,
        settings: impl FnOnce(Launch) -> Launch,
    ) -> Workload {
        let tenant = self.cluster.tenant();
        let line = ["create", "serviceaccount", name, "--namespace", &tenant];
        self.cluster.kubectl(&line).await;
        let object = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {tenant}\n  \
             labels: {{app: {name}, security.istio.io/tlsMode: istio}}\nspec:\n  \
             serviceAccountName: {name}\n  containers: [{{name: app, image: app}}]\n"
        );
        self.cluster.apply(&object).await;
        let resident = Resident {
            number,
            namespace: &tenant,
            name,
            account: name,
            rules: Some(Vec::new()),
        };
        self.settle(&resident, settings).await
    }

    /// Makes the Service in front of the workload of this name. Each port has its name, its number
    /// and the port of the workload behind it. Returns its address.
    ///
    /// # Panics
    /// Where the cluster refuses it.
    pub async fn expose(&self, name: &str, ports: &[(&str, u16, u16)]) -> String {
        let tenant = self.cluster.tenant();
        let ports = ports.iter().map(|(of, port, target)| {
            format!("  - {{name: {of}, port: {port}, targetPort: {target}}}\n")
        });
        let object = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: {tenant}\n\
             spec:\n  selector: {{app: {name}}}\n  ports:\n{}",
            ports.collect::<String>()
        );
        self.cluster.apply(&object).await;
        let output = "--output=jsonpath={.spec.clusterIP}";
        let line = ["get", "service", name, "--namespace", &tenant, output];
        self.cluster.kubectl(&line).await
    }

    /// Gives a Pod of the API its network, its rules and its proxy, and says that it is ready.
    ///
    /// # Panics
    /// Where it does not get ready.
    pub async fn settle(
        &self,
        resident: &Resident<'_>,
        settings: impl FnOnce(Launch) -> Launch,
    ) -> Workload {
        let pod = Pod::new(&self.cluster, resident.number).await;
        if let Some(rules) = &resident.rules {
            let program = std::env::var("MYRIAD_BIN").expect("`cargo xtask test` sets MYRIAD_BIN");
            let mut words = vec![&*program, "redirect", EXCLUDED];
            words.extend(rules.iter().map(String::as_str));
            let ruled = pod.run(&words).await;
            assert!(ruled.status.success(), "{ruled:?}");
        }
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}",
            resident.namespace, resident.name
        );
        self.api.bind(&path, &self.node).await;
        let launch = settings(self.launch(&pod, resident).await);
        let proxy = launch.start();
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

    async fn launch(&self, pod: &Pod, resident: &Resident<'_>) -> Launch {
        let Resident { name, account, .. } = *resident;
        let bound = format!("--bound-object-name={name}");
        let line = [
            "create",
            "token",
            account,
            "--namespace",
            resident.namespace,
            "--audience=myriad",
            "--bound-object-kind=Pod",
            &bound,
        ];
        let token = self.cluster.kubectl(&line).await;
        std::fs::write(self.cluster.path(&format!("{name}.token")), token).expect("a file");
        let state = self.cluster.path(&format!("state-{name}"));
        std::fs::create_dir_all(&state).expect("a directory");
        let launch = self.cluster.proxy_launch(resident.number.into(), name);
        let mut launch = launch
            .argument("--mesh")
            .set("--controller", self.service.address())
            .set("--state-dir", state.display());
        if resident.rules.is_some() {
            launch = launch
                .set("--capture-outbound", "127.0.0.1:15001")
                .set("--capture-inbound", "0.0.0.0:15006");
        }
        // The group is what rules know the proxy by.
        let own = ["setpriv", "--regid=1337", "--clear-groups"];
        pod.place(launch).through(&own)
    }
}

impl Workload {
    /// Asks as the workload would, until the answer is this: a status, or 000 for none.
    ///
    /// # Panics
    /// Where it never is.
    pub async fn gets(&self, host: &str, url: &str, expected: &str) {
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
