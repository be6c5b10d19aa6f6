//! Names that clients ask for and that have no certificate: each is told once to whoever obtains
//! certificates on demand, the networks of clients in turn.
//!
//! A name is here for as long as some handshake waits for it, so that no flood makes the table
//! larger than the places for handshakes that wait. Names that were refused are remembered for a
//! while, as many as there is room for.
//!
//! Few names are told that have no answer yet, and of those few are of networks whose last name was
//! refused: whoever waits for late answers keeps nobody else back.

mod places;
mod turns;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Counter, Gauge, Metrics};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use self::places::DEMANDS_UNANSWERED_MAX;
use self::places::OpenPlaces;
use self::turns::{NamePlace, NameTurns, NextName};
use crate::admission::networks::Neighbours;
use crate::route::on_demand::OnDemandEntry;

/// The most names that were refused and are remembered.
const REFUSED_MAX: usize = 16_384;

/// The most names that are in use and wait to be told of.
const USED_MAX: usize = 4_096;

/// The most names that were told and are remembered with who asked, until there is an answer.
const TOLD_MAX: usize = 4_096;

/// The span of time in which is told once that a certificate is used, in seconds.
const USE_SPAN: i64 = 6 * 60 * 60;

/// The names that are in demand. Cheap to clone; clones are one list.
///
/// It is closed at first, and then no handshake waits.
#[derive(Clone, Default)]
pub struct Demand(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_open: AtomicBool,
    state: Mutex<State>,
    news: Notify,
    waiting: Gauge,
    told: Counter,
    refused: Counter,
}

/// A name that is in demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demanded {
    /// Handshakes wait for its certificate.
    Wanted(Arc<str>),
    /// Its certificate is used.
    Used(Arc<str>),
}

#[derive(Default)]
struct State {
    wanted: HashMap<Arc<str>, Wanted>,
    /// The names that are yet to be told.
    turns: NameTurns,
    /// The names that were told and have no answer yet, the same in order, and their places.
    told: HashMap<Arc<str>, ToldName>,
    places: OpenPlaces,
    told_order: VecDeque<(Arc<str>, u64)>,
    /// The names that were refused, until when, and the same in the order in which that was said.
    refused: HashMap<Arc<str>, Instant>,
    refusals: VecDeque<(Arc<str>, Instant)>,
    used: VecDeque<Arc<str>>,
    /// A name that is wanted was told last, and one in use is next.
    is_use_next: bool,
}

/// A name that was told and has no answer yet.
struct ToldName {
    /// The source whose turn that was.
    source: u64,
    /// Whether the last name of its network was refused.
    is_behind: bool,
    number: u64,
}

/// A name that handshakes wait for.
struct Wanted {
    /// The handshakes that wait, each with the token that ends its wait.
    waiters: Neighbours<CancellationToken>,
    answered: CancellationToken,
    /// Its place among those that are yet to be told; none once it was.
    place: Option<NamePlace>,
}

/// A handshake that waits for the certificate of a name.
pub struct DemandWait {
    demand: Demand,
    name: Arc<str>,
    number: u64,
    /// Cancelled once there is an answer.
    answered: CancellationToken,
    /// Cancelled then, and where it lost its place to another.
    over: CancellationToken,
}

impl Demand {
    /// A list without names; registers the metrics that show it.
    pub fn new(metrics: &Metrics) -> Demand {
        let demand = Demand::default();
        let inner = &demand.0;
        metrics.register(
            "on_demand_waiting",
            "Handshakes that wait for a certificate which is obtained on demand",
            inner.waiting.clone(),
        );
        metrics.register(
            "on_demand_names",
            "Names without a certificate that whoever obtains them was told of",
            inner.told.clone(),
        );
        metrics.register(
            "on_demand_refused_handshakes",
            "Handshakes that did not wait, since their name was refused before",
            inner.refused.clone(),
        );
        demand
    }

    /// This list for clients elsewhere, who have had their turns there: names are told however many
    /// have no answer.
    #[must_use]
    pub fn for_clients_elsewhere(self) -> Demand {
        self.lock().places.unbind();
        self
    }

    /// Lets handshakes wait from now on: there is somebody who obtains certificates.
    pub fn open(&self) {
        self.0.is_open.store(true, Ordering::Relaxed);
    }

    /// Lets none wait any more.
    pub fn close(&self) {
        self.0.is_open.store(false, Ordering::Relaxed);
        let mut state = self.lock();
        for wanted in state.wanted.values() {
            wanted.answered.cancel();
        }
        state.refused = HashMap::new();
        state.refusals = VecDeque::new();
        state.used = VecDeque::new();
        state.told = HashMap::new();
        state.told_order = VecDeque::new();
        state.places.clear();
        state.turns.forgive();
    }

    /// Whether handshakes may wait.
    pub fn is_open(&self) -> bool {
        self.0.is_open.load(Ordering::Relaxed)
    }

    /// A client of a source asks for a name; none where it was refused lately. At most so many wait
    /// for one: beyond, the source and network that has most of them loses its oldest.
    pub(super) fn want(&self, name: &str, source: u64, waiters_max: usize) -> Option<DemandWait> {
        let mut state = self.lock();
        if state
            .refused
            .get(name)
            .is_some_and(|until| *until > clock::now())
        {
            self.0.refused.inc();
            return None;
        }
        let known = state.wanted.get_key_value(name);
        let name: Arc<str> = known.map_or_else(|| name.into(), |(name, _)| name.clone());
        state.make_room(&name, waiters_max);
        let (number, answered, over) = state.add(&name, source);
        drop(state);
        self.0.waiting.inc();
        self.0.news.notify_one();
        Some(DemandWait {
            demand: self.clone(),
            name,
            number,
            answered,
            over,
        })
    }

    /// A certificate that was obtained on demand is used; whoever renews them is told now and then.
    pub(super) fn note_use(&self, entry: &OnDemandEntry) {
        if !self.is_open() {
            return;
        }
        let span = clock::unix_seconds() / USE_SPAN;
        if entry.is_untold(u32::try_from(span).unwrap_or(u32::MAX)) && !self.used(&entry.host) {
            entry.forget_told();
        }
    }

    /// A certificate that was obtained on demand is used elsewhere. Whether there was room to tell.
    pub fn tell_used(&self, name: &Arc<str>) -> bool {
        self.is_open() && self.used(name)
    }

    fn used(&self, name: &Arc<str>) -> bool {
        let mut state = self.lock();
        let has_room = state.used.len() < USED_MAX;
        if has_room {
            state.used.push_back(name.clone());
        }
        drop(state);
        if has_room {
            self.0.news.notify_one();
        }
        has_room
    }

    /// Waits for a name that is in demand and takes it. Each is told once, while handshakes wait
    /// for it. One that is wanted has its place among those without an answer until it is allowed,
    /// refused, settled or released. Dropping the future loses nothing. For one task at a time.
    pub async fn next(&self) -> Demanded {
        loop {
            if let Some(next) = self.lock().next() {
                if matches!(next, Demanded::Wanted(_)) {
                    self.0.told.inc();
                }
                return next;
            }
            self.0.news.notified().await;
        }
    }

    /// Asks for a name like a client of a source, for clients elsewhere, and waits for what becomes
    /// of it. Returns how long the name is refused; not at all where its certificate is there, or
    /// nobody obtains any.
    pub async fn ask(&self, name: &str, source: u64) -> Duration {
        if !self.is_open() {
            return Duration::ZERO;
        }
        while let Some(wait) = self.want(name, source, usize::MAX) {
            wait.over().await;
            if !wait.is_evicted() {
                break;
            }
        }
        let until = self.lock().refused.get(name).copied();
        until.map_or(Duration::ZERO, |it| {
            it.saturating_duration_since(clock::now())
        })
    }

    /// Lets those who wait for a name go on: its certificate is there.
    pub fn settle(&self, name: &str) {
        let mut state = self.lock();
        state.refused.remove(name);
        state.judge(name, false);
        state.answer(name);
        drop(state);
        self.0.news.notify_one();
    }

    /// A name that was told may have a certificate, which handshakes go on to wait for. No later
    /// fault of that stands against whoever asked.
    pub fn allow(&self, name: &str) {
        self.lock().judge(name, false);
        self.0.news.notify_one();
    }

    /// Gives the place of a name that was told to another one: there is nothing to find out.
    pub fn release(&self, name: &str) {
        self.lock().free(name);
        self.0.news.notify_one();
    }

    /// Lets those who wait for a name go on without a certificate, and nobody wait for it for a
    /// while.
    pub fn refuse(&self, name: &Arc<str>, time: Duration) {
        let until = clock::now() + time;
        let mut state = self.lock();
        state.judge(name, true);
        state.answer(name);
        while state.refusals.len() >= REFUSED_MAX {
            let Some((oldest, until)) = state.refusals.pop_front() else {
                break;
            };
            // It may have been refused again since.
            if state.refused.get(&oldest) == Some(&until) {
                state.refused.remove(&oldest);
            }
        }
        state.refused.insert(name.clone(), until);
        state.refusals.push_back((name.clone(), until));
        drop(state);
        self.0.news.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets handshakes lose their places until there is room for one more that waits for a name.
    fn make_room(&mut self, name: &str, waiters_max: usize) {
        let Some(wanted) = self.wanted.get_mut(name) else {
            return;
        };
        while wanted.waiters.count() >= waiters_max {
            let Some(over) = wanted.waiters.evict() else {
                return;
            };
            over.cancel();
        }
    }

    /// One more handshake of a source waits for a name: its number, and the tokens that say that
    /// there is an answer, and that it waits no longer. A name that is yet to be told waits where
    /// its turn comes soonest, so that nobody else's flood keeps it back. One that was told and has
    /// no answer is not told again.
    fn add(&mut self, name: &Arc<str>, source: u64) -> (u64, CancellationToken, CancellationToken) {
        let number = self.turns.number();
        let (is_new, mut place) = match self.wanted.get(name) {
            None => (!self.told.contains_key(name), None),
            Some(wanted) => (false, wanted.place),
        };
        let later = place.filter(|place| self.turns.is_sooner(source, *place));
        if let Some(later) = later {
            self.turns.take_back(later);
        }
        if is_new || later.is_some() {
            place = Some(self.turns.line_up(name, source));
        }
        let wanted = self.wanted.entry(name.clone()).or_insert_with(|| Wanted {
            waiters: Neighbours::default(),
            answered: CancellationToken::new(),
            place: None,
        });
        let over = wanted.answered.child_token();
        wanted.waiters.enter(number, source, over.clone());
        wanted.place = place;
        (number, wanted.answered.clone(), over)
    }

    /// The name that is told next: one that is wanted and one in use in turn, where there are both.
    fn next(&mut self) -> Option<Demanded> {
        if std::mem::take(&mut self.is_use_next)
            && let Some(name) = self.used.pop_front()
        {
            return Some(Demanded::Used(name));
        }
        let Some(next) = self.turns.next(&self.places) else {
            return self.used.pop_front().map(Demanded::Used);
        };
        self.is_use_next = true;
        if let Some(wanted) = self.wanted.get_mut(&next.name) {
            wanted.place = None;
        }
        self.note_told(&next);
        Some(Demanded::Wanted(next.name))
    }

    /// Remembers whose turn it was when a name was told, which has a place from now on.
    fn note_told(&mut self, next: &NextName) {
        while self.told_order.len() >= TOLD_MAX {
            let Some((oldest, number)) = self.told_order.pop_front() else {
                break;
            };
            // It may have been told again since.
            if self
                .told
                .get(&oldest)
                .is_some_and(|told| told.number == number)
            {
                self.free(&oldest);
            }
        }
        self.free(&next.name);
        let told = ToldName {
            source: next.source,
            is_behind: next.is_behind,
            number: self.turns.number(),
        };
        self.places.take(told.source, told.is_behind);
        self.told_order.push_back((next.name.clone(), told.number));
        self.told.insert(next.name.clone(), told);
    }

    /// Takes back the place of a name that was told. Returns the source whose turn that was.
    fn free(&mut self, name: &str) -> Option<u64> {
        let told = self.told.remove(name)?;
        self.places.free(told.source, told.is_behind);
        Some(told.source)
    }

    /// Takes note of what became of a name against whoever had the turn, or no longer.
    fn judge(&mut self, name: &str, is_refused: bool) {
        if let Some(source) = self.free(name) {
            self.turns.mark(source, is_refused);
        }
    }

    /// Lets all go on that wait for a name.
    fn answer(&mut self, name: &str) {
        if let Some(wanted) = self.wanted.get(name) {
            wanted.answered.cancel();
        }
    }

    /// One handshake does not wait any more. A name is forgotten with the last.
    fn leave(&mut self, name: &Arc<str>, number: u64) {
        let Some(wanted) = self.wanted.get_mut(name) else {
            return;
        };
        if wanted.waiters.leave(number).is_some() && wanted.waiters.count() == 0 {
            let place = wanted.place;
            self.wanted.remove(name);
            if let Some(place) = place {
                self.turns.take_back(place);
            }
        }
    }
}

impl DemandWait {
    /// Waits until the name has its certificate, or will not have one now, or the place among those
    /// who wait for it is another's.
    pub(super) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Whether it waits no longer since its place is another's.
    pub(super) fn is_evicted(&self) -> bool {
        self.over.is_cancelled() && !self.answered.is_cancelled()
    }
}

impl Drop for DemandWait {
    fn drop(&mut self) {
        self.demand.0.waiting.dec();
        self.demand.lock().leave(&self.name, self.number);
    }
}

#[cfg(test)]
mod tests;
