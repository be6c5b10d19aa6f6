//! The work that many streams of one view do together, by counting.

use std::sync::Arc;
use std::time::Duration;

use myriad_base::clock;
use myriad_model::{Form, Snapshot};
use prost::Message as _;

use super::pair::{Pair, World};
use crate::server::{SHELF_BYTES_MAX, STEP_AGE_MAX, Shelf};
use crate::wire::{FromServer, from_server};
use crate::{Received, ServerCounters};

const STREAMS: usize = 2_000;

#[test]
fn two_thousand_streams_compare_and_encode_a_change_once() {
    let mut world = World::new(Form::Encoded);
    for number in 0..10_000 {
        world.put(&format!("e{number}"), 1);
    }
    let mut first = Pair::connect(&world, Snapshot::new());
    first.settle();
    let held = first.client.held().clone();
    let counters = ServerCounters::default();
    let connect = |_| Pair::connect_counted(&world, held.clone(), &counters);
    let mut pairs: Vec<Pair> = (0..STREAMS).map(connect).collect();
    pairs.iter_mut().for_each(Pair::settle);
    assert_eq!(counters.resources.get(), 0);
    assert_eq!(
        (counters.steps_made.get(), counters.steps_shared.get()),
        (1, 1_999)
    );
    assert!(counters.bytes_sent.get() < 500 * STREAMS as u64);

    for round in 1..=3 {
        let before = counters.nodes_visited.get();
        world.put("e17", 1 + round);
        world.put("e18", 1 + round);
        world.remove(&format!("e{}", 100 + round));
        for pair in &mut pairs {
            pair.server.update(world.snapshot().clone());
            pair.settle();
            assert!(pair.server.is_in_step());
        }
        let visited = counters.nodes_visited.get() - before;
        assert!(visited <= 24, "{visited} nodes for {STREAMS} streams");
        let rounds = u64::from(round);
        assert_eq!(counters.steps_made.get(), 1 + rounds);
        assert_eq!(counters.steps_shared.get(), 1_999 * (1 + rounds));
        assert_eq!(counters.resources.get(), 2 * 2_000 * rounds);
        assert_eq!(counters.removals.get(), 2_000 * rounds);
    }
    let last = &pairs[STREAMS - 1];
    assert_eq!(last.client.held().digest(), world.snapshot().digest());
}

#[test]
fn when_a_change_was_noticed_is_told_once_and_of_several_the_oldest() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let told = |pair: &mut Pair, name: &str, notices: &[u64], world: &mut World| {
        for (number, notice) in (2..).zip(notices) {
            world.put(name, number);
            let mut newest = world.snapshot().clone();
            newest.set_noticed_micros(*notice);
            pair.server.update(newest);
        }
        let mut told = Vec::new();
        while let Some(bytes) = pair.server.poll(clock::now()) {
            let message = FromServer::decode(&*bytes).expect("a message");
            if let Some(from_server::Body::Commit(commit)) = &message.body {
                told.push(commit.noticed_micros);
            }
            let Ok(received) = pair.client.receive(message) else {
                panic!("a message that is understood");
            };
            if let Received::Apply(delivery) = received {
                let micros = told.last().copied().filter(|micros| *micros > 0);
                assert_eq!(delivery.noticed, micros.map(Duration::from_micros));
                let ack = pair.client.applied(&[]).expect("an answer");
                pair.server.receive(ack).expect("an answer");
            }
        }
        told
    };
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    assert_eq!(told(&mut pair, "b", &[7], &mut world), [7]);
    assert_eq!(told(&mut pair, "c", &[9, 8, 10], &mut world), [8]);
    assert_eq!(told(&mut pair, "d", &[0], &mut world), [0], "nobody knows");
    assert_eq!(told(&mut pair, "e", &[11], &mut world), [11]);
    let mut late = Pair::connect(&world, Snapshot::new());
    assert_eq!(late.client.held().len(), 0);
    late.settle();
    assert!(late.server.is_in_step());
}

#[test]
fn a_stream_that_was_slow_takes_a_step_of_its_own_and_few_steps_are_kept() {
    let mut world = World::new(Form::Encoded);
    let counters = ServerCounters::default();
    let mut slow = Pair::connect_counted(&world, Snapshot::new(), &counters);
    let mut quick = Pair::connect_counted(&world, Snapshot::new(), &counters);
    slow.settle();
    quick.settle();
    for round in 0..100 {
        world.put_large(&format!("e{round}"), 5_000);
        quick.server.update(world.snapshot().clone());
        quick.settle();
    }
    let (kept, bytes) = world.steps().kept();
    assert!(
        kept <= 16 && bytes <= 5 << 20,
        "{kept} steps, {bytes} bytes"
    );
    let (made, sent) = (counters.steps_made.get(), counters.commits.get());
    slow.server.update(world.snapshot().clone());
    slow.settle();
    assert_eq!(slow.client.held().digest(), world.snapshot().digest());
    // All of it is too long for one commit, and each is a step.
    let sent = counters.commits.get() - sent;
    let made = counters.steps_made.get() - made;
    assert!(made <= sent && sent < 20, "{made} of {sent}");
    assert_eq!(Arc::strong_count(world.steps()), 3);
}

#[test]
fn the_steps_of_all_views_are_bounded_by_bytes_and_age_together() {
    let counters = ServerCounters::default();
    let shelf = Arc::new(Shelf::default());
    let mut world = World::new(Form::Encoded);
    world.put_large("e", 100_000);
    let join = |world: &World| {
        let mut pair = Pair::connect_counted(world, Snapshot::new(), &counters);
        pair.settle();
        assert!(pair.server.is_in_step());
        pair.now
    };
    // The first sync of each view is a step.
    let mut views = Vec::new();
    while counters.steps_crowded_out.get() == 0 {
        assert!(views.len() < 1_000);
        world.move_to_view(&shelf);
        join(&world);
        views.push(world.steps().clone());
    }
    let (_, one) = world.steps().kept();
    let (kept, bytes) = shelf.kept();
    assert!(one > 1 << 19, "{one} bytes");
    assert!(
        bytes <= SHELF_BYTES_MAX + one,
        "{kept} steps, {bytes} bytes"
    );
    assert_eq!(counters.steps_made.get() as usize, kept + 1);
    assert_eq!(views[0].kept(), (0, 0), "the oldest went first");
    assert_eq!(views[1].kept(), (1, one));

    let now = join(&world);
    assert_eq!(counters.steps_shared.get(), 1, "the newest is there");
    shelf.sweep(now + STEP_AGE_MAX);
    assert_eq!(shelf.kept(), (0, 0), "no view has one that is old");
    assert!(views.iter().all(|view| view.kept() == (0, 0)));
}

#[test]
fn streams_with_nothing_walk_and_encode_all_once_together() {
    const STREAMS: u64 = 60;
    let mut world = World::new(Form::Encoded);
    for number in 0..9_000 {
        world.put(&format!("e{number}"), 1);
    }
    let counters = ServerCounters::default();
    let join = |world: &World| {
        let mut pair = Pair::connect_counted(world, Snapshot::new(), &counters);
        pair.settle();
        assert!(pair.server.is_in_step());
        assert_eq!(pair.client.held().digest(), world.snapshot().digest());
        pair
    };
    let first = join(&world);
    let made = counters.steps_made.get();
    assert_eq!(made, 3, "commits of 4,096 resources at most");
    let visited = counters.nodes_visited.get();
    let mut pairs: Vec<Pair> = (1..STREAMS).map(|_| join(&world)).collect();
    assert_eq!(counters.nodes_visited.get(), visited, "by the first alone");
    assert_eq!(counters.steps_made.get(), made);
    assert_eq!(counters.steps_shared.get(), (STREAMS - 1) * made);
    assert_eq!(counters.resources.get(), STREAMS * 9_000);

    // Who comes after a change takes the same, and the change after it.
    world.put("e17", 2);
    pairs.extend((0..STREAMS).map(|_| join(&world)));
    assert_eq!(counters.steps_made.get(), made + 1);
    let changed = counters.nodes_visited.get() - visited;
    assert!(changed <= 16, "{changed} nodes");
    // The others are a step behind, and take that one as well.
    for pair in pairs.iter_mut().chain([&mut { first }]) {
        pair.server.update(world.snapshot().clone());
        pair.settle();
        assert!(pair.server.is_in_step());
    }
    assert_eq!(counters.steps_made.get(), made + 1);
}

#[test]
fn streams_that_are_behind_a_course_end_where_it_does() {
    let mut world = World::new(Form::Encoded);
    for number in 0..9_000 {
        world.put(&format!("e{number}"), 1);
    }
    let counters = ServerCounters::default();
    let mut behind: Vec<Pair> = Vec::new();
    // More than the courses of a view, each from where the world was, to where it is by then.
    for round in 0..8 {
        let mut pair = Pair::connect_counted(&world, Snapshot::new(), &counters);
        pair.settle();
        behind.push(pair);
        for number in 0..9_000 {
            world.put(&format!("e{number}"), 2 + round);
        }
    }
    for pair in &mut behind {
        pair.server.update(world.snapshot().clone());
        pair.settle();
        assert!(pair.server.is_in_step());
        assert_eq!(pair.client.held().digest(), world.snapshot().digest());
    }
}
