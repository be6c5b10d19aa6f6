//! The control loop: one inbox, one writer, and the only place where batching is written.

mod asking;
mod beside;
mod callers;
mod debts;
mod event;
mod marks;
mod notices;
mod outlet;
mod portions;
mod queue;
mod remembering;
mod stating;
mod tables;
#[cfg(test)]
mod tests;
mod touched;

use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Batch, Change, ObjectKey, ObjectKind};
use myriad_base::clock::{self, Instant};
use myriad_base::readiness::Condition;
use myriad_model::Position;
use myriad_source::Wanted;
use myriad_translate::{Engine, FindingsChange, MAIN, Outcome};
use tokio::sync::{mpsc, watch};

pub use self::callers::Callers;
pub use self::event::{Event, INBOX_EVENTS_MAX, follow_cert_manager, follow_tenants};
pub use self::outlet::{Addresses, Outlet};
pub use self::queue::{Fairness, Shares};
pub use self::stating::Progress;

use self::beside::Beside;
use self::callers::Followers;
use self::debts::HEAVY_MIN;
use self::notices::Notices;
use self::portions::Portions;
use self::queue::{Holders, Queue};
use self::stating::Stating;
use self::touched::Touched;
use crate::board::Board;
use crate::history::{History, Touches};
use crate::live::{Live, Root};
use crate::rivals::Rivals;
use crate::wishes::Wishes;

/// The processor time of taking changes in after which a cut ends, a part of what makes it heavy.
const TAKING_IN_MAX: Duration = Duration::from_millis(25);

/// The processor time after which a cut leaves the hosts that remain to turns of their namespaces.
const CUT_MAX: Duration = Duration::from_millis(50);

/// The same for what comes in one file with objects of several namespaces, which takes effect as a
/// whole as far as that is within this: some 10,000 hosts.
const JOINT_MAX: Duration = Duration::from_millis(250);

/// How often the loop looks after what no event leads to, while no change waits.
const TICK: Duration = Duration::from_secs(1);

/// The one writer: owns the engine and what its commits go to.
pub struct Control<O> {
    engine: Engine,
    outlet: O,
    board: Board,
    live: Live,
    queue: Queue,
    /// The findings about namespaces that wait, or have too many views.
    notices: Notices,
    /// The cost of views that look at something, as far as it is not charged yet.
    portions: Portions,
    /// The processor time that this thread has taken.
    processor_time: Box<dyn Fn() -> Duration + Send>,
    /// The views of sidecars.
    beside: Beside,
    /// The proxies that have begun to follow them, or have ended to.
    followers: Followers,
    /// The processor time that questions of proxies have taken since the last cut.
    asking: Duration,
    /// When it last looked after what no event leads to.
    ticked: Instant,
    batches: u64,
    /// How far the sources were read; without revisions of their own, batches are counted.
    position: Position,
    /// Whether the first list is complete: before its end absence means nothing.
    is_listed: bool,
    ready: Condition,
    addresses: watch::Sender<Option<Addresses>>,
    /// Where the source learns which objects it has to read again.
    wanted: Wanted,
    /// Where it is told which certificates are wanted of issuers.
    wishes: Wishes,
    /// Where it is told which hosts several namespaces claim.
    rivals: Rivals,
    /// The objects of which people are told when they are served, and the views of Gateways.
    stating: Stating,
    /// The history that it writes; none where none is kept.
    history: Option<History>,
}

impl<O: Outlet> Control<O> {
    /// A control loop that has seen nothing yet. `ready` is met, and `addresses` announced, when
    /// the first snapshot serves.
    pub fn new(
        engine: Engine,
        outlet: O,
        fairness: Fairness,
        board: Board,
        live: Live,
        ready: Condition,
        addresses: watch::Sender<Option<Addresses>>,
    ) -> Self {
        Control {
            engine,
            outlet,
            board,
            live,
            queue: Queue::new(fairness),
            notices: Notices::default(),
            portions: Portions::default(),
            processor_time: Box::new(clock::processor_time),
            beside: Beside::default(),
            followers: Followers::default(),
            asking: Duration::ZERO,
            ticked: clock::now(),
            batches: 0,
            position: Position::default(),
            is_listed: false,
            ready,
            addresses,
            wanted: Wanted::default(),
            wishes: Wishes::default(),
            rivals: Rivals::default(),
            stating: Stating::default(),
            history: None,
        }
    }

    /// The same, which tells its source by `wanted` which objects it has to read again.
    pub fn with_wanted(self, wanted: Wanted) -> Self {
        Control { wanted, ..self }
    }

    /// The same, which tells by `wishes` which certificates are wanted of issuers.
    pub fn with_wishes(self, wishes: Wishes) -> Self {
        Control { wishes, ..self }
    }

    /// The same, which tells by `rivals` which hosts several namespaces claim.
    pub fn with_rivals(self, rivals: Rivals) -> Self {
        Control { rivals, ..self }
    }

    /// Handles events until asked to stop, then drains the proxy.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Event>) {
        while self.turn(&mut inbox).await {}
        self.ready.revoke();
        self.outlet.drain().await;
    }

    /// Takes in what has come, and translates one cut of it; waits where there is nothing to do.
    /// An idle queue is cut at once, so a single change is never held back. Returns whether to go
    /// on.
    async fn turn(&mut self, inbox: &mut mpsc::Receiver<Event>) -> bool {
        self.settle_dedicated();
        // However much there is to do, and however often somebody sends something.
        if self.ticked + TICK <= clock::now() {
            self.tick();
        }
        if !self.take_waiting(inbox) {
            return false;
        }
        self.beside.answer(&self.engine);
        if self.queue.is_due(clock::now()) {
            self.translate_cut();
            self.translate_postponed();
            self.beside.answer(&self.engine);
            // Whoever fills the inbox may run on this very thread.
            tokio::task::yield_now().await;
            return true;
        }
        if self.translate_postponed() {
            self.beside.answer(&self.engine);
            tokio::task::yield_now().await;
            return true;
        }
        tokio::select! {
            event = inbox.recv() => event.is_some_and(|event| self.take(event)),
            () = sleep_to(self.next_due()) => true,
            () = sleep_to(Some(self.ticked + TICK)) => true,
        }
    }

    /// Looks after what no event leads to: what the calendar changes, which is nothing oftener than
    /// this, what the outlet tries again, and what is over.
    fn tick(&mut self) {
        self.ticked = clock::now();
        let (now, deadline) = (clock::unix_seconds(), self.engine.next_deadline());
        if deadline.is_some_and(|deadline| deadline <= now) {
            let outcome = self.engine.tick(now);
            self.publish(outcome, clock::now(), Default::default());
        }
        self.outlet.tick(&self.board);
        self.board.tell_left_out();
        self.sweep();
        let over = self.notices.expire(clock::now());
        self.find(over);
    }

    /// Takes one event in. Returns whether to go on.
    fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Changed(batch) => self.take_batch(batch),
            Event::Epoch(epoch) => {
                // What came before belongs to the epoch before, whoever waits.
                self.clear_queue();
                self.stating.forget_read();
                self.position = Position {
                    epoch,
                    revisions: Vec::new(),
                };
            }
            Event::ViewPut(view) => {
                let name = view.name.clone();
                match self.engine.put_view(view) {
                    Ok(()) => self.translate_views(),
                    Err(error) => tracing::error!(%name, "is not served: {error}"),
                }
            }
            Event::ViewGone(name) => {
                if self.remove_view(&name) {
                    self.translate_views();
                }
            }
            Event::Asked(pod, answer, places) => {
                self.ask(&pod, answer);
                drop(places);
            }
            Event::Learned(claims) => {
                self.engine.learn(claims);
                self.translate_in_time();
            }
            Event::Overrun(namespace) => {
                self.engine.overrun(&namespace);
                self.translate_in_time();
            }
            Event::Tenants(tenants) => {
                self.engine.set_tenants(tenants);
                self.translate_in_time();
            }
            Event::CertManager(state) => self.engine.set_cert_manager(state),
            // Before the end of the first list, what is not there is not known to be unserved;
            // everything is stated then.
            Event::Restate if !self.is_listed => {}
            Event::Restate => self.outlet.restate(&mut self.engine.served()),
            Event::Found(findings) => self.find(findings),
            // Who does not wait any more asks again.
            Event::Progress(answer) => drop(answer.send(self.progress())),
            Event::Stop => return false,
        }
        true
    }

    fn find(&mut self, findings: FindingsChange) {
        if !findings.is_empty() {
            self.remember_findings(&findings);
            self.outlet.tell(&findings);
            self.board.change_findings(findings);
        }
    }

    fn remove_view(&mut self, name: &str) -> bool {
        let was_there = self.engine.remove_view(name);
        if was_there {
            self.live.view_gone(name);
        }
        was_there
    }

    /// Takes away the views whose Pods differ in what selectors name since the last changes, before
    /// anything is translated for them: the proxies come back, and each finds its own.
    fn part_views(&mut self) {
        let moved = self.engine.take_labels_moved();
        for (view, by) in self.beside.part(&self.engine, &moved) {
            if self.engine.part_view(&view, &by) {
                self.live.view_gone(&view);
            }
        }
    }

    fn take_batch(&mut self, mut batch: Batch) {
        self.note_writers(&mut batch);
        for report in std::mem::take(&mut batch.reports) {
            let findings = self.board.set_report(report);
            self.remember_findings(&findings);
        }
        self.stating.note_read(&batch);
        if self.is_listed && batch.infers {
            // What is missing is seen as a whole, apart from what was removed, so that what it
            // would take can be judged.
            self.clear_queue();
            self.advance(&batch.positions);
            self.engine.note_inference();
            let since = batch.noticed.map(Instant::from_std);
            self.translate(batch.changes, since.unwrap_or_else(clock::now));
            if self.engine.has_postponed() {
                self.engine.note_inference();
                self.translate_all_postponed();
            }
            return;
        }
        if self.is_listed {
            self.queue.push(batch, clock::now());
            self.show_deferred();
            return;
        }
        // Nobody can be delayed by a first list, since nobody is served before its end.
        self.advance(&batch.positions);
        if !batch.synced {
            self.engine.load(batch.changes);
            return;
        }
        self.is_listed = true;
        self.translate(batch.changes, clock::now());
        self.begin_history();
        self.settle_dedicated();
        self.stating.open();
        self.outlet.go_live();
        self.outlet.restate(&mut self.engine.served());
        // Published before the condition is met, so that who waits for it finds them.
        self.board.pick_sample(self.engine.snapshot());
        self.board.tell_log();
        self.wishes.complete();
        self.addresses.send_replace(Some(self.outlet.addresses()));
        self.ready.meet();
    }

    /// Translates all that waits, whoever has to wait for it.
    fn clear_queue(&mut self) {
        self.queue.hurry(clock::now());
        while !self.queue.is_empty() {
            self.translate_cut();
        }
        if self.engine.has_postponed() {
            self.translate_all_postponed();
        }
    }

    /// Translates all that was postponed, whoever owes something.
    fn translate_all_postponed(&mut self) {
        let outcome = self.engine.apply(Vec::new(), clock::unix_seconds());
        self.publish(outcome, clock::now(), Default::default());
    }

    fn advance(&mut self, positions: &[(ObjectKind, u64)]) {
        for (kind, revision) in positions {
            self.position.advance(*kind as u8, *revision);
        }
    }

    /// Translates what no change of an object leads to, once the first list has ended.
    fn translate_views(&mut self) {
        if self.is_listed {
            self.translate(Vec::new(), clock::now());
        }
    }

    /// The same, where what has no time may run later.
    fn translate_in_time(&mut self) {
        if !self.is_listed {
            return;
        }
        let (now, since) = (clock::unix_seconds(), clock::now());
        let before = (self.processor_time)();
        let processor_time = &self.processor_time;
        let mut has_time = || processor_time().saturating_sub(before) < CUT_MAX;
        let outcome = self.engine.apply_taken_in_while(now, &mut has_time);
        self.commit(Touched::default(), outcome, since);
    }

    /// Translates the next cut. What takes long to take in ends it, so that nobody waits for more.
    fn translate_cut(&mut self) {
        let now = clock::unix_seconds();
        let before = (self.processor_time)();
        let mut touched = Touched::default();
        let (engine, processor_time) = (&mut self.engine, &self.processor_time);
        let mut take_in = |change: Change| {
            touched.note(&change, &self.beside);
            engine.take_in(change, now);
            processor_time().saturating_sub(before) < TAKING_IN_MAX
        };
        let cut = self.queue.cut_while(clock::now(), &mut take_in);
        self.advance(&cut.positions);
        let object = touched.put.take();
        self.part_views();
        let max = match cut.holders.are_joint() {
            true => JOINT_MAX,
            false => CUT_MAX,
        };
        let processor_time = &self.processor_time;
        let mut has_time = || processor_time().saturating_sub(before) < max;
        let outcome = self.engine.apply_taken_in_while(now, &mut has_time);
        let of_tables = tables::cost(&outcome);
        self.commit(touched, outcome, cut.since);
        self.wanted.add(cut.wanted);
        let cost = (self.processor_time)().saturating_sub(before);
        self.charge(cut.holders, cost + of_tables, object);
    }

    /// Translates some of what was postponed, for about as long as a cut may take changes in. A
    /// heavy turn is charged to its namespace like a cut, and the rest of it waits. Returns whether
    /// there was anything that need not wait.
    fn translate_postponed(&mut self) -> bool {
        let begin = (self.processor_time)();
        let mut has_run = false;
        while self.engine.has_postponed() {
            let (now, since) = (clock::unix_seconds(), clock::now());
            let (before, processor_time) = ((self.processor_time)(), &self.processor_time);
            let mut has_time = || processor_time().saturating_sub(begin) < TAKING_IN_MAX;
            let queue = &self.queue;
            let may_run = |namespace: &str| queue.deferred_until(namespace, since).is_none();
            let ran = self.engine.work_off(now, &mut has_time, &may_run);
            let Some((namespace, outcome)) = ran else {
                break;
            };
            has_run = true;
            let of_tables = tables::cost(&outcome);
            self.publish(outcome, since, Default::default());
            let now = (self.processor_time)();
            self.charge_part(namespace, (now.saturating_sub(before), of_tables));
            if now.saturating_sub(begin) >= TAKING_IN_MAX {
                break;
            }
        }
        has_run
    }

    /// Charges a namespace what a part of what was postponed cost, here and by the tables that
    /// proxies make of it. A light one says nothing of what its next changes cost; but views go in
    /// light ones alone, and tables may, so that those add up.
    fn charge_part(&mut self, namespace: Box<str>, (own, of_tables): (Duration, Duration)) {
        let cost = own + of_tables;
        let cost = match self.engine.has_visited() || !of_tables.is_zero() {
            true => self.portions.add(&namespace, cost, clock::now()),
            false => Some(cost).filter(|cost| *cost >= HEAVY_MIN),
        };
        if let Some(cost) = cost {
            self.charge(Holders::of(namespace), cost, None);
        }
    }

    /// When the first namespace goes that waits for what it owes.
    fn next_due(&self) -> Option<Instant> {
        let now = clock::now();
        let postponed = self.engine.postponed();
        let postponed = postponed.filter_map(|it| self.queue.deferred_until(it, now));
        postponed.chain(self.queue.next_due()).min()
    }

    /// Charges the namespaces of a cut what it cost; `object` is one of them all.
    fn charge(&mut self, holders: Holders, cost: Duration, object: Option<ObjectKey>) {
        let now = clock::now();
        let findings = match self.queue.charge(holders, cost, now) {
            Some(debt) => self.notices.tell(&debt, object, now),
            None => self.notices.expire(now),
        };
        self.find(findings);
        self.show_deferred();
    }

    fn show_deferred(&mut self) {
        let work = self.board.work();
        let waiting = self.queue.waiting_len();
        work.changes_waiting
            .set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let deferred = self.queue.deferred_len();
        work.namespaces_deferred
            .set(i64::try_from(deferred).unwrap_or(i64::MAX));
        let waited = self.queue.take_waited();
        work.seconds_deferred.inc_by(waited.as_secs_f64());
    }

    /// Translates what came at `since` or later.
    fn translate(&mut self, changes: Vec<Change>, since: Instant) {
        let now = clock::unix_seconds();
        let mut touched = Touched::default();
        for change in changes {
            touched.note(&change, &self.beside);
            self.engine.take_in(change, now);
        }
        self.part_views();
        let outcome = self.engine.apply_taken_in(now);
        self.commit(touched, outcome, since);
    }

    /// Hands on what became of changes; the oldest came at `since`.
    fn commit(&mut self, touched: Touched, outcome: Outcome, since: Instant) {
        self.board.work().batches.inc();
        self.stating.note(touched.put_ingresses);
        self.publish(outcome, since, (touched.ingresses, touched.objects));
        let pods = touched.pods.iter();
        let former = pods.filter_map(|pod| self.beside.look(&self.engine, pod));
        let former: Vec<Arc<str>> = former.collect();
        for view in &former {
            self.remove_view(view);
        }
        if !former.is_empty() {
            self.translate_views();
        }
    }

    /// Hands an outcome on: the delta to the outlet, findings and counts to the board.
    /// The oldest change came at `since`; `ingresses` are those that changed themselves, and
    /// `objects` all that did.
    fn publish(
        &mut self,
        mut outcome: Outcome,
        since: Instant,
        (ingresses, objects): (Vec<ObjectKey>, Touches),
    ) {
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
        let roots = roots(&self.engine, &outcome, self.batches == 1);
        let others = outcome.others.iter().map(|(_, delta)| delta);
        let deltas = std::iter::once(&outcome.delta).chain(others);
        let resources = deltas.flat_map(|delta| delta.changes().iter().map(|it| &it.key));
        let is_commit = !roots.is_empty();
        let cleared = self.live.committed(roots, since, resources, ingresses);
        outcome.findings.removed.extend(cleared.removed);
        let commit = self.for_history(&outcome, objects, is_commit);
        self.outlet.noticed(since);
        self.outlet.publish(outcome.delta, snapshot, &self.board);
        let (others, gone) = (&outcome.others, &outcome.gone);
        self.outlet.publish_others(&self.engine, others, gone);
        self.board.set_others(&self.engine, others, gone);
        self.outlet.tell(&outcome.findings);
        self.outlet.state(&outcome.served, &outcome.unserved);
        self.state_objects(&outcome.statuses, &outcome.served);
        self.outlet.claims(outcome.claims);
        self.wishes.change(outcome.wishes, outcome.issuers);
        self.rivals.change(outcome.rivals);
        self.wanted.add(outcome.wanted);
        self.board.change_findings(outcome.findings);
        self.board
            .set_snapshot(self.engine.snapshot(), self.batches);
        self.remember(commit);
    }
}

/// The roots of the views that an outcome changed; the first is one of the main view.
fn roots(engine: &Engine, outcome: &Outcome, is_first: bool) -> Vec<Root> {
    let mut roots: Vec<Root> = Vec::with_capacity(1 + outcome.others.len());
    if is_first || !outcome.delta.is_empty() {
        roots.push((MAIN.into(), engine.snapshot().digest()));
    }
    for (view, _) in &outcome.others {
        let snapshot = engine.snapshot_of(view);
        roots.extend(snapshot.map(|snapshot| (view.clone(), snapshot.digest())));
    }
    roots
}

async fn sleep_to(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
