//! The rows that routes have at the parts of sockets: none where they would never be asked, and no
//! more than their namespaces pay for.

use std::collections::BTreeSet;

use myriad_model::{Action, RedirectTarget, Value};
use myriad_translate::{Engine, HostSharing, Settings};

use super::{apply, object_of, plain, told};
use crate::world;

/// The most ports of which each has rows of its own for a redirect that names none.
const PORTS_MAX: u16 = 8;

fn settings() -> Settings {
    world::settings("# with gateway-ports=8000-9000")
}

/// A Gateway of a namespace, with its listeners.
fn gateway(namespace: &str, year: u32, listeners: &str) -> String {
    let spec = format!("  gatewayClassName: myriad\n  listeners:\n{listeners}");
    object_of("Gateway", (namespace, "own"), year, &spec)
}

/// A route of a kind for hosts at that Gateway.
fn route(kind: &str, namespace: &str, year: u32, hosts: &str) -> String {
    let spec = format!(
        "  parentRefs: [{{name: own}}]\n  hostnames: [{hosts}]\n  rules: [{{backendRefs: \
         [{{name: web, port: 80}}]}}]\n"
    );
    object_of(kind, (namespace, "web"), year, &spec)
}

/// The parts of sockets where there are rows for a host.
fn parts(engine: &Engine, host: &str) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    for sealed in engine.snapshot().iter() {
        let routes = sealed.routes().map(|it| (&it.hosts[..], it.listeners));
        let streams = sealed.stream_route();
        let streams = streams.map(|it| (&it.hosts[..], &it.listeners));
        for (hosts, listeners) in routes.chain(streams) {
            if hosts.iter().any(|it| it.as_str() == host) {
                parts.extend(listeners.iter().map(ToString::to_string));
            }
        }
    }
    parts
}

fn set(parts: &[&str]) -> BTreeSet<String> {
    parts.iter().map(|it| (*it).to_owned()).collect()
}

/// The host of shop at its Gateway, and the younger Gateway of blog with routes for it.
fn two(settings: Settings) -> Engine {
    let mut engine = world::engine(settings);
    apply(
        &mut engine,
        &gateway("shop", 2021, &plain("it", "shop.test")),
    );
    apply(&mut engine, &route("HTTPRoute", "shop", 2021, "shop.test"));
    let all = plain("all", "'*.test'");
    let own = format!("{all}  - {{name: other, port: 8080, protocol: HTTP}}\n");
    apply(&mut engine, &gateway("blog", 2022, &own));
    let hosts = "shop.test, blog.test";
    apply(&mut engine, &route("HTTPRoute", "blog", 2022, hosts));
    engine
}

const OF_SHOP: &str = "gateway/shop/own/it";
const OF_BLOG: [&str; 2] = ["gateway/blog/own/all", "gateway/blog/own/other"];

#[test]
fn a_stranger_has_no_rows_for_a_host_until_nobody_else_has_it() {
    let mut engine = two(settings());
    assert_eq!(parts(&engine, "shop.test"), set(&[OF_SHOP]));
    assert_eq!(parts(&engine, "blog.test"), set(&OF_BLOG));
    apply(
        &mut engine,
        "remove gateway.networking.k8s.io/v1/Gateway shop/own",
    );
    assert_eq!(parts(&engine, "shop.test"), set(&OF_BLOG));
    let engine = two(Settings {
        host_sharing: HostSharing::Cluster,
        ..settings()
    });
    let all = [OF_SHOP, OF_BLOG[0], OF_BLOG[1]];
    assert_eq!(parts(&engine, "shop.test"), set(&all));
}

#[test]
fn a_stranger_has_no_rows_for_a_host_that_one_route_of_its_owner_enters_very_often() {
    for listeners in [1, 64] {
        let mut engine = world::engine(settings());
        let listener = |port: u16| format!("  - {{name: p{port}, port: {port}, protocol: HTTP}}\n");
        let all: String = (8_000..8_000 + listeners).map(listener).collect();
        let other = "  - {name: other, port: 8999, protocol: HTTP}\n";
        for (namespace, year, own) in [("shop", 2021, &*all), ("blog", 2022, other)] {
            apply(&mut engine, &gateway(namespace, year, own));
            apply(
                &mut engine,
                &route("HTTPRoute", namespace, year, "shop.test"),
            );
        }
        let found = parts(&engine, "shop.test");
        assert_eq!(found.len(), usize::from(listeners), "{found:?}");
        assert!(found.iter().all(|it| it.starts_with("gateway/shop/")));
    }
}

#[test]
fn who_comes_and_goes_in_vain_runs_no_rows_of_the_owner() {
    let measure = |routes: u32| {
        let mut engine = world::engine(settings());
        let own = gateway("shop", 2021, &plain("it", "shop.test"));
        apply(&mut engine, &own);
        for number in 0..routes {
            let name = format!("name: web{number}, creation");
            let route = route("HTTPRoute", "shop", 2021, "shop.test");
            apply(&mut engine, &route.replace("name: web, creation", &name));
        }
        let stranger = |host: &str| gateway("blog", 2022, &plain("it", host));
        apply(&mut engine, &stranger("else.test"));
        let hosts = ["shop.test", "else.test", "shop.test"];
        hosts.map(|host| {
            let changes = world::changes(&stranger(host));
            engine.apply(changes, world::NOW).work.units_translated
        })
    };
    assert_eq!(measure(2), measure(40));
}

/// Whether there is a domain of shop's listener for its host.
fn has_domain(engine: &Engine) -> bool {
    engine.snapshot().iter().any(|sealed| {
        sealed.resource().is_some_and(|it| match &it.value {
            Value::Domain(domain) => {
                let section = domain.section.as_ref().map(ToString::to_string);
                domain.host.as_str() == "shop.test" && section.as_deref() == Some(OF_SHOP)
            }
            _ => false,
        })
    })
}

#[test]
fn who_takes_a_host_over_answers_for_it_at_once_however_little_time_there_is() {
    for mut left in 0..8_usize {
        let mut engine = two(settings());
        assert!(has_domain(&engine));
        let removed = "remove gateway.networking.k8s.io/v1/Gateway shop/own";
        for change in world::changes(removed) {
            engine.take_in(change, world::NOW);
        }
        let mut has_time = || {
            let has_time = left > 0;
            left = left.saturating_sub(1);
            has_time
        };
        engine.apply_taken_in_while(world::NOW, &mut has_time);
        loop {
            let parts = parts(&engine, "shop.test");
            assert!(has_domain(&engine) || parts.is_superset(&set(&OF_BLOG)));
            if !engine.has_postponed() {
                break;
            }
            engine.work_off(world::NOW, &mut || false, &|_| true);
        }
        assert_eq!(parts(&engine, "shop.test"), set(&OF_BLOG));
    }
}

#[test]
fn a_namespace_has_no_rows_for_hosts_that_it_may_not_claim() {
    let mut engine = two(Settings {
        tenants: world::tenants("shop shop.test;blog blog.test"),
        ..settings()
    });
    // Nor at a listener whose own host it may not claim.
    let of_blog = set(&OF_BLOG[1..]);
    assert_eq!(parts(&engine, "blog.test"), of_blog);
    assert_eq!(parts(&engine, "shop.test"), set(&[OF_SHOP]));
    apply(
        &mut engine,
        "remove gateway.networking.k8s.io/v1/Gateway shop/own",
    );
    assert_eq!(parts(&engine, "shop.test"), set(&[]));
    assert_eq!(parts(&engine, "blog.test"), of_blog);
}

#[test]
fn a_stranger_has_no_stream_rows_for_a_host() {
    let listener = |name: &str, port: u16, host: &str| {
        format!(
            "  - {{name: {name}, port: {port}, protocol: TLS, hostname: {host}, tls: \
             {{mode: Passthrough}}}}\n"
        )
    };
    let mut engine = world::engine(settings());
    let own = listener("it", 443, "shop.test");
    apply(&mut engine, &gateway("shop", 2021, &own));
    apply(&mut engine, &route("TLSRoute", "shop", 2021, "shop.test"));
    let own = listener("all", 8443, "'*.test'");
    apply(&mut engine, &gateway("blog", 2022, &own));
    let hosts = "shop.test, blog.test";
    apply(&mut engine, &route("TLSRoute", "blog", 2022, hosts));
    assert_eq!(parts(&engine, "shop.test"), set(&[OF_SHOP]));
    assert_eq!(parts(&engine, "blog.test"), set(&OF_BLOG[..1]));
}

#[test]
fn rows_come_back_once_a_listener_can_be_told_apart_again() {
    let mut engine = world::engine(settings());
    let one = plain("it", "shop.test");
    let both = format!("{one}{}", plain("other", "shop.test"));
    apply(&mut engine, &gateway("shop", 2021, &both));
    let route = route("HTTPRoute", "shop", 2021, "shop.test");
    apply(
        &mut engine,
        &route.replace("{name: own}", "{name: own, sectionName: it}"),
    );
    assert_eq!(parts(&engine, "shop.test"), set(&[]));
    apply(&mut engine, &gateway("shop", 2021, &one));
    assert_eq!(parts(&engine, "shop.test"), set(&[OF_SHOP]));
    apply(&mut engine, &gateway("shop", 2021, &both));
    assert_eq!(parts(&engine, "shop.test"), set(&[]));
}

/// The ports of the redirects of a route that names none, at a Gateway with so many ports: of each
/// row, and whether it keeps that of the request.
fn redirects(engine: &mut Engine, ports: u16) -> Vec<(Option<u16>, bool)> {
    let listener = |port: u16| format!("  - {{name: p{port}, port: {port}, protocol: HTTP}}\n");
    let listeners: String = (8_001..=8_000 + ports).map(listener).collect();
    apply(engine, &gateway("shop", 2021, &listeners));
    let snapshot = engine.snapshot();
    let routes = snapshot.iter().flat_map(|sealed| sealed.routes());
    let found = routes.filter_map(|route| match route.action {
        Action::Redirect(redirect) => match &redirect.target {
            RedirectTarget::Parts(parts) => Some((parts.port, parts.keeps_port)),
            _ => None,
        },
        _ => None,
    });
    let mut found: Vec<(Option<u16>, bool)> = found.collect();
    found.sort_unstable();
    found
}

#[test]
fn a_redirect_without_a_port_has_rows_for_so_many_ports_and_beyond_one() {
    let mut engine = world::engine(settings());
    let spec = "  parentRefs: [{name: own}]\n  hostnames: [shop.test]\n  rules: [{filters: \
                [{type: RequestRedirect, requestRedirect: {hostname: b.test}}]}]\n";
    apply(
        &mut engine,
        &object_of("HTTPRoute", ("shop", "web"), 2021, spec),
    );
    let each = |ports: u16| -> Vec<(Option<u16>, bool)> {
        (8_001..=8_000 + ports)
            .map(|port| (Some(port), false))
            .collect()
    };
    assert_eq!(redirects(&mut engine, PORTS_MAX), each(PORTS_MAX));
    assert_eq!(told(&engine, "leads clients to the port"), 0);
    assert_eq!(redirects(&mut engine, PORTS_MAX + 1), [(None, true)]);
    assert_eq!(told(&engine, "leads clients to the port"), 1);
    assert_eq!(redirects(&mut engine, 62), [(None, true)]);
    assert_eq!(redirects(&mut engine, 1), each(1));
}
