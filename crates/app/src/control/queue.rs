//! The queue of changes to translate: cut so that no namespace waits for all of another.
//!
//! An object has one place in the queue, that of its oldest change, and its newest change waits
//! there: whoever changes a thousand objects ten times each makes others wait for a thousand
//! changes at most, and for no more than their share in each cut.
//!
//! Namespaces go together, unless one of them is costly: such a one goes alone, at most every
//! other time, and waits for as long as its debt says. The changes of one namespace never pass
//! each other.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use myriad_api::{Batch, Change, ObjectKey};
use myriad_base::clock::Instant;
use myriad_translate::Settings;

use super::debts::{Bill, Debt, Debts, Turn};
use super::marks::{Marks, Positions};

/// The most objects that wait. A batch that has begun to be taken in is taken in whole, so the
/// queue may exceed it by one batch of a source.
pub(super) const QUEUE_CHANGES_MAX: usize = 32_768;

/// How many namespaces go alone before the one that has stood in line the longest, however many
/// changes that one has.
const PASSED_MAX: u8 = 3;

/// How much is translated at once.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// The most changes in one cut.
    pub cut_changes_max: usize,
    /// The most changes in one cut that are of one namespace.
    pub namespace_changes_max: usize,
    /// Whether namespaces that come in one batch go together, whatever they cost.
    pub keeps_batches: bool,
}

impl Shares {
    /// For a source with many tenants, who must not wait for each other: at some 50 µs a change
    /// nobody waits longer for a cut than a quarter of the 100 ms that a change may take, and
    /// where changes of a namespace take a thousand times as long, little of them is in the first.
    pub const FAIR: Shares = Shares {
        cut_changes_max: 512,
        namespace_changes_max: 64,
        keeps_batches: false,
    };

    /// For a source whose batches shall take effect as they are, as far as a limit allows.
    pub const WHOLE: Shares = Shares {
        cut_changes_max: 16_384,
        namespace_changes_max: 16_384,
        keeps_batches: true,
    };
}

/// How namespaces share the control thread.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// How much is translated at once.
    pub shares: Shares,
    /// The part of the time that one costly namespace may have, in percent; 0 is no bound.
    pub control_share: u32,
    /// Namespaces of the operator, which never wait for what they cost.
    pub operators: BTreeSet<Box<str>>,
}

impl Fairness {
    /// The operator has the namespace of the gateway, and the one whose policies are for all.
    pub fn new(shares: Shares, control_share: u32, settings: &Settings) -> Fairness {
        let operators = [&*settings.gateway_namespace, settings.root_namespace()];
        Fairness {
            shares,
            control_share,
            operators: operators.into_iter().map(Box::from).collect(),
        }
    }
}

/// Changes that wait.
pub(super) struct Queue {
    shares: Shares,
    waiting: HashMap<ObjectKey, Waiting>,
    /// How many changes wait of namespaces that are not deferred, and of those that are.
    loaded: usize,
    deferred_loaded: usize,
    /// The namespaces that have something waiting.
    namespaces: HashMap<Box<str>, Lane>,
    /// Namespaces that go together, in the order in which it is their turn.
    together: VecDeque<Box<str>>,
    /// Namespaces that go alone.
    alone: VecDeque<Box<str>>,
    /// Namespaces that go later, and when.
    deferred: BTreeSet<(Instant, Box<str>)>,
    debts: Debts,
    marks: Marks,
    /// Whether one goes alone next, if any does.
    is_alone_next: bool,
    /// How many have gone alone one after the other that had fewer changes than the one that has
    /// stood in line the longest.
    passed: u8,
    /// Whether all that waits goes as if nobody owed anything.
    is_hurried: bool,
    /// How long namespaces were deferred that go now.
    waited: Duration,
}

struct Waiting {
    /// The newest change; none of an object that is read again once it is its turn.
    change: Option<Change>,
    /// The batch of the oldest change that this one stands for.
    mark: u64,
}

/// A namespace that has something waiting.
struct Lane {
    /// Its objects, in the order of their oldest change.
    keys: VecDeque<ObjectKey>,
    /// How many of them wait with their changes.
    loaded: usize,
    /// How many changes have come since it waits.
    pushed: u64,
    turn: Turn,
    /// Whether it came in one batch with others, which it does not part from.
    is_joint: bool,
    /// Since when it has been deferred.
    deferred: Option<Instant>,
}

/// The changes that are translated at once, one per object: what is left of them once they were
/// taken in.
#[derive(Debug)]
pub(super) struct Cut {
    /// How many there are.
    pub count: usize,
    /// How far the sources are contained once these changes are applied: nothing of what came
    /// up to there waits any more.
    pub positions: Positions,
    /// When the oldest of the changes came; now, if there are none.
    pub since: Instant,
    /// The namespaces that the cost is asked of.
    pub holders: Holders,
    /// Objects to read again, whose changes did not wait with them.
    pub wanted: Vec<ObjectKey>,
}

/// The namespaces of a cut.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// The ones that may be charged.
    namespaces: Vec<Box<str>>,
    /// How many there are in all.
    count: usize,
    /// How many changes are of them all.
    changes: usize,
}

impl Holders {
    /// One namespace, with one change.
    pub(super) fn of(namespace: Box<str>) -> Self {
        Holders {
            namespaces: vec![namespace],
            count: 1,
            changes: 1,
        }
    }

    /// Whether they come together, whatever that costs, so that nobody is charged.
    pub(super) fn are_joint(&self) -> bool {
        self.count > 0 && self.namespaces.is_empty()
    }
}

impl Queue {
    /// An empty queue.
    pub(super) fn new(fairness: Fairness) -> Queue {
        Queue {
            shares: fairness.shares,
            waiting: HashMap::new(),
            loaded: 0,
            deferred_loaded: 0,
            namespaces: HashMap::new(),
            together: VecDeque::new(),
            alone: VecDeque::new(),
            deferred: BTreeSet::new(),
            debts: Debts::new(fairness.control_share, fairness.operators),
            marks: Marks::default(),
            is_alone_next: false,
            passed: 0,
            is_hurried: false,
            waited: Duration::ZERO,
        }
    }

    /// The namespaces that have something waiting.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.keys().map(|namespace| &**namespace)
    }

    /// Whether nothing waits, not even a position.
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether no further batch should be taken in. Namespaces that are deferred fill nothing: of
    /// them no more changes wait than of all others, and the other objects by name alone.
    pub(super) fn is_full(&self) -> bool {
        self.loaded >= QUEUE_CHANGES_MAX
    }

    /// Whether there is something to cut.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let deferred = self.deferred.first();
        !self.together.is_empty()
            || !self.alone.is_empty()
            || self.marks.is_claimable()
            || deferred.is_some_and(|(until, _)| *until <= now)
    }

    /// Until when a namespace waits for what it owes; none where it owes nothing.
    pub(super) fn deferred_until(&self, namespace: &str, now: Instant) -> Option<Instant> {
        match self.debts.turn(namespace, now) {
            Turn::Deferred(until) if !self.is_hurried => Some(until),
            _ => None,
        }
    }

    /// When the first of the deferred namespaces goes.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.deferred.first().map(|(until, _)| *until)
    }

    /// How many changes wait, those of deferred namespaces too.
    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// How many namespaces are deferred.
    pub(super) fn deferred_len(&self) -> usize {
        self.deferred.len()
    }

    /// How long namespaces were deferred that have gone since this was asked last.
    pub(super) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Takes in the changes and positions of a batch.
    pub(super) fn push(&mut self, batch: Batch, now: Instant) {
        let joint = match self.shares.keeps_batches {
            true => joint(&batch.changes),
            false => BTreeSet::new(),
        };
        let mark = self.marks.next_number();
        let mut waiting = 0;
        for change in batch.changes {
            let key = change.key().clone();
            if !self.namespaces.contains_key(key.namespace()) {
                self.open(&key, now);
            }
            waiting += usize::from(self.wait(key, change, mark));
        }
        for namespace in joint {
            self.join(namespace, now);
        }
        let since = batch.noticed.map_or(now, Instant::from_std).min(now);
        self.marks.add(waiting, since, batch.positions);
    }

    /// The next changes to translate: of each namespace in turn at most its share, or those of one
    /// that goes alone. Each is taken in by `take_in`, which says whether there is time for more.
    /// The others stay where they are, but for those that came together with it.
    pub(super) fn cut_while(
        &mut self,
        now: Instant,
        take_in: &mut dyn FnMut(Change) -> bool,
    ) -> Cut {
        self.release(now);
        let mut cut = Cut {
            count: 0,
            positions: Vec::new(),
            since: now,
            holders: Holders::default(),
            wanted: Vec::new(),
        };
        let is_alone = self.is_alone_next || self.together.is_empty();
        let alone = is_alone.then(|| self.next_alone()).flatten();
        self.is_alone_next = alone.is_none() && !self.alone.is_empty();
        if let Some(namespace) = alone {
            let room = self.shares.cut_changes_max;
            self.take(namespace, room, &mut cut, now, take_in);
        } else {
            for _ in 0..self.together.len() {
                let room = self.shares.cut_changes_max - cut.count;
                if room == 0 {
                    break;
                }
                let Some(namespace) = self.together.pop_front() else {
                    break;
                };
                if !self.take(namespace, room, &mut cut, now, take_in) {
                    break;
                }
            }
        }
        cut.positions = self.marks.claim();
        self.is_hurried &= !self.is_empty();
        cut
    }

    /// Charges what a cut cost, whose translation ended `now`. Returns the debt that it left.
    pub(super) fn charge(
        &mut self,
        holders: Holders,
        cost: Duration,
        now: Instant,
    ) -> Option<Debt> {
        let Holders {
            mut namespaces,
            count,
            changes,
        } = holders;
        let bill = Bill { changes, cost };
        if count > 1 {
            if self.debts.suspect(namespaces, bill, now) {
                for namespace in std::mem::take(&mut self.together) {
                    self.line_up(namespace, now);
                }
            }
            return None;
        }
        let namespace = namespaces.pop()?;
        let lanes = self.namespaces.len();
        let others_wait = lanes > usize::from(self.namespaces.contains_key(&namespace));
        let debt = self.debts.charge(namespace, bill, now, others_wait)?;
        if self.leave_line(&debt.namespace) {
            self.line_up(debt.namespace.clone(), now);
        }
        Some(debt)
    }

    /// Lets all that waits go as if nobody owed anything, until the queue is empty.
    pub(super) fn hurry(&mut self, now: Instant) {
        if self.is_empty() {
            return;
        }
        self.is_hurried = true;
        let deferred = std::mem::take(&mut self.deferred).into_iter();
        let deferred = deferred.map(|(_, namespace)| namespace);
        for namespace in std::mem::take(&mut self.alone).into_iter().chain(deferred) {
            self.line_up(namespace, now);
        }
    }

    /// Lets a change wait in the lane of its namespace, in place of one of the same object. Where
    /// too many wait of namespaces that are deferred, the object waits without it. Returns whether
    /// none of the object waited before.
    fn wait(&mut self, key: ObjectKey, change: Change, mark: u64) -> bool {
        let Some(lane) = self.namespaces.get_mut(key.namespace()) else {
            return false;
        };
        lane.pushed += 1;
        let former = self.waiting.get(&key);
        let was_loaded = former.is_some_and(|former| former.change.is_some());
        let is_deferred = matches!(lane.turn, Turn::Deferred(_));
        let loaded = match is_deferred {
            true => &mut self.deferred_loaded,
            false => &mut self.loaded,
        };
        let has_room = was_loaded || !is_deferred || *loaded < QUEUE_CHANGES_MAX;
        // That an object is gone is no more than its name.
        let is_kept = has_room || matches!(change, Change::Remove(_));
        if is_kept && !was_loaded {
            *loaded += 1;
            lane.loaded += 1;
        }
        let change = is_kept.then_some(change);
        if let Some(known) = self.waiting.get_mut(&key) {
            known.change = change;
            return false;
        }
        lane.keys.push_back(key.clone());
        self.waiting.insert(key, Waiting { change, mark });
        true
    }

    /// Begins to wait for the turn of an object's namespace, which has nothing waiting yet.
    fn open(&mut self, key: &ObjectKey, now: Instant) {
        let namespace: Box<str> = key.namespace().into();
        self.debts.see(&namespace, now);
        let lane = Lane {
            keys: VecDeque::new(),
            loaded: 0,
            pushed: 0,
            turn: Turn::Together,
            is_joint: false,
            deferred: None,
        };
        self.namespaces.insert(namespace.clone(), lane);
        self.line_up(namespace, now);
    }

    /// Lets a namespace go together with others, whatever it owes, until nothing of it waits.
    fn join(&mut self, namespace: Box<str>, now: Instant) {
        let Some(lane) = self.namespaces.get_mut(&namespace) else {
            return;
        };
        lane.is_joint = true;
        if lane.turn != Turn::Together && self.leave_line(&namespace) {
            self.line_up(namespace, now);
        }
    }

    /// Puts a namespace that stands in no line into the one that is its own now.
    fn line_up(&mut self, namespace: Box<str>, now: Instant) {
        let is_joint = self
            .namespaces
            .get(&namespace)
            .is_some_and(|it| it.is_joint);
        let turn = match is_joint || self.is_hurried {
            true => Turn::Together,
            false => self.debts.turn(&namespace, now),
        };
        self.stand(namespace, turn, now);
    }

    fn stand(&mut self, namespace: Box<str>, turn: Turn, now: Instant) {
        let Some(lane) = self.namespaces.get_mut(&namespace) else {
            return;
        };
        let was_deferred = matches!(lane.turn, Turn::Deferred(_));
        let is_deferred = matches!(turn, Turn::Deferred(_));
        lane.turn = turn;
        if is_deferred && !was_deferred {
            self.loaded -= lane.loaded;
            self.deferred_loaded += lane.loaded;
        } else if was_deferred && !is_deferred {
            self.deferred_loaded -= lane.loaded;
            self.loaded += lane.loaded;
        }
        if let Turn::Deferred(until) = turn {
            lane.deferred = lane.deferred.or(Some(now));
            self.deferred.insert((until, namespace));
            return;
        }
        let since = lane.deferred.take().unwrap_or(now);
        self.waited += now.saturating_duration_since(since);
        match turn {
            Turn::Alone => self.alone.push_back(namespace),
            _ => self.together.push_back(namespace),
        }
    }

    /// Takes a namespace out of its line. Returns whether it has something waiting.
    fn leave_line(&mut self, namespace: &str) -> bool {
        let Some(lane) = self.namespaces.get(namespace) else {
            return false;
        };
        let line = match lane.turn {
            Turn::Deferred(until) => {
                let place: (Instant, Box<str>) = (until, namespace.into());
                self.deferred.remove(&place);
                return true;
            }
            Turn::Alone => &mut self.alone,
            Turn::Together => &mut self.together,
        };
        // One that was cut a moment ago stands at the end.
        if let Some(at) = line.iter().rposition(|it| **it == *namespace) {
            line.remove(at);
        }
        true
    }

    /// Lets those go who were deferred until now.
    fn release(&mut self, now: Instant) {
        while let Some((until, _)) = self.deferred.first() {
            if *until > now {
                return;
            }
            if let Some((_, namespace)) = self.deferred.pop_first() {
                self.stand(namespace, Turn::Alone, now);
            }
        }
    }

    /// Takes the namespace out of its line that goes alone next: the one with the fewest changes
    /// since it waits, for who changes most is the likeliest to be costly, and among equals the
    /// one that has stood there longest. No more than [`PASSED_MAX`] pass that one by.
    fn next_alone(&mut self) -> Option<Box<str>> {
        let pushed = |namespace: &str| self.namespaces.get(namespace).map(|lane| lane.pushed);
        let alone = self.alone.iter().enumerate();
        // The first of equals, and the line is in the order of standing in it.
        let (at, _) = alone.min_by_key(|(_, namespace)| pushed(namespace))?;
        let at = if self.passed < PASSED_MAX { at } else { 0 };
        self.passed = if at == 0 { 0 } else { self.passed + 1 };
        self.alone.remove(at)
    }

    /// Moves at most `room` changes of a namespace, at most its share, and at most as many as
    /// are light by what its last ones cost, into a cut. Returns whether there is time for more.
    fn take(
        &mut self,
        namespace: Box<str>,
        room: usize,
        cut: &mut Cut,
        now: Instant,
        take_in: &mut dyn FnMut(Change) -> bool,
    ) -> bool {
        let Some(lane) = self.namespaces.get_mut(&namespace) else {
            return true;
        };
        let is_charged = !lane.is_joint && !self.is_hurried;
        let count = lane.keys.len().min(room);
        let count = count.min(self.shares.namespace_changes_max);
        let count = match is_charged {
            true => count.min(self.debts.changes_max(&namespace)),
            false => count,
        };
        let (mut taken, mut has_time) = (0, true);
        while taken < count && (has_time || !is_charged) {
            let Some(key) = lane.keys.pop_front() else {
                break;
            };
            taken += 1;
            let Some(Waiting { change, mark }) = self.waiting.remove(&key) else {
                continue;
            };
            if let Some(since) = self.marks.leave(mark) {
                cut.since = cut.since.min(since);
            }
            let Some(change) = change else {
                cut.wanted.push(key);
                continue;
            };
            (lane.loaded, self.loaded) = (lane.loaded - 1, self.loaded - 1);
            has_time = take_in(change);
            cut.count += 1;
        }
        match lane.keys.is_empty() {
            true => drop(self.namespaces.remove(&namespace)),
            false => self.line_up(namespace.clone(), now),
        }
        cut.holders.count += 1;
        cut.holders.changes += taken;
        if is_charged {
            cut.holders.namespaces.push(namespace);
        }
        has_time || !is_charged
    }
}

/// The namespaces of changes that are of more than one.
fn joint(changes: &[Change]) -> BTreeSet<Box<str>> {
    let mut namespaces = changes.iter().map(|change| change.key().namespace());
    let first = namespaces.next();
    if namespaces.all(|namespace| Some(namespace) == first) {
        return BTreeSet::new();
    }
    let namespaces = changes.iter().map(|change| change.key().namespace());
    namespaces.map(Box::from).collect()
}

#[cfg(test)]
mod tests;
