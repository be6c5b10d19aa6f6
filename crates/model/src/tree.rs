//! A persistent hash tree: the one map of the snapshot and of the proxy's tables.
//!
//! A clone costs one reference count. A change copies only the nodes on its path, and only
//! those that an older clone still holds: a tree that nobody else holds is changed in place.
//! No operation costs more than the depth, so there is no rehash that would stall one change
//! in a million.

mod diff;

pub use diff::{Diff, Difference};

use triomphe::{Arc, ThinArc};

/// An entry of a tree. Entries are cloned with the nodes, so they should be pointers.
pub trait Entry: Clone {
    /// The hash of the entry's key. Must not change while the entry is in a tree.
    fn hash(&self) -> u64;
    /// Whether both have the same key.
    fn same_key(&self, other: &Self) -> bool;
    /// The entry's share of the sums of the nodes above it; 0 where no sum is wanted.
    fn weight(&self) -> u128 {
        0
    }
    /// Whether both, being of the same key, have the same content.
    fn same_content(&self, other: &Self) -> bool {
        self.weight() == other.weight()
    }
}

/// A child of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Child<E> {
    /// An entry, in a node without further children on its path.
    Entry(E),
    /// An inner node, by the sum of the weights below it.
    Branch(u128),
}

/// A persistent map of entries, with `1 << BITS` children per node at most (`BITS` <= 6).
///
/// With `BITS` 4 a change copies little; with 6 a comparison of two trees takes few steps.
#[derive(Clone)]
pub struct Tree<E: Entry, const BITS: u32 = 4> {
    root: Node<E>,
    len: usize,
    nodes_copied: u64,
}

/// Head and slots in one allocation behind a thin pointer: a lookup pays one cache miss a level.
type Node<E> = ThinArc<Head, Slot<E>>;

#[derive(Clone, Copy, Default)]
struct Head {
    /// Which children are there; unused below the last hash bit, where entries lie in a row.
    bitmap: u64,
    /// The sum of the weights of all entries below, low half first.
    sum: [u64; 2],
}

enum Slot<E> {
    Entry(E),
    Branch(Node<E>),
}

impl<E: Clone> Clone for Slot<E> {
    fn clone(&self) -> Self {
        match self {
            Slot::Entry(entry) => Slot::Entry(entry.clone()),
            Slot::Branch(node) => Slot::Branch(node.clone()),
        }
    }
}

impl<E: Entry, const BITS: u32> Default for Tree<E, BITS> {
    fn default() -> Self {
        Tree {
            root: node(Head::default(), []),
            len: 0,
            nodes_copied: 0,
        }
    }
}

impl<E: Entry, const BITS: u32> Tree<E, BITS> {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The sum of all weights, modulo 2^128.
    pub fn sum(&self) -> u128 {
        head(&self.root).sum()
    }

    /// How many nodes changes to this tree and its ancestors have copied so far.
    pub fn nodes_copied(&self) -> u64 {
        self.nodes_copied
    }

    /// The entry with this hash that `is_it` recognises.
    pub fn get(&self, hash: u64, is_it: impl Fn(&E) -> bool) -> Option<&E> {
        find::<E, BITS>(&self.root, hash, 0, is_it)
    }

    /// Puts an entry in, and returns the one of the same key that it replaces.
    pub fn insert(&mut self, entry: E) -> Option<E> {
        let mut edit = Edit {
            nodes_copied: 0,
            weight_removed: 0,
        };
        let hash = entry.hash();
        let old = insert::<E, BITS>(&mut self.root, hash, 0, entry, &mut edit);
        self.nodes_copied += edit.nodes_copied;
        self.len += usize::from(old.is_none());
        old
    }

    /// Takes out the entry with this hash that `is_it` recognises.
    pub fn remove(&mut self, hash: u64, is_it: impl Fn(&E) -> bool) -> Option<E> {
        // Looked up first, so that a miss copies nothing.
        self.get(hash, &is_it)?;
        let mut edit = Edit {
            nodes_copied: 0,
            weight_removed: 0,
        };
        let old = remove::<E, BITS>(&mut self.root, hash, 0, &is_it, &mut edit);
        self.nodes_copied += edit.nodes_copied;
        self.len -= usize::from(old.is_some());
        old
    }

    /// Takes out all entries below a path of child indices, and tells of each. However many there
    /// are, no more nodes are changed than lie on the path.
    pub fn remove_below(&mut self, path: &[u8], mut told: impl FnMut(&E)) {
        let mut edit = Edit {
            nodes_copied: 0,
            weight_removed: 0,
        };
        let mut count = 0_usize;
        let mut counted = |entry: &E| {
            count += 1;
            told(entry);
        };
        if path.is_empty() {
            self.iter().for_each(counted);
            self.root = node(Head::default(), []);
        } else {
            remove_below::<E, BITS>(&mut self.root, path, 0, &mut counted, &mut edit);
        }
        self.nodes_copied += edit.nodes_copied;
        self.len -= count;
    }

    /// All entries, in the order of their hashes' low bits.
    pub fn iter(&self) -> Iter<'_, E> {
        Iter {
            stack: vec![self.root.slice.iter()],
        }
    }

    /// The sums of the children of the node at a path of child indices, by index; `None` where no
    /// inner node is at the path.
    pub fn sums_at(&self, path: &[u8]) -> Option<Vec<(u8, u128)>> {
        let node = self.node_at(path)?;
        Some(
            indices(node)
                .zip(&node.slice)
                .map(|(index, slot)| (index, slot.sum()))
                .collect(),
        )
    }

    /// The children of the node at a path of child indices, by index; `None` where no inner node is
    /// at the path. Entries whose hashes are equal all have the index 0.
    pub fn children_at(&self, path: &[u8]) -> Option<Vec<(u8, Child<E>)>> {
        let node = self.node_at(path)?;
        let child = |slot: &Slot<E>| match slot {
            Slot::Entry(entry) => Child::Entry(entry.clone()),
            Slot::Branch(branch) => Child::Branch(head(branch).sum()),
        };
        let slots = node.slice.iter();
        if path.len() as u32 * BITS >= u64::BITS {
            return Some(slots.map(|slot| (0, child(slot))).collect());
        }
        Some(indices(node).zip(slots.map(child)).collect())
    }

    /// All entries below a path of child indices.
    pub fn below(&self, path: &[u8]) -> Iter<'_, E> {
        let slots = match path.split_last() {
            None => &self.root.slice[..],
            Some((&last, parents)) => {
                let is_inner = (parents.len() as u32) * BITS < u64::BITS;
                let node = self.node_at(parents).filter(|_| is_inner);
                node.and_then(|node| slot_at(node, last))
                    .map_or(&[][..], std::slice::from_ref)
            }
        };
        Iter {
            stack: vec![slots.iter()],
        }
    }

    /// All entries with this hash.
    pub fn with_hash(&self, hash: u64) -> impl Iterator<Item = &E> {
        let mut node = &self.root;
        let mut shift = 0;
        let slots = loop {
            if shift >= u64::BITS {
                break &node.slice[..];
            }
            match slot_at(node, index::<BITS>(hash, shift) as u8) {
                None => break &[],
                Some(Slot::Branch(child)) => node = child,
                Some(entry) => break std::slice::from_ref(entry),
            }
            shift += BITS;
        };
        slots.iter().filter_map(move |slot| match slot {
            Slot::Entry(entry) if entry.hash() == hash => Some(entry),
            _ => None,
        })
    }

    /// The differences to `newer`: each entry of this tree beside its successor. Skips whatever
    /// both share, so it costs the number of differences times the depth.
    pub fn diff(&self, newer: &Self) -> Diff<E, BITS> {
        Diff::new(&self.root, &newer.root)
    }

    fn node_at(&self, path: &[u8]) -> Option<&Node<E>> {
        let mut node = &self.root;
        for (depth, &step) in path.iter().enumerate() {
            if depth as u32 * BITS >= u64::BITS {
                return None;
            }
            match slot_at(node, step)? {
                Slot::Branch(child) => node = child,
                Slot::Entry(_) => return None,
            }
        }
        Some(node)
    }
}

/// The indices of a node's children, as its bitmap says.
fn indices<E>(node: &Node<E>) -> impl Iterator<Item = u8> {
    let bitmap = head(node).bitmap;
    (0..64_u8).filter(move |index| bitmap & (1 << index) != 0)
}

/// The child of an inner node at an index.
fn slot_at<E>(node: &Node<E>, index: u8) -> Option<&Slot<E>> {
    let bit = 1_u64.checked_shl(u32::from(index))?;
    let is_there = head(node).bitmap & bit != 0;
    let slot = || node.slice.get(rank(head(node).bitmap, bit));
    is_there.then(slot).flatten()
}

/// The entry with this hash below a node at this depth.
fn find<E: Entry, const BITS: u32>(
    mut node: &Node<E>,
    hash: u64,
    mut shift: u32,
    is_it: impl Fn(&E) -> bool,
) -> Option<&E> {
    loop {
        if shift >= u64::BITS {
            return node.slice.iter().find_map(|slot| match slot {
                Slot::Entry(entry) if is_it(entry) => Some(entry),
                _ => None,
            });
        }
        let bit = 1_u64 << index::<BITS>(hash, shift);
        if head(node).bitmap & bit == 0 {
            return None;
        }
        match node.slice.get(rank(head(node).bitmap, bit))? {
            Slot::Entry(entry) => return is_it(entry).then_some(entry),
            Slot::Branch(child) => node = child,
        }
        shift += BITS;
    }
}

impl Head {
    fn sum(&self) -> u128 {
        u128::from(self.sum[0]) | u128::from(self.sum[1]) << 64
    }

    fn set_sum(&mut self, sum: u128) {
        self.sum = [sum as u64, (sum >> 64) as u64];
    }
}

impl<E: Entry> Slot<E> {
    fn sum(&self) -> u128 {
        match self {
            Slot::Entry(entry) => entry.weight(),
            Slot::Branch(node) => head(node).sum(),
        }
    }
}

/// The effects of one change, carried down the path.
struct Edit {
    nodes_copied: u64,
    weight_removed: u128,
}

fn node<E, const N: usize>(head: Head, slots: [Slot<E>; N]) -> Node<E> {
    ThinArc::from_header_and_iter(head, slots.into_iter())
}

fn head<E>(node: &Node<E>) -> &Head {
    &node.header.header
}

/// Whether nobody else holds the node, so that it may be changed in place.
fn is_own<E>(node: &mut Node<E>) -> bool {
    node.with_arc_mut(|node| Arc::get_mut(node).is_some())
}

/// Makes the node ours, copying it where somebody else holds it, and lets `change` write it.
fn write<E: Entry, T>(
    node: &mut Node<E>,
    edit: &mut Edit,
    change: impl FnOnce(&mut Head, &mut [Slot<E>], &mut Edit) -> T,
) -> T {
    if !is_own(node) {
        edit.nodes_copied += 1;
        *node = ThinArc::from_header_and_iter(*head(node), node.slice.iter().cloned());
    }
    node.with_arc_mut(|node| {
        let inner = Arc::get_mut(node).expect("nobody else holds a node that was just made");
        let mut head = *inner.header();
        let result = change(&mut head, inner.slice_mut(), edit);
        *inner.header_mut() = head;
        result
    })
}

/// Replaces the node by one with other slots. A node that somebody else holds counts as copied.
fn resize<E: Entry>(node: &mut Node<E>, head: Head, slots: Vec<Slot<E>>, edit: &mut Edit) {
    edit.nodes_copied += u64::from(!is_own(node));
    *node = ThinArc::from_header_and_iter(head, slots.into_iter());
}

fn insert<E: Entry, const BITS: u32>(
    node: &mut Node<E>,
    hash: u64,
    shift: u32,
    entry: E,
    edit: &mut Edit,
) -> Option<E> {
    let added = entry.weight();
    let mut new_head = *head(node);
    let at = if shift >= u64::BITS {
        node.slice
            .iter()
            .position(|slot| matches!(slot, Slot::Entry(it) if it.same_key(&entry)))
    } else {
        let bit = 1_u64 << index::<BITS>(hash, shift);
        let is_taken = new_head.bitmap & bit != 0;
        new_head.bitmap |= bit;
        is_taken.then(|| rank(new_head.bitmap, bit))
    };
    let Some(at) = at else {
        let place = if shift >= u64::BITS {
            node.slice.len()
        } else {
            rank(new_head.bitmap, 1 << index::<BITS>(hash, shift))
        };
        new_head.set_sum(new_head.sum().wrapping_add(added));
        let mut slots = Vec::with_capacity(node.slice.len() + 1);
        slots.extend_from_slice(&node.slice[..place]);
        slots.push(Slot::Entry(entry));
        slots.extend_from_slice(&node.slice[place..]);
        resize(node, new_head, slots, edit);
        return None;
    };
    write(node, edit, |head, slots, edit| {
        let old = match &mut slots[at] {
            Slot::Branch(child) => insert::<E, BITS>(child, hash, shift + BITS, entry, edit),
            Slot::Entry(known) if known.same_key(&entry) => {
                edit.weight_removed = known.weight();
                Some(std::mem::replace(known, entry))
            }
            slot => {
                split::<E, BITS>(slot, shift + BITS, entry, edit);
                None
            }
        };
        head.set_sum(
            head.sum()
                .wrapping_add(added)
                .wrapping_sub(edit.weight_removed),
        );
        old
    })
}

/// Turns a slot with one entry into a branch with two.
fn split<E: Entry, const BITS: u32>(slot: &mut Slot<E>, shift: u32, entry: E, edit: &mut Edit) {
    let mut branch = node(Head::default(), []);
    if let Slot::Entry(known) = slot {
        let hash = known.hash();
        insert::<E, BITS>(&mut branch, hash, shift, known.clone(), edit);
    }
    let hash = entry.hash();
    insert::<E, BITS>(&mut branch, hash, shift, entry, edit);
    *slot = Slot::Branch(branch);
}

fn remove<E: Entry, const BITS: u32>(
    node: &mut Node<E>,
    hash: u64,
    shift: u32,
    is_it: &impl Fn(&E) -> bool,
    edit: &mut Edit,
) -> Option<E> {
    let (at, bit) = if shift >= u64::BITS {
        let found = |slot: &Slot<E>| matches!(slot, Slot::Entry(entry) if is_it(entry));
        (node.slice.iter().position(found)?, 0)
    } else {
        let bit = 1_u64 << index::<BITS>(hash, shift);
        (rank(head(node).bitmap, bit), bit)
    };
    if let Slot::Entry(old) = &node.slice[at] {
        let old = old.clone();
        take_out(node, at, bit, edit);
        return Some(old);
    }
    write(node, edit, |head, slots, edit| {
        let Slot::Branch(child) = &mut slots[at] else {
            return None;
        };
        let old = remove::<E, BITS>(child, hash, shift + BITS, is_it, edit)?;
        // A branch with one entry folds back, so that equal content has equal shape, whatever
        // the order of the changes that led to it.
        if let [last @ Slot::Entry(_)] = &child.slice {
            slots[at] = last.clone();
        }
        head.set_sum(head.sum().wrapping_sub(edit.weight_removed));
        Some(old)
    })
}

/// Takes out a child with all below it, which has this bit in the bitmap.
fn take_out<E: Entry>(node: &mut Node<E>, at: usize, bit: u64, edit: &mut Edit) {
    let mut new_head = *head(node);
    edit.weight_removed = node.slice[at].sum();
    new_head.bitmap &= !bit;
    new_head.set_sum(new_head.sum().wrapping_sub(edit.weight_removed));
    let kept = node.slice[..at].iter().chain(&node.slice[at + 1..]);
    let slots = kept.cloned().collect();
    resize(node, new_head, slots, edit);
}

/// Takes out what is below the rest of a path; false where nothing is.
fn remove_below<E: Entry, const BITS: u32>(
    node: &mut Node<E>,
    path: &[u8],
    shift: u32,
    told: &mut impl FnMut(&E),
    edit: &mut Edit,
) -> bool {
    let Some((&step, rest)) = path.split_first() else {
        return false;
    };
    let bit = 1_u64.checked_shl(u32::from(step)).unwrap_or(0);
    if shift >= u64::BITS || head(node).bitmap & bit == 0 {
        return false;
    }
    let at = rank(head(node).bitmap, bit);
    let is_below = match &node.slice[at] {
        // It lies as high as it may, so that its hash tells what else would lead to it.
        Slot::Entry(entry) => goes_on::<BITS>(entry.hash(), shift + BITS, rest),
        Slot::Branch(_) => rest.is_empty(),
    };
    if is_below {
        let slots = std::slice::from_ref(&node.slice[at]);
        let below = Iter {
            stack: vec![slots.iter()],
        };
        below.for_each(&mut *told);
        take_out(node, at, bit, edit);
        return true;
    }
    let left = write(node, edit, |head, slots, edit| {
        let Slot::Branch(child) = &mut slots[at] else {
            return None;
        };
        if !remove_below::<E, BITS>(child, rest, shift + BITS, told, edit) {
            return None;
        }
        let left = child.slice.len();
        // As where a single entry is taken out.
        if let [last @ Slot::Entry(_)] = &child.slice {
            slots[at] = last.clone();
        }
        head.set_sum(head.sum().wrapping_sub(edit.weight_removed));
        Some(left)
    });
    if left == Some(0) {
        let removed = edit.weight_removed;
        take_out(node, at, bit, edit);
        edit.weight_removed = removed;
    }
    left.is_some()
}

/// Whether a hash leads on as a path does.
fn goes_on<const BITS: u32>(hash: u64, shift: u32, path: &[u8]) -> bool {
    let shifts = (shift..u64::BITS).step_by(BITS as usize);
    let is_on = |(step, shift): (&u8, u32)| index::<BITS>(hash, shift) == u32::from(*step);
    path.iter().zip(shifts).all(is_on)
}

fn index<const BITS: u32>(hash: u64, shift: u32) -> u32 {
    ((hash >> shift) & ((1 << BITS) - 1)) as u32
}

fn rank(bitmap: u64, bit: u64) -> usize {
    (bitmap & (bit - 1)).count_ones() as usize
}

/// See [`Tree::iter`].
pub struct Iter<'a, E> {
    stack: Vec<std::slice::Iter<'a, Slot<E>>>,
}

impl<'a, E> Iterator for Iter<'a, E> {
    type Item = &'a E;

    fn next(&mut self) -> Option<&'a E> {
        loop {
            match self.stack.last_mut()?.next() {
                Some(Slot::Entry(entry)) => return Some(entry),
                Some(Slot::Branch(node)) => self.stack.push(node.slice.iter()),
                None => {
                    self.stack.pop();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
