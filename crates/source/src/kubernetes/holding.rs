//! Objects that a watch keeps although a list did not show them, as people are told and confirm.

use myriad_base::hold::{Holds, Loss};
use tokio::sync::watch;

use super::core::Scope;

/// The part of a watch that tells people what it holds, and hears of confirmations.
pub(super) struct Holding {
    holds: Holds,
    confirmations: watch::Receiver<u64>,
    told: Option<Loss>,
}

impl Holding {
    /// Nothing is held.
    pub(super) fn new(holds: &Holds) -> Self {
        Holding {
            holds: holds.clone(),
            confirmations: holds.confirmations(),
            told: None,
        }
    }

    /// Tells what is held now.
    pub(super) fn tell(&mut self, scope: &Scope, loss: Option<Loss>) {
        if self.told != loss {
            self.told = loss;
            let namespace = scope.namespace.as_deref().unwrap_or("all namespaces");
            let holder = format!("{} of {namespace}", scope.kind.full_name());
            self.holds.set(&holder, loss);
        }
    }

    /// Waits until what is held is confirmed.
    pub(super) async fn confirmed(&mut self) {
        if self.confirmations.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
