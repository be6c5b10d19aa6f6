//! Snapshots: all resources at one moment, sharing what did not change with the moment before.

use crate::sealed::Leaf;
use crate::{Change, Digest, Kind, Position, SealedArc, Tree};

/// All resources at one moment. A clone costs two reference counts.
#[derive(Clone, Default)]
pub struct Snapshot {
    tree: Tree<Leaf, 6>,
    position: Position,
    counts: [usize; Kind::ALL.len()],
}

impl Snapshot {
    /// An empty snapshot.
    pub fn new() -> Self {
        Snapshot::default()
    }

    /// The digest over all resources.
    pub fn digest(&self) -> Digest {
        Digest(self.tree.sum())
    }

    /// The digests of the children of a node of the digest tree, by child index (at most 64);
    /// none where the path leads to no inner node.
    pub fn digests_at(&self, path: &[u8]) -> Option<Vec<(u8, Digest)>> {
        let sums = self.tree.sums_at(path)?;
        Some(
            sums.into_iter()
                .map(|(index, sum)| (index, Digest(sum)))
                .collect(),
        )
    }

    /// How far the sources had been read.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Moves the position.
    pub fn set_position(&mut self, position: Position) {
        self.position = position;
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there is no resource.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// The number of resources of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.counts[kind as usize - 1]
    }

    /// The resource at a place that has this key; see [`crate::Sealer::slot`].
    pub fn get(&self, slot: u64, key: &crate::Key) -> Option<&SealedArc> {
        self.tree
            .get(slot, |leaf| leaf.0.key() == key)
            .map(|leaf| &leaf.0)
    }

    /// All resources, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &SealedArc> {
        self.tree.iter().map(|leaf| &leaf.0)
    }

    /// Applies one change. Costs the depth of the tree; copies only nodes that another
    /// snapshot still holds.
    pub fn apply(&mut self, change: &Change) {
        if let Some(new) = &change.new {
            let old = self.tree.insert(Leaf(new.clone()));
            self.counts[change.key.kind as usize - 1] += usize::from(old.is_none());
        } else if let Some(old) = &change.old {
            let old = self
                .tree
                .remove(old.slot(), |leaf| leaf.0.key() == &change.key);
            self.counts[change.key.kind as usize - 1] -= usize::from(old.is_some());
        }
    }
}
