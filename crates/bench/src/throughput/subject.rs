//! The servers that are measured: Myriad, and others beside it, all with the same names and routes.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use myriad_lab::port::free_address;

use super::peers::{self, Recipe};
use super::requests::Requests;
use super::traffic::{Leaves, Plan};
use super::work::Case;
use crate::backend;
use crate::child::Running;
use crate::cluster::usage;
use crate::istio::{Filters, Keys, Served, Setup};
use crate::scale::cores::Cores;

/// How long a proxy may take until it listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(120);

/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A server that Myriad is measured beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Peer {
    /// No policy at all: the limit.
    Floor,
    /// Out of its registry.
    Envoy,
    /// HAProxy, from Debian.
    Haproxy,
    /// nginx, from Debian.
    Nginx,
}

/// The builds of Myriad that are measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Builds<'a> {
    /// The binary that is measured beside all others; without it, this program.
    pub now: Option<&'a Path>,
    /// The binary of another build, which is a peer.
    pub before: Option<&'a Path>,
}

/// The addresses that a proxy serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doors {
    pub https: SocketAddr,
    pub http: SocketAddr,
}

/// All that stays while proxies take turns.
pub(super) struct Ground {
    setup: Setup,
    all: Vec<Served>,
    /// A file with chain and key for each name, called like it.
    certificates: tempfile::TempDir,
    backend: SocketAddr,
    backend_thread: i32,
    leaves: Arc<Leaves>,
    requests: Arc<Requests>,
    /// The requests in HTTP/2, and those for the backend itself.
    framed: Arc<Requests>,
    direct: Arc<Requests>,
}

/// A proxy that serves.
pub(super) struct Subject {
    name: String,
    peer: Option<Peer>,
    process: Process,
    doors: Doors,
    rss_boot_mib: f64,
}

enum Process {
    Myriad {
        child: Running,
        /// Its objects, as long as it runs.
        directory: tempfile::TempDir,
    },
    /// The binary itself.
    Binary {
        process: crate::cluster::process::Process,
        /// Its objects and its log, as long as it runs.
        directories: [tempfile::TempDir; 2],
    },
    Other(Program),
}

/// A program that is killed when this is dropped.
struct Program {
    child: Child,
    /// Its own files, as long as it runs.
    _directory: tempfile::TempDir,
}

impl Ground {
    /// Makes names with certificates and the backend.
    pub(super) fn prepare(names: u32, paths: u32, keys: Keys) -> anyhow::Result<Ground> {
        let setup = Setup {
            workspaces: 1,
            domains: names,
            paths,
        };
        let all = setup.make_with(keys)?;
        let certificates = tempfile::tempdir()?;
        let mut leaves = Leaves::new();
        for served in &all {
            let host = served.domain().host();
            let file = certificates.path().join(format!("{host}.pem"));
            std::fs::write(&file, served.bundle()).with_context(|| file.display().to_string())?;
            leaves.insert(host, served.leaf().to_vec());
        }
        let hosts: Vec<String> = setup.all().map(|domain| domain.host()).collect();
        let (endpoints, backend_thread) = backend::start_known(Ipv4Addr::LOCALHOST.into())?;
        Ok(Ground {
            setup,
            all,
            certificates,
            backend: endpoints[0],
            backend_thread,
            leaves: Arc::new(leaves),
            framed: Arc::new(Requests::framed(hosts.clone(), paths)),
            direct: Arc::new(Requests::direct(hosts.clone())),
            requests: Arc::new(Requests::new(hosts, paths)),
        })
    }

    /// Starts Myriad, which comes first, its other build, the floor, and the others on these cores.
    /// A peer that is not to be had is named and left out.
    pub(super) fn start(
        &self,
        against: &[Peer],
        builds: Builds<'_>,
        connections: usize,
        cores: &Cores,
    ) -> anyhow::Result<Vec<Subject>> {
        let mut subjects = vec![self.start_own(builds.now, cores)?];
        if let Some(before) = builds.before {
            let started = self.start_binary(before, cores);
            let mut subject = started.context("the build before does not start")?;
            "myriad before".clone_into(&mut subject.name);
            subjects.push(subject);
        }
        let mut peers = vec![Peer::Floor];
        peers.extend(against.iter().copied().filter(|&peer| peer != Peer::Floor));
        for peer in peers {
            match peers::provide(peer) {
                Ok((program, name)) => {
                    let started = self.start_peer(peer, &program, name, connections, cores);
                    subjects.push(started.with_context(|| format!("{peer:?} does not start"))?);
                }
                Err(error) => eprintln!("{peer:?} is missing: {error:#}"),
            }
        }
        for subject in &subjects {
            eprintln!("{} is process {}", subject.name, subject.id());
        }
        Ok(subjects)
    }

    /// Starts Myriad on these cores: a child of this process, or the binary.
    pub(super) fn start_own(
        &self,
        binary: Option<&Path>,
        cores: &Cores,
    ) -> anyhow::Result<Subject> {
        match binary {
            Some(binary) => self.start_binary(binary, cores),
            None => self.start_myriad(cores),
        }
    }

    /// How a case is done with a subject.
    pub(super) fn plan(&self, subject: &Subject, case: &Case) -> Plan {
        let is_tls = case.is_tls();
        Plan {
            address: match is_tls {
                true => subject.doors.https,
                false => subject.doors.http,
            },
            connections: case.connections,
            leaves: is_tls.then(|| self.leaves.clone()),
            life: case.life,
            requests: match case.streams {
                Some(_) => self.framed.clone(),
                None => self.requests.clone(),
            },
            requests_max: None,
            streams: case.streams,
            schedule: case.schedule,
        }
    }

    /// How it is done with the backend itself, without TLS.
    pub(super) fn direct_plan(&self, case: &Case) -> Plan {
        Plan {
            address: self.backend,
            connections: case.connections,
            leaves: None,
            life: case.life,
            requests: self.direct.clone(),
            requests_max: None,
            streams: None,
            schedule: case.schedule,
        }
    }

    /// The thread of the backend, which is one of this process.
    pub(super) fn backend_thread(&self) -> i32 {
        self.backend_thread
    }

    fn start_myriad(&self, cores: &Cores) -> anyhow::Result<Subject> {
        let directory = tempfile::tempdir()?;
        let filters = Filters::plain_too();
        self.setup
            .write_with(&self.all, self.backend, directory.path(), &filters)?;
        let mut child = cores.start(|| Running::start(Some(directory.path()), cores.count()))?;
        let ready = child.wait_ready()?;
        Ok(Subject {
            name: format!("myriad {}", env!("CARGO_PKG_VERSION")),
            peer: None,
            process: Process::Myriad { child, directory },
            doors: Doors {
                https: ready.https,
                http: ready.http,
            },
            rss_boot_mib: 0.0,
        })
    }

    /// Starts the binary, with nothing but addresses and the number of threads set.
    fn start_binary(&self, binary: &Path, cores: &Cores) -> anyhow::Result<Subject> {
        let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
        let [objects, log] = &directories;
        let filters = Filters::plain_too();
        self.setup
            .write_with(&self.all, self.backend, objects.path(), &filters)?;
        let doors = Doors {
            https: free_address()?,
            http: free_address()?,
        };
        let admin = free_address()?;
        let mut command = Command::new(binary);
        command.arg("serve").arg(format!("--http={}", doors.http));
        command.arg(format!("--https={}", doors.https));
        command.arg(format!("--admin={admin}"));
        command.arg(format!("--workers={}", cores.count()));
        command.arg(objects.path()).stdout(Stdio::null());
        let log = log.path().join("log");
        let start = || crate::cluster::process::Process::spawn(command, admin, &log);
        let mut process = cores.start(start)?;
        process.wait_ready()?;
        Ok(Subject {
            name: "myriad".to_owned(),
            peer: None,
            process: Process::Binary {
                process,
                directories,
            },
            doors,
            rss_boot_mib: 0.0,
        })
    }

    fn start_peer(
        &self,
        peer: Peer,
        program: &Path,
        name: String,
        connections: usize,
        cores: &Cores,
    ) -> anyhow::Result<Subject> {
        let doors = Doors {
            https: free_address()?,
            http: free_address()?,
        };
        let directory = tempfile::tempdir()?;
        let recipe = Recipe {
            setup: &self.setup,
            all: &self.all,
            certificates: self.certificates.path(),
            backend: self.backend,
            doors,
            directory: directory.path(),
            connections,
        };
        let mut command = recipe.command(peer, program)?;
        command.arg0(name.split(' ').next().unwrap_or_default());
        let mut program = cores.start(|| Program::start(command, directory))?;
        for address in [doors.https, doors.http] {
            program.wait_listening(address)?;
        }
        Ok(Subject {
            name,
            peer: Some(peer),
            process: Process::Other(program),
            doors,
            rss_boot_mib: 0.0,
        })
    }
}

impl Subject {
    /// Its name and version.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Which peer it is; none is Myriad.
    pub(super) fn peer(&self) -> Option<Peer> {
        self.peer
    }

    /// The number of its process.
    pub(super) fn id(&self) -> u32 {
        match &self.process {
            Process::Myriad { child, .. } => child.id(),
            Process::Binary { process, .. } => process.id(),
            Process::Other(program) => program.child.id(),
        }
    }

    /// The addresses that it serves.
    pub(super) fn doors(&self) -> Doors {
        self.doors
    }

    /// The directory of Myriad's objects.
    pub(super) fn objects(&self) -> Option<&Path> {
        match &self.process {
            Process::Myriad { directory, .. } => Some(directory.path()),
            Process::Binary { directories, .. } => Some(directories[0].path()),
            Process::Other(_) => None,
        }
    }

    /// Looks at its memory before any load.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        (self.rss_boot_mib, _) = usage::memory_mib(self.id())?;
        Ok(())
    }

    /// The memory at boot, in MiB.
    pub(super) fn rss_boot_mib(&self) -> f64 {
        self.rss_boot_mib
    }

    /// Ends it.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        match self.process {
            Process::Myriad { child, .. } => child.stop(),
            // Both are killed when they are dropped.
            Process::Binary { .. } | Process::Other(_) => Ok(()),
        }
    }
}

impl Program {
    fn start(mut command: Command, directory: tempfile::TempDir) -> anyhow::Result<Program> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn();
        let child = child.with_context(|| format!("{command:?} does not start"))?;
        Ok(Program {
            child,
            _directory: directory,
        })
    }

    fn wait_listening(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let begun = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}");
            }
            let is_late = begun.elapsed() > LISTEN_TIMEOUT;
            ensure!(!is_late, "nobody listens on {address}");
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
