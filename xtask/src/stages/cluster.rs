//! A test cluster that comes up, keeps objects as gateways read them, lets the stories of
//! controllers and proxies play, and goes without a trace.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::process::Command;

use anyhow::{Result, ensure};

use super::{Place, roles};
use crate::cluster::{Cluster, Isolation, Name, down};

/// What a tenant writes, in the order in which a careful one does.
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

/// By this the tests find the script that runs a command in the network of the cluster.
const ENTRY_VARIABLE: &str = "MYRIAD_CLUSTER";

/// Starts a cluster of its own, uses it, and ends it, whatever became of it.
pub(super) fn run(place: &Place) -> Result<()> {
    let name: Name = format!("test-{}", random_word()).parse()?;
    let isolation = Isolation::of_this_user();
    let used = Cluster::up(&place.root, &place.cache, &name, isolation).and_then(|cluster| {
        keep_objects(&cluster)?;
        roles::check(place, &cluster)?;
        enter(place, &cluster)?;
        play_stories(place, &cluster)
    });
    let ended = down(&place.cache, &name);
    used?;
    ensure!(ended?, "the cluster was gone before its end");
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

/// The stories start the real program, so it is built first.
fn play_stories(place: &Place, cluster: &Cluster) -> Result<()> {
    place.cargo(&["build", "--locked", "--package", "myriad"])?;
    let mut command = Command::new("cargo");
    command.args(["test", "--locked", "--package", "myriad-e2e"]);
    command.args(["--test", "cluster"]);
    run_with(place, cluster, command)
}

/// Runs tests that need the cluster.
fn run_with(place: &Place, cluster: &Cluster, mut command: Command) -> Result<()> {
    command.env(ENTRY_VARIABLE, cluster.entry());
    place.run(command)
}
