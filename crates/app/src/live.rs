//! When commits became live: known from the roots that proxies acknowledge.
//!
//! A commit is live when every connected proxy has reported the root of its snapshot, or that of
//! a later one. Positions cannot say that: commits between two positions share the first. A
//! proxy that has not reported any root yet is not waited for: it may be fetching everything.

mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use myriad_api::{Finding, ObjectKey, Severity, one_line};
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Gauge, Histogram, Metrics};
use myriad_model::{Digest, Key, Position};
use myriad_translate::FindingsChange;

pub use self::report::{LiveReport, ObjectReport, ProxyReport, by_kind};

/// The most commits that are remembered; of older ones nobody learns any more when they became
/// live.
pub const COMMITS_MAX: usize = 4_096;

/// The most roots that are remembered, over all views.
pub const ROOTS_MAX: usize = 65_536;

/// The most objects whose last commit is remembered; the others count as older.
pub const OBJECTS_MAX: usize = 32_768;

/// The most refused resources that are remembered.
pub const REFUSALS_MAX: usize = 1_000;

/// The most proxies that are remembered to have refused a resource. When all of them are gone,
/// so is what is said of it: who still refuses it says so when it connects again.
pub const REFUSERS_MAX: usize = 20;

/// The most objects of which people are told that they are slow.
pub const SLOW_MAX: usize = 100;

/// The most proxies that a report lists, those that are furthest behind first; all are counted.
pub const PROXIES_SHOWN_MAX: usize = 1_000;

/// The most proxies that are named because they lack an object.
const MISSING_SHOWN_MAX: usize = 20;

/// After which time a commit that is not live is slow.
pub const SLOW_AFTER: Duration = Duration::from_secs(5);

/// Upper bounds of the buckets of `live_seconds`.
const BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
];

/// Remembers commits and who has put them into service. Cheap to clone.
#[derive(Clone)]
pub struct Live {
    state: Arc<Mutex<State>>,
    seconds: Histogram,
    behind: Gauge,
}

/// A proxy that connects.
#[derive(Debug)]
pub struct Newcomer {
    /// The subject of its token.
    pub subject: Arc<str>,
    /// The view that it sees.
    pub view: Arc<str>,
    /// The name that it gives itself.
    pub instance: String,
    /// The newest schema that it understands.
    pub schema: u32,
}

/// A resource that a proxy refused.
#[derive(Debug)]
pub struct RefusedResource {
    /// The resource.
    pub key: Key,
    /// The object that it came from.
    pub object: Option<ObjectKey>,
    /// The reason.
    pub reason: String,
}

/// The root of a view, by its name.
pub type Root = (Arc<str>, Digest);

#[derive(Default)]
struct State {
    /// The newest commits; their numbers have no gaps.
    commits: VecDeque<Committed>,
    /// The newest commit of each remembered root of a view.
    roots: HashMap<Root, u64>,
    /// The newest root of each view.
    views: BTreeMap<Arc<str>, Digest>,
    /// The number of the newest commit; the first has 1.
    newest: u64,
    /// Up to which commit all is live.
    live: u64,
    proxies: BTreeMap<u64, Proxy>,
    /// How many proxies that are behind have reached which commit.
    reached: BTreeMap<u64, usize>,
    in_step: InStep,
    /// The commits that objects last changed by, and which objects were noted in which order.
    objects: HashMap<ObjectKey, u64>,
    noted: VecDeque<(ObjectKey, u64)>,
    refusals: BTreeMap<Key, Refusal>,
    slow: BTreeSet<Arc<Finding>>,
    /// Changes of resources so far.
    resources: u64,
}

struct Committed {
    /// The views that it changed, and their roots after it.
    roots: Vec<Root>,
    since: Instant,
    since_unix: i64,
    /// Whether anybody was connected who could take it.
    is_awaited: bool,
    /// When it became live, and how long that took.
    live: Option<(i64, Duration)>,
    /// Changes of resources up to here.
    resources: u64,
}

/// The proxies that serve all there is for them, by view. They have reached every commit that does
/// not change their view, so that one costs the proxies of the views that it changes.
#[derive(Default)]
struct InStep {
    streams: HashMap<Arc<str>, BTreeSet<u64>>,
    count: usize,
}

struct Proxy {
    newcomer: Newcomer,
    since: Instant,
    /// The newest commit that it is known to have put into service, 0 for none yet; `None` while it
    /// is in step.
    reached: Option<u64>,
    position: Position,
    refused: u64,
}

struct Refusal {
    finding: Arc<Finding>,
    /// Some of those who refused it, at most [`REFUSERS_MAX`].
    streams: BTreeSet<u64>,
}

impl Live {
    /// A state before anything is seen.
    pub fn new(metrics: &Metrics) -> Live {
        let live = Live {
            state: Arc::default(),
            seconds: Histogram::new(BUCKETS),
            behind: Gauge::default(),
        };
        let help = "From a change's arrival to the moment when every connected proxy serves it";
        metrics.register("live_seconds", help, live.seconds.clone());
        let help = "Connected proxies that do not serve the newest commit yet";
        metrics.register("proxies_behind", help, live.behind.clone());
        live
    }

    /// Notes a commit whose oldest change came at `since`: the views that it changed with the
    /// roots after it, the resources and the objects that changed. Nothing is a commit that
    /// changed no view. Returns the findings that no longer hold. To be called before any proxy
    /// can learn of it.
    pub fn committed<'a>(
        &self,
        roots: Vec<Root>,
        since: Instant,
        resources: impl Iterator<Item = &'a Key>,
        objects: impl IntoIterator<Item = ObjectKey>,
    ) -> FindingsChange {
        let mut state = self.lock();
        let mut change = FindingsChange::default();
        if !roots.is_empty() {
            for key in resources {
                state.resources += 1;
                let refusal = state.refusals.remove(key);
                change.removed.extend(refusal.map(|it| it.finding));
            }
            state.note_commit(roots, since);
        }
        for object in objects {
            state.note_object(object);
        }
        self.settle(&mut state);
        change
    }

    /// A view is gone; so are its proxies.
    pub fn view_gone(&self, view: &str) {
        self.lock().views.remove(view);
    }

    /// A proxy has connected.
    pub fn connected(&self, stream: u64, newcomer: Newcomer) {
        let mut state = self.lock();
        let proxy = Proxy {
            newcomer,
            since: clock::now(),
            reached: Some(0),
            position: Position::default(),
            refused: 0,
        };
        state.proxies.insert(stream, proxy);
        *state.reached.entry(0).or_default() += 1;
        self.settle(&mut state);
    }

    /// A proxy has put into service what has this root.
    pub fn acked(&self, stream: u64, root: Digest, position: Position) {
        let mut state = self.lock();
        let Some(view) = state.proxies.get(&stream) else {
            return;
        };
        let view = view.newcomer.view.clone();
        // A root that is not remembered is one within a long commit.
        let number = match state.views.get(&view) == Some(&root) {
            true => Some(state.newest),
            false => state.roots.get(&(view, root)).copied(),
        };
        let Some(proxy) = state.proxies.get_mut(&stream) else {
            return;
        };
        proxy.position = position;
        let Some(before) = proxy.reached else {
            return;
        };
        let after = number.unwrap_or(before).max(before);
        if after != before {
            state.leave(before);
            state.reach(stream, after);
            self.settle(&mut state);
        }
    }

    /// A proxy has refused resources. Returns what people should know of it.
    pub fn refused(
        &self,
        stream: u64,
        refused: Vec<RefusedResource>,
        omitted: u64,
    ) -> FindingsChange {
        let mut state = self.lock();
        let mut change = FindingsChange::default();
        let Some(proxy) = state.proxies.get_mut(&stream) else {
            return change;
        };
        proxy.refused += refused.len() as u64 + omitted;
        for it in refused {
            if let Some(known) = state.refusals.get_mut(&it.key) {
                if known.streams.len() < REFUSERS_MAX {
                    known.streams.insert(stream);
                }
                continue;
            }
            if state.refusals.len() >= REFUSALS_MAX {
                break;
            }
            let finding = Arc::new(Finding {
                severity: Severity::Error,
                object: it.object,
                field: String::new(),
                message: format!("a proxy refused {}: {}", it.key, it.reason),
                remedy: "change the object; until then its last good version is served".into(),
                place: None,
            });
            change.added.push(finding.clone());
            let streams = BTreeSet::from([stream]);
            state.refusals.insert(it.key, Refusal { finding, streams });
        }
        change.added.sort();
        change
    }

    /// A proxy is gone. Returns the findings that nobody is left for.
    pub fn gone(&self, stream: u64) -> FindingsChange {
        let mut state = self.lock();
        let mut change = FindingsChange::default();
        let Some(proxy) = state.proxies.remove(&stream) else {
            return change;
        };
        match proxy.reached {
            Some(number) => state.leave(number),
            None => state.in_step.remove(&proxy.newcomer.view, stream),
        }
        if proxy.refused > 0 {
            state.refusals.retain(|_, refusal| {
                let was_there = refusal.streams.remove(&stream);
                let is_last = was_there && refusal.streams.is_empty();
                change
                    .removed
                    .extend(is_last.then(|| refusal.finding.clone()));
                !is_last
            });
        }
        self.settle(&mut state);
        change
    }

    /// Looks for what is slow. To be called now and then; costs nothing while nothing is.
    pub fn look(&self, now: Instant) -> FindingsChange {
        let mut state = self.lock();
        let slow = state.find_slow(now);
        let change = FindingsChange {
            added: slow.difference(&state.slow).cloned().collect(),
            removed: state.slow.difference(&slow).cloned().collect(),
        };
        state.slow = slow;
        change
    }

    /// The connected proxies, and which commits they serve.
    pub fn report(&self) -> LiveReport {
        let state = self.lock();
        let mut proxies: Vec<_> = state.proxies.values().collect();
        let (now, newest) = (clock::now(), state.newest);
        proxies.sort_by_key(|proxy| proxy.reached(newest));
        let resources = |number| state.commit(number).map(|commit| commit.resources);
        let report = |proxy: &&Proxy| ProxyReport {
            instance: proxy.newcomer.instance.clone(),
            subject: proxy.newcomer.subject.to_string(),
            view: proxy.newcomer.view.to_string(),
            schema: proxy.newcomer.schema,
            connected_seconds: now.saturating_duration_since(proxy.since).as_secs(),
            is_in_step: proxy.reached(newest) == newest,
            commits_behind: (proxy.reached != Some(0)).then_some(newest - proxy.reached(newest)),
            resources_behind: resources(proxy.reached(newest)).map(|known| state.resources - known),
            position: by_kind(&proxy.position),
            refused: proxy.refused,
        };
        LiveReport {
            proxies_total: proxies.len(),
            in_step: state.count_in_step(),
            commits: newest,
            commits_live: state.live,
            proxies: proxies.iter().take(PROXIES_SHOWN_MAX).map(report).collect(),
            refusals: state.refusals(|_| true),
        }
    }

    /// The commits and proxies by which an object is live.
    pub fn report_of(&self, object: &ObjectKey) -> ObjectReport {
        let state = self.lock();
        // What is not remembered has not changed for longer than commits are.
        let noted = state.objects.get(object).copied();
        let number = noted.unwrap_or(1);
        let commit = state.commit(number);
        let missing = state.missing(number);
        ObjectReport {
            proxies_total: state.proxies.len(),
            live: state.proxies.len() - state.missing(number).count(),
            missing: missing.take(MISSING_SHOWN_MAX).map(str::to_owned).collect(),
            changed_unix: commit.map(|commit| commit.since_unix),
            live_since_unix: commit.and_then(|commit| Some(commit.live?.0)),
            live_after_ms: commit.and_then(|commit| u64::try_from(commit.live?.1.as_millis()).ok()),
            refused: state.refusals(|about| about == Some(object)),
        }
    }

    /// Finds what has become live, and counts who is behind.
    fn settle(&self, state: &mut State) {
        let behind = state.proxies.len().saturating_sub(state.count_in_step());
        self.behind.set(i64::try_from(behind).unwrap_or(i64::MAX));
        let Some(least) = state.least() else {
            return;
        };
        if least <= state.live {
            return;
        }
        let (now, unix) = (clock::now(), clock::unix_seconds());
        let first = state.first();
        for number in (state.live + 1).max(first)..=least {
            if let Some(commit) = state.commit_mut(number) {
                let took = now.saturating_duration_since(commit.since);
                commit.live = Some((unix, took));
                if commit.is_awaited {
                    self.seconds.observe(took.as_secs_f64());
                }
            }
        }
        state.live = least;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InStep {
    fn insert(&mut self, view: &Arc<str>, stream: u64) {
        let streams = self.streams.entry(view.clone()).or_default();
        self.count += usize::from(streams.insert(stream));
    }

    fn remove(&mut self, view: &str, stream: u64) {
        if let Some(streams) = self.streams.get_mut(view) {
            self.count -= usize::from(streams.remove(&stream));
            if streams.is_empty() {
                self.streams.remove(view);
            }
        }
    }

    /// Takes out all proxies of a view.
    fn take(&mut self, view: &str) -> BTreeSet<u64> {
        let streams = self.streams.remove(view).unwrap_or_default();
        self.count -= streams.len();
        streams
    }
}

impl Proxy {
    /// The newest commit that it is known to have put into service, of so many; 0 for none yet.
    fn reached(&self, newest: u64) -> u64 {
        self.reached.unwrap_or(newest)
    }
}

impl State {
    /// The number of the oldest commit that is remembered.
    fn first(&self) -> u64 {
        self.newest + 1 - self.commits.len() as u64
    }

    fn commit(&self, number: u64) -> Option<&Committed> {
        let place = number.checked_sub(self.first())?;
        self.commits.get(usize::try_from(place).ok()?)
    }

    fn commit_mut(&mut self, number: u64) -> Option<&mut Committed> {
        let place = number.checked_sub(self.first())?;
        self.commits.get_mut(usize::try_from(place).ok()?)
    }

    /// The commit that all have reached who have reached any.
    fn least(&self) -> Option<u64> {
        let behind = self.reached.range(1..).next().map(|(number, _)| *number);
        behind.or((self.in_step.count > 0).then_some(self.newest))
    }

    /// How many proxies have reached the newest commit.
    fn count_in_step(&self) -> usize {
        let newest = self.reached.get(&self.newest).copied();
        self.in_step.count + newest.unwrap_or(0)
    }

    /// Notes the commit that a proxy has reached.
    fn reach(&mut self, stream: u64, number: u64) {
        let Some(proxy) = self.proxies.get_mut(&stream) else {
            return;
        };
        if number == self.newest {
            proxy.reached = None;
            self.in_step.insert(&proxy.newcomer.view, stream);
        } else {
            proxy.reached = Some(number);
            *self.reached.entry(number).or_default() += 1;
        }
    }

    fn note_commit(&mut self, roots: Vec<Root>, since: Instant) {
        while self.commits.len() >= COMMITS_MAX || self.roots.len() >= ROOTS_MAX {
            let Some(oldest) = self.commits.pop_front() else {
                break;
            };
            let number = self.newest - self.commits.len() as u64;
            for root in oldest.roots {
                if self.roots.get(&root) == Some(&number) {
                    self.roots.remove(&root);
                }
            }
        }
        self.newest += 1;
        for (view, root) in &roots {
            self.roots.insert((view.clone(), *root), self.newest);
            self.views.insert(view.clone(), *root);
        }
        self.leave_behind(&roots);
        self.commits.push_back(Committed {
            roots,
            since,
            since_unix: clock::unix_seconds(),
            is_awaited: !self.proxies.is_empty(),
            live: None,
            resources: self.resources,
        });
    }

    /// Counts the proxies as behind that were in step and whose view the newest commit changes. All
    /// others that were in step have reached it.
    fn leave_behind(&mut self, roots: &[Root]) {
        for (view, _) in roots {
            for stream in self.in_step.take(view) {
                self.reach(stream, self.newest - 1);
            }
        }
    }

    fn note_object(&mut self, object: ObjectKey) {
        let number = self.newest;
        if self.objects.insert(object.clone(), number) == Some(number) {
            return;
        }
        self.noted.push_back((object, number));
        // A note that a later one of the same object has replaced takes up room as well.
        while self.noted.len() > OBJECTS_MAX {
            if let Some((object, number)) = self.noted.pop_front()
                && self.objects.get(&object) == Some(&number)
            {
                self.objects.remove(&object);
            }
        }
    }

    fn leave(&mut self, number: u64) {
        if let Some(count) = self.reached.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.reached.remove(&number);
            }
        }
    }

    /// The proxies that have not reached a commit, by the names they give themselves.
    fn missing(&self, number: u64) -> impl Iterator<Item = &str> {
        let proxies = self.proxies.values();
        proxies
            .filter(move |proxy| proxy.reached(self.newest) < number)
            .map(|proxy| &*proxy.newcomer.instance)
    }

    fn refusals(&self, is_wanted: impl Fn(Option<&ObjectKey>) -> bool) -> Vec<String> {
        let refusals = self.refusals.values();
        refusals
            .filter(|refusal| is_wanted(refusal.finding.object.as_ref()))
            .map(|refusal| {
                let streams = refusal.streams.iter();
                let proxies = streams.filter_map(|stream| self.proxies.get(stream));
                let names: Vec<_> = proxies.map(|proxy| &*proxy.newcomer.instance).collect();
                one_line(&format!(
                    "{} ({})",
                    refusal.finding.message,
                    names.join(", ")
                ))
            })
            .collect()
    }

    fn find_slow(&self, now: Instant) -> BTreeSet<Arc<Finding>> {
        let is_slow = |number: u64| {
            let commit = self.commit(number);
            number > self.live
                && commit.is_some_and(|it| now.saturating_duration_since(it.since) > SLOW_AFTER)
        };
        if self.least().is_none() || !is_slow(self.first().max(self.live + 1)) {
            return BTreeSet::new();
        }
        let objects = self.objects.iter().filter(|(_, number)| is_slow(**number));
        let mut objects: Vec<_> = objects.collect();
        objects.sort();
        objects.truncate(SLOW_MAX);
        let finding = |(object, number): (&ObjectKey, &u64)| {
            let behind = self.proxies.values();
            let behind = behind.filter(|it| (1..*number).contains(&it.reached(self.newest)));
            let mut names = behind.map(|proxy| &*proxy.newcomer.instance);
            let first = names.next().unwrap_or_default();
            Arc::new(Finding::new(
                Severity::Warning,
                object,
                "",
                format!(
                    "is not live on every proxy after {} s",
                    SLOW_AFTER.as_secs()
                ),
                format!("see why proxy {first} is behind: myriad status"),
            ))
        };
        objects.into_iter().map(finding).collect()
    }
}
