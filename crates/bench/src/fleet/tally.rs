//! Which state each proxy has reached, and when all of them are in the same.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use myriad_model::Digest;

/// The states of all proxies.
pub(super) struct Tally {
    state: Mutex<State>,
    changed: Condvar,
}

/// All proxies are in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InStep {
    /// The state.
    pub digest: Digest,
    /// When the last one reached it.
    pub at: Instant,
}

struct State {
    /// The state of each proxy that follows a controller.
    proxies: Vec<Option<Digest>>,
    /// The changes of endpoints that each was told.
    told: Vec<u64>,
    /// How many proxies are in each of these states.
    counts: HashMap<Digest, usize>,
    last: Instant,
}

impl Tally {
    /// A tally of so many proxies, of which none follows a controller.
    pub(super) fn new(proxies: usize) -> Tally {
        let state = State {
            proxies: vec![None; proxies],
            told: vec![0; proxies],
            counts: HashMap::new(),
            last: Instant::now(),
        };
        Tally {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// A proxy has reached a state, or has lost its controller.
    pub(super) fn set(&self, proxy: usize, digest: Option<Digest>) {
        let mut state = self.lock();
        let former = std::mem::replace(&mut state.proxies[proxy], digest);
        state.leave(former);
        if let Some(digest) = digest {
            *state.counts.entry(digest).or_default() += 1;
        }
        state.last = Instant::now();
        if state.counts.len() <= 1 {
            self.changed.notify_all();
        }
    }

    /// A proxy was told so many changes.
    pub(super) fn tell(&self, proxy: usize, changes: u64) {
        self.lock().told[proxy] += changes;
    }

    /// The changes that each was told.
    pub(super) fn told(&self) -> Vec<u64> {
        self.lock().told.clone()
    }

    /// Waits until all proxies are in one state, which is not this one.
    ///
    /// # Errors
    /// They do not get there in time.
    pub(super) fn wait_in_step(
        &self,
        but: Option<Digest>,
        timeout: Duration,
    ) -> anyhow::Result<InStep> {
        let in_step = |state: &State| {
            let (&digest, &count) = state.counts.iter().next()?;
            let are_all = count == state.proxies.len() && but != Some(digest);
            let at = state.last;
            are_all.then_some(InStep { digest, at })
        };
        let waiting = |state: &mut State| in_step(state).is_none();
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let most = state.counts.values().max().copied().unwrap_or(0);
        let all = state.proxies.len();
        in_step(&state).with_context(|| format!("{most} of {all} proxies are in step"))
    }

    /// Waits until all proxies are in this state, and says since when.
    ///
    /// # Errors
    /// They do not get there in time.
    pub(super) fn wait_at(&self, digest: Digest, timeout: Duration) -> anyhow::Result<Instant> {
        let reached = |state: &State| state.counts.get(&digest).copied().unwrap_or(0);
        let waiting = |state: &mut State| reached(state) < state.proxies.len();
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (some, all) = (reached(&state), state.proxies.len());
        ensure!(some == all, "{some} of {all} proxies are in step");
        Ok(state.last)
    }

    /// Waits until no proxy follows a controller.
    ///
    /// # Errors
    /// One still does after this time.
    pub(super) fn wait_alone(&self, timeout: Duration) -> anyhow::Result<()> {
        let waiting = |state: &mut State| !state.counts.is_empty();
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let left: usize = state.counts.values().sum();
        ensure!(left == 0, "{left} proxies still follow a controller");
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn leave(&mut self, former: Option<Digest>) {
        let Some(former) = former else { return };
        if let Some(count) = self.counts.get_mut(&former) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&former);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    #[test]
    fn proxies_are_in_step_when_the_last_one_is() {
        let tally = Tally::new(2);
        tally.set(0, Some(Digest(1)));
        assert!(tally.wait_in_step(None, AT_ONCE).is_err(), "one is missing");
        tally.set(1, Some(Digest(1)));
        assert_eq!(tally.wait_in_step(None, AT_ONCE).unwrap().digest, Digest(1));
        tally.set(0, Some(Digest(2)));
        assert!(tally.wait_in_step(None, AT_ONCE).is_err(), "they differ");
        tally.set(1, Some(Digest(2)));
        let other = tally.wait_in_step(Some(Digest(1)), AT_ONCE).unwrap();
        assert_eq!(other.digest, Digest(2));
        assert!(tally.wait_in_step(Some(Digest(2)), AT_ONCE).is_err());
        assert!(tally.wait_at(Digest(1), AT_ONCE).is_err());
        tally.wait_at(Digest(2), AT_ONCE).unwrap();
    }

    #[test]
    fn changes_are_counted_for_each() {
        let tally = Tally::new(2);
        tally.tell(1, 2);
        tally.tell(1, 1);
        assert_eq!(tally.told(), [0, 3]);
    }

    #[test]
    fn proxies_are_alone_when_the_last_one_has_lost_its_controller() {
        let tally = Tally::new(2);
        tally.set(0, Some(Digest(1)));
        assert!(tally.wait_alone(AT_ONCE).is_err());
        tally.set(0, None);
        tally.wait_alone(AT_ONCE).unwrap();
        assert!(tally.wait_in_step(None, AT_ONCE).is_err());
    }
}
