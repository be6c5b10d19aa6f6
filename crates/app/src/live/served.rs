//! Objects that people wait for: each is served once at least one and every ready proxy has
//! reached the commit that it last changed by, of those that serve its like.
//!
//! An object waits at the number of its commit, for each group of proxies that serves it. An
//! acknowledgement looks at what waits up to the commit that its whole group has reached, so it
//! costs the objects that become served, however many there are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_translate::MAIN;

use super::crowd::Crowd;
use super::{Live, Newcomer, Speaker, State};
use crate::dedicated;

/// The proxies that serve the same objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProxyGroup {
    /// The operator's gateways that answer for Ingresses and shared Gateways.
    Shared,
    /// The proxies of one Gateway, by their view.
    Own(Arc<str>),
    /// Sidecars of the workloads of a namespace.
    Beside(Arc<str>),
}

/// How it is with an object at the proxies of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// No proxy is ready.
    Nowhere,
    /// Some ready proxy does not serve it as it is now.
    Partly {
        /// How many are ready.
        proxies: usize,
    },
    /// All ready proxies serve it.
    Everywhere {
        /// How many are ready.
        proxies: usize,
    },
}

/// The groups, and the objects that wait for them: no more than there are objects.
#[derive(Default)]
pub(super) struct Groups {
    /// Views beside the main one whose proxies are of [`ProxyGroup::Shared`].
    shared: BTreeSet<Arc<str>>,
    crowds: BTreeMap<ProxyGroup, Crowd>,
    /// The objects that wait for a group to reach a commit.
    waiting: BTreeMap<(ProxyGroup, u64), BTreeSet<ObjectKey>>,
    /// The same by object.
    objects: HashMap<ObjectKey, BTreeMap<ProxyGroup, u64>>,
    /// Objects that wait for no group any more, or for one whose first ready proxy has come or
    /// whose last is gone, since this was last taken.
    news: BTreeSet<ObjectKey>,
}

impl Live {
    /// Says which views beside the main one have proxies that serve Ingresses and shared Gateways.
    /// To be called before any proxy connects.
    pub fn share(&self, views: impl IntoIterator<Item = Arc<str>>) {
        self.lock().groups.shared.extend(views);
    }

    /// Lets an object wait until these proxies serve it as it is by the newest commit. To be called
    /// once that was noted.
    pub fn await_object(&self, key: &ObjectKey, groups: impl IntoIterator<Item = ProxyGroup>) {
        let mut state = self.lock();
        let newest = state.newest;
        state.groups.forget(key);
        for group in groups {
            state.groups.wait(key, group, newest, newest);
        }
        if !state.groups.objects.contains_key(key) {
            state.groups.news.insert(key.clone());
            self.served.notify_one();
        }
    }

    /// Lets an object wait for whatever it will be: what follows from it is not all translated.
    pub fn hold_object(&self, key: &ObjectKey, groups: impl IntoIterator<Item = ProxyGroup>) {
        let mut state = self.lock();
        let newest = state.newest;
        state.groups.forget(key);
        for group in groups {
            state.groups.wait(key, group, u64::MAX, newest);
        }
    }

    /// Nobody waits for an object any more.
    pub fn forget_object(&self, key: &ObjectKey) {
        self.lock().groups.forget(key);
    }

    /// How it is with an object at the proxies of a group. Where none of them is ready, it waits
    /// for the first.
    pub fn served(&self, key: &ObjectKey, group: &ProxyGroup) -> Served {
        let mut state = self.lock();
        let newest = state.newest;
        let groups = &mut state.groups;
        let served = groups.served(key, group);
        if served == Served::Nowhere && !groups.waits(key, group) {
            groups.wait(key, group.clone(), 1, newest);
        }
        served
    }

    /// The same, and nothing begins to wait.
    pub fn peek(&self, key: &ObjectKey, group: &ProxyGroup) -> Served {
        self.lock().groups.served(key, group)
    }

    /// Why a proxy has refused some of what follows from an object, if one has.
    pub fn refusal_of(&self, key: &ObjectKey) -> Option<String> {
        let state = self.lock();
        let mut refusals = state.refusals.iter();
        let found = refusals.find(|it| it.finding.object.as_ref() == Some(key));
        found.map(|refusal| refusal.finding.message.clone())
    }

    /// The objects that wait for proxies.
    pub fn waiting_objects(&self) -> Vec<ObjectKey> {
        self.lock().groups.objects.keys().cloned().collect()
    }

    /// How many proxies are ready in each group.
    pub fn ready_proxies(&self) -> Vec<(ProxyGroup, usize)> {
        let state = self.lock();
        let crowds = state.groups.crowds.iter();
        let ready = crowds.map(|(group, crowd)| (group.clone(), crowd.count_ready()));
        ready.filter(|(_, count)| *count > 0).collect()
    }

    /// Whether an object waits for proxies.
    pub fn awaits(&self, key: &ObjectKey) -> bool {
        self.lock().groups.objects.contains_key(key)
    }

    /// Waits for objects that are served, or wait for proxies of which the first is ready or the
    /// last is gone, and takes them. Dropping the future loses nothing. For one task at a time.
    pub async fn next_served(&self) -> BTreeSet<ObjectKey> {
        loop {
            let news = std::mem::take(&mut self.lock().groups.news);
            if !news.is_empty() {
                return news;
            }
            self.served.notified().await;
        }
    }

    /// Tells of what a group serves now that had a ready proxy before, or had none; if that has
    /// turned, of all that waits for it.
    pub(super) fn tell_served(
        &self,
        state: &mut State,
        group: Option<&ProxyGroup>,
        was_ready: bool,
    ) {
        let newest = state.newest;
        let Some(group) = group else {
            return;
        };
        let mut has_news = state.groups.advance(group, newest);
        if state.groups.is_ready(Some(group)) != was_ready {
            has_news |= state.groups.tell_waiting(group);
        }
        if has_news {
            self.served.notify_one();
        }
    }
}

impl Groups {
    /// The group of a proxy.
    pub(super) fn group_of(&self, newcomer: &Newcomer) -> Option<ProxyGroup> {
        let view = &newcomer.view;
        match &newcomer.speaker {
            Speaker::Operator if &**view == MAIN || self.shared.contains(view) => {
                Some(ProxyGroup::Shared)
            }
            // An egress gateway serves none of these objects.
            Speaker::Operator => None,
            Speaker::Namespace(_) if dedicated::is_view(view) => {
                Some(ProxyGroup::Own(view.clone()))
            }
            Speaker::Namespace(namespace) => Some(ProxyGroup::Beside(namespace.clone())),
        }
    }

    /// Changes the crowd of a group, which is there while it has proxies.
    pub(super) fn change(&mut self, group: &ProxyGroup, act: impl Fn(&mut Crowd)) {
        let crowd = self.crowds.entry(group.clone()).or_default();
        act(crowd);
        if crowd.is_empty() {
            self.crowds.remove(group);
        }
    }

    /// Whether a group has a ready proxy.
    pub(super) fn is_ready(&self, group: Option<&ProxyGroup>) -> bool {
        let crowd = group.and_then(|group| self.crowds.get(group));
        crowd.is_some_and(Crowd::is_ready)
    }

    fn served(&self, key: &ObjectKey, group: &ProxyGroup) -> Served {
        let proxies = self.crowds.get(group).map_or(0, Crowd::count_ready);
        match (proxies, self.waits(key, group)) {
            (0, _) => Served::Nowhere,
            (proxies, true) => Served::Partly { proxies },
            (proxies, false) => Served::Everywhere { proxies },
        }
    }

    /// Whether an object waits for a group.
    fn waits(&self, key: &ObjectKey, group: &ProxyGroup) -> bool {
        let groups = self.objects.get(key);
        groups.is_some_and(|it| it.contains_key(group))
    }

    /// Lets an object wait for a group, unless that has reached the commit.
    fn wait(&mut self, key: &ObjectKey, group: ProxyGroup, number: u64, newest: u64) {
        let least = self.crowds.get(&group).and_then(|it| it.least(newest));
        if least.is_some_and(|least| least >= number) {
            return;
        }
        let groups = self.objects.entry(key.clone()).or_default();
        groups.insert(group.clone(), number);
        let waiting = self.waiting.entry((group, number)).or_default();
        waiting.insert(key.clone());
    }

    /// Lets an object wait no more.
    fn forget(&mut self, key: &ObjectKey) {
        self.news.remove(key);
        for place in self.objects.remove(key).into_iter().flatten() {
            if let Some(waiting) = self.waiting.get_mut(&place) {
                waiting.remove(key);
                if waiting.is_empty() {
                    self.waiting.remove(&place);
                }
            }
        }
    }

    /// Takes out what waits for a commit that a group has reached. Returns whether there is news.
    fn advance(&mut self, group: &ProxyGroup, newest: u64) -> bool {
        let crowd = self.crowds.get(group);
        let Some(least) = crowd.and_then(|crowd| crowd.least(newest)) else {
            return false;
        };
        let mut has_news = false;
        let all = (group.clone(), 0)..=(group.clone(), least);
        while let Some((place, _)) = self.waiting.range(all.clone()).next() {
            let place = place.clone();
            for key in self.waiting.remove(&place).into_iter().flatten() {
                let Some(groups) = self.objects.get_mut(&key) else {
                    continue;
                };
                groups.remove(group);
                if groups.is_empty() {
                    self.objects.remove(&key);
                }
                // Of an object of two groups each is told, since people are told of each.
                self.news.insert(key);
                has_news = true;
            }
        }
        has_news
    }

    /// Tells of all that waits for a group, and goes on to wait. Returns whether there is any.
    fn tell_waiting(&mut self, group: &ProxyGroup) -> bool {
        let all = (group.clone(), 0)..=(group.clone(), u64::MAX);
        let mut has_news = false;
        for (_, keys) in self.waiting.range(all) {
            has_news = true;
            self.news.extend(keys.iter().cloned());
        }
        has_news
    }
}

#[cfg(test)]
mod tests;
