//! A proxy under measurement: Myriad, or its peer.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use myriad_lab::peer::{self, Envoy};
use myriad_lab::port::free_address;

use super::cores::Cores;
use super::traffic::{Phase, Seen, Traffic};
use crate::child::Running;
use crate::cluster::usage;
use crate::istio::{self, Filters, Served, Setup};

/// How long traffic runs before it is measured, so that connections are made and pools filled.
const WARMING: Duration = Duration::from_millis(1_500);

/// How often memory is looked at under load.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A proxy that serves the setup.
pub(super) struct Subject {
    name: String,
    process: Process,
    address: SocketAddr,
    start: Duration,
    rss_idle_mib: f64,
}

enum Process {
    Myriad {
        child: Running,
        /// Its objects, as long as it runs.
        _directory: tempfile::TempDir,
    },
    Envoy(Envoy),
    /// Nobody: the endpoint, which is a thread of this process.
    Endpoint,
}

/// The measurements of one turn.
pub(crate) struct Round {
    pub seen: Seen,
    /// How long it was.
    pub time: Duration,
    /// Processor time of the proxy meanwhile.
    pub worked: Duration,
    /// Processor time of the traffic and the endpoint meanwhile.
    pub driven: Duration,
    /// Resident memory at its peak.
    pub rss_mib: f64,
}

/// The measurements of all turns.
pub(crate) struct Outcome {
    pub name: String,
    pub start: Duration,
    pub rss_idle_mib: f64,
    pub rounds: Vec<Round>,
}

impl Subject {
    /// Writes the objects into a directory and starts `serve` on it.
    pub(super) fn myriad(
        setup: &Setup,
        all: &[Served],
        endpoint: SocketAddr,
        filters: &Filters,
        cores: &Cores,
    ) -> anyhow::Result<Subject> {
        let directory = tempfile::tempdir()?;
        setup.write_with(all, endpoint, directory.path(), filters)?;
        let begun = Instant::now();
        let mut child = cores.start(|| Running::start(Some(directory.path()), cores.count()))?;
        let address = child.wait_ready()?.https;
        Ok(Subject {
            name: format!("myriad {}", env!("CARGO_PKG_VERSION")),
            process: Process::Myriad {
                child,
                _directory: directory,
            },
            address,
            start: begun.elapsed(),
            rss_idle_mib: 0.0,
        })
    }

    /// The endpoint itself. Its figures are those of this process, traffic included.
    pub(super) fn endpoint(endpoint: SocketAddr) -> Subject {
        Subject {
            name: "endpoint".to_owned(),
            process: Process::Endpoint,
            address: endpoint,
            start: Duration::ZERO,
            rss_idle_mib: 0.0,
        }
    }

    /// Starts Envoy with the same routes.
    pub(super) fn envoy(
        program: &Path,
        setup: &Setup,
        all: &[Served],
        endpoint: SocketAddr,
        cores: &Cores,
    ) -> anyhow::Result<Subject> {
        let address = free_address()?;
        let config = istio::bootstrap(setup, all, address, endpoint);
        let begun = Instant::now();
        let mut process = cores.start(|| Envoy::start(program, &config, cores.count()))?;
        let traffic = Traffic {
            address,
            setup: *setup,
            connections: 1,
            threads: 1,
            is_tls: true,
            token: None,
        };
        traffic.wait_answered(|| process.check())?;
        Ok(Subject {
            name: peer::version(program)?,
            process: Process::Envoy(process),
            address,
            start: begun.elapsed(),
            rss_idle_mib: 0.0,
        })
    }

    /// Its name and version.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The address where it serves HTTPS.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Looks at its memory before any load.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        (self.rss_idle_mib, _) = usage::memory_mib(self.id())?;
        Ok(())
    }

    /// Drives it as fast as it answers.
    pub(super) fn round(&self, traffic: &Traffic, time: Duration) -> anyhow::Result<Round> {
        let driver = traffic.start()?;
        driver.wait_connected()?;
        std::thread::sleep(WARMING);
        let (worked, driven) = self.processor_times()?;
        let begun = Instant::now();
        driver.set(Phase::Measure);
        let mut rss_mib = 0.0_f64;
        while let Some(rest) = time.checked_sub(begun.elapsed()) {
            let (now, _) = usage::memory_mib(self.id())?;
            rss_mib = rss_mib.max(now);
            std::thread::sleep(LOOK_INTERVAL.min(rest));
        }
        driver.set(Phase::Stop);
        let time = begun.elapsed();
        let (worked_after, driven_after) = self.processor_times()?;
        Ok(Round {
            seen: driver.join()?,
            time,
            worked: worked_after.saturating_sub(worked),
            driven: driven_after.saturating_sub(driven),
            rss_mib,
        })
    }

    /// Its figures.
    pub(super) fn result(&self, rounds: Vec<Round>) -> Outcome {
        Outcome {
            name: self.name.clone(),
            start: self.start,
            rss_idle_mib: self.rss_idle_mib,
            rounds,
        }
    }

    /// Ends it.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        match self.process {
            Process::Myriad { child, .. } => child.stop(),
            Process::Envoy(envoy) => {
                drop(envoy);
                Ok(())
            }
            Process::Endpoint => Ok(()),
        }
    }

    /// The processor times of the proxy, and of this process.
    fn processor_times(&self) -> anyhow::Result<(Duration, Duration)> {
        let proxy = usage::processor_time(self.id())?;
        Ok((proxy, usage::processor_time(std::process::id())?))
    }

    fn id(&self) -> u32 {
        match &self.process {
            Process::Myriad { child, .. } => child.id(),
            Process::Envoy(envoy) => envoy.id(),
            Process::Endpoint => std::process::id(),
        }
    }
}
