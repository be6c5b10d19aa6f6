//! Both session cores together: what is sent for what, and a seeded simulation of everything
//! that may happen between them.

mod answers;
mod claims;
mod demanding;
mod hold;
mod kinds;
mod lag;
pub(crate) mod order;
pub(crate) mod pair;
mod receipts;
mod signing;
mod simulation;
mod steps;
mod versions;
mod ways;

use std::time::Duration;

use myriad_base::clock;
use myriad_model::{Change, Form, Key, Kind, SealedArc, Sealer, Snapshot};
use prost::Message as _;

use crate::server::AHEAD_TIMEOUT;
use crate::wire::{self, FromServer, from_server};
use crate::{ClientCounters, ClientSession, ServerCounters, SessionError};
use pair::{KEY, Pair, World};

#[test]
fn one_change_sends_one_resource_to_each_proxy_whatever_the_number_of_resources() {
    let mut sent = Vec::new();
    for count in [100, 100_000] {
        let mut world = World::new(Form::Encoded);
        for number in 0..count {
            world.put(&format!("e{number:06}"), 1);
        }
        let mut pairs: Vec<_> = (0..3)
            .map(|_| Pair::connect(&world, Snapshot::new()))
            .collect();
        for pair in &mut pairs {
            pair.settle();
            assert_eq!(pair.client.held().digest(), world.snapshot().digest());
        }
        world.put("e000007", 2);
        let mut bytes = Vec::new();
        for pair in &mut pairs {
            let counters = pair.server_counters.clone();
            let before = (counters.resources.get(), counters.bytes_sent.get());
            let visited = counters.nodes_visited.get();
            pair.server.update(world.snapshot().clone());
            pair.settle();
            assert_eq!(counters.resources.get() - before.0, 1);
            assert!(counters.nodes_visited.get() - visited <= 8);
            bytes.push(counters.bytes_sent.get() - before.1);
            assert_eq!(pair.client.held().digest(), world.snapshot().digest());
        }
        sent.push(bytes);
    }
    assert_eq!(sent[0], sent[1], "bytes per proxy");
    assert!(sent[0].iter().all(|bytes| *bytes < 256), "{sent:?}");
}

#[test]
fn a_reconnect_in_step_sends_less_than_a_kilobyte_both_ways() {
    let mut world = World::new(Form::Encoded);
    for number in 0..50_000 {
        world.put(&format!("e{number}"), 1);
    }
    let mut first = Pair::connect(&world, Snapshot::new());
    first.settle();
    let mut again = Pair::connect(&world, first.client.held().clone());
    again.settle();
    assert_eq!(again.server_counters.resources.get(), 0);
    assert_eq!(again.server_counters.commits.get(), 1);
    let bytes = again.server_counters.bytes_sent.get() + again.client_bytes;
    assert!(bytes < 1_000, "{bytes} bytes");
}

#[test]
fn a_reconnect_out_of_step_exchanges_only_branches_that_differ() {
    let mut world = World::new(Form::Value);
    for number in 0..20_000 {
        world.put(&format!("e{number}"), 1);
    }
    let mut first = Pair::connect(&world, Snapshot::new());
    first.settle();
    world.put("e5", 2);
    world.put("new", 1);
    world.remove("e6");
    let mut again = Pair::connect(&world, first.client.held().clone());
    again.settle();
    assert_eq!(again.client.held().digest(), world.snapshot().digest());
    let counters = &again.server_counters;
    assert_eq!(counters.resources.get(), 2);
    assert_eq!(counters.removals.get(), 1);
    assert!(counters.nodes_asked.get() <= 10);
    let bytes = counters.bytes_sent.get() + again.client_bytes;
    assert!(bytes < 20_000, "{bytes} bytes");
}

#[test]
fn a_proxy_of_another_key_is_sent_everything_and_keeps_serving_until_then() {
    let mut world = World::new(Form::Encoded);
    for number in 0..1_000 {
        world.put(&format!("e{number}"), 1);
    }
    let other = Sealer::new([9; 32], Form::Value);
    let mut held = Snapshot::new();
    for sealed in world.snapshot().iter() {
        let bytes = sealed.encoded().unwrap();
        let version = other.version(bytes);
        let opened = other.open(sealed.key().clone(), version, bytes);
        held.apply(&Change {
            key: sealed.key().clone(),
            old: None,
            new: Some(SealedArc::new(opened.unwrap())),
        });
    }
    let mut pair = Pair::connect_with_key(&world, held, Some([9; 32]));
    while !pair.server.is_in_step() {
        assert!(pair.step(), "nothing to do, and not in step");
        assert_eq!(pair.client.held().len(), 1_000, "it never empties");
    }
    pair.settle();
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());
    assert_eq!(pair.key, Some(KEY));
    assert_eq!(pair.server_counters.removals.get(), 0);
}

#[test]
fn a_large_difference_is_cut_so_that_what_is_referred_to_goes_first() {
    let mut world = World::new(Form::Encoded);
    for number in 0..5_000 {
        world.put(&format!("u{number}"), 1);
        world.put_upstream(&format!("u{number}"));
    }
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    let kinds: Vec<Kind> = pair.applied.iter().map(|(key, _)| key.kind).collect();
    let boundary = kinds.iter().position(|kind| *kind == Kind::Upstream);
    assert_eq!(boundary, Some(5_000));
    assert!(kinds[5_000..].iter().all(|kind| *kind == Kind::Upstream));
    assert_eq!(
        pair.server_counters.commits.get(),
        3,
        "4,096 resources each"
    );

    pair.applied.clear();
    for number in 0..5_000 {
        world.remove(&format!("u{number}"));
        world.remove_key(&Key::new(Kind::Upstream, &*format!("u{number}")));
    }
    world.put("late", 1);
    pair.server.update(world.snapshot().clone());
    pair.settle();
    let kinds: Vec<_> = pair
        .applied
        .iter()
        .map(|(key, is_removal)| (key.kind, *is_removal))
        .collect();
    assert_eq!(kinds[0], (Kind::Endpoints, false));
    assert!(
        kinds[1..=5_000]
            .iter()
            .all(|it| *it == (Kind::Upstream, true))
    );
    assert!(
        kinds[5_001..]
            .iter()
            .all(|it| *it == (Kind::Endpoints, true))
    );
    assert_eq!(pair.client.held().len(), 1);
}

#[test]
fn at_most_one_commit_is_unacknowledged_and_later_changes_fold() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    let before = pair.server_counters.commits.get();
    for port in 2..100 {
        world.put("a", port);
        pair.server.update(world.snapshot().clone());
        pair.speak();
    }
    assert_eq!(pair.server_counters.commits.get() - before, 1);
    pair.settle();
    assert_eq!(pair.server_counters.commits.get() - before, 2);
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());
}

#[test]
fn a_resource_larger_than_a_frame_travels_in_pieces() {
    let mut world = World::new(Form::Encoded);
    world.put_large("large", 200_000);
    world.put("small", 1);
    let size = world.snapshot().iter().map(|it| it.bytes_encoded()).max();
    assert!(size > Some(2 << 20), "{size:?}");
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());
    assert!(pair.largest_frame <= 128 << 10, "{}", pair.largest_frame);
}

#[test]
fn what_is_refused_is_told_by_name_not_held_and_not_sent_again() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    world.put("b", 1);
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    world.put("a", pair::REFUSED_PORT);
    world.put("b", 2);
    pair.server.update(world.snapshot().clone());
    pair.settle();
    let receipts: Vec<_> = pair.receipts.iter().map(|it| it.key.to_string()).collect();
    assert_eq!(receipts, ["endpoints a"]);
    assert_eq!(pair.client.received(), world.snapshot().digest());
    assert_ne!(pair.client.held().digest(), world.snapshot().digest());
    assert_eq!(pair.client.held().len(), 2, "the last good version stays");
    assert_eq!(pair.server_counters.mismatches.get(), 0);
    let resources = pair.server_counters.resources.get();
    world.put("b", 3);
    pair.server.update(world.snapshot().clone());
    pair.settle();
    assert_eq!(pair.server_counters.resources.get() - resources, 1);
    world.put("a", 4);
    pair.server.update(world.snapshot().clone());
    pair.settle();
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());
}

#[test]
fn a_resource_that_cannot_be_read_is_refused_by_name() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let mut snapshot = world.snapshot().clone();
    let stranger = Sealer::new(KEY, Form::Encoded).stand_in(
        Key::new(Kind::Route, "unreadable"),
        myriad_model::Version([3; 16]),
    );
    snapshot.apply(&Change {
        key: stranger.key().clone(),
        old: None,
        new: Some(SealedArc::new(stranger)),
    });
    world.put("b", 1);
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.server.update(snapshot.clone());
    pair.settle();
    assert_eq!(pair.receipts.len(), 1);
    assert_eq!(pair.receipts[0].key.to_string(), "route unreadable");
    assert_eq!(pair.client.received(), snapshot.digest());
    assert_eq!(pair.client.held().len(), 1);
}

#[test]
fn a_proxy_that_is_ahead_waits_for_its_replica_and_at_most_ten_seconds() {
    let mut old = World::new(Form::Encoded);
    old.put("a", 1);
    let mut new = World::new(Form::Encoded);
    new.put("a", 1);
    new.put("b", 1);
    let mut first = Pair::connect(&new, Snapshot::new());
    first.settle();
    let held = first.client.held().clone();

    let mut waiting = Pair::connect(&old, held.clone());
    waiting.settle();
    assert_eq!(waiting.server_counters.commits.get(), 0);
    assert!(waiting.server.deadline().is_some());
    waiting.server.update(new.snapshot().clone());
    waiting.settle();
    assert!(waiting.server.is_in_step());
    assert_eq!(waiting.server_counters.ahead_too_long.get(), 0);

    let mut late = Pair::connect(&old, held);
    late.settle();
    late.now += AHEAD_TIMEOUT - Duration::from_millis(1);
    late.settle();
    assert_eq!(late.client.held().len(), 2);
    late.now += Duration::from_millis(1);
    late.settle();
    assert_eq!(late.client.held().len(), 1);
    assert_eq!(late.server_counters.ahead_too_long.get(), 1);
}

#[test]
fn a_proxy_that_has_what_an_earlier_started_replica_has_waits_for_nothing() {
    let mut old = World::new(Form::Encoded);
    old.put("a", 1);
    let mut new = World::new(Form::Encoded);
    new.put("b", 1);
    new.remove("b");
    new.put("a", 1);
    assert_eq!(old.snapshot().digest(), new.snapshot().digest());
    assert!(
        new.snapshot()
            .position()
            .is_ahead_of(old.snapshot().position())
    );
    let mut first = Pair::connect(&new, Snapshot::new());
    first.settle();
    let held = first.client.held().clone();

    let mut pair = Pair::connect(&old, held);
    pair.settle();
    assert!(pair.server.is_in_step(), "without any time");
    assert_eq!(
        pair.server_counters.commits.get(),
        1,
        "the greeting is answered"
    );
    assert_eq!(pair.client.held().position(), new.snapshot().position());
    // What comes next may be older than what the proxy has seen, so that it waits.
    old.put("b", 1);
    pair.server.update(old.snapshot().clone());
    pair.settle();
    assert_eq!(pair.client.held().len(), 1);
    assert!(pair.server.deadline().is_some());
    old.put("c", 1);
    old.put("d", 1);
    pair.server.update(old.snapshot().clone());
    pair.settle();
    assert_eq!(pair.client.held().len(), 4, "the replica has caught up");
    assert_eq!(pair.server_counters.ahead_too_long.get(), 0);
}

#[test]
fn a_proxy_that_lost_something_is_found_out_and_mended() {
    let mut world = World::new(Form::Encoded);
    for number in 0..1_000 {
        world.put(&format!("e{number}"), 1);
    }
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    world.put("e1", 2);
    world.put("e2", 2);
    pair.server.update(world.snapshot().clone());
    pair.speak();
    for frame in &mut pair.to_client {
        if let Some(from_server::Body::Changes(changes)) = &mut frame.body {
            changes.changes.truncate(1);
        }
    }
    pair.settle();
    assert_eq!(pair.server_counters.mismatches.get(), 1);
    assert_eq!(pair.client_counters.mismatches.get(), 1);
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());
}

#[test]
fn a_client_refuses_what_no_server_sends() {
    let bad = |bodies: Vec<from_server::Body>| {
        let counters = ClientCounters::default();
        let mut client = ClientSession::new("p", Some(KEY), Snapshot::new(), counters);
        let receive = |body| client.receive(FromServer { body: Some(body) }).err();
        bodies.into_iter().find_map(receive)
    };
    let welcome = |key: &[u8]| {
        from_server::Body::Welcome(wire::Welcome {
            protocol: wire::PROTOCOL,
            schema: 1,
            key: bytes::Bytes::copy_from_slice(key),
            lost: false,
        })
    };
    let change = |name: &str, unfinished| wire::Change {
        kind: 6,
        name: name.to_owned(),
        version: vec![0; 16].into(),
        bytes: vec![1].into(),
        unfinished,
    };
    let changes = |changes| {
        from_server::Body::Changes(wire::Changes {
            changes,
            ..wire::Changes::default()
        })
    };
    let commit = || {
        from_server::Body::Commit(wire::Commit {
            position: None,
            root: vec![0; 16].into(),
            confirmed: false,
            noticed_micros: 0,
        })
    };
    use SessionError::{Invalid, TooMany, Unexpected};
    assert_eq!(bad(vec![commit()]), Some(Unexpected("welcome")));
    assert_eq!(bad(vec![welcome(&[1])]), Some(Invalid("key")));
    let many = (0..=4_096)
        .map(|n| change(&format!("e{n}"), false))
        .collect();
    assert_eq!(
        bad(vec![welcome(&[]), changes(many)]),
        Some(TooMany("changes"))
    );
    let open = changes(vec![change("a", true)]);
    assert_eq!(
        bad(vec![welcome(&[]), open.clone(), commit()]),
        Some(Unexpected("commit"))
    );
    let inside = changes(vec![change("b", false)]);
    assert!(matches!(
        bad(vec![welcome(&[]), open, inside]),
        Some(Unexpected(_))
    ));
    let twice = changes(vec![change("a", false), change("a", false)]);
    assert!(matches!(
        bad(vec![welcome(&[]), twice, commit()]),
        Some(Invalid(_))
    ));
    let ask = wire::Ask {
        paths: vec![bytes::Bytes::new(); wire::ASK_NODES_MAX + 1],
    };
    let ask = from_server::Body::Ask(ask);
    assert_eq!(bad(vec![welcome(&[]), ask]), Some(TooMany("nodes")));
}

#[test]
fn random_bytes_never_panic_either_end() {
    let mut random = pair::Random::new(7);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random.below(64))
            .map(|_| random.below(256) as u8)
            .collect();
        let mut world = World::new(Form::Encoded);
        world.put("a", 1);
        if let Ok(message) = wire::FromProxy::decode(&bytes[..]) {
            let counters = ServerCounters::default();
            let mut server = world.session(counters);
            let _ = server.receive(message);
            let _ = server.poll(clock::now());
        }
        if let Ok(message) = FromServer::decode(&bytes[..]) {
            let mut pair = Pair::connect(&world, Snapshot::new());
            pair.settle();
            let _ = pair.client.receive(message);
        }
    }
}
