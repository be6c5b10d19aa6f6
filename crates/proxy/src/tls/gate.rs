//! The gate in front of what a handshake costs: it is passed with a fair share, and in turn.

use std::cell::{Cell, OnceCell};

use super::accept::HandshakeError;
use super::turns::Turns;
use crate::net::count::{Count, Counts};
use crate::net::limits::Limits;
use crate::net::share::{Fairness, Held};

/// What a handshake is held to.
pub struct Gate<'a> {
    /// The limits.
    pub limits: &'a Limits,
    /// The worker's counts.
    pub counts: &'a Counts,
    /// What each domain holds.
    pub fairness: &'a Fairness,
    /// Whose turn it is.
    pub turns: &'a Turns,
    /// The worker's handshakes, this one included.
    pub under_way: &'a Cell<usize>,
    /// The worker's connections, this one included.
    pub connections: &'a Cell<usize>,
    /// What the connection counts for among those of its domain.
    pub held: &'a OnceCell<Held>,
}

impl Gate<'_> {
    /// Waits for the turn of a domain. What is returned is one of its handshakes.
    ///
    /// # Errors
    /// The domain has more than its share of handshakes or connections.
    pub async fn enter(&self, domain: u64) -> Result<Held, HandshakeError> {
        let handshakes = &self.fairness.handshakes;
        let beside = self.under_way.get().saturating_sub(handshakes.held() + 1);
        let Some(handshake) = handshakes.take(domain, beside) else {
            self.counts.add(Count::ShareHandshakes);
            return Err(HandshakeError::Shed);
        };
        let all = self.connections.get();
        let Some(connection) = self.fairness.take_connection(domain, all) else {
            self.counts.add(Count::ShareConnections);
            return Err(HandshakeError::Shed);
        };
        // A connection has one handshake.
        let _ = self.held.set(connection);
        self.turns.wait(domain).await;
        Ok(handshake)
    }
}
