//! Namespaces that are costly, in simulated time: the test says what a batch costs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use myriad_api::{Batch, Change, ObjectKey, ObjectKind};
use myriad_base::clock::{self, Instant};

use super::super::{QUEUE_CHANGES_MAX, Queue, Shares};
use super::{put, sharing};
use crate::control::debts::Debt;

const HEAVY: Duration = Duration::from_secs(3);
const LIGHT: Duration = Duration::from_micros(100);

/// One cut of a simulation.
#[derive(Debug, PartialEq, Eq)]
struct Past {
    /// When its translation ended, since the start.
    end: Duration,
    namespaces: BTreeSet<String>,
}

/// A control thread in simulated time. Each namespace has one object.
struct World {
    queue: Queue,
    start: Instant,
    now: Instant,
    costly: &'static [&'static str],
    /// When the oldest change of a namespace came that waits.
    arrived: BTreeMap<String, Instant>,
    /// The longest that a change waited until it was translated.
    longest: BTreeMap<String, Duration>,
    past: Vec<Past>,
    debts: Vec<Debt>,
}

impl World {
    fn new(shares: Shares, costly: &'static [&'static str]) -> World {
        let start = clock::now();
        World {
            queue: sharing(shares),
            start,
            now: start,
            costly,
            arrived: BTreeMap::new(),
            longest: BTreeMap::new(),
            past: Vec::new(),
            debts: Vec::new(),
        }
    }

    /// One batch with a change of each of these namespaces.
    fn push(&mut self, namespaces: &[&str], arrived: Instant) {
        for namespace in namespaces {
            let name = (*namespace).to_owned();
            self.arrived.entry(name).or_insert(arrived);
        }
        let changes = namespaces.iter().flat_map(|it| removals(it, 0..1));
        self.queue.push(batch(changes.collect(), 0), self.now);
    }

    fn cut(&mut self) {
        let cut = self.queue.cut(self.now);
        let names = cut.changes.iter().map(|it| it.key().namespace().to_owned());
        let namespaces: BTreeSet<String> = names.collect();
        assert_eq!(cut.changes.len(), namespaces.len(), "one change per object");
        let costs = namespaces.iter().map(|name| {
            let is_costly = self.costly.contains(&name.as_str());
            if is_costly { HEAVY } else { LIGHT }
        });
        let cost: Duration = costs.sum();
        self.now += cost;
        for namespace in &namespaces {
            let arrived = self.arrived.remove(namespace).expect("it came");
            let longest = self.longest.entry(namespace.clone()).or_default();
            *longest = self.now.duration_since(arrived).max(*longest);
        }
        let debt = self.queue.charge(cut.holders, cost, self.now);
        self.debts.extend(debt);
        self.past.push(Past {
            end: self.now.duration_since(self.start),
            namespaces,
        });
    }

    /// Goes through changes of namespaces, sorted by when they come, until all is translated.
    fn run(&mut self, events: &[(Duration, String)]) {
        let mut events = events.iter().peekable();
        loop {
            let (start, now) = (self.start, self.now);
            while let Some((at, namespace)) = events.next_if(|(at, _)| start + *at <= now) {
                self.push(&[namespace.as_str()], start + *at);
            }
            if self.queue.is_due(now) {
                self.cut();
                continue;
            }
            let next = events.peek().map(|(at, _)| start + *at);
            let next = next.into_iter().chain(self.queue.next_due()).min();
            let Some(next) = next else {
                break;
            };
            assert!(next > now, "time goes on");
            self.now = next;
        }
        assert!(self.queue.is_empty() && self.arrived.is_empty());
    }

    /// Cuts until nothing is due.
    fn settle(&mut self) {
        while self.queue.is_due(self.now) {
            self.cut();
        }
    }

    /// The ends of the batches that a namespace had a part in.
    fn ends(&self, namespace: &str) -> Vec<Duration> {
        let past = self.past.iter();
        let past = past.filter(|past| past.namespaces.contains(namespace));
        past.map(|past| past.end).collect()
    }
}

fn removals(namespace: &str, numbers: std::ops::Range<usize>) -> Vec<Change> {
    let key = |number| ObjectKey::new(ObjectKind::Ingress, namespace, &format!("i{number}"));
    numbers.map(|number| Change::Remove(key(number))).collect()
}

fn batch(changes: Vec<Change>, revision: u64) -> Batch {
    Batch {
        changes,
        positions: vec![(ObjectKind::Ingress, revision)],
        ..Batch::default()
    }
}

/// A queue where a namespace owes something, and the time.
fn in_debt(shares: Shares) -> (Queue, Instant) {
    let (mut queue, now) = (sharing(shares), clock::now());
    for (namespace, cost) in [("other", LIGHT), ("heavy", HEAVY)] {
        queue.push(batch(removals(namespace, 0..1), 0), now);
        let cut = queue.cut(now);
        let debt = queue.charge(cut.holders, cost, now);
        assert_eq!(debt.is_some(), namespace == "heavy");
    }
    (queue, now)
}

fn namespaces(changes: &[Change]) -> BTreeSet<&str> {
    changes.iter().map(|it| it.key().namespace()).collect()
}

fn event(milliseconds: u64, namespace: &str) -> (Duration, String) {
    (Duration::from_millis(milliseconds), namespace.to_owned())
}

/// Two minutes of a namespace that edits a costly object every 10 ms, and of a hundred others that
/// edit a cheap one every second.
fn two_minutes() -> World {
    let heavy = (0..120_000).step_by(10).map(|at| event(at, "heavy"));
    let mut events: Vec<_> = heavy.collect();
    for light in 0..100 {
        let name = format!("light{light:02}");
        let times = (light * 10..120_000).step_by(1_000);
        events.extend(times.map(|at| event(at, &name)));
    }
    events.sort();
    let mut world = World::new(Shares::FAIR, &["heavy"]);
    world.run(&events);
    world
}

#[test]
fn a_costly_namespace_makes_nobody_wait_for_more_than_one_of_its_batches() {
    let world = two_minutes();
    assert_eq!(world.longest.len(), 101);
    for (namespace, longest) in &world.longest {
        let batches = match namespace.as_str() {
            // Its own: one that runs, four times that, and the next.
            "heavy" => 6,
            _ => 1,
        };
        let bound = batches * HEAVY + 300 * LIGHT;
        assert!(*longest <= bound, "{namespace} waited {longest:?}");
    }
    // It shared its first batch; each of the others is followed by four times what it took.
    let ends = world.ends("heavy");
    assert_eq!(ends.len(), 10);
    for pair in ends[1..].windows(2) {
        assert!(pair[1] - pair[0] >= 5 * HEAVY, "{pair:?}");
    }
    assert_eq!(world.debts.len(), 9);
}

#[test]
fn who_shares_a_heavy_batch_with_another_is_not_charged_for_it() {
    let world = two_minutes();
    assert!(world.debts.iter().all(|debt| &*debt.namespace == "heavy"));
    let shared = |past: &&Past| past.namespaces.len() > 1;
    let first = world.past.iter().find(shared).expect("the first");
    assert!(first.namespaces.contains("heavy") && first.namespaces.contains("light00"));
    // It goes alone until it is forgotten what it had a part in.
    let again = world.past.iter().skip(1).filter(shared);
    let again = again.filter(|past| past.namespaces.contains("light00"));
    let again: Vec<&Past> = again.collect();
    assert!(again[0].end > first.end + 4 * HEAVY);
    assert!(again.iter().all(|past| !past.namespaces.contains("heavy")));
}

#[test]
fn the_same_changes_are_cut_in_the_same_way() {
    assert_eq!(two_minutes().past, two_minutes().past);
}

#[test]
fn while_nothing_is_heavy_all_namespaces_go_together() {
    let mut world = World::new(Shares::FAIR, &[]);
    let names: Vec<String> = (0..200).map(|it| format!("n{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for round in 1..=5 {
        world.push(&names, world.now);
        world.settle();
        assert_eq!(world.past.len(), round);
    }
    assert_eq!(world.debts, []);
}

#[test]
fn operators_and_objects_of_no_namespace_never_wait() {
    let mut world = World::new(Shares::FAIR, &["istio-system", ""]);
    for _ in 0..3 {
        for namespace in ["istio-system", ""] {
            world.push(&[namespace, "tenant"], world.now);
            world.settle();
            assert!(world.queue.is_empty());
        }
    }
    assert_eq!(world.debts, []);
}

#[test]
fn one_tenant_alone_does_not_wait() {
    let mut world = World::new(Shares::FAIR, &["heavy"]);
    for _ in 0..3 {
        world.push(&["heavy"], world.now);
        world.settle();
    }
    assert_eq!((world.past.len(), world.debts.len()), (3, 0));
}

#[test]
fn two_costly_tenants_delay_others_by_one_batch_at_a_time() {
    let costly = (0..60_000).step_by(10);
    let costly = costly.flat_map(|at| [event(at, "heavy1"), event(at, "heavy2")]);
    let light = (5_000..60_000).step_by(500).map(|at| event(at, "light"));
    let mut events: Vec<_> = costly.chain(light).collect();
    events.sort();
    let mut world = World::new(Shares::FAIR, &["heavy1", "heavy2"]);
    world.run(&events);
    let longest = world.longest["light"];
    assert!(longest <= HEAVY + 10 * LIGHT, "{longest:?}");
    for namespace in ["heavy1", "heavy2"] {
        for pair in world.ends(namespace)[1..].windows(2) {
            assert!(pair[1] - pair[0] >= 5 * HEAVY, "{namespace}: {pair:?}");
        }
    }
}

#[test]
fn what_came_in_one_file_goes_together_whatever_is_owed() {
    for shares in [Shares::WHOLE, Shares::FAIR] {
        let (mut queue, now) = in_debt(shares);
        queue.push(batch(removals("heavy", 0..1), 1), now);
        assert!(!queue.is_due(now));
        assert_eq!(queue.deferred_len(), 1);
        let both = [removals("heavy", 1..2), removals("other", 0..1)].concat();
        queue.push(batch(both, 2), now);
        let cut = queue.cut(now);
        if !shares.keeps_batches {
            assert_eq!(namespaces(&cut.changes), BTreeSet::from(["other"]));
            continue;
        }
        // And with it what its namespaces had waiting, so that nothing passes it.
        assert_eq!(cut.changes.len(), 3);
        assert_eq!(queue.charge(cut.holders, HEAVY, now), None);
        queue.push(batch(removals("other", 0..1), 3), now);
        queue.push(batch(removals("heavy", 0..1), 4), now);
        let cut = queue.cut(now);
        assert_eq!(namespaces(&cut.changes), BTreeSet::from(["other"]));
        assert!(!queue.is_due(now) && !queue.is_empty());
    }
}

#[test]
fn a_position_waits_for_who_is_deferred_and_others_take_no_room_meanwhile() {
    let (mut queue, now) = in_debt(Shares::FAIR);
    queue.push(batch(removals("heavy", 0..1), 1), now);
    for revision in 2..5_000 {
        let changes = [removals("other", 0..1), removals("heavy", 0..1)].concat();
        queue.push(batch(changes, revision), now);
        queue.push(batch(removals("third", 0..1), revision), now);
        let cut = queue.cut(now);
        assert_eq!(namespaces(&cut.changes), BTreeSet::from(["other", "third"]));
        assert_eq!(cut.positions, []);
        assert_eq!((queue.waiting.len(), queue.marks.len()), (1, 1));
    }
    let due = queue.next_due().expect("it is deferred");
    assert_eq!(due, now + 4 * HEAVY);
    assert!(queue.is_due(due));
    let cut = queue.cut(due);
    assert_eq!((cut.changes.len(), cut.since), (1, now));
    assert_eq!(cut.positions, [(ObjectKind::Ingress, 4_999)]);
    assert!(queue.is_empty());
    assert_eq!(queue.take_waited(), 4 * HEAVY);
}

#[test]
fn who_is_deferred_keeps_nobody_from_being_taken_in_however_many_changes_wait() {
    let (mut queue, now) = in_debt(Shares::FAIR);
    let count = QUEUE_CHANGES_MAX + 100;
    // The newest change of each waits, though each is one of many.
    for _ in 0..2 {
        queue.push(put("heavy", 0..count), now);
    }
    queue.push(batch(removals("heavy", count..count + 1), 3), now);
    assert!(!queue.is_full() && !queue.is_due(now));
    assert_eq!(
        (queue.loaded, queue.deferred_loaded),
        (0, QUEUE_CHANGES_MAX + 1)
    );
    queue.push(put("other", 0..1), now);
    let cut = queue.cut(now);
    assert_eq!(namespaces(&cut.changes), BTreeSet::from(["other"]));
    assert!(!queue.is_due(now));
    // Once it is its turn, the objects are read again of which no change waits.
    let (mut now, mut changes, mut wanted) = (now, 0, Vec::new());
    while !queue.is_empty() {
        now = queue.next_due().unwrap_or(now);
        let cut = queue.cut(now);
        changes += cut.changes.len();
        wanted.extend(cut.wanted);
        queue.charge(cut.holders, Duration::ZERO, now);
    }
    assert_eq!((changes, wanted.len()), (QUEUE_CHANGES_MAX + 1, 100));
    assert_eq!((queue.loaded, queue.deferred_loaded), (0, 0));
    assert!(queue.waiting.is_empty());
}

#[test]
fn batches_beyond_a_bound_are_told_apart_no_more() {
    let (mut queue, now) = in_debt(Shares::FAIR);
    let count = QUEUE_CHANGES_MAX + 10;
    for number in 0..count {
        queue.push(
            batch(removals("heavy", number..number + 1), number as u64),
            now,
        );
    }
    assert_eq!(queue.marks.len(), QUEUE_CHANGES_MAX);
    let (mut now, mut positions) = (now, Vec::new());
    while !queue.is_empty() {
        now = queue.next_due().unwrap_or(now);
        let cut = queue.cut(now);
        positions = cut.positions;
        queue.charge(cut.holders, Duration::ZERO, now);
    }
    assert_eq!(
        positions.last(),
        Some(&(ObjectKind::Ingress, count as u64 - 1))
    );
}

#[test]
fn a_costly_namespace_has_smaller_slices_until_they_are_light() {
    let (mut queue, mut now) = (sharing(Shares::FAIR), clock::now());
    queue.push(batch(removals("heavy", 0..1_000), 1), now);
    let mut lens = Vec::new();
    while !queue.is_empty() {
        now = queue.next_due().unwrap_or(now);
        let cut = queue.cut(now);
        // 30 ms each, and after the first hundred nothing.
        let price = if lens.iter().sum::<usize>() < 100 {
            30
        } else {
            0
        };
        let cost = Duration::from_millis(price * cut.changes.len() as u64);
        now += cost;
        lens.push(cut.changes.len());
        queue.charge(cut.holders, cost, now);
    }
    assert_eq!(lens[..4], [64, 3, 6, 3], "{lens:?}");
    assert_eq!(lens.iter().max(), Some(&64));
    assert_eq!(lens.iter().sum::<usize>(), 1_000);
}

#[test]
fn a_queue_that_is_emptied_waits_for_nobody_and_charges_nobody() {
    let (mut queue, now) = in_debt(Shares::FAIR);
    queue.push(batch(removals("heavy", 0..600), 1), now);
    queue.push(batch(removals("other", 0..1), 2), now);
    queue.hurry(now);
    let mut cuts = 0;
    while !queue.is_empty() {
        let cut = queue.cut(now);
        assert_eq!(queue.charge(cut.holders, HEAVY, now), None);
        cuts += 1;
    }
    assert_eq!(cuts, 10);
    // What it owed before is not forgotten.
    queue.push(batch(removals("heavy", 0..1), 3), now);
    assert!(!queue.is_due(now));
}
