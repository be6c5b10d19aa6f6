//! Copies of endpoints in upstreams: which upstreams of a namespace stay, by their age.
//!
//! Unlike objects, upstreams count for what other objects say: an EndpointSlice and a
//! DestinationRule each count for little, and their product for much. So upstreams are weighed when
//! all that are to run are known, and before any of them runs: one that is beyond looks at no
//! endpoint.
//!
//! Hash tables that no DestinationRule asks for are counted in the same way, in slots, and so are
//! the authorities of several objects that are one trust, in what Secrets leave of their bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::row::{Moved, Row};

/// The weight of an upstream, which is the same for all subsets of its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// When the Service or ServiceEntry was created.
    pub created: i64,
    /// The endpoints that it is chosen from, or the slots of its table.
    pub copies: u64,
}

impl Weight {
    /// That of so many endpoints; none where there are none.
    pub fn new(created: i64, endpoints: usize) -> Option<Self> {
        let copies = endpoints as u64;
        (copies > 0).then_some(Weight { created, copies })
    }
}

/// The amounts that the upstreams of each namespace count for. An entry for each that counts, and
/// none where nothing is bounded.
pub struct Copies {
    bound: Option<u64>,
    /// The namespace of an upstream, and whether it yields to those of whole ports.
    place: PlaceOf,
    known: BTreeMap<Arc<str>, Weight>,
    by_namespace: BTreeMap<Box<str>, Row<CopyRank>>,
    /// Namespaces in which something differs.
    touched: BTreeSet<Box<str>>,
}

/// The namespace of an upstream by its name, and whether it yields to those of whole ports.
pub(super) type PlaceOf = fn(&str) -> Option<(&str, bool)>;

/// The place of an upstream in the row of its namespace: whole ports go before subsets, then the
/// oldest Services and ServiceEntries, then names.
type CopyRank = (bool, i64, Arc<str>);

impl Copies {
    /// Copies of which none counts yet.
    pub fn new(bound: Option<u64>, place: PlaceOf) -> Self {
        Copies {
            bound,
            place,
            known: BTreeMap::new(),
            by_namespace: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    /// Whether nothing is bounded.
    pub fn is_unbounded(&self) -> bool {
        self.bound.is_none()
    }

    /// Whether an upstream is beyond.
    pub fn is_beyond(&self, name: &str) -> bool {
        let Some((name, weight)) = self.known.get_key_value(name) else {
            return false;
        };
        let Some((namespace, is_subset)) = (self.place)(name) else {
            return false;
        };
        let row = self.by_namespace.get(namespace);
        row.is_some_and(|row| !row.stays(&(is_subset, weight.created, name.clone())))
    }

    /// Notes what an upstream counts for from now on.
    pub fn replace(&mut self, name: &Arc<str>, weight: Option<Weight>) {
        let former = self.known.get(name).copied();
        if former == weight {
            return;
        }
        let Some((namespace, is_subset)) = (self.place)(name) else {
            return;
        };
        let place = |weight: Weight| (is_subset, weight.created, name.clone());
        let row = self.by_namespace.entry(namespace.into()).or_default();
        if let Some(former) = former {
            row.remove(&place(former));
            self.known.remove(name);
        }
        if let Some(weight) = weight {
            row.insert(place(weight), weight.copies);
            self.known.insert(name.clone(), weight);
        }
        self.touched.insert(namespace.into());
    }

    /// Notes that the bound of a namespace may differ.
    pub fn touch(&mut self, namespace: &str) {
        if self.by_namespace.contains_key(namespace) {
            self.touched.insert(namespace.into());
        }
    }

    /// Brings each namespace to its bound; returns the upstreams that are beyond now, and those
    /// that are not any more.
    pub fn settle(&mut self) -> Vec<Arc<str>> {
        let bound = self.bound.unwrap_or(u64::MAX);
        self.settle_within(|_| bound)
    }

    /// The same, where each namespace has a bound of its own.
    pub fn settle_within(&mut self, bound: impl Fn(&str) -> u64) -> Vec<Arc<str>> {
        let mut moved = Moved::default();
        for namespace in std::mem::take(&mut self.touched) {
            let Some(row) = self.by_namespace.get_mut(&namespace) else {
                continue;
            };
            row.settle(bound(&namespace), &mut moved);
            if row.is_empty() {
                self.by_namespace.remove(&namespace);
            }
        }
        let places = moved.out.into_iter().chain(moved.back);
        places.map(|(_, _, name)| name).collect()
    }
}
