//! Where the control loop's commits take effect: in this process, or in proxies elsewhere.

use std::sync::Arc;

use myriad_model::wire::SCHEMA;
use myriad_model::{Change, Commit, Delta, Kind, Snapshot};
use myriad_proxy::Proxy;
use myriad_translate::FindingsChange;
use tokio::sync::watch;

use crate::board::Board;
use crate::control::Addresses;
use crate::controller::word::Word;
use crate::live::{Live, Newcomer};

/// What stands behind the control loop.
pub trait Outlet {
    /// Hands on what a batch changed. `snapshot` is the state after it.
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board);

    /// Called about once a second: tries again what could not be taken before.
    fn tick(&mut self, _board: &Board) {}

    /// Passes findings on to people who have not heard of them.
    fn tell(&mut self, _findings: &FindingsChange) {}

    /// Passes on which Ingresses are served, and which are not any more.
    fn state(&mut self, _served: &[Arc<str>], _unserved: &[Arc<str>]) {}

    /// Passes on all Ingresses that are served.
    fn restate(&mut self, _served: &mut dyn Iterator<Item = &Arc<str>>) {}

    /// Where listeners are bound, by name.
    fn addresses(&self) -> Addresses;

    /// Ends what was started, gracefully.
    fn drain(self) -> impl Future<Output = ()>;
}

/// A proxy in this process: it shares the snapshot's values.
pub struct Here {
    proxy: Proxy,
    live: Live,
    /// Changes of listeners that were refused, and may be taken another time.
    refused: Vec<Change>,
}

/// The number of the one stream that there is in a process that serves itself.
const HERE: u64 = 0;

impl Here {
    /// This proxy, which shows up as connected.
    pub fn new(proxy: Proxy, live: Live) -> Here {
        let newcomer = Newcomer {
            subject: "this process".into(),
            instance: crate::process::host_name(),
            schema: SCHEMA,
        };
        live.connected(HERE, newcomer);
        Here {
            proxy,
            live,
            refused: Vec::new(),
        }
    }
}

/// Proxies elsewhere. Each stream compares the newest snapshot with what its proxy has, so that a
/// slow one is never queued for.
pub struct Fleet {
    /// The newest snapshot.
    pub newest: watch::Sender<Snapshot>,
    /// What goes back into the cluster.
    pub word: Word,
}

impl Here {
    fn apply(&mut self, commit: &Commit, board: &Board) {
        let applied = self.proxy.apply(commit);
        let work = board.work();
        work.commits.inc();
        work.table_nodes_copied.inc_by(applied.nodes_copied);
        for receipt in &applied.refused {
            tracing::warn!(resource = %receipt.key, reason = %receipt.reason, "refused");
        }
        for change in &commit.changes {
            if change.key.kind == Kind::Listener {
                self.refused.retain(|known| known.key != change.key);
                let mut receipts = applied.refused.iter();
                if receipts.any(|receipt| receipt.key == change.key) {
                    self.refused.push(change.clone());
                }
            }
        }
        board.set_receipts(commit, applied.refused);
    }
}

impl Outlet for Here {
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board) {
        for commit in delta.into_commits(snapshot.position().clone()) {
            self.apply(&commit, board);
        }
        let position = snapshot.position().clone();
        self.live.acked(HERE, snapshot.digest(), position);
    }

    fn tick(&mut self, board: &Board) {
        if !self.proxy.take_bindable() {
            return;
        }
        let commit = Commit {
            changes: std::mem::take(&mut self.refused),
            position: board.snapshot().position().clone(),
        };
        self.apply(&commit, board);
    }

    fn addresses(&self) -> Addresses {
        self.proxy.addresses()
    }

    async fn drain(self) {
        self.proxy.drain().await;
    }
}

impl Outlet for Fleet {
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board) {
        board.work().commits.inc_by(u64::from(!delta.is_empty()));
        self.newest.send_replace(snapshot.clone());
    }

    fn tell(&mut self, findings: &FindingsChange) {
        self.word.tell(findings);
    }

    fn state(&mut self, served: &[Arc<str>], unserved: &[Arc<str>]) {
        self.word.state(served);
        self.word.take_back(unserved);
    }

    fn restate(&mut self, served: &mut dyn Iterator<Item = &Arc<str>>) {
        self.word.state(served);
    }

    fn addresses(&self) -> Addresses {
        Addresses::new()
    }

    async fn drain(self) {}
}
