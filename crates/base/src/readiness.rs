//! Readiness: what still has to happen before the process may be sent traffic.

use std::sync::{Arc, Mutex, PoisonError};

/// A set of named conditions; the process is ready when none is pending. Cheap to clone.
#[derive(Clone, Default)]
pub struct Readiness {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    pending: Vec<&'static str>,
    is_handed_over: bool,
}

/// A condition that is pending until it is met.
pub struct Condition {
    name: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// Ready, until conditions are added.
    pub fn new() -> Self {
        Readiness::default()
    }

    /// Adds a pending condition. Name it by what is waited for, such as `first snapshot`.
    pub fn require(&self, name: &'static str) -> Condition {
        self.lock().pending.push(name);
        Condition {
            name,
            readiness: self.clone(),
        }
    }

    /// The names of what is waited for; empty means ready.
    pub fn pending(&self) -> Vec<&'static str> {
        self.lock().pending.clone()
    }

    /// Another process that is ready answers at this one's addresses from here on. A probe that
    /// this process has accepted already asks about those addresses, not about its drain, so no
    /// condition is revoked any more.
    pub fn hand_over(&self) {
        self.lock().is_handed_over = true;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Condition {
    /// The condition holds.
    pub fn meet(&self) {
        let mut state = self.readiness.lock();
        state.pending.retain(|name| *name != self.name);
    }

    /// The condition holds no longer, for instance because a drain has begun.
    pub fn revoke(&self) {
        let mut state = self.readiness.lock();
        if !state.is_handed_over && !state.pending.contains(&self.name) {
            state.pending.push(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Readiness;

    #[test]
    fn a_condition_is_pending_until_it_is_met_and_after_it_is_revoked() {
        let readiness = Readiness::new();
        let condition = readiness.require("the first snapshot");
        assert_eq!(readiness.pending(), ["the first snapshot"]);
        condition.meet();
        assert!(readiness.pending().is_empty());
        condition.revoke();
        condition.revoke();
        assert_eq!(readiness.pending(), ["the first snapshot"]);
    }

    #[test]
    fn a_drain_after_the_handover_leaves_its_addresses_ready() {
        let readiness = Readiness::new();
        let condition = readiness.require("the first snapshot");
        condition.meet();
        readiness.hand_over();
        condition.revoke();
        assert!(readiness.pending().is_empty());
    }
}
