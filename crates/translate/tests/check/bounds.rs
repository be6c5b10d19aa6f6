//! Bounds of namespaces: what stays does not depend on the order in which objects came, and a
//! change costs what it moves.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{Change, Object, ObjectKey, ObjectKind};
use myriad_model::Endpoints;
use myriad_translate::{Bounds, Engine, Settings, Work};
use proptest::prelude::*;

use crate::goldens::BASE;
use crate::properties::{Batches, run_any, survivors};
use crate::{universe, world};

/// An engine in which the small universe has more than each namespace may hold.
fn engine() -> Engine {
    world::engine(Settings {
        late_claims: true,
        bounds: Bounds {
            routes: 4,
            endpoints: 3,
            certificates: 1,
            hash_slots: 2_048,
            object_bytes: 4_000,
            hosts: 3,
            issuers: 1,
            ..Bounds::default()
        },
        tenants: world::tenants("one *.example routes=5 regex-kib=30;two a.example hosts=2"),
        ..universe::settings()
    })
}

fn run(test: impl Fn(Batches) -> Result<(), TestCaseError>) {
    run_any(universe::history(), test);
}

/// Applies changes as a source would that puts the objects again which the engine had let go and
/// wants. Returns how many those were.
fn apply(engine: &mut Engine, changes: Vec<Change>, now: i64, there: &mut There) -> usize {
    for change in &changes {
        match change {
            Change::Put(object) => there.insert(object.key().clone(), object.clone()),
            Change::Remove(key) => there.remove(key),
        };
    }
    let mut wanted = engine.apply(changes, now).wanted;
    let mut read = 0;
    while !wanted.is_empty() {
        read += wanted.len();
        let again = wanted.iter().map(|key| there[key].clone());
        wanted = engine.apply(again.map(Change::Put).collect(), now).wanted;
    }
    read
}

/// The objects that are there.
type There = BTreeMap<ObjectKey, Object>;

fn findings(engine: &Engine) -> Vec<String> {
    engine.findings().map(ToString::to_string).collect()
}

#[test]
fn what_stays_is_the_same_from_scratch_and_in_any_order() {
    let read_again = Cell::new(0);
    run(|batches| {
        let mut incremental = engine();
        let (mut now, mut there) = (world::NOW, There::new());
        for (passed, changes) in &batches {
            now += passed;
            let read = apply(&mut incremental, changes.clone(), now, &mut there);
            read_again.set(read_again.get() + read);
        }
        let objects = survivors(&batches).into_iter().map(Change::Put);
        let objects: Vec<Change> = objects.collect();
        for order in [objects.clone(), objects.into_iter().rev().collect()] {
            let mut fresh = engine();
            fresh.learn(incremental.late_claims());
            fresh.apply(order, now);
            prop_assert_eq!(findings(&incremental), findings(&fresh));
            prop_assert_eq!(incremental.snapshot().digest(), fresh.snapshot().digest());
            prop_assert_eq!(incremental.usage(), fresh.usage());
        }
        Ok(())
    });
    assert!(read_again.get() > 0, "no history lets anything go");
}

#[test]
fn the_same_objects_again_move_nobody() {
    run(|batches| {
        let mut engine = engine();
        let mut there = There::new();
        for (_, changes) in &batches {
            apply(&mut engine, changes.clone(), world::NOW, &mut there);
        }
        let before = findings(&engine);
        let again = survivors(&batches).into_iter().map(Change::Put).collect();
        let outcome = engine.apply(again, world::NOW);
        prop_assert!(outcome.delta.is_empty() && outcome.wanted.is_empty());
        prop_assert_eq!(before, findings(&engine));
        Ok(())
    });
}

/// An Ingress with one path.
fn ingress(number: usize) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{namespace: shop, name: i{number:05}}}
spec: {{rules: [{{host: h{number:05}.example, http: {{paths: [{{path: /, pathType: Prefix, \
         backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}]}}
"
    )
}

#[test]
fn one_that_closes_a_host_is_not_told_to_be_served_before_it_is_back() {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            routes: 1,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    engine.apply(world::changes(BASE), world::NOW);
    let restricting = "name: i00001, annotations: \
                       {nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8}";
    let young = ingress(1).replace("name: i00001", restricting);
    let young = young.replace("h00001", "h00000");
    let served = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let both = [ingress(0), young.clone()].join("---\n");
    let outcome = engine.apply(world::changes(&both), world::NOW);
    assert_eq!(served(&outcome.served), ["shop/i00000"]);
    assert_eq!(beyond(&engine), 1);
    // Again the same, and nobody is told anything.
    let outcome = engine.apply(world::changes(&young), world::NOW);
    assert!(outcome.served.is_empty() && outcome.unserved.is_empty());
    assert!(outcome.delta.is_empty());
    let all: Vec<String> = engine.served().map(ToString::to_string).collect();
    assert_eq!(all, ["shop/i00000"]);
    let key = ObjectKey::new(ObjectKind::Ingress, "shop", "i00000");
    let outcome = engine.apply(vec![Change::Remove(key)], world::NOW);
    assert_eq!(served(&outcome.served), ["shop/i00001"]);
    assert_eq!(beyond(&engine), 0);
}

/// An old and a young object of a kind, each of some 30 KB.
fn large(kind: &str) -> [String; 2] {
    let list = |text: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..1_000).map(text).collect();
        all.join(", ")
    };
    let long = "x".repeat(30_000);
    let labels = list(&|at| format!("label-{at:05}: a-value-{at:05}"));
    let of_pod = match kind {
        "Pod" => format!(", labels: {{{labels}}}"),
        _ => String::new(),
    };
    let spec = match kind {
        "Ingress" => format!(
            "spec: {{rules: [{{host: h.example, http: {{paths: [{{path: /{long}, pathType: Exact, \
             backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}]}}"
        ),
        "Service" => format!("spec: {{selector: {{{labels}}}, ports: [{{port: 80}}]}}"),
        "Pod" => "spec: {serviceAccountName: default}".to_owned(),
        "EndpointSlice" => {
            let ports = list(&|at| format!("{{name: a-port-of-a-service-{at:05}, port: 80}}"));
            format!("addressType: IPv4\nendpoints: []\nports: [{ports}]")
        }
        _ => format!("data: {{main-snippet: {long}}}"),
    };
    let version = match kind {
        "Ingress" => "networking.k8s.io/v1",
        "EndpointSlice" => "discovery.k8s.io/v1",
        _ => "v1",
    };
    [("old", 2024), ("young", 2025)].map(|(name, year)| {
        format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{namespace: shop, name: {name}, \
             creationTimestamp: {year}-01-01T00:00:00Z{of_pod}}}\n{spec}\n"
        )
    })
}

#[test]
fn large_objects_of_other_kinds_count_for_their_bytes() {
    for kind in ["Ingress", "Service", "EndpointSlice", "ConfigMap", "Pod"] {
        let engine = |object_bytes: u64| {
            world::engine(Settings {
                bounds: Bounds {
                    object_bytes,
                    ..Bounds::default()
                },
                ..Settings::default()
            })
        };
        let mut bounded = engine(40_000);
        let [old, young] = large(kind);
        for object in [&young, &old] {
            bounded.apply(world::changes(object), world::NOW);
        }
        let told: Vec<String> = findings(&bounded);
        let told = told.iter().filter(|it| it.contains("object-bytes=40000"));
        let told: Vec<&String> = told.collect();
        assert_eq!((told.len(), beyond(&bounded)), (1, 1), "{kind}");
        assert!(told[0].contains(&format!("{kind} shop/young")), "{told:?}");
        let gone = world::changes(&format!("remove {kind} shop/old\n"));
        let outcome = bounded.apply(gone, world::NOW);
        let wanted: Vec<String> = outcome.wanted.iter().map(ToString::to_string).collect();
        assert_eq!(wanted, [format!("{kind} shop/young")]);
        bounded.apply(world::changes(&young), world::NOW);
        assert_eq!(beyond(&bounded), 0);
    }
    // Small ones that count towards another bound need no entry in this ledger.
    let mut least = world::engine(Settings {
        bounds: Bounds {
            object_bytes: 1,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    least.apply(world::changes(&ingress(0)), world::NOW);
    assert_eq!(beyond(&least), 0);
}

#[test]
fn labels_of_a_pod_count_for_the_copies_that_its_view_has() {
    let pod = |name: &str, labels: usize| {
        let labels: Vec<String> = (0..labels).map(|at| format!("l{at}: v")).collect();
        let labels = labels.join(", ");
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{namespace: shop, name: {name}, labels: \
             {{{labels}}}}}\nspec: {{}}\n"
        )
    };
    let told = |labels: usize| {
        let mut engine = world::engine(Settings {
            bounds: Bounds {
                object_bytes: 80_000,
                ..Bounds::default()
            },
            ..Settings::default()
        });
        engine.apply(world::changes(&pod("p", labels)), world::NOW);
        beyond(&engine)
    };
    // The labels themselves are 2 KB of these.
    assert_eq!((told(30), told(250)), (0, 1));
}

/// Services with so many labels in their selectors, of 26 bytes each, and so many ports.
fn services(count: usize, labels: usize, ports: usize) -> String {
    let list = |count: usize, text: &dyn Fn(usize) -> String| {
        (0..count).map(text).collect::<Vec<_>>().join(", ")
    };
    let labels = list(labels, &|at| format!("label-{at:05}: a-value-{at:05}"));
    let ports = list(ports, &|at| {
        format!("{{name: tcp-{at}, port: {}}}", 1_000 + at)
    });
    let one = |at: usize| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: s{at:02}}}\nspec: \
             {{clusterIP: 10.8.0.{at}, selector: {{{labels}}}, ports: [{ports}]}}\n"
        )
    };
    (1..=count).map(one).collect::<Vec<_>>().join("---\n")
}

#[test]
fn objects_of_a_few_kib_count_in_sum_beyond_what_is_free() {
    let beyond = |object_bytes: u64, objects: &str| {
        let mut engine = world::engine(Settings {
            bounds: Bounds {
                object_bytes,
                ..Bounds::default()
            },
            ..Settings::default()
        });
        engine.apply(world::changes(objects), world::NOW);
        beyond(&engine)
    };
    // Each has 5,200 bytes of labels, and counts for some 3,180.
    let some = services(10, 200, 1);
    assert_eq!(beyond(16_000, &some), 5);
    assert_eq!(beyond(32_000, &some), 0);
    // With 1,820 bytes of labels each counts for no more than the least, and so with 2,210.
    for labels in [1, 70, 85] {
        let some = services(10, labels, 1);
        assert_eq!(
            [beyond(10 << 10, &some), beyond((10 << 10) - 1, &some)],
            [0, 1]
        );
    }
}

/// The text of a small object of a kind.
fn small(kind: ObjectKind, number: usize, namespace: &str) -> String {
    let version = kind.api_version();
    let rest = match kind {
        ObjectKind::EndpointSlice => "addressType: IPv4\nendpoints: []\nports: []",
        ObjectKind::Secret => "type: Opaque\ndata: {}",
        ObjectKind::ConfigMap => "data: {}",
        ObjectKind::DestinationRule => "spec: {host: web}",
        ObjectKind::ServiceEntry => "spec: {hosts: [web.example]}",
        _ => "spec: {}",
    };
    let kind = kind.as_str();
    format!(
        "apiVersion: {version}\nkind: {kind}\nmetadata: {{namespace: {namespace}, name: \
         o{number:03}, creationTimestamp: 2025-01-01T00:00:00Z}}\n{rest}\n"
    )
}

#[test]
fn however_small_objects_are_a_namespace_may_have_no_more_than_its_bound_says() {
    let kinds = [
        ObjectKind::Service,
        ObjectKind::ConfigMap,
        ObjectKind::Pod,
        ObjectKind::Ingress,
        ObjectKind::EndpointSlice,
        ObjectKind::Secret,
        ObjectKind::IstioGateway,
        ObjectKind::VirtualService,
        ObjectKind::DestinationRule,
        ObjectKind::ServiceEntry,
        ObjectKind::Sidecar,
        ObjectKind::RequestAuthentication,
        ObjectKind::PeerAuthentication,
        ObjectKind::AuthorizationPolicy,
        ObjectKind::Telemetry,
        ObjectKind::ProxyConfig,
        ObjectKind::EnvoyFilter,
        ObjectKind::WasmPlugin,
    ];
    for kind in kinds {
        let mut engine = world::engine(Settings {
            bounds: Bounds {
                object_bytes: 20 << 10,
                routes: 20,
                endpoints: 20,
                certificates: 20,
                ..Bounds::default()
            },
            ..Settings::default()
        });
        for number in 0..100 {
            let both = ["shop", "blog"].map(|namespace| small(kind, number, namespace));
            // The neighbour has few.
            let objects = if number < 5 {
                both.join("---\n")
            } else {
                both[0].clone()
            };
            engine.apply(world::changes(&objects), world::NOW);
        }
        let kind = kind.as_str();
        assert_eq!(beyond(&engine), 80, "{kind}");
        let told = findings(&engine).into_iter();
        let of_shop = format!("{kind} shop/");
        let told: Vec<String> = told.filter(|it| it.contains("--bound")).collect();
        assert!(told.iter().all(|it| it.contains(&of_shop)), "{told:?}");
        assert!(
            !told.iter().any(|it| it.contains("/o019")),
            "the first stay"
        );
    }
    // What it comes to for a namespace in front of which there are others.
    assert_eq!(Bounds::of_tenants().object_bytes / (1 << 10), 262_144);
}

/// An engine with the sidecar of another namespace, where each may have so many routes.
fn beside(routes: u64) -> Engine {
    world::engine(Settings {
        sidecars: true,
        views: vec![world::view("other blog app=other sidecar")],
        bounds: Bounds {
            routes,
            ..Bounds::default()
        },
        ..Settings::default()
    })
}

#[test]
fn ports_of_services_count_for_what_they_take_in_sidecars_of_others() {
    let seen = |routes: u64, objects: &str| {
        let mut engine = beside(routes);
        engine.apply(world::changes(objects), world::NOW);
        let snapshot = engine.snapshot_of("other").unwrap();
        (beyond(&engine), snapshot.digest().to_string())
    };
    // Of 14 ports ten count, for four routes each: two of five Services are within 100.
    let (told, some) = seen(100, &services(5, 1, 14));
    assert_eq!(told, 3);
    assert_eq!(seen(0, &services(2, 1, 14)), (0, some.clone()));
    assert_eq!(seen(80, &services(2, 1, 14)), (0, some.clone()));
    assert_eq!(seen(79, &services(2, 1, 14)).0, 1);
    assert_ne!(seen(0, &services(5, 1, 14)).1, some);
    // Few ports need no entry in a ledger.
    let few = seen(0, &services(5, 1, 4));
    assert_eq!(seen(1, &services(5, 1, 4)), few);
    assert_eq!(few.0, 0);
}

#[test]
fn a_service_beyond_its_routes_comes_back_once_an_older_one_goes() {
    let mut engine = beside(100);
    engine.apply(world::changes(&services(3, 1, 14)), world::NOW);
    assert_eq!(beyond(&engine), 1);
    let gone = world::changes("remove Service shop/s01\n");
    let outcome = engine.apply(gone.clone(), world::NOW);
    // It was kept, so that nobody has to read it again.
    assert_eq!((outcome.wanted.len(), beyond(&engine)), (0, 0));
    let mut fresh = beside(0);
    fresh.apply(world::changes(&services(3, 1, 14)), world::NOW);
    fresh.apply(gone, world::NOW);
    let digest = |engine: &Engine| engine.snapshot_of("other").unwrap().digest().to_string();
    assert_eq!(digest(&engine), digest(&fresh));
}

#[test]
fn a_large_ingress_that_restricts_closes_its_hosts_once_it_is_let_go() {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            object_bytes: 20_000,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    let restricting = "name: young, annotations: \
                       {nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8},";
    let [_, young] = large("Ingress");
    let young = young.replace("name: young,", restricting);
    let older = ingress(0).replace("h00000", "h");
    // Services count for some memory as well: those that are older stay.
    let old_services = "kind: Service\nmetadata: {creationTimestamp: 2023-01-01T00:00:00Z, ";
    let base = BASE.replace("kind: Service\nmetadata: {", old_services);
    engine.apply(world::changes(&base), world::NOW);
    engine.apply(world::changes(&older), world::NOW);
    let before = engine.snapshot().digest();
    engine.apply(world::changes(&young), world::NOW);
    let told = findings(&engine);
    let told = told
        .iter()
        .filter(|it| it.contains("older Ingresses of the namespace"));
    assert_eq!(told.count(), 1);
    assert_ne!(engine.snapshot().digest(), before);
    engine.apply(world::changes("remove Ingress shop/young\n"), world::NOW);
    assert_eq!(engine.snapshot().digest(), before);
}

/// How many objects are beyond a bound.
fn beyond(engine: &Engine) -> usize {
    let findings = engine.findings();
    findings.filter(|it| it.remedy.contains("--bound")).count()
}

/// The work of one more Ingress that is older than all, and that of its removal, in a namespace
/// that has twice as many as it may.
fn work_at(count: usize) -> [Work; 2] {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            routes: count as u64,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    engine.apply(world::changes(BASE), world::NOW);
    let all: Vec<String> = (1..=2 * count).map(ingress).collect();
    engine.apply(world::changes(&all.join("---\n")), world::NOW);
    assert_eq!(beyond(&engine), count);
    // The oldest by its name: the youngest of those that stay has to go.
    let came = engine.apply(world::changes(&ingress(0)), world::NOW);
    assert_eq!(beyond(&engine), count + 1);
    let key = ObjectKey::new(ObjectKind::Ingress, "shop", "i00000");
    let went = engine.apply(vec![Change::Remove(key)], world::NOW);
    assert_eq!(beyond(&engine), count);
    [came.work, went.work]
}

#[test]
fn a_change_at_a_bound_costs_what_it_moves() {
    assert_eq!(work_at(10), work_at(200));
}

/// A host with so many endpoints, all of them in each of its subsets, and a route to each subset.
fn copies(endpoints: usize, subsets: usize) -> String {
    let list = |count: usize, text: &dyn Fn(usize) -> String| {
        (0..count).map(text).collect::<Vec<_>>().join(", ")
    };
    let endpoints = list(endpoints, &|at| {
        let (high, low) = (at / 250, at % 250 + 1);
        format!("{{address: 10.9.{high}.{low}, labels: {{a: b}}}}")
    });
    let defined = list(subsets, &|at| format!("{{name: s{at}, labels: {{a: b}}}}"));
    let rules = list(subsets, &|at| {
        format!(
            "{{match: [{{uri: {{prefix: /{at}}}}}], \
             route: [{{destination: {{host: many.example, subset: s{at}}}}}]}}"
        )
    });
    let object = |kind: &str, spec: String| {
        format!(
            "apiVersion: networking.istio.io/v1
kind: {kind}
metadata: {{namespace: shop, name: many}}
spec: {{{spec}}}
"
        )
    };
    let objects = [
        object(
            "Gateway",
            "servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [m.example]}]"
                .to_owned(),
        ),
        object(
            "ServiceEntry",
            format!(
                "hosts: [many.example], resolution: STATIC, \
                 ports: [{{number: 80, name: http, protocol: HTTP}}], endpoints: [{endpoints}]"
            ),
        ),
        object(
            "DestinationRule",
            format!("host: many.example, subsets: [{defined}]"),
        ),
        object(
            "VirtualService",
            format!("hosts: [m.example], gateways: [many], http: [{rules}]"),
        ),
    ];
    objects.join("---\n")
}

/// How many endpoints there are in all subsets, and how many subsets have some.
fn in_subsets(engine: &Engine) -> (usize, usize) {
    let snapshot = engine.snapshot();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for sealed in snapshot.iter() {
        if let Some(part) = sealed.endpoints().filter(|it| !it.endpoints.is_empty()) {
            let upstream = Endpoints::upstream_of(sealed.name());
            *counts.entry(upstream).or_default() += part.endpoints.len();
        }
    }
    (counts.values().sum(), counts.len())
}

fn told(engine: &Engine, text: &str) -> usize {
    let findings = findings(engine);
    findings.iter().filter(|it| it.contains(text)).count()
}

#[test]
fn equal_subsets_of_a_large_host_are_bounded_together() {
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(&copies(1_400, 300)), world::NOW);
    // 46 times 1,400 are within 65,536.
    assert_eq!(in_subsets(&engine), (64_400, 46));
    assert_eq!(told(&engine, "--bound subset-endpoints=65536"), 256 - 46);
    assert_eq!(told(&engine, "--bound host-subsets=256"), 1);
    assert_eq!(told(&engine, "is none of the first 256 subsets"), 300 - 256);
}

#[test]
fn subsets_beyond_are_the_same_from_scratch() {
    let new_engine = || {
        world::engine(Settings {
            bounds: Bounds {
                host_subsets: 12,
                subset_endpoints: 16,
                ..Bounds::default()
            },
            ..Settings::default()
        })
    };
    let mut incremental = new_engine();
    let states = [
        // Eight have all, and the others more than their share.
        ((10, 20), (80, 8)),
        // A host of one endpoint has it in all that are defined.
        ((1, 20), (12, 12)),
        // The ninth would be looked at beyond what is worth it.
        ((30, 9), (240, 8)),
        ((10, 8), (80, 8)),
        ((10, 20), (80, 8)),
    ];
    for ((endpoints, subsets), expected) in states {
        let text = copies(endpoints, subsets);
        incremental.apply(world::changes(&text), world::NOW);
        let mut fresh = new_engine();
        fresh.apply(world::changes(&text), world::NOW);
        assert_eq!(in_subsets(&fresh), expected, "{endpoints} in {subsets}");
        assert_eq!(findings(&incremental), findings(&fresh));
        assert_eq!(incremental.snapshot().digest(), fresh.snapshot().digest());
    }
}

#[test]
fn endpoints_of_an_entry_count_for_each_of_its_hosts() {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            endpoints: 29,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    let one = copies(10, 1);
    engine.apply(world::changes(&one), world::NOW);
    assert_eq!(beyond(&engine), 0);
    let three = "hosts: [many.example, more.example, most.example], resolution";
    let three = one.replace("hosts: [many.example], resolution", three);
    engine.apply(world::changes(&three), world::NOW);
    assert_eq!(beyond(&engine), 1);
}

/// A VirtualService with so many empty rules.
fn fat(name: &str, rules: usize, host: &str) -> String {
    let rules = vec!["{}"; rules].join(", ");
    format!(
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{namespace: shop, name: {name}, creationTimestamp: '2020-01-01T00:00:00Z'}}
spec: {{hosts: [{host}], gateways: [gate], http: [{rules}]}}
"
    )
}

#[test]
fn what_takes_too_much_memory_is_let_go_and_wanted_once_there_is_room() {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            object_bytes: 30_000,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    let objects = [fat("a", 100, "a.example"), fat("b", 300, "b.example")].join("---\n");
    let outcome = engine.apply(world::changes(&objects), world::NOW);
    // 100 rules take 9 KB, 300 take 27.
    assert!(outcome.wanted.is_empty());
    assert_eq!(beyond(&engine), 1);
    // It grows while it is let go: nobody has to read it for that.
    let grown = engine.apply(world::changes(&fat("b", 310, "b.example")), world::NOW);
    assert!(grown.wanted.is_empty());
    let key = |name: &str| ObjectKey::new(ObjectKind::VirtualService, "shop", name);
    let outcome = engine.apply(vec![Change::Remove(key("a"))], world::NOW);
    assert_eq!(outcome.wanted, [key("b")]);
    // Told once, and it is beyond until it was read.
    assert_eq!(beyond(&engine), 1);
    assert!(engine.apply(Vec::new(), world::NOW).wanted.is_empty());
    let again = world::changes(&fat("b", 310, "b.example"));
    assert!(engine.apply(again, world::NOW).wanted.is_empty());
    assert_eq!(beyond(&engine), 0);
}

#[test]
fn an_object_that_was_let_go_comes_to_hosts_as_one_that_was_edited() {
    let mut engine = world::engine(Settings {
        late_claims: true,
        bounds: Bounds {
            object_bytes: 10_000,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    engine.apply(world::changes(&fat("old", 1, "own.example")), world::NOW);
    assert_eq!(engine.usage().late_claims, 0);
    // Whoever grows beyond the bound, and comes back with a host of somebody else, gains no age.
    engine.apply(world::changes(&fat("old", 200, "own.example")), world::NOW);
    assert_eq!(beyond(&engine), 1);
    engine.apply(world::changes(&fat("old", 1, "victim.example")), world::NOW);
    assert_eq!(beyond(&engine), 0);
    assert_eq!(engine.usage().late_claims, 1);
}
