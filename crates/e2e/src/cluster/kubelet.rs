//! What a cluster of machines does with objects, for a cluster that has no machine: it runs pods
//! as their specification says, tells when they are ready, finds Services by name, and leads a
//! load balancer to them. Only the images are not looked at: what looks like Myriad is this one,
//! and all else answers with the name of its pod.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::balancer::Balancer;
use super::{Api, Cluster, Launch, Pod, Process};

/// Between two looks at what there is.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

/// The third octet of the address of the first Service.
const SERVICES_START: u8 = 16;

/// Mounts names over those of this machine, and becomes the program.
const WITH_HOSTS: &str = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";

/// Runs what is in some namespaces.
pub struct Kubelet<'a> {
    cluster: &'a Cluster,
    api: &'a Api,
    namespaces: Vec<String>,
    pods: BTreeMap<String, Running>,
    /// Each has an address by its place.
    services: Vec<String>,
    balancers: BTreeMap<SocketAddr, Balancer>,
    started: u8,
}

struct Running {
    address: IpAddr,
    is_ready: bool,
    process: Process,
    _network: Option<Pod>,
}

impl<'a> Kubelet<'a> {
    /// For these namespaces, whether they are there yet or not.
    pub fn new(cluster: &'a Cluster, api: &'a Api, namespaces: &[&str]) -> Self {
        Kubelet {
            cluster,
            api,
            namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
            pods: BTreeMap::new(),
            services: Vec::new(),
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
                let pods = format!("/api/v1/namespaces/{namespace}/pods");
                for pod in items(&self.api.get(&pods).await) {
                    present.push(self.look_at(&pod).await);
                }
            }
            std::fs::write(self.hosts(), hosts).expect("a file");
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
        let name = format!("{}.{namespace}", text(&service["metadata"]["name"]));
        let address = self.service_address(&name);
        let slices = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?labelSelector=kubernetes.io/service-name={}",
            text(&service["metadata"]["name"])
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
            let name = text(&service["metadata"]["name"]);
            let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
            let status = json!({"loadBalancer": {"ingress": [{"ip": address}]}});
            self.api.set_status(&path, &status).await;
        }
        format!("{address} {name}.svc\n")
    }

    fn service_address(&mut self, name: &str) -> IpAddr {
        let known = self.services.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.services.push(name.to_owned());
            self.services.len() - 1
        });
        let at = u8::try_from(at).expect("a few Services");
        IpAddr::from([10, 244, SERVICES_START + at, self.cluster.last_octet()])
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
        let Some(running) = self.pods.get_mut(&path) else {
            return path;
        };
        if !running.is_ready {
            let answer = self.cluster.admin(&running.process, "/readyz").await;
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
        let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
        let container = &spec["containers"][0];
        let image = text(&container["image"]);
        if !image.contains("myriad") {
            let port = number(&container["ports"][0]["containerPort"]);
            let address = self.cluster.endpoint().ip();
            let endpoint = SocketAddr::new(address, port);
            return Some(Running {
                address,
                is_ready: false,
                process: self.cluster.endpoint_at(endpoint, name),
                _network: None,
            });
        }
        let mounts = self.mount(namespace, name, spec).await?;
        let network = Pod::new(self.cluster, self.started).await;
        self.started += 1;
        let variables = variables(container, meta);
        let mut launch = self.launch(name, container, &mounts, &variables);
        for (variable, value) in &variables {
            launch = launch.environment(variable, value);
        }
        let hosts = self.hosts().display().to_string();
        launch = launch.through(&["unshare", "--mount", "sh", "-c", WITH_HOSTS, &hosts]);
        if spec["automountServiceAccountToken"] != false {
            let account = text(&spec["serviceAccountName"]);
            let server = self.cluster.server();
            let kubeconfig = self.cluster.kubeconfig_of(namespace, account, server);
            let variable = format!("KUBECONFIG={}", kubeconfig.await.display());
            launch = launch.through(&["env", &variable]);
        } else {
            launch = launch.through(&["env", "--unset=KUBECONFIG"]);
        }
        Some(Running {
            address: network.address(),
            is_ready: false,
            process: network.place(launch).start(),
            _network: Some(network),
        })
    }

    /// The program with the arguments of its container, and its own paths for what is mounted.
    fn launch(
        &self,
        name: &str,
        container: &Value,
        mounts: &[(String, PathBuf)],
        variables: &[(String, String)],
    ) -> Launch {
        let mut arguments = array(&container["args"]).into_iter();
        let command = match arguments.next().as_ref().and_then(Value::as_str) {
            Some("controller") => "controller",
            Some("proxy") => "proxy",
            other => panic!("no command {other:?}"),
        };
        let mut launch = self.cluster.launch(command, name, 0);
        for argument in arguments {
            let (option, value) = text(&argument).split_once('=').expect("an option");
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
        launch
    }

    /// Makes the volumes of a pod, each a folder; none while one cannot be made.
    async fn mount(
        &self,
        namespace: &str,
        name: &str,
        spec: &Value,
    ) -> Option<Vec<(String, PathBuf)>> {
        let mut mounts = Vec::new();
        for volume in array(&spec["volumes"]) {
            let place = self
                .cluster
                .path(&format!("{name}-{}", text(&volume["name"])));
            std::fs::create_dir_all(&place).expect("a directory");
            if let Some(map) = volume["configMap"]["name"].as_str() {
                self.write_map(namespace, map, &place).await?;
            }
            for source in array(&volume["projected"]["sources"]) {
                let account = text(&spec["serviceAccountName"]);
                let token = &source["serviceAccountToken"];
                // The one without audience is for the API server, which a kubeconfig has.
                if let Some(audience) = token["audience"].as_str() {
                    let audience = format!("--audience={audience}");
                    let namespace = format!("--namespace={namespace}");
                    let line = ["create", "token", account, &audience, &namespace];
                    let written = self.cluster.kubectl(&line).await;
                    let file = place.join(text(&token["path"]));
                    std::fs::write(file, written).expect("a file");
                }
            }
            let mounted = array(&spec["containers"][0]["volumeMounts"]);
            let mut mounted = mounted.iter().filter(|it| it["name"] == volume["name"]);
            let mount = mounted.next().expect("a volume is mounted");
            mounts.push((text(&mount["mountPath"]).to_owned(), place));
        }
        Some(mounts)
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

/// The environment of a container: fields of its pod, of which a label that is not there is empty.
fn variables(container: &Value, meta: &Value) -> Vec<(String, String)> {
    let variables = array(&container["env"]).into_iter().map(|variable| {
        let field = text(&variable["valueFrom"]["fieldRef"]["fieldPath"]);
        let label = field.strip_prefix("metadata.labels['");
        let label = label.and_then(|it| it.strip_suffix("']"));
        let value = match (field, label) {
            ("metadata.namespace", _) => text(&meta["namespace"]),
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
