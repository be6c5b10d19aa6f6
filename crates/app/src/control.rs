//! The control loop: one inbox, one writer, and the only place where batching is written.

use myriad_api::{Batch, Change};
use myriad_base::clock;
use myriad_base::readiness::Condition;
use myriad_model::Position;
use myriad_translate::{Engine, Outcome};
use tokio::sync::{mpsc, watch};

use crate::board::Board;
use crate::outlet::Outlet;

/// Everything that can wake the control loop.
#[derive(Debug)]
pub enum Event {
    /// A source saw objects change.
    Changed(Batch),
    /// Batches from here on count revisions anew.
    Epoch(u64),
    /// Everything that is told to people shall be told again.
    Restate,
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

/// The one writer: owns the engine and what its commits go to.
pub struct Control<O> {
    engine: Engine,
    outlet: O,
    board: Board,
    batches: u64,
    /// How far the sources were read; without revisions of their own, batches are counted.
    position: Position,
    /// Whether the first list is complete: before its end absence means nothing.
    is_listed: bool,
    ready: Condition,
    addresses: watch::Sender<Option<Addresses>>,
}

/// Where listeners are bound, by name.
pub type Addresses = Vec<(myriad_model::Name, std::net::SocketAddr)>;

impl<O: Outlet> Control<O> {
    /// A control loop that has seen nothing yet. `ready` is met, and `addresses` announced, when
    /// the first snapshot serves.
    pub fn new(
        engine: Engine,
        outlet: O,
        board: Board,
        ready: Condition,
        addresses: watch::Sender<Option<Addresses>>,
    ) -> Self {
        Control {
            engine,
            outlet,
            board,
            batches: 0,
            position: Position::default(),
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
                Some(Event::Epoch(epoch)) => self.begin_epoch(epoch),
                Some(Event::Restate) => self.outlet.restate(&mut self.engine.served()),
                Some(Event::Stop) | None => break,
            }
        }
        self.ready.revoke();
        self.outlet.drain().await;
    }

    /// Handles a batch together with all that has queued behind it. An idle inbox has nothing
    /// queued, so a single change is handled at once. Returns whether to go on.
    fn handle(&mut self, first: Batch, inbox: &mut mpsc::Receiver<Event>) -> bool {
        let (mut changes, mut synced) = (Vec::new(), false);
        self.take(first, &mut changes, &mut synced);
        let mut is_asked_to_stop = false;
        while changes.len() < BATCH_CHANGES_MAX {
            match inbox.try_recv() {
                Ok(Event::Changed(next)) => self.take(next, &mut changes, &mut synced),
                Ok(Event::Epoch(epoch)) => {
                    // What came before belongs to the epoch before.
                    self.translate(std::mem::take(&mut changes), synced);
                    self.begin_epoch(epoch);
                }
                Ok(Event::Restate) => self.outlet.restate(&mut self.engine.served()),
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

    fn take(&mut self, batch: Batch, changes: &mut Vec<Change>, synced: &mut bool) {
        if changes.is_empty() {
            *changes = batch.changes;
        } else {
            changes.extend(batch.changes);
        }
        *synced |= batch.synced;
        for report in batch.reports {
            self.board.set_report(report);
        }
        for (kind, revision) in batch.positions {
            self.position.advance(kind as u8, revision);
        }
    }

    fn begin_epoch(&mut self, epoch: u64) {
        self.position = Position {
            epoch,
            revisions: Vec::new(),
        };
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
            self.addresses.send_replace(Some(self.outlet.addresses()));
            self.ready.meet();
        }
    }

    /// Hands an outcome on: the delta to the outlet, findings and counts to the board.
    fn publish(&mut self, outcome: Outcome) {
        self.batches += 1;
        let position = match self.position.revisions.is_empty() {
            true => Position::counter(self.position.epoch, self.batches),
            false => self.position.clone(),
        };
        self.engine.set_position(position);
        let work = self.board.work();
        work.units_translated.inc_by(outcome.work.units_translated);
        work.objects_visited.inc_by(outcome.work.objects_visited);
        work.resources_changed
            .inc_by(outcome.work.resources_changed);
        work.bytes_encoded.inc_by(outcome.work.bytes_encoded);
        let snapshot = self.engine.snapshot();
        self.outlet.publish(outcome.delta, snapshot, &self.board);
        self.outlet.tell(&outcome.findings, &outcome.served);
        self.board.change_findings(outcome.findings);
        self.board.set_snapshot(snapshot, self.batches);
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
