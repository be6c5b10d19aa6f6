//! The outlet of a process whose proxies are elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_base::clock::Instant;
use myriad_model::{Delta, Snapshot};
use myriad_sync::Views;
use myriad_translate::{ClaimsChange, Engine, FindingsChange, MAIN};
use tokio::sync::watch;

use super::claims::Claims;
use super::described::ObjectWord;
use super::word::Word;
use crate::activation;
use crate::board::Board;
use crate::control::{Addresses, Outlet};
use crate::stated::StatedChange;

/// Proxies elsewhere. Each stream compares the newest snapshot with what its proxy has, so that a
/// slow one is never queued for.
pub(super) struct Fleet {
    shown: Shown,
    /// The statuses of Ingresses and the Events that go back into the cluster.
    word: Word,
    /// The statuses of objects of Gateway API.
    objects: ObjectWord,
    /// The claims to hosts that no object tells of.
    claims: Claims,
    /// Whether the first list is complete: what is served by then is reviewed as a whole.
    is_live: bool,
}

/// The snapshots that the proxies of each view are told from. A batch costs the views that it
/// changes: how far all of them are is held once.
struct Shown {
    views: Views,
    main: Arc<str>,
    /// The newest snapshots, by view, as they were when the view last changed.
    newest: BTreeMap<Arc<str>, watch::Sender<Snapshot>>,
    /// When the oldest change of what is shown next was noticed, in microseconds since 1970; 0
    /// where nobody is told.
    noticed_micros: u64,
}

impl Fleet {
    /// Proxies that follow these views, of which there is none yet.
    pub(super) fn new(views: Views, (word, objects): (Word, ObjectWord), claims: Claims) -> Fleet {
        Fleet {
            shown: Shown::new(views),
            word,
            objects,
            claims,
            is_live: false,
        }
    }
}

impl Shown {
    fn new(views: Views) -> Shown {
        Shown {
            views,
            main: MAIN.into(),
            newest: BTreeMap::new(),
            noticed_micros: 0,
        }
    }

    /// Shows the main view, where it changed or is new.
    fn show_main(&mut self, snapshot: &Snapshot, has_changed: bool) {
        if has_changed || !self.newest.contains_key(&self.main) {
            let main = self.main.clone();
            self.show(&main, snapshot.clone());
        }
    }

    /// Shows the views that changed or came, and none of those that are gone.
    fn show_others(&mut self, engine: &Engine, changed: &[(Arc<str>, Delta)], gone: &[Arc<str>]) {
        for view in gone {
            // The streams of its proxies end with the sender.
            self.views.remove(view);
            self.newest.remove(view);
        }
        for (view, _) in changed {
            if let Some(snapshot) = engine.snapshot_of(view) {
                self.show(view, snapshot);
            }
        }
        self.views.advance(engine.snapshot().moment());
    }

    /// Shows the newest snapshot of a view, and wakes its proxies.
    fn show(&mut self, view: &Arc<str>, mut snapshot: Snapshot) {
        snapshot.set_noticed_micros(self.noticed_micros);
        if let Some(newest) = self.newest.get(view) {
            newest.send_replace(snapshot);
            return;
        }
        let (sender, receiver) = watch::channel(snapshot);
        match self.views.put(view, receiver) {
            Ok(()) => drop(self.newest.insert(view.clone(), sender)),
            Err(error) => tracing::error!(%view, "is not served: {error}"),
        }
    }
}

impl Outlet for Fleet {
    fn noticed(&mut self, since: Instant) {
        // What is there at the start was written before anybody could wait for it.
        let micros = activation::since_epoch(since).as_micros();
        let micros = u64::try_from(micros).unwrap_or_default();
        self.shown.noticed_micros = if self.is_live { micros } else { 0 };
    }

    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board) {
        board.work().commits.inc_by(u64::from(!delta.is_empty()));
        board.register(delta.changes());
        self.shown.show_main(snapshot, !delta.is_empty());
    }

    fn publish_others(
        &mut self,
        engine: &Engine,
        changed: &[(Arc<str>, Delta)],
        gone: &[Arc<str>],
    ) {
        self.shown.show_others(engine, changed, gone);
    }

    fn tick(&mut self, _board: &Board) {
        self.shown.views.sweep();
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

    fn state_objects(&mut self, changed: &[StatedChange]) {
        // Who begins to serve reviews everything.
        if self.is_live {
            self.objects.state(changed);
        }
    }

    fn restate(&mut self, served: &mut dyn Iterator<Item = &Arc<str>>) {
        self.word.review(served);
        self.objects.review();
    }

    fn go_live(&mut self) {
        self.is_live = true;
        self.objects.go_live();
        self.claims.hasten();
    }

    fn addresses(&self) -> Addresses {
        Addresses::new()
    }

    async fn drain(self) {}
}

#[cfg(test)]
mod tests;
