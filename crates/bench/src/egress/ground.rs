//! The client, the gateway and the database, each in a network of its own, and the ways between.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use myriad_lab::name_server::{NameServer, Saying};
use myriad_lab::peer;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::database::Database;
use super::report::Turn;
use super::way::Way;
use crate::cluster::process::Process;
use crate::pods::{GATEWAY, Mesh, Network, Pod, SYNC, network};

/// The host outside.
const HOST: &str = "mongo.example.com";

/// The name of the client, and of its account.
const CLIENT: &str = "client";

/// The port that it listens on, behind TLS for others and in plain text for itself.
const PORT: u16 = 27_017;

/// How long a way may take until it is open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Between two looks at whether it is.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The parts that stay while ways come and go.
pub(super) struct Ground {
    mesh: Mesh,
    /// A client without a proxy, and one that has one.
    bare: Network,
    client: Pod,
    outside: Outside,
    sidecar: Process,
    gateway: Process,
    payload: usize,
    _gateway: Pod,
    _names: NameServer,
    _controller: Process,
}

/// The machine of the database.
struct Outside {
    network: Network,
    tls: Arc<ClientConfig>,
    server: Child,
}

impl Ground {
    /// Makes networks, the database, Pods and their proxies.
    ///
    /// # Errors
    /// This is not root, a program is missing, or a proxy does not get ready.
    pub(super) fn prepare(workers: usize, payload: usize) -> anyhow::Result<Ground> {
        let definitions = peer::provided("istio-definitions")?;
        let file = format!("--filename={}", definitions.display());
        kubectl(&["apply", "--server-side", "--force-conflicts", &file], "")?;
        let established = "--for=condition=Established";
        kubectl(&["wait", established, "--timeout=60s", &file], "")?;
        let outside = Outside::start(network(10)?)?;
        let mesh = Mesh::prepare()?;
        let controller = mesh.controller("{}\n")?;
        let names = NameServer::start_at(SYNC.ip());
        let address = IpAddr::from(outside.network.address());
        names.say(HOST, Saying::Addresses(vec![address], 60));
        let ports = json!([{"name": "tls", "port": 443, "targetPort": 8_443}]);
        let service = json!({
            "metadata": {"name": GATEWAY},
            "spec": {"selector": {"app": GATEWAY}, "ports": ports},
        });
        mesh.create("services", &service)?;
        for name in [GATEWAY, CLIENT] {
            mesh.account(name)?;
        }
        let gateway_pod = mesh.gateway(network(11)?)?;
        let client = mesh.pod(CLIENT, CLIENT, network(12)?)?;
        // The address outside is a private one here.
        let more = [
            format!("--resolver={}", names.address()),
            format!("--dynamic-dns-allow={address}/32"),
        ];
        let start = |pod: &Pod| {
            let mut process = mesh.sidecar(pod, workers, &more, Stdio::null())?;
            process.wait_ready().context("a proxy")?;
            Ok::<_, anyhow::Error>(process)
        };
        let (gateway, sidecar) = (start(&gateway_pod)?, start(&client)?);
        Ok(Ground {
            bare: network(13)?,
            client,
            outside,
            sidecar,
            gateway,
            payload,
            _gateway: gateway_pod,
            _names: names,
            _controller: controller,
            mesh,
        })
    }

    /// Applies the objects of a way, and waits until it is taken.
    ///
    /// # Errors
    /// It is not, or the database does not take the document.
    pub(super) fn open(&self, way: Way) -> anyhow::Result<()> {
        if let Some(objects) = self.objects(way) {
            kubectl(&["apply", "--filename=-"], &objects)?;
        }
        let begun = Instant::now();
        let wanted = way.hops();
        loop {
            let before = (self.sidecar.streams()?, self.gateway.streams()?);
            let asked = self.inside(way, async |mut database| {
                // Of several the first succeeds, and so does whoever finds its document.
                let _ = database.insert().await;
                database.find().await
            });
            let after = (self.sidecar.streams()?, self.gateway.streams()?);
            let taken = (after.0 > before.0, after.1 > before.1);
            if asked.is_ok() && taken == wanted {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < OPEN_TIMEOUT,
                "{asked:?}; by the sidecar and by the gateway: {taken:?}, not {wanted:?}"
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Takes the objects away.
    ///
    /// # Errors
    /// The API server refuses.
    pub(super) fn close(&self, way: Way) -> anyhow::Result<()> {
        match self.objects(way) {
            Some(objects) => kubectl(&["delete", "--filename=-"], &objects),
            None => Ok(()),
        }
    }

    /// The load of so many clients that ask for so long, once they have done so for a while.
    ///
    /// # Errors
    /// One of them gets no answer.
    pub(super) fn load(
        &self,
        way: Way,
        clients: usize,
        warming: Duration,
        time: Duration,
    ) -> anyhow::Result<Turn> {
        self.enter(way, async || {
            let connections = (0..clients).map(|_| self.connect());
            let mut connections = try_join_all(connections).await?;
            try_join_all(connections.iter_mut().map(|it| it.run(warming))).await?;
            let (worked, begun) = (self.worked()?, Instant::now());
            let seen = try_join_all(connections.iter_mut().map(|it| it.run(time))).await?;
            let (after, took) = (self.worked()?, begun.elapsed());
            let worked = [0, 1].map(|at| after[at].saturating_sub(worked[at]));
            let mut latency = Histogram::new(3)?;
            for one in &seen {
                latency.add(one)?;
            }
            Ok(Turn {
                latency,
                time: took,
                worked,
            })
        })
    }

    /// Ends it.
    ///
    /// # Errors
    /// The API server refuses.
    pub(super) fn leave(self) -> anyhow::Result<()> {
        self.mesh.leave()
    }

    /// The objects of a way, for the namespace and the gateway of this run.
    fn objects(&self, way: Way) -> Option<String> {
        let example = way.objects()?;
        let own = &self.mesh.namespace;
        Some(
            example
                .replace("namespace: orders", &format!("namespace: {own}"))
                .replace("/ns/orders/", &format!("/ns/{own}/"))
                .replace("mesh-system", own)
                .replace("myriad-gateway-egress", GATEWAY)
                .replace("istio: egressgateway", "istio: ingressgateway"),
        )
    }

    /// Processor time of the sidecar, and of the gateway.
    fn worked(&self) -> anyhow::Result<[Duration; 2]> {
        Ok([
            self.sidecar.processor_time()?,
            self.gateway.processor_time()?,
        ])
    }

    async fn connect(&self) -> anyhow::Result<Database> {
        let address = self.outside.network.at(PORT);
        Database::connect(address, (HOST, &self.outside.tls), self.payload).await
    }

    fn inside(
        &self,
        way: Way,
        ask: impl AsyncFnOnce(Database) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<()> {
        self.enter(way, async || ask(self.connect().await?).await)
    }

    /// Does something where the client of a way is.
    fn enter<T: Send>(
        &self,
        way: Way,
        work: impl AsyncFnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let network = match way {
            Way::Around => &self.bare,
            _ => &self.client.network,
        };
        let door = network.door()?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                door.enter()?;
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(work())
            });
            thread.join().ok().context("a client panicked")?
        })
    }
}

impl Outside {
    fn start(network: Network) -> anyhow::Result<Outside> {
        let mut command = network.command(&peer::provided("mongo")?);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let server = command.stderr(Stdio::null()).spawn()?;
        let names = vec![HOST.to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names)?;
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], PrivateKeyDer::from(key))?;
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone())?;
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let door = network.door()?;
        let address = network.at(PORT);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("outside".to_owned());
        thread.spawn(move || {
            let serving = door.enter().and_then(|()| {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build()?;
                runtime.block_on(end_tls(address, Arc::new(config), &ready))
            });
            // Who waits for it may have given up.
            let _ = ready.send(serving);
        })?;
        is_ready.recv_timeout(OPEN_TIMEOUT)??;
        Ok(Outside {
            network,
            tls: Arc::new(tls.with_no_client_auth()),
            server,
        })
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // Both fail where it has ended by itself.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Ends TLS in front of the database, once that is there.
async fn end_tls(
    address: SocketAddr,
    config: Arc<ServerConfig>,
    ready: &std::sync::mpsc::Sender<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", PORT)).await.is_err() {
        ensure!(begun.elapsed() < OPEN_TIMEOUT, "no database listens");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let listener = TcpListener::bind(address).await?;
    ready.send(Ok(()))?;
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        let acceptor = TlsAcceptor::from(config.clone());
        tokio::spawn(async move {
            let mut tls = acceptor.accept(tcp).await?;
            let mut server = TcpStream::connect(("127.0.0.1", PORT)).await?;
            server.set_nodelay(true)?;
            tokio::io::copy_bidirectional(&mut tls, &mut server).await
        });
    }
}

/// Runs kubectl with this input, as `cluster::inside` finds it.
fn kubectl(arguments: &[&str], input: &str) -> anyhow::Result<()> {
    let mut command = Command::new("kubectl");
    command.args(arguments).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("kubectl starts")?;
    let mut stdin = child.stdin.take().context("it was piped")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "kubectl {arguments:?}: {complaint}"
    );
    Ok(())
}
