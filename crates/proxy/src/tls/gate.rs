//! The gate in front of what a handshake costs: it is passed with a fair share, and in turn.

use std::time::Duration;

use super::accept::HandshakeError;
use super::park::ParkedHandshakes;
use crate::admission::share::Owner;
use crate::admission::silent::source_of;
use crate::admission::turns::HandshakeTurn;
use crate::limits::Reached;
use crate::local::Local;
use crate::route::downstream_connection::DownstreamConnection;
use crate::telemetry::count::Count;

/// The bounds of a handshake.
pub struct Gate<'a> {
    /// The worker's belongings.
    pub local: &'a Local,
    /// The handshakes that wait for a certificate which is obtained on demand.
    pub parked: &'a ParkedHandshakes,
    /// The connection.
    pub visit: &'a DownstreamConnection,
}

impl Gate<'_> {
    /// Waits for the turn of a domain, however many handshakes it has already: who comes in a
    /// burst is served late, and not refused.
    ///
    /// # Errors
    /// The domain has more than its share of connections, memory is short, or the wait was too
    /// long.
    pub async fn enter(&self, owner: Owner) -> Result<HandshakeTurn<'_>, HandshakeError> {
        let counts = &self.local.counts;
        if !self.visit.belong_to(owner, self.local) {
            counts.add(Count::ShareConnections);
            return Err(HandshakeError::Shed);
        }
        self.turn(owner).await
    }

    /// Waits for a turn of a domain to which the connection belongs already.
    ///
    /// # Errors
    /// Memory is short, or the wait was too long.
    pub async fn turn(&self, owner: Owner) -> Result<HandshakeTurn<'_>, HandshakeError> {
        let (limits, counts) = (&self.local.limits, &self.local.counts);
        let shares = &self.local.fairness.handshakes;
        if let Some(turn) = self.local.turns.begin(owner, shares) {
            return Ok(turn);
        }
        if self.local.fairness.sheds() {
            counts.add(Count::ShareHandshakes);
            return Err(HandshakeError::Shed);
        }
        if shares.is_scarce() {
            counts.add(Count::HandshakeQueued);
        }
        let source = source_of(self.visit.client.ip());
        within(limits.turn_timeout, self.local.turns.wait(owner, source))
            .await
            .ok_or_else(|| {
                counts.add_reached(Reached::TurnTimeout);
                HandshakeError::Shed
            })
    }
}

async fn within<T>(timeout: Duration, waiting: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(timeout, waiting).await.ok()
}
