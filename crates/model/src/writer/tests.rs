//! The changes that the writer makes, and how deltas become commits and back.

use bytes::Bytes;
use proptest::prelude::*;

use crate::{
    COMMIT_RESOURCES_MAX, Certificate, Delta, Endpoint, Endpoints, Form, Key, KeyEncoding, Kind,
    Name, Origin, Position, PrivateKey, Resource, Sealer, Snapshot, Value, WireError, Writer,
};

fn writer() -> Writer {
    Writer::new(Sealer::new([7; 32], Form::Value))
}

fn endpoints(name: &str, port: u16) -> (Name, Resource) {
    let address = ([10, 0, 0, 1], port).into();
    let value = Value::Endpoints(Box::new(Endpoints::new([Endpoint::even(address)].into())));
    (
        Name::from(name),
        Resource {
            origin: Origin::settings(),
            value,
        },
    )
}

/// One unit's outputs as a delta of their own.
fn replace(writer: &mut Writer, former: &[Key], outputs: Vec<(Name, Resource)>) -> Delta {
    let mut delta = Delta::default();
    writer.replace(former, outputs, &mut delta);
    delta
}

fn key(name: &str) -> Key {
    Key::new(Kind::Endpoints, name)
}

#[test]
fn an_equal_output_is_no_change() {
    let mut writer = writer();
    assert_eq!(replace(&mut writer, &[], vec![endpoints("a", 1)]).len(), 1);
    let digest = writer.snapshot().digest();
    assert!(replace(&mut writer, &[key("a")], vec![endpoints("a", 1)]).is_empty());
    assert_eq!(writer.snapshot().digest(), digest);
}

#[test]
fn an_output_that_is_gone_is_removed_with_its_former_value() {
    let mut writer = writer();
    replace(&mut writer, &[], vec![endpoints("a", 1), endpoints("b", 1)]);
    let delta = replace(&mut writer, &[key("a"), key("b")], vec![endpoints("b", 1)]);
    let [change] = delta.changes() else {
        panic!("one change: {delta:?}");
    };
    assert_eq!(change.key, key("a"));
    assert!(change.old.is_some() && change.new.is_none());
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
    let refused = |key: Key, version| sealer.open(key, version, bytes).err();
    let (route, version) = (Key::new(Kind::Route, "a"), sealed.version());
    assert_eq!(refused(route, version), Some(WireError::OtherKind));
    let newer = Key::new(Kind::from_number(77).unwrap(), "a");
    assert_eq!(refused(newer, version), Some(WireError::NewerKind));
    let other = Sealer::new([2; 32], Form::Encoded).version(bytes);
    assert_eq!(refused(key("a"), other), Some(WireError::OtherVersion));
    assert!(sealer.open_trusted(key("a"), other, bytes).is_ok());
}

#[test]
fn a_private_key_is_never_printed() {
    let canary = b"canary-0123456789";
    let value = Value::Certificate(Box::new(Certificate {
        chain: [Bytes::from_static(b"leaf")].into(),
        key: PrivateKey::new(KeyEncoding::Pkcs8, Bytes::from_static(canary)),
    }));
    let mut writer = writer();
    let delta = replace(
        &mut writer,
        &[],
        vec![(
            Name::from("c"),
            Resource {
                origin: Origin::settings(),
                value,
            },
        )],
    );
    let text = format!("{delta:?}");
    assert!(!text.contains("canary") && !text.contains(&format!("{:?}", canary)));
}

#[test]
fn commits_are_cut_between_units_and_never_inside_one() {
    let mut writer = writer();
    let mut delta = Delta::default();
    for (name, resources) in [("a", 4_000), ("b", 90), ("c", 7), ("d", 5_000), ("e", 1)] {
        let out = (0..resources).map(|i| endpoints(&format!("{name}{i}"), 1));
        writer.replace(&[], out.collect(), &mut delta);
    }
    let sizes: Vec<usize> = delta
        .into_commits(Position::counter(0, 1))
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
        let mut outputs: [Vec<Key>; Kind::ALL.len()] = Default::default();
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
                writer.replace(&former, new, &mut delta);
            }
            for commit in delta.clone().into_commits(Position::counter(0, 1)) {
                commit.changes.iter().for_each(|change| replica.apply(change));
            }
            history.push(delta);
            prop_assert_eq!(replica.digest(), writer.snapshot().digest());
            prop_assert_eq!(replica.len(), writer.snapshot().len());
        }
        for delta in history.into_iter().rev() {
            let count = delta.groups().count();
            let inverted = delta.inverted();
            prop_assert_eq!(inverted.groups().count(), count);
            inverted.changes().iter().for_each(|change| replica.apply(change));
        }
        prop_assert_eq!(replica.digest(), Snapshot::new().digest());
        prop_assert!(replica.is_empty());
    }
}

#[test]
fn a_snapshot_that_is_held_does_not_change() {
    let mut writer = writer();
    replace(&mut writer, &[], vec![endpoints("a", 1)]);
    let held = writer.snapshot().clone();
    let digest = held.digest();
    replace(&mut writer, &[key("a")], vec![endpoints("a", 2)]);
    assert_eq!(held.digest(), digest);
    assert_eq!(held.iter().count(), 1);
}

#[test]
fn a_position_and_an_inference_are_noted_once_for_all_views() {
    for views in [1, 100, 1_000] {
        let mut writer = writer();
        (1..=views).for_each(|place| writer.add_view(place));
        let before = writer.snapshot_at(views).unwrap();
        writer.set_position(Position::counter(1, 7));
        writer.note_inference();
        let written = writer.others.values();
        let written = written.filter(|it| it.inferences() > 0 || it.position().epoch > 0);
        assert_eq!(written.count(), 0, "of {views} views");
        for place in [0, views] {
            let snapshot = writer.snapshot_at(place).unwrap();
            assert_eq!(snapshot.position(), &Position::counter(1, 7));
            assert_eq!(snapshot.inferences(), 1);
        }
        assert_eq!((before.position().epoch, before.inferences()), (0, 0));
    }
}

#[test]
fn a_snapshot_is_moved_to_later_moments_alone() {
    let mut writer = writer();
    writer.set_position(Position::counter(1, 7));
    let older = writer.snapshot().moment().clone();
    // Another epoch does not compare, and is later all the same.
    writer.set_position(Position::counter(2, 1));
    let newer = writer.snapshot().clone();
    assert_eq!(newer.clone().as_of(&older).position().epoch, 2);
    let moved = Snapshot::new().as_of(&older).as_of(newer.moment());
    assert_eq!(moved.position(), &Position::counter(2, 1));
}
