//! The objects of Kubernetes that are made for a Gateway with proxies of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use myriad_api::gateway::status::{DeployedPort, Deployment, WantedAddress};
use myriad_source::kubernetes::MadeKind;
use serde_json::{Map, Value, json};

use crate::dedicated::{GATEWAY_LABEL, made_name, service_name};
use crate::settings::GatewayTemplate;

/// The label that has the name of the class.
const CLASS_LABEL: &str = "gateway.networking.k8s.io/gateway-class-name";

/// The label by which what was made is found: it has the namespace of the controllers.
pub(super) const MADE_BY: &str = "myriad.dev/made-by";

/// The label by which Pods are selected. It never changes over the life of a Gateway.
const SELECTED: &str = "myriad.dev/gateway";

/// The longest value of a label.
const LABEL_MAX: usize = 63;

/// The key of the roots, and the port at which a proxy is asked how it is.
const ROOTS_KEY: &str = "ca.crt";
const ADMIN_PORT: &str = "admin";

/// The labels of a Pod that keep it from getting a proxy of the mesh.
const NOT_INJECTED: [&str; 2] = ["sidecar.istio.io/inject", "myriad.dev/inject"];

/// The setting of a Pod's network that says which ports need a right.
const UNPRIVILEGED_PORTS: &str = "net.ipv4.ip_unprivileged_port_start";

/// A Gateway, as the API server has it.
pub(super) struct Owner<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub class: &'a str,
    pub api_version: &'a str,
}

/// The parts of what is made.
pub(super) struct Parts<'a> {
    pub template: &'a GatewayTemplate,
    /// The namespace of the controllers.
    pub installation: &'a str,
    pub owner: Owner<'a>,
    pub deployment: &'a Deployment,
    pub addresses: &'a [WantedAddress],
}

impl Parts<'_> {
    /// The objects, in the order in which they are made.
    pub(super) fn objects(&self) -> Vec<(MadeKind, Value)> {
        let name = made_name(self.owner.name);
        let mut objects = vec![(MadeKind::ServiceAccount, self.service_account(&name))];
        let policy = self.network_policy(&name);
        // Before there is anybody to be asked.
        objects.extend(policy.map(|policy| (MadeKind::NetworkPolicy, policy)));
        objects.push((MadeKind::Deployment, self.deployment(&name)));
        let autoscaler = self.autoscaler(&name);
        objects.extend(autoscaler.map(|it| (MadeKind::HorizontalPodAutoscaler, it)));
        if self.has_ports() {
            let services = self.services(&name).into_iter();
            objects.extend(services.map(|service| (MadeKind::Service, service)));
        }
        objects
    }

    /// Whether there is anything to listen on. A Service has ports, and a Gateway without any
    /// listener has none.
    pub(super) fn has_ports(&self) -> bool {
        self.ports().next().is_some()
    }

    /// The names of the Services that it has, or would have if it had ports.
    pub(super) fn service_names(&self) -> BTreeSet<Box<str>> {
        let name = made_name(self.owner.name);
        let named = |address| service_name_of(&name, address).into();
        self.service_addresses().into_iter().map(named).collect()
    }

    /// The labels and annotations of the Gateway that are not put on what is made, each once,
    /// sorted.
    pub(super) fn refused_metadata(&self) -> BTreeSet<Box<str>> {
        let Deployment {
            labels,
            annotations,
            ..
        } = self.deployment;
        let keys = labels.iter().chain(annotations.iter()).map(|(key, _)| key);
        let refused = keys.filter(|key| !self.template.metadata.allows(key));
        refused.cloned().collect()
    }

    /// The ports but those at which the containers of the template listen already: a Pod has none
    /// twice, and nobody outside asks a proxy how it is.
    fn ports(&self) -> impl Iterator<Item = DeployedPort> {
        let taken = taken_ports(&self.template.pod);
        let ports = self.deployment.ports.iter().copied();
        ports.filter(move |port| !taken.contains(port))
    }

    fn service_account(&self, name: &str) -> Value {
        let mut object = self.object(MadeKind::ServiceAccount, name, &BTreeMap::new());
        // It has no rights at the API server, and no token for it.
        object["automountServiceAccountToken"] = false.into();
        object
    }

    /// Everybody reaches the listeners, and those whom the template names the admin address. The
    /// node asks from outside of policies.
    fn network_policy(&self, name: &str) -> Option<Value> {
        let template = self.template.network_policy.as_ref()?;
        let admin = self.template.admin_port()?;
        let mut ports = vec![json!({"protocol": "UDP", "port": 1, "endPort": u16::MAX})];
        let tcp = [
            (1, admin.saturating_sub(1)),
            (admin.saturating_add(1), u16::MAX),
        ];
        let tcp = tcp
            .into_iter()
            .filter(|(first, last)| first <= last && *first != admin);
        ports.extend(
            tcp.map(|(first, last)| json!({"protocol": "TCP", "port": first, "endPort": last})),
        );
        let mut ingress = vec![json!({ "ports": ports })];
        if !template.admin_from.is_empty() {
            let ports = json!([{"protocol": "TCP", "port": admin}]);
            ingress.push(json!({"from": template.admin_from, "ports": ports}));
        }
        let mut object = self.object(MadeKind::NetworkPolicy, name, &BTreeMap::new());
        object["spec"] = json!({
            "podSelector": {"matchLabels": {SELECTED: name}},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        });
        Some(object)
    }

    fn deployment(&self, name: &str) -> Value {
        let mut object = self.object(MadeKind::Deployment, name, &BTreeMap::new());
        let mut labels = self.labels(name);
        // It is a proxy, whatever its namespace or its Gateway says of Pods.
        labels.extend(NOT_INJECTED.map(|key| pair(key, "false")));
        let mut spec = json!({
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "selector": {"matchLabels": {SELECTED: name}},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": self.allowed(&self.deployment.annotations),
                },
                "spec": self.pod(name),
            },
        });
        if let Some(replicas) = self.template.replicas {
            spec["replicas"] = replicas.into();
        }
        object["spec"] = spec;
        object
    }

    /// How many proxies there are by the processor time that they take, where the parameters of the
    /// class say so.
    fn autoscaler(&self, name: &str) -> Option<Value> {
        let scaling = self.deployment.scaling?;
        let kind = MadeKind::HorizontalPodAutoscaler;
        let mut object = self.object(kind, name, &BTreeMap::new());
        let target = json!({"type": "Utilization", "averageUtilization": scaling.cpu_percent});
        object["spec"] = json!({
            "scaleTargetRef": {
                "apiVersion": MadeKind::Deployment.api_version(),
                "kind": MadeKind::Deployment.as_str(),
                "name": name,
            },
            "minReplicas": scaling.replicas_min,
            "maxReplicas": scaling.replicas_max,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        });
        Some(object)
    }

    /// The Pod of the template, for the ports of the Gateway.
    fn pod(&self, account: &str) -> Value {
        let mut pod = self.template.pod.clone();
        pod["serviceAccountName"] = account.into();
        // Nobody in it is root, and listeners have the ports that are written.
        let own = json!({"name": UNPRIVILEGED_PORTS, "value": "0"});
        let known = pod["securityContext"]["sysctls"].as_array().cloned();
        let others = known.unwrap_or_default().into_iter();
        let others = others.filter(|it| it["name"] != UNPRIVILEGED_PORTS);
        pod["securityContext"]["sysctls"] = others.chain([own]).collect();
        let containers = pod["containers"].as_array_mut();
        if let Some(proxy) = containers.and_then(|all| all.first_mut()) {
            let known = proxy["ports"].as_array().cloned().unwrap_or_default();
            let admin = known.into_iter().filter(|it| it["name"] == ADMIN_PORT);
            let own = self.ports().map(|port| {
                json!({
                    "name": port_name(port),
                    "containerPort": port.number,
                    "protocol": protocol(port),
                })
            });
            proxy["ports"] = admin.chain(own).collect();
        }
        pod
    }

    /// The addresses that Services ask a load balancer for, each once; none for one that it
    /// chooses, where no address is asked for. Those that Gateways may not have are left out: they
    /// may be somebody else's.
    fn service_addresses(&self) -> Vec<Option<IpAddr>> {
        let is_balanced = self.template.service.kind == "LoadBalancer";
        let asked = self.addresses.iter().filter(|it| {
            let is_address = &*it.kind == "IPAddress" && !it.value.is_empty();
            is_balanced && is_address
        });
        if asked.clone().next().is_none() {
            return vec![None];
        }
        let mut wanted = Vec::new();
        for address in asked.filter_map(|it| it.value.parse::<IpAddr>().ok()) {
            if self.template.allows_address(address) && !wanted.contains(&Some(address)) {
                wanted.push(Some(address));
            }
        }
        wanted
    }

    /// A Service for each address: a load balancer gives each of them one.
    fn services(&self, name: &str) -> Vec<Value> {
        let template = &self.template.service;
        let ports: Vec<Value> = self.ports().map(service_port).collect();
        let service = |address: Option<IpAddr>| {
            let own = service_name_of(name, address);
            let mut object = self.object(MadeKind::Service, &own, &template.annotations);
            let mut spec = json!({
                "type": template.kind,
                "selector": {SELECTED: name},
                "ports": ports,
            });
            if let Some(policy) = &template.external_traffic_policy
                && template.kind != "ClusterIP"
            {
                spec["externalTrafficPolicy"] = policy.as_str().into();
            }
            if let Some(address) = address {
                spec["loadBalancerIP"] = address.to_string().into();
            }
            object["spec"] = spec;
            object
        };
        self.service_addresses().into_iter().map(service).collect()
    }

    /// An object without what it is: its metadata, with labels and annotations of the Gateway.
    fn object(&self, kind: MadeKind, name: &str, annotations: &BTreeMap<String, String>) -> Value {
        let mut all = self.allowed(&self.deployment.annotations);
        // What the operator has set is not the tenant's to change.
        all.extend(annotations.iter().map(|(key, value)| pair(key, value)));
        json!({
            "apiVersion": kind.api_version(),
            "kind": kind.as_str(),
            "metadata": {
                "name": name,
                "namespace": self.owner.namespace,
                "labels": self.labels(&made_name(self.owner.name)),
                "annotations": all,
                "ownerReferences": [{
                    "apiVersion": self.owner.api_version,
                    "kind": "Gateway",
                    "name": self.owner.name,
                    "uid": self.owner.uid,
                    "controller": true,
                }],
            },
        })
    }

    fn labels(&self, name: &str) -> Map<String, Value> {
        let mut labels = self.allowed(&self.deployment.labels);
        let template = self.template.labels.iter();
        labels.extend(template.map(|(key, value)| pair(key, value)));
        let own = [
            (GATEWAY_LABEL, self.owner.name),
            (CLASS_LABEL, self.owner.class),
            (MADE_BY, self.installation),
            (SELECTED, name),
        ];
        labels.extend(own.map(|(key, value)| pair(key, label_value(value))));
        labels
    }

    /// The labels or annotations of the Gateway that are put on what is made.
    fn allowed(&self, pairs: &[(Box<str>, Box<str>)]) -> Map<String, Value> {
        let allowed = pairs
            .iter()
            .filter(|(key, _)| self.template.metadata.allows(key));
        allowed.map(|(key, value)| pair(key, value)).collect()
    }
}

/// The ConfigMap of the roots that proxies know controllers by, for all Gateways of a namespace.
pub(super) fn roots(name: &str, namespace: &str, installation: &str, bundle: &str) -> Value {
    json!({
        "apiVersion": MadeKind::ConfigMap.api_version(),
        "kind": MadeKind::ConfigMap.as_str(),
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {MADE_BY: installation},
        },
        "data": {ROOTS_KEY: bundle},
    })
}

/// Whether an object that was read was made by this installation.
pub(super) fn is_made_here(read: &Value, installation: &str) -> bool {
    read["metadata"]["labels"][MADE_BY] == installation
}

/// The UIDs of the Gateways of a name that own an object. Nothing is looked up by an owner that an
/// object names: whoever may write it could name anything.
pub(super) fn owners<'a>(read: &'a Value, gateway: &'a str) -> impl Iterator<Item = &'a str> {
    let owners = read["metadata"]["ownerReferences"].as_array();
    let owners = owners.into_iter().flatten().filter(move |owner| {
        let version = owner["apiVersion"].as_str().unwrap_or_default();
        owner["kind"] == "Gateway"
            && version.starts_with("gateway.networking.k8s.io/")
            && owner["name"] == gateway
    });
    owners.filter_map(|owner| owner["uid"].as_str())
}

/// The ports of the containers of a Pod that stay: that at which the proxy, which is the first, is
/// asked how it is, and all of the others.
fn taken_ports(pod: &Value) -> Vec<DeployedPort> {
    let containers = pod["containers"].as_array().into_iter().flatten();
    let ports = containers.enumerate().flat_map(|(at, container)| {
        let ports = container["ports"].as_array().into_iter().flatten();
        ports.filter(move |port| at > 0 || port["name"] == ADMIN_PORT)
    });
    let taken = ports.filter_map(|port| {
        let number = port["containerPort"].as_u64()?;
        Some(DeployedPort {
            number: u16::try_from(number).ok()?,
            is_udp: port["protocol"] == "UDP",
        })
    });
    taken.collect()
}

/// The name of the Service of an address, or of the one that has what it gets.
fn service_name_of(made: &str, address: Option<IpAddr>) -> String {
    match address {
        Some(address) => service_name(made, address),
        None => made.to_owned(),
    }
}

fn service_port(port: DeployedPort) -> Value {
    json!({
        "name": port_name(port),
        "port": port.number,
        "targetPort": port.number,
        "protocol": protocol(port),
    })
}

fn port_name(port: DeployedPort) -> String {
    let transport = if port.is_udp { "udp" } else { "tcp" };
    format!("{transport}-{}", port.number)
}

fn protocol(port: DeployedPort) -> &'static str {
    if port.is_udp { "UDP" } else { "TCP" }
}

fn pair(key: &str, value: &str) -> (String, Value) {
    (key.to_owned(), value.into())
}

/// As much of a name as the value of a label may have.
fn label_value(name: &str) -> &str {
    let cut = name.get(..LABEL_MAX).unwrap_or(name);
    cut.trim_end_matches(['-', '.', '_'])
}

#[cfg(test)]
mod tests;
