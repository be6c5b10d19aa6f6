//! Statuses of objects of Gateway API: from the control loop, which is told by translation, to
//! whoever writes them, and the proxies by which each object is served.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_api::gateway::status::{ListenerStatus, ObjectCondition, ParentStatus, State, Status};
use myriad_api::gateway::{GROUP, ParentReference};
use myriad_api::{Ingress, ObjectKey, ObjectKind};
use myriad_translate::{Difference, View};

use crate::dedicated::DedicatedGateways;
use crate::live::ProxyGroup;

/// The statuses of now. Cheap to clone; clones are one list.
#[derive(Clone, Default)]
pub struct StatedStatuses {
    statuses: Arc<Mutex<HashMap<ObjectKey, Arc<Status>>>>,
    /// The Gateways that have proxies of their own; none where none are made.
    dedicated: Option<DedicatedGateways>,
    /// Ingresses that wait to be served, as they are now.
    ingresses: Arc<Mutex<HashMap<ObjectKey, Arc<Ingress>>>>,
    /// How far this replica had read when it began to wait for an object.
    read: Arc<Mutex<HashMap<ObjectKey, Revisions>>>,
}

/// The most objects of which that is kept: each may have a list of its own. Of others it is not
/// asked whether other replicas know of them.
pub const READ_WAITING_MAX: usize = 4_096;

/// Revisions by kind.
pub type Revisions = Arc<BTreeMap<ObjectKind, u64>>;

/// The most Ingresses that are kept until they are served. Of others nobody is told.
pub const INGRESSES_WAITING_MAX: usize = 4_096;

/// The consequences of changed statuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatedChanges {
    /// The objects.
    pub objects: Vec<StatedChange>,
    /// Views of the proxies of Gateways that have come.
    pub views: Vec<View>,
    /// The names of views of those that are gone.
    pub gone: Vec<Arc<str>>,
}

/// An object whose status has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedChange {
    /// The object.
    pub key: ObjectKey,
    /// The proxies that it waits for anew, since what they obey may be another; none where only
    /// words and counts differ.
    pub awaits: Option<Vec<ProxyGroup>>,
    /// Whether there is nothing to say of it any more.
    pub is_gone: bool,
    /// Whether it is a Gateway with proxies of its own, or was one.
    pub is_dedicated: bool,
}

impl StatedStatuses {
    /// Statuses of which there are none yet. Gateways that want proxies of their own are noted in
    /// `dedicated`, where such are made.
    pub fn new(dedicated: Option<DedicatedGateways>) -> Self {
        StatedStatuses {
            statuses: Arc::default(),
            dedicated,
            ingresses: Arc::default(),
            read: Arc::default(),
        }
    }

    /// Takes in what has changed, and says what follows from it.
    pub fn change(&self, changed: &Difference<Status>) -> StatedChanges {
        let mut changes = StatedChanges::default();
        if changed.is_empty() {
            return changes;
        }
        for status in &changed.added {
            let former = self.lock().insert(status.object.clone(), status.clone());
            let was_dedicated = former.as_ref().is_some_and(|it| is_dedicated(it));
            let is_as_before = former.is_some_and(|it| is_obeyed_alike(&it, status));
            changes.objects.push(StatedChange {
                key: status.object.clone(),
                awaits: (!is_as_before).then(Vec::new),
                is_gone: false,
                is_dedicated: is_dedicated(status) || was_dedicated,
            });
            if status.object.kind == ObjectKind::Gateway {
                self.part(status.object.id(), is_dedicated(status), &mut changes);
            }
        }
        for status in &changed.removed {
            // One that was replaced is another by now.
            let mut statuses = self.lock();
            if statuses.get(&status.object) != Some(status) {
                continue;
            }
            statuses.remove(&status.object);
            drop(statuses);
            changes.objects.push(StatedChange {
                key: status.object.clone(),
                awaits: None,
                is_gone: true,
                is_dedicated: is_dedicated(status),
            });
            if is_dedicated(status) {
                self.part(status.object.id(), false, &mut changes);
            }
        }
        // Once all of them are known, since routes wait for the proxies of their Gateways.
        for change in &mut changes.objects {
            if let Some(awaits) = &mut change.awaits
                && let Some(status) = self.get(&change.key)
            {
                awaits.extend(self.groups(&status).into_iter().flatten());
                awaits.sort();
                awaits.dedup();
            }
        }
        changes
    }

    /// Gives a Gateway, by `namespace/name`, proxies of its own, or takes them away.
    fn part(&self, id: &Arc<str>, wants: bool, changes: &mut StatedChanges) {
        let Some(dedicated) = &self.dedicated else {
            return;
        };
        if wants {
            changes.views.extend(dedicated.put(id));
            return;
        }
        if let Some((view, next)) = dedicated.remove(id) {
            changes.gone.push(view);
            // There may be room for one that has waited for it.
            changes
                .views
                .extend(next.and_then(|next| dedicated.put(&next)));
        }
    }

    /// Keeps an Ingress until it is served.
    pub fn note_ingress(&self, ingress: Arc<Ingress>) {
        let mut ingresses = self.ingresses();
        let key = &ingress.meta.key;
        if ingresses.len() < INGRESSES_WAITING_MAX || ingresses.contains_key(key) {
            ingresses.insert(key.clone(), ingress);
        }
    }

    /// Takes out an Ingress that is served.
    pub fn take_ingress(&self, key: &ObjectKey) -> Option<Arc<Ingress>> {
        self.ingresses().remove(key)
    }

    /// Notes how far this replica had read when an object began to wait: one that has read less
    /// may not know of it.
    pub fn note_read(&self, key: &ObjectKey, revisions: &Revisions) {
        let mut read = self.read();
        if read.len() < READ_WAITING_MAX || read.contains_key(key) {
            read.insert(key.clone(), revisions.clone());
        }
    }

    /// How far this replica had read then, while the object waits.
    pub fn read_of(&self, key: &ObjectKey) -> Option<Revisions> {
        self.read().get(key).cloned()
    }

    /// An object waits no more.
    pub fn forget_read(&self, key: &ObjectKey) {
        self.read().remove(key);
    }

    /// Shows every object that has a status, whether it is accepted (a route by all of its parents,
    /// a policy at all that it is for), and whether proxies are told of it.
    pub fn look_through(&self, mut look: impl FnMut(&ObjectKey, bool, bool)) {
        // Nobody who states anything waits meanwhile.
        let all: Vec<Arc<Status>> = self.lock().values().cloned().collect();
        for status in all {
            let (is_accepted, is_programmed) = match &status.state {
                State::Class(it) => (is_accepted(&it.conditions), true),
                State::Gateway(it) => (is_accepted(&it.conditions), is_programmed(&it.conditions)),
                State::ListenerSet(it) => {
                    (is_accepted(&it.conditions), is_programmed(&it.conditions))
                }
                State::Route(it) => (are_accepted(&it.parents), true),
                State::Policy(it) => (are_accepted(&it.ancestors), true),
            };
            look(&status.object, is_accepted, is_programmed);
        }
    }

    /// The status of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Status>> {
        self.lock().get(key).cloned()
    }

    /// The Gateways that have proxies of their own; none where none are made.
    pub fn dedicated(&self) -> DedicatedGateways {
        self.dedicated.clone().unwrap_or_default()
    }

    /// Whether the proxies of a Gateway, by `namespace/name`, have a view of their own.
    pub fn has_view(&self, id: &str) -> bool {
        let dedicated = self.dedicated.as_ref();
        dedicated.is_some_and(|it| it.view_name(id).is_some())
    }

    /// The Gateways whose proxies have a view of their own, by `namespace/name`.
    pub fn with_views(&self) -> Vec<Arc<str>> {
        let dedicated = self.dedicated.as_ref();
        dedicated.map_or_else(Vec::new, DedicatedGateways::ids)
    }

    /// The proxies by which an object is served: of a route for each of its parents, of others one
    /// entry. None where it is served by nobody, since it is not accepted.
    pub fn groups(&self, status: &Status) -> Vec<Option<ProxyGroup>> {
        match &status.state {
            State::Gateway(gateway) if is_accepted(&gateway.conditions) => {
                vec![self.of_gateway(status.object.id())]
            }
            State::ListenerSet(set) if is_accepted(&set.conditions) => {
                vec![self.of_gateway(&set.gateway)]
            }
            State::Gateway(_) | State::ListenerSet(_) => vec![None],
            State::Route(route) => {
                let namespace = status.object.namespace();
                let group = |it: &ParentStatus| {
                    let parent = Some(&it.parent).filter(|_| is_accepted(&it.conditions));
                    self.of_parent(parent?, namespace)
                };
                route.parents.iter().map(group).collect()
            }
            State::Class(_) | State::Policy(_) => Vec::new(),
        }
    }

    /// The proxies of a Gateway, by `namespace/name`.
    fn of_gateway(&self, id: &Arc<str>) -> Option<ProxyGroup> {
        let key = ObjectKey::from_id(ObjectKind::Gateway, id.clone());
        let status = self.get(&key)?;
        match is_dedicated(&status) {
            true => self.dedicated.as_ref()?.view_name(id).map(ProxyGroup::Own),
            false => Some(ProxyGroup::Shared),
        }
    }

    fn of_parent(&self, parent: &ParentReference, own: &str) -> Option<ProxyGroup> {
        let namespace = parent.namespace.as_deref().unwrap_or(own);
        match (parent.group(), parent.kind()) {
            (GROUP, "Gateway") => self.of_gateway(&format!("{namespace}/{}", parent.name).into()),
            (GROUP, "ListenerSet") => {
                let key = ObjectKey::new(ObjectKind::ListenerSet, namespace, &parent.name);
                match &self.get(&key)?.state {
                    State::ListenerSet(set) => self.of_gateway(&set.gateway),
                    _ => None,
                }
            }
            // Clients of all namespaces may obey it, but those of others keep nobody waiting.
            ("" | "core", "Service") => Some(ProxyGroup::Beside(own.into())),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Arc<Status>>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> MutexGuard<'_, HashMap<ObjectKey, Revisions>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ingresses(&self) -> MutexGuard<'_, HashMap<ObjectKey, Arc<Ingress>>> {
        let ingresses = self.ingresses.lock();
        ingresses.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an object, or a route at a parent, is accepted.
pub fn is_accepted(conditions: &[ObjectCondition]) -> bool {
    let mut accepted = conditions
        .iter()
        .filter(|it| it.kind == ObjectCondition::ACCEPTED);
    accepted.any(ObjectCondition::is_true)
}

fn are_accepted(parents: &[ParentStatus]) -> bool {
    parents.iter().all(|parent| is_accepted(&parent.conditions))
}

/// Whether nothing says that proxies are not told of an object.
fn is_programmed(conditions: &[ObjectCondition]) -> bool {
    let mut programmed = conditions
        .iter()
        .filter(|it| it.kind == ObjectCondition::PROGRAMMED);
    programmed.all(ObjectCondition::is_true)
}

fn is_dedicated(status: &Status) -> bool {
    matches!(&status.state, State::Gateway(gateway) if gateway.deployment.is_some())
}

/// Whether two statuses of an object differ in words and counts alone. Where one of its conditions
/// turns without an edit of the object, such as when a certificate comes, proxies obey other
/// resources.
fn is_obeyed_alike(one: &Status, other: &Status) -> bool {
    let is_same = match (&one.state, &other.state) {
        (State::Gateway(one), State::Gateway(other)) => {
            one.deployment.is_some() == other.deployment.is_some()
                && have_turned_alike(&one.conditions, &other.conditions)
                && are_obeyed_alike(&one.listeners, &other.listeners)
        }
        (State::ListenerSet(one), State::ListenerSet(other)) => {
            one.gateway == other.gateway
                && have_turned_alike(&one.conditions, &other.conditions)
                && are_obeyed_alike(&one.listeners, &other.listeners)
        }
        (State::Route(one), State::Route(other)) => {
            let (ours, theirs) = (one.parents.iter(), other.parents.iter());
            ours.len() == theirs.len()
                && ours.zip(theirs).all(|(one, other)| {
                    one.parent == other.parent
                        && have_turned_alike(&one.conditions, &other.conditions)
                })
        }
        (State::Class(_), State::Class(_)) | (State::Policy(_), State::Policy(_)) => true,
        _ => false,
    };
    one.generation == other.generation && is_same
}

fn are_obeyed_alike(ours: &[ListenerStatus], theirs: &[ListenerStatus]) -> bool {
    ours.len() == theirs.len()
        && ours.iter().zip(theirs).all(|(one, other)| {
            one.name == other.name && have_turned_alike(&one.conditions, &other.conditions)
        })
}

fn have_turned_alike(one: &[ObjectCondition], other: &[ObjectCondition]) -> bool {
    let turns = |it: &ObjectCondition| (it.kind, it.status);
    one.iter().map(turns).eq(other.iter().map(turns))
}

#[cfg(test)]
mod tests;
