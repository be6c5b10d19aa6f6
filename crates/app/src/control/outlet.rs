//! The outlet of the control loop's commits. The code that serves, or tells proxies what to serve,
//! implements it.

use std::net::SocketAddr;
use std::sync::Arc;

use myriad_base::clock::Instant;
use myriad_model::{Delta, Name, Snapshot};
use myriad_translate::{ClaimsChange, Engine, FindingsChange};

use crate::board::Board;
use crate::stated::StatedChange;

/// The addresses where listeners are bound, by name.
pub type Addresses = Vec<(Name, SocketAddr)>;

/// The part of the process that puts commits into effect.
pub trait Outlet {
    /// Told before a batch is published: when the oldest of its changes was noticed.
    fn noticed(&mut self, _since: Instant) {}

    /// Hands on what a batch changed. `snapshot` is the state after it.
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board);

    /// Hands on what the other views have: which of them changed or came, and which are gone.
    fn publish_others(
        &mut self,
        _engine: &Engine,
        _changed: &[(Arc<str>, Delta)],
        _gone: &[Arc<str>],
    ) {
    }

    /// Called about once a second: tries again what could not be taken before.
    fn tick(&mut self, _board: &Board) {}

    /// Passes findings on to people who have not heard of them.
    fn tell(&mut self, _findings: &FindingsChange) {}

    /// Keeps since when objects claim hosts.
    fn claims(&mut self, _changed: ClaimsChange) {}

    /// Passes on which Ingresses are served, and which are not any more.
    fn state(&mut self, _served: &[Arc<str>], _unserved: &[Arc<str>]) {}

    /// Passes on which objects have another status.
    fn state_objects(&mut self, _changed: &[StatedChange]) {}

    /// Passes on all Ingresses that are served.
    fn restate(&mut self, _served: &mut dyn Iterator<Item = &Arc<str>>) {}

    /// Called once, when the first snapshot is in service.
    fn go_live(&mut self) {}

    /// The addresses where listeners are bound, by name.
    fn addresses(&self) -> Addresses;

    /// Ends what was started, gracefully.
    fn drain(self) -> impl Future<Output = ()>;
}
