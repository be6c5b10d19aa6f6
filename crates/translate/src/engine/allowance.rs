//! The holdings of namespaces: which objects stay, by their age, whatever order they came in.

use std::collections::BTreeMap;

use myriad_api::{Object, ObjectKey};

use super::copies::Copies;
use super::row::{Moved, Row};
use crate::settings::Holding;

/// The holdings of each namespace that is bounded. An entry for each object that counts, and
/// none where nothing is bounded.
pub struct Allowances {
    by_namespace: BTreeMap<(Box<str>, Holding), Row<RowPlace>>,
    /// Objects beyond, as they were written.
    pub beyond: BTreeMap<ObjectKey, Object>,
    /// Endpoints that upstreams have beside others.
    pub copies: Copies,
    /// Slots of hash tables that upstreams have of themselves.
    pub slots: Copies,
}

/// The place of an object in the row of its namespace: the oldest goes first.
pub(super) type RowPlace = (i64, ObjectKey);

/// The weight of an object: the holding, its place in the row, and the amount.
pub(super) type Held = (Holding, RowPlace, u64);

impl Allowances {
    /// Allowances of which nothing is held.
    pub fn new(copies: Copies, slots: Copies) -> Self {
        Allowances {
            by_namespace: BTreeMap::new(),
            beyond: BTreeMap::new(),
            copies,
            slots,
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

    /// An object that is beyond, as it was written.
    pub fn written(&self, key: &ObjectKey) -> Option<&Object> {
        self.beyond.get(key)
    }

    /// Notes that an object came, changed or went; returns whether it stays, where it is there, and
    /// who else moved.
    pub fn replace(
        &mut self,
        old: Option<Held>,
        new: Option<Held>,
        bound: impl Fn(Holding) -> Option<u64>,
    ) -> (bool, Moved<RowPlace>) {
        let mut moved = Moved::default();
        let mut stays = true;
        let Some((holding, place, _)) = new.as_ref().or(old.as_ref()) else {
            return (stays, moved);
        };
        let Some(bound) = bound(*holding) else {
            return (stays, moved);
        };
        // A kind counts for one holding, so that both are of the same.
        let id = (place.1.namespace().into(), *holding);
        let allowance = self.by_namespace.entry(id.clone()).or_default();
        if let Some((_, place, _)) = &old {
            allowance.remove(place);
        }
        if let Some((_, place, weight)) = &new {
            allowance.insert(place.clone(), *weight);
        }
        allowance.settle(bound, &mut moved);
        if let Some((_, place, _)) = &new {
            stays = allowance.stays(place);
            moved.out.retain(|other| other != place);
            moved.back.retain(|other| other != place);
        }
        if allowance.is_empty() {
            self.by_namespace.remove(&id);
        }
        (stays, moved)
    }
}
