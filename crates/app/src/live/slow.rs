//! Objects that are not live everywhere after a while, by proxies who may speak of them.
//!
//! A sidecar that lags behind, for whatever reason, makes no findings about objects of other
//! namespaces: Events are made of them. An object is judged by proxies whose view its commit
//! changed, since to all others it means nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_base::clock::Instant;

use super::{Proxy, SLOW_AFTER, SLOW_MAX, State};

/// The most views that the sidecars of one namespace are seen to lag behind in.
const LAGGING_VIEWS_MAX: usize = 16;

/// The views that proxies lag behind in, by the namespace that these are of, and the least commit
/// that one of them has reached.
type Lagging<'a> = BTreeMap<Option<&'a str>, BTreeMap<&'a str, u64>>;

impl State {
    /// The findings about objects whose last commit some proxy lacks that may speak of them.
    pub(super) fn find_slow(&self, now: Instant) -> BTreeSet<Arc<Finding>> {
        let is_slow = |number: u64| {
            let commit = self.commit(number);
            commit.is_some_and(|it| now.saturating_duration_since(it.since) > SLOW_AFTER)
        };
        let leasts = [&self.gateways, &self.sidecars].map(|it| it.least(self.newest));
        let Some(least) = leasts.into_iter().flatten().min() else {
            return BTreeSet::new();
        };
        if !is_slow(self.first().max(least + 1)) {
            return BTreeSet::new();
        }
        let lagging = self.lagging();
        let is_found = |(object, number): &(&ObjectKey, &u64)| {
            **number > least && is_slow(**number) && self.is_lacked(object, **number, &lagging)
        };
        let mut objects: Vec<_> = self.objects.iter().filter(is_found).collect();
        objects.sort();
        objects.truncate(SLOW_MAX);
        let finding = |(object, number): (&ObjectKey, &u64)| {
            let mut proxies = self.proxies.values();
            let first = proxies.find(|proxy| self.lacks(proxy, object, *number));
            // Its token says who it is, and nothing that it says itself.
            let first = first.map_or("", |proxy| &*proxy.newcomer.subject);
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

    /// Whether an object's commit lacks at a proxy that counts for it.
    fn is_lacked(&self, object: &ObjectKey, number: u64, lagging: &Lagging<'_>) -> bool {
        let Some(commit) = self.commit(number) else {
            return false;
        };
        let speakers = [None, Some(object.namespace())];
        let views = speakers.iter().filter_map(|it| lagging.get(it)).flatten();
        let mut behind = views.filter(|(_, reached)| **reached < number);
        behind.any(|(view, _)| commit.changes(view))
    }

    /// The same of one proxy.
    fn lacks(&self, proxy: &Proxy, object: &ObjectKey, number: u64) -> bool {
        let is_behind = (1..number).contains(&proxy.reached(self.newest));
        let commit = self.commit(number);
        is_behind
            && proxy.newcomer.speaker.may_speak_of(object)
            && commit.is_some_and(|commit| commit.changes(&proxy.newcomer.view))
    }

    /// The views that proxies lag behind in, of those that have said what they serve.
    fn lagging(&self) -> Lagging<'_> {
        let mut lagging = Lagging::new();
        for proxy in self.proxies.values() {
            let Some(reached) = proxy.reached.filter(|reached| *reached > 0) else {
                continue;
            };
            let (speaker, view) = (proxy.newcomer.speaker.namespace(), &*proxy.newcomer.view);
            let views = lagging.entry(speaker).or_default();
            let has_room = speaker.is_none() || views.len() < LAGGING_VIEWS_MAX;
            match views.get_mut(view) {
                Some(least) => *least = reached.min(*least),
                None if has_room => {
                    views.insert(view, reached);
                }
                None => {}
            }
        }
        lagging
    }
}
