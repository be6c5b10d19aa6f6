//! Routes and listeners that wait, and to which an edit of a Gateway lets come what they wait for:
//! whoever has that keeps it, however old they are.

use myriad_api::ObjectKind;
use myriad_translate::{Engine, Settings, View};

use super::bounds::OWN;
use super::work::{default_gateway, gateway, listener, nobody_is_unnamed, route, sections};
use super::{HOLDS, apply, object_of, refusals, status};
use crate::world;

/// How long it is remembered that a namespace lost a host, in seconds.
const LEFT_SECONDS_MAX: i64 = 600;

/// The most hosts that it is remembered of that a namespace lost.
const LAPSES_MAX: usize = 1_024;

/// The most hosts of a route.
const HOSTNAMES_MAX: usize = 16;

const EVIL: (&str, &str) = ("evil", "edge");
const SHOP: (&str, &str) = ("shop", "edge");

fn settings() -> Settings {
    Settings {
        late_claims: true,
        ..nobody_is_unnamed()
    }
}

/// An engine that has seen its first list, of nothing.
fn engine() -> Engine {
    let mut engine = world::engine(settings());
    apply(&mut engine, "");
    engine
}

/// The part of a socket of a namespace's Gateway.
fn part(namespace: &str) -> Vec<String> {
    vec![format!("gateway/{namespace}/edge/it")]
}

/// A route of a namespace at its own Gateway.
fn own_route(namespace: &str, year: u32) -> String {
    route((namespace, "r"), year, "{name: edge}", "good.test")
}

/// Several objects as one text.
fn together(objects: &[&str]) -> String {
    objects.join("---\n")
}

/// A Gateway that takes no HTTPRoutes.
fn closed(gateway: &str) -> String {
    gateway.replace("{from: All}}", "{from: All}, kinds: [{kind: GRPCRoute}]}")
}

/// Whether a new engine that is told of late claims has what an engine has.
fn is_as_fresh(engine: &Engine, objects: &[&str]) -> bool {
    let mut fresh = world::engine(settings());
    fresh.learn(engine.late_claims());
    apply(&mut fresh, &together(objects));
    fresh.snapshot().digest() == engine.snapshot().digest()
        && fresh.statuses().eq(engine.statuses())
        && fresh.late_claims() == engine.late_claims()
}

#[test]
fn an_old_route_takes_no_host_by_an_edit_of_its_gateway() {
    let any = listener("it", 80, "");
    let broken = any.replace("protocol: HTTP", "protocol: HTTPS");
    let of_others = listener("it", 80, ", hostname: '*.else.test'");
    let opened = gateway(EVIL, 2020, &any);
    let waits = own_route("evil", 2020);
    let by_default = waits
        .replace("{name: edge}", "")
        .replace("spec:\n", "spec:\n  useDefaultGateways: All\n");
    for (before, after, waiting) in [
        (
            opened.clone(),
            default_gateway(EVIL, 2020, &any),
            &by_default,
        ),
        (closed(&opened), opened.clone(), &waits),
        (gateway(EVIL, 2020, &broken), opened.clone(), &waits),
        (gateway(EVIL, 2020, &of_others), opened.clone(), &waits),
    ] {
        let mut engine = engine();
        let (shop, own) = (gateway(SHOP, 2024, &any), own_route("shop", 2024));
        for object in [&before, waiting, &shop, &own] {
            apply(&mut engine, object);
        }
        assert_eq!(sections(&engine, "good.test"), part("shop"));
        apply(&mut engine, &after);
        assert_eq!(sections(&engine, "good.test"), part("shop"), "{after}");
        assert!(is_as_fresh(&engine, &[&after, waiting, &shop, &own]));
        // What the owner leaves it may have.
        apply(&mut engine, "remove HTTPRoute shop/r");
        assert_eq!(sections(&engine, "good.test"), part("evil"), "{after}");
    }
}

#[test]
fn a_route_is_as_old_as_it_says_where_nobody_has_its_host_and_in_a_first_list() {
    let any = listener("it", 80, "");
    let (evil, shop) = (gateway(EVIL, 2020, &any), gateway(SHOP, 2024, &any));
    let (older, own) = (own_route("evil", 2020), own_route("shop", 2024));
    let mut engine = world::engine(settings());
    apply(&mut engine, &together(&[&older, &own, &shop, &evil]));
    assert_eq!(sections(&engine, "good.test"), part("evil"));
    assert_eq!(engine.usage().late_claims, 0);
    let mut engine = self::engine();
    for object in [&closed(&evil), &older, &evil, &shop, &own] {
        apply(&mut engine, object);
    }
    assert_eq!(sections(&engine, "good.test"), part("evil"));
    assert_eq!(engine.usage().late_claims, 0);
}

#[test]
fn who_loses_a_host_by_a_mistake_has_it_again_for_a_while() {
    let any = listener("it", 80, "");
    let (evil, shop) = (gateway(EVIL, 2024, &any), gateway(SHOP, 2021, &any));
    let (younger, own) = (own_route("evil", 2024), own_route("shop", 2021));
    let mut engine = engine();
    for object in [&evil, &younger, &shop, &own] {
        apply(&mut engine, object);
    }
    let mut at = |seconds: i64, text: &str| {
        engine.apply(world::changes(text), world::NOW + seconds);
        let count = engine.usage().late_claims;
        (sections(&engine, "good.test"), count)
    };
    assert_eq!(at(0, &closed(&shop)), (part("evil"), 0));
    assert_eq!(at(10, &shop), (part("shop"), 0));
    assert_eq!(at(20, &closed(&shop)), (part("evil"), 0));
    assert_eq!(at(20 + LEFT_SECONDS_MAX, &shop), (part("evil"), 1));
}

#[test]
fn a_gateway_that_is_made_anew_makes_none_of_its_routes_late() {
    let any = listener("it", 80, "");
    let of_all = ("infra", "edge");
    let at = "{name: edge, namespace: infra}";
    let mut engine = engine();
    let objects = [
        gateway(of_all, 2020, &any),
        route(("shop", "r"), 2021, at, "good.test"),
        route(("blog", "r"), 2022, at, "good.test"),
        gateway(EVIL, 2023, &any),
        own_route("evil", 2023),
    ];
    for object in &objects {
        apply(&mut engine, object);
    }
    assert_eq!(sections(&engine, "good.test"), part("infra"));
    apply(
        &mut engine,
        "remove gateway.networking.k8s.io/v1/Gateway infra/edge",
    );
    assert_eq!(sections(&engine, "good.test"), part("evil"));
    apply(&mut engine, &gateway(of_all, 2026, &any));
    assert_eq!(sections(&engine, "good.test"), part("evil"));
    assert_eq!(engine.usage().late_claims, 0);
}

#[test]
fn another_gateway_that_opens_makes_no_route_younger_at_the_first() {
    let any = listener("it", 80, "");
    let both = "{name: edge, namespace: infra}, {name: edge, namespace: more}";
    let other = gateway(("more", "edge"), 2020, &any);
    let mut engine = engine();
    let objects = [
        gateway(("infra", "edge"), 2020, &any),
        closed(&other),
        route(("shop", "r"), 2021, both, "good.test"),
        gateway(EVIL, 2024, &any),
        own_route("evil", 2024),
        other,
    ];
    for object in &objects {
        apply(&mut engine, object);
    }
    assert_eq!(sections(&engine, "good.test"), part("infra"));
    // It is late at the other one alone.
    let noted = engine.late_claims().objects;
    let noted: Vec<String> = noted
        .iter()
        .flat_map(|it| it.claims.iter().map(|(claimed, _)| claimed.to_string()))
        .collect();
    assert_eq!(noted, ["good.test@more"]);
}

#[test]
fn a_route_at_a_shared_gateway_takes_its_host_to_none_of_its_own() {
    let any = listener("it", 80, "");
    let own = gateway(EVIL, 2020, &any);
    let both = "{name: edge, namespace: infra}, {name: edge}";
    let shared = gateway(("infra", "edge"), 2021, &any);
    // It was first there, and others came to the host at the same Gateway.
    let first = route(("evil", "r"), 2022, both, "good.test");
    let at = "{name: edge, namespace: infra}";
    let other = route(("shop", "r"), 2023, at, "good.test");
    let opened = [
        // By an edit of the Gateway, and by one of the route.
        [closed(&own), first.clone(), own.clone()],
        [own.clone(), first.replace(both, at), first.clone()],
    ];
    for [gateway, route, opens] in opened {
        let mut engine = engine();
        for object in [&shared, &gateway, &route, &other] {
            apply(&mut engine, object);
        }
        assert_eq!(sections(&engine, "good.test"), part("infra"));
        apply(&mut engine, &opens);
        assert_eq!(sections(&engine, "good.test"), part("infra"), "{opens}");
        assert!(is_as_fresh(&engine, &[&shared, &own, &first, &other]));
        // What leaves the shared one does not take the host along.
        let left = first.replace(both, "{name: edge}");
        apply(&mut engine, &left);
        assert_eq!(sections(&engine, "good.test"), part("infra"), "{opens}");
        assert!(is_as_fresh(&engine, &[&shared, &own, &left, &other]));
        apply(&mut engine, "remove HTTPRoute shop/r");
        assert_eq!(sections(&engine, "good.test"), part("evil"), "{opens}");
    }
}

/// A ListenerSet of a namespace at its own Gateway.
fn own_set(namespace: &str, year: u32) -> String {
    let listener = listener("own", 80, ", hostname: good.test");
    let spec = format!("  parentRef: {{name: edge}}\n  listeners:\n{listener}");
    object_of("ListenerSet", (namespace, "s"), year, &spec)
}

/// A Gateway that takes ListenerSets.
fn with_sets(gateway: &str) -> String {
    gateway.replace(
        "  listeners:",
        "  allowedListeners: {namespaces: {from: Same}}\n  listeners:",
    )
}

#[test]
fn an_old_listener_set_takes_no_host_by_an_edit_of_its_gateway() {
    let of_others = listener("it", 80, ", hostname: '*.else.test'");
    let evil = gateway(EVIL, 2020, &of_others);
    let named = listener("it", 80, ", hostname: good.test");
    let shop = gateway(SHOP, 2024, &named);
    let waits = own_set("evil", 2020);
    let mut engine = engine();
    for object in [&evil, &waits, &shop] {
        apply(&mut engine, object);
    }
    assert_eq!(sections(&engine, "good.test"), part("shop"));
    let opened = with_sets(&evil);
    apply(&mut engine, &opened);
    assert_eq!(sections(&engine, "good.test"), part("shop"));
    assert!(is_as_fresh(&engine, &[&opened, &waits, &shop]));
    // Nor by one that keeps it out for a moment.
    apply(&mut engine, &evil);
    apply(&mut engine, &opened);
    assert_eq!(sections(&engine, "good.test"), part("shop"));
    apply(
        &mut engine,
        "remove gateway.networking.k8s.io/v1/Gateway shop/edge",
    );
    let own = vec!["listenerset/evil/s/own".to_owned()];
    assert_eq!(sections(&engine, "good.test"), own);
    // Who has it keeps it.
    apply(&mut engine, &gateway(SHOP, 2040, &named));
    assert_eq!(sections(&engine, "good.test"), own);
}

#[test]
fn an_old_listener_set_takes_no_port_by_an_edit_of_its_gateway() {
    let db = "  - {name: db, port: 5432, protocol: TCP}\n";
    let evil = gateway(EVIL, 2020, &listener("it", 80, ", hostname: '*.else.test'"));
    let spec = format!("  parentRef: {{name: edge}}\n  listeners:\n{db}");
    let waits = object_of("ListenerSet", ("evil", "s"), 2020, &spec);
    let (shop, opened) = (gateway(SHOP, 2024, db), with_sets(&evil));
    let mut engine = engine();
    for object in [&evil, &waits, &shop] {
        apply(&mut engine, object);
    }
    let refused = |engine: &Engine, kind, namespace, name| {
        refusals(&status(engine, kind, namespace, name), "Accepted")
    };
    for text in [&opened, &evil, &opened] {
        apply(&mut engine, text);
        let of_shop = refused(&engine, ObjectKind::Gateway, "shop", "edge");
        assert_eq!(of_shop, HOLDS, "{text}");
    }
    assert!(is_as_fresh(&engine, &[&opened, &waits, &shop]));
    // What the owner leaves it may have.
    let left = shop.replace("gatewayClassName: myriad", "gatewayClassName: none");
    apply(&mut engine, &left);
    let of_evil = refused(&engine, ObjectKind::ListenerSet, "evil", "s");
    assert_eq!(of_evil, HOLDS);
}

#[test]
fn who_loses_the_host_of_a_listener_by_a_mistake_has_it_again_for_a_while() {
    let of_others = listener("it", 80, ", hostname: '*.else.test'");
    let shop = gateway(SHOP, 2021, &of_others);
    let (opened, own) = (with_sets(&shop), own_set("shop", 2021));
    let evil = gateway(EVIL, 2024, &listener("it", 80, ", hostname: good.test"));
    let mut engine = engine();
    for object in [&opened, &own, &evil] {
        apply(&mut engine, object);
    }
    let of_shop = vec!["listenerset/shop/s/own".to_owned()];
    assert_eq!(sections(&engine, "good.test"), of_shop);
    let mut at = |seconds: i64, text: &str| {
        engine.apply(world::changes(text), world::NOW + seconds);
        let count = engine.usage().late_claims;
        (sections(&engine, "good.test"), count)
    };
    assert_eq!(at(0, &shop), (part("evil"), 0));
    assert_eq!(at(10, &opened), (of_shop, 0));
    assert_eq!(at(20, &shop), (part("evil"), 0));
    assert_eq!(at(20 + LEFT_SECONDS_MAX, &opened), (part("evil"), 1));
}

#[test]
fn what_a_gateway_has_at_proxies_of_its_own_it_has_nowhere_else() {
    let named = "  - {name: it, port: 80, protocol: HTTP, hostname: good.test}\n  - {name: db, \
                 port: 5432, protocol: TCP}\n";
    let at = |place, year, class: &str| {
        gateway(place, year, named).replace("gatewayClassName: myriad", class)
    };
    let (own, shared) = ("gatewayClassName: own", "gatewayClassName: myriad");
    let mut engine = world::engine(Settings {
        views: vec![View::dedicated("evil", "edge")],
        ..settings()
    });
    apply(&mut engine, OWN);
    apply(&mut engine, &at(EVIL, 2020, own));
    apply(&mut engine, &at(SHOP, 2024, shared));
    assert_eq!(sections(&engine, "good.test"), part("shop"));
    apply(&mut engine, &at(EVIL, 2020, shared));
    assert_eq!(sections(&engine, "good.test"), part("shop"));
    let shop = status(&engine, ObjectKind::Gateway, "shop", "edge");
    assert_eq!(refusals(&shop, "Accepted"), HOLDS);
    // One that had both there before has them, whatever its class is called.
    let same = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: \
                same}\nspec: {controllerName: myriad.dev/gateway-controller}\n";
    apply(&mut engine, same);
    let same = at(SHOP, 2024, "gatewayClassName: same");
    apply(&mut engine, &same);
    assert_eq!(sections(&engine, "good.test"), part("shop"));
    let shop = status(&engine, ObjectKind::Gateway, "shop", "edge");
    assert_eq!(refusals(&shop, "Accepted"), HOLDS);
}

#[test]
fn hosts_to_which_routes_come_so_are_late_claims_in_the_bound_of_their_namespace() {
    let any = listener("it", 80, "");
    let mut settings = settings();
    settings.bounds.late_claims = 1;
    let mut engine = world::engine(settings);
    apply(&mut engine, "");
    let hosts = "a.test, b.test";
    let evil = gateway(EVIL, 2020, &any);
    for object in [
        closed(&evil),
        route(("evil", "r"), 2020, "{name: edge}", hosts),
        gateway(SHOP, 2024, &any),
        route(("shop", "r"), 2024, "{name: edge}", hosts),
        evil,
    ] {
        apply(&mut engine, &object);
    }
    for host in ["a.test", "b.test"] {
        assert_eq!(sections(&engine, host), part("shop"));
    }
    // It has come to more than may be noted, so that nothing is.
    assert_eq!(engine.usage().late_claims, 0);
    assert_eq!(engine.late_claims().beyond.len(), 1);
}

#[test]
fn a_route_is_no_older_at_an_old_gateway_than_where_it_is_already() {
    let any = listener("it", 80, "");
    let old = gateway(("evil", "old"), 2020, &any);
    let both = "{name: old}, {name: edge}";
    let mut engine = engine();
    let objects = [
        gateway(SHOP, 2024, &any),
        own_route("shop", 2024),
        closed(&old),
        gateway(EVIL, 2026, &any),
        route(("evil", "r"), 2020, both, "good.test"),
        old,
    ];
    for object in &objects {
        apply(&mut engine, object);
    }
    assert_eq!(sections(&engine, "good.test"), part("shop"));
    assert_eq!(engine.usage().late_claims, 1);
}

#[test]
fn what_one_tenant_of_a_gateway_loses_takes_no_place_of_anothers() {
    let any = listener("it", 80, "");
    let shared = gateway(("infra", "edge"), 2020, &any);
    let at = "{name: edge, namespace: infra}";
    let mut engine = engine();
    for object in [
        shared.clone(),
        route(("shop", "r"), 2021, at, "good.test"),
        gateway(EVIL, 2024, &any),
        own_route("evil", 2024),
    ] {
        apply(&mut engine, &object);
    }
    assert_eq!(sections(&engine, "good.test"), part("infra"));
    // More than is remembered of one namespace.
    let routes = LAPSES_MAX / HOSTNAMES_MAX + 1;
    let crowd: Vec<String> = (0..routes)
        .map(|number| {
            let hosts = (0..HOSTNAMES_MAX).map(|host| format!("'*.h{host}.r{number}.test'"));
            let hosts: Vec<String> = hosts.collect();
            let name = format!("r{number}");
            route(("crowd", &name), 2022, at, &hosts.join(", "))
        })
        .collect();
    apply(&mut engine, &crowd.join("---\n"));
    let gone: String = (0..routes)
        .map(|number| format!("remove HTTPRoute crowd/r{number}\n"))
        .collect();
    apply(&mut engine, &gone);
    apply(&mut engine, &closed(&shared));
    assert_eq!(sections(&engine, "good.test"), part("evil"));
    apply(&mut engine, &shared);
    assert_eq!(sections(&engine, "good.test"), part("infra"));
    assert_eq!(engine.usage().late_claims, 0);
}

#[test]
fn whether_others_had_a_host_depends_on_no_order_in_a_batch() {
    let any = listener("it", 80, "");
    let evil = gateway(EVIL, 2020, &any);
    // One runs before what wakes, and one behind it.
    for owner in ["blog", "shop"] {
        let mut engine = engine();
        for object in [
            closed(&evil),
            own_route("evil", 2020),
            gateway((owner, "edge"), 2024, &any),
            own_route(owner, 2024),
        ] {
            apply(&mut engine, &object);
        }
        assert_eq!(sections(&engine, "good.test"), part(owner));
        let gone = format!("remove HTTPRoute {owner}/r\n");
        apply(&mut engine, &together(&[&evil, &gone]));
        assert_eq!(sections(&engine, "good.test"), part("evil"));
        assert_eq!(engine.usage().late_claims, 1, "{owner}");
    }
}
