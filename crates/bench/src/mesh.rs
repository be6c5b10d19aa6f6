//! `mesh`: a graph of services, each a process in a network of its own with its sidecar, under one
//! real controller.

mod report;
pub mod service;
mod topology;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::cluster;
use crate::cluster::process::Process;
use crate::load::{Asked, OpenLoop, Schedule, Seen};
use crate::pods::{Mesh, Pod, network};
use crate::table::Table;
use report::Row;
use service::{BEGIN, Peer, Plan, TELL, Told};
use topology::{FILE_BYTES_MAX, Topology};

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct MeshArgs {
    /// The graph, in isotope's YAML.
    #[arg(long)]
    topology: PathBuf,
    /// Requests per second to the entrypoint.
    #[arg(long, default_value_t = 100.0)]
    rps: f64,
    /// Measured seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Keep-alive connections to the entrypoint.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Threads of each sidecar.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Print one JSON object per service, and one for all, instead of a table.
    #[arg(long)]
    json: bool,
}

/// The name of the client of the entrypoint, which has a sidecar too.
const LOAD: &str = "load";

/// The port of services, and of their Services.
const PORT: u16 = 8_080;
const SERVICE_PORT: u16 = 80;

/// How long traffic runs before it is measured.
const WARMING: Duration = Duration::from_secs(1);

/// How long the entrypoint may take until it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The time between two attempts.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the command.
///
/// # Errors
/// The graph is wrong, this is not root, a program is missing, or a process ends.
pub fn run(args: &MeshArgs) -> anyhow::Result<()> {
    ensure!(args.rps > 0.0 && args.seconds > 0.0, "there is a request");
    ensure!(args.connections > 0, "there is a connection");
    let place = || args.topology.display().to_string();
    let mut text = String::new();
    let file = std::fs::File::open(&args.topology).with_context(place)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let topology = Topology::parse(&text).with_context(place)?;
    cluster::inside(|| measure(args, &topology))
}

/// A Pod with its processes.
struct Replica {
    sidecar: Process,
    /// The process of the workload; `None` for the client.
    process: Option<Running>,
    pod: Pod,
}

/// A service's process; it ends with its input.
struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The services of a graph with their replicas, and the client.
struct World {
    mesh: Mesh,
    controller: Process,
    services: Vec<Vec<Replica>>,
    load: Replica,
    entrypoint: Peer,
}

fn measure(args: &MeshArgs, topology: &Topology) -> anyhow::Result<()> {
    let mut world = World::start(args, topology)?;
    let entrypoint = &topology.services[topology.entrypoint];
    let host = &world.entrypoint.host;
    let asked = Asked {
        address: world.entrypoint.address,
        request: format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        body_bytes: entrypoint.work.response_bytes,
    };
    let schedule = Schedule {
        rps: args.rps,
        connections: args.connections,
        requests: 0,
        has_jitter: false,
    };
    world.wait_answered(&asked, schedule)?;
    let door = world.load.pod.network.door()?;
    let load = OpenLoop::start(asked, args.connections, move || door.enter())?;
    load.run(schedule.lasting(WARMING))?;
    world.say(BEGIN)?;
    let before = world.worked()?;
    let begun = Instant::now();
    let seen = load.run(schedule.lasting(Duration::from_secs_f64(args.seconds)))?;
    let time = begun.elapsed();
    let after = world.worked()?;
    world.say(TELL)?;
    let mut report = Table::new(args.json);
    let mut sidecars = Vec::new();
    for (at, service) in topology.services.iter().enumerate() {
        let told = world.services[at].iter_mut();
        let mut sum = Seen::new()?;
        for replica in told {
            replica.hear(&mut sum)?;
        }
        let memory = memory(&world.services[at])?;
        sidecars.extend(memory.iter().copied());
        let worked = after.sidecars[at].saturating_sub(before.sidecars[at]);
        report.add(&Row::of_service(service, &sum, time, worked, &memory))?;
    }
    let load_memory = memory(std::slice::from_ref(&world.load))?;
    sidecars.extend(load_memory);
    let all = |worked: &Worked| worked.sidecars.iter().sum::<Duration>();
    let worked = all(&after).saturating_sub(all(&before));
    let controller = (
        after.controller.saturating_sub(before.controller),
        world.controller.memory_mib()?.0,
    );
    report.add(&Row::of_all(&seen, time, worked, &sidecars, controller))?;
    drop(load);
    world.leave()
}

/// Processor time so far.
struct Worked {
    /// The processor times of each service's sidecars, and of the client's.
    sidecars: Vec<Duration>,
    controller: Duration,
}

impl World {
    fn start(args: &MeshArgs, topology: &Topology) -> anyhow::Result<World> {
        let mesh = Mesh::prepare()?;
        let controller = mesh.controller("{}\n")?;
        let mut peers = BTreeMap::new();
        for service in &topology.services {
            let name = &service.name;
            mesh.account(name)?;
            let address = mesh.expose(name, SERVICE_PORT, PORT)?;
            let peer = Peer {
                address: SocketAddr::from((address, SERVICE_PORT)),
                host: format!("{name}.{}.svc.cluster.local", mesh.namespace),
            };
            peers.insert(name.clone(), peer);
        }
        mesh.account(LOAD)?;
        let mut number = 0;
        let mut replica = |name: &str, app: &str, plan: Option<&Path>| {
            let pod = mesh.pod(name, app, network(number)?)?;
            number += 1;
            let process = plan.map(|plan| Running::start(&pod, plan)).transpose()?;
            let sidecar = mesh.sidecar(&pod, args.workers, &[], Stdio::null())?;
            Ok::<_, anyhow::Error>(Replica {
                sidecar,
                process,
                pod,
            })
        };
        let mut services = Vec::new();
        for service in &topology.services {
            let plan = Plan {
                work: service.work.clone(),
                peers: peers.clone(),
            };
            let path = mesh.file(&format!("{}.plan", service.name));
            std::fs::write(&path, serde_json::to_vec(&plan)?)?;
            let app = &service.name;
            let replicas = (0..service.replicas)
                .map(|turn| replica(&format!("{app}-{turn}"), app, Some(&path)));
            services.push(replicas.collect::<anyhow::Result<Vec<_>>>()?);
        }
        let mut load = replica(LOAD, LOAD, None)?;
        for replica in services.iter_mut().flatten().chain([&mut load]) {
            let name = &replica.pod.name;
            replica
                .sidecar
                .wait_ready()
                .with_context(|| format!("the sidecar of {name}"))?;
        }
        let entrypoint = &topology.services[topology.entrypoint].name;
        let entrypoint = peers.remove(entrypoint).context("it is a service")?;
        Ok(World {
            mesh,
            controller,
            services,
            load,
            entrypoint,
        })
    }

    /// Waits until a request comes through.
    fn wait_answered(&self, asked: &Asked, schedule: Schedule) -> anyhow::Result<()> {
        let begun = Instant::now();
        let single = Schedule {
            requests: 1,
            connections: 1,
            ..schedule
        };
        loop {
            let door = self.load.pod.network.door()?;
            let load = OpenLoop::start(asked.clone(), 1, move || door.enter())?;
            let seen = load.run(single)?;
            if seen.errors == 0 {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < ANSWER_TIMEOUT,
                "the entrypoint does not answer: {:?}",
                seen.last_error
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn say(&mut self, word: &str) -> anyhow::Result<()> {
        for replica in self.services.iter_mut().flatten() {
            if let Some(process) = &mut replica.process {
                writeln!(process.input, "{word}")?;
            }
        }
        Ok(())
    }

    fn worked(&self) -> anyhow::Result<Worked> {
        let of = |replicas: &[Replica]| {
            let times = replicas.iter().map(|it| it.sidecar.processor_time());
            times.sum::<anyhow::Result<Duration>>()
        };
        let services = self.services.iter().map(|replicas| of(replicas));
        let all = services.chain([of(std::slice::from_ref(&self.load))]);
        Ok(Worked {
            sidecars: all.collect::<anyhow::Result<_>>()?,
            controller: self.controller.processor_time()?,
        })
    }

    fn leave(self) -> anyhow::Result<()> {
        drop((self.services, self.load, self.controller));
        self.mesh.leave()
    }
}

fn memory(replicas: &[Replica]) -> anyhow::Result<Vec<f64>> {
    let memory = replicas.iter().map(|it| Ok(it.sidecar.memory_mib()?.0));
    memory.collect()
}

impl Replica {
    /// Adds what its process tells.
    fn hear(&mut self, sum: &mut Seen) -> anyhow::Result<()> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        let mut line = String::new();
        process.output.read_line(&mut line)?;
        let told: Told = serde_json::from_str(&line)
            .with_context(|| format!("{} does not tell", self.pod.name))?;
        for (nanos, count) in told.latency {
            sum.latency.saturating_record_n(nanos, count);
        }
        sum.errors += told.errors;
        Ok(())
    }
}

impl Running {
    fn start(pod: &Pod, plan: &Path) -> anyhow::Result<Running> {
        let mut command = pod.network.command(&std::env::current_exe()?);
        command.arg("service").arg("--plan").arg(plan);
        command.arg(format!("--listen=0.0.0.0:{PORT}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("a service does not start")?;
        Ok(Running {
            input: child.stdin.take().context("it was piped")?,
            output: BufReader::new(child.stdout.take().context("it was piped")?),
            child,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
