//! The holdings of namespaces: which objects stay, by their age, whatever order they came in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::{Object, ObjectKey};

use super::copies::Copies;
use super::row::{Moved, Row};
use crate::settings::Holding;
use crate::store::AtRest;

/// The holdings of each namespace that is bounded. An entry for each object that counts, and
/// none where nothing is bounded.
pub struct Allowances {
    by_namespace: BTreeMap<(Box<str>, Holding), Row<RowPlace>>,
    beyond: BTreeMap<ObjectKey, Beyond>,
    /// Objects that were let go, and for which there is room again.
    wanted: BTreeSet<ObjectKey>,
    /// Endpoints that upstreams have beside others.
    pub copies: Copies,
    /// Slots of hash tables that upstreams have of themselves.
    pub slots: Copies,
    /// Authorities of several objects that are one trust, in the measure of Secrets.
    pub joined: Copies,
}

/// An object that is more than its namespace may hold.
pub struct Beyond {
    /// The holding that it is too much of; the first where there are several.
    pub holding: Holding,
    /// Whether another object stands in its place.
    pub is_reduced: bool,
    /// Whether it was let go, and a hollow one is kept for it.
    pub(super) is_hollow: bool,
    kept: AtRest,
}

/// The place of an object in the rows of its namespace: the oldest goes first.
pub(super) type RowPlace = (i64, ObjectKey);

/// The amounts that an object counts for, by holding.
pub(crate) type Amounts = [Option<(Holding, u64)>; 4];

impl Beyond {
    /// An object that is too much of a holding and has nothing in its place.
    pub(super) fn new(object: Object, holding: Holding) -> Self {
        Beyond {
            holding,
            is_reduced: false,
            is_hollow: false,
            kept: AtRest::new(object),
        }
    }

    /// The same, which is too much of another holding.
    pub(super) fn of(self, holding: Holding) -> Self {
        Beyond { holding, ..self }
    }

    /// The object, or the hollow one that is kept for it.
    pub(super) fn object(&self) -> Option<Object> {
        self.kept.unpack()
    }

    /// When it was created.
    pub(super) fn created(&self) -> Option<i64> {
        self.kept.created()
    }
}

impl Allowances {
    /// Allowances of which nothing is held.
    pub fn new(copies: Copies, slots: Copies, joined: Copies) -> Self {
        Allowances {
            by_namespace: BTreeMap::new(),
            beyond: BTreeMap::new(),
            wanted: BTreeSet::new(),
            copies,
            slots,
            joined,
        }
    }

    /// Whether any object is beyond.
    pub fn is_any_beyond(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Whether an object is beyond.
    pub fn is_beyond(&self, key: &ObjectKey) -> bool {
        self.beyond.contains_key(key)
    }

    /// An object that is beyond.
    pub fn beyond(&self, key: &ObjectKey) -> Option<&Beyond> {
        self.beyond.get(key)
    }

    /// The objects that are beyond.
    pub fn keys_beyond(&self) -> impl Iterator<Item = &ObjectKey> {
        self.beyond.keys()
    }

    /// Forgets what objects of some namespaces count for, all of which are admitted again.
    pub(super) fn forget_rows(&mut self, is_of: &dyn Fn(&str) -> bool) {
        self.by_namespace
            .retain(|(namespace, _), _| !is_of(namespace));
    }

    /// Keeps an object that is beyond.
    pub(super) fn keep(&mut self, key: ObjectKey, beyond: Beyond) {
        self.wanted.remove(&key);
        self.beyond.insert(key, beyond);
    }

    /// Takes out an object that was beyond, and is not or has changed.
    pub(super) fn take(&mut self, key: &ObjectKey) -> Option<Beyond> {
        self.wanted.remove(key);
        self.beyond.remove(key)
    }

    /// Notes that there is room for an object that was let go.
    pub(super) fn want(&mut self, key: ObjectKey) {
        self.wanted.insert(key);
    }

    /// The objects to read again, each once.
    pub(super) fn take_wanted(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.wanted).into_iter().collect()
    }

    /// Notes in the rows of these bounds that an object came, changed or went. Returns which
    /// others of its namespace went beyond a bound or came back.
    pub(super) fn replace(
        &mut self,
        key: &ObjectKey,
        (old, new): (Option<i64>, Option<(i64, Amounts)>),
        bounds: &[(Holding, u64)],
    ) -> BTreeSet<ObjectKey> {
        let mut moved = Moved::default();
        for (holding, bound) in bounds {
            let id = (Box::from(key.namespace()), *holding);
            let row = self.by_namespace.entry(id.clone()).or_default();
            if let Some(created) = old {
                row.remove(&(created, key.clone()));
            }
            let amount = new.and_then(|(created, amounts)| {
                let mut amounts = amounts.into_iter().flatten();
                let (_, amount) = amounts.find(|(of, _)| of == holding)?;
                Some((created, amount))
            });
            if let Some((created, amount)) = amount {
                row.insert((created, key.clone()), amount);
            }
            row.settle(*bound, &mut moved);
            if row.is_empty() {
                self.by_namespace.remove(&id);
            }
        }
        let keys = moved.out.into_iter().chain(moved.back);
        let others = keys.map(|(_, key)| key).filter(|other| other != key);
        others.collect()
    }

    /// Brings the authorities that are joined to what Secrets leave of the bounds of their
    /// namespaces; returns those that are beyond now, and those that are not any more.
    pub(super) fn settle_joined(&mut self, bound: impl Fn(&str) -> Option<u64>) -> Vec<Arc<str>> {
        let by_namespace = &self.by_namespace;
        self.joined.settle_within(|namespace| {
            let Some(bound) = bound(namespace) else {
                return u64::MAX;
            };
            let id = (Box::from(namespace), Holding::Certificates);
            let held = by_namespace.get(&id).map_or(0, Row::sum);
            bound.saturating_sub(held)
        })
    }

    /// The first of these holdings that an object is too much of.
    pub(super) fn excess(&self, place: &RowPlace, bounds: &[(Holding, u64)]) -> Option<Holding> {
        let holdings = bounds.iter().map(|(holding, _)| *holding);
        let mut excesses = holdings.filter(|holding| {
            let id = (Box::from(place.1.namespace()), *holding);
            let row = self.by_namespace.get(&id);
            row.is_some_and(|row| row.is_beyond(place))
        });
        excesses.next()
    }
}
