//! The fleet of a mesh: sidecars, each of which sees what the workload of its own Pod does.

mod objects;
mod processes;
mod sidecars;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::Method;
use serde::Serialize;

use super::controllers::{self, ControllerShare, Controllers, Look};
use super::{FleetArgs, differences, seconds, tenth, told_once};
use crate::activate::{Pace, Quantiles};
use crate::cluster::follower::Way;
use crate::cluster::usage;
use crate::pods::mesh::{Mesh, SYNC};
use objects::Setup;
use processes::{Busy, Processes, WholeSidecars};
use sidecars::{Sidecars, Told};

/// Sidecars that come one by one, to see what one costs.
const ADDED: usize = 20;

/// Services that change, and how often in a second.
const SERVICE_CHANGES: u32 = 20;
const SERVICE_CHANGES_PER_SECOND: f64 = 2.0;

/// The most sidecars that are processes.
const PROCESSES_MAX: usize = 64;

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
    /// Sidecars among them that are whole processes, each in a network namespace of its own; the
    /// others are sessions without listeners.
    #[arg(long, default_value_t = 0, requires = "mesh")]
    processes: usize,
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

    /// Checks the settings, and says how many Services there are.
    fn check(&self, services: u64) -> anyhow::Result<usize> {
        let services = usize::try_from(services)?;
        ensure!(self.namespaces > 0, "there is a namespace");
        ensure!(self.changes_per_second > 0.0, "something changes");
        ensure!(
            services.is_multiple_of(self.namespaces)
                && self.sidecars >= self.namespaces + self.processes,
            "as many Services in each namespace, and a sidecar that is no process"
        );
        ensure!(
            self.processes <= PROCESSES_MAX,
            "--processes is at most {PROCESSES_MAX}"
        );
        Ok(services)
    }
}

/// The figures of a run.
#[derive(Serialize)]
pub(super) struct Report {
    services: usize,
    sidecars: usize,
    /// The number of whole processes among them.
    processes: usize,
    namespaces: usize,
    controllers: usize,
    /// The time until the first controller is ready.
    controller_start_s: f64,
    /// The time from the first connection until all sessions, which hold nothing, hold all.
    join_s: f64,
    /// Processor time of all controllers for that.
    join_cpu_s: f64,
    rest: Rest,
    endpoint_changes: Changes,
    /// The part of each controller in these changes, the leader first.
    by_controller: Vec<ControllerShare>,
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_sidecars: Option<WholeSidecars>,
    service_changes: Changes,
    added_sidecar: Added,
    /// Resident memory of the largest controller in the end, and at the peak of any.
    rss_mib: f64,
    rss_peak_mib: f64,
    /// Resident memory of all sessions together, in this process.
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
    /// The cores of all controllers meanwhile.
    vcpu: f64,
    cpu_ms_per_change: f64,
    /// The time from the write until the last sidecar that it is for has it.
    in_step_ms: Quantiles,
    /// The bytes to all sessions together.
    bytes_per_change: f64,
    /// The bytes to each session that is told.
    bytes_per_sidecar: f64,
    /// The changes that sessions were told together, which is each one once for all that see it.
    told: u64,
    /// Sidecars that were told, per change.
    sidecars_told: f64,
    /// The units and resources of all controllers, each of which translates for itself; resources
    /// of all views together.
    units_per_change: f64,
    resources_per_change: f64,
    rss_mib: f64,
}

/// Controllers before and after changes, and the bytes to each session meanwhile.
struct Changed {
    before: Look,
    after: Look,
    bytes: Vec<u64>,
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
    controllers: Controllers,
    processes: Processes,
    sidecars: Sidecars,
    namespaces: usize,
}

/// Measures.
///
/// # Errors
/// A process that ends, a sidecar that does not get in step.
pub(super) fn measure(args: &FleetArgs) -> anyhow::Result<Report> {
    let own = &args.mesh;
    let spaces = own.namespaces;
    let services = own.check(args.services)?;
    let mesh = Mesh::prepare()?;
    let mut setup = Setup::prepare(&mesh, services, spaces)?;
    let holder = || holder(&mesh);
    let start = |number| mesh.start_controller(number, "{}");
    let (controllers, ready) = Controllers::start_led(args.controllers, start, holder)?;
    let ways = ways(&mesh, args.controllers)?;
    setup.add_pods(&mesh, own.sidecars_max())?;
    let processes = Processes::start(&mesh, &setup, own.processes, args.controllers)?;
    let sidecars = Sidecars::new(ways, setup.services_of_each, args.threads)?;
    let mut run = Run {
        mesh: &mesh,
        setup,
        controllers,
        processes,
        sidecars,
        namespaces: spaces,
    };
    let (join_s, join_cpu_s) = run.join(own)?;
    std::thread::sleep(REST);
    let time = Duration::from_secs(own.seconds);
    let (rest, processes_rest) = run.rest(time)?;
    let added_sidecar = run.add(own)?;
    let count = (time.as_secs_f64() * own.changes_per_second).ceil() as u32;
    let before = run.processes.look()?;
    let (endpoint_changes, changed) = run.change(count, own.changes_per_second, Told::Endpoint)?;
    let seen = run.seen_by(count);
    let whole_sidecars = run.processes.figures(processes_rest, &before, &seen)?;
    let looks = (&changed.before, &changed.after);
    let bytes = (own.processes, changed.bytes.as_slice());
    let by_controller = run.controllers.shares(looks, bytes, f64::from(count))?;
    let (service_changes, _) =
        run.change(SERVICE_CHANGES, SERVICE_CHANGES_PER_SECOND, Told::Port)?;
    run.controllers.check_leader(holder)?;
    let (rss_mib, rss_peak_mib) = run.controllers.memory_mib()?;
    let sidecars_rss_mib = usage::memory_mib(std::process::id())?.0;
    run.sidecars.stop();
    run.setup.leave(&mesh)?;
    Ok(Report {
        services,
        sidecars: own.sidecars,
        processes: own.processes,
        namespaces: spaces,
        controllers: args.controllers,
        controller_start_s: seconds(ready),
        join_s,
        join_cpu_s,
        rest,
        endpoint_changes,
        by_controller,
        whole_sidecars,
        service_changes,
        added_sidecar,
        rss_mib: tenth(rss_mib),
        rss_peak_mib: tenth(rss_peak_mib),
        sidecars_rss_mib: tenth(sidecars_rss_mib),
    })
}

/// The ways to so many controllers, of which the first is ready.
fn ways(mesh: &Mesh, controllers: usize) -> anyhow::Result<Vec<Way>> {
    let way = Way::new(SYNC, &mesh.take_roots()?, "")?;
    let numbers = 0..u16::try_from(controllers)?;
    let ways = numbers.map(|number| way.at(Mesh::replica_sync(number)));
    Ok(ways.collect())
}

impl Run<'_> {
    /// Lets all sessions come at once: how long that takes, and the processor time of controllers.
    fn join(&mut self, own: &MeshArgs) -> anyhow::Result<(f64, f64)> {
        let (worked, joined) = (self.controllers.processor_time()?, Instant::now());
        for number in own.processes..own.sidecars {
            self.sidecars.start(number, self.setup.pod(number)?)?;
        }
        let complete = self.sidecars.wait_complete()?;
        let took = complete.saturating_duration_since(joined);
        let worked = self.controllers.processor_time()? - worked;
        Ok((seconds(took), seconds(worked)))
    }

    /// Leaves all alone: the figures of controllers, and the processor time of whole sidecars.
    fn rest(&self, time: Duration) -> anyhow::Result<(Rest, Busy)> {
        let before = self.processes.look()?;
        let worked = self.controllers.processor_time()?;
        std::thread::sleep(time);
        let worked = self.controllers.processor_time()? - worked;
        let busy = self.processes.busy_since(&before)?;
        let rest = Rest {
            vcpu: vcpu(worked, time),
            rss_mib: tenth(self.controllers.memory_mib()?.0),
        };
        Ok((rest, busy))
    }

    /// Changes endpoints or ports, one Service after the other through all namespaces, and waits
    /// each time until those who see it have followed.
    fn change(
        &self,
        count: u32,
        per_second: f64,
        what: Told,
    ) -> anyhow::Result<(Changes, Changed)> {
        let mut pace = Pace::new(per_second);
        let mut times = Vec::new();
        let (before, told) = (self.controllers.look()?, self.sidecars.told(what));
        let (bytes, begun) = (self.sidecars.bytes(), Instant::now());
        for turn in 1..=count {
            let (namespace, write) = self.setup.change(turn, what);
            pace.wait();
            let sent = Instant::now();
            let written = self.mesh.api.write(write);
            self.mesh.runtime.block_on(written)?;
            let followed = self.sidecars.wait_told(namespace, what, turn)?;
            times.push(followed.saturating_duration_since(sent));
        }
        pace.wait();
        let (took, after) = (begun.elapsed(), self.controllers.look_back()?);
        let worked = after.worked_together() - before.worked_together();
        let told = check_told(&self.sidecars.told(what), &told, &self.seen_by(count))?;
        let each = |name| {
            let more = after.sum(name)? - before.sum(name)?;
            anyhow::Ok(more as f64 / f64::from(count))
        };
        let bytes = differences(&self.sidecars.bytes(), &bytes);
        let bytes_together = bytes.iter().sum::<u64>() as f64;
        let changes = Changes {
            count,
            per_second: tenth(f64::from(count) / took.as_secs_f64()),
            vcpu: vcpu(worked, took),
            cpu_ms_per_change: tenth(worked.as_secs_f64() * 1e3 / f64::from(count)),
            in_step_ms: Quantiles::of(times.into_iter()),
            bytes_per_change: tenth(bytes_together / f64::from(count)),
            bytes_per_sidecar: tenth(bytes_together / told.max(1) as f64),
            told,
            sidecars_told: tenth(each("sync_commits")?),
            units_per_change: tenth(each("translate_units")?),
            resources_per_change: tenth(each("translate_resources_changed")?),
            rss_mib: tenth(self.controllers.memory_mib()?.0),
        };
        let changed = Changed {
            before,
            after,
            bytes,
        };
        Ok((changes, changed))
    }

    /// How many of so many changes each namespace has.
    fn seen_by(&self, count: u32) -> Vec<u64> {
        let mut seen = vec![0; self.namespaces];
        for turn in 1..=count as usize {
            seen[turn % self.namespaces] += 1;
        }
        seen
    }

    /// Lets further sidecars come, each after the one before holds all.
    fn add(&mut self, own: &MeshArgs) -> anyhow::Result<Added> {
        let mut times = Vec::new();
        let before = self.controllers.look()?;
        for number in own.sidecars..own.sidecars_max() {
            let begun = Instant::now();
            self.sidecars.start(number, self.setup.pod(number)?)?;
            let complete = self.sidecars.wait_complete()?;
            times.push(complete.saturating_duration_since(begun));
        }
        let after = self.controllers.look_back()?;
        let worked = after.worked_together() - before.worked_together();
        let each = |name| {
            let more = after.sum(name)? - before.sum(name)?;
            anyhow::Ok(tenth(more as f64 / ADDED as f64))
        };
        let bytes = self.sidecars.bytes();
        let first = own.sidecars - own.processes;
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

/// The controller that leads.
fn holder(mesh: &Mesh) -> Option<String> {
    let namespace = &mesh.namespace;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/myriad");
    controllers::holder(&mesh.call(Method::GET, &path, None).ok()?)
}

/// The changes that sessions were told together. Each must have been told all of its namespace,
/// once.
fn check_told(
    after: &[(usize, u64)],
    before: &[(usize, u64)],
    changes: &[u64],
) -> anyhow::Result<u64> {
    let mut sum = 0;
    for ((namespace, after), (_, before)) in after.iter().zip(before) {
        let wanted = changes.get(*namespace).copied().unwrap_or(0);
        let told = [after - before];
        sum += told_once(&told, wanted).with_context(|| format!("a sidecar of {namespace}"))?;
    }
    Ok(sum)
}

/// Processors that were busy, to a thousandth.
fn vcpu(worked: Duration, of: Duration) -> f64 {
    (worked.as_secs_f64() / of.as_secs_f64() * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sidecar_is_told_the_changes_of_its_namespace_once() {
        let before = [(0, 5), (1, 0), (1, 2)];
        let after = [(0, 7), (1, 3), (1, 5)];
        assert_eq!(check_told(&after, &before, &[2, 3]).unwrap(), 8);
        for changes in [[2, 2], [1, 3], [3, 3]] {
            assert!(check_told(&after, &before, &changes).is_err());
        }
    }
}
