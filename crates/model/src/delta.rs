//! Differences as values: what changed, grouped by the unit that changed it, cut into commits.

use crate::{Key, Position, SealedArc};

/// The most resources in one commit, unless one unit alone has more.
pub const COMMIT_RESOURCES_MAX: usize = 4_096;

/// The most encoded bytes in one commit, unless one unit alone has more.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;

/// One resource that appeared (`old` is none), changed, or went (`new` is none).
#[derive(Clone, Debug)]
pub struct Change {
    /// The resource's key.
    pub key: Key,
    /// The resource before the change; `None` where it is new.
    pub old: Option<SealedArc>,
    /// The resource after the change; `None` where it is removed.
    pub new: Option<SealedArc>,
}

/// All that one batch changed, unit by unit in the order in which the units were translated.
///
/// The changes lie in one piece: a first list has millions of them, and as many small allocations
/// would leave the heap in pieces.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    changes: Vec<Change>,
    /// Where each group ends: the changes of one unit, which take effect together. No group is
    /// empty, and none has a key twice.
    ends: Vec<usize>,
}

/// A part of a delta that a proxy applies with one swap.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The changes, at most one per key.
    pub changes: Vec<Change>,
    /// The position that the snapshot has once the last commit of its delta is applied.
    pub position: Position,
}

impl Delta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The number of changed resources.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// All changes.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The changes of each unit.
    pub fn groups(&self) -> impl Iterator<Item = &[Change]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let group = &self.changes[start..end];
            start = end;
            group
        })
    }

    /// The opposite difference: what this one adds it removes, and the other way round.
    pub fn inverted(mut self) -> Delta {
        self.changes.reverse();
        for change in &mut self.changes {
            std::mem::swap(&mut change.old, &mut change.new);
        }
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let starts: Vec<usize> = starts.take(self.ends.len()).collect();
        let ends = starts.into_iter().rev();
        self.ends = ends.map(|start| self.changes.len() - start).collect();
        self
    }

    /// Cuts the delta between units into commits of at most [`COMMIT_RESOURCES_MAX`] resources
    /// and [`COMMIT_BYTES_MAX`] encoded bytes. A unit is never cut.
    pub fn into_commits(self, position: Position) -> impl Iterator<Item = Commit> {
        let cuts = self.cuts();
        let mut changes = self.changes.into_iter();
        cuts.into_iter().map(move |count| Commit {
            changes: changes.by_ref().take(count).collect(),
            position: position.clone(),
        })
    }

    /// Adds a change to the unit that is being written.
    pub(crate) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Ends the unit that is being written, and returns its changes.
    pub(crate) fn close(&mut self) -> &[Change] {
        let start = self.ends.last().copied().unwrap_or(0);
        if self.changes.len() > start {
            self.ends.push(self.changes.len());
        }
        &self.changes[start..]
    }

    /// The number of changes in each commit.
    fn cuts(&self) -> Vec<usize> {
        let mut cuts = Vec::new();
        let (mut count, mut bytes) = (0, 0);
        for group in self.groups() {
            let sealed = group.iter().filter_map(|change| change.new.as_ref());
            let group_bytes: usize = sealed.map(|sealed| sealed.bytes_encoded()).sum();
            let is_full = count + group.len() > COMMIT_RESOURCES_MAX
                || bytes + group_bytes > COMMIT_BYTES_MAX;
            if is_full && count > 0 {
                cuts.push(count);
                (count, bytes) = (0, 0);
            }
            count += group.len();
            bytes += group_bytes;
        }
        cuts.extend((count > 0).then_some(count));
        cuts
    }
}
