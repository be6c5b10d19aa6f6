//! The fleet of a mesh: sidecars, each of which sees what the workload of its own Pod does.

mod objects;
mod sidecars;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;

use super::{FleetArgs, seconds, sum_since, tenth};
use crate::activate::{Pace, Quantiles};
use crate::cluster::follower::Way;
use crate::cluster::process::Process;
use crate::cluster::usage;
use crate::pods::mesh::{Mesh, SYNC};
use objects::Setup;
use sidecars::{Sidecars, Told};

/// Sidecars that come one by one, to see what one costs.
const ADDED: usize = 20;

/// Services that change, and how often in a second.
const SERVICE_CHANGES: u32 = 20;
const SERVICE_CHANGES_PER_SECOND: f64 = 2.0;

/// How long all is left alone after the last sidecar has come, and before anything is measured.
const REST: Duration = Duration::from_secs(5);

/// Further settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MeshArgs {
    /// Sidecars of a mesh in place of proxies of a gateway: each follows what the workload of its
    /// own Pod sees, scoped by a Sidecar with `./*` for its namespace.
    #[arg(long)]
    pub mesh: bool,
    /// Sidecars, each with labels of its own.
    #[arg(long, default_value_t = 2_000, requires = "mesh")]
    sidecars: usize,
    /// Namespaces of Services and sidecars.
    #[arg(long, default_value_t = 50, requires = "mesh")]
    namespaces: usize,
    /// Changes of endpoints per second.
    #[arg(long, default_value_t = 10.0, requires = "mesh")]
    changes_per_second: f64,
    /// How long endpoints change, and how long nothing does.
    #[arg(long, default_value_t = 30, requires = "mesh")]
    seconds: u64,
}

impl MeshArgs {
    /// The most sidecars at once.
    pub(super) fn sidecars_max(&self) -> usize {
        self.sidecars + ADDED
    }
}

/// The figures of a run.
#[derive(Serialize)]
pub(super) struct Report {
    services: usize,
    sidecars: usize,
    namespaces: usize,
    controller_start_s: f64,
    /// The time from the first connection until all sidecars, which hold nothing, hold all.
    join_s: f64,
    /// Processor time of the controller for that.
    join_cpu_s: f64,
    rest: Rest,
    endpoint_changes: Changes,
    service_changes: Changes,
    added_sidecar: Added,
    /// Resident memory of the controller in the end, and at its peak.
    rss_mib: f64,
    rss_peak_mib: f64,
    /// Resident memory of all sidecars together, in this process.
    sidecars_rss_mib: f64,
}

/// While nothing happens.
#[derive(Serialize)]
struct Rest {
    vcpu: f64,
    rss_mib: f64,
}

/// The cost of one change.
#[derive(Serialize)]
struct Changes {
    count: u32,
    per_second: f64,
    /// The cores of the controller meanwhile.
    vcpu: f64,
    cpu_ms_per_change: f64,
    /// The time from the write until the last sidecar that it is for has it.
    in_step_ms: Quantiles,
    /// The bytes to all sidecars together.
    bytes_per_change: f64,
    /// The bytes to each of those who are told.
    bytes_per_sidecar: f64,
    /// Sidecars that were told, per change.
    sidecars_told: f64,
    units_per_change: f64,
    /// The resources of all views together.
    resources_per_change: f64,
    rss_mib: f64,
}

/// The cost of one more sidecar, whose Pod is there already.
#[derive(Serialize)]
struct Added {
    count: usize,
    /// The time from its connection until it holds all.
    in_step_ms: Quantiles,
    /// The processor time of the controller, with the handshake.
    cpu_ms: f64,
    bytes: f64,
    units: f64,
    resources: f64,
}

/// A run under way.
struct Run<'a> {
    mesh: &'a Mesh,
    setup: Setup,
    controller: Process,
    sidecars: Sidecars,
}

/// Measures.
///
/// # Errors
/// A process that ends, a sidecar that does not get in step.
pub(super) fn measure(args: &FleetArgs) -> anyhow::Result<Report> {
    let own = &args.mesh;
    let (services, spaces) = (usize::try_from(args.services)?, own.namespaces);
    ensure!(spaces > 0, "there is a namespace");
    ensure!(own.changes_per_second > 0.0, "something changes");
    ensure!(
        services.is_multiple_of(spaces) && own.sidecars >= spaces,
        "as many Services in each namespace, and a sidecar"
    );
    let mesh = Mesh::prepare()?;
    let mut setup = Setup::prepare(&mesh, services, spaces)?;
    let begun = Instant::now();
    let controller = mesh.controller("{}")?;
    let controller_start_s = seconds(begun.elapsed());
    setup.add_pods(&mesh, own.sidecars_max())?;
    let way = Way::new(SYNC, &objects::roots(&mesh)?, "")?;
    let sidecars = Sidecars::new(way, setup.services_of_each, args.threads)?;
    let mut run = Run {
        mesh: &mesh,
        setup,
        controller,
        sidecars,
    };
    let (worked, joined) = (run.controller.processor_time()?, Instant::now());
    for number in 0..own.sidecars {
        run.sidecars.start(run.setup.pod(number)?);
    }
    let complete = run.sidecars.wait_complete()?;
    let join_s = seconds(complete.saturating_duration_since(joined));
    let join_cpu_s = seconds(run.controller.processor_time()? - worked);
    std::thread::sleep(REST);
    let time = Duration::from_secs(own.seconds);
    let rest = run.rest(time)?;
    let added_sidecar = run.add(own.sidecars)?;
    let count = (time.as_secs_f64() * own.changes_per_second).ceil() as u32;
    let endpoint_changes = run.change(count, own.changes_per_second, Told::Endpoint)?;
    let service_changes = run.change(SERVICE_CHANGES, SERVICE_CHANGES_PER_SECOND, Told::Port)?;
    let (rss_mib, rss_peak_mib) = run.controller.memory_mib()?;
    let sidecars_rss_mib = usage::memory_mib(std::process::id())?.0;
    run.sidecars.stop();
    run.setup.leave(&mesh)?;
    Ok(Report {
        services,
        sidecars: own.sidecars,
        namespaces: spaces,
        controller_start_s,
        join_s,
        join_cpu_s,
        rest,
        endpoint_changes,
        service_changes,
        added_sidecar,
        rss_mib: tenth(rss_mib),
        rss_peak_mib: tenth(rss_peak_mib),
        sidecars_rss_mib: tenth(sidecars_rss_mib),
    })
}

impl Run<'_> {
    fn rest(&self, time: Duration) -> anyhow::Result<Rest> {
        let worked = self.controller.processor_time()?;
        std::thread::sleep(time);
        let worked = self.controller.processor_time()? - worked;
        Ok(Rest {
            vcpu: vcpu(worked, time),
            rss_mib: tenth(self.controller.memory_mib()?.0),
        })
    }

    /// Changes endpoints or ports, one Service after the other through all namespaces, and waits
    /// each time until those who see it have followed.
    fn change(&self, count: u32, per_second: f64, what: Told) -> anyhow::Result<Changes> {
        let mut pace = Pace::new(per_second);
        let mut times = Vec::new();
        let before = self.controller.figures()?;
        let (bytes, worked) = (self.sidecars.bytes(), self.controller.processor_time()?);
        let begun = Instant::now();
        for turn in 1..=count {
            let (namespace, write) = self.setup.change(turn, what);
            pace.wait();
            let sent = Instant::now();
            let written = self.mesh.api.write(write);
            self.mesh.runtime.block_on(written)?;
            let told = self.sidecars.wait_told(namespace, what, turn)?;
            times.push(told.saturating_duration_since(sent));
        }
        pace.wait();
        let worked = self.controller.processor_time()? - worked;
        let took = begun.elapsed();
        let after = self.controller.figures()?;
        let each = |name| {
            let more = after.counter(name)? - before.counter(name)?;
            anyhow::Ok(more as f64 / f64::from(count))
        };
        let bytes_per_change = sum_since(&self.sidecars.bytes(), &bytes) as f64 / f64::from(count);
        let sidecars_told = each("sync_commits")?;
        Ok(Changes {
            count,
            per_second: tenth(f64::from(count) / took.as_secs_f64()),
            vcpu: vcpu(worked, took),
            cpu_ms_per_change: tenth(worked.as_secs_f64() * 1e3 / f64::from(count)),
            in_step_ms: Quantiles::of(times.into_iter()),
            bytes_per_change: tenth(bytes_per_change),
            bytes_per_sidecar: tenth(bytes_per_change / sidecars_told.max(1.0)),
            sidecars_told: tenth(sidecars_told),
            units_per_change: tenth(each("translate_units")?),
            resources_per_change: tenth(each("translate_resources_changed")?),
            rss_mib: tenth(self.controller.memory_mib()?.0),
        })
    }

    /// Lets further sidecars come, each after the one before holds all.
    fn add(&mut self, first: usize) -> anyhow::Result<Added> {
        let mut times = Vec::new();
        let before = self.controller.figures()?;
        let worked = self.controller.processor_time()?;
        for number in first..first + ADDED {
            let begun = Instant::now();
            self.sidecars.start(self.setup.pod(number)?);
            let complete = self.sidecars.wait_complete()?;
            times.push(complete.saturating_duration_since(begun));
        }
        let worked = self.controller.processor_time()? - worked;
        let after = self.controller.figures()?;
        let each = |name| {
            let more = after.counter(name)? - before.counter(name)?;
            anyhow::Ok(tenth(more as f64 / ADDED as f64))
        };
        let bytes = self.sidecars.bytes();
        let bytes = bytes.get(first..).context("they have come")?;
        Ok(Added {
            count: ADDED,
            in_step_ms: Quantiles::of(times.into_iter()),
            cpu_ms: tenth(worked.as_secs_f64() * 1e3 / ADDED as f64),
            bytes: tenth(bytes.iter().sum::<u64>() as f64 / ADDED as f64),
            units: each("translate_units")?,
            resources: each("translate_resources_changed")?,
        })
    }
}

/// Processors that were busy, to a thousandth.
fn vcpu(worked: Duration, of: Duration) -> f64 {
    (worked.as_secs_f64() / of.as_secs_f64() * 1e3).round() / 1e3
}
