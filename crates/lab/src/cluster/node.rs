//! The nodes of a cluster: machines with a kubelet and containers, and what such clusters have
//! beside: a scheduler, names of Services, metrics of pods, and addresses of load balancers.
//!
//! A machine is a script that makes namespaces of its own, so that its end is the end of all that
//! runs on it. Each machine but the first has a network of its own too.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::daemon::Daemon;
use super::folder::{Folder, Lock};
use super::namespace::{HOLDER, Isolation};
use super::process::{self, Process};
use super::programs;
use crate::image::{BUILDAH, Image};

/// The most nodes of a cluster.
pub const NODES_MAX: usize = NAMES.len();

const NAMES: [&str; 2] = ["node-1", "node-2"];

/// The parts that need no machine.
const SCHEDULER: &str = "kube-scheduler";
const NAME_SERVER: &str = "coredns";
const METRICS: &str = "metrics-server";
const BALANCER: &str = "load-balancer";

/// The Services by which pods find names and the API server finds metrics.
pub(super) const OBJECTS: &str = include_str!("node/objects.yaml");

/// The scripts, by the names of their files in the folder of the cluster.
const SCRIPTS: [(&str, &str); 3] = [
    (MACHINE, include_str!("node/machine.sh")),
    (BALANCER_SCRIPT, include_str!("node/load-balancer.sh")),
    ("Corefile", include_str!("node/Corefile")),
];
const MACHINE: &str = "machine.sh";
const BALANCER_SCRIPT: &str = "load-balancer.sh";

/// The image of what holds the namespaces of a Pod.
const PAUSE: &str = "myriad.dev/pause:1";

/// The programs of nodes that come with Debian, each with its package.
const PROGRAMS: [(&str, &str); 7] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    (BUILDAH, BUILDAH),
];

/// The packages of Debian that nodes need and this machine has not.
pub fn missing_packages() -> BTreeSet<&'static str> {
    let path = process::search_path();
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    // An absolute path stays what it is below any folder.
    let is_there = |program: &str| folders.iter().any(|it| it.join(program).exists());
    let missing = PROGRAMS.iter().filter(|(program, _)| !is_there(program));
    missing.map(|(_, package)| *package).collect()
}

/// How many nodes a cluster has.
pub(super) fn count(folder: &Folder) -> usize {
    let text = fs::read_to_string(folder.path().join("nodes"));
    let count = text.ok().and_then(|text| text.trim().parse().ok());
    count.unwrap_or(0)
}

/// Builds what is missing, and writes down that the cluster has so many nodes.
pub(super) fn prepare(
    root: &Path,
    cache: &Path,
    folder: &Folder,
    lock: &Lock,
    isolation: Isolation,
    nodes: usize,
) -> Result<()> {
    ensure!(nodes <= NODES_MAX, "there are {NODES_MAX} nodes at most");
    ensure!(
        isolation == Isolation::Network && rustix::process::geteuid().is_root(),
        "containers need root"
    );
    let missing = Vec::from_iter(missing_packages());
    ensure!(
        missing.is_empty(),
        "install these packages: {}",
        missing.join(", ")
    );
    programs::provide_for_nodes(root, cache)?;
    let path = |name: &str| folder.path().join(name);
    for (name, text) in SCRIPTS {
        lock.write(&path(name), text, 0o700)?;
    }
    let mut image = Image::new()?;
    image.file(&programs::path(cache, "pause")?, "/pause")?;
    image.set(r#"--entrypoint=["/pause"]"#);
    image.write(PAUSE, &path("pause.tar"))?;
    let mut folders = Vec::new();
    for name in ["kubelet", "kube-proxy", "kubectl"] {
        let program = programs::path(cache, name)?;
        let parent = program.parent().context("it lies in a folder")?;
        folders.push(parent.display().to_string());
    }
    lock.write(&path("programs"), &folders.join(":"), 0o600)?;
    if count(folder) == 0 {
        // It is started anew, with the controllers of nodes.
        if let Some(manager) = Process::read(&folder.process("kube-controller-manager")) {
            manager.kill()?;
        }
    }
    let nodes = nodes.max(count(folder));
    lock.write(&path("nodes"), &nodes.to_string(), 0o600)
}

/// The daemons of a cluster with nodes, in the order in which they start; none without.
pub(super) fn daemons(folder: &Folder) -> Vec<Daemon> {
    let nodes = count(folder);
    if nodes == 0 {
        return Vec::new();
    }
    let script = |name, arguments: Vec<String>, question| Daemon {
        name,
        arguments: &[],
        more: arguments,
        question,
    };
    let part = |name, arguments| Daemon {
        name,
        arguments,
        more: Vec::new(),
        question: None,
    };
    let balancer = folder.path().join(BALANCER_SCRIPT);
    let mut all = vec![
        part(SCHEDULER, SCHEDULER_ARGUMENTS),
        part(NAME_SERVER, &["-conf=Corefile"]),
        part(METRICS, METRICS_ARGUMENTS),
        script(BALANCER, vec![balancer.display().to_string()], None),
    ];
    let network = Process::read(&folder.process(HOLDER)).map_or(0, Process::pid);
    for (index, name) in NAMES.into_iter().enumerate().take(nodes) {
        let mut arguments = machine(folder, index + 1);
        arguments.push(network.to_string());
        all.push(script(name, arguments, Some(QUESTIONS[index])));
    }
    all
}

const SCHEDULER_ARGUMENTS: &[&str] = &[
    "--kubeconfig=kube-scheduler.kubeconfig",
    "--leader-elect=false",
    "--bind-address=127.0.0.1",
];

const METRICS_ARGUMENTS: &[&str] = &[
    "--kubeconfig=kubeconfig",
    "--authentication-kubeconfig=kubeconfig",
    "--authorization-kubeconfig=kubeconfig",
    "--bind-address=10.244.255.11",
    "--secure-port=4443",
    "--cert-dir=metrics-server",
    // They make their certificates themselves.
    "--kubelet-insecure-tls",
    "--kubelet-preferred-address-types=InternalIP",
    // The shortest that it takes.
    "--metric-resolution=10s",
    "--kubelet-request-timeout=5s",
];

/// The questions that succeed when nodes are ready.
const QUESTIONS: [&[&str]; NODES_MAX] = [
    &[
        "wait",
        "--for=condition=Ready",
        "node/node-1",
        "--timeout=5s",
    ],
    &[
        "wait",
        "--for=condition=Ready",
        "node/node-2",
        "--timeout=5s",
    ],
];

/// The words of the script of a machine.
fn machine(folder: &Folder, number: usize) -> Vec<String> {
    let path = folder.path();
    vec![
        path.join(MACHINE).display().to_string(),
        path.display().to_string(),
        number.to_string(),
    ]
}

/// Removes what machines leave outside the folder once they have ended: their control groups.
pub(super) fn remove(folder: &Folder) -> Result<()> {
    for number in 1..=count(folder) {
        let mut command = Command::new("bash");
        command.args(machine(folder, number)).args(["0", "remove"]);
        command.env("PATH", process::search_path());
        let output = command.output().context("`bash` does not start")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    Ok(())
}

/// Brings an image to all nodes.
pub(super) fn load(folder: &Folder, archive: &Path) -> Result<()> {
    images(folder, &["import".as_ref(), archive.as_os_str()])
}

/// Gives an image on all nodes another name, whatever had it.
pub(super) fn tag(folder: &Folder, image: &str, name: &str) -> Result<()> {
    images(folder, &["tag", "--force", image, name].map(OsStr::new))
}

/// Asks containerd on all nodes for something about images.
fn images(folder: &Folder, words: &[&OsStr]) -> Result<()> {
    ensure!(count(folder) > 0, "the cluster has no nodes");
    for name in NAMES.into_iter().take(count(folder)) {
        let process = Process::read(&folder.process(name)).filter(|it| it.runs());
        let process = process.with_context(|| format!("{name} does not run"))?;
        let inside = first_child(process)?;
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={inside}"));
        command.args(["--mount", "--pid", "--net", "ctr"]);
        command.args(["--address", "/run/containerd/containerd.sock"]);
        command.args(["--namespace", "k8s.io", "images"]);
        let output = command.args(words).output()?;
        if !output.status.success() {
            bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    Ok(())
}

/// The first process of a machine, which the one that we know has started.
fn first_child(process: Process) -> Result<u32> {
    let pid = process.pid();
    let path = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let first = text.split_ascii_whitespace().next();
    let first = first.with_context(|| format!("process {pid} has no child"))?;
    Ok(first.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::daemon;
    use crate::cluster::folder::Name;

    #[test]
    fn a_cluster_has_the_parts_that_its_nodes_need_and_none_without() {
        let cache = tempfile::tempdir().expect("a folder");
        let name: Name = "a".parse().expect("a name");
        let folder = Folder::of(cache.path(), &name);
        let parts = || {
            let all = daemon::daemons(&folder);
            let evicts = all.iter().all(|it| it.more.is_empty() || it.is_script());
            (all.iter().map(|it| it.name).collect::<Vec<_>>(), evicts)
        };
        let plain = ["etcd", "kube-apiserver", "kube-controller-manager"];
        assert_eq!(parts(), (plain.to_vec(), false));

        let lock = folder.lock().expect("created");
        lock.write(&folder.path().join("nodes"), "2", 0o600)
            .expect("written");
        let (names, evicts) = parts();
        assert!(names.starts_with(&plain) && names.ends_with(&NAMES));
        assert_eq!(names.len(), 9, "{names:?}");
        assert!(evicts, "pods of nodes that are gone are evicted");
    }
}
