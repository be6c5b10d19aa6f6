//! Sidecars of the fleet that are whole processes, each in a network of its own, among those that
//! are sessions alone.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;

use super::objects::Setup;
use super::vcpu;
use crate::cluster::process::Process;
use crate::fleet::{seconds, tenth};
use crate::pods::mesh::{ADMIN_PORT, Mesh, Pod};
use crate::pods::{network, redirect};

/// How long they may take until they were told what sessions were.
const TOLD_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Sidecars that run.
pub(super) struct Processes {
    all: Vec<Running>,
    /// The longest time until one was ready.
    ready: Duration,
}

struct Running {
    process: Process,
    namespace: usize,
    /// Its network, for as long as it runs.
    _pod: Pod,
}

/// The counts of all at one moment, and their processor time together until then.
pub(super) struct ProcessLook {
    commits: Vec<u64>,
    at: Instant,
    worked: Duration,
}

/// Processor time of all together, within a time.
#[derive(Clone, Copy)]
pub(super) struct Busy {
    worked: Duration,
    of: Duration,
}

/// The figures of whole sidecars, while endpoints change.
#[derive(Serialize)]
pub(super) struct WholeSidecars {
    count: usize,
    /// The longest time from the start of one until it was ready.
    ready_s: f64,
    /// Commits that they were sent together, and changes that were for them.
    commits: u64,
    changes: u64,
    /// The cores of all together while nothing happens, and while endpoints change.
    rest_vcpu: f64,
    vcpu: f64,
    /// Processor time of one for a change that is for it, beyond what it takes at rest.
    cpu_ms_per_change: f64,
    /// Resident memory of the largest.
    rss_mib: f64,
}

impl Processes {
    /// Starts those of the first Pods, and waits until they are ready. They are with controllers
    /// in turn.
    ///
    /// # Errors
    /// This is not root, a program is missing, or one ends.
    pub(super) fn start(
        mesh: &Mesh,
        setup: &Setup,
        count: usize,
        controllers: usize,
    ) -> anyhow::Result<Processes> {
        let excluded = format!("--inbound-ports-excluded={ADMIN_PORT}");
        let (mut all, mut last) = (Vec::new(), Duration::ZERO);
        for number in 0..count {
            let pod = setup.pod(number)?;
            let network = network(u16::try_from(number)?)?;
            redirect(&network, &[&excluded])?;
            mesh.place(&setup.path(&pod), network.address())?;
            std::fs::write(mesh.file(&format!("{}.token", pod.name)), &pod.token)?;
            let sync = Mesh::replica_sync(u16::try_from(number % controllers)?);
            let name = pod.name;
            let own = Pod { name, network };
            let mut process = mesh.sidecar_of(sync, &own, 1, &[], Stdio::null())?;
            last = last.max(process.wait_ready().context("a sidecar")?);
            all.push(Running {
                process,
                namespace: pod.namespace,
                _pod: own,
            });
        }
        Ok(Processes { all, ready: last })
    }

    /// Looks at all of them before something is measured. Processor time is read last, so that it
    /// has that of the look.
    ///
    /// # Errors
    /// One has ended.
    pub(super) fn look(&self) -> anyhow::Result<ProcessLook> {
        let commits = self.commits()?;
        let (at, worked) = (Instant::now(), self.processor_time()?);
        Ok(ProcessLook {
            commits,
            at,
            worked,
        })
    }

    /// Processor time since a look.
    ///
    /// # Errors
    /// One has ended.
    pub(super) fn busy_since(&self, before: &ProcessLook) -> anyhow::Result<Busy> {
        let (of, worked) = (before.at.elapsed(), self.processor_time()?);
        let worked = worked.saturating_sub(before.worked);
        Ok(Busy { worked, of })
    }

    /// Waits until all were told the changes of their namespaces since a look, of which there were
    /// so many each; none where there is no process. `rest` is what they take without changes.
    ///
    /// # Errors
    /// They are not in time.
    pub(super) fn figures(
        &self,
        rest: Busy,
        before: &ProcessLook,
        changes: &[u64],
    ) -> anyhow::Result<Option<WholeSidecars>> {
        if self.all.is_empty() {
            return Ok(None);
        }
        let own = |it: &Running| changes.get(it.namespace).copied().unwrap_or(0);
        let begun = Instant::now();
        let (busy, commits) = loop {
            // Before the counts are asked for, which takes processor time as well.
            let busy = self.busy_since(before)?;
            let commits = self.commits()?;
            let pairs = commits.iter().zip(&before.commits);
            let mut all = pairs.zip(&self.all);
            if all.all(|((after, before), it)| after - before >= own(it)) {
                break (busy, commits);
            }
            let text = "a whole sidecar was not told what sessions were";
            ensure!(begun.elapsed() < TOLD_TIMEOUT, "{text}");
            std::thread::sleep(LOOK_INTERVAL);
        };
        let mut rss_mib = 0.0_f64;
        for it in &self.all {
            rss_mib = rss_mib.max(it.process.memory_mib()?.0);
        }
        let changes: u64 = self.all.iter().map(own).sum();
        let sum = |commits: &[u64]| commits.iter().sum::<u64>();
        Ok(Some(WholeSidecars {
            count: self.all.len(),
            ready_s: seconds(self.ready),
            commits: sum(&commits) - sum(&before.commits),
            changes,
            rest_vcpu: vcpu(rest.worked, rest.of),
            vcpu: vcpu(busy.worked, busy.of),
            cpu_ms_per_change: tenth(busy.beyond(rest) * 1e3 / changes.max(1) as f64),
            rss_mib: tenth(rss_mib),
        }))
    }

    fn commits(&self) -> anyhow::Result<Vec<u64>> {
        let commits = self.all.iter().map(|it| {
            let figures = it.process.figures()?;
            figures.counter("sync_commits")
        });
        commits.collect()
    }

    fn processor_time(&self) -> anyhow::Result<Duration> {
        let worked = self.all.iter().map(|it| it.process.processor_time());
        worked.sum()
    }
}

impl Busy {
    /// The seconds of processor time beyond those that so much rest takes.
    fn beyond(self, rest: Busy) -> f64 {
        let share = rest.worked.as_secs_f64() / rest.of.as_secs_f64();
        (self.worked.as_secs_f64() - share * self.of.as_secs_f64()).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rest_takes_is_not_for_changes() {
        let busy = |worked, of| Busy {
            worked: Duration::from_millis(worked),
            of: Duration::from_secs(of),
        };
        // A hundredth of a core at rest, which is 100 ms of ten seconds.
        let rest = busy(40, 4);
        assert_eq!((busy(350, 10).beyond(rest) * 1e3).round(), 250.0);
        assert_eq!(busy(90, 10).beyond(rest), 0.0);
    }
}
