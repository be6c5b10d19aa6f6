//! A real Kubernetes API, and the controllers and proxies of a story in its network.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::authority::Authority;
use crate::client::{Answer, Curl};
use crate::shaker::Shaker;
use crate::world::eventually;

mod account;
mod api;
mod balancer;
mod cert_manager;
mod kubelet;
mod launch;
mod mesh;
mod outside;
mod pod;
mod poll;
mod reader;
mod relay;
mod release;
mod servers;
mod slice;
mod traffic;

pub use api::Api;
pub use cert_manager::CertManager;
pub use kubelet::Kubelet;
pub use launch::{Launch, Process};
pub use mesh::{Mesh, Resident, Workload};
pub use outside::{Arrival, Outside};
pub use pod::Pod;
pub use poll::{Outcome, Poll};
pub use reader::Reader;
pub use relay::Relay;
pub use release::{LEAVES_LATE, PACE, Release, application};
pub use servers::Servers;
pub use slice::Slice;
pub use traffic::{Addresses, Retry, Tally, Traffic};

/// Stories share a network, so each takes a number of its own, and ports and addresses by it.
static STORIES: AtomicU16 = AtomicU16::new(1);

/// One story's part of the cluster: a namespace for its tenants, one for its controllers, an
/// ingress class, an address for its proxies and one for its endpoint.
pub struct Cluster {
    enter: PathBuf,
    number: u16,
    directory: tempfile::TempDir,
    /// The authority that the story's clients trust.
    pub authority: Authority,
}

impl Cluster {
    /// The cluster that is up, with fresh namespaces.
    ///
    /// # Panics
    /// Where there is none: a story that cannot run is a failure.
    pub async fn join() -> Cluster {
        let enter = std::env::var_os("MYRIAD_CLUSTER")
            .expect("MYRIAD_CLUSTER enters a cluster; `cargo xtask test --stage cluster` sets it");
        let authority = Authority::new();
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("root.pem"), authority.root()).expect("a file");
        let cluster = Cluster {
            enter: enter.into(),
            number: STORIES.fetch_add(1, Ordering::Relaxed),
            directory,
            authority,
        };
        for namespace in [cluster.tenant(), cluster.home()] {
            cluster.kubectl(&["create", "namespace", &namespace]).await;
        }
        for account in ["proxy", "stranger"] {
            let home = cluster.home();
            let line = ["create", "serviceaccount", account, "--namespace", &home];
            cluster.kubectl(&line).await;
        }
        cluster
    }

    /// The script that runs a command in the network of the cluster.
    pub fn entry(&self) -> &Path {
        &self.enter
    }

    /// The folder of the cluster, whose authority lies there.
    ///
    /// # Panics
    /// Where the script lies in none.
    pub fn folder(&self) -> PathBuf {
        let folder = self.enter.parent();
        folder.expect("it lies in the cluster's folder").to_owned()
    }

    /// Says what names outside lead to in a cluster with nodes, as `/etc/hosts` does.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn resolve(&self, hosts: &str) {
        std::fs::write(self.folder().join("hosts"), hosts).expect("a file");
    }

    /// The namespace of the story's tenants.
    pub fn tenant(&self) -> String {
        format!("tenant-{}", self.number)
    }

    /// The ingress class of the story's controllers.
    pub fn class(&self) -> String {
        format!("class-{}", self.number)
    }

    /// The name that the story's controllers go by, in classes and issuers.
    pub fn controller_name(&self) -> String {
        format!("stories.test/{}", self.class())
    }

    /// The namespace of the story's controllers and proxies.
    pub fn home(&self) -> String {
        format!("home-{}", self.number)
    }

    fn address(&self) -> String {
        format!("10.244.1.{}", self.number)
    }

    /// The address of the story's endpoint; it listens on 9000.
    pub fn endpoint(&self) -> std::net::SocketAddr {
        let address = format!("10.244.2.{}:9000", self.number);
        address.parse().expect("an address")
    }

    /// Runs kubectl to its end, and returns what it printed.
    ///
    /// # Panics
    /// Where it fails.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with(arguments, "").await
    }

    /// Applies objects.
    pub async fn apply(&self, objects: &str) {
        self.kubectl_with(&["apply", "--filename=-"], objects).await;
    }

    /// Deletes objects.
    pub async fn delete(&self, objects: &str) {
        let line = ["delete", "--wait=false", "--filename=-"];
        self.kubectl_with(&line, objects).await;
    }

    async fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        match self.try_kubectl(arguments, input).await {
            Ok(output) => output,
            Err(complaint) => panic!("kubectl {arguments:?}: {complaint}"),
        }
    }

    /// Runs kubectl with this input to its end, and returns what it printed.
    ///
    /// # Errors
    /// The complaint of kubectl, where it failed.
    pub async fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(&self.enter);
        command.arg("kubectl").args(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // One that does not read its input ends, and then its own words say more than the pipe's.
        drop(stdin.write_all(input.as_bytes()).await);
        drop(stdin);
        let output = child.wait_with_output().await.expect("kubectl ends");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Starts a controller; replicas of a story differ by number, from 0.
    pub async fn controller(&self, replica: u16) -> Process {
        self.controller_launch(replica).start()
    }

    /// A controller that can be started otherwise than [`Cluster::controller`] does.
    pub fn controller_launch(&self, replica: u16) -> Launch {
        let address = self.address();
        let admin = 20_000 + self.number * 20 + replica;
        self.launch("controller", &format!("controller-{replica}"), admin)
            .set("--sync", self.sync_address(replica))
            .set("--http", format!("{address}:8080"))
            .set("--https", format!("{address}:8443"))
            .set("--ingress-class", self.class())
            .set("--controller-class", self.controller_name())
            .set("--gateway-controller", self.controller_name())
            .set("--gateway-labels", format!("story={}", self.class()))
            .set("--gateway-namespace", self.home())
            .set("--proxy-accounts", format!("{}/proxy", self.home()))
            .set("--publish-service", format!("{}/proxies", self.home()))
            .environment("POD_NAMESPACE", self.home())
    }

    /// Starts a proxy that follows a controller with a token of this account and audience.
    pub async fn proxy(&self, replica: u16, account: &str, audience: &str) -> Process {
        self.provide_trust(account, audience).await;
        self.restart_proxy(replica, account)
    }

    /// Writes the files that a proxy needs: the roots of its controllers, and its token.
    ///
    /// # Panics
    /// Where no controller publishes its root in time.
    pub async fn provide_trust(&self, account: &str, audience: &str) {
        let home = self.home();
        let path = self.directory.path();
        let ca = eventually(async || {
            let line = [
                "get",
                "configmap",
                "--ignore-not-found",
                "--namespace",
                &home,
                "myriad-ca",
                r"--output=jsonpath={.data.ca\.crt}",
            ];
            let ca = self.kubectl(&line).await;
            (!ca.is_empty()).then_some(ca)
        });
        let ca = ca.await.expect("the controller publishes its root");
        std::fs::write(path.join("ca.crt"), ca).expect("a file");
        let audience = format!("--audience={audience}");
        let line = ["create", "token", account, "--namespace", &home, &audience];
        let token = self.kubectl(&line).await;
        std::fs::write(path.join(format!("{account}.token")), token).expect("a file");
    }

    /// Starts a proxy with the files of the one before: as a container starts again.
    pub fn restart_proxy(&self, replica: u16, account: &str) -> Process {
        self.proxy_launch(replica, account).start()
    }

    /// A proxy that can be started otherwise than [`Cluster::restart_proxy`] does.
    pub fn proxy_launch(&self, replica: u16, account: &str) -> Launch {
        let path = self.directory.path();
        let state = path.join("state");
        std::fs::create_dir_all(&state).expect("a directory");
        let token = path.join(format!("{account}.token"));
        let admin = 20_010 + self.number * 20 + replica;
        let controller = format!("localhost:{}", self.sync_address(replica).port());
        self.launch("proxy", &format!("proxy-{replica}"), admin)
            .set("--controller", controller)
            .set("--ca-file", path.join("ca.crt").display())
            .set("--token-file", token.display())
            .set("--state-dir", state.display())
            .set("--workers", 1)
    }

    /// Starts an endpoint that answers every host with its text.
    pub fn backend(&self, text: &str) -> Process {
        let launch = self.backend_launch("endpoint", text);
        launch.set("--http", self.endpoint()).start()
    }

    /// An endpoint that can be started elsewhere, and needs to be told where it listens.
    ///
    /// # Panics
    /// Where its directory cannot be written.
    pub fn backend_launch(&self, name: &str, text: &str) -> Launch {
        let served = self.directory.path().join(name);
        std::fs::create_dir_all(&served).expect("a directory");
        let objects = format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: all\n  \
             namespace: default\n  annotations: {{myriad.dev/respond: {text}}}\nspec:\n  \
             rules:\n  - http: {{paths: [{{path: /, pathType: Prefix, \
             backend: {{service: {{name: x, port: {{number: 80}}}}}}}}]}}\n"
        );
        std::fs::write(served.join("all.yaml"), objects).expect("a file");
        self.launch("serve", name, 20_019 + self.number * 20)
            .argument(served.display())
            .set("--https", "127.0.0.1:0")
            .set("--workers", 1)
    }

    /// The address where a controller of this story is followed.
    pub fn sync_address(&self, replica: u16) -> SocketAddr {
        let port = 15_000 + self.number * 20 + replica;
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// The address where the proxies of this story serve HTTPS.
    pub fn https(&self) -> SocketAddr {
        SocketAddr::from(([10, 244, 1, self.last_octet()], 8443))
    }

    /// An address of the story's own that stands for its controllers, as a Service's does.
    pub fn service(&self) -> std::net::IpAddr {
        [10, 244, 3, self.last_octet()].into()
    }

    fn last_octet(&self) -> u8 {
        u8::try_from(self.number).expect("fewer than 256 stories")
    }

    /// A file or a directory of the story's own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn launch(&self, command: &'static str, name: &str, admin: u16) -> Launch {
        let log = self.directory.path().join(format!("{name}.log"));
        Launch::new(&self.enter, command, log)
            .set("--admin", SocketAddr::from(([127, 0, 0, 1], admin)))
    }

    /// A page of a process's admin address.
    pub async fn admin(&self, process: &Process, path: &str) -> Answer {
        let url = format!("http://{}{path}", process.admin());
        self.curl(&url, &[]).ask().await
    }

    /// Waits until a process is ready.
    ///
    /// # Panics
    /// At the deadline, with its log.
    pub async fn ready(&self, process: &Process) {
        let ready = eventually(async || {
            let answer = self.admin(process, "/readyz").await;
            (answer.status == 200).then_some(())
        });
        if ready.await.is_none() {
            panic!("it does not get ready:\n{}", process.log());
        }
    }

    /// Asks the proxies of this story for a host over HTTPS, once.
    pub async fn get(&self, host: &str) -> Answer {
        self.get_at(host, &self.address()).await
    }

    /// Asks the proxy at an address for a host over HTTPS, once.
    pub async fn get_at(&self, host: &str, address: &str) -> Answer {
        let resolve = [format!("{host}:8443:{address}")];
        let url = format!("https://{host}:8443/");
        self.curl(&url, &resolve).ask().await
    }

    /// Asks until the answer is as wanted.
    ///
    /// # Panics
    /// At the deadline, with the last answer.
    pub async fn eventually(&self, host: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let mut last = None;
        let asked = eventually(async || {
            let answer = self.get(host).await;
            let fits = wanted(&answer);
            last = Some(answer.clone());
            fits.then_some(answer)
        });
        match asked.await {
            Some(answer) => answer,
            None => panic!("{host} never answered as wanted; last: {last:?}"),
        }
    }

    /// A question to be asked in the network of the cluster.
    pub fn curl(&self, url: &str, resolve: &[String]) -> Curl {
        Curl::new(url, resolve, &self.root()).inside(&self.enter)
    }

    /// A handshake with the server at an address in the network of the cluster.
    pub fn shaker(&self, address: SocketAddr, name: &str) -> Shaker {
        Shaker::new(address, name, &self.root()).inside(&self.enter)
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root.pem")
    }
}

/// The script that enters a cluster's network, before a command.
pub(crate) fn enter(script: &Path, command: &Command) -> Command {
    let inner = command.as_std();
    let mut outer = Command::new(script);
    outer.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}
