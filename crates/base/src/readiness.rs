//! Readiness: what still has to happen before the process may be sent traffic.

use std::sync::{Arc, Mutex, PoisonError};

/// A set of named conditions; the process is ready when none is pending. Cheap to clone.
#[derive(Clone, Default)]
pub struct Readiness {
    pending: Arc<Mutex<Vec<&'static str>>>,
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
        self.lock().push(name);
        Condition {
            name,
            readiness: self.clone(),
        }
    }

    /// The names of what is waited for; empty means ready.
    pub fn pending(&self) -> Vec<&'static str> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<&'static str>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Condition {
    /// The condition holds.
    pub fn meet(&self) {
        self.readiness.lock().retain(|name| *name != self.name);
    }

    /// The condition holds no longer, for instance because a drain has begun.
    pub fn revoke(&self) {
        let mut pending = self.readiness.lock();
        if !pending.contains(&self.name) {
            pending.push(self.name);
        }
    }
}
