//! The outlet of a process whose proxies are elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_model::{Delta, Snapshot};
use myriad_sync::Views;
use myriad_translate::{ClaimsChange, Engine, FindingsChange, MAIN};
use tokio::sync::watch;

use super::claims::Claims;
use super::word::Word;
use crate::board::Board;
use crate::control::{Addresses, Outlet};

/// Proxies elsewhere. Each stream compares the newest snapshot with what its proxy has, so that a
/// slow one is never queued for.
pub(super) struct Fleet {
    /// The snapshots that the proxies of each view are told from.
    views: Views,
    main: Arc<str>,
    /// The newest snapshots, by view.
    newest: BTreeMap<Arc<str>, watch::Sender<Snapshot>>,
    /// The statuses and Events that go back into the cluster.
    word: Word,
    /// The claims to hosts that no object tells of.
    claims: Claims,
    /// Whether the first list is complete: what is served by then is reviewed as a whole.
    is_live: bool,
}

impl Fleet {
    /// Proxies that follow these views, of which there is none yet.
    pub(super) fn new(views: Views, word: Word, claims: Claims) -> Fleet {
        Fleet {
            views,
            main: MAIN.into(),
            newest: BTreeMap::new(),
            word,
            claims,
            is_live: false,
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

    fn claims(&mut self, changed: ClaimsChange) {
        self.claims.take(changed);
    }

    fn state(&mut self, served: &[Arc<str>], unserved: &[Arc<str>]) {
        if !self.is_live {
            return;
        }
        self.word.state(served);
        self.word.take_back(unserved);
    }

    fn restate(&mut self, served: &mut dyn Iterator<Item = &Arc<str>>) {
        self.word.review(served);
    }

    fn go_live(&mut self) {
        self.is_live = true;
    }

    fn addresses(&self) -> Addresses {
        Addresses::new()
    }

    async fn drain(self) {}
}
