//! Joins what the watches see into batches, and keeps the gate until all have listed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use myriad_api::{Batch, Change, ObjectKey, ObjectKind, Report};

use super::core::Output;

/// How far one watch is.
struct Progress {
    kind: ObjectKind,
    version: u64,
    is_listed: bool,
}

/// The batch under way.
pub(super) struct Merge {
    watches: Vec<Progress>,
    changes: Vec<Change>,
    /// The index in `changes` of each key: a batch has at most one change per key.
    places: HashMap<ObjectKey, usize>,
    reports: Vec<Report>,
    is_synced: bool,
    infers: bool,
    writers: Vec<(ObjectKey, Arc<str>)>,
    /// Whether a position has moved that nobody was told yet.
    has_moved: bool,
    /// When the first of the changes came.
    noticed: Option<Instant>,
}

impl Merge {
    /// The progress of watches of these kinds, none of which has seen anything yet.
    pub(super) fn new(kinds: impl IntoIterator<Item = ObjectKind>) -> Self {
        let watches = kinds.into_iter().map(|kind| Progress {
            kind,
            version: 0,
            is_listed: false,
        });
        Merge {
            watches: watches.collect(),
            changes: Vec::new(),
            places: HashMap::new(),
            reports: Vec::new(),
            is_synced: false,
            infers: false,
            writers: Vec::new(),
            has_moved: false,
            noticed: None,
        }
    }

    /// How many changes the batch under way has.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Takes what the watch with this number has seen, and when it did.
    pub(super) fn add(&mut self, watch: usize, output: Output, noticed: Option<Instant>) {
        if !output.changes.is_empty() {
            self.noticed = self.noticed.into_iter().chain(noticed).min();
        }
        if let Some(progress) = self.watches.get_mut(watch) {
            let before = std::mem::replace(&mut progress.version, output.version);
            self.has_moved |= before != output.version;
            progress.is_listed = output.is_listed;
        }
        self.infers |= output.infers;
        self.writers.extend(output.writers);
        for change in output.changes {
            match self.places.get(change.key()) {
                Some(place) => {
                    if let Some(slot) = self.changes.get_mut(*place) {
                        *slot = change;
                    }
                }
                None => {
                    self.places.insert(change.key().clone(), self.changes.len());
                    self.changes.push(change);
                }
            }
        }
        if let Some(report) = output.report {
            self.reports.retain(|known| known.subject != report.subject);
            self.reports.push(report);
        }
    }

    /// The batch under way, unless it says nothing.
    pub(super) fn finish(&mut self) -> Option<Batch> {
        let are_listed = self.watches.iter().all(|watch| watch.is_listed);
        let synced = are_listed && !std::mem::replace(&mut self.is_synced, are_listed);
        // Before the gate opens nobody is told of anything, and so of no position.
        let has_moved = self.has_moved && self.is_synced;
        if self.changes.is_empty() && self.reports.is_empty() && !synced && !has_moved {
            return None;
        }
        self.has_moved = false;
        self.places.clear();
        Some(Batch {
            changes: std::mem::take(&mut self.changes),
            reports: std::mem::take(&mut self.reports),
            synced,
            positions: self.positions(),
            infers: std::mem::take(&mut self.infers),
            writers: std::mem::take(&mut self.writers),
            noticed: self.noticed.take(),
        })
    }

    /// Up to which version each kind is contained; with several watches of a kind (one per
    /// namespace) that is the least of theirs. One that may see nothing keeps no other back.
    fn positions(&self) -> Vec<(ObjectKind, u64)> {
        let least = |one: u64, other: u64| match (one, other) {
            (0, seen) | (seen, 0) => seen,
            (one, other) => one.min(other),
        };
        let position = |kind| {
            let watches = self.watches.iter().filter(|watch| watch.kind == kind);
            Some((kind, watches.map(|watch| watch.version).reduce(least)?))
        };
        ObjectKind::ALL.into_iter().filter_map(position).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Merge, ObjectKey, ObjectKind, Output};

    fn output(version: u64, is_listed: bool, removed: &[&str]) -> Output {
        let key = |name: &&str| ObjectKey::new(ObjectKind::Service, "n", name);
        Output {
            changes: removed.iter().map(key).map(Change::Remove).collect(),
            report: None,
            version,
            is_listed,
            infers: false,
            writers: Vec::new(),
        }
    }

    #[test]
    fn the_gate_opens_once_when_all_have_listed() {
        let mut merge = Merge::new([ObjectKind::Ingress, ObjectKind::Service]);
        merge.add(0, output(7, true, &[]), None);
        assert_eq!(merge.finish(), None);
        merge.add(1, output(0, false, &["a"]), None);
        assert!(!merge.finish().expect("a change").synced);
        merge.add(1, output(9, true, &[]), None);
        let batch = merge.finish().expect("the gate");
        assert!(batch.synced);
        let positions = vec![(ObjectKind::Ingress, 7), (ObjectKind::Service, 9)];
        assert_eq!(batch.positions, positions);
        merge.add(1, output(10, true, &["a"]), None);
        assert!(!merge.finish().expect("a change").synced);
    }

    #[test]
    fn a_position_that_moves_alone_is_a_batch_once_the_gate_is_open() {
        let mut merge = Merge::new([ObjectKind::Ingress, ObjectKind::Service]);
        merge.add(0, output(7, true, &[]), None);
        merge.add(0, output(8, true, &[]), None);
        assert_eq!(merge.finish(), None);
        merge.add(1, output(9, true, &[]), None);
        assert!(merge.finish().expect("the gate").synced);
        merge.add(0, output(20, true, &[]), None);
        let batch = merge.finish().expect("a position");
        assert!(batch.changes.is_empty());
        let positions = vec![(ObjectKind::Ingress, 20), (ObjectKind::Service, 9)];
        assert_eq!(batch.positions, positions);
        merge.add(0, output(20, true, &[]), None);
        assert_eq!(merge.finish(), None);
    }

    #[test]
    fn a_key_changes_once_per_batch() {
        let mut merge = Merge::new([ObjectKind::Service]);
        merge.add(0, output(0, false, &["a", "b", "a"]), None);
        merge.add(0, output(0, false, &["b"]), None);
        assert_eq!(merge.len(), 2);
        assert_eq!(merge.finish().expect("changes").changes.len(), 2);
        assert_eq!(merge.finish(), None);
    }

    #[test]
    fn a_kind_is_as_far_as_its_slowest_watch() {
        let mut merge = Merge::new([ObjectKind::Service, ObjectKind::Service]);
        merge.add(0, output(7, true, &["a"]), None);
        merge.add(1, output(5, true, &[]), None);
        let batch = merge.finish().expect("changes");
        assert_eq!(batch.positions, [(ObjectKind::Service, 5)]);
        merge.add(1, output(0, true, &["b"]), None);
        let batch = merge.finish().expect("changes");
        assert_eq!(batch.positions, [(ObjectKind::Service, 7)]);
    }
}
