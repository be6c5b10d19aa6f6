//! Kinds of resources that one end does not know: a newer build has them, and an older one has not.
//! The newest kind of this build plays the kind of the future.

use myriad_model::{
    Change, Form, Key, Kind, SealedArc, Sealer, Snapshot, Telemetry, Value, Version,
};

use super::pair::{KEY, Pair, World};
use crate::log::{Logged, Replay};
use crate::wire::KnownKinds;

/// The kind of the future.
pub(super) const FUTURE: Kind = Kind::Telemetry;

/// A build that does not know the kind of the future.
pub(super) fn older() -> KnownKinds {
    KnownKinds {
        number_max: Some(FUTURE.number() - 1),
    }
}

/// A build that knows it.
pub(super) fn newer() -> KnownKinds {
    KnownKinds::default()
}

/// A resource of the kind of the future.
pub(super) fn future(content: u16) -> Value {
    Value::Telemetry(Box::new(Telemetry {
        logs: content.is_multiple_of(2).then(Box::default),
        ..Telemetry::default()
    }))
}

/// The state that the records on disk lead a build to. They pass through their bytes, as another
/// build wrote them.
fn replay(disk: &[Logged], kinds: KnownKinds) -> Snapshot {
    let mut replay = Replay::new(myriad_model::wire::SCHEMA).knowing(kinds);
    for logged in disk {
        let read = Logged::decode(logged.encode().into());
        replay.apply(read.expect("a record of any build"));
    }
    replay.finish().0
}

fn key(name: &str) -> Key {
    Key::new(FUTURE, name)
}

fn holds(held: &Snapshot, world: &World, name: &str) -> bool {
    let sealer = Sealer::new(KEY, Form::Value);
    let slot = sealer.slot(&key(name));
    let theirs = world.snapshot().get(slot, &key(name));
    let ours = held.get(slot, &key(name));
    ours.map(|it| it.version()) == theirs.map(|it| it.version()) && ours.is_some()
}

#[test]
fn a_kind_of_a_newer_controller_is_refused_by_name_and_the_stream_goes_on() {
    let unknown = Kind::from_number(77).expect("a kind of the future");
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let mut newest = world.snapshot().clone();
    let key = Key::new(unknown, "shop/web");
    let future = Sealer::new(KEY, Form::Encoded).stand_in(key.clone(), Version([3; 16]));
    let future = SealedArc::new(future);
    let change = |old: Option<&SealedArc>, new: Option<&SealedArc>| Change {
        key: key.clone(),
        old: old.cloned(),
        new: new.cloned(),
    };
    newest.apply(&change(None, Some(&future)));
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.server.update(newest.clone());
    pair.settle();
    let receipts = pair.receipts.iter();
    let receipts: Vec<_> = receipts
        .map(|it| (it.key.to_string(), &*it.reason))
        .collect();
    let reason = "it is of a kind that is not known here, and needs a newer build";
    assert_eq!(receipts, [("kind 77 shop/web".to_owned(), reason)]);
    assert!(pair.server.is_in_step());
    assert_eq!(pair.client.received(), newest.digest());
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());

    world.put("a", 2);
    let mut newest = world.snapshot().clone();
    newest.apply(&change(None, Some(&future)));
    let sent = pair.server_counters.resources.get();
    pair.server.update(newest);
    pair.settle();
    assert_eq!(pair.server_counters.resources.get() - sent, 1);
    pair.server.update(world.snapshot().clone());
    pair.settle();
    assert!(pair.server.is_in_step(), "its removal is understood");
    assert_eq!(pair.client.received(), world.snapshot().digest());
    assert_eq!(pair.client_counters.mismatches.get(), 0);
}

#[test]
fn a_proxy_that_is_upgraded_does_not_claim_what_it_refused_and_takes_it() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    world.put_value("f", future(1));
    let mut old = Pair::connect(&world, Snapshot::new()).knowing(older());
    old.settle();
    assert_eq!(old.receipts.len(), 1);
    assert_eq!(old.client.held().len(), 1);

    let held = replay(&old.logged, newer());
    assert_eq!(held.digest(), old.client.held().digest(), "nothing more");
    let mut new = Pair::connect(&world, held);
    new.settle();
    assert_eq!(new.server_counters.resources.get(), 1, "and nothing else");
    assert_eq!(new.client.held().digest(), world.snapshot().digest());
    assert!(new.receipts.is_empty());
}

#[test]
fn a_proxy_that_is_rolled_back_serves_what_it_can_read_of_its_log_and_is_upgraded_again() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    for name in ["f", "g", "h"] {
        world.put_value(name, future(1));
    }
    let mut new = Pair::connect(&world, Snapshot::new());
    new.settle();
    let mut disk = new.logged;

    let held = replay(&disk, older());
    assert_eq!(held.len(), 1, "what it knows");
    let mut old = Pair::connect(&world, held).knowing(older());
    old.settle();
    assert_eq!(old.receipts.len(), 3);
    world.put_value("f", future(2));
    world.remove_key(&key("g"));
    world.put("a", 2);
    old.server.update(world.snapshot().clone());
    old.settle();
    assert!(old.server.is_in_step());
    disk.append(&mut old.logged);

    let held = replay(&disk, newer());
    assert!(holds(&held, &world, "h"), "its own log still has it");
    assert!(!holds(&held, &world, "f"), "it was refused since");
    assert_eq!(held.count(FUTURE), 2, "what was removed meanwhile is gone");
    let mut again = Pair::connect(&world, held);
    again.settle();
    assert_eq!(again.server_counters.resources.get(), 1);
    assert_eq!(again.client.held().digest(), world.snapshot().digest());
}

#[test]
fn a_controller_that_is_rolled_back_takes_from_a_newer_proxy_what_it_does_not_know() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    world.put_value("f", future(1));
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    let mut older = World::new(Form::Encoded);
    older.put("a", 1);
    older.skip();
    let mut back = Pair::connect(&older, pair.client.held().clone());
    back.settle();
    assert!(back.server.is_in_step());
    assert_eq!(back.client.held().digest(), older.snapshot().digest());
    assert_eq!(back.server_counters.resources.get(), 0);
}
