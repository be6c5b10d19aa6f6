//! The controllers of a fleet: one of them leads, and all of them serve.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;

use super::tenth;
use crate::cluster::process::{Figures, Process};

/// The most controllers.
pub(super) const CONTROLLERS_MAX: usize = 8;

/// How long it may take until one leads.
const LEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two looks at the Lease.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Controllers that run. Sessions are spread over them in turn: that of number 5 of three is with
/// the third.
pub(super) struct Controllers {
    all: Vec<Process>,
    /// The first one, as the Lease names it; none where nobody looked.
    leader: Option<String>,
}

/// The counts of all at one moment.
pub(super) struct Look {
    figures: Vec<Figures>,
    worked: Vec<Duration>,
}

/// The part of one controller in the changes of a run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ControllerShare {
    /// Whether it leads, and so writes to the API server as well.
    leads: bool,
    /// The sessions that follow it.
    sessions: usize,
    cpu_ms_per_change: f64,
    /// The commits that it sent.
    commits_per_change: f64,
    /// The bytes that its simulated sessions were sent, together.
    bytes_per_change: f64,
    rss_mib: f64,
    rss_peak_mib: f64,
}

impl Controllers {
    /// Starts so many at once, and says how long the last one took to be ready.
    ///
    /// # Errors
    /// One ends, or is not ready in time.
    pub(super) fn start(
        count: usize,
        start: impl Fn(u16) -> anyhow::Result<Process>,
    ) -> anyhow::Result<(Controllers, Duration)> {
        let mut all = (0..u16::try_from(count)?)
            .map(start)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let ready = wait_ready(&mut all)?;
        Ok((Controllers { all, leader: None }, ready))
    }

    /// The same, but the others start once the first one leads; says how long that one took.
    /// `holder` looks at the Lease.
    ///
    /// # Errors
    /// One ends or is not ready in time, or none leads.
    pub(super) fn start_led(
        count: usize,
        start: impl Fn(u16) -> anyhow::Result<Process>,
        holder: impl Fn() -> Option<String>,
    ) -> anyhow::Result<(Controllers, Duration)> {
        let (mut controllers, ready) = Controllers::start(1, &start)?;
        if count > 1 {
            let begun = Instant::now();
            while controllers.leader.is_none() {
                ensure!(begun.elapsed() < LEADER_TIMEOUT, "no controller leads");
                std::thread::sleep(LOOK_INTERVAL);
                controllers.leader = holder();
            }
            let mut others = (1..u16::try_from(count)?)
                .map(start)
                .collect::<anyhow::Result<Vec<_>>>()?;
            wait_ready(&mut others)?;
            controllers.all.append(&mut others);
        }
        Ok((controllers, ready))
    }

    /// Checks that the first one has led all the time.
    ///
    /// # Errors
    /// Another one does.
    pub(super) fn check_leader(&self, holder: impl Fn() -> Option<String>) -> anyhow::Result<()> {
        let is_same = self.leader.is_none() || self.leader == holder();
        ensure!(is_same, "the Lease has gone to another controller");
        Ok(())
    }

    /// Looks at all of them before something is measured. Processor time is read last, so that it
    /// has that of the look.
    ///
    /// # Errors
    /// One has ended.
    pub(super) fn look(&self) -> anyhow::Result<Look> {
        let figures = self.figures()?;
        let worked = self.processor_times()?;
        Ok(Look { figures, worked })
    }

    /// Looks at all of them once it is measured. Processor time is read first, so that it has
    /// nothing of the look.
    ///
    /// # Errors
    /// One has ended.
    pub(super) fn look_back(&self) -> anyhow::Result<Look> {
        let worked = self.processor_times()?;
        let figures = self.figures()?;
        Ok(Look { figures, worked })
    }

    /// Processor time of all together since their start.
    ///
    /// # Errors
    /// One has ended.
    pub(super) fn processor_time(&self) -> anyhow::Result<Duration> {
        self.all.iter().map(Process::processor_time).sum()
    }

    /// Resident memory of the largest now, and at the peak of any, in MiB.
    ///
    /// # Errors
    /// One has ended.
    pub(super) fn memory_mib(&self) -> anyhow::Result<(f64, f64)> {
        let mut most = (0.0_f64, 0.0_f64);
        for process in &self.all {
            let (now, peak) = process.memory_mib()?;
            most = (most.0.max(now), most.1.max(peak));
        }
        Ok(most)
    }

    /// The part of each in changes between two looks. `bytes` are those of each session of the
    /// simulated ones, whose first has the number `first`.
    ///
    /// # Errors
    /// One has ended.
    pub(super) fn shares(
        &self,
        (before, after): (&Look, &Look),
        (first, bytes): (usize, &[u64]),
        changes: f64,
    ) -> anyhow::Result<Vec<ControllerShare>> {
        let count = self.all.len();
        let mut shares = Vec::new();
        for (number, process) in self.all.iter().enumerate() {
            let (rss_mib, rss_peak_mib) = process.memory_mib()?;
            let commits =
                after.counter(number, "sync_commits")? - before.counter(number, "sync_commits")?;
            let worked = after.worked(number)?.saturating_sub(before.worked(number)?);
            shares.push(ControllerShare {
                leads: number == 0,
                sessions: after.figures(number)?.gauge("sync_proxies")? as usize,
                cpu_ms_per_change: tenth(worked.as_secs_f64() * 1e3 / changes),
                commits_per_change: tenth(commits as f64 / changes),
                bytes_per_change: tenth(own(bytes, first, (number, count)) as f64 / changes),
                rss_mib: tenth(rss_mib),
                rss_peak_mib: tenth(rss_peak_mib),
            });
        }
        Ok(shares)
    }

    /// Kills all, as if the machine had.
    ///
    /// # Errors
    /// The errors of the system.
    pub(super) fn kill(self) -> anyhow::Result<()> {
        self.all.into_iter().try_for_each(Process::kill)
    }

    fn figures(&self) -> anyhow::Result<Vec<Figures>> {
        self.all.iter().map(Process::figures).collect()
    }

    fn processor_times(&self) -> anyhow::Result<Vec<Duration>> {
        self.all.iter().map(Process::processor_time).collect()
    }
}

impl Look {
    /// A counter of all together.
    ///
    /// # Errors
    /// There is none of this name.
    pub(super) fn sum(&self, name: &str) -> anyhow::Result<u64> {
        let counters = self.figures.iter().map(|figures| figures.counter(name));
        counters.sum()
    }

    /// Processor time of all together until then.
    pub(super) fn worked_together(&self) -> Duration {
        self.worked.iter().sum()
    }

    fn counter(&self, number: usize, name: &str) -> anyhow::Result<u64> {
        self.figures(number)?.counter(name)
    }

    fn figures(&self, number: usize) -> anyhow::Result<&Figures> {
        let figures = self.figures.get(number);
        figures.context("all are looked at")
    }

    fn worked(&self, number: usize) -> anyhow::Result<Duration> {
        let worked = self.worked.get(number);
        Ok(*worked.context("all are looked at")?)
    }
}

/// The holder of a Lease, as the API server tells it.
pub(super) fn holder(lease: &Value) -> Option<String> {
    let name = lease.pointer("/spec/holderIdentity")?.as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// The bytes of the sessions that follow one of so many controllers.
fn own(bytes: &[u64], first: usize, (number, count): (usize, usize)) -> u64 {
    let all = (first..).zip(bytes);
    let own = all.filter(|(session, _)| session % count == number);
    own.map(|(_, bytes)| bytes).sum()
}

fn wait_ready(all: &mut [Process]) -> anyhow::Result<Duration> {
    let mut last = Duration::ZERO;
    for controller in all {
        let ready = controller.wait_ready().context("a controller")?;
        last = last.max(ready);
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sessions_are_with_controllers_in_turn() {
        let bytes = [1, 10, 100, 1_000, 10_000];
        let of = |first, count| {
            let all = (0..count).map(|number| own(&bytes, first, (number, count)));
            all.collect::<Vec<_>>()
        };
        assert_eq!(of(0, 1), [11_111]);
        assert_eq!(of(0, 3), [1_001, 10_010, 100]);
        // The first two are others.
        assert_eq!(of(2, 3), [10_010, 100, 1_001]);
    }

    #[test]
    fn nobody_holds_a_lease_without_a_name() {
        let lease = |name: &str| json!({"spec": {"holderIdentity": name}});
        assert_eq!(holder(&lease("one-1")), Some("one-1".to_owned()));
        assert_eq!(holder(&lease("")), None);
        assert_eq!(holder(&json!({"spec": {}})), None);
    }
}
