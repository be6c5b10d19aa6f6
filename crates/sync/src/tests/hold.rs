//! Removals that a server infers: what is held, where, and until when.

use std::sync::Arc;
use std::time::Duration;

use myriad_base::hold::{HoldLimits, Loss};
use myriad_model::{Form, Key, Kind, Name, Snapshot};

use super::order::{certificate, domain, route};
use super::pair::{Pair, Random, World};
use crate::log::Replay;
use crate::server::AHEAD_TIMEOUT;

const LIMITS: HoldLimits = HoldLimits {
    percent: 20,
    count: 50,
    time: None,
};

fn put(world: &mut World, number: usize) {
    let listeners: Arc<[Name]> = [Name::from("https")].into();
    world.put_value(&format!("ns/c{number}"), certificate());
    world.put_value(&format!("d{number}"), domain(number, &listeners));
    world.put_value(&format!("r{number}"), route(number, 0, "u", &listeners));
}

fn remove(world: &mut World, number: usize) {
    world.remove_key(&Key::new(Kind::Domain, &*format!("d{number}")));
    world.remove_key(&Key::new(Kind::Route, &*format!("r{number}")));
    world.remove_key(&Key::new(Kind::Certificate, &*format!("ns/c{number}")));
}

fn world(numbers: std::ops::Range<usize>) -> World {
    let mut world = World::new(Form::Encoded);
    numbers.for_each(|number| put(&mut world, number));
    world
}

/// A proxy in step with a world.
fn synced(world: &World) -> Pair {
    let mut pair = Pair::connect_holding(world, Snapshot::new(), LIMITS);
    pair.settle();
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());
    pair
}

/// A proxy with what it served before, that meets another controller now.
fn meets(held: &Pair, world: &World, limits: HoldLimits) -> Pair {
    let mut pair = Pair::connect_holding(world, held.client.held().clone(), limits);
    catch_up(&mut pair);
    pair
}

/// Lets a proxy that has seen more than its controller wait for as long as it does.
fn catch_up(pair: &mut Pair) {
    pair.settle();
    pair.now += AHEAD_TIMEOUT;
    pair.settle();
}

fn update(pair: &mut Pair, world: &World) {
    pair.server.update(world.snapshot().clone());
    pair.settle();
}

fn domains(pair: &Pair) -> usize {
    pair.client.held().count(Kind::Domain)
}

fn loss(lost: usize, of: usize) -> Option<Loss> {
    let what = "domains";
    Some(Loss { what, lost, of })
}

#[test]
fn a_controller_that_lost_nearly_all_takes_nothing_until_a_person_confirms() {
    let old = synced(&world(0..5_000));
    let mut after = world(0..1);
    let mut pair = meets(&old, &after, LIMITS);
    assert_eq!(domains(&pair), 5_000);
    assert_eq!(pair.client.loss(), loss(4_999, 5_000));
    assert_eq!(pair.server.loss(), loss(4_999, 5_000), "the server is told");
    assert!(pair.server.is_in_step(), "what is newest is there");

    put(&mut after, 9_000);
    update(&mut pair, &after);
    assert_eq!(domains(&pair), 5_001, "changes go on");
    remove(&mut after, 9_000);
    update(&mut pair, &after);
    assert_eq!(domains(&pair), 5_000, "what was removed is not held");

    pair.server.confirm();
    pair.settle();
    assert_eq!(pair.client.held().digest(), after.snapshot().digest());
    assert_eq!((pair.client.loss(), pair.server.loss()), (None, None));
    assert_eq!(pair.server_counters.mismatches.get(), 0);
}

#[test]
fn a_confirmation_is_for_what_is_held_and_for_nothing_later() {
    let old = synced(&world(0..100));
    let mut pair = meets(&old, &world(0..100), LIMITS);
    pair.server.confirm();
    pair.client.confirm();
    pair.settle();
    let mut pair = meets(&pair, &world(0..0), LIMITS);
    assert_eq!(domains(&pair), 100);
    pair.client.confirm();
    pair.release();
    assert_eq!(domains(&pair), 0, "confirmed at the proxy");
}

#[test]
fn what_is_little_by_part_or_by_number_goes_at_once() {
    for (before, after, held) in [(50, 0, 0), (51, 0, 51), (300, 240, 240), (300, 239, 300)] {
        let old = synced(&world(0..before));
        let pair = meets(&old, &world(0..after), LIMITS);
        assert_eq!(domains(&pair), held, "{before} to {after}");
    }
}

#[test]
fn those_of_another_cluster_are_no_substitute() {
    let old = synced(&world(0..100));
    let pair = meets(&old, &world(1_000..3_000), LIMITS);
    assert_eq!(pair.client.loss(), loss(100, 100));
    assert_eq!(domains(&pair), 2_100);
}

#[test]
fn what_is_held_goes_after_the_time_that_the_operator_has_set() {
    let time = Duration::from_secs(600);
    let limits = HoldLimits {
        time: Some(time),
        ..LIMITS
    };
    let old = synced(&world(0..100));
    let mut pair = meets(&old, &world(0..0), limits);
    pair.now += time / 2;
    pair.release();
    assert_eq!(domains(&pair), 100);
    assert!(pair.client.deadline().is_some());
    pair.now += time / 2;
    pair.release();
    assert_eq!(domains(&pair), 0);
}

#[test]
fn domains_that_come_back_are_not_held_any_more() {
    let old = synced(&world(0..100));
    let mut after = world(0..0);
    let mut pair = meets(&old, &after, LIMITS);
    (0..100).for_each(|number| put(&mut after, number));
    update(&mut pair, &after);
    assert_eq!(pair.client.loss(), None);
    assert_eq!(pair.server.loss(), None);
    assert_eq!(pair.client.held().digest(), after.snapshot().digest());
    pair.client.confirm();
    pair.release();
    assert_eq!(domains(&pair), 100);
}

#[test]
fn a_certificate_that_its_domain_has_lost_is_not_held() {
    let old = synced(&world(0..200));
    let mut after = world(0..100);
    after.remove_key(&Key::new(Kind::Certificate, "ns/c7"));
    let pair = meets(&old, &after, LIMITS);
    assert_eq!(pair.client.loss(), loss(100, 200));
    let held = pair.client.held();
    assert_eq!(held.count(Kind::Certificate), 199);
    let mut names = held.iter().map(|sealed| sealed.name().as_str());
    assert!(names.all(|name| name != "ns/c7"));
}

#[test]
fn a_restart_and_another_controller_keep_what_is_held() {
    let old = synced(&world(0..100));
    let mut pair = meets(&old, &world(0..2), LIMITS);
    let mut replay = Replay::new(myriad_model::wire::SCHEMA);
    let records = [old.logged, std::mem::take(&mut pair.logged)].concat();
    records.into_iter().for_each(|record| replay.apply(record));
    let (restored, _, unread) = replay.finish();
    assert_eq!((restored.count(Kind::Domain), unread), (100, 0));
    let again = meets(&pair, &world(0..1), LIMITS);
    assert_eq!(domains(&again), 100);
}

#[test]
fn a_server_holds_for_a_proxy_that_does_not_judge() {
    let old = synced(&world(0..100));
    let after = world(0..1);
    let mut pair = Pair::connect(&after, old.client.held().clone());
    pair.is_old = true;
    pair.server = after.session(pair.server_counters.clone()).holding(LIMITS);
    catch_up(&mut pair);
    assert_eq!(domains(&pair), 100);
    let loss = pair.server.loss().expect("a loss");
    assert_eq!((loss.what, loss.lost, loss.of), ("resources", 297, 300));
    assert!(pair.server.is_in_step());
    let mut after = after;
    put(&mut after, 500);
    update(&mut pair, &after);
    assert_eq!(domains(&pair), 101);
    pair.server.confirm();
    pair.settle();
    assert_eq!(pair.client.held().digest(), after.snapshot().digest());
    assert_eq!(pair.server_counters.mismatches.get(), 0);
}

#[test]
fn what_was_missing_is_held_within_a_stream_and_what_was_removed_is_not() {
    for (is_missing, held) in [(true, 200), (false, 1)] {
        let mut world = world(0..200);
        let mut pair = synced(&world);
        if is_missing {
            world.note_inference();
        }
        (1..200).for_each(|number| remove(&mut world, number));
        update(&mut pair, &world);
        assert_eq!(domains(&pair), held);
        assert_eq!(pair.server_counters.mismatches.get(), 0);
        pair.server.confirm();
        pair.settle();
        assert_eq!(pair.client.held().digest(), world.snapshot().digest());
    }
}

/// One proxy that meets controllers which lose objects or have them removed, under a seed.
struct Storm {
    random: Random,
    world: World,
    pair: Pair,
    /// The domains that may go: they were removed, or their loss was confirmed.
    meant: std::collections::BTreeSet<usize>,
}

const DOMAINS: usize = 160;

impl Storm {
    fn step(&mut self) {
        let before = self.numbers();
        let mut is_confirmed = false;
        match self.random.below(12) {
            0..3 => {
                let number = self.random.below(DOMAINS);
                put(&mut self.world, number);
                self.meant.remove(&number);
                self.pair.server.update(self.world.snapshot().clone());
            }
            3 => {
                let number = self.random.below(DOMAINS);
                remove(&mut self.world, number);
                self.meant.insert(number);
                self.pair.server.update(self.world.snapshot().clone());
            }
            4 if self.random.below(3) == 0 => self.lose(),
            5 if self.random.below(3) == 0 => {
                let held = self.pair.client.held().clone();
                self.pair = Pair::connect_holding(&self.world, held, LIMITS);
            }
            6 if self.random.below(8) == 0 => {
                is_confirmed = true;
                self.pair.settle();
                self.pair.server.confirm();
                self.pair.settle();
            }
            _ => {
                self.pair.now += Duration::from_secs(1);
                self.pair.step();
            }
        }
        let after = self.numbers();
        let gone = before
            .difference(&after)
            .filter(|it| !self.meant.contains(it));
        let gone = gone.count();
        let is_much = gone > LIMITS.count && gone * 5 > before.len();
        assert!(is_confirmed || !is_much, "{gone} of {}", before.len());
    }

    /// A controller finds some of its objects missing, or is another one that never had them.
    fn lose(&mut self) {
        let kept = self.random.below(DOMAINS);
        let is_restart = self.random.below(2) == 0;
        match is_restart {
            true => {
                self.world = world(0..kept);
                let held = self.pair.client.held().clone();
                self.pair = Pair::connect_holding(&self.world, held, LIMITS);
            }
            false => {
                self.world.note_inference();
                (kept..DOMAINS).for_each(|number| remove(&mut self.world, number));
                self.pair.server.update(self.world.snapshot().clone());
            }
        }
    }

    fn numbers(&self) -> std::collections::BTreeSet<usize> {
        let held = self.pair.client.held().iter();
        let domains = held.filter(|sealed| sealed.key().kind == Kind::Domain);
        let number = |name: &str| name[1..].parse().expect("a number");
        domains.map(|it| number(it.name().as_str())).collect()
    }
}

#[test]
fn whatever_is_lost_no_step_takes_much_unasked_and_a_confirmation_ends_in_step() {
    for seed in 0..60 {
        eprintln!("MYRIAD_SEED={seed}");
        let world = world(0..DOMAINS);
        let pair = synced(&world);
        let mut storm = Storm {
            random: Random::new(seed),
            world,
            pair,
            meant: Default::default(),
        };
        for _ in 0..1_500 {
            storm.step();
        }
        let Storm {
            world, mut pair, ..
        } = storm;
        update(&mut pair, &world);
        catch_up(&mut pair);
        pair.server.confirm();
        pair.settle();
        assert_eq!(pair.client.held().digest(), world.snapshot().digest());
        assert!(pair.server.is_in_step());
        assert_eq!(pair.server_counters.mismatches.get(), 0);
        assert_eq!(pair.client.loss(), None);
    }
}
