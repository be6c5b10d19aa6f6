use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::Metrics;
use myriad_model::{
    Delta, Digest, Endpoints, Form, Key, Kind, Name, Origin, Position, Resource, Sealer, Snapshot,
    Value, Version, Writer,
};

use super::{
    COMMITS_MAX, Live, Newcomer, OBJECTS_MAX, REFUSALS_MAX, RefusedResource, SLOW_AFTER, Speaker,
};

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
        self.connect_as(Speaker::Operator, view, stream);
    }

    /// Connects as a sidecar of a namespace.
    fn connect_sidecar(&self, namespace: &str, stream: u64) {
        self.connect_as(Speaker::Namespace(namespace.into()), "gateway", stream);
    }

    fn connect_as(&self, speaker: Speaker, view: &str, stream: u64) {
        let newcomer = Newcomer {
            subject: format!("a/b/p{stream}").into(),
            view: view.into(),
            instance: format!("p{stream}"),
            schema: 1,
            speaker,
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

    /// Refuses a resource that came from an Ingress of namespace `a`, and returns what is told.
    fn refuse(&self, stream: u64, number: usize) -> Vec<Arc<Finding>> {
        let refused = RefusedResource {
            key: key(number),
            object: Some(ingress(number)),
            reason: "a test says so".to_owned(),
        };
        self.live.refused(stream, vec![refused], 0).added
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
fn a_resource_that_is_awaited_is_served_once_every_proxy_has_its_next_change() {
    let mut world = World::new();
    world.join(1);
    world.join(2);
    world.commit(clock::now());
    let awaited = world.live.await_next(key(2));
    let others = world.live.await_next(key(9));
    assert!(!awaited.is_served(), "it has not come");
    let first = world.commit(clock::now());
    assert!(!awaited.is_served(), "nobody has it");
    world.ack(1, &first);
    assert!(!awaited.is_served());
    // One that has only come is not waited for, and one that has later ones has this one.
    world.connect(3);
    let second = world.commit(clock::now());
    world.ack(2, &second);
    assert!(awaited.is_served() && !others.is_served());
    drop((awaited, others));
    assert!(world.live.lock().awaited.is_empty());
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
    assert!(found.added[0].remedy.contains("proxy a/b/p1"));
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
fn a_sidecar_speaks_of_objects_of_its_own_namespace_alone() {
    let world = World::new();
    world.connect_sidecar("b", 1);
    world.connect_sidecar("a", 2);
    world.connect(3);
    let foreign = world.refuse(1, 0);
    assert_eq!((foreign.len(), &foreign[0].object), (1, &None));
    assert!(foreign[0].message.starts_with("a sidecar of namespace b"));
    // Nobody is silenced by somebody who has spoken before.
    for (stream, said) in [(2, "a sidecar of namespace a"), (3, "a proxy")] {
        let found = world.refuse(stream, 0);
        assert_eq!(found[0].object, Some(ingress(0)));
        assert!(found[0].message.starts_with(said), "{found:?}");
    }
    assert_eq!(world.live.report_of(&ingress(0)).refused.len(), 2);
    assert_eq!(world.live.gone(1).removed, foreign);
    assert_eq!(world.live.report().refusals.len(), 2);
}

#[test]
fn refusals_of_sidecars_take_no_room_from_those_of_gateways() {
    let world = World::new();
    world.connect(0);
    let told = |stream: u64, numbers: std::ops::Range<usize>| {
        let found = numbers.map(|number| world.refuse(stream, number).len());
        found.sum::<usize>()
    };
    for stream in 1..=20 {
        world.connect_sidecar(&format!("ns{stream}"), stream);
        let wanted = if stream <= 10 { 50 } else { 0 };
        assert_eq!(told(stream, 0..60), wanted, "{stream}");
    }
    assert_eq!(told(0, 0..REFUSALS_MAX), REFUSALS_MAX / 2);
    // What a namespace has taken back is free again.
    world.live.gone(1);
    assert_eq!((told(2, 60..70), told(11, 0..60)), (0, 50));
}

#[test]
fn a_sidecar_that_lags_behind_is_no_matter_of_other_namespaces() {
    let mut world = World::new();
    world.join(1);
    for (stream, namespace) in [(2, "b"), (3, "a")] {
        world.connect_sidecar(namespace, stream);
        world.ack(stream, &world.writer.snapshot().clone());
    }
    let now = clock::now();
    let snapshot = world.commit(now);
    let later = now + SLOW_AFTER + Duration::from_millis(1);
    world.ack(1, &snapshot);
    // The Ingress is of namespace `a`.
    let found = world.live.look(later);
    assert_eq!(found.added.len(), 1);
    assert!(found.added[0].remedy.contains("proxy a/b/p3"), "{found:?}");
    world.ack(3, &snapshot);
    assert_eq!(world.live.look(later).removed, found.added);
    assert_eq!(world.live.report().in_step, 2, "the other one still lags");
}

#[test]
fn a_sidecar_that_says_nothing_any_more_keeps_no_commit_from_being_live() {
    let mut world = World::new();
    world.join(1);
    world.connect_sidecar("evil", 2);
    world.ack(2, &world.writer.snapshot().clone());
    let awaited = world.live.await_next(key(1));
    let snapshot = world.commit(clock::now());
    assert!(!awaited.is_served());
    world.ack(1, &snapshot);
    assert_eq!(world.observed(), "1");
    assert!(awaited.is_served());
    let report = world.live.report();
    assert_eq!((report.commits, report.commits_live), (2, 2));
    assert_eq!(report.in_step, 1, "it is still told of");
    let report = world.live.report_of(&ingress(1));
    assert_eq!((report.live, report.proxies_total), (1, 1));
    assert!(report.live_since_unix.is_some() && report.missing.is_empty());
    // Of its own namespace's objects it is told.
    world.connect_sidecar("a", 3);
    let report = world.live.report_of(&ingress(1));
    assert_eq!((report.live, report.proxies_total), (1, 2));
    // Where there is no gateway, sidecars decide.
    world.live.gone(1);
    world.ack(3, &snapshot);
    let next = world.commit(clock::now());
    world.ack(3, &next);
    assert_eq!(world.live.report().commits_live, 2);
    world.ack(2, &next);
    assert_eq!(world.live.report().commits_live, 3);
}

#[test]
fn an_object_is_judged_by_proxies_whose_view_its_commit_changed() {
    let mut world = World::new();
    let side = |number: u64| Digest::of(number, Version([7; 16]));
    let commit_to_side = |world: &World, number| {
        let roots = vec![("side".into(), side(number))];
        let object = ObjectKey::new(ObjectKind::Ingress, "b", "of-the-side");
        let none: [Key; 0] = [];
        let live = &world.live;
        live.committed(roots, clock::now(), none.iter(), [object]);
    };
    world.join(1);
    commit_to_side(&world, 1);
    world.connect_to("side", 2);
    world.live.acked(2, side(1), Position::default());
    // The gateway of the other view lags behind in it, and serves all that there is of this one.
    commit_to_side(&world, 2);
    let now = clock::now();
    let snapshot = world.commit(now);
    world.ack(1, &snapshot);
    let later = now + SLOW_AFTER + Duration::from_secs(1);
    let found = world.live.look(later).added;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0].object.as_ref().map(ObjectKey::namespace),
        Some("b")
    );
    assert!(found[0].remedy.contains("proxy a/b/p2"), "{found:?}");
    let report = world.live.report_of(&ingress(1));
    assert_eq!((report.live, report.proxies_total), (2, 2));
}

#[test]
fn as_many_refusals_as_a_proxy_may_count_are_no_overflow() {
    let world = World::new();
    world.connect(1);
    for _ in 0..2 {
        world.live.refused(1, Vec::new(), u64::MAX);
    }
    world.refuse(1, 0);
    assert_eq!(world.live.report().proxies[0].refused, u64::MAX);
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
        let moved = || world.live.lock().gateways.reached.values().sum::<usize>();
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
