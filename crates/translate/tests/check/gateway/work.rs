//! Work that strangers could make for others, or for everybody, at Gateways: it is counted at two
//! sizes, or has a bound that is exceeded here.

use std::collections::BTreeSet;

use myriad_api::ObjectKind;
use myriad_api::gateway::status::State;
use myriad_model::Value;
use myriad_translate::{CatchAll, Engine, Settings, Work};

use super::{HOLDS, apply, object_of, refusals, status, told};
use crate::world;

/// The most default Gateways of a route.
const DEFAULT_GATEWAYS_MAX: usize = 4;

/// A rule that needs nothing.
const RULES: &str = "  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: \
                     to.test}}]}]\n";

/// A listener of HTTP for routes of all namespaces, with this beside it.
pub(super) fn listener(name: &str, port: u16, rest: &str) -> String {
    format!(
        "  - {{name: {name}, port: {port}, protocol: HTTP, allowedRoutes: {{namespaces: {{from: \
         All}}}}{rest}}}\n"
    )
}

/// A Gateway of a year with these listeners.
pub(super) fn gateway((namespace, name): (&str, &str), year: u32, listeners: &str) -> String {
    let spec = format!("  gatewayClassName: myriad\n  listeners:\n{listeners}");
    object_of("Gateway", (namespace, name), year, &spec)
}

/// The same that takes routes without a parent.
pub(super) fn default_gateway(place: (&str, &str), year: u32, listeners: &str) -> String {
    gateway(place, year, listeners).replace("spec:\n", "spec:\n  defaultScope: All\n")
}

/// A route of a year with these parents and hosts.
pub(super) fn route(place: (&str, &str), year: u32, parents: &str, hosts: &str) -> String {
    let spec = format!("  parentRefs: [{parents}]\n  hostnames: [{hosts}]\n{RULES}");
    object_of("HTTPRoute", place, year, &spec)
}

/// A route that goes to default Gateways.
fn default_route(name: &str, host: &str) -> String {
    let route = route(("shop", name), 2024, "", host);
    route.replace("spec:\n", "spec:\n  useDefaultGateways: All\n")
}

/// The work of an edit of one object.
fn work(engine: &mut Engine, text: &str) -> Work {
    engine.apply(world::changes(text), world::NOW).work
}

/// The parts of sockets that answer for a host.
pub(super) fn sections(engine: &Engine, host: &str) -> Vec<String> {
    let snapshot = engine.snapshot();
    let sections = snapshot
        .iter()
        .filter_map(|sealed| match &sealed.resource()?.value {
            Value::Domain(domain) if domain.host.as_str() == host => {
                domain.section.as_ref().map(ToString::to_string)
            }
            _ => None,
        });
    let sections: BTreeSet<String> = sections.collect();
    sections.into_iter().collect()
}

pub(super) fn nobody_is_unnamed() -> Settings {
    Settings {
        catch_all_namespaces: CatchAll::Only(BTreeSet::new()),
        ..Settings::default()
    }
}

/// The end of a host with very many labels, and the 64 wildcards above it.
fn deep() -> (String, String) {
    let labels: Vec<String> = (0..124_u8)
        .map(|number| char::from(b'a' + number % 26).to_string())
        .collect();
    let listeners = (0..64).map(|at| {
        let host = format!(", hostname: '*.{}'", labels[at..].join("."));
        listener(&format!("l{at}"), 80, &host)
    });
    let listeners = listeners.collect();
    (labels.join("."), listeners)
}

/// A world of Gateways with 64 wildcards each, and how much more is linked in it once a route of
/// some hosts of very many labels names all of them.
fn links(gateways: usize, hosts: &[&str]) -> (Engine, usize) {
    let mut engine = world::engine(Settings::default());
    let (end, listeners) = deep();
    let names: Vec<String> = (0..gateways).map(|it| format!("g{it:02}")).collect();
    for name in &names {
        apply(&mut engine, &gateway(("evil", name), 2021, &listeners));
    }
    let before = engine.usage().links;
    let parents: Vec<String> = names.iter().map(|it| format!("{{name: {it}}}")).collect();
    let hosts: Vec<String> = hosts.iter().map(|it| format!("{it}.{end}")).collect();
    let (parents, hosts) = (parents.join(", "), hosts.join(", "));
    apply(&mut engine, &route(("evil", "r"), 2022, &parents, &hosts));
    let links = engine.usage().links - before;
    (engine, links)
}

#[test]
fn a_route_has_so_many_hosts_at_listeners_with_the_wildcards_above_them() {
    let refused = |engine: &Engine| {
        let status = status(engine, ObjectKind::HttpRoute, "evil", "r");
        refusals(&status, "Accepted")
    };
    let beyond = |parents: std::ops::Range<usize>| -> Vec<(String, &'static str)> {
        let parents = parents.map(|at| (at.to_string(), "UnsupportedValue"));
        parents.collect()
    };
    // One host has 2 and up to 65 places at the listeners of each Gateway.
    let (engine, _) = links(3, &["a"]);
    assert_eq!(refused(&engine), beyond(1..3));
    assert_eq!(told(&engine, "more than 4096 hosts at listeners"), 2);
    let (engine, _) = links(1, &["a"]);
    assert_eq!(refused(&engine), HOLDS);
    let hosts: Vec<String> = (b'a'..=b'p').map(|it| char::from(it).to_string()).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let (engine, few) = links(3, &hosts);
    assert_eq!(refused(&engine), beyond(0..3));
    // No parent that does not take it is asked for more than itself.
    let (engine, many) = links(30, &hosts);
    assert_eq!(refused(&engine), beyond(0..30));
    assert!(many <= few + 27 * 10, "{few} and {many}");
}

#[test]
fn a_grpcroute_meets_httproutes_above_and_below_its_host_up_to_that_of_the_listener() {
    let refused = [("0".to_owned(), "NotAllowedByListeners")];
    for (listener_host, old, young, is_met) in [
        ("", "a.b.test", "a.b.test", true),
        ("", "'*.test'", "a.b.test", true),
        ("", "a.b.test", "'*.test'", true),
        ("'*.test'", "'*.b.test'", "a.b.test", true),
        ("'*.test'", "a.b.test", "'*.b.test'", true),
        ("'*.test'", "'*.test'", "a.b.test", true),
        ("'*.b.test'", "'*.test'", "a.b.test", true),
        ("a.b.test", "'*.test'", "'*.b.test'", true),
        ("'*.test'", "'*.a.test'", "a.b.test", false),
        ("'*.test'", "a.b.test", "b.b.test", false),
    ] {
        let mut engine = world::engine(Settings::default());
        let host = match listener_host {
            "" => String::new(),
            host => format!(", hostname: {host}"),
        };
        let listener = listener("it", 80, &host);
        apply(&mut engine, &gateway(("shop", "edge"), 2021, &listener));
        let parent = "{name: edge}";
        apply(&mut engine, &route(("shop", "old"), 2022, parent, old));
        let grpc = format!(
            "  parentRefs: [{parent}]\n  hostnames: [{young}]\n  rules: [{{backendRefs: [{{name: \
             web, port: 80}}]}}]\n"
        );
        let grpc = object_of("GRPCRoute", ("shop", "young"), 2023, &grpc);
        apply(&mut engine, &grpc);
        let status = status(&engine, ObjectKind::GrpcRoute, "shop", "young");
        let expected = if is_met { &refused[..] } else { &[] };
        let found = refusals(&status, "Accepted");
        assert_eq!(found, expected, "{listener_host}: {old} and {young}");
    }
}

/// An Ingress for a host, below a path.
fn ingress(path: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: shop, name: web, \
         creationTimestamp: 2020-01-01T00:00:00Z}}\nspec: {{rules: [{{host: good.test, http: \
         {{paths: [{{path: {path}, pathType: Prefix, backend: {{service: {{name: web, port: \
         {{number: 80}}}}}}}}]}}}}]}}\n"
    )
}

#[test]
fn routes_of_strangers_for_a_host_cost_its_owner_nothing() {
    let measure = |routes: u32| {
        let mut engine = world::engine(Settings::default());
        apply(&mut engine, &ingress("/"));
        let listeners = listener("any", 80, "");
        apply(&mut engine, &gateway(("evil", "edge"), 2021, &listeners));
        for number in 0..routes {
            let name = format!("r{number:03}");
            let place = ("evil", &*name);
            let text = route(place, 2022 + number, "{name: edge}", "good.test");
            apply(&mut engine, &text);
        }
        let work = work(&mut engine, &ingress("/more"));
        (work.units_translated, work.objects_visited)
    };
    let few = measure(2);
    // As many as are read by their age, and more.
    assert_eq!(measure(60), few);
    assert_eq!(measure(100), few);
}

#[test]
fn very_many_older_routes_leave_out_none_of_the_listeners_by_which_a_host_is_entered() {
    let mut engine = world::engine(nobody_is_unnamed());
    let listeners = [listener("http", 80, ""), listener("more", 9000, "")].concat();
    apply(&mut engine, &gateway(("infra", "edge"), 2000, &listeners));
    let at = |section: &str| format!("{{name: edge, namespace: infra, sectionName: {section}}}");
    for number in 0..70 {
        let name = format!("r{number:03}");
        let text = route(("blog", &name), 2001 + number, &at("http"), "x.test");
        apply(&mut engine, &text);
    }
    let section = |name: &str| format!("gateway/infra/edge/{name}");
    let known = sections(&engine, "x.test");
    assert_eq!(known, [section("http")]);
    apply(
        &mut engine,
        &route(("shop", "r"), 2090, &at("more"), "x.test"),
    );
    let known = sections(&engine, "x.test");
    assert_eq!(known, [section("http"), section("more")]);
    apply(&mut engine, "remove HTTPRoute shop/r");
    let known = sections(&engine, "x.test");
    assert_eq!(known, [section("http")]);
}

#[test]
fn a_gateway_whose_namespace_may_not_claim_a_host_has_it_by_no_route() {
    let mut engine = world::engine(Settings {
        tenants: world::tenants("shop shop.test;blog blog.test"),
        ..nobody_is_unnamed()
    });
    let any = listener("it", 80, "");
    apply(&mut engine, &gateway(("blog", "own"), 2021, &any));
    apply(&mut engine, &gateway(("shop", "own"), 2028, &any));
    let parents = "{name: own, namespace: blog}, {name: own}";
    apply(
        &mut engine,
        &route(("shop", "web"), 2026, parents, "shop.test"),
    );
    let own = "gateway/shop/own/it".to_owned();
    assert_eq!(sections(&engine, "shop.test"), [own]);
}

#[test]
fn default_gateways_take_routes_of_their_namespace_and_of_all_where_the_operator_says_so() {
    let at = |settings: Settings| -> Vec<String> {
        let mut engine = world::engine(settings);
        for namespace in ["blog", "infra", "shop"] {
            let place = (namespace, "edge");
            let listeners = listener("it", 80, "");
            apply(&mut engine, &default_gateway(place, 2021, &listeners));
        }
        apply(&mut engine, &default_route("web", "a.test"));
        let status = status(&engine, ObjectKind::HttpRoute, "shop", "web");
        let State::Route(route) = status.state else {
            panic!("the status of a route");
        };
        let parents = route.parents.iter();
        let namespaces = parents.filter_map(|it| it.parent.namespace.as_deref());
        namespaces.map(str::to_owned).collect()
    };
    assert_eq!(at(Settings::default()), ["shop"]);
    let listed = at(Settings {
        default_gateway_namespaces: ["infra".to_owned()].into(),
        ..Settings::default()
    });
    assert_eq!(listed, ["shop", "infra"]);
}

#[test]
fn an_old_route_takes_no_host_by_an_edit_that_sends_it_to_default_gateways() {
    let mut engine = world::engine(Settings {
        late_claims: true,
        ..nobody_is_unnamed()
    });
    let any = listener("it", 80, "");
    apply(&mut engine, &default_gateway(("evil", "edge"), 2020, &any));
    let waiting = route(("evil", "r"), 2020, "", "good.test");
    apply(&mut engine, &waiting);
    apply(&mut engine, &gateway(("shop", "edge"), 2024, &any));
    let parent = "{name: edge}";
    apply(
        &mut engine,
        &route(("shop", "r"), 2024, parent, "good.test"),
    );
    let own = [String::from("gateway/shop/edge/it")];
    assert_eq!(sections(&engine, "good.test"), own);
    let edited = waiting.replace("spec:\n", "spec:\n  useDefaultGateways: All\n");
    apply(&mut engine, &edited);
    assert_eq!(sections(&engine, "good.test"), own);
    let status = status(&engine, ObjectKind::HttpRoute, "evil", "r");
    assert_eq!(refusals(&status, "Accepted"), HOLDS);
}

#[test]
fn a_default_gateway_of_a_stranger_is_nothing_to_routes() {
    let measure = |routes: usize| {
        let mut engine = world::engine(Settings::default());
        let all: Vec<String> = (0..routes)
            .map(|number| default_route(&format!("r{number}"), &format!("h{number}.test")))
            .collect();
        apply(&mut engine, &all.join("---\n"));
        let edit = |host: &str| {
            let host = format!(", hostname: {host}");
            default_gateway(("evil", "edge"), 2021, &listener("it", 80, &host))
        };
        apply(&mut engine, &edit("a.test"));
        let work = work(&mut engine, &edit("b.test"));
        (work.units_translated, work.objects_visited)
    };
    assert_eq!(measure(2), measure(60));
}

#[test]
fn a_route_has_so_many_default_gateways_the_oldest_of_them() {
    let mut engine = world::engine(Settings::default());
    let place = |number: usize| format!("g{number:02}");
    for number in 0..DEFAULT_GATEWAYS_MAX + 8 {
        let host = format!(", hostname: h{number}.test");
        let listeners = listener("it", 80, &host);
        // The last by name is the oldest.
        let year = 2060 - u32::try_from(number).expect("a year");
        apply(
            &mut engine,
            &default_gateway(("shop", &place(number)), year, &listeners),
        );
    }
    apply(&mut engine, &default_route("web", "h11.test"));
    let status = status(&engine, ObjectKind::HttpRoute, "shop", "web");
    let State::Route(route) = &status.state else {
        panic!("the status of a route");
    };
    let names: Vec<&str> = route.parents.iter().map(|it| &*it.parent.name).collect();
    let oldest: Vec<String> = (8..DEFAULT_GATEWAYS_MAX + 8).rev().map(place).collect();
    assert_eq!(names, oldest);
    assert_eq!(
        refusals(&status, "Accepted").len(),
        DEFAULT_GATEWAYS_MAX - 1
    );
    assert_eq!(told(&engine, "is for the oldest default Gateways alone"), 1);
    for number in 0..8 {
        apply(
            &mut engine,
            &format!(
                "remove gateway.networking.k8s.io/v1/Gateway shop/{}",
                place(number)
            ),
        );
    }
    assert_eq!(told(&engine, "is for the oldest default Gateways alone"), 0);
}

#[test]
fn a_selector_is_compared_once_for_all_routes_of_a_namespace_in_a_batch() {
    let measure = |routes: usize| {
        let mut engine = world::engine(Settings::default());
        let values: Vec<String> = (0..256).map(|number| format!("v{number}")).collect();
        let values = values.join(", ");
        let conditions: Vec<String> = (0..16)
            .map(|number| format!("{{key: k{number}, operator: NotIn, values: [{values}]}}"))
            .collect();
        let conditions = conditions.join(", ");
        let listeners: String = (0..4)
            .map(|number| {
                format!(
                    "  - {{name: l{number}, port: {}, protocol: HTTP, allowedRoutes: \
                     {{namespaces: {{from: Selector, selector: {{matchExpressions: \
                     [{conditions}]}}}}}}}}\n",
                    9_000 + number
                )
            })
            .collect();
        apply(&mut engine, &gateway(("infra", "edge"), 2021, &listeners));
        let all: Vec<String> = (0..routes)
            .map(|number| {
                let name = format!("r{number}");
                let parent = "{name: edge, namespace: infra}";
                route(("shop", &name), 2022, parent, &format!("h{number}.test"))
            })
            .collect();
        let entries = work(&mut engine, &all.join("---\n")).entries_visited;
        let status = status(&engine, ObjectKind::HttpRoute, "shop", "r0");
        assert_eq!(refusals(&status, "Accepted"), HOLDS);
        entries
    };
    let few = measure(1);
    assert!(few >= 4 * 16 * 256, "{few}");
    assert_eq!(measure(30), few);
}
