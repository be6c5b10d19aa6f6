//! When commits became live: known from the roots that proxies acknowledge.
//!
//! A commit is live when every connected gateway has reported the root of its snapshot, or that of
//! a later one; where there is no gateway, every sidecar. Whoever may run a Pod may have its
//! sidecar report nothing, so that beside gateways sidecars count for objects of their own
//! namespace alone. Positions cannot say that: commits between two positions share the first. A
//! proxy that has not reported any root yet is not waited for: it may be fetching everything.

mod awaited;
mod crowd;
mod refusals;
mod report;
mod served;
mod slow;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use myriad_api::{Finding, ObjectKey, one_line};
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Gauge, Metrics, NativeHistogram};
use myriad_model::{Digest, Key, Position};
use myriad_translate::FindingsChange;
use tokio::sync::Notify;

pub use self::awaited::AwaitedResource;
pub use self::refusals::{REFUSALS_MAX, REFUSERS_MAX, RefusedResource, Speaker};
pub use self::report::{BecameLive, LiveReport, ObjectReport, ProxyReport, by_kind};
pub use self::served::{ProxyGroup, Served};

use crate::activation::BUCKETS;

use self::crowd::Crowd;
use self::refusals::Refusals;
use self::served::Groups;

/// The most commits that are remembered; of older ones nobody learns any more when they became
/// live.
pub const COMMITS_MAX: usize = 4_096;

/// The most roots that are remembered, over all views.
pub const ROOTS_MAX: usize = 65_536;

/// The most objects whose last commit is remembered; the others count as older.
pub const OBJECTS_MAX: usize = 32_768;

/// The most objects of which people are told that they are slow.
pub const SLOW_MAX: usize = 100;

/// The most proxies that a report lists, those that are furthest behind first; all are counted.
pub const PROXIES_SHOWN_MAX: usize = 1_000;

/// The most proxies that are named because they lack an object.
const MISSING_SHOWN_MAX: usize = 20;

/// After which time a commit that is not live is slow.
pub const SLOW_AFTER: Duration = Duration::from_secs(5);

/// Remembers commits and who has put them into service. Cheap to clone.
#[derive(Clone)]
pub struct Live {
    state: Arc<Mutex<State>>,
    /// Wakes whoever waits for objects to be served.
    served: Arc<Notify>,
    seconds: NativeHistogram,
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
    /// The one in whose name it speaks.
    pub speaker: Speaker,
}

/// The root of a view, by its name.
pub type Root = (Arc<str>, Digest);

/// The crowds that a proxy is counted in: that of its speaker, and that of its group.
type Crowds = (Speaker, Option<ProxyGroup>);

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
    /// How far the proxies of the operator have got.
    gateways: Crowd,
    /// How far those of namespaces have.
    sidecars: Crowd,
    /// How far those have that serve the same objects, and which objects wait for them.
    groups: Groups,
    /// The commits that objects last changed by, and which objects were noted in which order.
    objects: HashMap<ObjectKey, u64>,
    noted: VecDeque<(ObjectKey, u64)>,
    refusals: Refusals,
    slow: BTreeSet<Arc<Finding>>,
    /// Resources whose next change is awaited, and the commit that has it once it has come. There
    /// are as many as those who wait.
    awaited: HashMap<Key, Option<u64>>,
    /// Changes of resources so far.
    resources: u64,
}

struct Committed {
    /// The views that it changed, in their order, and their roots after it.
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

struct Proxy {
    newcomer: Newcomer,
    /// The proxies that serve the same objects; none serve what nobody waits for.
    group: Option<ProxyGroup>,
    since: Instant,
    /// The newest commit that it is known to have put into service, 0 for none yet; `None` while it
    /// is in step.
    reached: Option<u64>,
    position: Position,
    refused: u64,
}

impl Live {
    /// A state before anything is seen.
    pub fn new(metrics: &Metrics) -> Live {
        let live = Live {
            state: Arc::default(),
            served: Arc::default(),
            seconds: NativeHistogram::new(&BUCKETS),
            behind: Gauge::default(),
        };
        let help = "From a change's arrival to the moment when every gateway serves it";
        metrics.register_native("live_seconds", help, &live.seconds);
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
            let number = state.newest + 1;
            for key in resources {
                state.resources += 1;
                if let Some(awaited) = state.awaited.get_mut(key) {
                    *awaited = Some(number);
                }
                change.removed.extend(state.refusals.forget(key));
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
        let group = state.groups.group_of(&newcomer);
        let crowds = (newcomer.speaker.clone(), group.clone());
        let proxy = Proxy {
            newcomer,
            group,
            since: clock::now(),
            reached: Some(0),
            position: Position::default(),
            refused: 0,
        };
        state.proxies.insert(stream, proxy);
        state.in_crowds(&crowds, |crowd| crowd.count(0));
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
            let crowds = proxy.crowds();
            let was_ready = state.groups.is_ready(crowds.1.as_ref());
            state.in_crowds(&crowds, |crowd| crowd.leave(before));
            state.reach(stream, after);
            self.tell_served(&mut state, crowds.1.as_ref(), was_ready);
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
        let count = omitted.saturating_add(refused.len() as u64);
        proxy.refused = proxy.refused.saturating_add(count);
        let speaker = proxy.newcomer.speaker.clone();
        let refused = refused.into_iter();
        let new = refused.filter_map(|it| state.refusals.add((stream, &speaker), it));
        change.added.extend(new);
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
        let was_ready = state.groups.is_ready(proxy.group.as_ref());
        state.in_crowds(&proxy.crowds(), |crowd| match proxy.reached {
            Some(number) => crowd.leave(number),
            None => crowd.in_step.remove(&proxy.newcomer.view, stream),
        });
        self.tell_served(&mut state, proxy.group.as_ref(), was_ready);
        if proxy.refused > 0 {
            let gone = state.refusals.leave((stream, &proxy.newcomer.speaker));
            change.removed.extend(gone);
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
        let missing: Vec<_> = state.missing(object, number).collect();
        let proxies_total = state.concerned_by(object).count();
        let shown = missing.iter().take(MISSING_SHOWN_MAX);
        ObjectReport {
            proxies_total,
            live: proxies_total - missing.len(),
            missing: shown.map(|name| (*name).to_owned()).collect(),
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
                    self.seconds.observe(took);
                }
            }
        }
        state.live = least;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Committed {
    /// Whether it changed a view.
    fn changes(&self, view: &str) -> bool {
        let roots = &self.roots;
        roots
            .binary_search_by(|(known, _)| (**known).cmp(view))
            .is_ok()
    }
}

impl Proxy {
    /// The newest commit that it is known to have put into service, of so many; 0 for none yet.
    fn reached(&self, newest: u64) -> u64 {
        self.reached.unwrap_or(newest)
    }

    /// The crowds that it is counted in.
    fn crowds(&self) -> Crowds {
        (self.newcomer.speaker.clone(), self.group.clone())
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

    /// The commit that all gateways have reached that have reached any; where there are none, all
    /// sidecars.
    fn least(&self) -> Option<u64> {
        let gateways = self.gateways.least(self.newest);
        gateways.or_else(|| self.sidecars.least(self.newest))
    }

    /// How many proxies have reached the newest commit.
    fn count_in_step(&self) -> usize {
        let crowds = [&self.gateways, &self.sidecars];
        crowds.map(|it| it.count_in_step(self.newest)).iter().sum()
    }

    /// Does the same to the crowds of a proxy.
    fn in_crowds(&mut self, (speaker, group): &Crowds, act: impl Fn(&mut Crowd)) {
        match speaker {
            Speaker::Operator => act(&mut self.gateways),
            Speaker::Namespace(_) => act(&mut self.sidecars),
        }
        if let Some(group) = group {
            self.groups.change(group, act);
        }
    }

    /// Notes the commit that a proxy has reached.
    fn reach(&mut self, stream: u64, number: u64) {
        let Some(proxy) = self.proxies.get_mut(&stream) else {
            return;
        };
        let is_newest = number == self.newest;
        proxy.reached = (!is_newest).then_some(number);
        let (crowds, view) = (proxy.crowds(), proxy.newcomer.view.clone());
        self.in_crowds(&crowds, |crowd| match is_newest {
            true => crowd.in_step.insert(&view, stream),
            false => crowd.count(number),
        });
    }

    fn note_commit(&mut self, mut roots: Vec<Root>, since: Instant) {
        roots.sort_unstable_by(|a, b| a.0.cmp(&b.0));
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
            let gateways = self.gateways.in_step.take(view);
            let sidecars = self.sidecars.in_step.take(view);
            for stream in gateways.into_iter().chain(sidecars) {
                let group = self.proxies.get(&stream).and_then(|it| it.group.clone());
                if let Some(group) = group {
                    let leave = |crowd: &mut Crowd| crowd.in_step.remove(view, stream);
                    self.groups.change(&group, leave);
                }
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

    /// The proxies that count for an object.
    fn concerned_by(&self, object: &ObjectKey) -> impl Iterator<Item = &Proxy> {
        let proxies = self.proxies.values();
        proxies.filter(move |proxy| proxy.newcomer.speaker.may_speak_of(object))
    }

    /// The names that proxies give themselves which count for an object and have said nothing yet,
    /// or have not reached a commit that changed their view.
    fn missing(&self, object: &ObjectKey, number: u64) -> impl Iterator<Item = &str> {
        let commit = self.commit(number);
        let lacks = move |proxy: &&Proxy| {
            let reached = proxy.reached(self.newest);
            let is_of_view = commit.is_none_or(|commit| commit.changes(&proxy.newcomer.view));
            reached < number && (reached == 0 || is_of_view)
        };
        let concerned = self.concerned_by(object).filter(lacks);
        concerned.map(|proxy| &*proxy.newcomer.instance)
    }

    fn refusals(&self, is_wanted: impl Fn(Option<&ObjectKey>) -> bool) -> Vec<String> {
        let refusals = self.refusals.iter();
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
}
