//! The tree against a plain map, over generated sequences of changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Entry, Node, Slot, Tree, head, index};

/// Few distinct hashes, so that collisions down to the last bit are common.
#[derive(Clone, Debug, PartialEq)]
struct Item {
    key: u8,
    value: u16,
}

impl Entry for Arc<Item> {
    fn hash(&self) -> u64 {
        hash(self.key)
    }
    fn same_key(&self, other: &Self) -> bool {
        self.key == other.key
    }
    fn weight(&self) -> u128 {
        weight(self.key, self.value)
    }
}

fn hash(key: u8) -> u64 {
    match key % 4 {
        // The same hash for a quarter of the keys.
        0 => 7,
        // Differs in the highest bits only.
        1 => u64::from(key) << 56 | 7,
        _ => u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

fn weight(key: u8, value: u16) -> u128 {
    (u128::from(key) << 100) + (u128::from(value) << 64) + 1
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u16),
    Remove(u8),
    Keep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<u8>(), any::<u16>()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => any::<u8>().prop_map(Step::Remove),
        1 => Just(Step::Keep),
    ];
    prop::collection::vec(step, 0..400)
}

fn contents<const BITS: u32>(tree: &Tree<Arc<Item>, BITS>) -> BTreeMap<u8, u16> {
    tree.iter().map(|item| (item.key, item.value)).collect()
}

fn check<const BITS: u32>(steps: &[Step]) {
    let mut tree = Tree::<Arc<Item>, BITS>::new();
    let mut plain = BTreeMap::new();
    let mut kept = Vec::new();
    for step in steps {
        match *step {
            Step::Insert(key, value) => {
                let old = tree.insert(Arc::new(Item { key, value }));
                assert_eq!(old.map(|item| item.value), plain.insert(key, value));
            }
            Step::Remove(key) => {
                let old = tree.remove(hash(key), |item| item.key == key);
                assert_eq!(old.map(|item| item.value), plain.remove(&key));
            }
            Step::Keep => kept.push((tree.clone(), plain.clone())),
        }
        assert_eq!(tree.len(), plain.len());
    }
    assert_eq!(contents(&tree), plain);
    let sum = plain.iter().fold(0_u128, |sum, (&key, &value)| {
        sum.wrapping_add(weight(key, value))
    });
    assert_eq!(tree.sum(), sum);
    for (&key, &value) in &plain {
        assert_eq!(
            tree.get(hash(key), |item| item.key == key)
                .map(|item| item.value),
            Some(value)
        );
    }
    for (old_tree, old_plain) in &kept {
        assert_eq!(
            contents(old_tree),
            *old_plain,
            "an older clone saw a later change"
        );
    }
    // The shape follows from the content alone: the digest walk of two ends relies on it.
    let mut fresh = Tree::<Arc<Item>, BITS>::new();
    for (&key, &value) in plain.iter().rev() {
        fresh.insert(Arc::new(Item { key, value }));
    }
    assert_eq!(shape(&tree.root), shape(&fresh.root));
}

/// Bitmaps and sums of all nodes, depth first.
fn shape(node: &Node<Arc<Item>>) -> Vec<(u64, u128)> {
    let mut shapes = vec![(head(node).bitmap, head(node).sum())];
    for slot in &node.slice {
        if let Slot::Branch(child) = slot {
            shapes.extend(shape(child));
        }
    }
    shapes
}

/// The difference of two trees against that of two plain maps.
fn check_diff<const BITS: u32>(steps: &[Step]) {
    let mut tree = Tree::<Arc<Item>, BITS>::new();
    let mut kept = vec![tree.clone()];
    for step in steps {
        match *step {
            Step::Insert(key, value) => drop(tree.insert(Arc::new(Item { key, value }))),
            Step::Remove(key) => drop(tree.remove(hash(key), |item| item.key == key)),
            Step::Keep => kept.push(tree.clone()),
        }
    }
    for old in &kept {
        for (from, to) in [(old, &tree), (&tree, old)] {
            let (before, after) = (contents(from), contents(to));
            let mut expected: Vec<_> = (0..=255)
                .map(|key| (key, before.get(&key).copied(), after.get(&key).copied()))
                .filter(|(_, before, after)| before != after)
                .collect();
            let mut found: Vec<_> = from
                .diff(to)
                .map(|(old, new)| {
                    let key = old.as_ref().or(new.as_ref()).expect("one is there").key;
                    (key, old.map(|item| item.value), new.map(|item| item.value))
                })
                .collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}

/// The entries that go with a path, which is the beginning of a key's, against a plain map.
fn check_below<const BITS: u32>(steps: &[Step], key: u8, depth: u32) {
    let mut tree = Tree::<Arc<Item>, BITS>::new();
    for step in steps {
        if let Step::Insert(key, value) = *step {
            tree.insert(Arc::new(Item { key, value }));
        }
    }
    let (held, before) = (tree.clone(), contents(&tree));
    let steps = |key: u8| {
        let depths = 0..depth.min(u64::BITS.div_ceil(BITS));
        depths.map(move |at| index::<BITS>(hash(key), at * BITS) as u8)
    };
    let path: Vec<u8> = steps(key).collect();
    let is_below = |other: u8| steps(other).eq(path.iter().copied());
    let mut told = Vec::new();
    tree.remove_below(&path, |item| told.push(item.key));
    told.sort_unstable();
    let expected = before.keys().copied().filter(|it| is_below(*it));
    assert_eq!(told, expected.collect::<Vec<_>>());
    let mut fresh = Tree::<Arc<Item>, BITS>::new();
    for (&key, &value) in before.iter().filter(|(key, _)| !is_below(**key)) {
        fresh.insert(Arc::new(Item { key, value }));
    }
    assert_eq!(tree.len(), fresh.len());
    assert_eq!(shape(&tree.root), shape(&fresh.root));
    assert_eq!(contents(&tree), contents(&fresh));
    assert_eq!(contents(&held), before, "an older clone saw it");
    let nodes = tree.nodes_copied();
    assert!(nodes <= u64::from(2 * depth), "copied {nodes} nodes");
}

proptest! {
    #[test]
    fn what_is_below_a_path_goes(steps in steps(), key in any::<u8>(), depth in 0..=16_u32) {
        check_below::<4>(&steps, key, depth);
        check_below::<6>(&steps, key, depth);
    }

    #[test]
    fn a_diff_is_what_two_plain_maps_differ_in(steps in steps()) {
        check_diff::<4>(&steps);
        check_diff::<6>(&steps);
    }

    #[test]
    fn it_behaves_as_a_plain_map_whose_clones_never_change(steps in steps()) {
        check::<4>(&steps);
        check::<6>(&steps);
    }
}

#[test]
fn a_change_to_a_tree_that_nobody_else_holds_copies_nothing() {
    let mut tree = Tree::<Arc<Item>, 4>::new();
    for key in 0..=255 {
        tree.insert(Arc::new(Item { key, value: 0 }));
    }
    assert_eq!(tree.nodes_copied(), 0);
    let held = tree.clone();
    tree.insert(Arc::new(Item { key: 3, value: 1 }));
    let copied = tree.nodes_copied();
    assert!(
        (2..=4).contains(&copied),
        "copied {copied} nodes of one path"
    );
    tree.insert(Arc::new(Item { key: 3, value: 2 }));
    assert_eq!(tree.nodes_copied(), copied, "the path was ours already");
    assert_eq!(
        held.get(hash(3), |item| item.key == 3)
            .map(|item| item.value),
        Some(0)
    );
}

#[test]
fn sums_lead_to_the_one_difference() {
    let mut left = Tree::<Arc<Item>, 6>::new();
    for key in 0..=255 {
        left.insert(Arc::new(Item { key, value: 0 }));
    }
    let mut right = left.clone();
    right.insert(Arc::new(Item { key: 2, value: 9 }));
    let (ours, theirs) = (left.sums_at(&[]).unwrap(), right.sums_at(&[]).unwrap());
    let differing: Vec<_> = ours.iter().zip(&theirs).filter(|(a, b)| a != b).collect();
    assert_eq!(differing.len(), 1);
    assert_eq!(u64::from(differing[0].0.0), hash(2) & 63);
    assert_eq!(left.sums_at(&[200]), None);
}
