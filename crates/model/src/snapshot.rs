//! Snapshots: all resources at one moment, sharing what did not change with the moment before.

use crate::sealed::Leaf;
use crate::tree::{Child, Diff, Difference};
use crate::{Change, Digest, Kind, Moment, Position, SealedArc, Tree};

/// All resources at one moment. A clone costs two reference counts.
#[derive(Clone, Default)]
pub struct Snapshot {
    tree: Tree<Leaf, 6>,
    counts: [usize; Kind::NUMBER_MAX],
    moment: Moment,
    /// See [`Snapshot::noticed_micros`].
    noticed_micros: u64,
    /// See [`Snapshot::bytes_replaced`].
    bytes_replaced: u64,
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

    /// The children of a node of the digest tree, by child index (below 64); none where the path
    /// leads to no inner node. Resources at one place all have the index 0.
    pub fn children_at(&self, path: &[u8]) -> Option<Vec<(u8, TreeChild)>> {
        let children = self.tree.children_at(path)?;
        let child = |child| match child {
            Child::Entry(leaf) => TreeChild::Resource(Leaf::into_inner(leaf)),
            Child::Branch(sum) => TreeChild::Branch(Digest(sum)),
        };
        Some(
            children
                .into_iter()
                .map(|(index, it)| (index, child(it)))
                .collect(),
        )
    }

    /// All resources below a path of child indices of the digest tree.
    pub fn below(&self, path: &[u8]) -> impl Iterator<Item = &SealedArc> {
        self.tree.below(path).map(|leaf| &leaf.0)
    }

    /// All resources at one place: one, unless two names have the same hash.
    pub fn at(&self, slot: u64) -> impl Iterator<Item = &SealedArc> {
        self.tree.with_hash(slot).map(|leaf| &leaf.0)
    }

    /// The changes from this snapshot to `newer`, in no particular order. Costs the number of
    /// changes times the depth of the tree, whatever the number of resources.
    pub fn diff(&self, newer: &Snapshot) -> Changes {
        Changes(self.tree.diff(&newer.tree))
    }

    /// How far the sources had been read.
    pub fn position(&self) -> &Position {
        &self.moment.position
    }

    /// Moves the position.
    pub fn set_position(&mut self, position: Position) {
        self.moment.position = position;
    }

    /// Moves it to another moment.
    pub(crate) fn set_moment(&mut self, moment: Moment) {
        self.moment = moment;
    }

    /// How far its writer had come when this was read.
    pub fn moment(&self) -> &Moment {
        &self.moment
    }

    /// This snapshot at a moment of its writer, up to which it has not changed; an older moment
    /// changes nothing.
    #[must_use]
    pub fn as_of(mut self, moment: &Moment) -> Self {
        if moment.is_after(&self.moment) {
            self.moment.clone_from(moment);
        }
        self
    }

    /// How often resources have gone because objects were missing, and not because anybody had
    /// removed them. Two snapshots of one writer with other numbers differ by such a removal.
    pub fn inferences(&self) -> u64 {
        self.moment.inferences
    }

    /// When the oldest of the changes was noticed that led here from the snapshot before, in
    /// microseconds since 1970; 0 where nobody said. It is no part of what there is.
    pub fn noticed_micros(&self) -> u64 {
        self.noticed_micros
    }

    /// Says when the oldest change was noticed.
    pub fn set_noticed_micros(&mut self, micros: u64) {
        self.noticed_micros = micros;
    }

    /// How many encoded bytes of resources were replaced or removed so far, here and in the
    /// snapshots that this one came of. Who still holds one of those holds beside this one no more
    /// than what was added since.
    pub fn bytes_replaced(&self) -> u64 {
        self.bytes_replaced
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there is no resource.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// The number of resources of a kind; those of kinds that only newer builds know are not
    /// counted.
    pub fn count(&self, kind: Kind) -> usize {
        place(kind).map_or(0, |at| self.counts[at])
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
            self.bytes_replaced += old.as_ref().map_or(0, Leaf::bytes);
            if let Some(at) = place(change.key.kind) {
                self.counts[at] += usize::from(old.is_none());
            }
        } else if let Some(old) = &change.old {
            let old = self
                .tree
                .remove(old.slot(), |leaf| leaf.0.key() == &change.key);
            self.bytes_replaced += old.as_ref().map_or(0, Leaf::bytes);
            if let Some(at) = place(change.key.kind) {
                self.counts[at] -= usize::from(old.is_some());
            }
        }
    }

    /// Removes all resources below a path of child indices of the digest tree. Copies no more nodes
    /// than lie on the path, however many there are.
    pub fn remove_below(&mut self, path: &[u8]) {
        let (counts, bytes_replaced) = (&mut self.counts, &mut self.bytes_replaced);
        self.tree.remove_below(path, |leaf| {
            *bytes_replaced += leaf.bytes();
            if let Some(at) = place(leaf.0.key().kind) {
                counts[at] -= 1;
            }
        });
    }
}

/// The place of a kind among the counts.
fn place(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Newer(_) => None,
        known => Some(usize::from(known.number()) - 1),
    }
}

/// A child of a node of the digest tree.
#[derive(Clone, Debug)]
pub enum TreeChild {
    /// A resource that lies there alone.
    Resource(SealedArc),
    /// An inner node, by the digest over all resources below it.
    Branch(Digest),
}

/// See [`Snapshot::diff`].
pub struct Changes(Diff<Leaf, 6>);

impl Changes {
    /// How many nodes, or pairs of nodes at one place, were looked into so far.
    pub fn nodes_visited(&self) -> u64 {
        self.0.nodes_visited()
    }
}

impl Iterator for Changes {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        let (old, new): Difference<Leaf> = self.0.next()?;
        let (old, new) = (old.map(Leaf::into_inner), new.map(Leaf::into_inner));
        let key = new.as_ref().or(old.as_ref())?.key().clone();
        Some(Change { key, old, new })
    }
}

#[cfg(test)]
mod tests;
