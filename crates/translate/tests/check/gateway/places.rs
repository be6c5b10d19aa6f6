//! The memory that seats of routes take, and the names of hosts that are kept, count in that of a
//! namespace: little that is written makes little to keep.

use myriad_api::ObjectKind;
use myriad_translate::{Bounds, Engine, Settings};

use super::work::{gateway, listener, route};
use super::{HOLDS, apply, refusals, status, told};
use crate::world;

/// An engine in which the objects of a namespace may take so many bytes; 0 is no bound.
fn engine(object_bytes: u64) -> Engine {
    world::engine(Settings {
        bounds: Bounds {
            object_bytes,
            ..Bounds::of_tenants()
        },
        ..Settings::default()
    })
}

/// A Gateway with so many listeners, each for hosts below one or for all.
fn edge(namespace: &str, listeners: u16, rest: &str) -> String {
    let listeners = (0..listeners).map(|at| listener(&format!("l{at}"), 9_000 + at, rest));
    gateway((namespace, "edge"), 2021, &listeners.collect::<String>())
}

/// 16 hosts of seven labels each.
fn hosts(number: usize) -> String {
    let host = |at: usize| format!("x{number}-{at}.a.b.c.d.evil.example");
    (0..16).map(host).collect::<Vec<_>>().join(", ")
}

fn refused(engine: &Engine, namespace: &str, name: &str) -> Vec<(String, &'static str)> {
    let status = status(engine, ObjectKind::HttpRoute, namespace, name);
    refusals(&status, "Accepted")
}

#[test]
fn routes_have_no_more_places_than_they_count_for() {
    let links = |object_bytes: u64, routes: usize| {
        let mut engine = engine(object_bytes);
        let rest = ", hostname: '*.evil.example'";
        apply(&mut engine, &edge("evil", 32, rest));
        let before = engine.usage().links;
        for number in 0..routes {
            let name = format!("r{number}");
            let route = route(("evil", &name), 2022, "{name: edge}", &hosts(number));
            apply(&mut engine, &route);
        }
        (engine.usage().links - before, engine)
    };
    // At each listener each host has a place, and five with the wildcards up to the listener's.
    let (all, engine) = links(0, 1);
    assert_eq!(refused(&engine, "evil", "r0"), HOLDS);
    let bound = Bounds::of_tenants().object_bytes;
    let (few, engine) = links(bound, 20);
    let beyond = [("0".to_owned(), "UnsupportedValue")];
    assert_eq!(refused(&engine, "evil", "r19"), beyond);
    assert_eq!(told(&engine, "more than 1024 hosts at listeners"), 20);
    assert!(all > 32 * 16 * 6 && few * 2 < all, "{all} and {few}");
}

#[test]
fn routes_with_many_places_are_beyond_the_memory_of_their_namespace() {
    let text = |names: std::ops::Range<usize>| {
        let routes = names.map(|number| {
            let name = format!("r{number:02}");
            let parent = "{name: edge, namespace: infra}";
            route(("evil", &name), 2022, parent, &hosts(number))
        });
        routes.collect::<Vec<_>>().join("---\n")
    };
    // Each counts for 1,024 places of 160 bytes, and has room for some 11 KB more.
    let new_engine = || {
        let mut engine = engine(1_750_000);
        apply(&mut engine, &edge("infra", 4, ""));
        engine
    };
    let mut whole = new_engine();
    apply(&mut whole, &text(0..13));
    assert_eq!(told(&whole, "hosts at listeners"), 0);
    assert_eq!(told(&whole, "raise --bound object-bytes=1750000"), 3);
    assert_eq!(refused(&whole, "evil", "r09"), HOLDS);
    // Whatever order they come in, the first by their names stay.
    let mut other = new_engine();
    for number in (0..13).rev() {
        apply(&mut other, &text(number..number + 1));
    }
    assert_eq!(whole.snapshot().digest(), other.snapshot().digest());
    let findings = |engine: &Engine| engine.findings().cloned().collect::<Vec<_>>();
    assert_eq!(findings(&whole), findings(&other));
}

#[test]
fn honest_routes_keep_all_that_they_had() {
    // A tenth of the bound, and of 2,000 routes.
    let mut engine = engine(Bounds::of_tenants().object_bytes / 10);
    apply(&mut engine, &edge("shop", 3, ""));
    let routes = (0..200).map(|number| {
        let host = |at: usize| format!("h{number}-{at}.web.shop.example");
        let hosts: Vec<String> = (0..4).map(host).collect();
        let name = format!("r{number}");
        route(("shop", &name), 2022, "{name: edge}", &hosts.join(", "))
    });
    apply(&mut engine, &routes.collect::<Vec<_>>().join("---\n"));
    assert_eq!(told(&engine, "--bound"), 0);
    assert_eq!(told(&engine, "hosts at listeners"), 0);
    for name in ["r0", "r199"] {
        assert_eq!(refused(&engine, "shop", name), HOLDS);
    }
}

#[test]
fn a_route_has_each_listener_that_it_names() {
    let refused = |object_bytes: u64, listeners: u16, parents: &str| {
        let mut engine = engine(object_bytes);
        apply(&mut engine, &edge("shop", listeners, ""));
        apply(
            &mut engine,
            &route(("shop", "r"), 2022, parents, "a.shop.test"),
        );
        refused(&engine, "shop", "r")
    };
    let bound = Bounds::of_tenants().object_bytes;
    let beyond = [("0".to_owned(), "UnsupportedValue")];
    assert_eq!(refused(bound, 8, "{name: edge}"), HOLDS);
    assert_eq!(refused(bound, 9, "{name: edge}"), beyond);
    assert_eq!(refused(0, 9, "{name: edge}"), HOLDS);
    let named = (0..9).map(|at| format!("{{name: edge, sectionName: l{at}}}"));
    let named: Vec<String> = named.collect();
    assert_eq!(refused(bound, 9, &named.join(", ")), HOLDS);
}

#[test]
fn a_route_without_hosts_has_all_listeners_of_a_gateway() {
    let mut engine = engine(Bounds::of_tenants().object_bytes);
    apply(&mut engine, &edge("shop", 64, ""));
    apply(&mut engine, &route(("shop", "r"), 2022, "{name: edge}", ""));
    assert_eq!(refused(&engine, "shop", "r"), HOLDS);
}

/// An object with 64 hosts of so many labels.
fn with_hosts(kind: &str, labels: usize) -> String {
    let host = |at: usize| {
        let labels = vec!["a"; labels - 1];
        format!("h{at}.{}", labels.join("."))
    };
    let list = |text: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..64).map(text).collect();
        all.join(", ")
    };
    let hosts = list(&host);
    let api = "gateway.networking.k8s.io/v1";
    let istio = "networking.istio.io/v1";
    let listeners = list(&|at| {
        format!(
            "{{name: l{at}, port: 443, protocol: HTTPS, hostname: {}, tls: {{certificateRefs: \
             [{{name: tls}}]}}}}",
            host(at)
        )
    });
    let (version, kind, spec) = match kind {
        "Gateway" => (
            api,
            kind,
            format!("gatewayClassName: ours, listeners: [{listeners}]"),
        ),
        "ListenerSet" => (
            api,
            kind,
            format!("parentRef: {{name: edge}}, listeners: [{listeners}]"),
        ),
        "TLSRoute" => (
            api,
            kind,
            format!("hostnames: [{hosts}], rules: [{{backendRefs: [{{name: web, port: 80}}]}}]"),
        ),
        "VirtualService" => (istio, kind, format!("hosts: [{hosts}]")),
        "of Istio" => (
            istio,
            "Gateway",
            format!(
                "servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [{hosts}]}}]"
            ),
        ),
        "Ingress" => {
            let rules = list(&|at| format!("{{host: {}}}", host(at)));
            ("networking.k8s.io/v1", kind, format!("rules: [{rules}]"))
        }
        other => panic!("{other}"),
    };
    format!(
        "apiVersion: {version}\nkind: {kind}\nmetadata: {{namespace: shop, name: it}}\nspec: \
         {{{spec}}}\n"
    )
}

#[test]
fn names_of_very_many_labels_count_for_what_is_kept_of_them() {
    for kind in [
        "Gateway",
        "ListenerSet",
        "TLSRoute",
        "VirtualService",
        "of Istio",
        "Ingress",
    ] {
        let beyond = |labels: usize| {
            let mut engine = engine(512 << 10);
            apply(&mut engine, &with_hosts(kind, labels));
            told(&engine, "raise --bound object-bytes")
        };
        // 64 times 112 labels of 128 bytes are 896 KiB.
        assert_eq!([beyond(8), beyond(120)], [0, 1], "{kind}");
    }
}
