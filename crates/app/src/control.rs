//! The control loop: one inbox, one writer, and the only place where batching is written.

use myriad_api::{Batch, Change};
use myriad_base::clock;
use myriad_base::readiness::Condition;
use myriad_model::{Delta, Position};
use myriad_proxy::Proxy;
use myriad_translate::{Engine, Outcome};
use tokio::sync::{mpsc, watch};

use crate::board::Board;

/// Everything that can wake the control loop.
#[derive(Debug)]
pub enum Event {
    /// A source saw objects change.
    Changed(Batch),
    /// The process was asked to stop.
    Stop,
}

/// The most events that wait in the inbox. A source that finds it full waits: what would pile up
/// here during a first list is memory that a million small objects leave in pieces.
pub const INBOX_EVENTS_MAX: usize = 32;

/// The most changes that are translated at once, so that one flood does not make everybody
/// else wait for all of it.
pub const BATCH_CHANGES_MAX: usize = 16_384;

/// The longest sleep until the next look at the calendar, so that a clock that jumps is noticed.
const TICK_SECONDS_MAX: i64 = 60;

/// The one writer: owns the engine and the proxy's control handle.
pub struct Control {
    engine: Engine,
    proxy: Proxy,
    board: Board,
    batches: u64,
    /// Whether the first list is complete: before its end absence means nothing.
    is_listed: bool,
    ready: Condition,
    addresses: watch::Sender<Option<Addresses>>,
}

/// Where listeners are bound, by name.
pub type Addresses = Vec<(myriad_model::Name, std::net::SocketAddr)>;

impl Control {
    /// A control loop that has seen nothing yet. `ready` is met, and `addresses` announced, when
    /// the first snapshot serves.
    pub fn new(
        engine: Engine,
        proxy: Proxy,
        board: Board,
        ready: Condition,
        addresses: watch::Sender<Option<Addresses>>,
    ) -> Self {
        Control {
            engine,
            proxy,
            board,
            batches: 0,
            is_listed: false,
            ready,
            addresses,
        }
    }

    /// Handles events until asked to stop, then drains the proxy.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Event>) {
        loop {
            let event = tokio::select! {
                event = inbox.recv() => event,
                () = sleep_until(self.engine.next_deadline()) => {
                    let outcome = self.engine.tick(clock::unix_seconds());
                    self.publish(outcome);
                    continue;
                }
            };
            match event {
                Some(Event::Changed(batch)) => {
                    if !self.handle(batch, &mut inbox) {
                        break;
                    }
                }
                Some(Event::Stop) | None => break,
            }
        }
        self.ready.revoke();
        self.proxy.drain().await;
    }

    /// Handles a batch together with all that has queued behind it. An idle inbox has nothing
    /// queued, so a single change is handled at once. Returns whether to go on.
    fn handle(&mut self, first: Batch, inbox: &mut mpsc::Receiver<Event>) -> bool {
        let mut changes = first.changes;
        let mut synced = first.synced;
        first
            .reports
            .into_iter()
            .for_each(|report| self.board.set_report(report));
        let mut is_asked_to_stop = false;
        while changes.len() < BATCH_CHANGES_MAX {
            match inbox.try_recv() {
                Ok(Event::Changed(next)) => {
                    changes.extend(next.changes);
                    synced |= next.synced;
                    next.reports
                        .into_iter()
                        .for_each(|report| self.board.set_report(report));
                }
                Ok(Event::Stop) => {
                    is_asked_to_stop = true;
                    break;
                }
                Err(_) => break,
            }
        }
        self.board.work().batches.inc();
        self.translate(changes, synced);
        !is_asked_to_stop
    }

    fn translate(&mut self, changes: Vec<Change>, synced: bool) {
        if !self.is_listed && !synced {
            self.engine.load(changes);
            return;
        }
        let outcome = self.engine.apply(changes, clock::unix_seconds());
        self.publish(outcome);
        if !std::mem::replace(&mut self.is_listed, true) {
            // Published before the condition is met, so that who waits for it finds them.
            self.board.pick_sample(self.engine.snapshot());
            self.addresses.send_replace(Some(self.proxy.addresses()));
            self.ready.meet();
        }
    }

    /// Hands an outcome on: the delta to the proxy, findings and counts to the board.
    fn publish(&mut self, outcome: Outcome) {
        self.batches += 1;
        let position = Position::counter(0, self.batches);
        self.engine.set_position(position.clone());
        let work = self.board.work().clone();
        work.units_translated.inc_by(outcome.work.units_translated);
        work.objects_visited.inc_by(outcome.work.objects_visited);
        work.resources_changed
            .inc_by(outcome.work.resources_changed);
        work.bytes_encoded.inc_by(outcome.work.bytes_encoded);
        self.apply(outcome.delta, &position);
        self.board.change_findings(outcome.findings);
        self.board
            .set_snapshot(self.engine.snapshot(), self.batches);
    }

    fn apply(&mut self, delta: Delta, position: &Position) {
        for commit in delta.into_commits(position.clone()) {
            let applied = self.proxy.apply(&commit);
            self.board.work().commits.inc();
            self.board
                .work()
                .table_nodes_copied
                .inc_by(applied.nodes_copied);
            for receipt in &applied.refused {
                tracing::warn!(resource = %receipt.key, reason = %receipt.reason, "refused");
            }
            self.board.set_receipts(&commit, applied.refused);
        }
    }
}

async fn sleep_until(deadline: Option<i64>) {
    let now = clock::unix_seconds();
    let seconds = match deadline {
        Some(deadline) => (deadline - now).clamp(0, TICK_SECONDS_MAX),
        None => return std::future::pending().await,
    };
    // A deadline that has passed is due within a second: certificates do not expire oftener.
    let seconds = u64::try_from(seconds.max(1)).unwrap_or(1);
    tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
}
