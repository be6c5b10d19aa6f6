//! Routes of tenants at the listeners of the operator: they have what their own namespace may have,
//! and answer for the hosts of others as it would by a listener of its own.

use std::collections::BTreeSet;

use myriad_api::{Finding, ObjectKind};
use myriad_model::{Action, Value};
use myriad_translate::{CatchAll, Engine, Settings};

use super::{HOLDS, apply, object_of, refusals, status, told};
use crate::world;

/// The lists of two tenants, beside which nobody but the operator claims anything.
const TENANTS: &str = "good *.good.example;evil *.evil.example;unlisted nothing";

/// The most namespaces with a wildcard at listeners of others that the wildcard knows by name.
const GUESTS_READ_MAX: u32 = 64;

/// An engine with the Gateway of the operator, which takes routes of everybody, and what good has:
/// a route there, a host of HTTPS alone, one of plain HTTP, and one that asks for a certificate.
fn engine(settings: Settings) -> Engine {
    let mut engine = world::engine(settings);
    let all = "allowedRoutes: {namespaces: {from: All}}";
    let pass = "protocol: TLS, tls: {mode: Passthrough}";
    let operators = format!(
        "  gatewayClassName: myriad\n  listeners:\n  - {{name: h, port: 80, protocol: HTTP, \
         {all}}}\n  - {{name: p, port: 443, {pass}, {all}}}\n  - {{name: t, port: \
         9443, {pass}, {all}}}\n"
    );
    let own = "  gatewayClassName: myriad\n  listeners: [{name: s, port: 443, protocol: HTTPS, \
               hostname: only.good.example, tls: {certificateRefs: [{name: tls}]}}]\n";
    let objects = [
        object_of("Gateway", ("istio-system", "edge"), 2019, &operators),
        object_of("Gateway", ("good", "g"), 2021, own),
        route(
            ("HTTPRoute", "good"),
            2021,
            "h",
            "hostnames: [shr.good.example]",
        ),
        ingress("mt", "tls: [{hosts: [mt.good.example], secretName: tls}], "),
        ingress("plain", ""),
        service("good"),
        service("evil"),
    ];
    apply(&mut engine, &objects.join("---\n"));
    engine
}

fn service(namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {namespace}, name: web}}\nspec: \
         {{ports: [{{name: http, port: 80}}]}}\n"
    )
}

fn ingress(name: &str, tls: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: good, name: \
         {name}, creationTimestamp: 2021-01-01T00:00:00Z}}\nspec: {{{tls}rules: [{{host: \
         {name}.good.example, http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: \
         {{name: web, port: {{number: 80}}}}}}}}]}}}}]}}\n"
    )
}

/// A route of a kind and namespace at a listener of the operator.
fn route((kind, namespace): (&str, &str), year: u32, section: &str, hosts: &str) -> String {
    let spec = format!(
        "  parentRefs: [{{name: edge, namespace: istio-system, sectionName: {section}}}]\n  \
         {hosts}\n  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]\n"
    );
    object_of(kind, (namespace, "r"), year, &spec)
}

/// The routes of evil for hosts that are not its own.
fn strange() -> Vec<(ObjectKind, String)> {
    let cases = [
        ("HTTPRoute", 2022, "h", "hostnames: [shr.good.example]"),
        ("HTTPRoute", 2020, "h", "hostnames: [mt.good.example]"),
        ("TLSRoute", 2020, "t", "hostnames: [mt.good.example]"),
        ("HTTPRoute", 2022, "h", "hostnames: []"),
        ("HTTPRoute", 2022, "h", "hostnames: ['*.good.example']"),
        ("HTTPRoute", 2022, "h", "hostnames: [new.good.example]"),
    ];
    let routes = cases.map(|(kind, year, section, hosts)| {
        let of = match kind {
            "TLSRoute" => ObjectKind::TlsRoute,
            _ => ObjectKind::HttpRoute,
        };
        (of, route((kind, "evil"), year, section, hosts))
    });
    routes.into()
}

fn tenants(text: &str) -> Settings {
    Settings {
        tenants: world::tenants(text),
        ..Settings::default()
    }
}

/// Whether anything leads to evil.
fn has_rows(engine: &Engine) -> bool {
    let mut all = engine.snapshot().iter();
    all.any(|sealed| sealed.name().as_str().contains("/evil/r,"))
}

/// Whether a host is closed to plain requests that no route of its own takes.
fn is_closed(engine: &Engine, host: &str) -> bool {
    let mut routes = engine.snapshot().iter().flat_map(|it| it.routes());
    routes.any(|route| {
        let is_of_host = route.hosts.iter().any(|it| it.as_str() == host);
        let is_plain = route.listeners.iter().any(|it| it.as_str() == "http");
        is_of_host && is_plain && matches!(route.action, Action::Respond(_))
    })
}

/// Whether a host has a domain.
fn has_domain(engine: &Engine, host: &str) -> bool {
    let mut all = engine.snapshot().iter();
    all.any(|sealed| {
        let value = sealed.resource().map(|resource| &resource.value);
        matches!(value, Some(Value::Domain(domain)) if domain.host.as_str() == host)
    })
}

#[test]
fn lists_of_hosts_hold_for_who_writes_a_route() {
    for (kind, route) in strange() {
        let mut free = engine(Settings::default());
        apply(&mut free, &route);
        assert!(has_rows(&free), "{route}");
        assert_eq!(told(&free, "--tenants"), 0);
        let mut engine = engine(tenants(TENANTS));
        let before = engine.snapshot().digest();
        apply(&mut engine, &route);
        assert_eq!(engine.snapshot().digest(), before, "{route}");
        let refused = [("0".to_owned(), "NotAllowedByListeners")];
        let status = status(&engine, kind, "evil", "r");
        assert_eq!(refusals(&status, "Accepted"), refused, "{route}");
        let why = "the hosts of namespace evil in --tenants do not cover";
        assert_eq!(told(&engine, why), 1, "{route}");
        assert_eq!(
            told(&engine, "--tenants keeps the hosts of the route at"),
            1
        );
    }
}

#[test]
fn a_route_keeps_the_hosts_that_its_namespace_may_claim() {
    let hosts = "hostnames: [mt.good.example, a.evil.example]";
    let mut engine = engine(tenants(TENANTS));
    apply(&mut engine, &route(("HTTPRoute", "evil"), 2020, "h", hosts));
    assert_eq!(
        refusals(
            &status(&engine, ObjectKind::HttpRoute, "evil", "r"),
            "Accepted"
        ),
        HOLDS
    );
    assert!(has_rows(&engine));
    let mut routes = engine.snapshot().iter().flat_map(|it| it.routes());
    let part = "gateway/istio-system/edge/h";
    assert!(routes.all(|route| {
        let is_there = route.listeners.iter().any(|it| it.as_str() == part);
        let mut hosts = route.hosts.iter();
        !is_there || hosts.all(|it| it.as_str() != "mt.good.example")
    }));
    assert_eq!(told(&engine, "do not cover host mt.good.example"), 1);
}

#[test]
fn an_edit_of_the_lists_leaves_what_a_start_with_them_has() {
    let of = |engine: &Engine| {
        let findings: Vec<Finding> = engine.findings().cloned().collect();
        let statuses: Vec<_> = engine.statuses().cloned().collect();
        (engine.snapshot().digest(), findings, statuses)
    };
    for (_, route) in strange() {
        let start = |text: &str| {
            let mut engine = engine(tenants(text));
            apply(&mut engine, &route);
            engine
        };
        let mut edited = start("");
        let star = "good *.good.example;evil *;unlisted nothing";
        for text in [TENANTS, "good *.good.example", star, TENANTS, ""] {
            edited.set_tenants(world::tenants(text));
            apply(&mut edited, "");
            assert_eq!(of(&edited), of(&start(text)), "{text}: {route}");
        }
    }
}

#[test]
fn routes_of_tenants_for_all_hosts_answer_for_none_that_others_claim() {
    let unnamed = |namespace| route(("HTTPRoute", namespace), 2020, "h", "hostnames: []");
    let host = "only.good.example";
    let mut engine = engine(Settings::default());
    assert!(!is_closed(&engine, host));
    apply(&mut engine, &unnamed("good"));
    assert!(!is_closed(&engine, host), "it answers for its own");
    apply(&mut engine, &unnamed("evil"));
    assert!(is_closed(&engine, host));
    assert!(has_rows(&engine), "for hosts that nobody claims");
    let removed = "remove gateway.networking.k8s.io/v1/HTTPRoute evil/r";
    apply(&mut engine, removed);
    assert!(!is_closed(&engine, host));
}

#[test]
fn who_may_not_answer_for_hosts_that_nobody_names_does_so_by_no_listener_of_others() {
    let only = |namespaces: &[&str]| {
        let listed = namespaces.iter().map(|it| (*it).to_owned());
        let mut engine = engine(Settings {
            catch_all_namespaces: CatchAll::Only(listed.collect::<BTreeSet<String>>()),
            ..Settings::default()
        });
        let unnamed = route(("HTTPRoute", "evil"), 2022, "h", "hostnames: []");
        apply(&mut engine, &unnamed);
        engine
    };
    let why = "--catch-all-namespaces does not list namespace evil";
    let engine = only(&["istio-system"]);
    assert!(!has_rows(&engine));
    assert_eq!(told(&engine, why), 1);
    // What the operator's own routes do there is as before.
    assert!(!is_closed(&engine, "only.good.example"));
    let engine = only(&["istio-system", "evil"]);
    assert!(has_rows(&engine));
    assert_eq!(told(&engine, why), 0);
    // The operator trusts it.
    assert!(!is_closed(&engine, "only.good.example"));
}

#[test]
fn a_route_for_a_wildcard_answers_for_no_older_host_of_others() {
    let below = |namespace, year| {
        let hosts = "hostnames: ['*.good.example']";
        route(("HTTPRoute", namespace), year, "h", hosts)
    };
    let host = "only.good.example";
    for (namespace, year, expected) in [
        ("good", 2022, false),
        ("evil", 2022, true),
        ("evil", 2020, false),
    ] {
        let mut engine = engine(Settings::default());
        apply(&mut engine, &below(namespace, year));
        assert_eq!(is_closed(&engine, host), expected, "{namespace} {year}");
    }
}

#[test]
fn a_route_for_a_wildcard_hands_on_no_handshakes_of_older_hosts_of_others() {
    let host = "plain.good.example";
    for (namespace, year, expected) in [
        ("good", 2022, false),
        ("evil", 2022, true),
        ("evil", 2020, false),
    ] {
        let mut engine = engine(Settings::default());
        assert!(!has_domain(&engine, host));
        let hosts = "hostnames: ['*.good.example']";
        let below = route(("TLSRoute", namespace), year, "p", hosts);
        apply(&mut engine, &below);
        assert_eq!(has_domain(&engine, host), expected, "{namespace} {year}");
    }
}

#[test]
fn beyond_so_many_namespaces_with_a_wildcard_somebody_unknown_is_among_them() {
    // Each of them is older than the host, and would be let alone.
    let mut engine = engine(Settings::default());
    let below = |number: u32| {
        let namespace = format!("n{number:02}");
        let hosts = "hostnames: ['*.good.example']";
        let route = route(("HTTPRoute", &namespace), 2020, "h", hosts);
        format!("{}---\n{route}", service(&namespace))
    };
    let most: Vec<String> = (0..GUESTS_READ_MAX).map(below).collect();
    apply(&mut engine, &most.join("---\n"));
    assert!(!is_closed(&engine, "only.good.example"));
    apply(&mut engine, &below(GUESTS_READ_MAX));
    assert!(is_closed(&engine, "only.good.example"));
}
