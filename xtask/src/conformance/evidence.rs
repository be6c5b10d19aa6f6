//! Logs and objects that are kept of a run, for those who look for why a test has failed.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use myriad_lab::cluster::Cluster;

/// Lists of objects, by the names of their files.
const LISTS: [(&str, &str); 3] = [
    ("events.txt", "events"),
    ("pods.txt", "pods,services"),
    (
        "gateways.yaml",
        "gateways.gateway.networking.k8s.io,listenersets.gateway.networking.k8s.io",
    ),
];

/// Asks for the namespace and the name of each Pod.
const PODS: &str = "--output=jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}\
                    {'\\n'}{end}";

/// Writes the logs of all Pods, and the objects that are there, into a folder.
pub(super) fn keep(cluster: &Cluster, folder: &Path) -> Result<()> {
    let mut logs = File::create(folder.join("pods.log"))?;
    let pods = cluster.kubectl(&["get", "pods", "--all-namespaces", PODS], "")?;
    for pod in pods.lines() {
        let Some((namespace, name)) = pod.split_once(' ') else {
            continue;
        };
        let line = ["logs", name, "--namespace", namespace, "--all-containers"];
        // One that ends meanwhile has none.
        let log = cluster.kubectl(&line, "").unwrap_or_default();
        writeln!(logs, "==> {namespace}/{name}\n{log}")?;
    }
    for (file, kinds) in LISTS {
        let form = match file.ends_with(".yaml") {
            true => "--output=yaml",
            false => "--output=wide",
        };
        let list = cluster.kubectl(&["get", kinds, "--all-namespaces", form], "")?;
        fs::write(folder.join(file), list)?;
    }
    println!("logs of Pods and objects are in {}", folder.display());
    Ok(())
}
