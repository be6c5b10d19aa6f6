//! Differences as values: what changed, grouped by the unit that changed it, cut into commits.

use std::sync::Arc;

use crate::{Key, Position, Sealed};

/// The most resources in one commit, unless one unit alone has more.
pub const COMMIT_RESOURCES_MAX: usize = 4_096;

/// The most encoded bytes in one commit, unless one unit alone has more.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;

/// One resource that appeared (`old` is none), changed, or went (`new` is none).
#[derive(Clone, Debug)]
pub struct Change {
    /// Which resource.
    pub key: Key,
    /// What it was.
    pub old: Option<Arc<Sealed>>,
    /// What it is now.
    pub new: Option<Arc<Sealed>>,
}

/// The changes of one translated unit, which take effect together.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// At most one per key.
    pub changes: Vec<Change>,
}

/// All that one batch changed.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// By unit, in the order in which the units were translated. No group is empty.
    pub groups: Vec<Group>,
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
        self.groups.is_empty()
    }

    /// The number of changed resources.
    pub fn len(&self) -> usize {
        self.groups.iter().map(|group| group.changes.len()).sum()
    }

    /// The same difference the other way round.
    pub fn inverted(mut self) -> Delta {
        for change in self.groups.iter_mut().flat_map(|group| &mut group.changes) {
            std::mem::swap(&mut change.old, &mut change.new);
        }
        self.groups.reverse();
        self
    }

    /// Cuts the delta between units into commits of at most [`COMMIT_RESOURCES_MAX`] resources
    /// and [`COMMIT_BYTES_MAX`] encoded bytes. A unit is never cut.
    pub fn into_commits(self, position: &Position) -> Vec<Commit> {
        let mut commits = Vec::new();
        let mut changes: Vec<Change> = Vec::new();
        let mut bytes = 0;
        for group in self.groups {
            let group_bytes: usize = group
                .changes
                .iter()
                .filter_map(|change| change.new.as_ref())
                .map(|sealed| sealed.bytes_encoded())
                .sum();
            let is_full = changes.len() + group.changes.len() > COMMIT_RESOURCES_MAX
                || bytes + group_bytes > COMMIT_BYTES_MAX;
            if is_full && !changes.is_empty() {
                let changes = std::mem::take(&mut changes);
                commits.push(Commit {
                    changes,
                    position: position.clone(),
                });
                bytes = 0;
            }
            bytes += group_bytes;
            changes.extend(group.changes);
        }
        if !changes.is_empty() {
            commits.push(Commit {
                changes,
                position: position.clone(),
            });
        }
        commits
    }
}
