use std::sync::Arc;
use std::time::Duration;

use myriad_api::{ObjectKey, ObjectKind, Severity};
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::Metrics;
use myriad_model::{
    Delta, Digest, Endpoints, Form, Key, Kind, Name, Origin, Position, Resource, Sealer, Snapshot,
    Value, Version, Writer,
};

use super::{COMMITS_MAX, Live, Newcomer, OBJECTS_MAX, REFUSALS_MAX, RefusedResource, SLOW_AFTER};

/// A history of snapshots.
struct World {
    live: Live,
    metrics: Metrics,
    writer: Writer,
    names: Vec<Name>,
}

fn ingress(number: usize) -> ObjectKey {
    ObjectKey::new(ObjectKind::Ingress, "a", &format!("i{number}"))
}

fn key(number: usize) -> Key {
    Key {
        kind: Kind::Endpoints,
        name: Name::new(format!("e{number}")),
    }
}

impl World {
    fn new() -> World {
        let metrics = Metrics::new();
        let mut world = World {
            live: Live::new(&metrics),
            metrics,
            writer: Writer::new(Sealer::new([1; 32], Form::Encoded)),
            names: Vec::new(),
        };
        // The first list, for which nobody waits.
        world.commit(clock::now());
        world
    }

    /// Adds a resource, and says that an Ingress changed by it.
    fn commit(&mut self, since: Instant) -> Snapshot {
        let number = self.names.len();
        let value = Value::Endpoints(Box::new(Endpoints::new(Box::default())));
        let resource = Resource {
            origin: Origin::settings(),
            value,
        };
        let key = key(number);
        let mut delta = Delta::default();
        self.writer
            .replace(&[], vec![(key.name.clone(), resource)], &mut delta);
        self.names.push(key.name.clone());
        let snapshot = self.writer.snapshot().clone();
        let keys = [key];
        let objects = [ingress(number)];
        let roots = vec![("gateway".into(), snapshot.digest())];
        self.live.committed(roots, since, keys.iter(), objects);
        snapshot
    }

    fn connect(&self, stream: u64) {
        self.connect_to("gateway", stream);
    }

    fn connect_to(&self, view: &str, stream: u64) {
        let newcomer = Newcomer {
            subject: "a/b/c".into(),
            view: view.into(),
            instance: format!("p{stream}"),
            schema: 1,
        };
        self.live.connected(stream, newcomer);
    }

    /// Connects, and has all that there is.
    fn join(&self, stream: u64) {
        self.connect(stream);
        self.ack(stream, &self.writer.snapshot().clone());
    }

    fn ack(&self, stream: u64, snapshot: &Snapshot) {
        let root = snapshot.digest();
        self.live.acked(stream, root, Position::default());
    }

    /// How many commits were found to be live.
    fn observed(&self) -> String {
        let text = self.metrics.encode();
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("myriad_live_seconds_count "));
        line.expect("the metric").to_owned()
    }
}

#[test]
fn a_commit_is_live_when_the_last_proxy_has_it() {
    let mut world = World::new();
    world.join(1);
    world.join(2);
    assert_eq!(world.observed(), "0", "nobody waited for the first list");
    let first = world.commit(clock::now());
    let second = world.commit(clock::now());
    world.ack(1, &second);
    assert_eq!(world.observed(), "0");
    let report = world.live.report_of(&ingress(2));
    assert_eq!((report.live, report.proxies_total), (1, 2));
    assert_eq!(report.missing, ["p2"]);
    assert_eq!(report.live_since_unix, None);
    world.ack(2, &first);
    assert_eq!(world.observed(), "1");
    assert_eq!(world.live.report_of(&ingress(1)).live, 2);
    world.ack(2, &second);
    assert_eq!(world.observed(), "2");
    let report = world.live.report_of(&ingress(2));
    assert_eq!(report.live, 2);
    assert!(report.live_since_unix.is_some());
    // Later acknowledgements of the same do not count again.
    world.ack(1, &second);
    assert_eq!(world.observed(), "2");
}

#[test]
fn commits_at_one_position_are_told_apart() {
    let mut world = World::new();
    world.join(1);
    let first = world.commit(clock::now());
    let _second = world.commit(clock::now());
    assert_eq!(first.position(), &Position::default());
    world.ack(1, &first);
    let report = world.live.report();
    assert_eq!((report.commits, report.commits_live), (3, 2));
    let proxy = &report.proxies[0];
    assert_eq!(
        (proxy.commits_behind, proxy.resources_behind),
        (Some(1), Some(1))
    );
}

#[test]
fn nobody_waits_for_who_has_gone_or_has_only_come() {
    let mut world = World::new();
    world.join(1);
    world.join(2);
    let first = world.commit(clock::now());
    world.ack(1, &first);
    world.live.gone(2);
    assert_eq!(world.observed(), "1");
    world.connect(3);
    let second = world.commit(clock::now());
    world.ack(1, &second);
    assert_eq!(world.observed(), "2");
    assert_eq!(world.live.report().in_step, 1);
    assert_eq!(world.live.report_of(&ingress(2)).missing, ["p3"]);
    world.ack(3, &first);
    let third = world.commit(clock::now());
    world.ack(1, &third);
    assert_eq!(world.observed(), "2", "it is waited for by now");
    world.ack(3, &third);
    assert_eq!(world.observed(), "3");
    world.live.gone(1);
    world.live.gone(3);
    world.live.gone(3);
    assert_eq!(world.live.report().proxies_total, 0);
}

#[test]
fn what_is_slow_is_found_and_taken_back() {
    let mut world = World::new();
    world.join(1);
    let now = clock::now();
    let snapshot = world.commit(now);
    assert!(world.live.look(now + SLOW_AFTER).is_empty());
    let later = now + SLOW_AFTER + Duration::from_millis(1);
    let found = world.live.look(later);
    assert_eq!(found.added.len(), 1);
    assert_eq!(found.added[0].object, Some(ingress(1)));
    assert!(found.added[0].remedy.contains("proxy p1"));
    assert_eq!(found.added[0].severity, Severity::Warning);
    assert!(world.live.look(later).is_empty(), "told once");
    world.ack(1, &snapshot);
    assert_eq!(world.live.look(later).removed, found.added);
}

#[test]
fn a_refusal_stands_until_the_resource_changes_or_nobody_refuses_it() {
    let world = World::new();
    world.connect(1);
    world.connect(2);
    let refuse = |stream, number| {
        let refused = RefusedResource {
            key: key(number),
            object: Some(ingress(number)),
            reason: "a test says so".to_owned(),
        };
        world.live.refused(stream, vec![refused], 0)
    };
    let found = refuse(1, 0);
    assert_eq!(found.added.len(), 1);
    assert!(refuse(2, 0).is_empty(), "told once");
    assert_eq!(
        world.live.report_of(&ingress(0)).refused,
        ["a proxy refused endpoints e0: a test says so (p1, p2)"]
    );
    assert!(world.live.gone(1).is_empty());
    assert_eq!(world.live.gone(2).removed, found.added);
    world.connect(1);
    let refuse = |number| {
        let (key, reason) = (key(number), String::new());
        let object = None;
        world.live.refused(
            1,
            vec![RefusedResource {
                key,
                object,
                reason,
            }],
            0,
        )
    };
    let found = refuse(0);
    let mut all = REFUSALS_MAX;
    while !refuse(all).is_empty() {
        all -= 1;
    }
    assert_eq!(all, 1, "bounded");
    let keys = [key(0)];
    let roots = vec![("gateway".into(), Snapshot::new().digest())];
    let cleared = world.live.committed(roots, clock::now(), keys.iter(), []);
    assert_eq!(cleared.removed, found.added);
}

#[test]
fn a_commit_that_a_view_does_not_see_is_live_there_at_once() {
    let mut world = World::new();
    world.join(1);
    let side = |number: u64| Digest::of(number, Version([7; 16]));
    let commit = |world: &World, number| {
        let roots = vec![("side".into(), side(number))];
        let keys = [key(0)];
        world.live.committed(roots, clock::now(), keys.iter(), []);
    };
    commit(&world, 1);
    world.connect_to("side", 2);
    world.live.acked(2, side(1), Position::default());
    let in_step = |world: &World| world.live.report().in_step;
    assert_eq!(in_step(&world), 2, "the main view did not change");
    let snapshot = world.commit(clock::now());
    assert_eq!(in_step(&world), 1, "the other view did not change");
    world.ack(1, &snapshot);
    assert_eq!(in_step(&world), 2);
    commit(&world, 2);
    assert_eq!(in_step(&world), 1);
    // A root of another view says nothing, and one that was left behind is behind.
    world.live.acked(2, snapshot.digest(), Position::default());
    world.live.acked(2, side(1), Position::default());
    assert_eq!(in_step(&world), 1);
    world.live.acked(2, side(2), Position::default());
    assert_eq!(in_step(&world), 2);
}

#[test]
fn a_commit_costs_the_proxies_of_the_views_that_it_changes_however_many_there_are() {
    for proxies in [1, 100, 1_000_u64] {
        let world = World::new();
        let side = |number: u64, stream: u64| Digest::of(number, Version([stream as u8; 16]));
        let name = |stream: u64| Arc::<str>::from(format!("side{stream}"));
        let commit = |number, streams: std::ops::RangeInclusive<u64>| {
            let roots = streams.map(|stream| (name(stream), side(number, stream)));
            let keys = [key(0)];
            let live = &world.live;
            live.committed(roots.collect(), clock::now(), keys.iter(), []);
        };
        commit(1, 1..=proxies);
        for stream in 1..=proxies {
            world.connect_to(&name(stream), stream);
            let root = side(1, stream);
            world.live.acked(stream, root, Position::default());
        }
        let moved = || world.live.lock().reached.values().sum::<usize>();
        assert_eq!(moved(), 0);
        commit(2, 1..=1);
        assert_eq!(moved(), 1, "of {proxies} proxies one was looked at");
        let report = world.live.report();
        assert_eq!(report.in_step, proxies as usize - 1);
        assert_eq!(report.proxies[0].commits_behind, Some(1));
        world.live.acked(1, side(2, 1), Position::default());
        world.live.gone(1);
        let report = world.live.report();
        assert_eq!((moved(), report.in_step), (0, proxies as usize - 1));
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut world = World::new();
    world.join(1);
    for _ in 0..COMMITS_MAX + 9 {
        world.commit(clock::now());
    }
    {
        let state = world.live.lock();
        assert_eq!(state.commits.len(), COMMITS_MAX);
        assert_eq!(state.roots.len(), COMMITS_MAX);
        assert_eq!(state.first(), 11);
    }
    let snapshot = world.commit(clock::now());
    world.ack(1, &snapshot);
    assert_eq!(world.observed(), COMMITS_MAX.to_string());
    for number in 0..OBJECTS_MAX + 10 {
        let none: [Key; 0] = [];
        let objects = [ingress(number)];
        let roots = Vec::new();
        world
            .live
            .committed(roots, clock::now(), none.iter(), objects);
    }
    let state = world.live.lock();
    assert_eq!(state.objects.len(), OBJECTS_MAX);
    assert_eq!(state.noted.len(), OBJECTS_MAX);
}
