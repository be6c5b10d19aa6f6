//! Where the control loop's commits take effect: in this process, or in proxies elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use myriad_model::wire::SCHEMA;
use myriad_model::{Change, Commit, Delta, Kind, Snapshot};
use myriad_proxy::Proxy;
use myriad_sync::Views;
use myriad_translate::{Engine, FindingsChange, MAIN};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::board::Board;
use crate::control::Addresses;
use crate::controller::word::Word;
use crate::live::{Live, Newcomer};
use crate::signals;

/// What stands behind the control loop.
pub trait Outlet {
    /// Hands on what a batch changed. `snapshot` is the state after it.
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board);

    /// Hands on what the other views have, and which of them changed.
    fn publish_others(&mut self, _views: &Engine, _changed: &[(Arc<str>, Delta)]) {}

    /// Called about once a second: tries again what could not be taken before.
    fn tick(&mut self, _board: &Board) {}

    /// Passes findings on to people who have not heard of them.
    fn tell(&mut self, _findings: &FindingsChange) {}

    /// Passes on which Ingresses are served, and which are not any more.
    fn state(&mut self, _served: &[Arc<str>], _unserved: &[Arc<str>]) {}

    /// Passes on all Ingresses that are served.
    fn restate(&mut self, _served: &mut dyn Iterator<Item = &Arc<str>>) {}

    /// Called once, when the first snapshot is in service.
    fn go_live(&mut self) {}

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
    /// Cancelled once the first snapshot is in service.
    is_live: CancellationToken,
    /// The longest that a drain may take.
    drain_longest: Duration,
}

/// The number of the one stream that there is in a process that serves itself.
const HERE: u64 = 0;

impl Here {
    /// This proxy, which shows up as connected. `is_live` is cancelled once it serves.
    pub fn new(
        proxy: Proxy,
        live: Live,
        is_live: CancellationToken,
        drain_longest: Duration,
    ) -> Here {
        let newcomer = Newcomer {
            subject: "this process".into(),
            view: MAIN.into(),
            instance: crate::process::host_name(),
            schema: SCHEMA,
        };
        live.connected(HERE, newcomer);
        Here {
            proxy,
            live,
            refused: Vec::new(),
            is_live,
            drain_longest,
        }
    }
}

/// Proxies elsewhere. Each stream compares the newest snapshot with what its proxy has, so that a
/// slow one is never queued for.
pub struct Fleet {
    /// What the proxies of each view are told from.
    views: Views,
    main: Arc<str>,
    /// The newest snapshots, by view.
    newest: BTreeMap<Arc<str>, watch::Sender<Snapshot>>,
    /// What goes back into the cluster.
    word: Word,
}

impl Fleet {
    /// Proxies that follow these views, of which there is none yet.
    pub fn new(views: Views, word: Word) -> Fleet {
        Fleet {
            views,
            main: MAIN.into(),
            newest: BTreeMap::new(),
            word,
        }
    }

    /// Shows the newest snapshot of a view. Proxies are woken where it changed; where it did
    /// not, there is another position all the same.
    fn show(&mut self, view: &Arc<str>, snapshot: &Snapshot, has_changed: bool) {
        if let Some(newest) = self.newest.get(view) {
            newest.send_if_modified(|newest| {
                newest.clone_from(snapshot);
                has_changed
            });
            return;
        }
        let (sender, receiver) = watch::channel(snapshot.clone());
        match self.views.put(view, receiver) {
            Ok(()) => drop(self.newest.insert(view.clone(), sender)),
            Err(error) => tracing::error!(%view, "is not served: {error}"),
        }
    }
}

impl Here {
    fn apply(&mut self, commit: &Commit, board: &Board) {
        let applied = self.proxy.apply(commit);
        board.holdings().apply(&commit.changes);
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

    fn go_live(&mut self) {
        self.proxy.go_live();
        self.is_live.cancel();
    }

    fn addresses(&self) -> Addresses {
        self.proxy.addresses()
    }

    async fn drain(self) {
        signals::tell_drain(self.proxy.connections(), self.drain_longest);
        self.proxy.drain().await;
    }
}

impl Outlet for Fleet {
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board) {
        board.work().commits.inc_by(u64::from(!delta.is_empty()));
        board.holdings().apply(delta.changes());
        let main = self.main.clone();
        self.show(&main, snapshot, true);
    }

    fn publish_others(&mut self, engine: &Engine, changed: &[(Arc<str>, Delta)]) {
        if self.newest.len() == 1 && engine.views().nth(1).is_none() {
            return;
        }
        let changed: BTreeSet<&Arc<str>> = changed.iter().map(|(view, _)| view).collect();
        let mut gone: BTreeSet<Arc<str>> = self.newest.keys().cloned().collect();
        for (view, snapshot) in engine.views() {
            gone.remove(&view.name);
            if *view.name != *MAIN {
                self.show(&view.name, snapshot, changed.contains(&view.name));
            }
        }
        for view in gone {
            // The streams of its proxies end with the sender.
            self.views.remove(&view);
            self.newest.remove(&view);
        }
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
