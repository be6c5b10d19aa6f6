//! Which cores a process may run on.

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Cores by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(Vec<usize>);

impl Cores {
    /// The cores that this process was given.
    pub(crate) fn of_this_process() -> anyhow::Result<Cores> {
        let set = sched_getaffinity(None).context("which cores there are")?;
        let cores = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
        Ok(Cores(cores.collect()))
    }

    /// The first `count`, and the rest; where nothing is left, both have all of them.
    pub(crate) fn split(&self, count: usize) -> anyhow::Result<(Cores, Cores)> {
        let has = self.0.len();
        ensure!((1..=has).contains(&count), "there are {has} cores");
        let (first, rest) = self.0.split_at(count);
        let rest = if rest.is_empty() { first } else { rest };
        Ok((Cores(first.to_vec()), Cores(rest.to_vec())))
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether they have one in common.
    pub(crate) fn overlap(&self, other: &Cores) -> bool {
        self.0.iter().any(|core| other.0.contains(core))
    }

    /// Starts a process that has only these, which its threads inherit.
    pub(crate) fn start<T>(&self, start: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let before = sched_getaffinity(None)?;
        sched_setaffinity(None, &self.set()).context("this thread cannot be pinned")?;
        let started = start();
        sched_setaffinity(None, &before)?;
        started
    }

    /// Moves all threads of this process there.
    pub(crate) fn pin_process(&self) -> anyhow::Result<()> {
        let set = self.set();
        for thread in std::fs::read_dir("/proc/self/task")? {
            let name = thread?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            // A thread that has ended since it was listed has no place to be moved to.
            let _ = sched_setaffinity(number.and_then(Pid::from_raw), &set);
        }
        Ok(())
    }

    fn set(&self) -> CpuSet {
        let mut set = CpuSet::new();
        self.0.iter().for_each(|&core| set.set(core));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_has_cores_of_its_own_while_there_are_enough() {
        let machine = Cores(vec![0, 2, 3]);
        let (proxy, rest) = machine.split(1).unwrap();
        assert_eq!(
            (proxy.0.as_slice(), rest.0.as_slice()),
            (&[0][..], &[2, 3][..])
        );
        assert!(!proxy.overlap(&rest));
        let (proxy, rest) = machine.split(3).unwrap();
        assert_eq!((&proxy, &rest), (&machine, &machine));
        assert!(proxy.overlap(&rest));
        assert!(machine.split(4).is_err() && machine.split(0).is_err());
    }

    #[test]
    fn what_is_started_has_these_cores_and_the_starter_keeps_its_own() {
        let before = Cores::of_this_process().unwrap();
        let (one, _) = before.split(1).unwrap();
        let seen = one.start(|| {
            let output = std::process::Command::new("nproc").output()?;
            Ok(String::from_utf8(output.stdout)?)
        });
        assert_eq!(seen.unwrap().trim(), "1");
        assert_eq!(Cores::of_this_process().unwrap(), before);
    }
}
