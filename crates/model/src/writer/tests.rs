//! What the writer calls a change, and how deltas become commits and back.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use crate::{
    COMMIT_RESOURCES_MAX, Certificate, Delta, Endpoint, Endpoints, Form, Group, Key, KeyEncoding,
    Kind, Name, Origin, Position, PrivateKey, Resource, Sealer, Snapshot, Value, Writer,
};

fn writer() -> Writer {
    Writer::new(Sealer::new([7; 32], Form::Value))
}

fn endpoints(name: &str, port: u16) -> (Name, Resource) {
    let address = ([10, 0, 0, 1], port).into();
    let value = Value::Endpoints(Endpoints {
        endpoints: [Endpoint { address, weight: 1 }].into(),
    });
    (
        Name::from(name),
        Resource {
            origin: Origin::settings(),
            value,
        },
    )
}

fn key(name: &str) -> Key {
    Key::new(Kind::Endpoints, name)
}

#[test]
fn an_equal_output_is_no_change() {
    let mut writer = writer();
    assert_eq!(
        writer.replace(&[], vec![endpoints("a", 1)]).changes.len(),
        1
    );
    let digest = writer.snapshot().digest();
    assert!(
        writer
            .replace(&[key("a")], vec![endpoints("a", 1)])
            .changes
            .is_empty()
    );
    assert_eq!(writer.snapshot().digest(), digest);
}

#[test]
fn an_output_that_is_gone_is_removed_with_its_former_value() {
    let mut writer = writer();
    writer.replace(&[], vec![endpoints("a", 1), endpoints("b", 1)]);
    let group = writer.replace(&[key("a"), key("b")], vec![endpoints("b", 1)]);
    assert_eq!(group.changes.len(), 1);
    assert_eq!(group.changes[0].key, key("a"));
    assert!(group.changes[0].old.is_some() && group.changes[0].new.is_none());
    assert_eq!(writer.snapshot().count(Kind::Endpoints), 1);
}

#[test]
fn replicas_with_one_key_agree_and_another_key_changes_every_version() {
    let seal = |key: u8| {
        let (name, resource) = endpoints("a", 1);
        Sealer::new([key; 32], Form::Encoded).seal(name, resource)
    };
    assert_eq!(seal(1).version(), seal(1).version());
    assert_ne!(seal(1).version(), seal(2).version());
}

#[test]
fn sealed_bytes_open_to_the_value_that_was_sealed() {
    let (name, resource) = endpoints("a", 1);
    let mut sealer = Sealer::new([1; 32], Form::Encoded);
    let sealed = sealer.seal(name, resource.clone());
    let bytes = sealed.encoded().unwrap();
    let opened = sealer.open(key("a"), sealed.version(), bytes).unwrap();
    assert_eq!(opened.resource(), Some(&resource));
    assert!(
        sealer
            .open(Key::new(Kind::Route, "a"), sealed.version(), bytes)
            .is_err()
    );
}

#[test]
fn a_private_key_is_never_printed() {
    let canary = b"canary-0123456789";
    let value = Value::Certificate(Certificate {
        chain: [Bytes::from_static(b"leaf")].into(),
        key: PrivateKey::new(KeyEncoding::Pkcs8, Bytes::from_static(canary)),
    });
    let mut writer = writer();
    let group = writer.replace(
        &[],
        vec![(
            Name::from("c"),
            Resource {
                origin: Origin::settings(),
                value,
            },
        )],
    );
    let text = format!("{group:?}");
    assert!(!text.contains("canary") && !text.contains(&format!("{:?}", canary)));
}

#[test]
fn commits_are_cut_between_units_and_never_inside_one() {
    let mut writer = writer();
    let mut unit = |name: &str, resources: usize| {
        let out = (0..resources)
            .map(|i| endpoints(&format!("{name}{i}"), 1))
            .collect();
        writer.replace(&[], out)
    };
    let groups = vec![
        unit("a", 4_000),
        unit("b", 90),
        unit("c", 7),
        unit("d", 5_000),
        unit("e", 1),
    ];
    let sizes: Vec<usize> = Delta { groups }
        .into_commits(&Position::counter(0, 1))
        .iter()
        .map(|commit| commit.changes.len())
        .collect();
    assert_eq!(sizes, [4_090, 7, 5_000, 1]);
    const { assert!(COMMIT_RESOURCES_MAX == 4_096) };
}

proptest! {
    /// A replica that applies the deltas holds the same as the writer, and the inverse of all
    /// of them leads back to nothing.
    #[test]
    fn deltas_carry_everything(rounds in prop::collection::vec(
        prop::collection::vec((0_u8..6, prop::collection::vec((0_u8..8, 1_u16..4), 0..4)), 1..5),
        1..8,
    )) {
        let mut writer = writer();
        let mut replica = Snapshot::new();
        let mut outputs: [Vec<Key>; 6] = Default::default();
        let mut history = Vec::new();
        for round in rounds {
            let mut delta = Delta::default();
            for (unit, resources) in round {
                let mut new: Vec<(Name, Resource)> = Vec::new();
                for (name, port) in resources {
                    let (name, resource) = endpoints(&format!("{unit}-{name}"), port);
                    if new.iter().all(|(known, _)| *known != name) {
                        new.push((name, resource));
                    }
                }
                let former = std::mem::take(&mut outputs[usize::from(unit)]);
                let keys = new.iter().map(|(name, _)| key(name)).collect();
                outputs[usize::from(unit)] = keys;
                let group: Group = writer.replace(&former, new);
                if !group.changes.is_empty() {
                    delta.groups.push(group);
                }
            }
            for commit in delta.clone().into_commits(&Position::counter(0, 1)) {
                commit.changes.iter().for_each(|change| replica.apply(change));
            }
            history.push(delta);
            prop_assert_eq!(replica.digest(), writer.snapshot().digest());
            prop_assert_eq!(replica.len(), writer.snapshot().len());
        }
        for delta in history.into_iter().rev() {
            for group in delta.inverted().groups {
                group.changes.iter().rev().for_each(|change| replica.apply(change));
            }
        }
        prop_assert_eq!(replica.digest(), Snapshot::new().digest());
        prop_assert!(replica.is_empty());
    }
}

#[test]
fn a_snapshot_that_is_held_does_not_change() {
    let mut writer = writer();
    writer.replace(&[], vec![endpoints("a", 1)]);
    let held = writer.snapshot().clone();
    let digest = held.digest();
    writer.replace(&[key("a")], vec![endpoints("a", 2)]);
    assert_eq!(held.digest(), digest);
    assert_eq!(held.iter().map(Arc::clone).count(), 1);
}
