//! The catalog: which resources concern which host, in orders that are searched from either end of
//! a name, and the resources that those refer to, by name. It is kept where a console shows it,
//! in step with every change.
//!
//! Nothing is walked: a change costs what it changes, and a reader takes a bounded part.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_model::{Change, Endpoints, Host, Key, Kind, Resource, Sealed, SealedArc, Value, wire};

/// The most changes that are taken in before a reader may have its turn.
const PORTION: usize = 1_024;

/// The most resources of one host that a reader is given.
pub const RESOURCES_MAX: usize = 256;

/// The most parts of an upstream's endpoints that a reader is given.
const PARTS_MAX: usize = 64;

/// The catalog of a process. Cheap to clone; clones are one.
#[derive(Clone, Default)]
pub struct Catalog(Arc<Mutex<Option<State>>>);

#[derive(Default)]
struct State {
    /// The resources of each host, in the order of the alphabet.
    placed: BTreeSet<Placed>,
    /// The hosts in the order of the alphabet as it is read from their ends.
    backwards: BTreeSet<Backwards>,
    /// The resources that others refer to.
    named: BTreeSet<Named>,
}

/// The end of a name that a search is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameEnd {
    /// Names that start with a text.
    #[default]
    Start,
    /// Names that end with it.
    End,
}

/// A page of hosts.
#[derive(Debug, Default)]
pub struct HostPage {
    /// The hosts, each with some of its resources.
    pub hosts: Vec<HostEntry>,
    /// The host behind which the next page begins; none where this is the last.
    pub next: Option<Arc<str>>,
}

/// A host, and what concerns it.
#[derive(Debug)]
pub struct HostEntry {
    /// The name or wildcard.
    pub host: Arc<str>,
    /// Its resources, at most as many as were asked for.
    pub resources: Vec<SealedArc>,
    /// Whether there are more of them.
    pub has_more: bool,
}

/// A resource at a host; none sorts before all of the host.
struct Placed {
    host: Arc<str>,
    sealed: Option<SealedArc>,
}

/// A host that is compared from its end.
struct Backwards(Arc<str>);

/// A resource that is found by its key.
struct Named(SealedArc);

impl Catalog {
    /// Keeps the catalog from now on: to be called before the first change.
    pub fn keep(&self) {
        self.lock().get_or_insert_default();
    }

    /// Takes changes in, where the catalog is kept.
    pub fn apply(&self, changes: &[Change]) {
        for portion in changes.chunks(PORTION) {
            let mut state = self.lock();
            let Some(state) = state.as_mut() else {
                return;
            };
            for change in portion {
                state.take_out(change.old.as_ref());
                state.put_in(change.new.as_ref());
            }
        }
    }

    /// The hosts that start or end with a text, behind one where one is given: at most so many,
    /// each with at most so many resources.
    pub fn search(
        &self,
        (text, end): (&str, NameEnd),
        after: Option<&str>,
        (hosts_max, resources_max): (usize, usize),
    ) -> HostPage {
        let state = self.lock();
        let Some(state) = state.as_ref() else {
            return HostPage::default();
        };
        let mut names = match end {
            NameEnd::Start => state.starting(text, after, hosts_max + 1),
            NameEnd::End => state.ending(text, after, hosts_max + 1),
        };
        let has_more = names.len() > hosts_max;
        names.truncate(hosts_max);
        let next = names.last().filter(|_| has_more).cloned();
        let hosts = names.into_iter().map(|host| state.at(host, resources_max));
        HostPage {
            hosts: hosts.collect(),
            next,
        }
    }

    /// The resources that concern a host, if any does.
    pub fn host(&self, host: &str) -> Option<HostEntry> {
        let state = self.lock();
        let entry = state.as_ref()?.at(host.into(), RESOURCES_MAX);
        (!entry.resources.is_empty()).then_some(entry)
    }

    /// How many hosts there are.
    pub fn hosts_len(&self) -> usize {
        let state = self.lock();
        state.as_ref().map_or(0, |state| state.backwards.len())
    }

    /// A certificate, upstream or trust by its name.
    pub fn named(&self, key: &Key) -> Option<SealedArc> {
        let state = self.lock();
        let named = state.as_ref()?.named.get(key)?;
        Some(named.0.clone())
    }

    /// The endpoints of an upstream: the resource of its name, or its parts, of which there may be
    /// more than are given.
    pub fn endpoints(&self, upstream: &str) -> Vec<SealedArc> {
        let state = self.lock();
        let Some(state) = state.as_ref() else {
            return Vec::new();
        };
        let first = Key::new(Kind::Endpoints, upstream);
        let behind = state.named.range::<Key, _>(&first..);
        let parts = behind.map(|named| &named.0).take_while(|sealed| {
            sealed.key().kind == Kind::Endpoints && sealed.name().starts_with(upstream)
        });
        // Upstreams whose names merely start alike stand between.
        let parts = parts.take(PARTS_MAX);
        let parts = parts.filter(|sealed| Endpoints::upstream_of(sealed.name()) == upstream);
        parts.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_out(&mut self, sealed: Option<&SealedArc>) {
        let Some(sealed) = sealed else { return };
        if is_referred_to(sealed) {
            self.named.remove(sealed.key());
            return;
        }
        for host in hosts(sealed) {
            let place = Placed {
                host,
                sealed: Some(sealed.clone()),
            };
            self.placed.remove(&place);
            if !self.has(&place.host) {
                self.backwards.remove(&Backwards(place.host));
            }
        }
    }

    fn put_in(&mut self, sealed: Option<&SealedArc>) {
        let Some(sealed) = sealed else { return };
        if is_referred_to(sealed) {
            self.named.replace(Named(sealed.clone()));
            return;
        }
        for host in hosts(sealed) {
            self.backwards.insert(Backwards(host.clone()));
            self.placed.replace(Placed {
                host,
                sealed: Some(sealed.clone()),
            });
        }
    }

    fn has(&self, host: &Arc<str>) -> bool {
        self.of(host.clone()).next().is_some()
    }

    /// The resources at a host.
    fn of(&self, host: Arc<str>) -> impl Iterator<Item = &SealedArc> {
        let first = Placed {
            host: host.clone(),
            sealed: None,
        };
        let behind = self.placed.range(first..);
        let own = behind.take_while(move |placed| placed.host == host);
        own.filter_map(|placed| placed.sealed.as_ref())
    }

    fn at(&self, host: Arc<str>, resources_max: usize) -> HostEntry {
        let mut resources = self.of(host.clone());
        HostEntry {
            resources: resources.by_ref().take(resources_max).cloned().collect(),
            has_more: resources.next().is_some(),
            host,
        }
    }

    /// The first hosts that start with a text. Each is found anew, however much is at the one
    /// before.
    fn starting(&self, text: &str, after: Option<&str>, count_max: usize) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut from: Arc<str> = match after {
            Some(after) if after >= text => behind(after),
            _ => text.into(),
        };
        while names.len() < count_max {
            let first = Placed {
                host: from,
                sealed: None,
            };
            let next = self.placed.range(first..).next();
            let Some(found) = next.filter(|placed| placed.host.starts_with(text)) else {
                break;
            };
            from = behind(&found.host);
            names.push(found.host.clone());
        }
        names
    }

    /// The first hosts that end with a text, in the order of their ends.
    fn ending(&self, text: &str, after: Option<&str>, count_max: usize) -> Vec<Arc<str>> {
        let from = match after.map(|after| Backwards(after.into())) {
            Some(after) if after.0.ends_with(text) => Bound::Excluded(after),
            _ => Bound::Included(Backwards(text.into())),
        };
        let behind = self
            .backwards
            .range::<Backwards, _>((from, Bound::Unbounded));
        let found = behind.take_while(|host| host.0.ends_with(text));
        found.take(count_max).map(|host| host.0.clone()).collect()
    }
}

/// The least text behind another.
fn behind(text: &str) -> Arc<str> {
    format!("{text}\0").into()
}

/// Whether a resource is looked up by its name.
fn is_referred_to(sealed: &Sealed) -> bool {
    match sealed.key().kind {
        Kind::Certificate | Kind::Upstream | Kind::Endpoints | Kind::Trust => true,
        Kind::Listener
        | Kind::Domain
        | Kind::Route
        | Kind::StreamRoute
        | Kind::AccessPolicy
        | Kind::Provider
        | Kind::Telemetry
        | Kind::ChallengeAnswer
        | Kind::Newer(_) => false,
    }
}

/// The hosts that a resource is about.
fn hosts(sealed: &Sealed) -> Vec<Arc<str>> {
    if !matches!(
        sealed.key().kind,
        Kind::Domain | Kind::Route | Kind::StreamRoute
    ) {
        return Vec::new();
    }
    let Some(resource) = resource(sealed) else {
        return Vec::new();
    };
    match &resource.value {
        Value::Domain(domain) => texts(std::slice::from_ref(&domain.host)),
        // All routes of a block have the same hosts.
        Value::Route(_) | Value::Routes(_) => {
            let first = resource.value.route(0);
            first.map_or_else(Vec::new, |route| texts(route.hosts))
        }
        Value::StreamRoute(stream_route) => texts(&stream_route.hosts),
        _ => Vec::new(),
    }
}

fn texts(hosts: &[Host]) -> Vec<Arc<str>> {
    hosts.iter().map(|host| host.text().clone()).collect()
}

/// The resource of a sealed one, decoded where only its bytes are kept.
pub fn resource(sealed: &Sealed) -> Option<Cow<'_, Resource>> {
    match sealed.resource() {
        Some(resource) => Some(Cow::Borrowed(resource)),
        None => wire::decode(sealed.encoded()?).ok().map(Cow::Owned),
    }
}

impl Placed {
    /// The key of the resource; an entry without one sorts before all others.
    fn key(&self) -> Option<&Key> {
        self.sealed.as_deref().map(Sealed::key)
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_host = self.host.cmp(&other.host);
        by_host.then_with(|| self.key().cmp(&other.key()))
    }
}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Placed {}

impl Ord for Backwards {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.bytes().rev().cmp(other.0.bytes().rev())
    }
}

impl PartialOrd for Backwards {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Backwards {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Backwards {}

impl Borrow<Key> for Named {
    fn borrow(&self) -> &Key {
        self.0.key()
    }
}

impl Ord for Named {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for Named {}

#[cfg(test)]
mod tests;
