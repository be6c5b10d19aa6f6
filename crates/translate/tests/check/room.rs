//! Findings about a namespace have a bound, and statuses count for what they take: little that is
//! written makes little to keep.

use std::cell::Cell;

use myriad_api::{Change, Finding};
use myriad_translate::{Bounds, Engine, Settings, Work};

use crate::properties::{run_any, survivors};
use crate::{universe, world};

/// An engine in which findings about a namespace may count for so many KiB.
fn engine(kib: u64, settings: Settings) -> Engine {
    world::engine(Settings {
        bounds: Bounds {
            finding_bytes: kib << 10,
            ..Bounds::default()
        },
        ..settings
    })
}

fn findings(engine: &Engine) -> Vec<Finding> {
    engine.findings().cloned().collect()
}

fn told(engine: &Engine, text: &str) -> usize {
    let findings = engine.findings().map(ToString::to_string);
    findings.filter(|it| it.contains(text)).count()
}

#[test]
fn what_is_told_is_the_same_from_scratch_and_in_any_order() {
    let left_out = Cell::new(0);
    run_any(universe::history(), |batches| {
        let new_engine = || {
            let settings = universe::settings();
            let late_claims = true;
            engine(
                3,
                Settings {
                    late_claims,
                    ..settings
                },
            )
        };
        let (mut incremental, mut now) = (new_engine(), world::NOW);
        for (passed, changes) in &batches {
            now += passed;
            incremental.apply(changes.clone(), now);
        }
        left_out.set(left_out.get() + told(&incremental, LEFT_OUT));
        let objects = survivors(&batches).into_iter().map(Change::Put);
        let objects: Vec<Change> = objects.collect();
        for order in [objects.clone(), objects.into_iter().rev().collect()] {
            let mut fresh = new_engine();
            fresh.learn(incremental.late_claims());
            fresh.apply(order, now);
            proptest::prop_assert_eq!(findings(&incremental), findings(&fresh));
            proptest::prop_assert_eq!(incremental.usage(), fresh.usage());
        }
        Ok(())
    });
    assert!(left_out.get() > 0, "there is room for all");
}

/// The finding of a namespace about which more is found than is told.
const LEFT_OUT: &str = "has findings that are not told";

/// The finding about a Gateway that is not there.
const MISSING: &str = "which is not there or not for this workload";

/// VirtualServices of a namespace that name 64 Gateways each which are not there.
fn astray(namespace: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    let gateways: Vec<String> = (0..64).map(|at| format!("a{at}")).collect();
    let gateways = gateways.join(", ");
    let one = |number: usize| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: \
             {namespace}, name: v{number:03}}}\nspec: {{hosts: [x], gateways: [{gateways}]}}\n"
        )
    };
    numbers.map(one).collect()
}

fn removal(number: usize) -> Vec<Change> {
    world::changes(&format!("remove VirtualService shop/v{number:03}\n"))
}

#[test]
fn of_many_findings_about_a_namespace_those_are_told_that_there_is_room_for() {
    // Each counts for 1 KiB.
    let new_engine = || engine(3 * 64, Settings::default());
    let mut incremental = new_engine();
    let mut objects = astray("blog", 0..1);
    objects.extend(astray("shop", 0..10));
    // Whatever order they come in.
    for object in objects.iter().rev() {
        incremental.apply(world::changes(object), world::NOW);
    }
    let of_shop = "VirtualService shop/v00";
    assert_eq!(told(&incremental, MISSING), 4 * 64);
    assert_eq!(told(&incremental, of_shop), 3 * 64);
    assert_eq!(told(&incremental, "VirtualService shop/v002"), 64);
    let of_namespace = format!("Namespace shop: {LEFT_OUT}");
    assert_eq!(told(&incremental, &of_namespace), 1);
    assert_eq!(told(&incremental, LEFT_OUT), 1);
    // In one batch, what one leaves is there for the next.
    incremental.apply(removal(0), world::NOW);
    let mut fresh = new_engine();
    fresh.apply(world::changes(&objects.join("---\n")), world::NOW);
    fresh.apply(removal(0), world::NOW);
    assert_eq!(findings(&incremental), findings(&fresh));
    assert_eq!(told(&incremental, "VirtualService shop/v003"), 64);
    // Between others it runs once it is the turn of its namespace.
    for change in removal(1) {
        incremental.take_in(change, world::NOW);
    }
    incremental.apply_taken_in(world::NOW);
    assert_eq!(told(&incremental, of_shop), 2 * 64);
    assert_eq!(incremental.postponed().collect::<Vec<_>>(), ["shop"]);
    while incremental.has_postponed() {
        let ran = incremental.work_off(world::NOW, &mut || true, &|_| true);
        assert!(ran.is_some_and(|(namespace, _)| *namespace == *"shop"));
    }
    assert_eq!(told(&incremental, "VirtualService shop/v004"), 64);
    assert_eq!(told(&incremental, of_shop), 3 * 64);
    // Once there is room for all, that is said no more.
    for number in 2..7 {
        assert_eq!(told(&incremental, LEFT_OUT), 1, "{number}");
        incremental.apply(removal(number), world::NOW);
    }
    assert_eq!(told(&incremental, LEFT_OUT), 0);
    assert_eq!(told(&incremental, of_shop), 3 * 64);
    for number in 7..10 {
        incremental.apply(removal(number), world::NOW);
    }
    assert_eq!(findings(&incremental).len(), 64);
}

#[test]
fn a_change_where_there_is_no_room_costs_what_it_moves() {
    let work = |count: usize| -> [Work; 2] {
        let mut engine = engine(3 * 64, Settings::default());
        let objects = astray("shop", 1..count);
        engine.apply(world::changes(&objects.join("---\n")), world::NOW);
        let first = astray("shop", 0..1).remove(0);
        let came = engine.apply(world::changes(&first), world::NOW);
        assert_eq!(came.findings.added.len(), 64);
        assert_eq!(came.findings.removed.len(), 64);
        let went = engine.apply(removal(0), world::NOW);
        assert_eq!(went.findings.added.len(), 64);
        [came.work, went.work]
    };
    assert_eq!(work(10), work(200));
}

#[test]
fn by_default_findings_take_an_eighth_of_what_objects_may() {
    let bounds = Bounds::of_tenants();
    assert_eq!(bounds.finding_bytes * 8, bounds.object_bytes);
    // Without a bound all are told.
    let mut engine = engine(0, Settings::default());
    let objects = astray("shop", 0..10);
    engine.apply(world::changes(&objects.join("---\n")), world::NOW);
    assert_eq!(findings(&engine).len(), 10 * 64);
}

/// Whether an object takes more than so many KiB of memory.
fn is_beyond(object_kib: u64, object: &str) -> bool {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            object_bytes: object_kib << 10,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    engine.apply(world::changes(object), world::NOW);
    told(&engine, "raise --bound object-bytes") == 1
}

/// An object of Gateway API.
fn of_api(kind: &str, spec: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{namespace: shop, \
         name: it}}\nspec: {{{spec}}}\n"
    )
}

#[test]
fn objects_count_for_what_their_statuses_take() {
    let list = |count: usize, text: &dyn Fn(usize) -> String| {
        (0..count).map(text).collect::<Vec<_>>().join(", ")
    };
    let gateway = |listeners: usize| {
        let listeners = list(listeners, &|at| {
            format!("{{name: l{at}, port: 80, protocol: HTTP, hostname: h{at}.example}}")
        });
        of_api(
            "Gateway",
            &format!("gatewayClassName: ours, listeners: [{listeners}]"),
        )
    };
    assert_eq!(
        [20, 64].map(|it| is_beyond(64, &gateway(it))),
        [false, true]
    );
    let set = |listeners: usize| {
        let spec = gateway(listeners).replace("kind: Gateway\n", "kind: ListenerSet\n");
        spec.replace("gatewayClassName: ours", "parentRef: {name: edge}")
    };
    assert_eq!([20, 64].map(|it| is_beyond(64, &set(it))), [false, true]);
    let route = |parents: usize| {
        let parents = list(parents, &|at| format!("{{name: e, sectionName: s{at}}}"));
        let spec = format!("parentRefs: [{parents}], hostnames: [a.example]");
        of_api("HTTPRoute", &spec)
    };
    assert_eq!([4, 32].map(|it| is_beyond(16, &route(it))), [false, true]);
    let policy = "targetRefs: [{group: '', kind: Service, name: web}], validation: {hostname: \
                  a.internal, wellKnownCACertificates: System}";
    let policy = of_api("BackendTLSPolicy", policy);
    assert_eq!([10, 8].map(|it| is_beyond(it, &policy)), [false, true]);
}
