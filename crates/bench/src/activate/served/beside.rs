//! Changes beside those that are timed: routes of other domains, at a constant rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::activate::samples::Pace;

/// Domains whose routes are changed, each in its turn.
pub(super) const CHURNED: u64 = 100;

/// Changes on a thread of their own, until they are stopped.
pub(in crate::activate) struct Beside {
    is_over: Arc<AtomicBool>,
    begun: Instant,
    thread: JoinHandle<anyhow::Result<u64>>,
}

/// The changes that came to pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(in crate::activate) struct Changed {
    /// How many.
    pub changes: u64,
    /// Their rate.
    pub changes_per_second: f64,
}

impl Beside {
    /// Starts changes at this rate. `change` is given the place of a domain among so many, and
    /// whether its route is to be edited or to be as it was.
    ///
    /// # Errors
    /// There is none, or the system starts no thread.
    pub(super) fn start(
        per_second: f64,
        domains: usize,
        mut change: impl FnMut(usize, bool) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Beside> {
        ensure!(
            domains > 0,
            "no route is left to be changed: take more domains or fewer samples"
        );
        let is_over = Arc::new(AtomicBool::new(false));
        let ending = is_over.clone();
        let thread = std::thread::Builder::new().name("beside".to_owned());
        let thread = thread.spawn(move || {
            let mut pace = Pace::new(per_second);
            let mut turns = turns(domains);
            let mut changes = 0;
            while !ending.load(Ordering::Relaxed) {
                pace.wait();
                let (place, is_edited) = turns.next().context("there is a domain to change")?;
                change(place, is_edited)?;
                changes += 1;
            }
            anyhow::Ok(changes)
        })?;
        Ok(Beside {
            is_over,
            begun: Instant::now(),
            thread,
        })
    }

    /// Stops them, and says how many there were.
    ///
    /// # Errors
    /// The first that failed.
    pub(in crate::activate) fn stop(self) -> anyhow::Result<Changed> {
        self.is_over.store(true, Ordering::Relaxed);
        let changes = self.thread.join().ok().context("the changes panicked")??;
        Ok(Changed::new(changes, self.begun.elapsed()))
    }
}

impl Changed {
    fn new(changes: u64, took: Duration) -> Changed {
        let rate = changes as f64 / took.as_secs_f64().max(f64::EPSILON);
        Changed {
            changes,
            changes_per_second: (rate * 10.0).round() / 10.0,
        }
    }
}

/// Each domain, of which there is one, in its turn: edited in the first round, back in the next,
/// and so on.
fn turns(domains: usize) -> impl Iterator<Item = (usize, bool)> {
    let rounds = [true, false].into_iter().cycle();
    rounds.flat_map(move |is_edited| (0..domains).map(move |place| (place, is_edited)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_edited_is_taken_back_in_the_next_round() {
        let first: Vec<_> = turns(2).take(5).collect();
        let round = [(0, true), (1, true), (0, false), (1, false), (0, true)];
        assert_eq!(first, round);
    }

    #[test]
    fn a_rate_is_that_of_the_time_it_took() {
        let changed = Changed::new(41, Duration::from_secs(2));
        assert_eq!((changed.changes, changed.changes_per_second), (41, 20.5));
    }

    #[test]
    fn changes_come_until_they_are_stopped_and_a_failure_is_told() {
        let beside = Beside::start(1_000.0, 1, |_, _| Ok(())).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(beside.stop().unwrap().changes > 0);
        let failing = Beside::start(1_000.0, 1, |_, _| anyhow::bail!("refused")).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(failing.stop().is_err());
        assert!(Beside::start(1_000.0, 0, |_, _| Ok(())).is_err());
    }
}
