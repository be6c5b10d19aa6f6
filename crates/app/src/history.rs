//! The history: the commits of the last day, from which the configuration of a former moment is
//! made again, by undoing what came after it.
//!
//! A commit costs what changed: it is held as the way back, which is the former bytes of the
//! resources that it changed, without secrets. All of them together have a bound on bytes and one
//! on age. Beyond the bytes the namespace that has most of them loses its oldest.

pub mod entry;
pub mod former;
pub mod moment;
pub mod past;
pub mod report;
mod shares;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_api::ObjectKey;
use myriad_model::Snapshot;
use myriad_translate::FindingsChange;

pub use self::entry::{HistoryEntry, Touch, Touches, ViewChange};
pub use self::past::Past;
pub use self::report::{
    EntryReport, LiveLine, ObjectLine, ResourceLine, TimelineFilter, TimelineReport,
};

use self::former::StandIns;
use self::shares::HistoryShares;
use crate::live::{BecameLive, Live};

/// The most bytes of the history where nothing else is said.
pub const BYTES_DEFAULT: u64 = 16 << 20;

/// The age of the oldest commit where nothing else is said, in hours.
pub const HOURS_DEFAULT: u64 = 24;

/// The most writers that are remembered until the commits come that their objects led to.
const WRITERS_MAX: usize = 16_384;

/// The most commits that a reader takes at once.
const ENTRIES_READ: usize = 1_024;

/// The answer of a process without a history.
pub const NOT_KEPT: &str = "this process keeps no history: ask a controller or `myriad serve`, \
                            without --history-bytes=0";

/// How much of the past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    /// The most bytes.
    pub bytes_max: usize,
    /// The age of the oldest commit.
    pub age_max: Duration,
}

/// The history of a process: written by the control loop, read by pages. Cheap to clone.
#[derive(Clone)]
pub struct History(Arc<Shared>);

struct Shared {
    settings: HistorySettings,
    stand_ins: StandIns,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether the first list is over, which is no change.
    has_begun: bool,
    /// The newest state of each view.
    views: BTreeMap<Arc<str>, Newest>,
    /// The commits, by their numbers.
    entries: BTreeMap<u64, Arc<HistoryEntry>>,
    /// The bytes that they are charged.
    bytes: usize,
    /// The same by namespace.
    shares: HistoryShares,
    /// The number of the newest.
    number: u64,
    /// Since when commits are listed.
    listed_since: i64,
    /// Since when the state is known.
    known_since: i64,
    /// The numbers of commits that were not live when last looked at.
    unsettled: BTreeSet<u64>,
    /// The writers of objects that are not committed yet.
    writers: HashMap<ObjectKey, Arc<str>>,
}

/// The newest state of a view.
struct Newest {
    snapshot: Snapshot,
    /// The commit that it came with; 0 for the beginning.
    came_with: u64,
}

/// A commit as the control loop tells of it.
#[derive(Default)]
pub struct NewCommit {
    /// The objects that led to it.
    pub touches: Touches,
    /// The findings that appeared and went.
    pub findings: FindingsChange,
    /// The views that it changed.
    pub views: Vec<ViewChange>,
    /// The views that are gone.
    pub gone: Vec<Arc<str>>,
    /// The number by which it is known whether proxies serve it.
    pub commit: Option<u64>,
}

impl History {
    /// An empty one.
    pub fn new(settings: HistorySettings) -> History {
        History(Arc::new(Shared {
            settings,
            stand_ins: StandIns::new(),
            state: Mutex::default(),
        }))
    }

    /// The values that stand in the places of secrets.
    pub fn stand_ins(&self) -> &StandIns {
        &self.0.stand_ins
    }

    /// The first list is over: from now on everything is a change of this state.
    pub fn begin(&self, now: i64) {
        let mut state = self.lock();
        state.has_begun = true;
        (state.listed_since, state.known_since) = (now, now);
        state.writers.clear();
    }

    /// Whether the first list is over. Before that, of what changes nothing is kept but the state.
    pub fn has_begun(&self) -> bool {
        self.lock().has_begun
    }

    /// Notes who wrote objects whose changes are under way.
    pub fn note_writers(&self, writers: Vec<(ObjectKey, Arc<str>)>) {
        if writers.is_empty() {
            return;
        }
        let mut state = self.lock();
        let is_full = state.writers.len() + writers.len() > WRITERS_MAX;
        if is_full {
            // Some of what waits is told without its writers.
            state.writers.clear();
        }
        state.writers.extend(writers.into_iter().take(WRITERS_MAX));
    }

    /// Takes in a commit that was made at `now`.
    pub fn committed(&self, commit: NewCommit, now: i64, live: &Live) {
        let NewCommit {
            mut touches,
            findings,
            views,
            gone,
            commit,
        } = commit;
        let mut guard = self.lock();
        let state = &mut *guard;
        touches.attribute(|key| state.writers.remove(key));
        if !state.has_begun {
            state.advance(&views, &gone, 0);
            return;
        }
        // Time that was set back would tear the order.
        let last = state.entries.last_key_value();
        let last = last.map_or(state.listed_since, |(_, it)| it.at);
        let (number, at) = (state.number + 1, now.max(last));
        let (known, new): (Vec<ViewChange>, Vec<ViewChange>) = views
            .into_iter()
            .partition(|it| state.views.contains_key(&it.view));
        let changes = known.iter().any(|it| !it.delta.is_empty());
        let is_kept = changes || !findings.is_empty() || touches.are_of_people();
        let came_with = if is_kept { number } else { state.number };
        state.advance(&known, &gone, came_with);
        // All of a view that comes is new, and is nobody's change.
        state.advance(&new, &[], came_with);
        if !is_kept {
            return;
        }
        let findings = (findings.added, findings.removed);
        let mut entry = HistoryEntry::new((number, at), touches, findings);
        let bytes_max = self.0.settings.bytes_max / 2;
        entry.keep(&known, &self.0.stand_ins, bytes_max);
        entry.commit = commit;
        state.number = number;
        if !entry.is_undoable {
            state.known_since = at;
        }
        for namespace in entry.lost() {
            state.lose(namespace, at);
        }
        state.push(Arc::new(entry), self.0.settings, live);
    }

    /// Some of the commits before a number, the newest first: few at once, since changes wait
    /// meanwhile.
    fn entries_before(&self, number: u64) -> Vec<Arc<HistoryEntry>> {
        let state = self.lock();
        let before = state.entries.range(..number).rev();
        let before = before.map(|(_, entry)| entry.clone());
        before.take(ENTRIES_READ).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes the newest states of views.
    fn advance(&mut self, changed: &[ViewChange], gone: &[Arc<str>], number: u64) {
        for view in gone {
            self.views.remove(view);
        }
        for ViewChange { view, snapshot, .. } in changed {
            let newest = self.views.entry(view.clone()).or_insert_with(|| Newest {
                snapshot: Snapshot::new(),
                came_with: number,
            });
            newest.snapshot = snapshot.clone();
        }
    }

    /// Adds an entry, and lets go of what is too old or too much.
    fn push(&mut self, entry: Arc<HistoryEntry>, settings: HistorySettings, live: &Live) {
        let age_max = i64::try_from(settings.age_max.as_millis()).unwrap_or(i64::MAX);
        let oldest = entry.at.saturating_sub(age_max);
        if entry.commit.is_some() {
            self.unsettled.insert(entry.number);
        }
        self.keep(entry);
        while let Some((number, first)) = self.entries.first_key_value()
            && first.at < oldest
        {
            let (number, at) = (*number, first.at);
            self.known_since = self.known_since.max(at);
            self.let_go(number);
            self.unsettled.remove(&number);
        }
        while self.bytes > settings.bytes_max
            && let Some((namespace, number)) = self.shares.largest()
        {
            self.let_go_of(&namespace, number);
        }
        self.settle(live);
    }

    /// Keeps an entry, for which its namespaces are charged.
    fn keep(&mut self, entry: Arc<HistoryEntry>) {
        self.bytes += entry.bytes;
        for (namespace, bytes) in entry.charges() {
            self.shares.add(namespace, entry.number, bytes);
        }
        self.entries.insert(entry.number, entry);
    }

    /// Lets go of an entry, and returns it.
    fn let_go(&mut self, number: u64) -> Option<Arc<HistoryEntry>> {
        let first = self.entries.first_key_value().map(|(first, _)| *first);
        let entry = self.entries.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        for (namespace, _) in entry.charges() {
            self.shares.remove(namespace, number);
        }
        if first == Some(number) {
            self.listed_since = self.listed_since.max(entry.at);
        }
        Some(entry)
    }

    /// Lets go of the part that a namespace has in an entry.
    fn let_go_of(&mut self, namespace: &Arc<str>, number: u64) {
        let since = self.listed_since;
        let Some(entry) = self.let_go(number) else {
            self.shares.remove(namespace, number);
            return;
        };
        self.lose(namespace, entry.at);
        match entry.without(namespace) {
            Some(rest) => {
                self.listed_since = since;
                self.keep(Arc::new(rest));
            }
            None => {
                self.unsettled.remove(&number);
            }
        }
    }

    /// Notes that a change of a namespace is not known.
    fn lose(&mut self, namespace: &Arc<str>, at: i64) {
        if let Some(since) = self.shares.lose(namespace, at) {
            self.known_since = self.known_since.max(since);
        }
    }

    /// Notes how commits became live.
    fn settle(&mut self, live: &Live) {
        while let Some(number) = self.unsettled.first() {
            if let Some(entry) = self.entries.get(number)
                && let Some(became) = entry.commit.map(|number| live.became_live(number))
            {
                if became == BecameLive::NotYet {
                    break;
                }
                let _ = entry.live.set(became);
            }
            self.unsettled.pop_first();
        }
    }
}
