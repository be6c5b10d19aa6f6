//! The difference of two snapshots and the nodes of the digest tree.

use crate::{
    Change, Endpoint, Endpoints, Form, Key, Kind, Name, Origin, Resource, SealedArc, Sealer,
    Snapshot, TreeChild, Value,
};

fn put(snapshot: &mut Snapshot, sealer: &mut Sealer, name: &str, port: u16) {
    let address = ([10, 0, 0, 1], port).into();
    let value = Value::Endpoints(Box::new(Endpoints::new([Endpoint::even(address)].into())));
    let origin = Origin::settings();
    let sealed = sealer.seal(Name::from(name), Resource { origin, value });
    snapshot.apply(&Change {
        key: sealed.key().clone(),
        old: None,
        new: Some(SealedArc::new(sealed)),
    });
}

fn filled(count: usize, sealer: &mut Sealer) -> Snapshot {
    let mut snapshot = Snapshot::new();
    for number in 0..count {
        put(&mut snapshot, sealer, &format!("e{number}"), 1);
    }
    snapshot
}

/// The depth at which a tree of this many resources holds its last ones, generously.
fn depth(count: usize) -> u64 {
    u64::from(count.ilog2() / 6 + 4)
}

#[test]
fn a_diff_visits_as_many_nodes_as_changes_times_depth() {
    let mut sealer = Sealer::new([3; 32], Form::Encoded);
    for count in [100, 100_000] {
        let old = filled(count, &mut sealer);
        for changed in [1, 10] {
            let mut new = old.clone();
            for number in 0..changed {
                put(&mut new, &mut sealer, &format!("e{number}"), 2);
            }
            let mut diff = old.diff(&new);
            assert_eq!(diff.by_ref().count(), changed);
            let visited = diff.nodes_visited();
            assert!(visited <= changed as u64 * depth(count), "{visited} nodes");
        }
    }
}

#[test]
fn trees_that_grew_apart_are_compared_by_their_digests() {
    let mut sealer = Sealer::new([3; 32], Form::Encoded);
    let old = filled(10_000, &mut sealer);
    let mut new = filled(10_000, &mut sealer);
    assert_eq!(old.diff(&new).count(), 0);
    put(&mut new, &mut sealer, "another", 1);
    let mut diff = old.diff(&new);
    let change = diff.next().expect("one change");
    assert_eq!(change.key, Key::new(Kind::Endpoints, "another"));
    assert!(change.old.is_none() && diff.next().is_none());
    assert!(diff.nodes_visited() <= depth(10_000));
}

#[test]
fn the_children_of_the_root_hold_every_resource_once() {
    let mut sealer = Sealer::new([3; 32], Form::Encoded);
    let snapshot = filled(1_000, &mut sealer);
    let children = snapshot.children_at(&[]).expect("the root");
    let below = |(index, child): &(u8, TreeChild)| {
        let found: Vec<_> = snapshot.below(&[*index]).collect();
        match child {
            TreeChild::Resource(sealed) => assert_eq!(found[0].key(), sealed.key()),
            TreeChild::Branch(_) => assert!(found.len() > 1),
        }
        found.len()
    };
    assert_eq!(children.iter().map(below).sum::<usize>(), 1_000);
    assert_eq!(snapshot.below(&[]).count(), 1_000);
    let some = snapshot.iter().next().expect("a resource");
    let at: Vec<_> = snapshot.at(some.slot()).collect();
    assert_eq!(at.len(), 1);
    assert_eq!(at[0].key(), some.key());
    assert!(snapshot.children_at(&[64]).is_none());
}

#[test]
fn what_is_replaced_and_what_goes_with_a_path_is_counted() {
    let mut sealer = Sealer::new([3; 32], Form::Encoded);
    let mut snapshot = filled(1_000, &mut sealer);
    assert_eq!(snapshot.bytes_replaced(), 0);
    let below = snapshot.below(&[5]).map(|it| it.bytes_encoded() as u64);
    let (count, bytes) = below.fold((0, 0), |(count, sum), it| (count + 1, sum + it));
    assert!(count > 0);
    snapshot.remove_below(&[5]);
    assert_eq!(snapshot.below(&[5]).count(), 0);
    assert_eq!(snapshot.len(), 1_000 - count);
    assert_eq!(snapshot.count(Kind::Endpoints), 1_000 - count);
    assert_eq!(snapshot.bytes_replaced(), bytes);
    put(&mut snapshot, &mut sealer, "another", 1);
    assert_eq!(snapshot.bytes_replaced(), bytes);
    put(&mut snapshot, &mut sealer, "another", 2);
    assert!(snapshot.bytes_replaced() > bytes);
}

#[test]
fn another_key_gives_other_places() {
    let (one, other) = (
        Sealer::new([1; 32], Form::Value),
        Sealer::new([2; 32], Form::Value),
    );
    assert_ne!(one.key_id(), other.key_id());
    let version = crate::Version([0; 16]);
    let sealed = one.stand_in(Key::new(Kind::Route, "a"), version);
    let adopted = other.adopt(&sealed);
    assert_eq!(adopted.slot(), other.slot(sealed.key()));
    assert_eq!(adopted.version(), sealed.version());
}
