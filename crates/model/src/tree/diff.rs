//! The difference of two trees, found by walking only what they do not share.

use super::{Entry, Node, Slot, find, head, slot_at};

/// See [`super::Tree::diff`]. Holds what differs of both trees, so that a long difference may be
/// read piece by piece while newer trees are made.
pub struct Diff<E: Entry, const BITS: u32> {
    stack: Vec<Step<E>>,
    nodes_visited: u64,
}

/// An entry and its successor; at least one of them is there.
pub type Difference<E> = (Option<E>, Option<E>);

enum Step<E> {
    /// Two nodes at the same place, of which the children from this index on are to be compared.
    Both(Node<E>, Node<E>, u32, u8),
    /// A node that only one side has, of which the slots from this one on are to be listed; and
    /// an entry below it that was compared already.
    Only(Side, Node<E>, usize, Option<E>),
    /// A difference that was found together with another.
    Found(Difference<E>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Old,
    New,
}

impl<E: Entry, const BITS: u32> Diff<E, BITS> {
    pub(super) fn new(old: &Node<E>, new: &Node<E>) -> Self {
        let mut diff = Diff {
            stack: Vec::new(),
            nodes_visited: 0,
        };
        diff.enter(old.clone(), new.clone(), 0);
        diff
    }

    /// How many nodes, or pairs of nodes at one place, were looked into so far.
    pub fn nodes_visited(&self) -> u64 {
        self.nodes_visited
    }

    /// Plans to compare two nodes, unless they are equal: by address, or else by the sum of the
    /// weights, which says nothing where entries weigh nothing.
    fn enter(&mut self, old: Node<E>, new: Node<E>, shift: u32) {
        let sum = head(&old).sum();
        if old.ptr() == new.ptr() || (sum == head(&new).sum() && sum != 0) {
            return;
        }
        self.nodes_visited += 1;
        if shift < u64::BITS {
            self.stack.push(Step::Both(old, new, shift, 0));
        } else {
            self.compare_rows(&old, &new);
        }
    }

    fn list(&mut self, side: Side, node: Node<E>, compared: Option<E>) {
        self.nodes_visited += 1;
        self.stack.push(Step::Only(side, node, 0, compared));
    }

    /// Compares nodes below the last hash bit, where entries lie in a row.
    fn compare_rows(&mut self, old: &Node<E>, new: &Node<E>) {
        let entries = |node: &Node<E>| -> Vec<E> {
            let slots = node.slice.iter();
            slots
                .filter_map(|slot| match slot {
                    Slot::Entry(entry) => Some(entry.clone()),
                    Slot::Branch(_) => None,
                })
                .collect()
        };
        let mut added = entries(new);
        for entry in entries(old) {
            let at = added.iter().position(|other| other.same_key(&entry));
            let successor = at.map(|at| added.swap_remove(at));
            self.found(Some(entry), successor);
        }
        for entry in added {
            self.found(None, Some(entry));
        }
    }

    fn found(&mut self, old: Option<E>, new: Option<E>) {
        let is_same = matches!((&old, &new), (Some(old), Some(new)) if old.same_content(new));
        if !is_same {
            self.stack.push(Step::Found((old, new)));
        }
    }

    /// Compares the children at one index; `shift` is their depth.
    fn compare(&mut self, old: Option<Slot<E>>, new: Option<Slot<E>>, shift: u32) {
        match (old, new) {
            (None, None) => {}
            (Some(Slot::Entry(old)), None) => self.found(Some(old), None),
            (None, Some(Slot::Entry(new))) => self.found(None, Some(new)),
            (Some(Slot::Branch(old)), None) => self.list(Side::Old, old, None),
            (None, Some(Slot::Branch(new))) => self.list(Side::New, new, None),
            (Some(Slot::Branch(old)), Some(Slot::Branch(new))) => self.enter(old, new, shift),
            (Some(Slot::Entry(old)), Some(Slot::Entry(new))) if old.same_key(&new) => {
                self.found(Some(old), Some(new));
            }
            (Some(Slot::Entry(old)), Some(Slot::Entry(new))) => {
                self.found(Some(old), None);
                self.found(None, Some(new));
            }
            (Some(Slot::Entry(old)), Some(Slot::Branch(new))) => {
                let successor = successor::<E, BITS>(&old, &new, shift);
                self.list(Side::New, new, Some(old.clone()));
                self.found(Some(old), successor);
            }
            (Some(Slot::Branch(old)), Some(Slot::Entry(new))) => {
                let former = successor::<E, BITS>(&new, &old, shift);
                self.list(Side::Old, old, Some(new.clone()));
                self.found(former, Some(new));
            }
        }
    }
}

/// The entry below `node` of the same key.
fn successor<E: Entry, const BITS: u32>(entry: &E, node: &Node<E>, shift: u32) -> Option<E> {
    find::<E, BITS>(node, entry.hash(), shift, |other| other.same_key(entry)).cloned()
}

impl<E: Entry, const BITS: u32> Iterator for Diff<E, BITS> {
    type Item = Difference<E>;

    fn next(&mut self) -> Option<Difference<E>> {
        loop {
            match self.stack.pop()? {
                Step::Found(difference) => return Some(difference),
                Step::Both(old, new, shift, from) => {
                    let both = head(&old).bitmap | head(&new).bitmap;
                    let rest = both.checked_shr(u32::from(from)).unwrap_or(0);
                    if rest == 0 {
                        continue;
                    }
                    let at = from + rest.trailing_zeros() as u8;
                    let (left, right) = (slot_at(&old, at).cloned(), slot_at(&new, at).cloned());
                    self.stack.push(Step::Both(old, new, shift, at + 1));
                    self.compare(left, right, shift + BITS);
                }
                Step::Only(side, node, at, compared) => match node.slice.get(at).cloned() {
                    None => {}
                    Some(Slot::Branch(child)) => {
                        self.stack
                            .push(Step::Only(side, node, at + 1, compared.clone()));
                        self.list(side, child, compared);
                    }
                    Some(Slot::Entry(entry)) => {
                        let is_compared = compared.as_ref().is_some_and(|it| it.same_key(&entry));
                        self.stack.push(Step::Only(side, node, at + 1, compared));
                        if is_compared {
                            continue;
                        }
                        return Some(match side {
                            Side::Old => (Some(entry), None),
                            Side::New => (None, Some(entry)),
                        });
                    }
                },
            }
        }
    }
}
