//! Claims that objects came to after their creation: who had a host first keeps it from an older
//! object that is edited to claim it.
//!
//! They are history, which the objects that are there do not tell, so they can be taken out of an
//! engine and given to another one. A claim that has an effect stays as old as it is, whatever
//! else changes in its object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::{Meta, ObjectKey};
use myriad_model::Host;

/// The hosts that one object came to after its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateClaims {
    /// The object.
    pub key: ObjectKey,
    /// Its creation, in seconds since the epoch. One that was made anew since is another.
    pub created: i64,
    /// The hosts, and since when it claims each; empty where nothing is noted any more.
    pub hosts: Vec<(Host, i64)>,
}

/// The changes of such claims, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimsChange {
    /// Objects, each with all that is noted of it.
    pub objects: Vec<LateClaims>,
    /// Namespaces beyond the bound: their objects claim hosts after everybody else, and no more is
    /// noted of them.
    pub beyond: Vec<Arc<str>>,
}

/// The claims of an object, and what of them may be new.
#[derive(Debug, Default)]
pub(crate) struct NewlyClaimed {
    /// The hosts of its newer version.
    pub hosts: BTreeSet<Host>,
    /// Hosts among them that the version before did not name, or not so that it could have an
    /// effect: whether it had one is for the engine to say.
    pub changed: BTreeSet<Host>,
    /// Hosts among these that the version before named.
    pub named: BTreeSet<Host>,
    /// Whether the version before could own no host.
    pub owned_none: bool,
}

/// Since when objects claim hosts, where that is not since their creation.
pub struct Late {
    is_kept: bool,
    /// How many hosts may be noted of a namespace; zero is no bound.
    bound: u64,
    pub objects: BTreeMap<ObjectKey, LateEntry>,
    /// How many hosts are noted, by namespace.
    counts: BTreeMap<Box<str>, u64>,
    beyond: BTreeSet<Arc<str>>,
    /// The newest creation of an object that claims hosts, by the clock of the API server.
    pub newest: i64,
    /// Objects of which other things are noted than was told.
    untold: BTreeSet<ObjectKey>,
    /// Namespaces beyond the bound of which that was not told yet.
    untold_beyond: BTreeSet<Arc<str>>,
}

/// The record of an object's claims.
pub struct LateEntry {
    /// Its creation.
    pub created: i64,
    /// The hosts that it came to, and since when it claims each.
    pub hosts: BTreeMap<Host, i64>,
}

impl ClaimsChange {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.beyond.is_empty()
    }
}

impl Late {
    /// A table without any record.
    pub fn new(is_kept: bool, bound: u64) -> Self {
        Late {
            is_kept,
            bound,
            objects: BTreeMap::new(),
            counts: BTreeMap::new(),
            beyond: BTreeSet::new(),
            newest: 0,
            untold: BTreeSet::new(),
            untold_beyond: BTreeSet::new(),
        }
    }

    /// Whether anything is noted.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Whether the objects of a namespace claim hosts after everybody else.
    pub fn is_beyond(&self, namespace: &str) -> bool {
        !self.beyond.is_empty() && self.beyond.contains(namespace)
    }

    /// Since when an object claims a host, if not since its creation.
    pub fn since(&self, meta: &Meta, host: &Host) -> Option<i64> {
        if self.is_beyond(meta.key.namespace()) {
            return Some(i64::MAX);
        }
        let entry = self.objects.get(&meta.key)?;
        let is_of = entry.created == meta.created;
        is_of.then(|| entry.hosts.get(host).copied())?
    }

    /// How many hosts are noted.
    pub fn len(&self) -> usize {
        self.objects.values().map(|entry| entry.hosts.len()).sum()
    }

    /// The changes since it was asked last.
    pub fn settle(&mut self) -> ClaimsChange {
        let untold = std::mem::take(&mut self.untold);
        ClaimsChange {
            objects: untold.into_iter().map(|key| self.told(key)).collect(),
            beyond: std::mem::take(&mut self.untold_beyond)
                .into_iter()
                .collect(),
        }
    }

    /// All that is noted.
    pub fn all(&self) -> ClaimsChange {
        ClaimsChange {
            objects: self
                .objects
                .keys()
                .map(|it| self.told(it.clone()))
                .collect(),
            beyond: self.beyond.iter().cloned().collect(),
        }
    }

    fn told(&self, key: ObjectKey) -> LateClaims {
        let entry = self.objects.get(&key);
        let hosts = entry.iter().flat_map(|entry| &entry.hosts);
        LateClaims {
            created: entry.map_or(0, |entry| entry.created),
            hosts: hosts.map(|(host, since)| (host.clone(), *since)).collect(),
            key,
        }
    }

    /// Notes hosts of an object; returns whether its namespace is beyond the bound now.
    pub fn insert(&mut self, key: &ObjectKey, created: i64, hosts: Vec<(Host, i64)>) -> bool {
        let namespace = key.namespace();
        if hosts.is_empty() || self.is_beyond(namespace) {
            return false;
        }
        if self
            .objects
            .get(key)
            .is_some_and(|it| it.created != created)
        {
            self.forget(key);
        }
        let entry = self
            .objects
            .entry(key.clone())
            .or_insert_with(|| LateEntry {
                created,
                hosts: BTreeMap::new(),
            });
        let mut added = 0;
        for (host, since) in hosts {
            added += u64::from(entry.hosts.insert(host, since).is_none());
        }
        self.untold.insert(key.clone());
        let count = self.counts.entry(namespace.into()).or_default();
        *count += added;
        let is_beyond = self.bound > 0 && *count > self.bound;
        if is_beyond {
            self.overrun(namespace);
        }
        is_beyond
    }

    /// Forgets hosts of an object that are not among these.
    pub fn retain(&mut self, key: &ObjectKey, hosts: &BTreeSet<Host>) {
        let Some(entry) = self.objects.get_mut(key) else {
            return;
        };
        let before = entry.hosts.len();
        entry.hosts.retain(|host, _| hosts.contains(host));
        let (is_empty, removed) = (entry.hosts.is_empty(), before - entry.hosts.len());
        if is_empty {
            self.objects.remove(key);
        }
        self.count_off(key, removed);
    }

    /// Forgets what is noted of an object.
    pub fn forget(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.objects.remove(key) {
            self.count_off(key, entry.hosts.len());
        }
    }

    fn count_off(&mut self, key: &ObjectKey, removed: usize) {
        if removed == 0 {
            return;
        }
        self.untold.insert(key.clone());
        if let Some(count) = self.counts.get_mut(key.namespace()) {
            *count = count.saturating_sub(removed as u64);
            if *count == 0 {
                self.counts.remove(key.namespace());
            }
        }
    }

    /// Lets the objects of a namespace claim hosts after everybody else; returns whether that is
    /// new.
    pub fn overrun(&mut self, namespace: &str) -> bool {
        if self.is_beyond(namespace) {
            return false;
        }
        let of_namespace = |key: &&ObjectKey| key.namespace() == namespace;
        let keys: Vec<ObjectKey> = self.objects.keys().filter(of_namespace).cloned().collect();
        for key in keys {
            self.objects.remove(&key);
            self.untold.insert(key);
        }
        self.counts.remove(namespace);
        let namespace: Arc<str> = namespace.into();
        self.beyond.insert(namespace.clone());
        self.untold_beyond.insert(namespace);
        true
    }
}

impl NewlyClaimed {
    /// The new claims among the hosts of two versions, where some that both name are named alike.
    pub(crate) fn new(
        named: BTreeSet<Host>,
        hosts: BTreeSet<Host>,
        is_same: impl Fn(&Host) -> bool,
    ) -> Self {
        let is_changed = |host: &&Host| !named.contains(*host) || !is_same(host);
        NewlyClaimed {
            changed: hosts.iter().filter(is_changed).cloned().collect(),
            hosts,
            named,
            owned_none: false,
        }
    }
}
