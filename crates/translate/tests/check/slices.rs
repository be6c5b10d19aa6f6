//! Upstreams of many endpoints: one that changes rereads its EndpointSlice, and what slices, Pods
//! and rules become leaves what a fresh engine has.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use myriad_api::{
    Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Finding, Meta, Object, ObjectKey,
    ObjectKind, Pod,
};
use myriad_model::{Form, Kind, Sealer, Writer};
use myriad_translate::{Engine, Outcome, Settings};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::world;

/// The most bytes that one change may send.
const BYTES_MAX: usize = 8 << 10;

/// The endpoints of a slice, as Kubernetes cuts them.
const SLICE: u16 = 100;

/// The Pods that endpoints of the histories are of.
const PODS: u16 = 16;

/// The conditions of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Leaving,
    Gone,
}

/// A host that leads to the Service, by these routes.
fn scene(routes: &str) -> Vec<Change> {
    world::changes(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: many}}\nspec: {{ports: \
         [{{name: http, port: 80}}]}}\n---\napiVersion: networking.istio.io/v1\nkind: \
         Gateway\nmetadata: {{namespace: shop, name: edge}}\nspec: {{servers: [{{port: {{number: \
         80, name: http, protocol: HTTP}}, hosts: [a.example]}}]}}\n---\napiVersion: \
         networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: shop, name: \
         web}}\nspec: {{hosts: [a.example], gateways: [edge], http: [{routes}]}}\n"
    ))
}

/// The one route of the counted tests.
const ROUTE: &str = "{route: [{destination: {host: many}}]}";

fn address(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 1, high, low).into()
}

/// A slice of the endpoints with these numbers; each is of the Pod that `pod` says, and in a zone
/// that follows from its number.
fn slice(
    name: usize,
    endpoints: impl Iterator<Item = (u16, State)>,
    pod: impl Fn(u16) -> u16,
) -> Object {
    let endpoint = |(number, state): (u16, State)| Endpoint {
        address: Some(address(number)),
        pod: Some(format!("p{}", pod(number)).into()),
        zone: (number % 4 != 0).then(|| format!("z{}", number % 3).into()),
        conditions: Conditions {
            ready: state == State::Ready,
            serving: state != State::Gone,
            terminating: state != State::Ready,
        },
    };
    let key = ObjectKey::new(ObjectKind::EndpointSlice, "shop", &format!("many-{name}"));
    Object::EndpointSlice(Arc::new(EndpointSlice {
        meta: Meta::new(key),
        service: Some("many".into()),
        endpoints: endpoints.map(endpoint).collect(),
        ports: [EndpointPort {
            name: "http".into(),
            port: Some(9000),
            protocol: None,
        }]
        .into(),
    }))
}

fn pod(number: u16, labels: &[(&str, &str)]) -> Object {
    let key = ObjectKey::new(ObjectKind::Pod, "shop", &format!("p{number}"));
    let labels = labels.iter();
    let labels = labels.map(|(name, value)| (Box::from(*name), Box::from(*value)));
    Object::Pod(Arc::new(Pod {
        meta: Meta::new(key),
        uid: None,
        labels: labels.collect(),
        address: None,
        account: Some("shop".into()),
        owner: None,
        is_ready: true,
    }))
}

/// The slice at a place where all endpoints are ready, but for one that may be another.
fn ready(at: u16, changed: Option<(u16, u16)>) -> Object {
    let numbers = (at * SLICE..(at + 1) * SLICE).map(|number| match changed {
        Some((old, new)) if old == number => new,
        _ => number,
    });
    let endpoints = numbers.map(|number| (number, State::Ready));
    slice(usize::from(at), endpoints, |number| number)
}

fn put(engine: &mut Engine, object: Object) -> Outcome {
    engine.apply(vec![Change::Put(object)], world::NOW)
}

/// The bytes of the resources that an outcome sends, and those bytes with names.
fn sent(outcome: &Outcome) -> (usize, usize) {
    let changes = outcome.delta.changes().iter();
    let sizes = changes.map(|change| {
        let value = change.new.as_ref().map_or(0, |new| new.bytes_encoded());
        (value, value + change.key.name.len())
    });
    sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
}

#[test]
fn one_of_five_thousand_endpoints_that_changes_rereads_one_slice() {
    for form in [Form::Value, Form::Encoded] {
        let writer = Writer::new(Sealer::new([7; 32], form));
        let mut engine = Engine::new(Settings::default(), writer);
        let mut objects = scene(ROUTE);
        objects.extend((0..50).map(|at| Change::Put(ready(at, None))));
        engine.apply(objects, world::NOW);
        // As they were read, and as they are sent.
        assert_eq!(engine.usage().remembered, 2 * 5_000);
        for (at, old, new) in [(25, 2_500, 7_000), (49, 4_999, 7_001), (0, 0, 7_002)] {
            let outcome = put(&mut engine, ready(at, Some((old, new))));
            let work = outcome.work;
            assert_eq!(work.units_translated, 1, "the upstream");
            assert_eq!(work.objects_visited, 2, "the Service and the slice");
            let (bytes, with_names) = sent(&outcome);
            let mut all = engine.snapshot().iter();
            let upstream = all.find(|sealed| sealed.key().kind == Kind::Upstream);
            let upstream = upstream.map_or(0, |it| it.bytes_encoded());
            assert_eq!(work.bytes_encoded, (bytes + upstream) as u64, "{form:?}");
            assert!(with_names <= BYTES_MAX, "{with_names} bytes");
            let kinds = outcome.delta.changes().iter().map(|it| it.key.kind);
            assert!(kinds.clone().all(|kind| kind == Kind::Endpoints));
            assert_eq!(work.resources_changed, kinds.count() as u64);
            assert_eq!(engine.usage().remembered, 2 * 5_000);
        }
        let route = ObjectKey::new(ObjectKind::VirtualService, "shop", "web");
        engine.apply(vec![Change::Remove(route)], world::NOW);
        assert_eq!(engine.usage().remembered, 0);
    }
}

#[test]
fn a_pod_whose_labels_change_rereads_its_slice_alone() {
    let settings = || Settings {
        sidecars: true,
        ..Settings::default()
    };
    let mesh = [("security.istio.io/tlsMode", "istio")];
    let mut objects = scene(ROUTE);
    objects.extend((0..3).map(|at| Change::Put(ready(at, None))));
    objects.extend((0..3 * SLICE).map(|number| Change::Put(pod(number, &mesh[..0]))));
    let mut engine = world::engine(settings());
    engine.apply(objects.clone(), world::NOW);
    let changed = pod(150, &mesh);
    let outcome = put(&mut engine, changed.clone());
    let work = outcome.work;
    assert_eq!(work.units_translated, 1, "the upstream");
    assert_eq!(
        work.objects_visited, 102,
        "the Service, the slice and its Pods"
    );
    assert!(!outcome.delta.is_empty());
    objects.push(Change::Put(changed));
    let mut fresh = world::engine(settings());
    fresh.apply(objects, world::NOW);
    assert_eq!(engine.snapshot().digest(), fresh.snapshot().digest());
}

#[test]
fn few_endpoints_are_not_remembered() {
    let mut engine = world::engine(Settings::default());
    engine.apply(scene(ROUTE), world::NOW);
    put(&mut engine, ready(0, None));
    assert_eq!(engine.usage().remembered, 0);
    put(&mut engine, ready(1, None));
    assert_eq!(engine.usage().remembered, 2 * 200);
    let slice = ObjectKey::new(ObjectKind::EndpointSlice, "shop", "many-0");
    engine.apply(vec![Change::Remove(slice)], world::NOW);
    assert_eq!(engine.usage().remembered, 0);
}

/// One change of a history.
#[derive(Clone, Debug)]
enum Step {
    /// A slice lists so many endpoints from a number on, in states of a pattern, or goes.
    Slice(usize, Option<(u16, u16, u16)>),
    /// A Pod has a version, is of the mesh or not, or goes.
    Pod(u16, Option<(&'static str, bool)>),
    /// Endpoints are asked where they are, or are not.
    Locality(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let slice = (
        0..4_usize,
        option::weighted(0.9, (0..200_u16, 0..120_u16, 0..5_u16)),
    );
    let labels = (select(&["a", "b"][..]), any::<bool>());
    let pod = (0..PODS, option::weighted(0.9, labels));
    prop_oneof![
        6 => slice.prop_map(|(at, listed)| Step::Slice(at, listed)),
        3 => pod.prop_map(|(at, labels)| Step::Pod(at, labels)),
        1 => any::<bool>().prop_map(Step::Locality),
    ]
}

/// The state of an endpoint by the pattern of its slice.
fn state(number: u16, pattern: u16) -> State {
    match (pattern, number % 7) {
        (0 | 1, _) | (2, 0..4) => State::Ready,
        (2, 4 | 5) | (3, _) => State::Leaving,
        _ => State::Gone,
    }
}

/// A DestinationRule with ten subsets in two versions, of which the last has less room.
fn rule(is_asked: bool) -> Object {
    let subsets: Vec<String> = (0..10)
        .map(|at| {
            let version = if at % 2 == 0 { "a" } else { "b" };
            format!("{{name: s{at}, labels: {{version: {version}}}}}")
        })
        .collect();
    let policy = match is_asked {
        true => "trafficPolicy: {outlierDetection: {}}, ",
        false => "",
    };
    world::object(&format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{namespace: shop, \
         name: many}}\nspec: {{host: many, {policy}subsets: [{}]}}\n",
        subsets.join(", ")
    ))
}

fn change(step: &Step) -> Change {
    match step {
        Step::Slice(at, Some((first, count, pattern))) => {
            let endpoints = (*first..first + count).map(|it| (it, state(it, *pattern)));
            Change::Put(slice(*at, endpoints, |number| number % PODS))
        }
        Step::Slice(at, None) => {
            let name = format!("many-{at}");
            Change::Remove(ObjectKey::new(ObjectKind::EndpointSlice, "shop", &name))
        }
        Step::Pod(at, Some((version, is_mesh))) => {
            let labels = [
                ("version", *version),
                ("security.istio.io/tlsMode", "istio"),
            ];
            let count = if *is_mesh { 2 } else { 1 };
            Change::Put(pod(*at, &labels[..count]))
        }
        Step::Pod(at, None) => {
            let name = format!("p{at}");
            Change::Remove(ObjectKey::new(ObjectKind::Pod, "shop", &name))
        }
        Step::Locality(is_asked) => Change::Put(rule(*is_asked)),
    }
}

/// A gateway, a gateway elsewhere and a sidecar, in a mesh where subsets have little room.
fn settings() -> Settings {
    let mut settings = Settings {
        sidecars: true,
        views: ["far blog app=far", "beside shop app=a sidecar"]
            .map(world::view)
            .into(),
        ..Settings::default()
    };
    settings.bounds.subset_endpoints = 300;
    settings
}

const ROUTES: &str = "{match: [{uri: {prefix: /a}}], route: [{destination: {host: many, subset: \
                      s0, port: {number: 80}}}]}, {match: [{uri: {prefix: /b}}], route: \
                      [{destination: {host: many, subset: s9, port: {number: 80}}}]}, {route: \
                      [{destination: {host: many, port: {number: 80}}}]}";

fn digests(engine: &Engine) -> BTreeMap<String, String> {
    let views = engine.views();
    let digests = views.map(|(view, it)| (view.name.to_string(), it.digest().to_string()));
    digests.collect()
}

fn first() -> Vec<Change> {
    let mut first = scene(ROUTES);
    first.push(change(&Step::Locality(false)));
    first.extend((0..PODS).map(|at| change(&Step::Pod(at, Some(("b", at % 2 == 0))))));
    let slice = |at: usize| Step::Slice(at, Some((at as u16 * 90, 100, 0)));
    first.extend((0..3).map(|at| change(&slice(at))));
    first
}

#[test]
fn what_is_remembered_of_slices_leaves_what_a_fresh_engine_has() {
    let config = Config {
        cases: 48,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&vec(vec(step(), 1..3), 1..10), |batches| {
        let mut incremental = world::engine(settings());
        incremental.apply(first(), world::NOW);
        let mut objects: BTreeMap<ObjectKey, Change> = BTreeMap::new();
        for change in first() {
            objects.insert(change.key().clone(), change);
        }
        for batch in batches {
            for step in &batch {
                let change = change(step);
                objects.insert(change.key().clone(), change);
            }
            incremental.apply(batch.iter().map(change).collect(), world::NOW);
        }
        let mut fresh = world::engine(settings());
        fresh.apply(objects.into_values().collect(), world::NOW);
        prop_assert_eq!(digests(&incremental), digests(&fresh));
        let [one, other] = [&incremental, &fresh]
            .map(|engine| engine.findings().cloned().collect::<Vec<Finding>>());
        prop_assert_eq!(one, other);
        let [one, other] = [&incremental, &fresh].map(|engine| engine.usage().remembered);
        prop_assert_eq!(one, other);
        Ok(())
    });
    outcome.unwrap();
}
