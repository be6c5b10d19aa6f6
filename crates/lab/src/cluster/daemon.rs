//! The parts of a cluster: how each is started, and how one knows that it is ready.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::folder::{Folder, Lock};
use super::namespace::Namespace;
use super::node;
use super::process::{self, Process};

/// A part that runs as a process of its own.
pub(super) struct Daemon {
    pub(super) name: &'static str,
    /// Files are relative to the folder of the cluster, where it runs.
    pub(super) arguments: &'static [&'static str],
    /// Arguments that depend on the cluster, behind the others.
    pub(super) more: Vec<String>,
    /// The question to `kubectl` that succeeds when this part is ready. Without one, the next
    /// part waits by itself.
    pub(super) question: Option<&'static [&'static str]>,
}

/// The daemons of a cluster, in the order in which they start.
pub(super) fn daemons(folder: &Folder) -> Vec<Daemon> {
    let nodes = node::daemons(folder);
    let mut manager = CONTROLLER_MANAGER;
    if nodes.is_empty() {
        manager.more.push(NO_NODES.to_owned());
    }
    let mut all = vec![ETCD, API_SERVER, manager];
    all.extend(nodes);
    all
}

/// The pods of nodes that no kubelet reports on would be evicted, which are all where processes
/// play the pods.
const NO_NODES: &str = "--controllers=*,-node-lifecycle-controller";

const ETCD: Daemon = Daemon {
    name: "etcd",
    arguments: &[
        "--data-dir=etcd",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=default=http://127.0.0.1:2380",
        // The objects outlive a process that is killed, and need not outlive the machine.
        "--unsafe-no-fsync",
        // Tests of scale store more than the 2 GiB that it would take.
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    ],
    more: Vec::new(),
    question: None,
};

const API_SERVER: Daemon = Daemon {
    name: "kube-apiserver",
    arguments: &[
        "--etcd-servers=http://127.0.0.1:2379",
        "--secure-port=6443",
        // An EndpointSlice tells of it, which takes no loopback address.
        "--advertise-address=10.244.255.1",
        "--tls-cert-file=server.crt",
        "--tls-private-key-file=server.key",
        "--client-ca-file=ca.crt",
        "--token-auth-file=tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=service-accounts.pub",
        "--service-account-signing-key-file=service-accounts.key",
        "--service-cluster-ip-range=10.96.0.0/12",
        // Nodes have names that no server knows.
        "--kubelet-preferred-address-types=InternalIP",
        // It tells other servers of its API, such as that of metrics, who asks.
        "--requestheader-client-ca-file=ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--proxy-client-cert-file=front-proxy.crt",
        "--proxy-client-key-file=front-proxy.key",
    ],
    more: Vec::new(),
    question: Some(&["get", "--raw=/readyz", "--request-timeout=5s"]),
};

const CONTROLLER_MANAGER: Daemon = Daemon {
    name: "kube-controller-manager",
    arguments: &[
        "--kubeconfig=controller-manager.kubeconfig",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        // Each controller has rights of its own, as clusters commonly are.
        "--use-service-account-credentials=true",
        "--service-account-private-key-file=service-accounts.key",
        "--root-ca-file=ca.crt",
        // Otherwise it is what one waits for when a test makes or removes many objects.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        // Pods are to be seen scaled, and not waited for.
        "--horizontal-pod-autoscaler-sync-period=2s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=5s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=5s",
    ],
    more: Vec::new(),
    // Two of its controllers give every namespace these, and pods need both.
    question: Some(&[
        "get",
        "serviceaccount/default",
        "configmap/kube-root-ca.crt",
        "--namespace=default",
        "--output=name",
        "--request-timeout=5s",
    ]),
};

impl Daemon {
    /// Whether the shell runs it.
    pub(super) fn is_script(&self) -> bool {
        self.arguments.is_empty()
    }

    /// Starts it, unless it runs.
    pub(super) fn start(
        &self,
        folder: &Folder,
        lock: &Lock,
        namespace: &Namespace,
        program: &Path,
    ) -> Result<()> {
        if self.process(folder).is_some() {
            return Ok(());
        }
        let log = lock.open_log(self.name)?;
        let prefix = namespace.prefix();
        let (enter, arguments) = prefix.split_first().context("the prefix is a command")?;
        let mut command = process::detached(Path::new(enter));
        command.args(arguments).arg(program);
        command
            .args(self.arguments)
            .args(&self.more)
            .current_dir(folder.path());
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("`setsid` does not start")?;
        // One that has already ended is found out by whoever waits for it.
        if let Some(process) = Process::of(child.id()) {
            lock.write(&folder.process(self.name), &process.to_line(), 0o600)?;
        }
        Ok(())
    }

    /// The process, while it runs.
    pub(super) fn process(&self, folder: &Folder) -> Option<Process> {
        let process = Process::read(&folder.process(self.name));
        process.filter(|process| process.runs())
    }

    /// # Errors
    /// When it has ended; the error has its last words.
    pub(super) fn check_runs(&self, folder: &Folder) -> Result<()> {
        if self.process(folder).is_none() {
            bail!("{} has ended:\n{}", self.name, folder.end_of_log(self.name));
        }
        Ok(())
    }
}
