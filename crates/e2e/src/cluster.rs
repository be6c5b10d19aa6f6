//! A real Kubernetes API, and the controllers and proxies of a story in its network.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::authority::Authority;
use crate::client::{Answer, Curl};
use crate::world::eventually;

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

/// A process in the cluster's network; it is killed when this is dropped.
pub struct Process {
    child: Child,
    admin: String,
    log: PathBuf,
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

    /// The namespace of the story's tenants.
    pub fn tenant(&self) -> String {
        format!("tenant-{}", self.number)
    }

    /// The ingress class of the story's controllers.
    pub fn class(&self) -> String {
        format!("class-{}", self.number)
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
        let mut command = Command::new(&self.enter);
        command.arg("kubectl").args(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin
            .write_all(input.as_bytes())
            .await
            .expect("kubectl reads");
        drop(stdin);
        let output = child.wait_with_output().await.expect("kubectl ends");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {complaint}"
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts a controller; replicas of a story differ by number, from 0.
    pub async fn controller(&self, replica: u16) -> Process {
        let sync = format!("--sync=127.0.0.1:{}", self.sync_port(replica));
        let address = self.address();
        let arguments = [
            "controller".to_owned(),
            sync,
            format!("--http={address}:8080"),
            format!("--https={address}:8443"),
            format!("--ingress-class={}", self.class()),
            format!("--proxy-accounts={}/proxy", self.home()),
            format!("--publish-service={}/proxies", self.home()),
        ];
        let name = format!("controller-{replica}");
        let admin = 20_000 + self.number * 20 + replica;
        let home = self.home();
        self.start(&name, admin, &arguments, &[("POD_NAMESPACE", &home)])
    }

    /// Starts a proxy that follows a controller with a token of this account and audience.
    pub async fn proxy(&self, replica: u16, account: &str, audience: &str) -> Process {
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
        self.restart_proxy(replica, account)
    }

    /// Starts a proxy with the files of the one before: as a container starts again.
    pub fn restart_proxy(&self, replica: u16, account: &str) -> Process {
        let path = self.directory.path();
        let state = path.join("state");
        std::fs::create_dir_all(&state).expect("a directory");
        let arguments = [
            "proxy".to_owned(),
            format!("--controller=localhost:{}", self.sync_port(replica)),
            format!("--ca-file={}", path.join("ca.crt").display()),
            format!(
                "--token-file={}",
                path.join(format!("{account}.token")).display()
            ),
            format!("--state-dir={}", state.display()),
            "--workers=1".to_owned(),
        ];
        let admin = 20_010 + self.number * 20 + replica;
        self.start(&format!("proxy-{replica}"), admin, &arguments, &[])
    }

    /// Starts an endpoint that answers every host with its text.
    pub fn backend(&self, text: &str) -> Process {
        let served = self.directory.path().join("endpoint");
        std::fs::create_dir_all(&served).expect("a directory");
        let objects = format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: all\n  \
             namespace: default\n  annotations: {{myriad.dev/respond: {text}}}\nspec:\n  \
             rules:\n  - http: {{paths: [{{path: /, pathType: Prefix, \
             backend: {{service: {{name: x, port: {{number: 80}}}}}}}}]}}\n"
        );
        std::fs::write(served.join("all.yaml"), objects).expect("a file");
        let arguments = [
            "serve".to_owned(),
            served.display().to_string(),
            format!("--http={}", self.endpoint()),
            "--https=127.0.0.1:0".to_owned(),
            "--workers=1".to_owned(),
        ];
        self.start("endpoint", 20_019 + self.number * 20, &arguments, &[])
    }

    fn sync_port(&self, replica: u16) -> u16 {
        15_000 + self.number * 20 + replica
    }

    fn start(
        &self,
        name: &str,
        admin: u16,
        arguments: &[String],
        environment: &[(&str, &str)],
    ) -> Process {
        let program = std::env::var_os("MYRIAD_BIN")
            .expect("MYRIAD_BIN is the path of the binary; `cargo xtask test` sets it");
        let admin = format!("127.0.0.1:{admin}");
        let log = self.directory.path().join(format!("{name}.log"));
        let file = std::fs::File::create(&log).expect("a file");
        let mut command = Command::new(&self.enter);
        command.arg(program).args(arguments);
        command.arg(format!("--admin={admin}"));
        command.envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(file).kill_on_drop(true);
        let child = command.spawn().expect("the binary starts");
        Process { child, admin, log }
    }

    /// A page of a process's admin address.
    pub async fn admin(&self, process: &Process, path: &str) -> Answer {
        let url = format!("http://{}{path}", process.admin);
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
        let resolve = [format!("{host}:8443:{}", self.address())];
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

    fn curl(&self, url: &str, resolve: &[String]) -> Curl {
        Curl::new(url, resolve, &self.root()).inside(&self.enter)
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root.pem")
    }
}

impl Process {
    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it, as if the machine had.
    ///
    /// # Panics
    /// Where it has ended already.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
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
