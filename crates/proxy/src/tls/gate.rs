//! The gate in front of what a handshake costs: it is passed with a fair share, and in turn.

use super::accept::HandshakeError;
use super::park::ParkedHandshakes;
use crate::admission::holdings::HeldBytes;
use crate::admission::share::Owner;
use crate::admission::silent::source_of;
use crate::admission::turns::HandshakeTurn;
use crate::limits::Reached;
use crate::local::Local;
use crate::net::allowance::Allowance;
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
    /// burst is served late, and not refused. The connection is none of the domain's as yet, since
    /// anybody can begin handshakes for its name.
    ///
    /// # Errors
    /// The domain has more than its share of connections, memory is short, or the wait was too
    /// long.
    pub async fn enter(&self, owner: Owner) -> Result<HandshakeTurn<'_>, HandshakeError> {
        if !self.visit.may_belong_to(owner, self.local) {
            return Err(self.refuse());
        }
        let mut time = Allowance::new(self.local.limits.turn_timeout);
        self.turn(owner, &mut time).await
    }

    /// Counts the connection as one of a domain's, since its handshake is done.
    ///
    /// # Errors
    /// The domain has more than its share of connections, or this one has made room for another.
    pub(super) fn settle(&self, owner: Owner) -> Result<(), HandshakeError> {
        self.visit.work();
        if self.visit.is_evicted() {
            return Err(HandshakeError::Shed);
        }
        match self.visit.belong_to(owner, self.local) {
            true => Ok(()),
            false => Err(self.refuse()),
        }
    }

    fn refuse(&self) -> HandshakeError {
        self.local.counts.add(Count::ShareConnections);
        HandshakeError::Shed
    }

    /// Takes note of how much is held for a handshake that waits for its client. Where that is too
    /// much, another goes for it: of the source that has most of them the oldest.
    ///
    /// # Errors
    /// There is no other.
    pub(super) fn hold(&self, held: &mut HeldBytes, bytes: usize) -> Result<(), HandshakeError> {
        if bytes > held.bytes() && !held.may_grow() {
            self.local.counts.add_reached(Reached::AllHeldBytes);
            if !self.local.room.exchange_handshake() {
                return Err(HandshakeError::Shed);
            }
        }
        held.set(bytes);
        self.visit.keep(bytes);
        Ok(())
    }

    /// Waits for a further turn of a domain, for as long as is left for its turns.
    ///
    /// # Errors
    /// Memory is short, or the wait was too long.
    pub(super) async fn turn(
        &self,
        owner: Owner,
        time: &mut Allowance,
    ) -> Result<HandshakeTurn<'_>, HandshakeError> {
        let counts = &self.local.counts;
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
        let waited = time.wait(self.local.turns.wait(owner, source)).await;
        waited.map_err(|_| {
            counts.add_reached(Reached::TurnTimeout);
            HandshakeError::Shed
        })
    }
}
