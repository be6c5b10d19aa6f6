//! `mesh`: a graph of services, each a process in a network of its own with its sidecar, and of
//! databases that stand in the same way, under one real controller.

mod database;
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
use myriad_lab::postgresql::PostgresServer;
use tokio::net::UnixStream;

use crate::cluster;
use crate::cluster::process::Process;
use crate::load::{Asked, OpenLoop, Schedule, Seen};
use crate::pods::{Mesh, Pod, network};
use crate::table::Table;
use database::Connection;
use report::Row;
use service::{BEGIN, CONNECTIONS_MAX, Counter, Peer, Plan, TELL, Told};
use topology::{Database, FILE_BYTES_MAX, Topology};

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

/// The port of databases, and of their Services.
const DATABASE_PORT: u16 = 5_432;

/// How long a database may take until it is filled.
const FILL_TIMEOUT: Duration = Duration::from_secs(120);

/// Connections to a database that no service has.
const CONNECTIONS_SPARE: usize = 10;

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
    workload: Workload,
    pod: Pod,
}

/// The part of a Pod beside the sidecar.
enum Workload {
    /// The client, which is in this process.
    Client,
    Service(Running),
    /// It is held until it ends with its Pod.
    Database {
        _server: PostgresServer,
    },
}

/// A service's process; it ends with its input.
struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The services of a graph with their replicas, its databases, and the client.
struct World {
    mesh: Mesh,
    controller: Process,
    services: Vec<Vec<Replica>>,
    databases: Vec<Replica>,
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
    world.hear(BEGIN, topology)?;
    let before = world.worked()?;
    let begun = Instant::now();
    let seen = load.run(schedule.lasting(Duration::from_secs_f64(args.seconds)))?;
    let time = begun.elapsed();
    let after = world.worked()?;
    let told = world.hear(TELL, topology)?;
    let figures = Figures {
        seen,
        time,
        told,
        worked: after.since(&before),
    };
    world.report(args, topology, figures)?;
    drop(load);
    world.leave()
}

/// The figures of the measured time.
struct Figures {
    /// The client's.
    seen: Seen,
    time: Duration,
    /// The services', and behind them the databases'.
    told: Vec<Counter>,
    worked: Worked,
}

impl Figures {
    /// Whether all services were asked as often as the graph says, and read the rows that it says.
    fn check(&self, topology: &Topology) -> anyhow::Result<()> {
        let demand = match topology.demand() {
            Some(demand) if self.seen.errors == 0 => demand,
            _ => return Ok(()),
        };
        for ((service, times), told) in topology.services.iter().zip(demand).zip(&self.told) {
            let name = &service.name;
            let requests = times.saturating_mul(self.seen.latency.len());
            let answered = told.seen.latency.len();
            ensure!(
                answered == requests,
                "{name} answered {answered} requests, and the graph says {requests}"
            );
            let rows = requests.saturating_mul(service.work.rows());
            ensure!(
                told.rows == rows,
                "{name} read {} rows, and the graph says {rows}",
                told.rows
            );
        }
        Ok(())
    }
}

/// Processor time so far.
struct Worked {
    /// The processor times of each service's sidecars, of each database's, and of the client's.
    sidecars: Vec<Duration>,
    controller: Duration,
}

impl Worked {
    fn since(&self, before: &Worked) -> Worked {
        let pairs = self.sidecars.iter().zip(&before.sidecars);
        Worked {
            sidecars: pairs.map(|(it, old)| it.saturating_sub(*old)).collect(),
            controller: self.controller.saturating_sub(before.controller),
        }
    }
}

/// The addresses of Services, by name.
struct Addresses {
    peers: BTreeMap<String, Peer>,
    databases: BTreeMap<String, SocketAddr>,
}

impl Addresses {
    /// Makes the Services, and the accounts of those behind them.
    fn make(mesh: &Mesh, topology: &Topology) -> anyhow::Result<Addresses> {
        let (mut peers, mut databases) = (BTreeMap::new(), BTreeMap::new());
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
        for database in &topology.databases {
            let name = &database.name;
            mesh.account(name)?;
            let address = mesh.expose_tcp(name, DATABASE_PORT)?;
            databases.insert(name.clone(), SocketAddr::from((address, DATABASE_PORT)));
        }
        Ok(Addresses { peers, databases })
    }
}

impl World {
    fn start(args: &MeshArgs, topology: &Topology) -> anyhow::Result<World> {
        let mesh = Mesh::prepare()?;
        let controller = mesh.controller("{}\n")?;
        let mut addresses = Addresses::make(&mesh, topology)?;
        mesh.account(LOAD)?;
        let mut pods = Pods {
            mesh: &mesh,
            workers: args.workers,
            number: 0,
        };
        let mut databases = Vec::new();
        for database in &topology.databases {
            let asking = topology.asking(&database.name);
            databases.push(pods.database(database, asking)?);
        }
        let mut services = Vec::new();
        for service in &topology.services {
            let plan = Plan {
                work: service.work.clone(),
                peers: addresses.peers.clone(),
                databases: addresses.databases.clone(),
            };
            let path = mesh.file(&format!("{}.plan", service.name));
            std::fs::write(&path, serde_json::to_vec(&plan)?)?;
            let app = &service.name;
            let replicas = (0..service.replicas)
                .map(|turn| pods.service(&format!("{app}-{turn}"), app, &path));
            services.push(replicas.collect::<anyhow::Result<Vec<_>>>()?);
        }
        let mut load = pods.start(LOAD, LOAD, |_| Ok(Workload::Client))?;
        let all = services.iter_mut().flatten().chain(&mut databases);
        for replica in all.chain([&mut load]) {
            let name = &replica.pod.name;
            replica
                .sidecar
                .wait_ready()
                .with_context(|| format!("the sidecar of {name}"))?;
        }
        let entrypoint = &topology.services[topology.entrypoint].name;
        let entrypoint = addresses.peers.remove(entrypoint);
        Ok(World {
            mesh,
            controller,
            services,
            databases,
            load,
            entrypoint: entrypoint.context("it is a service")?,
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

    /// Says a word to all services, and hears them: the figures of each, and behind them those of
    /// each database.
    fn hear(&mut self, word: &str, topology: &Topology) -> anyhow::Result<Vec<Counter>> {
        for replica in self.services.iter_mut().flatten() {
            if let Workload::Service(process) = &mut replica.workload {
                writeln!(process.input, "{word}")?;
            }
        }
        let all = topology.services.len() + topology.databases.len();
        let mut counters = Vec::with_capacity(all);
        for _ in 0..all {
            counters.push(Counter::new()?);
        }
        let (services, databases) = counters.split_at_mut(topology.services.len());
        for (replicas, counter) in self.services.iter_mut().zip(services) {
            for replica in replicas {
                let told = replica.hear()?;
                counter.add(&told.requests);
                for (database, asked) in topology.databases.iter().zip(databases.iter_mut()) {
                    if let Some(queries) = told.queries.get(&database.name) {
                        asked.add(queries);
                    }
                }
            }
        }
        Ok(counters)
    }

    fn worked(&self) -> anyhow::Result<Worked> {
        let of = |replicas: &[Replica]| {
            let times = replicas.iter().map(|it| it.sidecar.processor_time());
            times.sum::<anyhow::Result<Duration>>()
        };
        Ok(Worked {
            sidecars: self.groups().map(of).collect::<anyhow::Result<_>>()?,
            controller: self.controller.processor_time()?,
        })
    }

    /// The replicas of each service, each database, and the client.
    fn groups(&self) -> impl Iterator<Item = &[Replica]> {
        let services = self.services.iter().map(Vec::as_slice);
        let others = self.databases.iter().chain([&self.load]);
        services.chain(others.map(std::slice::from_ref))
    }

    fn report(&self, args: &MeshArgs, topology: &Topology, all: Figures) -> anyhow::Result<()> {
        let checked = all.check(topology);
        let mut report = Table::new(args.json);
        let mut sidecars = Vec::new();
        let services = topology.services.iter().map(|it| &it.name);
        let mut names = services.chain(topology.databases.iter().map(|it| &it.name));
        let mut told = all.told.iter();
        for (replicas, &worked) in self.groups().zip(&all.worked.sidecars) {
            let memory = memory(replicas)?;
            // The client, which is the last, has no row of its own.
            if let (Some(name), Some(counter)) = (names.next(), told.next()) {
                report.add(&Row::of_one(name, counter, all.time, worked, &memory))?;
            }
            sidecars.extend(memory);
        }
        let services = all.told.iter().take(topology.services.len());
        let counter = Counter {
            rows: services.map(|it| it.rows).sum(),
            seen: all.seen,
        };
        let worked = all.worked.sidecars.iter().sum();
        let controller = (all.worked.controller, self.controller.memory_mib()?.0);
        report.add(&Row::of_all(
            &counter, all.time, worked, &sidecars, controller,
        ))?;
        checked
    }

    fn leave(self) -> anyhow::Result<()> {
        drop((self.services, self.databases, self.load, self.controller));
        self.mesh.leave()
    }
}

fn memory(replicas: &[Replica]) -> anyhow::Result<Vec<f64>> {
    let memory = replicas.iter().map(|it| Ok(it.sidecar.memory_mib()?.0));
    memory.collect()
}

/// The maker of Pods.
struct Pods<'a> {
    mesh: &'a Mesh,
    /// Threads of each sidecar.
    workers: usize,
    /// The number of the next network.
    number: u16,
}

impl Pods<'_> {
    /// Starts a Pod of this name.
    fn start(
        &mut self,
        name: &str,
        app: &str,
        workload: impl FnOnce(&Pod) -> anyhow::Result<Workload>,
    ) -> anyhow::Result<Replica> {
        let pod = self.mesh.pod(name, app, network(self.number)?)?;
        self.number += 1;
        let workload = workload(&pod)?;
        let sidecar = self.mesh.sidecar(&pod, self.workers, &[], Stdio::null())?;
        Ok(Replica {
            sidecar,
            workload,
            pod,
        })
    }

    fn service(&mut self, name: &str, app: &str, plan: &Path) -> anyhow::Result<Replica> {
        self.start(name, app, |pod| {
            Ok(Workload::Service(Running::start(pod, plan)?))
        })
    }

    /// Starts a database that so many processes ask, and fills it.
    fn database(&mut self, database: &Database, asking: usize) -> anyhow::Result<Replica> {
        let (name, mesh) = (&database.name, self.mesh);
        let connections = asking * CONNECTIONS_MAX + CONNECTIONS_SPARE;
        self.start(name, name, |pod| {
            let server = PostgresServer::start(&pod.network, DATABASE_PORT, connections)?;
            let filled = mesh.runtime.block_on(fill(&server, &database.setup));
            filled.with_context(|| format!("database {name}"))?;
            Ok(Workload::Database { _server: server })
        })
    }
}

/// Runs statements, and lets the database see what there is.
async fn fill(server: &PostgresServer, setup: &[String]) -> anyhow::Result<()> {
    let filled = tokio::time::timeout(FILL_TIMEOUT, async {
        let stream = UnixStream::connect(server.socket()).await?;
        let mut connection = Connection::open(stream).await?;
        for sql in setup {
            connection.query(sql).await.with_context(|| sql.clone())?;
        }
        connection.query("VACUUM ANALYZE").await
    });
    filled.await.context("it is not filled in time")??;
    Ok(())
}

impl Replica {
    /// Reads what its process tells; of others there is nothing.
    fn hear(&mut self) -> anyhow::Result<Told> {
        let Workload::Service(process) = &mut self.workload else {
            return Ok(Told::default());
        };
        let mut line = String::new();
        process.output.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("{} does not tell", self.pod.name))
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
