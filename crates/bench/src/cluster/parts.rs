//! Our controller and proxy in a cluster, in a namespace of their own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context;
use http::Method;
use serde_json::{Value, json};

use super::api::Api;
use super::follower::Way;
use super::process::Process;

/// The address of the listeners and of the endpoints. All of 10.244.0.0/16 is local in there.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 244, 3, 1));

/// The address where proxies follow the controller.
const SYNC: SocketAddr = local(14_010);

/// The admin address of the controller.
const CONTROLLER_ADMIN: SocketAddr = local(14_011);

/// The admin address of the proxy.
const PROXY_ADMIN: SocketAddr = local(14_012);

/// The first address where one of several controllers is followed, and the first of their admin
/// addresses; those of the next ones are two ports further.
const REPLICA_SYNC: SocketAddr = local(14_020);
const REPLICA_ADMIN: SocketAddr = local(14_021);

/// The service account of proxies.
const ACCOUNT: &str = "proxy";

/// How long tokens hold, in seconds: longer than any run.
const TOKEN_SECONDS: u64 = 24 * 3_600;

/// The place of the parts of one run.
pub struct Home {
    /// The API server.
    pub api: Api,
    /// The namespace and the ingress class of the run.
    pub namespace: String,
    directory: tempfile::TempDir,
    proxies: u32,
}

impl Home {
    /// Creates a namespace that no other run has, and the account of proxies in it.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn prepare() -> anyhow::Result<Home> {
        let api = Api::new().await?;
        let namespace = format!("bench-{}", std::process::id());
        let space = json!({"metadata": {"name": namespace}});
        let list = "/api/v1/namespaces";
        api.call(Method::POST, list, Some(&space)).await?;
        let account = json!({"metadata": {"name": ACCOUNT}});
        let list = format!("{list}/{namespace}/serviceaccounts");
        api.call(Method::POST, &list, Some(&account)).await?;
        Ok(Home {
            api,
            namespace,
            directory: tempfile::tempdir()?,
            proxies: 0,
        })
    }

    /// The address of endpoints: loopback addresses are refused.
    pub fn address() -> IpAddr {
        ADDRESS
    }

    /// The address where the proxy serves HTTPS.
    pub fn https() -> SocketAddr {
        SocketAddr::new(ADDRESS, 8_443)
    }

    /// The address where the proxy serves plain HTTP.
    pub fn http() -> SocketAddr {
        SocketAddr::new(ADDRESS, 8_080)
    }

    /// The address where proxies look for controllers.
    pub fn sync() -> SocketAddr {
        SYNC
    }

    /// The address where one of several controllers is followed, by its number from 0.
    pub fn replica_sync(number: u16) -> SocketAddr {
        behind(REPLICA_SYNC, number)
    }

    /// Starts a controller.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn controller(&self) -> anyhow::Result<Process> {
        self.controller_with(&[])
    }

    /// Starts a controller with further arguments.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn controller_with(&self, more: &[String]) -> anyhow::Result<Process> {
        self.start_controller((SYNC, CONTROLLER_ADMIN), "controller.log", more)
    }

    /// Starts one of several controllers, by its number from 0, with further arguments.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn replica(&self, number: u16, more: &[String]) -> anyhow::Result<Process> {
        let places = (Home::replica_sync(number), behind(REPLICA_ADMIN, number));
        self.start_controller(places, &format!("controller-{number}.log"), more)
    }

    fn start_controller(
        &self,
        (sync, admin): (SocketAddr, SocketAddr),
        log: &str,
        more: &[String],
    ) -> anyhow::Result<Process> {
        let namespace = &self.namespace;
        let usual = [
            "controller".to_owned(),
            format!("--sync={sync}"),
            format!("--http={}", Home::http()),
            format!("--https={}", Home::https()),
            format!("--ingress-class={namespace}"),
            format!("--proxy-accounts={namespace}/{ACCOUNT}"),
            "--log=warn".to_owned(),
        ];
        let arguments = [&usual[..], more].concat();
        let environment = [("POD_NAMESPACE", namespace.as_str())];
        Process::start(admin, &arguments, &environment, &self.file(log))
    }

    /// The way to a controller that is ready: its root and a token.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn way(&self) -> anyhow::Result<Way> {
        let (roots, token) = (self.roots().await?, self.token().await?);
        std::fs::write(self.file("ca.crt"), &roots)?;
        std::fs::write(self.file("token"), &token)?;
        Way::new(SYNC, &roots, &token)
    }

    /// Starts a proxy that has never run before; the files of [`Home::way`] are there.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn proxy(&mut self, workers: usize) -> anyhow::Result<Process> {
        self.proxies += 1;
        let state = self.file(&format!("state-{}", self.proxies));
        std::fs::create_dir(&state)?;
        let arguments = [
            "proxy".to_owned(),
            format!("--controller=localhost:{}", SYNC.port()),
            format!("--ca-file={}", self.file("ca.crt").display()),
            format!("--token-file={}", self.file("token").display()),
            format!("--state-dir={}", state.display()),
            format!("--workers={workers}"),
            "--log=warn".to_owned(),
        ];
        Process::start(PROXY_ADMIN, &arguments, &[], &self.file("proxy.log"))
    }

    async fn roots(&self) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{}/configmaps/myriad-ca", self.namespace);
        let map = self.api.call(Method::GET, &path, None).await?;
        text(&map, "/data/ca.crt")
    }

    async fn token(&self) -> anyhow::Result<String> {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{ACCOUNT}/token",
            self.namespace
        );
        let spec = json!({"audiences": ["myriad"], "expirationSeconds": TOKEN_SECONDS});
        let request = json!({"spec": spec});
        let answer = self.api.call(Method::POST, &path, Some(&request)).await?;
        text(&answer, "/status/token")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn text(value: &Value, path: &str) -> anyhow::Result<String> {
    let text = value.pointer(path).and_then(Value::as_str);
    Ok(text
        .with_context(|| format!("there is no {path}"))?
        .to_owned())
}

/// The address two ports further for each number.
fn behind(first: SocketAddr, number: u16) -> SocketAddr {
    SocketAddr::new(first.ip(), first.port() + 2 * number)
}

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}
