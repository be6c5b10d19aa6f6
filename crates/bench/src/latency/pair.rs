//! The three ways from a client to a server, and the pairs of proxies on two of them.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use myriad_lab::peer::{self, Envoy};
use serde_json::json;

use super::peer::PeerPlan;
use super::sink::Sink;
use super::{LatencyArgs, Protocol, SERVER, SERVICE_PORT, Variant, path, streams};
use crate::backend;
use crate::cluster::process::Process;
use crate::cluster::usage;
use crate::load::{AnyRequest, Asked, StreamRequest};
use crate::pods::{Mesh, Pod, SYNC, network, redirect, words_of_proxy};

/// The address of other Services' endpoints; nobody asks them.
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 244, 3, 9)), 9_000);

/// The Service of our collector, and the port of its Service.
const COLLECTOR: &str = "collector";
const COLLECTOR_PORT: u16 = 4_318;

/// How long proxies may take until they answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How long a log or spans may take to be written: Envoy's logs wait for ten seconds.
const RECORD_TIMEOUT: Duration = Duration::from_secs(15);

/// All that stays while variants come and go.
pub(super) struct Ground {
    mesh: Mesh,
    /// Direct, ours, and the peer's where it takes part.
    ways: Vec<Way>,
    services: Vec<(String, SocketAddr)>,
    /// The servers that take our spans and the peer's.
    sinks: Arc<[Sink; 2]>,
    envoy: Option<PathBuf>,
}

/// A client and a server in networks of their own.
pub(super) struct Way {
    pub client: Pod,
    pub server: Pod,
    /// The address of the Service; none where requests go to the server itself.
    service: Option<Ipv4Addr>,
    host: String,
    /// A length that answers have.
    bytes: usize,
    /// The protocols that are served, and whether the server was told the identity of a caller.
    served: Vec<(Protocol, Arc<AtomicBool>)>,
}

/// Two proxies on a way.
pub(super) struct Pair {
    name: &'static str,
    processes: Processes,
    /// The path that their output is written to.
    output: PathBuf,
    sinks: Arc<[Sink; 2]>,
    rest_mib: f64,
    /// A controller, for as long as its proxies run.
    _controller: Option<Process>,
}

enum Processes {
    Ours([Process; 2]),
    Peers([Envoy; 2]),
}

impl Ground {
    /// Makes networks, servers, Pods and Services.
    pub(super) fn prepare(args: &LatencyArgs) -> anyhow::Result<Ground> {
        let envoy = match (args.alone, &args.envoy) {
            (true, _) => None,
            (false, Some(path)) => Some(path.clone()),
            (false, None) => Some(peer::provide()?),
        };
        let mesh = Mesh::prepare()?;
        let sink = |port| Sink::start(SocketAddr::new(SYNC.ip(), port));
        let sinks = Arc::new([sink(COLLECTOR_PORT)?, sink(COLLECTOR_PORT + 1)?]);
        let named = |name: &str, network| Pod {
            name: name.to_owned(),
            network,
        };
        let full = format!("{SERVER}.{}.svc.cluster.local", mesh.namespace);
        let service = Some(expose(&mesh, args)?);
        let (client, server) = (named("client", network(0)?), named(SERVER, network(1)?));
        let mut ways = vec![Way::new(client, server, None, &full, args)?];
        for name in ["client", SERVER] {
            mesh.account(name)?;
        }
        let client = mesh.pod("client", "client", network(2)?)?;
        let server = mesh.pod(SERVER, SERVER, network(3)?)?;
        ways.push(Way::new(client, server, service, &full, args)?);
        if envoy.is_some() {
            let (client, server) = (network(4)?, network(5)?);
            for network in [&client, &server] {
                redirect(network, &[])?;
            }
            let (client, server) = (named("client", client), named(SERVER, server));
            ways.push(Way::new(client, server, service, &full, args)?);
        }
        mesh.create_elsewhere(COLLECTOR, COLLECTOR_PORT, sinks[0].address)?;
        let mut services = Vec::new();
        for number in 0..args.services {
            let name = format!("other-{number}");
            mesh.create_elsewhere(&name, SERVICE_PORT, ELSEWHERE)?;
            services.push((name, ELSEWHERE));
        }
        Ok(Ground {
            mesh,
            ways,
            services,
            sinks,
            envoy,
        })
    }

    /// The way without proxies.
    pub(super) fn direct(&self) -> &Way {
        &self.ways[0]
    }

    /// The ways with proxies, in the order of the pairs that [`Ground::start`] starts.
    pub(super) fn proxied(&self) -> &[Way] {
        &self.ways[1..]
    }

    /// Starts all proxies of a variant.
    pub(super) fn start(&self, args: &LatencyArgs, variant: Variant) -> anyhow::Result<Vec<Pair>> {
        let mut ways = self.proxied().iter();
        let mut pairs = Vec::new();
        if let Some(way) = ways.next() {
            pairs.push(self.start_ours(args, variant, way)?);
        }
        if let (Some(way), Some(envoy)) = (ways.next(), &self.envoy) {
            pairs.push(self.start_peers(args, variant, way, envoy)?);
        }
        Ok(pairs)
    }

    /// Ends it.
    pub(super) fn leave(self) -> anyhow::Result<()> {
        drop(self.ways);
        self.mesh.leave()
    }

    fn start_ours(&self, args: &LatencyArgs, variant: Variant, way: &Way) -> anyhow::Result<Pair> {
        let mesh = &self.mesh;
        let config = mesh_config(&mesh.namespace, variant, args.sampling);
        let controller = mesh.controller(&config)?;
        let path = mesh.fresh_file("ours");
        let start = |pod: &Pod| {
            let mut more = Vec::new();
            if variant != Variant::None {
                more.push(format!("--workload={}/{}", mesh.namespace, pod.name));
            }
            let mut process = mesh.sidecar(pod, args.workers, &more, output(variant, &path)?)?;
            process.wait_ready().context("a sidecar")?;
            Ok::<_, anyhow::Error>(process)
        };
        let processes = [start(&way.client)?, start(&way.server)?];
        way.wait_answered(|| Ok(()))?;
        Ok(Pair {
            name: "myriad",
            processes: Processes::Ours(processes),
            output: path,
            sinks: self.sinks.clone(),
            rest_mib: 0.0,
            _controller: Some(controller),
        })
    }

    fn start_peers(
        &self,
        args: &LatencyArgs,
        variant: Variant,
        way: &Way,
        envoy: &std::path::Path,
    ) -> anyhow::Result<Pair> {
        let authority = self.mesh.authority()?;
        let protocols: Vec<_> = args.served().collect();
        let plan = PeerPlan {
            namespace: &self.mesh.namespace,
            authority: &authority,
            server: IpAddr::V4(way.server.network.address()),
            protocols: &protocols,
            services: &self.services,
            variant,
            sink: self.sinks[1].address,
            sampling: args.sampling,
        };
        let path = self.mesh.fresh_file("peers");
        let start = |pod: &Pod, config| {
            let mut words = words_of_proxy(&pod.network).into_iter();
            let word = words.next().context("there is a word")?;
            let mut command = std::process::Command::new(word);
            command.args(words).arg(envoy);
            Envoy::spawn(command, &config, args.workers, output(variant, &path)?)
        };
        let mut processes = [
            start(&way.client, plan.of_client()?)?,
            start(&way.server, plan.of_server()?)?,
        ];
        way.wait_answered(|| processes.iter_mut().try_for_each(Envoy::check))?;
        Ok(Pair {
            name: "envoy",
            processes: Processes::Peers(processes),
            output: path,
            sinks: self.sinks.clone(),
            rest_mib: 0.0,
            _controller: None,
        })
    }
}

impl Way {
    fn new(
        client: Pod,
        server: Pod,
        service: Option<Ipv4Addr>,
        host: &str,
        args: &LatencyArgs,
    ) -> anyhow::Result<Way> {
        let bodies: Vec<_> = args.bytes.iter().map(|it| (path(*it), *it)).collect();
        let mut served = Vec::new();
        for protocol in args.served() {
            let at = (Ipv4Addr::UNSPECIFIED, protocol.port());
            let listener = server.network.listen(at)?;
            let is_identified = match protocol.is_http2() {
                true => streams::serve(listener, &bodies, protocol == Protocol::Grpc)?,
                false => backend::serve(listener, &bodies)?,
            };
            served.push((protocol, is_identified));
        }
        Ok(Way {
            client,
            server,
            service,
            host: host.to_owned(),
            bytes: *args.bytes.first().context("answers have a length")?,
            served,
        })
    }

    /// The requests on it, whose answers are so long.
    pub(super) fn asked(&self, protocol: Protocol, bytes: usize) -> AnyRequest {
        let address = match self.service {
            Some(service) => SocketAddr::from((service, protocol.service_port())),
            None => self.server.network.at(protocol.port()),
        };
        let (host, path) = (&self.host, path(bytes));
        match protocol.is_http2() {
            true => AnyRequest::Stream(StreamRequest {
                address,
                host: format!("{host}:{}", address.port()),
                path,
                body_bytes: bytes,
                is_grpc: protocol == Protocol::Grpc,
            }),
            false => AnyRequest::Text(Asked {
                address,
                request: format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                body_bytes: bytes,
            }),
        }
    }

    /// Whether the server was told the identity of the client by every protocol, which it is by
    /// mutual TLS alone.
    pub(super) fn is_identified(&self) -> bool {
        let mut all = self.served.iter();
        all.all(|(_, is_identified)| is_identified.load(Ordering::Relaxed))
    }

    /// Forgets that the server was told an identity, before other proxies come.
    pub(super) fn forget_identity(&self) {
        for (_, is_identified) in &self.served {
            is_identified.store(false, Ordering::Relaxed);
        }
    }

    /// Waits until a request of each protocol is answered, for as long as `check` holds.
    pub(super) fn wait_answered(
        &self,
        mut check: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for (protocol, _) in &self.served {
            let asked = self.asked(*protocol, self.bytes);
            self.wait(&asked, &mut check)
                .with_context(|| format!("{protocol:?}"))?;
        }
        Ok(())
    }

    fn wait(
        &self,
        asked: &AnyRequest,
        check: &mut impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let answered = self.client.network.inside(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let ask = async { asked.connect().await?.ask().await };
                Ok::<_, anyhow::Error>(runtime.block_on(ask))
            })??;
            match answered {
                Ok(()) => return Ok(()),
                Err((trouble, text)) => ensure!(
                    begun.elapsed() < ANSWER_TIMEOUT,
                    "no answer to {asked:?}: {trouble:?}: {text}"
                ),
            }
            check()?;
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

impl Pair {
    /// The name of the pair.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Looks at memory before any load.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        self.rest_mib = self.memory_mib()?;
        Ok(())
    }

    /// Memory of the larger one before any load.
    pub(super) fn rest_mib(&self) -> f64 {
        self.rest_mib
    }

    /// Memory of the larger one.
    pub(super) fn memory_mib(&self) -> anyhow::Result<f64> {
        let mut most = 0.0_f64;
        for id in self.ids() {
            most = most.max(usage::memory_mib(id)?.0);
        }
        Ok(most)
    }

    /// Processor time of both together.
    pub(super) fn worked(&self) -> anyhow::Result<Duration> {
        self.ids().into_iter().map(usage::processor_time).sum()
    }

    /// Ends them. They must have recorded what the variant says, and nothing else.
    pub(super) fn stop(self, variant: Variant) -> anyhow::Result<()> {
        if let Processes::Ours(ours) = &self.processes {
            let counts = ours[0].counts("istio_requests_total")?;
            let wanted = variant != Variant::None;
            ensure!(counts == wanted, "standard metrics: {counts}, not {wanted}");
        }
        let begun = Instant::now();
        let sink = &self.sinks[usize::from(matches!(self.processes, Processes::Peers(_)))];
        let mut is_traced = false;
        loop {
            let has_log = std::fs::metadata(&self.output).is_ok_and(|it| it.len() > 0);
            is_traced |= sink.take() > 0;
            let wanted = (variant == Variant::Log, variant == Variant::Trace);
            if (has_log, is_traced) == wanted {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < RECORD_TIMEOUT,
                "{}: an access log: {has_log}, spans: {is_traced}",
                self.name
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn ids(&self) -> [u32; 2] {
        match &self.processes {
            Processes::Ours([client, server]) => [client.id(), server.id()],
            Processes::Peers([client, server]) => [client.id(), server.id()],
        }
    }
}

/// Creates the Service in front of the servers, with a port for each protocol; its address.
fn expose(mesh: &Mesh, args: &LatencyArgs) -> anyhow::Result<Ipv4Addr> {
    let ports = args.served().map(|protocol| {
        json!({
            "name": protocol.name(),
            "port": protocol.service_port(),
            "targetPort": protocol.port(),
        })
    });
    let service = json!({
        "metadata": {"name": SERVER},
        "spec": {"selector": {"app": SERVER}, "ports": ports.collect::<Vec<_>>()},
    });
    let created = mesh.create("services", &service)?;
    let address = created.pointer("/spec/clusterIP");
    let address = address.and_then(|it| it.as_str()).context("an address")?;
    Ok(address.parse()?)
}

/// The output of proxies: what they record lies on disk, as a container's output does.
fn output(variant: Variant, path: &std::path::Path) -> anyhow::Result<Stdio> {
    if variant != Variant::Log {
        return Ok(Stdio::null());
    }
    let mut options = File::options();
    Ok(options.create(true).append(true).open(path)?.into())
}

/// The mesh settings of our controller, by what proxies record.
fn mesh_config(namespace: &str, variant: Variant, sampling: f64) -> String {
    match variant {
        Variant::Baseline | Variant::None => "defaultProviders: {metrics: []}\n".to_owned(),
        Variant::Metrics => String::from("{}\n"),
        Variant::Log => "accessLogFile: /dev/stdout\n".to_owned(),
        Variant::Trace => format!(
            "defaultProviders: {{tracing: [otel]}}\n\
             defaultConfig: {{tracing: {{sampling: {sampling}}}}}\n\
             extensionProviders:\n- name: otel\n  opentelemetry:\n    \
             service: {COLLECTOR}.{namespace}.svc.cluster.local\n    \
             port: {COLLECTOR_PORT}\n    http: {{path: /v1/traces, timeout: 5s}}\n"
        ),
    }
}
