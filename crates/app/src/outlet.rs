//! Where the control loop's commits take effect: in this process, or in proxies elsewhere.

use std::sync::Arc;

use myriad_model::{Delta, Snapshot};
use myriad_proxy::Proxy;
use myriad_translate::FindingsChange;
use tokio::sync::watch;

use crate::board::Board;
use crate::control::Addresses;
use crate::controller::word::Word;

/// What stands behind the control loop.
pub trait Outlet {
    /// Hands on what a batch changed. `snapshot` is the state after it.
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board);

    /// Passes on to people what is new to them: findings, and Ingresses that are served.
    fn tell(&mut self, _findings: &FindingsChange, _served: &[Arc<str>]) {}

    /// Passes on all Ingresses that are served.
    fn restate(&mut self, _served: &mut dyn Iterator<Item = &Arc<str>>) {}

    /// Where listeners are bound, by name.
    fn addresses(&self) -> Addresses;

    /// Ends what was started, gracefully.
    fn drain(self) -> impl Future<Output = ()>;
}

/// A proxy in this process: it shares the snapshot's values.
pub struct Here(pub Proxy);

/// Proxies elsewhere. Each stream compares the newest snapshot with what its proxy has, so that a
/// slow one is never queued for.
pub struct Fleet {
    /// The newest snapshot.
    pub newest: watch::Sender<Snapshot>,
    /// What goes back into the cluster.
    pub word: Word,
}

impl Outlet for Here {
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board) {
        for commit in delta.into_commits(snapshot.position().clone()) {
            let applied = self.0.apply(&commit);
            let work = board.work();
            work.commits.inc();
            work.table_nodes_copied.inc_by(applied.nodes_copied);
            for receipt in &applied.refused {
                tracing::warn!(resource = %receipt.key, reason = %receipt.reason, "refused");
            }
            board.set_receipts(&commit, applied.refused);
        }
    }

    fn addresses(&self) -> Addresses {
        self.0.addresses()
    }

    async fn drain(self) {
        self.0.drain().await;
    }
}

impl Outlet for Fleet {
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board) {
        board.work().commits.inc_by(u64::from(!delta.is_empty()));
        self.newest.send_replace(snapshot.clone());
    }

    fn tell(&mut self, findings: &FindingsChange, served: &[Arc<str>]) {
        self.word.tell(findings);
        self.word.state(served);
    }

    fn restate(&mut self, served: &mut dyn Iterator<Item = &Arc<str>>) {
        self.word.state(served);
    }

    fn addresses(&self) -> Addresses {
        Addresses::new()
    }

    async fn drain(self) {}
}
