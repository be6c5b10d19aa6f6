//! Work per change with many tenants at one Gateway, counted at two sizes: it may not depend on how
//! many there are, by proxies that all Gateways share or by those of the Gateway alone.

use std::sync::{Arc, LazyLock};

use myriad_api::gateway::{HttpRoute, ListenerSet};
use myriad_api::{Change, Meta, Object, ObjectKey, ObjectKind, Secret};
use myriad_translate::{Engine, Settings, View, Work};

use crate::scale::{put, service, slice};
use crate::world;

/// The tenants of the two worlds.
const SIZES: [usize; 2] = [20, 2_000];

/// More units than any change of one object may run.
const UNITS_MAX: u64 = 16;

/// The Gateway of all tenants, with a listener that takes their routes, and its class.
const GATEWAY: [&str; 3] = [
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: infra, name: own}\ndata: \
     {myriad-gateway-mode: dedicated}\n",
    "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: own}\nspec: \
     {controllerName: myriad.dev/gateway-controller, parametersRef: {group: '', kind: ConfigMap, \
     namespace: infra, name: own}}\n",
    "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {namespace: infra, name: \
     edge}\nspec:\n  gatewayClassName: CLASS\n  allowedListeners: {namespaces: {from: All}}\n  \
     listeners: [{name: all, port: 80, protocol: HTTP, hostname: '*.shared.example', \
     allowedRoutes: {namespaces: {from: All}}}]\n",
];

static SET: LazyLock<Arc<ListenerSet>> = LazyLock::new(|| {
    let listener = |number: usize| {
        format!(
            "  - {{name: l{number}, port: 443, protocol: HTTPS, hostname: a.example, tls: \
             {{certificateRefs: [{{name: tls}}]}}}}\n"
        )
    };
    let listeners: String = (0..4).map(listener).collect();
    let text = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{namespace: t, \
         name: own}}\nspec:\n  parentRef: {{name: edge, namespace: infra}}\n  listeners:\n\
         {listeners}"
    );
    match world::object(&text) {
        Object::ListenerSet(set) => set,
        other => panic!("{}", other.key()),
    }
});

/// Routes of a tenant: at its ListenerSet, and at the listener that all share.
static ROUTES: LazyLock<[Arc<HttpRoute>; 2]> = LazyLock::new(|| {
    let parents = [
        "{kind: ListenerSet, name: own}",
        "{name: edge, namespace: infra}",
    ];
    parents.map(|parent| {
        let text = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{namespace: t, \
             name: r}}\nspec:\n  parentRefs: [{parent}]\n  rules: [{{matches: [{{path: {{value: \
             /}}}}], backendRefs: [{{name: web, port: 80}}]}}]\n"
        );
        match world::object(&text) {
            Object::HttpRoute(route) => route,
            other => panic!("{}", other.key()),
        }
    })
});

fn space(tenant: usize) -> String {
    format!("t{tenant:07}")
}

fn meta(kind: ObjectKind, tenant: usize, name: &str) -> Meta {
    Meta::new(ObjectKey::new(kind, &space(tenant), name))
}

/// The ListenerSet of a tenant, whose first listener has another host by another `word`.
fn set(tenant: usize, word: &str) -> Object {
    let mut set = ListenerSet::clone(&SET);
    set.meta = meta(ObjectKind::ListenerSet, tenant, "own");
    for (number, listener) in set.spec.listeners.iter_mut().enumerate() {
        let word = if number == 0 { word } else { "l" };
        listener.hostname = Some(format!("{word}{number}.{}.example", space(tenant)).into());
    }
    Object::ListenerSet(Arc::new(set))
}

/// A route of a tenant, at its own ListenerSet or at the shared listener, below a path.
fn route(tenant: usize, is_shared: bool, path: &str) -> Object {
    let mut route = HttpRoute::clone(&ROUTES[usize::from(is_shared)]);
    let name = if is_shared { "shared" } else { "own" };
    route.meta = meta(ObjectKind::HttpRoute, tenant, name);
    if is_shared {
        route.spec.hostnames = [format!("{}.shared.example", space(tenant)).into()].into();
    }
    let paths = route.spec.rules.iter_mut();
    let paths = paths.flat_map(|rule| rule.matches.iter_mut());
    for found in paths.filter_map(|it| it.path.as_mut()) {
        found.value = Some(path.into());
    }
    Object::HttpRoute(Arc::new(route))
}

/// All objects of a tenant.
fn tenant(number: usize, pair: &Secret) -> Vec<Object> {
    let secret = Secret {
        meta: meta(ObjectKind::Secret, number, "tls"),
        ..pair.clone()
    };
    let endpoints = slice(meta(ObjectKind::EndpointSlice, number, "web"), "web", 80);
    vec![
        set(number, "l"),
        route(number, false, "/"),
        route(number, true, "/"),
        Object::Service(Arc::new(service(meta(ObjectKind::Service, number, "web")))),
        Object::EndpointSlice(Arc::new(endpoints)),
        Object::Secret(Arc::new(secret)),
    ]
}

/// A world of so many tenants.
fn world_of(n: usize, is_dedicated: bool, pair: &Secret) -> Engine {
    let views = match is_dedicated {
        true => vec![View::dedicated("infra", "edge")],
        false => Vec::new(),
    };
    let mut engine = world::engine(Settings {
        views,
        ..Settings::default()
    });
    let class = if is_dedicated { "own" } else { "myriad" };
    let objects = GATEWAY.map(|text| world::object(&text.replace("CLASS", class)));
    put(&mut engine, objects.into());
    for number in 0..n {
        put(&mut engine, tenant(number, pair));
    }
    engine
}

/// The work of one change of each kind beside `n` tenants, by what changes.
fn measure(n: usize, is_dedicated: bool) -> Vec<(&'static str, Work)> {
    let pair = world::secret("<certificate *.example>", "<key *.example>", None);
    let renewed = world::secret("<certificate *.example ending>", "<key *.example>", None);
    let mut engine = world_of(n, is_dedicated, &pair);
    let (one, came) = (n / 2, n / 2 * 10 + 5_000_000);
    let mut more_ports = service(meta(ObjectKind::Service, one, "web"));
    let mut ports = more_ports.ports.to_vec();
    ports.extend(more_ports.ports.iter().cloned());
    ports[1].name = "more".into();
    ports[1].port = 81;
    more_ports.ports = ports.into();
    let moved = slice(meta(ObjectKind::EndpointSlice, one, "web"), "web", 81);
    let renewal = Secret {
        meta: meta(ObjectKind::Secret, one, "tls"),
        ..renewed
    };
    let gone = Change::Remove(ObjectKey::new(ObjectKind::Secret, &space(one), "tls"));
    let mut counted = Vec::new();
    let mut apply = |what: &'static str, changes: Vec<Change>| {
        counted.push((what, engine.apply(changes, world::NOW).work));
    };
    let puts =
        |objects: Vec<Object>| -> Vec<Change> { objects.into_iter().map(Change::Put).collect() };
    apply("a ListenerSet", puts(vec![set(one, "m")]));
    apply("a route at it", puts(vec![route(one, false, "/more")]));
    apply(
        "a route at the shared",
        puts(vec![route(one, true, "/more")]),
    );
    apply(
        "a Service",
        puts(vec![Object::Service(Arc::new(more_ports))]),
    );
    apply(
        "endpoints",
        puts(vec![Object::EndpointSlice(Arc::new(moved))]),
    );
    apply("a renewal", puts(vec![Object::Secret(Arc::new(renewal))]));
    apply("a Secret that goes", vec![gone]);
    apply("a new tenant", puts(tenant(came, &pair)));
    let removals = tenant(one, &pair).into_iter();
    let removals = removals.map(|object| Change::Remove(object.key().clone()));
    apply("a tenant that goes", removals.collect());
    counted
}

fn check(is_dedicated: bool) {
    let [few, many] = SIZES.map(|n| measure(n, is_dedicated));
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        assert_eq!(few, many, "{what}");
        let units = few.units_translated;
        let is_bounded = units <= UNITS_MAX || what.contains("tenant") || what.contains("Secret");
        assert!(is_bounded, "{what}: {units} units");
        let is_told = few.resources_changed > 0 || *what == "a Service";
        assert!(is_told, "{what} changes something");
    }
}

#[test]
fn a_change_costs_what_it_is_with_proxies_that_are_shared() {
    check(false);
}

#[test]
fn a_change_costs_what_it_is_with_proxies_of_the_gateway_alone() {
    check(true);
}
