//! The labels of workloads that selectors name. Whatever no selector names tells no two workloads
//! apart, so that those who differ in nothing else see the same.

use std::collections::{BTreeMap, BTreeSet};

/// The keys of labels that are named, and by how many selectors.
#[derive(Default)]
pub(super) struct Naming {
    counts: BTreeMap<Box<str>, usize>,
    /// The keys that came or went since they were last taken.
    moved: BTreeSet<Box<str>>,
}

impl Naming {
    /// Notes that a selector names a key.
    pub(super) fn insert(&mut self, key: &str) {
        if let Some(count) = self.counts.get_mut(key) {
            *count += 1;
            return;
        }
        self.counts.insert(key.into(), 1);
        self.moved.insert(key.into());
    }

    /// Notes that a selector does not name it any more.
    pub(super) fn remove(&mut self, key: &str) {
        let Some(count) = self.counts.get_mut(key) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(key);
            self.moved.insert(key.into());
        }
    }

    /// Whether any selector names a key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.counts.contains_key(key)
    }

    /// Forgets which came or went, once what was taken in is applied.
    pub(super) fn settle(&mut self) {
        self.moved.clear();
    }

    /// The keys that came or went since this was last asked.
    pub(super) fn take_moved(&mut self) -> BTreeSet<Box<str>> {
        std::mem::take(&mut self.moved)
    }
}
