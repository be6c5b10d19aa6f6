//! A test cluster that comes up, keeps objects as gateways read them, lets the stories of
//! controllers and proxies play, and goes without a trace.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::{Place, roles, smoke};
use crate::{istio, manifests, mongo};
use myriad_lab::cert_manager;
use myriad_lab::cluster::{Cluster, Isolation, Name, down};
use myriad_lab::gateway_api;

/// The objects of a tenant, in the order in which a careful one writes them.
const OBJECTS: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: tenant}
---
apiVersion: v1
kind: Secret
metadata: {name: web, namespace: tenant}
type: kubernetes.io/tls
stringData: {tls.crt: certificate, tls.key: key}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: tenant}
spec: {clusterIP: None, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  namespace: tenant
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
endpoints: [{addresses: [10.244.0.1]}]
ports: [{port: 80}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: tenant}
spec:
  tls: [{hosts: [web.example.com], secretName: web}]
  rules:
  - host: web.example.com
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
";

/// The objects as they are read back, each with the field in which a gateway is interested.
const READ_BACK: [(&str, &str, &str); 4] = [
    ("secret/web", "{.type}", "kubernetes.io/tls"),
    ("service/web", "{.spec.clusterIP}", "None"),
    (
        "endpointslice/web-1",
        "{.endpoints[0].addresses[0]}",
        "10.244.0.1",
    ),
    ("ingress/web", "{.spec.rules[0].host}", "web.example.com"),
];

/// The variable by which tests find the script that runs a command in the network of the cluster.
const ENTRY_VARIABLE: &str = "MYRIAD_CLUSTER";

/// The variable of the script that kills parts of the cluster and starts them again.
const CONTROL_VARIABLE: &str = "MYRIAD_CLUSTER_CONTROL";

/// The variable of the program that renders the chart.
const HELM_VARIABLE: &str = "MYRIAD_HELM";

/// The variable of the file with the definitions of Istio's kinds.
const ISTIO_VARIABLE: &str = "MYRIAD_ISTIO_DEFINITIONS";

/// The variable of the file with the definitions of Gateway API's kinds.
const GATEWAY_API_VARIABLE: &str = "MYRIAD_GATEWAY_API_DEFINITIONS";

/// The test target whose stories need MongoDB, and the variables of a server that speaks its
/// protocol and of Python with a driver of it.
const WITH_MONGO: &str = "node";
const MONGO_VARIABLES: [&str; 2] = ["MYRIAD_MONGO_SERVER", "MYRIAD_MONGO_PYTHON"];

/// Starts clusters of its own, uses them, and ends them, whatever became of it.
pub(super) fn run(place: &Place) -> Result<()> {
    // The stories start the real program, and cert-manager beside it.
    super::build(place)?;
    cert_manager::provide(&place.root, &place.cache)?;
    within(place, 0, |cluster| {
        timed("objects and roles", || {
            keep_objects(cluster)?;
            roles::check(place, cluster)?;
            enter(place, cluster)
        })?;
        timed("stories", || play(place, cluster, "cluster"))?;
        timed("benchmarks", || {
            let definitions = gateway_api::definitions(&place.root, &place.cache)?;
            smoke::run_in_cluster(place, |command| {
                command.env(ENTRY_VARIABLE, cluster.entry());
                command.env(GATEWAY_API_VARIABLE, &definitions);
            })
        })
    })?;
    // Servers are killed in this one, so nobody else may need it.
    within(place, 0, |cluster| {
        timed("faults", || play(place, cluster, "faults"))
    })
}

/// Starts a cluster for the scenarios of gateway-api-bench and the short report.
pub(super) fn run_report(place: &Place) -> Result<()> {
    super::build(place)?;
    within(place, 0, |cluster| {
        let definitions = gateway_api::definitions(&place.root, &place.cache)?;
        smoke::run_report(place, |command| {
            command.env(ENTRY_VARIABLE, cluster.entry());
            command.env(GATEWAY_API_VARIABLE, &definitions);
        })
    })
}

/// Uses a cluster with so many nodes, and ends it whatever became of it.
pub(super) fn within(
    place: &Place,
    nodes: usize,
    used: impl FnOnce(&Cluster) -> Result<()>,
) -> Result<()> {
    let name: Name = format!("test-{}", random_word()).parse()?;
    let isolation = Isolation::of_this_user();
    let up = Cluster::up(&place.root, &place.cache, &name, isolation, nodes);
    let used = up.and_then(|cluster| used(&cluster));
    let ended = down(&place.cache, &name);
    used?;
    ensure!(ended?, "the cluster was gone before its end");
    Ok(())
}

/// Says how long it took.
pub(super) fn timed(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    run()?;
    println!(
        "cluster: {name} took {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Different in every run, so that runs side by side have a cluster each.
fn random_word() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

fn keep_objects(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["apply", "--filename=-"], OBJECTS)?;
    for (object, field, value) in READ_BACK {
        let output = format!("--output=jsonpath={field}");
        let read = cluster.kubectl(&["get", object, "--namespace=tenant", &output], "")?;
        ensure!(
            read == value,
            "{field} of {object} is `{read}`, not `{value}`"
        );
    }
    Ok(())
}

/// Enters the cluster as tests do: by its script alone, which they find by a variable.
fn enter(place: &Place, cluster: &Cluster) -> Result<()> {
    let mut command = Command::new("sh");
    let script = format!("\"${ENTRY_VARIABLE}\" kubectl get ingresses --all-namespaces");
    command.args(["-c", &script]);
    run_with(place, cluster, command)
}

/// Plays the stories of a test target, in the network of the cluster: cargo enters it by the same
/// script as everybody, for the tests alone.
pub(super) fn play(place: &Place, cluster: &Cluster, target: &str) -> Result<()> {
    let runner = toml_string(&cluster.entry().to_string_lossy());
    let mut command = Command::new("cargo");
    command.args(["test", "--locked", "--workspace"]);
    command.args(["--test", target]);
    command.args(["--config", &format!("target.'cfg(all())'.runner={runner}")]);
    if target == WITH_MONGO {
        let [server, python] = MONGO_VARIABLES;
        command.env(server, mongo::server(&place.root, &place.cache)?);
        command.env(python, mongo::driver(&place.root, &place.cache)?);
    }
    run_with(place, cluster, command)
}

/// A string as the configuration of cargo has it.
fn toml_string(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('"', "\\\"");
    format!("[\"{escaped}\"]")
}

/// Runs tests that need the cluster.
fn run_with(place: &Place, cluster: &Cluster, mut command: Command) -> Result<()> {
    command.env(ENTRY_VARIABLE, cluster.entry());
    command.env(CONTROL_VARIABLE, cluster.control());
    command.env(HELM_VARIABLE, manifests::helm(&place.root, &place.cache)?);
    let definitions = istio::definitions(&place.root, &place.cache)?;
    command.env(ISTIO_VARIABLE, definitions);
    let definitions = gateway_api::definitions(&place.root, &place.cache)?;
    command.env(GATEWAY_API_VARIABLE, definitions);
    place.run(command)
}
