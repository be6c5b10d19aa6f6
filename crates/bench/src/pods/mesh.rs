//! A namespace of the cluster with a controller of the mesh, and Pods with sidecars in it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::network::{Network, redirect, words_of_proxy};
use crate::cluster::api::Api;
use crate::cluster::process::{self, Process};

/// The address where sidecars follow the controller.
pub const SYNC: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 244, 3, 2)), 14_010);

/// The admin address of the controller.
const CONTROLLER_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 14_011);

/// The distance of the ports of several controllers.
const REPLICA_PORTS: u16 = 2;

/// The admin port of sidecars, which no rule leads away.
pub const ADMIN_PORT: u16 = 9_901;

/// The service account of gateways, and the name of their Pod.
pub const GATEWAY: &str = "gateway";

/// How long tokens hold, in seconds: longer than any run.
const TOKEN_SECONDS: u64 = 24 * 3_600;

/// How long something may take to appear in the API.
const APPEAR_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A namespace of this run alone.
pub struct Mesh {
    /// Requests to the API server.
    pub runtime: Runtime,
    /// The API server.
    pub api: Api,
    /// The namespace of the controller and of all Pods.
    pub namespace: String,
    directory: tempfile::TempDir,
    files: AtomicU32,
}

/// A Pod of the cluster with its network, in which whatever is wanted runs.
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its network.
    pub network: Network,
}

impl Mesh {
    /// An empty namespace of the cluster in whose network this process is.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn prepare() -> anyhow::Result<Mesh> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let api = runtime.block_on(Api::new())?;
        let mesh = Mesh {
            runtime,
            api,
            namespace: format!("bench-{}", std::process::id()),
            directory: tempfile::tempdir()?,
            files: AtomicU32::new(0),
        };
        let named = json!({"metadata": {"name": mesh.namespace}});
        mesh.call(Method::POST, "/api/v1/namespaces", Some(&named))?;
        mesh.call(Method::POST, "/api/v1/nodes", Some(&named))?;
        Ok(mesh)
    }

    /// Sends a request to the API server.
    ///
    /// # Errors
    /// Any answer but success.
    pub fn call(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        self.runtime.block_on(self.api.call(method, path, body))
    }

    /// Creates an object of the core's API in the namespace.
    ///
    /// # Errors
    /// Any answer but success.
    pub fn create(&self, kind: &str, object: &Value) -> anyhow::Result<Value> {
        self.call(Method::POST, &self.list(kind), Some(object))
    }

    /// Creates a Service without Pods, whose endpoint is at this address.
    ///
    /// # Errors
    /// Any answer but success.
    pub fn create_elsewhere(
        &self,
        name: &str,
        port: u16,
        endpoint: SocketAddr,
    ) -> anyhow::Result<()> {
        let port = json!([{"name": "http", "port": port}]);
        let service = json!({"metadata": {"name": name}, "spec": {"ports": port}});
        self.create("services", &service)?;
        let slice = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [endpoint.ip()], "conditions": {"ready": true}}],
            "ports": [{"name": "http", "port": endpoint.port()}],
        });
        let list = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
            self.namespace
        );
        self.call(Method::POST, &list, Some(&slice))?;
        Ok(())
    }

    /// Creates a Service of HTTP in front of the Pods of this name; its address.
    ///
    /// # Errors
    /// Any answer but success.
    pub fn expose(&self, name: &str, port: u16, target: u16) -> anyhow::Result<Ipv4Addr> {
        self.expose_as("http", name, port, target)
    }

    /// Creates one of plain TCP, at the port of the Pods; its address.
    ///
    /// # Errors
    /// Any answer but success.
    pub fn expose_tcp(&self, name: &str, port: u16) -> anyhow::Result<Ipv4Addr> {
        self.expose_as("tcp", name, port, port)
    }

    fn expose_as(
        &self,
        protocol: &str,
        name: &str,
        port: u16,
        target: u16,
    ) -> anyhow::Result<Ipv4Addr> {
        let service = json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"app": name},
                "ports": [{"name": protocol, "port": port, "targetPort": target}],
            },
        });
        let created = self.create("services", &service)?;
        Ok(text(&created, "/spec/clusterIP")?.parse()?)
    }

    /// Starts a controller with this MeshConfig, waits until it is ready, and takes its roots.
    ///
    /// # Errors
    /// It ends, or the API server refuses.
    pub fn controller(&self, mesh_config: &str) -> anyhow::Result<Process> {
        let mut controller = self.start_controller(0, mesh_config)?;
        controller.wait_ready().context("the controller")?;
        self.take_roots()?;
        Ok(controller)
    }

    /// The roots of a controller that is ready, which sidecars read from a file.
    ///
    /// # Errors
    /// It publishes none.
    pub fn take_roots(&self) -> anyhow::Result<String> {
        let path = self.list("configmaps") + "/myriad-ca";
        let roots = self.eventually("the controller publishes no root", || {
            let map = self.call(Method::GET, &path, None);
            Ok(map.ok().and_then(|map| text(&map, "/data/ca.crt").ok()))
        })?;
        std::fs::write(self.file("ca.crt"), &roots)?;
        Ok(roots)
    }

    /// The address where sidecars follow one of several controllers, by its number from 0, which
    /// is [`SYNC`].
    pub fn replica_sync(number: u16) -> SocketAddr {
        SocketAddr::new(SYNC.ip(), SYNC.port() + REPLICA_PORTS * number)
    }

    /// Starts one of several controllers, by its number from 0, and does not wait for it.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn start_controller(&self, number: u16, mesh_config: &str) -> anyhow::Result<Process> {
        let config = self.fresh_file("mesh-config");
        std::fs::write(&config, mesh_config)?;
        let sync = Mesh::replica_sync(number);
        let port = CONTROLLER_ADMIN.port() + REPLICA_PORTS * number;
        let admin = SocketAddr::new(CONTROLLER_ADMIN.ip(), port);
        let mut command = Command::new(process::program()?);
        command.arg("controller").arg("--mesh");
        command.arg(format!("--mesh-config={}", config.display()));
        command.arg(format!("--sync={sync}"));
        command.arg(format!("--sync-hosts=localhost,{}", SYNC.ip()));
        // Gateways have networks, and so addresses, of their own.
        command.args(["--http=8080", "--https=8443"]);
        command.arg(format!("--ingress-class={}", self.namespace));
        command.arg(format!("--proxy-accounts={}/{GATEWAY}", self.namespace));
        command.arg(format!("--admin={admin}"));
        command.env("POD_NAMESPACE", &self.namespace);
        command.env("MYRIAD_LOG", "warn").stdout(Stdio::null());
        let log = self.file(&format!("controller-{number}.log"));
        Process::spawn(command, admin, &log)
    }

    /// The authority of the mesh, which is a root: certificate and key in PEM. A controller has
    /// been ready.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn authority(&self) -> anyhow::Result<[String; 2]> {
        let path = self.list("secrets") + "/myriad-mesh-ca";
        let secret = self.eventually("the controller keeps no authority", || {
            Ok(self.call(Method::GET, &path, None).ok())
        })?;
        let part = |name: &str| {
            let bytes = STANDARD.decode(text(&secret, &format!("/data/{name}"))?)?;
            Ok::<_, anyhow::Error>(String::from_utf8(bytes)?)
        };
        Ok([part("ca.crt")?, part("ca.key")?])
    }

    /// Makes a service account.
    ///
    /// # Errors
    /// Any answer but success.
    pub fn account(&self, name: &str) -> anyhow::Result<()> {
        let account = json!({"metadata": {"name": name}});
        self.create("serviceaccounts", &account)?;
        Ok(())
    }

    /// Makes a Pod that is running and ready, with the rules of a sidecar in its network. `app`
    /// is its service account and its label.
    ///
    /// # Errors
    /// The API server refuses, or there is no network.
    pub fn pod(&self, name: &str, app: &str, network: Network) -> anyhow::Result<Pod> {
        let excluded = format!("--inbound-ports-excluded={ADMIN_PORT}");
        redirect(&network, &[&excluded])?;
        let labels = json!({"app": app, "security.istio.io/tlsMode": "istio"});
        self.admit(name, app, &labels, network)
    }

    /// Makes the Pod of the gateway, without rules; its proxy starts as a sidecar does.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn gateway(&self, network: Network) -> anyhow::Result<Pod> {
        let labels = json!({"app": GATEWAY});
        self.admit(GATEWAY, GATEWAY, &labels, network)
    }

    fn admit(
        &self,
        name: &str,
        app: &str,
        labels: &Value,
        network: Network,
    ) -> anyhow::Result<Pod> {
        let spec = json!({
            "serviceAccountName": app,
            "containers": [{"name": "app", "image": "app"}],
        });
        let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        self.create("pods", &pod)?;
        self.place(&format!("{}/{name}", self.list("pods")), network.address())?;
        let spec = json!({
            "audiences": ["myriad"],
            "expirationSeconds": TOKEN_SECONDS,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name},
        });
        let path = format!("{}/{app}/token", self.list("serviceaccounts"));
        let answer = self.call(Method::POST, &path, Some(&json!({"spec": spec})))?;
        std::fs::write(
            self.file(&format!("{name}.token")),
            text(&answer, "/status/token")?,
        )?;
        Ok(Pod {
            name: name.to_owned(),
            network,
        })
    }

    /// Says of a Pod at a path of the API that it is running and ready at this address.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn place(&self, path: &str, address: Ipv4Addr) -> anyhow::Result<()> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let binding = json!({
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": self.namespace},
        });
        self.call(Method::POST, &format!("{path}/binding"), Some(&binding))?;
        let mut pod = self.call(Method::GET, path, None)?;
        let is_true = |kind: &str| json!({"type": kind, "status": "True"});
        pod["status"] = json!({
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [is_true("ContainersReady"), is_true("Ready")],
        });
        self.call(Method::PUT, &format!("{path}/status"), Some(&pod))?;
        Ok(())
    }

    /// Starts the sidecar of a Pod, which has never run before; its log goes to a file.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn sidecar(
        &self,
        pod: &Pod,
        workers: usize,
        arguments: &[String],
        output: Stdio,
    ) -> anyhow::Result<Process> {
        self.sidecar_of(SYNC, pod, workers, arguments, output)
    }

    /// The same, of the controller that is followed at this address.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn sidecar_of(
        &self,
        sync: SocketAddr,
        pod: &Pod,
        workers: usize,
        arguments: &[String],
        output: Stdio,
    ) -> anyhow::Result<Process> {
        let state = self.fresh_file("state");
        std::fs::create_dir(&state)?;
        let name = &pod.name;
        let mut words = words_of_proxy(&pod.network).into_iter();
        let mut command = Command::new(words.next().context("there is a word")?);
        command.args(words).arg(process::program()?);
        command.args(["proxy", "--mesh", "--capture-outbound=127.0.0.1:15001"]);
        command.arg("--capture-inbound=0.0.0.0:15006");
        command.arg(format!("--controller={sync}"));
        command.arg(format!("--ca-file={}", self.file("ca.crt").display()));
        let token = self.file(&format!("{name}.token"));
        command.arg(format!("--token-file={}", token.display()));
        command.arg(format!("--state-dir={}", state.display()));
        command.arg(format!("--workers={workers}"));
        let admin = pod.network.at(ADMIN_PORT);
        command.arg(format!("--admin={admin}")).args(arguments);
        command.env("MYRIAD_LOG", "warn").stdout(output);
        Process::spawn(command, admin, &self.file(&format!("{name}.log")))
    }

    /// A file below the run's own directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The same, that has not been asked for before.
    pub fn fresh_file(&self, name: &str) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.file(&format!("{name}-{number}"))
    }

    /// Asks until there is an answer.
    ///
    /// # Errors
    /// The question fails, or it took too long, which is said in these words.
    pub fn eventually<T>(
        &self,
        otherwise: &str,
        mut ask: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        loop {
            if let Some(found) = ask()? {
                return Ok(found);
            }
            ensure!(begun.elapsed() < APPEAR_TIMEOUT, "{otherwise}");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Deletes the namespace and the node; what is in them goes in its own time.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn leave(self) -> anyhow::Result<()> {
        for kind in ["namespaces", "nodes"] {
            let path = format!("/api/v1/{kind}/{}", self.namespace);
            self.call(Method::DELETE, &path, None)?;
        }
        Ok(())
    }

    fn list(&self, kind: &str) -> String {
        format!("/api/v1/namespaces/{}/{kind}", self.namespace)
    }
}

fn text(value: &Value, path: &str) -> anyhow::Result<String> {
    let found = value.pointer(path).and_then(Value::as_str);
    Ok(found
        .with_context(|| format!("there is no {path}"))?
        .to_owned())
}
