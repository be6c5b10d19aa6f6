//! The comparison of two digest trees, of which one is at the other end of the stream.
//!
//! Nodes are asked for from the root downwards, and only where the sums differ. What is found to
//! differ is taken out of a copy of the own snapshot, which so becomes what the other end has.
//!
//! All that the other end says that it has takes room (`room`). Where there is none, the walk is
//! cut: the other end counts as having nothing where it was not looked, is sent all that belongs
//! there, and is looked at again once what was found is removed.

use bytes::Bytes;
use myriad_model::{Change, Digest, SealedArc, Snapshot, TreeChild, Version};

use super::room::ClaimShare;
use super::strangers::{Stranger, Strangers};
use crate::wire::{self, Ask, Leaf, Node, Nodes, SessionError};

/// The most nodes asked for in one walk; a tree of as many resources as are supported has fewer.
const NODES_MAX: usize = 16 << 20;
/// The most nodes asked for without a place: for each of them the stream has one of its own, of 100
/// bytes to 1 KiB, that others have in common.
pub(crate) const SHORT_NODES_MAX: usize = 256;
/// The bits of a slot that one step of a path stands for.
const STEP_BITS: usize = 6;

pub(super) struct Walk {
    ours: Snapshot,
    /// The resources that both ends are known to have.
    shared: Snapshot,
    strangers: Strangers,
    /// Paths to ask for, deepest last, so that there are few.
    pending: Vec<Vec<u8>>,
    asked: Vec<Vec<u8>>,
    nodes_asked: usize,
    is_cut: bool,
}

/// A child of the other end's node.
#[derive(Clone, Copy)]
enum Theirs {
    Resource(Stranger),
    Branch(Digest),
}

impl Walk {
    pub(super) fn new(ours: Snapshot) -> Self {
        Walk {
            shared: ours.clone(),
            ours,
            strangers: Strangers::default(),
            pending: vec![Vec::new()],
            asked: Vec::new(),
            nodes_asked: 0,
            is_cut: false,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The next question; none once everything is known.
    pub(super) fn ask(&mut self) -> Option<Ask> {
        let kept = self.pending.len().saturating_sub(wire::ASK_NODES_MAX);
        self.asked = self.pending.split_off(kept);
        self.nodes_asked += self.asked.len();
        let path = |path: &Vec<u8>| Bytes::copy_from_slice(path);
        let paths: Vec<Bytes> = self.asked.iter().map(path).collect();
        (!paths.is_empty()).then_some(Ask { paths })
    }

    /// Whether it goes on for so long that it needs a place.
    pub(super) fn is_long(&self) -> bool {
        self.nodes_asked > SHORT_NODES_MAX && !self.is_waiting() && !self.pending.is_empty()
    }

    /// The resources that both ends have, those that only the other has (other names or versions),
    /// and whether there may be more of these.
    pub(super) fn finish(&mut self) -> (Snapshot, Strangers, bool) {
        let shared = std::mem::take(&mut self.shared);
        (shared, std::mem::take(&mut self.strangers), self.is_cut)
    }

    /// Takes the answer to the last question; what it says takes room of this share.
    pub(super) fn answer(
        &mut self,
        nodes: &Nodes,
        share: &mut ClaimShare,
    ) -> Result<(), SessionError> {
        if nodes.nodes.len() != self.asked.len() || self.asked.is_empty() {
            return Err(SessionError::Unexpected("answer"));
        }
        if self.nodes_asked > NODES_MAX {
            return Err(SessionError::TooMany("nodes"));
        }
        let asked = std::mem::take(&mut self.asked);
        for (path, node) in asked.into_iter().zip(&nodes.nodes) {
            if node.branches.len() + node.leaves.len() > wire::NODE_CHILDREN_MAX {
                return Err(SessionError::TooMany("children"));
            }
            for leaf in &node.leaves {
                if !is_below(leaf, &path) {
                    return Err(SessionError::Invalid("place of a resource"));
                }
            }
            let held = self.strangers.len() + self.pending.len();
            if self.is_cut || !share.hold(held + wire::NODE_CHILDREN_MAX) {
                self.cut(&path);
            } else if path.len() >= wire::PATH_MAX {
                self.compare_row(&path, node)?;
            } else {
                self.compare_node(&path, node)?;
            }
        }
        share.hold(self.strangers.len() + self.pending.len());
        Ok(())
    }

    /// Looks no further, neither here nor anywhere else.
    fn cut(&mut self, path: &[u8]) {
        self.is_cut = true;
        self.forget(path);
        for path in std::mem::take(&mut self.pending) {
            self.forget(&path);
        }
    }

    fn compare_node(&mut self, path: &[u8], node: &Node) -> Result<(), SessionError> {
        let mut theirs = children(node)?;
        let ours = self.ours.children_at(path).unwrap_or_default();
        for (index, child) in ours {
            let below = || [path, &[index]].concat();
            let other = theirs.get_mut(usize::from(index)).and_then(Option::take);
            match (child, other) {
                (TreeChild::Branch(ours), Some(Theirs::Branch(theirs))) if ours == theirs => {}
                (TreeChild::Branch(_), Some(Theirs::Branch(_))) => self.pending.push(below()),
                (TreeChild::Resource(ours), Some(Theirs::Resource(it)))
                    if ours.slot() == it.slot && ours.version() == it.version => {}
                (_, Some(Theirs::Resource(it))) => {
                    self.forget(&below());
                    self.settle(it);
                }
                (TreeChild::Resource(_), Some(Theirs::Branch(_))) => {
                    self.forget(&below());
                    self.pending.push(below());
                }
                (_, None) => self.forget(&below()),
            }
        }
        for (index, other) in (0..).zip(theirs) {
            match other {
                None => {}
                Some(Theirs::Branch(_)) => self.pending.push([path, &[index]].concat()),
                Some(Theirs::Resource(it)) => self.settle(it),
            }
        }
        Ok(())
    }

    /// Compares what lies below the last bit of the hash.
    fn compare_row(&mut self, path: &[u8], node: &Node) -> Result<(), SessionError> {
        if !node.branches.is_empty() {
            return Err(SessionError::Invalid("path"));
        }
        self.forget(path);
        for leaf in &node.leaves {
            self.settle(stranger(leaf)?);
        }
        Ok(())
    }

    /// The other end has, as far as is known, nothing below this path.
    fn forget(&mut self, path: &[u8]) {
        // At once: whoever says that it has nothing must not cost a change for each resource.
        self.shared.remove_below(path);
    }

    /// The other end has this resource.
    fn settle(&mut self, it: Stranger) {
        let mut ours = self.ours.at(it.slot);
        let same: Option<&SealedArc> = ours.find(|sealed| sealed.version() == it.version);
        if let Some(sealed) = same {
            self.shared.apply(&Change {
                key: sealed.key().clone(),
                old: None,
                new: Some(sealed.clone()),
            });
        } else {
            self.strangers.insert(it);
        }
    }
}

/// Whether a resource belongs below the node that it was told of: at the child of its index, but
/// for the last row, where there are none.
fn is_below(leaf: &Leaf, path: &[u8]) -> bool {
    let digit = |depth: usize| {
        let shift = u32::try_from(depth * STEP_BITS).ok();
        let rest = shift.and_then(|shift| leaf.slot.checked_shr(shift));
        rest.map(|rest| rest & ((1 << STEP_BITS) - 1))
    };
    let mut steps = path.iter().enumerate();
    let is_there = steps.all(|(depth, step)| digit(depth) == Some(u64::from(*step)));
    let is_last = path.len() >= wire::PATH_MAX;
    is_there && (is_last || digit(path.len()) == Some(u64::from(leaf.index)))
}

fn stranger(leaf: &Leaf) -> Result<Stranger, SessionError> {
    let version: Version = wire::version(&leaf.version)?;
    Ok(Stranger {
        slot: leaf.slot,
        version,
        kind: leaf.kind,
    })
}

/// The children of a node by their index.
fn children(node: &Node) -> Result<[Option<Theirs>; wire::NODE_CHILDREN_MAX], SessionError> {
    let mut children = [None; wire::NODE_CHILDREN_MAX];
    let mut put = |index: u32, child| {
        let place = children.get_mut(index as usize);
        let place = place.filter(|place| place.is_none());
        *place.ok_or(SessionError::Invalid("index"))? = Some(child);
        Ok(())
    };
    for branch in &node.branches {
        put(branch.index, Theirs::Branch(wire::digest(&branch.digest)?))?;
    }
    for leaf in &node.leaves {
        put(leaf.index, Theirs::Resource(stranger(leaf)?))?;
    }
    Ok(children)
}
