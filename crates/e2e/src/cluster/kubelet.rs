//! A stand-in for the machines of a cluster that has none: it runs pods
//! as their specification says, tells when they are ready, finds Services by name, and leads their
//! addresses to them. Only the images are not looked at: what looks like Myriad is this one,
//! and all else answers with the name of its pod.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::Permissions;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::balancer::Balancer;
use super::pod::ADMIN_PORT;
use super::{Api, Cluster, Launch, Pod, Process};

/// Between two looks at what there is.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

/// The port where a proxy beside a workload says whether it is ready.
const PROBES_PORT: u16 = 15_020;

/// The group of containers whose rules lead connections to the proxy.
const PROXY_GROUP: &str = "--regid=1337";

/// Mounts names over those of this machine, and becomes the program.
const WITH_HOSTS: &str = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";

/// Runs what is in some namespaces.
pub struct Kubelet<'a> {
    cluster: &'a Cluster,
    api: &'a Api,
    namespaces: Vec<String>,
    pods: BTreeMap<String, Running>,
    balancers: BTreeMap<SocketAddr, Balancer>,
    started: u8,
}

struct Running {
    address: IpAddr,
    is_ready: bool,
    /// The URL where it says so.
    readiness: String,
    _processes: Vec<Process>,
    _network: Option<Pod>,
}

impl<'a> Kubelet<'a> {
    /// A kubelet for these namespaces, whether they are there yet or not.
    pub fn new(cluster: &'a Cluster, api: &'a Api, namespaces: &[&str]) -> Self {
        Kubelet {
            cluster,
            api,
            namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
            pods: BTreeMap::new(),
            balancers: BTreeMap::new(),
            started: 0,
        }
    }

    /// Works until the future is dropped.
    ///
    /// # Panics
    /// Where a specification asks for what this one does not know.
    pub async fn run(mut self) {
        let node = format!(
            "apiVersion: v1\nkind: Node\nmetadata:\n  name: {}\n",
            self.node()
        );
        self.api.apply(&node).await;
        loop {
            let mut hosts = "127.0.0.1 localhost\n".to_owned();
            let mut present = Vec::new();
            for namespace in self.namespaces.clone() {
                let services = format!("/api/v1/namespaces/{namespace}/services");
                for service in items(&self.api.get(&services).await) {
                    hosts += &self.find_service(&namespace, &service).await;
                }
            }
            // Whoever is started finds them.
            std::fs::write(self.hosts(), hosts).expect("a file");
            for namespace in self.namespaces.clone() {
                let pods = format!("/api/v1/namespaces/{namespace}/pods");
                for pod in items(&self.api.get(&pods).await) {
                    present.push(self.look_at(&pod).await);
                }
            }
            // Those that are no longer there end.
            self.pods.retain(|path, _| present.contains(path));
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Endpoints are only those of pods that are on a node.
    fn node(&self) -> String {
        format!("node-{}", self.cluster.last_octet())
    }

    fn hosts(&self) -> PathBuf {
        self.cluster.path("hosts")
    }

    /// Leads the address of a Service to its endpoints, and returns the line by which it is found.
    async fn find_service(&mut self, namespace: &str, service: &Value) -> String {
        let name = text(&service["metadata"]["name"]);
        let Ok(address) = text(&service["spec"]["clusterIP"]).parse::<IpAddr>() else {
            return String::new();
        };
        let slices = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?labelSelector=kubernetes.io/service-name={name}"
        );
        let slices = items(&self.api.get(&slices).await);
        for port in array(&service["spec"]["ports"]) {
            let listens = SocketAddr::new(address, number(&port["port"]));
            let balancer = match self.balancers.entry(listens) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(Balancer::start(listens).await),
            };
            let targets = slices.iter().flat_map(|slice| ready(slice, &port["name"]));
            balancer.lead_to(targets.collect());
        }
        let is_told = !service["status"]["loadBalancer"]["ingress"].is_null();
        if service["spec"]["type"] == "LoadBalancer" && !is_told {
            let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
            let status = json!({"loadBalancer": {"ingress": [{"ip": address}]}});
            self.api.set_status(&path, &status).await;
        }
        format!("{address} {name}.{namespace} {name}.{namespace}.svc\n")
    }

    /// Starts a pod that is new, tells when it gets ready, and ends it when it is deleted; returns
    /// its path.
    async fn look_at(&mut self, pod: &Value) -> String {
        let meta = &pod["metadata"];
        let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        if !meta["deletionTimestamp"].is_null() {
            self.pods.remove(&path);
            self.api.bury(&path).await;
            return path;
        }
        if !self.pods.contains_key(&path) {
            if pod["spec"]["nodeName"].is_null() {
                self.api.bind(&path, &self.node()).await;
            }
            match self.start(pod).await {
                Some(running) => self.pods.insert(path.clone(), running),
                None => return path,
            };
        }
        for volume in array(&pod["spec"]["volumes"]) {
            let place = self.place(name, &volume);
            self.write_secret(namespace, &volume["secret"], &place)
                .await;
        }
        let Some(running) = self.pods.get_mut(&path) else {
            return path;
        };
        if !running.is_ready {
            let answer = self.cluster.curl(&running.readiness, &[]).ask().await;
            running.is_ready = answer.status == 200;
            if running.is_ready {
                let address = running.address;
                let is_true = |kind: &str| json!({"type": kind, "status": "True"});
                let status = json!({
                    "phase": "Running",
                    "podIP": address,
                    "podIPs": [{"ip": address}],
                    "conditions": [is_true("ContainersReady"), is_true("Ready")],
                });
                self.api.set_status(&path, &status).await;
            }
        }
        path
    }

    /// A pod whose volumes are not there yet does not start.
    async fn start(&mut self, pod: &Value) -> Option<Running> {
        let (meta, spec) = (&pod["metadata"], &pod["spec"]);
        let name = text(&meta["name"]);
        let container = &spec["containers"][0];
        let first = array(&spec["initContainers"]);
        let is_own = text(&container["image"]).contains("myriad");
        if !is_own && first.is_empty() {
            let address = self.cluster.endpoint().ip();
            let endpoint = SocketAddr::new(address, port_of(container));
            let process = self.cluster.endpoint_at(endpoint, name);
            return Some(Running {
                address,
                is_ready: false,
                readiness: format!("http://{}/readyz", process.admin()),
                _processes: vec![process],
                _network: None,
            });
        }
        let mounts = self.mount(pod).await?;
        let network = Pod::new(self.cluster, self.started).await;
        self.started += 1;
        let address = network.address();
        let mut processes = Vec::new();
        for container in &first {
            match array(&container["args"]).first().and_then(Value::as_str) {
                Some("redirect") => redirect(&network, container).await,
                _ => {
                    let launch = self.launch(pod, container, &mounts, &network).await;
                    let own = ["setpriv", PROXY_GROUP, "--clear-groups"];
                    processes.push(launch.through(&own).start());
                }
            }
        }
        let readiness = if is_own {
            let launch = self.launch(pod, container, &mounts, &network).await;
            processes.push(launch.start());
            format!("http://{address}:{ADMIN_PORT}/readyz")
        } else {
            let launch = self.cluster.backend_launch(&format!("{name}-app"), name);
            let launch = network.place(launch).set("--admin", "127.0.0.1:9902");
            let listens = format!("0.0.0.0:{}", port_of(container));
            processes.push(launch.set("--http", listens).start());
            format!("http://{address}:{PROBES_PORT}/readyz")
        };
        let namespace = text(&meta["namespace"]);
        let held = self.cluster.path(&format!("{namespace}.{name}.pid"));
        std::fs::write(held, network.target().to_string()).expect("a file");
        Some(Running {
            address,
            is_ready: false,
            readiness,
            _processes: processes,
            _network: Some(network),
        })
    }

    /// The program with the arguments of its container, and its own paths for what is mounted.
    async fn launch(
        &self,
        pod: &Value,
        container: &Value,
        mounts: &[(String, PathBuf)],
        network: &Pod,
    ) -> Launch {
        let (meta, spec) = (&pod["metadata"], &pod["spec"]);
        let mut arguments = array(&container["args"]).into_iter();
        let command = match arguments.next().as_ref().and_then(Value::as_str) {
            Some("controller") => "controller",
            Some("proxy") => "proxy",
            other => panic!("no command {other:?}"),
        };
        let variables = variables(container, meta, network.address());
        let mut launch = self.cluster.launch(command, text(&meta["name"]), 0);
        for argument in arguments {
            let Some((option, value)) = text(&argument).split_once('=') else {
                launch = launch.argument(text(&argument));
                continue;
            };
            let written = |all: String, (name, value): &(String, String)| {
                all.replace(&format!("$({name})"), value)
            };
            let value = variables.iter().fold(value.to_owned(), written);
            let mounted = mounts.iter().find_map(|(mount, place)| {
                let rest = value.strip_prefix(mount.as_str())?;
                Some(format!("{}{rest}", place.display()))
            });
            launch = launch.set(option, mounted.unwrap_or(value));
        }
        for (variable, value) in &variables {
            launch = launch.environment(variable, value);
        }
        let hosts = self.hosts().display().to_string();
        launch = launch.through(&["unshare", "--mount", "sh", "-c", WITH_HOSTS, &hosts]);
        // What has a token for the API server has a kubeconfig here.
        if command == "controller" && spec["automountServiceAccountToken"] != false {
            let (namespace, account) = (&meta["namespace"], &spec["serviceAccountName"]);
            let server = self.cluster.server();
            let kubeconfig = (self.cluster).kubeconfig_of(text(namespace), text(account), server);
            let variable = format!("KUBECONFIG={}", kubeconfig.await.display());
            launch = launch.through(&["env", &variable]);
        } else {
            launch = launch.through(&["env", "--unset=KUBECONFIG"]);
        }
        network.place(launch)
    }

    /// Makes the volumes of a pod, each a folder; none while one cannot be made.
    async fn mount(&self, pod: &Value) -> Option<Vec<(String, PathBuf)>> {
        let (meta, spec) = (&pod["metadata"], &pod["spec"]);
        let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
        let mut containers = array(&spec["initContainers"]);
        containers.extend(array(&spec["containers"]));
        let mounted = containers.iter().flat_map(|it| array(&it["volumeMounts"]));
        let mounted: Vec<Value> = mounted.collect();
        let mut mounts = Vec::new();
        for volume in array(&spec["volumes"]) {
            let place = self.place(name, &volume);
            std::fs::create_dir_all(&place).expect("a directory");
            if let Some(map) = volume["configMap"]["name"].as_str() {
                self.write_map(namespace, map, &place).await?;
            }
            if !self
                .write_secret(namespace, &volume["secret"], &place)
                .await
            {
                return None;
            }
            for source in array(&volume["projected"]["sources"]) {
                let token = &source["serviceAccountToken"];
                // The one without audience is for the API server, which a kubeconfig has.
                if let Some(audience) = token["audience"].as_str() {
                    let written = self.token(pod, audience).await;
                    let file = place.join(text(&token["path"]));
                    std::fs::write(file, written).expect("a file");
                }
            }
            let mut mounted = mounted.iter().filter(|it| it["name"] == volume["name"]);
            let mount = mounted.next().expect("a volume is mounted");
            mounts.push((text(&mount["mountPath"]).to_owned(), place));
        }
        Some(mounts)
    }

    /// The directory of a volume of a pod.
    fn place(&self, pod: &str, volume: &Value) -> PathBuf {
        let volume = text(&volume["name"]);
        self.cluster.path(&format!("{pod}-{volume}"))
    }

    /// A token of the pod's account, which names the pod.
    async fn token(&self, pod: &Value, audience: &str) -> String {
        let (meta, spec) = (&pod["metadata"], &pod["spec"]);
        let account = text(&spec["serviceAccountName"]);
        let namespace = format!("--namespace={}", text(&meta["namespace"]));
        let audience = format!("--audience={audience}");
        let bound = format!("--bound-object-name={}", text(&meta["name"]));
        let kind = "--bound-object-kind=Pod";
        let line = [
            "create", "token", account, &namespace, &audience, kind, &bound,
        ];
        self.cluster.kubectl(&line).await
    }

    /// Writes the items of the Secret of a volume, if it has one; says whether nothing is missing.
    async fn write_secret(&self, namespace: &str, volume: &Value, place: &Path) -> bool {
        let Some(name) = volume["secretName"].as_str() else {
            return true;
        };
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        let secrets = items(&self.api.get(&path).await);
        let secret = secrets.iter().find(|it| it["metadata"]["name"] == name);
        let Some(secret) = secret else {
            return volume["optional"] == true;
        };
        for item in array(&volume["items"]) {
            let Some(value) = secret["data"][text(&item["key"])].as_str() else {
                continue;
            };
            let bytes = STANDARD.decode(value).expect("values are in base64");
            let file = place.join(text(&item["path"]));
            exchange(&file, &bytes, &volume["defaultMode"]);
        }
        true
    }

    async fn write_map(&self, namespace: &str, map: &str, place: &Path) -> Option<()> {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let maps = items(&self.api.get(&path).await);
        let map = maps.iter().find(|it| it["metadata"]["name"] == map)?;
        for (key, value) in map["data"].as_object()? {
            std::fs::write(place.join(key), text(value)).expect("a file");
        }
        Some(())
    }
}

/// Writes a file where it says something else, so that it never has a part of it alone.
fn exchange(file: &Path, bytes: &[u8], mode: &Value) {
    if std::fs::read(file).is_ok_and(|known| known == bytes) {
        return;
    }
    let aside = file.with_extension("aside");
    std::fs::write(&aside, bytes).expect("a file");
    let mode = mode.as_u64().and_then(|mode| u32::try_from(mode).ok());
    let mode = Permissions::from_mode(mode.unwrap_or(0o644));
    std::fs::set_permissions(&aside, mode).expect("a mode");
    std::fs::rename(&aside, file).expect("a rename");
}

/// The ready endpoints of a slice, on its port of this name.
fn ready(slice: &Value, port: &Value) -> Vec<SocketAddr> {
    let ports = array(&slice["ports"]);
    let Some(port) = ports.iter().find(|it| is_same_port(&it["name"], port)) else {
        return Vec::new();
    };
    let port = number(&port["port"]);
    array(&slice["endpoints"])
        .iter()
        .filter(|endpoint| endpoint["conditions"]["ready"] == true)
        .filter_map(|endpoint| text(&endpoint["addresses"][0]).parse().ok())
        .map(|address| SocketAddr::new(address, port))
        .collect()
}

/// A port without a name has an empty one in a slice.
fn is_same_port(a: &Value, b: &Value) -> bool {
    text(a) == text(b)
}

fn items(list: &Value) -> Vec<Value> {
    array(&list["items"])
}

/// Runs the step that makes the rules of a pod.
async fn redirect(network: &Pod, container: &Value) {
    let program = std::env::var("MYRIAD_BIN")
        .expect("MYRIAD_BIN is the path of the binary; `cargo xtask test` sets it");
    let arguments = array(&container["args"]);
    let mut words = vec![program.as_str()];
    words.extend(arguments.iter().map(text));
    let ruled = network.run(&words).await;
    assert!(ruled.status.success(), "{ruled:?}");
}

fn port_of(container: &Value) -> u16 {
    number(&container["ports"][0]["containerPort"])
}

/// The environment of a container: fields of its pod, of which a label that is not there is empty.
fn variables(container: &Value, meta: &Value, address: IpAddr) -> Vec<(String, String)> {
    let address = address.to_string();
    let variables = array(&container["env"]).into_iter().map(|variable| {
        let field = text(&variable["valueFrom"]["fieldRef"]["fieldPath"]);
        let label = field.strip_prefix("metadata.labels['");
        let label = label.and_then(|it| it.strip_suffix("']"));
        let value = match (field, label) {
            ("metadata.namespace", _) => text(&meta["namespace"]),
            ("status.podIP", _) => &address,
            (_, Some(label)) => text(&meta["labels"][label]),
            _ => panic!("no field of a pod: {variable}"),
        };
        (text(&variable["name"]).to_owned(), value.to_owned())
    });
    variables.collect()
}

fn array(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> u16 {
    let number = value.as_u64().and_then(|it| u16::try_from(it).ok());
    number.unwrap_or_else(|| panic!("{value} is no port"))
}
