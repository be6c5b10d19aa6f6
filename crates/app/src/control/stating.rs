//! Statuses of objects of Gateway API, and the objects of which people are told when they are
//! served: what follows from them for the control loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::gateway::status::Status;
use myriad_api::{Batch, Ingress, ObjectKey, ObjectKind};
use myriad_translate::{Difference, View};

use super::Control;
use super::outlet::Outlet;
use crate::live::ProxyGroup;
use crate::stated::{Revisions, StatedChanges, StatedStatuses};

/// The most Ingresses of one batch of which people are told when they are served: more come in a
/// first list alone, which nobody waits for.
pub(super) const INGRESSES_TOLD_MAX: usize = 512;

/// How far a control loop has come, for other replicas.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The highest revision of each kind that was read.
    pub read: BTreeMap<ObjectKind, u64>,
    /// The namespaces of which something was read that is not translated yet.
    pub waiting: BTreeSet<Box<str>>,
}

/// The memory that the control loop has of that.
#[derive(Default)]
pub(super) struct Stating {
    /// Where statuses are kept; none where nobody writes them.
    stated: Option<StatedStatuses>,
    /// Whether the first list is over, for whose objects nobody waits.
    is_open: bool,
    /// The Ingresses that have changed in the batch that is published next.
    ingresses: Vec<Arc<Ingress>>,
    /// Objects of which not all is translated yet, by their namespace, and who is to serve them.
    held: BTreeMap<Box<str>, Vec<Held>>,
    /// Views of Gateways that are gone, and those that come after that, in their order.
    views: Vec<(Vec<Arc<str>>, Vec<View>)>,
    /// The highest revision of each kind that was read.
    read: BTreeMap<ObjectKind, u64>,
    /// The same of those that brought a change, since the first list: every replica reads them as
    /// soon as this one, and others that only tell how far a watch is at times of their own.
    changed: Revisions,
}

type Held = (ObjectKey, Vec<ProxyGroup>);

impl Stating {
    /// The first list is over.
    pub(super) fn open(&mut self) {
        self.is_open = true;
    }

    /// Notes how far a batch of a source has been read.
    pub(super) fn note_read(&mut self, batch: &Batch) {
        if self.stated.is_none() {
            return;
        }
        for (kind, revision) in &batch.positions {
            let known = self.read.entry(*kind).or_default();
            *known = (*known).max(*revision);
        }
        if !self.is_open {
            return;
        }
        let mut last = None;
        for change in &batch.changes {
            let kind = change.key().kind;
            if last != Some(kind)
                && let Some(revision) = self.read.get(&kind)
            {
                Arc::make_mut(&mut self.changed).insert(kind, *revision);
            }
            last = Some(kind);
        }
    }

    /// Revisions are those of another cluster from now on.
    pub(super) fn forget_read(&mut self) {
        self.read.clear();
        self.changed = Revisions::default();
    }

    /// Notes the Ingresses that have changed in the batch that is published next.
    pub(super) fn note(&mut self, ingresses: Vec<Arc<Ingress>>) {
        if self.is_open && self.stated.is_some() {
            self.ingresses = ingresses;
        }
    }
}

impl<O: Outlet> Control<O> {
    /// The same, which keeps statuses of objects of Gateway API in `stated`, and tells of objects
    /// that are served.
    pub fn with_stated(mut self, stated: StatedStatuses) -> Self {
        self.stating.stated = Some(stated);
        self
    }

    /// Takes in which statuses have changed, and which Ingresses are served, by the newest commit.
    pub(super) fn state_objects(&mut self, changed: &Difference<Status>, served: &[Arc<str>]) {
        let Some(stated) = self.stating.stated.clone() else {
            return;
        };
        let StatedChanges {
            objects,
            views,
            gone,
        } = stated.change(changed);
        if !views.is_empty() || !gone.is_empty() {
            self.stating.views.push((gone, views));
        }
        let mut awaited: Vec<Held> = Vec::new();
        for object in &objects {
            if let Some(groups) = &object.awaits {
                awaited.push((object.key.clone(), groups.clone()));
            } else if object.is_gone {
                self.live.forget_object(&object.key);
                stated.forget_read(&object.key);
                self.let_go(&object.key);
            }
        }
        let served: BTreeSet<&Arc<str>> = served.iter().collect();
        for ingress in std::mem::take(&mut self.stating.ingresses) {
            let key = &ingress.meta.key;
            if served.contains(key.id()) {
                awaited.push((key.clone(), vec![ProxyGroup::Shared]));
                stated.note_ingress(ingress);
            }
        }
        if self.stating.is_open {
            for (key, _) in &awaited {
                stated.note_read(key, &self.stating.changed);
            }
            self.await_objects(awaited);
        }
        self.outlet.state_objects(&objects);
    }

    /// Lets objects wait for their proxies, once all that follows from them is translated: a
    /// namespace may have units that run later.
    fn await_objects(&mut self, awaited: Vec<Held>) {
        if awaited.is_empty() && self.stating.held.is_empty() {
            return;
        }
        let postponed: BTreeSet<&str> = match self.engine.has_postponed() {
            true => self.engine.postponed().collect(),
            false => BTreeSet::new(),
        };
        let held = &mut self.stating.held;
        for (key, groups) in awaited {
            if postponed.contains(key.namespace()) {
                self.live.hold_object(&key, groups.iter().cloned());
                let lane = held.entry(key.namespace().into()).or_default();
                lane.retain(|(known, _)| *known != key);
                lane.push((key, groups));
            } else {
                self.live.await_object(&key, groups);
            }
        }
        let is_over = |namespace: &str| !postponed.contains(namespace);
        for (_, lane) in held.extract_if(.., |namespace, _| is_over(namespace)) {
            for (key, groups) in lane {
                self.live.await_object(&key, groups);
            }
        }
    }

    /// Forgets an object of which not all was translated.
    fn let_go(&mut self, key: &ObjectKey) {
        let held = &mut self.stating.held;
        if let Some(lane) = held.get_mut(key.namespace()) {
            lane.retain(|(known, _)| known != key);
            if lane.is_empty() {
                held.remove(key.namespace());
            }
        }
    }

    /// How far this control loop has come.
    pub(super) fn progress(&self) -> Progress {
        let waiting = self.queue.namespaces().chain(self.engine.postponed());
        Progress {
            read: self.stating.read.clone(),
            waiting: waiting.map(Box::from).collect(),
        }
    }

    /// How many objects wait to be translated as a whole.
    #[cfg(test)]
    pub(super) fn stating_held(&self) -> usize {
        self.stating.held.values().map(Vec::len).sum()
    }

    /// Takes away the views of Gateways that are gone, and puts those of Gateways that came.
    pub(super) fn settle_dedicated(&mut self) {
        let changes = std::mem::take(&mut self.stating.views);
        if changes.is_empty() {
            return;
        }
        for (gone, views) in changes {
            for name in gone {
                self.remove_view(&name);
            }
            for view in views {
                let name = view.name.clone();
                if let Err(error) = self.engine.put_view(view) {
                    tracing::error!(%name, "is not served: {error}");
                }
            }
        }
        self.translate_views();
    }
}
