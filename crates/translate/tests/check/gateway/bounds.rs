//! Bounds of what many listeners and routes make of one Gateway, host or Service.

use std::collections::BTreeSet;

use myriad_api::ObjectKind;
use myriad_api::gateway::status::State;
use myriad_model::Value;
use myriad_translate::{CatchAll, Engine, Settings, View};

use super::work::sections;
use super::{HOLDS, apply, object_of, refusals, status, told};
use crate::{render, world};

/// The most ports of one Gateway.
const PORTS_MAX: usize = 128;

/// The most of them that one namespace has.
const PORTS_OF_NAMESPACE_MAX: usize = 96;

/// The most routes of a namespace for one Service.
const ROUTES_MAX: usize = 64;

/// A class of Gateways with proxies of their own.
pub(super) const OWN: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {namespace: infra, name: own}
data: {myriad-gateway-mode: dedicated}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: own}
spec: {controllerName: myriad.dev/gateway-controller, parametersRef: {group: '', kind: ConfigMap, \
namespace: infra, name: own}}
";

/// A ListenerSet with 60 listeners, from a port on.
fn set((namespace, name): (&str, &str), year: u32, from: u16) -> String {
    let listener = |port: u16| format!("  - {{name: p{port}, port: {port}, protocol: HTTP}}\n");
    let listeners: String = (from..from + 60).map(listener).collect();
    let spec = format!("  parentRef: {{name: edge, namespace: infra}}\n  listeners:\n{listeners}");
    object_of("ListenerSet", (namespace, name), year, &spec)
}

/// The ports of the proxies of the Gateway.
fn ports(engine: &Engine) -> Vec<u16> {
    match status(engine, ObjectKind::Gateway, "infra", "edge").state {
        State::Gateway(gateway) => {
            let deployment = gateway.deployment.expect("proxies");
            deployment.ports.iter().map(|port| port.number).collect()
        }
        _ => Vec::new(),
    }
}

fn refused(engine: &Engine, (namespace, name): (&str, &str)) -> Vec<(String, &'static str)> {
    let status = status(engine, ObjectKind::ListenerSet, namespace, name);
    refusals(&status, "Accepted")
}

/// The proxies of a Gateway of their own, without the Gateway.
fn dedicated() -> Engine {
    let mut settings = Settings {
        views: vec![View::dedicated("infra", "edge")],
        ..Settings::default()
    };
    settings.gateway_ports.except.insert(9_901);
    let mut engine = world::engine(settings);
    apply(&mut engine, OWN);
    engine
}

#[test]
fn a_namespace_has_so_many_ports_of_the_gateway_of_another_and_leaves_the_rest() {
    let mut engine = dedicated();
    let spec = "  gatewayClassName: own\n  allowedListeners: {namespaces: {from: All}}\n  \
                listeners: [{name: own, port: 4000, protocol: HTTP}]\n";
    let gateway = object_of("Gateway", ("infra", "edge"), 2025, spec);
    let sets = [
        (("shop", "a"), 2021, 1_000),
        (("shop", "b"), 2022, 2_000),
        (("infra", "a"), 2023, 3_000),
        (("infra", "b"), 2024, 5_000),
    ];
    apply(&mut engine, &gateway);
    for (key, year, from) in &sets[..2] {
        apply(&mut engine, &set(*key, *year, *from));
    }
    // There is room, but not for more of one namespace.
    assert_eq!(refused(&engine, ("shop", "a")), HOLDS);
    let beyond = refused(&engine, ("shop", "b"));
    assert_eq!(beyond.len(), 120 - PORTS_OF_NAMESPACE_MAX);
    assert!(
        beyond
            .iter()
            .all(|(_, reason)| *reason == "PortUnavailable")
    );
    assert!(told(&engine, "its namespace has 96 others there") > 0);
    assert_eq!(ports(&engine).len(), 1 + PORTS_OF_NAMESPACE_MAX);
    // What is left is for others, by age.
    apply(&mut engine, &set(("blog", "a"), 2026, 6_000));
    let left = PORTS_MAX - 1 - PORTS_OF_NAMESPACE_MAX;
    assert_eq!(refused(&engine, ("blog", "a")).len(), 60 - left);
    assert_eq!(ports(&engine).len(), PORTS_MAX);
    apply(&mut engine, "remove ListenerSet shop/a");
    assert_eq!(refused(&engine, ("shop", "b")), HOLDS);
    assert_eq!(refused(&engine, ("blog", "a")), HOLDS);
    apply(&mut engine, "remove ListenerSet shop/b");
    apply(&mut engine, "remove ListenerSet blog/a");
    // The Gateway's own namespace may have all of them.
    for (key, year, from) in &sets[2..] {
        apply(&mut engine, &set(*key, *year, *from));
    }
    assert_eq!(ports(&engine).len(), 121);
    let mut fresh = dedicated();
    let kept = sets[2..].iter();
    let kept: Vec<String> = kept
        .map(|(key, year, from)| set(*key, *year, *from))
        .chain([gateway])
        .collect();
    apply(&mut fresh, &kept.join("---\n"));
    assert!(fresh.statuses().eq(engine.statuses()));
}

#[test]
fn a_gateway_has_so_many_ports_its_own_first_and_then_the_oldest() {
    let mut engine = dedicated();
    let (a, b, c, d) = (("shop", "a"), ("blog", "b"), ("more", "c"), ("shop", "d"));
    for (key, year, from) in [(c, 2023, 1_000), (b, 2022, 2_000), (a, 2021, 3_000)] {
        apply(&mut engine, &set(key, year, from));
    }
    let spec = "  gatewayClassName: own\n  allowedListeners: {namespaces: {from: All}}\n  \
                listeners: [{name: own, port: 4000, protocol: HTTP}, {name: admin, port: 9901, \
                protocol: HTTP}]\n";
    apply(
        &mut engine,
        &object_of("Gateway", ("infra", "edge"), 2025, spec),
    );
    let found = ports(&engine);
    assert_eq!(found.len(), PORTS_MAX);
    assert!(found.contains(&4_000) && !found.contains(&9_901));
    assert!(found.contains(&3_059) && found.contains(&2_059));
    let gateway = status(&engine, ObjectKind::Gateway, "infra", "edge");
    let unavailable = [("admin".to_owned(), "PortUnavailable")];
    assert_eq!(refusals(&gateway, "Accepted"), unavailable);
    assert_eq!((refused(&engine, a), refused(&engine, b)), (vec![], vec![]));
    let beyond = refused(&engine, c);
    assert_eq!(beyond.len(), 1 + 180 - PORTS_MAX);
    assert!(
        beyond
            .iter()
            .all(|(_, reason)| *reason == "PortUnavailable")
    );
    // A port that others have as well is one, and what goes makes room.
    apply(&mut engine, &set(d, 2024, 3_000));
    assert_eq!(refused(&engine, d).len(), 60);
    apply(&mut engine, "remove ListenerSet blog/b");
    assert_eq!(refused(&engine, c), HOLDS);
    assert_eq!(ports(&engine).len(), 121);
}

#[test]
fn of_very_many_gateways_for_any_host_one_that_may_answer_is_seen() {
    let mut engine = world::engine(Settings {
        catch_all_namespaces: CatchAll::Only(["infra".to_owned()].into()),
        ..Settings::default()
    });
    let gateway = |namespace: &str, name: &str, year: u32| {
        let spec =
            "  gatewayClassName: myriad\n  listeners: [{name: it, port: 80, protocol: HTTP}]\n";
        object_of("Gateway", (namespace, name), year, spec)
    };
    let all: Vec<String> = (0..300)
        .map(|number| gateway("crowd", &format!("g{number:03}"), 2021))
        .chain([gateway("infra", "edge", 2026)])
        .collect();
    apply(&mut engine, &all.join("---\n"));
    let mut sections =
        engine
            .snapshot()
            .iter()
            .filter_map(|sealed| match &sealed.resource()?.value {
                Value::Domain(domain) => domain.section.as_ref().map(ToString::to_string),
                _ => None,
            });
    let section = "gateway/infra/edge/it";
    assert_eq!(sections.next().as_deref(), Some(section));
    let all: Vec<String> = engine.findings().map(ToString::to_string).collect();
    let is_told = all
        .iter()
        .any(|it| it.contains("the oldest of 45 objects beyond the 256"));
    assert!(
        is_told,
        "{} findings, first {:?}, last {:?}",
        all.len(),
        all.first(),
        all.last()
    );
}

/// The host of the listeners of very many Gateways.
const HOST: &str = ", hostname: a.test";

/// A Gateway with one listener at a port, and this beside it.
fn at_port((namespace, name): (&str, &str), year: u32, port: u16, host: &str) -> String {
    let spec = format!(
        "  gatewayClassName: myriad\n  listeners: [{{name: it, port: {port}, protocol: \
         HTTP{host}}}]\n"
    );
    object_of("Gateway", (namespace, name), year, &spec)
}

/// Very many Gateways of a namespace for the host, and the older Ingress and the younger Gateway of
/// `shop` for it.
fn crowd(namespace: &str) -> Vec<String> {
    let gateways = (0..300).map(|number| {
        let name = format!("g{number:03}");
        at_port((namespace, &name), 2021, 8_000 + number, HOST)
    });
    let own = [
        ingress("shop", 2019, ""),
        at_port(("shop", "edge"), 2025, 8_998, HOST),
    ];
    gateways.chain(own).collect()
}

/// An Ingress for the host, and this beside its creation.
fn ingress(namespace: &str, year: u32, rest: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: {namespace}, \
         name: web, creationTimestamp: {year}-01-01T00:00:00Z{rest}}}\nspec: {{rules: [{{host: \
         a.test, http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: web, \
         port: {{number: 80}}}}}}}}]}}}}]}}\n"
    )
}

#[test]
fn strangers_with_very_many_gateways_for_a_host_hide_none_of_its_owner() {
    for namespace in ["crowd", "evil"] {
        let mut engine = world::engine(world::settings("# with gateway-ports=8000-9000"));
        let mut all = crowd(namespace);
        // The oldest object is of one that comes to the host later, by its Gateway.
        let spec = "  parentRefs: [{name: edge}]\n  hostnames: [a.test]\n";
        all.push(object_of("HTTPRoute", ("evil", "r"), 2018, spec));
        all.push(at_port(("evil", "edge"), 2026, 8_999, ""));
        apply(&mut engine, &all.join("---\n"));
        let expected = ["gateway/shop/edge/it"];
        assert_eq!(sections(&engine, "a.test"), expected, "{namespace}");
    }
}

#[test]
fn of_very_many_gateways_for_a_host_those_of_an_old_canary_go_before_no_other() {
    let mut engine = world::engine(world::settings("# with gateway-ports=8000-9000"));
    let mut all = crowd("crowd");
    let canary = ", annotations: {nginx.ingress.kubernetes.io/canary: 'true'}";
    all.push(ingress("crowd", 2017, canary));
    all.push(at_port(("shop", "more"), 2026, 8_997, HOST));
    apply(&mut engine, &all.join("---\n"));
    let expected = ["gateway/shop/edge/it", "gateway/shop/more/it"];
    assert_eq!(sections(&engine, "a.test"), expected);
}

/// A route of a number for a Service of `shop`, with a path.
fn route(namespace: &str, number: usize, service: &str, path: &str) -> String {
    let spec = format!(
        "  parentRefs: [{{group: '', kind: Service, name: {service}, namespace: shop}}]\n  rules: \
         [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}]\n"
    );
    let year = 2021 + u32::try_from(number % 2).expect("a year");
    object_of(
        "HTTPRoute",
        (namespace, &format!("r{number:03}")),
        year,
        &spec,
    )
}

fn mesh() -> Engine {
    let mut engine = world::engine(Settings {
        sidecars: true,
        views: vec![world::view("beside shop x=1 sidecar")],
        ..Settings::default()
    });
    let service = "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\nspec: \
                   {ports: [{name: http, port: 80}]}\n";
    apply(&mut engine, service);
    engine
}

/// How many routes a sidecar of the Service's namespace has.
fn rules(engine: &Engine) -> usize {
    let snapshot = engine.snapshot_of("beside").expect("a view");
    let lines = render::lines(&snapshot);
    let names = lines.iter().filter_map(|line| {
        let (_, rest) = line.split_once("http/shop/")?;
        rest.get(..4)
    });
    names.collect::<BTreeSet<&str>>().len()
}

#[test]
fn the_routes_of_a_namespace_for_a_service_are_bounded() {
    let mut engine = mesh();
    let written = |number: usize| route("shop", number, "web", &format!("/{number}"));
    let all: Vec<String> = (0..ROUTES_MAX + 6).map(written).collect();
    apply(&mut engine, &all.join("---\n"));
    assert_eq!(rules(&engine), ROUTES_MAX);
    let beyond = (0..ROUTES_MAX + 6).filter(|number| {
        let name = format!("r{number:03}");
        let status = status(&engine, ObjectKind::HttpRoute, "shop", &name);
        refusals(&status, "Accepted") == [("0".to_owned(), "UnsupportedValue")]
    });
    // Those of the later year, and of them the last by name.
    let beyond: Vec<usize> = beyond.collect();
    assert_eq!(beyond, [59, 61, 63, 65, 67, 69]);
    assert_eq!(told(&engine, "and no more have an effect"), 6);
    apply(&mut engine, "remove HTTPRoute shop/r000");
    assert_eq!(rules(&engine), ROUTES_MAX);
    assert_eq!(told(&engine, "and no more have an effect"), 5);
}

#[test]
fn a_route_of_strangers_for_a_service_costs_its_callers_nothing() {
    let work = |service: &str| {
        let mut engine = mesh();
        apply(&mut engine, &route("evil", 0, service, "/"));
        let edited = world::changes(&route("evil", 0, service, "/more"));
        engine.apply(edited, world::NOW).work.units_translated
    };
    assert_eq!(work("web"), work("gone"));
}
