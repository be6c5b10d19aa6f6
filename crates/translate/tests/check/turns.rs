//! A Service of very many ports changes in one view of sidecars after the other: single changes go
//! between, and all ends as if it had been done at once.

use std::collections::BTreeMap;

use myriad_api::{Change, ObjectKey, ObjectKind};
use myriad_model::Kind;
use myriad_translate::{Engine, Outcome, Settings};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::properties::run_any;
use crate::views::digests;
use crate::world;

/// Ports of the Service, each of which is a route in every view.
const PORTS: u64 = 400;

/// Sidecars, half of each of two namespaces. With so many ports they are more than change at once.
const VIEWS: usize = 60;

fn large(address: &str) -> Change {
    let ports = (0..PORTS).map(|it| format!("{{name: http-{it}, port: {}}}", 1_000 + it));
    Change::Put(world::object(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: large}}\nspec: \
         {{clusterIP: {address}, ports: [{}]}}\n",
        ports.collect::<Vec<_>>().join(", ")
    )))
}

fn small(number: usize) -> Change {
    Change::Put(world::object(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: other, name: s{number}}}\nspec: \
         {{clusterIP: 10.9.0.{number}, ports: [{{name: http, port: 80}}]}}\n"
    )))
}

fn gone() -> Change {
    Change::Remove(ObjectKey::new(ObjectKind::Service, "shop", "large"))
}

fn put_view(engine: &mut Engine, number: usize) {
    let namespace = ["a", "b"][number % 2];
    let view = format!("v{number} {namespace} app=a{number} sidecar");
    engine.put_view(world::view(&view)).unwrap();
}

/// An engine with all sidecars, and these objects.
fn fleet(objects: Vec<Change>) -> Engine {
    fleet_with(Settings::default(), objects)
}

/// The same with some settings.
fn fleet_with(settings: Settings, objects: Vec<Change>) -> Engine {
    let mut engine = world::engine(Settings {
        sidecars: true,
        ..settings
    });
    engine.apply(objects, world::NOW);
    for number in 0..VIEWS {
        put_view(&mut engine, number);
    }
    engine.apply(Vec::new(), world::NOW);
    engine
}

/// Applies changes as whoever runs batches one after the other does.
fn apply_taken_in(engine: &mut Engine, changes: Vec<Change>) -> Outcome {
    for change in changes {
        engine.take_in(change, world::NOW);
    }
    engine.apply_taken_in(world::NOW)
}

/// A part of what runs later, without time for more than one view.
fn least(engine: &mut Engine) -> Outcome {
    let ran = engine.work_off(world::NOW, &mut || false, &|_| true);
    let (namespace, outcome) = ran.expect("there is some");
    assert_eq!(&*namespace, "shop", "whose Service it is");
    assert!(engine.has_visited());
    outcome
}

fn finish(engine: &mut Engine) -> usize {
    let mut parts = 0;
    while engine.has_postponed() {
        least(engine);
        parts += 1;
    }
    parts
}

fn assert_same(engine: &Engine, whole: &Engine) {
    assert_eq!(digests(engine), digests(whole));
    assert_eq!(engine.usage(), whole.usage());
}

#[test]
fn a_single_change_goes_between_the_views_of_a_large_service_that_is_edited() {
    let mut engine = fleet(vec![large("10.0.0.1")]);
    let outcome = apply_taken_in(&mut engine, vec![large("10.0.0.2")]);
    assert_eq!(outcome.others.len(), 1, "the first view alone");
    // A route of each port is another, and its listener is where the new address is.
    let each = outcome.work.resources_changed;
    assert!((PORTS..=3 * PORTS).contains(&each), "{each}");
    let translated = outcome.work.units_translated;
    assert!(
        translated <= 4 * PORTS,
        "once for all views, not {translated}"
    );
    for number in 0..3 {
        let part = least(&mut engine);
        assert_eq!((part.others.len(), part.work.units_translated), (1, 0));
        assert_eq!(part.work.resources_changed, each);
        let single = apply_taken_in(&mut engine, vec![small(number)]);
        assert!(single.work.units_translated <= 6, "{:?}", single.work);
        assert_eq!(
            single.others.len(),
            VIEWS,
            "whether they have followed or not"
        );
    }
    assert_eq!(finish(&mut engine), VIEWS - 4);
    let mut whole = fleet(vec![large("10.0.0.1")]);
    whole.apply(vec![large("10.0.0.2")], world::NOW);
    for number in 0..3 {
        whole.apply(vec![small(number)], world::NOW);
    }
    assert_same(&engine, &whole);
}

/// How many routes a view has of the large Service.
fn routes(engine: &Engine, number: usize) -> u64 {
    let snapshot = engine.snapshot_of(&format!("v{number}")).unwrap();
    let routes = snapshot.iter().filter(|it| it.key().kind == Kind::Route);
    let own = routes.filter(|it| &*it.resource().unwrap().origin.id == "shop/large");
    own.count() as u64
}

#[test]
fn a_large_service_comes_and_goes_in_one_view_after_the_other() {
    let mut engine = fleet(Vec::new());
    let has_routes = |engine: &Engine, number| match routes(engine, number) {
        0 => false,
        count => {
            assert_eq!(count, PORTS, "all or none");
            true
        }
    };
    let outcome = apply_taken_in(&mut engine, vec![large("10.0.0.1")]);
    assert_eq!(outcome.others.len(), 1);
    assert!(has_routes(&engine, 0) && !has_routes(&engine, 1));
    // The first of the other namespace may be another to some units.
    least(&mut engine);
    for _ in 0..10 {
        let part = least(&mut engine);
        assert_eq!((part.others.len(), part.work.units_translated), (1, 0));
    }
    assert!(has_routes(&engine, 11) && !has_routes(&engine, 12));
    finish(&mut engine);
    assert_same(&engine, &fleet(vec![large("10.0.0.1")]));
    apply_taken_in(&mut engine, vec![gone()]);
    for _ in 0..10 {
        assert_eq!(least(&mut engine).others.len(), 1);
    }
    assert!(has_routes(&engine, 10) && !has_routes(&engine, 9));
    // It comes back before it is gone, and goes again.
    apply_taken_in(&mut engine, vec![large("10.0.0.3")]);
    for _ in 0..20 {
        least(&mut engine);
    }
    apply_taken_in(&mut engine, vec![gone()]);
    finish(&mut engine);
    assert_same(&engine, &fleet(Vec::new()));
}

#[test]
fn whatever_happens_to_views_meanwhile_they_end_with_what_is_newest() {
    let mut engine = fleet(vec![large("10.0.0.1")]);
    let mut whole = fleet(vec![large("10.0.0.1")]);
    apply_taken_in(&mut engine, vec![large("10.0.0.2")]);
    for _ in 0..5 {
        least(&mut engine);
    }
    let hidden = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {namespace: b, \
                  name: default}\nspec: {egress: [{hosts: [./*]}]}\n";
    let hidden = || vec![Change::Put(world::object(hidden))];
    apply_taken_in(&mut engine, hidden());
    apply_taken_in(&mut engine, vec![large("10.0.0.3")]);
    for engine in [&mut engine, &mut whole] {
        // One that has not followed, one that has, and two that come.
        for gone in [0, 50] {
            assert!(engine.remove_view(&format!("v{gone}")));
        }
        put_view(engine, VIEWS);
        put_view(engine, VIEWS + 2);
    }
    engine.apply_taken_in(world::NOW);
    let mut parts = 0;
    while engine.has_postponed() {
        let ran = engine.work_off(world::NOW, &mut || false, &|_| true);
        parts += 1;
        assert!(ran.is_some() && parts < 10_000, "it ends");
    }
    assert!(engine.is_whole(&format!("v{VIEWS}")));
    for changes in [vec![large("10.0.0.3")], hidden()] {
        whole.apply(changes, world::NOW);
    }
    assert_same(&engine, &whole);
}

#[test]
fn whoever_owes_something_waits_with_what_views_follow() {
    let mut engine = fleet(vec![large("10.0.0.1")]);
    apply_taken_in(&mut engine, vec![large("10.0.0.2")]);
    let may_run = |namespace: &str| namespace != "shop";
    let ran = engine.work_off(world::NOW, &mut || true, &may_run);
    assert!(ran.is_none() && engine.has_postponed());
    assert_eq!(engine.postponed().collect::<Vec<_>>(), ["shop"]);
    // Whoever comes has what all have, and waits for nobody's debts.
    put_view(&mut engine, VIEWS);
    let name = format!("v{VIEWS}");
    let mut parts = 0;
    while !engine.is_whole(&name) {
        let ran = engine.work_off(world::NOW, &mut || false, &may_run);
        assert_eq!(&*ran.expect("a part").0, "", "nobody is charged");
        parts += 1;
    }
    assert!(parts > 0 && engine.has_postponed());
    let first = engine.snapshot_of("v0").unwrap().len();
    assert_eq!(engine.snapshot_of(&name).unwrap().len(), first);
}

#[test]
fn a_service_that_comes_back_before_the_last_view_lost_it_stays() {
    let mut engine = fleet(vec![large("10.0.0.1")]);
    apply_taken_in(&mut engine, vec![gone()]);
    for _ in 1..VIEWS {
        least(&mut engine);
    }
    let having = (0..VIEWS).filter(|number| routes(&engine, *number) > 0);
    assert_eq!(having.count(), 1);
    engine.take_in(large("10.0.0.1"), world::NOW);
    least(&mut engine);
    engine.apply_taken_in(world::NOW);
    finish(&mut engine);
    assert_same(&engine, &fleet(vec![large("10.0.0.1")]));
}

#[test]
fn a_service_that_is_large_for_others_than_the_first_view_comes_to_one_after_the_other() {
    let rules = (0..PORTS).map(|it| {
        format!(
            "  - match: [{{uri: {{prefix: /{it}}}, sourceNamespace: b}}]\n    route: \
             [{{destination: {{host: web}}}}]\n"
        )
    });
    let objects = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: web}}\nspec: \
         {{clusterIP: 10.0.0.1, ports: [{{name: http, port: 80}}]}}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: shop, \
         name: web}}\nspec:\n  hosts: [web.shop.svc.cluster.local]\n  http:\n{}",
        rules.collect::<String>()
    );
    let settings = || Settings {
        resources_at_once: VIEWS,
        ..Settings::default()
    };
    let mut engine = fleet_with(settings(), Vec::new());
    let outcome = apply_taken_in(&mut engine, world::changes(&objects));
    let changed: Vec<&str> = outcome.others.iter().map(|(name, _)| &**name).collect();
    assert_eq!(changed, ["v1"], "the first of namespace b");
    finish(&mut engine);
    let mut whole = fleet_with(settings(), Vec::new());
    whole.apply(world::changes(&objects), world::NOW);
    assert_same(&engine, &whole);
}

#[test]
fn nobody_is_charged_for_listeners_that_objects_of_many_share() {
    const WIDE: usize = VIEWS + 256;
    let service = "apiVersion: v1\nkind: Service\nmetadata: {namespace: istio-system, name: web}\n\
                   spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}\n";
    let entry = |name: &str, to: &str, ports: &[u16]| {
        let port = |it: &u16| format!("{{number: {it}, name: p{it}, protocol: TCP}}");
        let ports: Vec<String> = ports.iter().map(port).collect();
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{namespace: \
             istio-system, name: {name}}}\nspec: {{hosts: [{name}.example], exportTo: [{to}], \
             ports: [{}], resolution: DNS}}\n",
            ports.join(", ")
        )
    };
    // The one route of the first comes to all views of a namespace at once, and so does what is
    // spoken on the listener that they share with the Service; the views of the other namespace are
    // asked one after the other. The second has routes in all of them.
    let entries = [entry("raw", "a", &[80]), entry("more", "'*'", &[90, 91])].join("---\n");
    let settings = || Settings {
        // One in each view of a namespace, and not two.
        resources_at_once: WIDE / 2,
        ..Settings::default()
    };
    // So many that none of them parts from the others at once.
    let wide_fleet = || {
        let mut engine = fleet_with(settings(), world::changes(service));
        for number in VIEWS..WIDE {
            put_view(&mut engine, number);
        }
        engine.apply(Vec::new(), world::NOW);
        engine
    };
    let mut engine = wide_fleet();
    apply_taken_in(&mut engine, world::changes(&entries));
    assert!(engine.has_postponed(), "what the port speaks is another");
    // The names of their resources are no names of namespaces.
    let may_run = |namespace: &str| namespace != "elsewhere";
    let mut charged = BTreeMap::new();
    while engine.has_postponed() {
        let ran = engine.work_off(world::NOW, &mut || false, &may_run);
        *charged
            .entry(ran.expect("a part").0.to_string())
            .or_insert(0) += 1;
    }
    let each = [("", WIDE / 2), ("istio-system", WIDE - 1)];
    let each = each.map(|(owner, parts)| (owner.to_owned(), parts));
    assert_eq!(charged, BTreeMap::from(each));
    let mut whole = wide_fleet();
    whole.apply(world::changes(&entries), world::NOW);
    assert_same(&engine, &whole);
}

/// A thing that may happen to a small fleet.
#[derive(Clone, Debug)]
enum Event {
    /// An object changes, and is applied at once or with the next one.
    Object(String, bool),
    /// A view comes, or is there already.
    Came(usize),
    /// A view goes.
    Gone(usize),
    /// A part of what runs later, with so much time.
    Part(usize),
}

/// Views of the small fleet, half of each of two namespaces.
const FEW: usize = 5;

/// The ports of Services.
const SPOKEN: [&str; 3] = [
    "{name: http, port: 80}",
    "{name: tcp, port: 80}",
    "{name: http, port: 81}",
];

/// The callers of a rule, or its paths.
const MATCHES: [&str; 3] = [
    "sourceNamespace: b",
    "uri: {prefix: /x}",
    "sourceLabels: {app: a1}",
];

const REMOVALS: [&str; 8] = [
    "Service shop/a",
    "Service shop/b",
    "Service a/a",
    "Sidecar a/default",
    "Sidecar b/default",
    "Sidecar istio-system/default",
    "VirtualService shop/a",
    "ServiceEntry a/x",
];

fn service_text() -> impl Strategy<Value = String> {
    let ports = vec(select(&SPOKEN[..]), 0..3);
    let whose = select(&["shop a", "shop b", "a a", "istio-system a"][..]);
    let to = select(&["*", "a", "."][..]);
    (whose, ports, to, 1..3_u8).prop_map(|(whose, mut ports, to, address)| {
        ports.dedup();
        let ports = ports.join(", ");
        let (namespace, name) = whose.split_once(' ').expect("two words");
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {namespace}, name: {name}, \
             annotations: {{networking.istio.io/exportTo: \"{to}\"}}}}\nspec: {{clusterIP: \
             10.0.0.{address}, ports: [{ports}]}}\n"
        )
    })
}

fn istio(kind: &str, (namespace, name): (&str, &str), spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{namespace: {namespace}, \
         name: {name}}}\nspec: {{{spec}}}\n"
    )
}

fn istio_text() -> impl Strategy<Value = String> {
    let whose = select(&["a", "b", "istio-system"][..]);
    let hosts = select(&["./*", "'*/*'", "./*, shop/*", "istio-system/*"][..]);
    let policies = select(&["", ", outboundTrafficPolicy: {mode: REGISTRY_ONLY}"][..]);
    let sidecar = (whose, hosts, policies).prop_map(|(namespace, hosts, policy)| {
        let spec = format!("egress: [{{hosts: [{hosts}]}}]{policy}");
        istio("Sidecar", (namespace, "default"), &spec)
    });
    let routes = vec(select(&MATCHES[..]), 0..3).prop_map(|matches| {
        let rule = |it| format!("{{match: [{{{it}}}], route: [{{destination: {{host: a}}}}]}}");
        let rules: Vec<String> = matches.into_iter().map(rule).collect();
        let rules = rules.join(", ");
        let spec = format!("hosts: [a.shop.svc.cluster.local], http: [{rules}]");
        istio("VirtualService", ("shop", "a"), &spec)
    });
    let protocols = select(&["TCP", "HTTP", "TLS"][..]);
    let entry = (protocols, 80..82_u16).prop_map(|(protocol, port)| {
        let spec = format!(
            "hosts: [x.example], ports: [{{number: {port}, name: x, protocol: {protocol}}}], \
             resolution: DNS"
        );
        istio("ServiceEntry", ("a", "x"), &spec)
    });
    let removed = select(&REMOVALS[..]).prop_map(|key| format!("remove {key}\n"));
    prop_oneof![2 => sidecar, 1 => routes, 2 => entry, 4 => removed]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let object = (prop_oneof![service_text(), istio_text()], any::<bool>());
    let event = prop_oneof![
        4 => object.prop_map(|(text, is_applied)| Event::Object(text, is_applied)),
        1 => (0..FEW).prop_map(Event::Came),
        1 => (0..FEW).prop_map(Event::Gone),
        4 => (0..4_usize).prop_map(Event::Part),
    ];
    vec(event, 1..40)
}

#[test]
fn whatever_happens_between_views_that_follow_they_end_as_if_all_had_at_once() {
    run_any(events(), |events| {
        let few = |resources_at_once| {
            let mut engine = world::engine(Settings {
                sidecars: true,
                resources_at_once,
                ..Settings::default()
            });
            (0..FEW).for_each(|number| put_view(&mut engine, number));
            engine.apply(Vec::new(), world::NOW);
            engine
        };
        let (mut cut, mut whole) = (few(1), few(usize::MAX));
        for event in events {
            match event {
                Event::Object(text, is_applied) => {
                    for change in world::changes(&text) {
                        cut.take_in(change, world::NOW);
                    }
                    if is_applied {
                        cut.apply_taken_in(world::NOW);
                    }
                    whole.apply(world::changes(&text), world::NOW);
                }
                Event::Came(number) => {
                    put_view(&mut cut, number);
                    put_view(&mut whole, number);
                }
                Event::Gone(number) => {
                    let name = format!("v{number}");
                    prop_assert_eq!(cut.remove_view(&name), whole.remove_view(&name));
                }
                Event::Part(mut time) => {
                    let mut has_time = || {
                        time = time.saturating_sub(1);
                        time > 0
                    };
                    cut.work_off(world::NOW, &mut has_time, &|_| true);
                }
            }
        }
        whole.apply(Vec::new(), world::NOW);
        cut.apply_taken_in(world::NOW);
        let mut parts = 0;
        while cut.has_postponed() {
            cut.work_off(world::NOW, &mut || false, &|_| true);
            parts += 1;
            prop_assert!(parts < 10_000, "it ends");
        }
        prop_assert_eq!(digests(&cut), digests(&whole));
        prop_assert_eq!(cut.usage(), whole.usage());
        let [cut, whole] = [&cut, &whole].map(|it| it.findings().cloned().collect::<Vec<_>>());
        prop_assert_eq!(cut, whole);
        Ok(())
    });
}
