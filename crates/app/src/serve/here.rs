//! The outlet of a process that serves itself.

use std::time::Duration;

use myriad_base::clock::Instant;
use myriad_base::metrics::Metrics;
use myriad_model::wire::SCHEMA;
use myriad_model::{Change, Commit, Delta, Kind, Snapshot};
use myriad_proxy::Proxy;
use myriad_translate::MAIN;
use tokio_util::sync::CancellationToken;

use crate::acme::Acme;
use crate::activation::Activation;
use crate::board::Board;
use crate::control::{Addresses, Outlet};
use crate::live::{Live, Newcomer, Speaker};
use crate::process;
use crate::signals;

/// A proxy in this process: it shares the snapshot's values.
pub(super) struct Here {
    proxy: Proxy,
    live: Live,
    /// Changes of listeners that were refused, and may be taken another time.
    refused: Vec<Change>,
    /// Cancelled once the first snapshot is in service.
    is_live: CancellationToken,
    /// The longest that a drain may take.
    drain_longest: Duration,
    /// Certificates that are being obtained.
    acme: Option<Acme>,
    /// How long changes took until they were live here.
    activation: Activation,
    /// When the oldest change of what is published next was noticed.
    since: Option<Instant>,
}

/// The number of the one stream that there is in a process that serves itself.
const HERE: u64 = 0;

impl Here {
    /// This proxy, which shows up as connected. `is_live` is cancelled once it serves.
    pub(super) fn new(
        proxy: Proxy,
        (live, metrics): (&Live, &Metrics),
        is_live: CancellationToken,
        drain_longest: Duration,
    ) -> Here {
        let newcomer = Newcomer {
            subject: "this process".into(),
            view: MAIN.into(),
            instance: process::host_name(),
            schema: SCHEMA,
            speaker: Speaker::Operator,
        };
        live.connected(HERE, newcomer);
        Here {
            proxy,
            live: live.clone(),
            refused: Vec::new(),
            is_live,
            drain_longest,
            acme: None,
            activation: Activation::new(metrics),
            since: None,
        }
    }

    /// The same, for as long as which certificates are obtained.
    pub(super) fn with_acme(self, acme: Option<Acme>) -> Here {
        Here { acme, ..self }
    }

    fn apply(&mut self, commit: &Commit, board: &Board) {
        let applied = self.proxy.apply(commit);
        board.register(&commit.changes);
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
    fn noticed(&mut self, since: Instant) {
        self.since = Some(since);
    }

    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, board: &Board) {
        // What is there at the start was written before anybody could wait for it.
        let is_timed = !delta.is_empty() && self.is_live.is_cancelled();
        for commit in delta.into_commits(snapshot.position().clone()) {
            self.apply(&commit, board);
        }
        if let Some(since) = self.since.take().filter(|_| is_timed) {
            self.activation.observe_since(since);
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
        // The next process answers challenges from here on, and obtains what is wanted.
        drop(self.acme);
        signals::tell_drain(self.proxy.connections(), self.drain_longest);
        self.proxy.drain().await;
    }
}
