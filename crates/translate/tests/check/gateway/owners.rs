//! Whose a host is at Gateways that share proxies, or at one that tenants share: who had it first
//! keeps it from older objects that are edited, and who may not have it stands in nobody's way.

use std::collections::BTreeSet;

use myriad_api::ObjectKind;
use myriad_model::Value;
use myriad_translate::{CatchAll, Engine, HostSharing, Role, Settings, View};

use super::{HOLDS, apply, object_of, plain, refusals, status, told};
use crate::world;

const TAKEN: [(&str, &str); 1] = [("it", "HostnameConflict")];

fn engine(settings: Settings) -> Engine {
    let mut engine = world::engine(Settings {
        late_claims: true,
        ..settings
    });
    // The first list has been seen, and has the Gateway of all ListenerSets.
    let spec = format!(
        "  gatewayClassName: myriad\n  allowedListeners: {{namespaces: {{from: All}}}}\n  \
         listeners:\n{}",
        plain("all", "'*.shared.test'")
    );
    let infra = object_of("Gateway", ("infra", "edge"), 2020, &spec);
    let web = "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\nspec: \
               {ports: [{name: http, port: 80}]}\n";
    apply(&mut engine, &format!("{infra}---\n{web}"));
    engine
}

/// A Gateway or a ListenerSet with one listener.
fn entity(kind: ObjectKind, namespace: &str, year: u32, host: &str) -> String {
    let of = match kind {
        ObjectKind::Gateway => "gatewayClassName: myriad",
        _ => "parentRef: {name: edge, namespace: infra}",
    };
    let spec = format!("  {of}\n  listeners:\n{}", plain("it", host));
    object_of(kind.as_str(), (namespace, "own"), year, &spec)
}

/// The reasons for which the listener of a namespace is not accepted.
fn kept_out(engine: &Engine, kind: ObjectKind, namespace: &str) -> Vec<(String, &'static str)> {
    refusals(&status(engine, kind, namespace, "own"), "Accepted")
}

fn check_edits(kind: ObjectKind) {
    let taken = TAKEN.map(|(name, reason)| (name.to_owned(), reason));
    let mut engine = engine(Settings::default());
    apply(&mut engine, &entity(kind, "shop", 2021, "shop.test"));
    apply(&mut engine, &entity(kind, "blog", 2026, "blog.test"));
    let edited = entity(kind, "shop", 2021, "blog.test");
    apply(&mut engine, &edited);
    assert_eq!(kept_out(&engine, kind, "blog"), HOLDS);
    assert_eq!(kept_out(&engine, kind, "shop"), taken);
    // Another edit makes it no older, and what is left it may have.
    apply(
        &mut engine,
        &edited.replace("generation: 1", "generation: 2"),
    );
    assert_eq!(kept_out(&engine, kind, "blog"), HOLDS);
    apply(&mut engine, &entity(kind, "blog", 2026, "else.test"));
    assert_eq!(kept_out(&engine, kind, "shop"), HOLDS);
    // Who comes after the edit is younger than it, and so is who comes back.
    apply(&mut engine, &entity(kind, "late", 2040, "blog.test"));
    assert_eq!(kept_out(&engine, kind, "late"), taken);
    apply(&mut engine, &entity(kind, "blog", 2026, "blog.test"));
    assert_eq!(kept_out(&engine, kind, "blog"), taken);
    assert_eq!(kept_out(&engine, kind, "shop"), HOLDS);
}

#[test]
fn an_old_gateway_takes_no_host_by_an_edit() {
    check_edits(ObjectKind::Gateway);
}

#[test]
fn an_old_listener_set_takes_no_host_by_an_edit() {
    check_edits(ObjectKind::ListenerSet);
}

#[test]
fn who_may_not_have_a_host_keeps_nobody_from_it() {
    for kind in [ObjectKind::Gateway, ObjectKind::ListenerSet] {
        let mut engine = engine(Settings {
            tenants: world::tenants("shop shop.test;blog blog.test"),
            ..Settings::default()
        });
        apply(&mut engine, &entity(kind, "shop", 2021, "blog.test"));
        apply(&mut engine, &entity(kind, "blog", 2026, "blog.test"));
        assert_eq!(kept_out(&engine, kind, "blog"), HOLDS);
        let refused = [("it".to_owned(), "UnsupportedValue")];
        assert_eq!(kept_out(&engine, kind, "shop"), refused);
        assert_eq!(told(&engine, "spec.listeners[0].hostname"), 1);
    }
}

/// The parts of sockets by which a host is answered for.
fn parts(engine: &Engine, host: &str) -> Vec<String> {
    let domains = engine.snapshot().iter().filter_map(|sealed| {
        let resource = sealed.resource()?;
        let Value::Domain(domain) = &resource.value else {
            return None;
        };
        let section = domain.section.as_ref()?;
        (domain.host.as_str() == host).then(|| section.to_string())
    });
    domains.collect()
}

fn ingress(namespace: &str, year: u32, host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: {namespace}, \
         name: web, creationTimestamp: {year}-01-01T00:00:00Z}}\nspec:\n  rules:\n  - host: \
         \"{host}\"\n    http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: \
         {{name: web, port: {{number: 80}}}}}}}}]}}\n"
    )
}

/// Whether an engine has what a new one has of the same objects.
fn is_as_fresh(engine: &Engine, settings: Settings, objects: &[String]) -> bool {
    let mut fresh = self::engine(settings);
    apply(&mut fresh, &objects.join("---\n"));
    let is_same = fresh.snapshot().digest() == engine.snapshot().digest();
    is_same && fresh.statuses().eq(engine.statuses())
}

#[test]
fn who_has_proven_a_host_has_it_at_shared_sockets_whoever_is_older() {
    for (kind, word) in [
        (ObjectKind::Gateway, "gateway"),
        (ObjectKind::ListenerSet, "listenerset"),
    ] {
        let settings = Settings {
            host_proof: Some("edge.example".into()),
            ..Settings::default()
        };
        let taken = TAKEN.map(|(name, reason)| (name.to_owned(), reason));
        let part = |namespace: &str| vec![format!("{word}/{namespace}/own/it")];
        let blog = entity(kind, "blog", 2021, "a.test");
        let shop = entity(kind, "shop", 2026, "a.test");
        let mut engine = engine(settings.clone());
        apply(&mut engine, &blog);
        apply(&mut engine, &shop);
        assert_eq!(kept_out(&engine, kind, "blog"), HOLDS);
        assert_eq!(kept_out(&engine, kind, "shop"), taken);
        assert_eq!(parts(&engine, "a.test"), part("blog"));
        apply(&mut engine, "proven a.test shop\n");
        assert_eq!(kept_out(&engine, kind, "shop"), HOLDS);
        assert_eq!(kept_out(&engine, kind, "blog"), taken);
        assert_eq!(parts(&engine, "a.test"), part("shop"));
        // The loser is told once, and how it could have the host.
        assert_eq!(told(&engine, "is without effect on a.test"), 1);
        assert_eq!(told(&engine, "has hostname a.test"), 0);
        let proof = "proven a.test shop\n".to_owned();
        let objects = [shop.clone(), blog.clone(), proof];
        assert!(is_as_fresh(&engine, settings, &objects), "{kind:?}");
        apply(&mut engine, "remove HostProof a.test\n");
        assert_eq!(kept_out(&engine, kind, "blog"), HOLDS);
        assert_eq!(kept_out(&engine, kind, "shop"), taken);
        assert_eq!(parts(&engine, "a.test"), part("blog"));
    }
}

#[test]
fn who_has_a_host_by_an_ingress_has_it_at_every_socket() {
    for (kind, word) in [
        (ObjectKind::Gateway, "gateway"),
        (ObjectKind::ListenerSet, "listenerset"),
    ] {
        let taken = TAKEN.map(|(name, reason)| (name.to_owned(), reason));
        let settings = Settings::default();
        let at_8000 = |text: String| text.replace("port: 80,", "port: 8000,");
        let mut engine = engine(settings.clone());
        let of_ingress = ingress("shop", 2020, "a.test");
        let blog = at_8000(entity(kind, "blog", 2021, "a.test"));
        let shop = at_8000(entity(kind, "shop", 2026, "a.test"));
        for object in [&blog, &shop, &of_ingress] {
            apply(&mut engine, object);
        }
        assert_eq!(kept_out(&engine, kind, "shop"), HOLDS);
        assert_eq!(kept_out(&engine, kind, "blog"), taken);
        let part = vec![format!("{word}/shop/own/it")];
        assert_eq!(parts(&engine, "a.test"), part);
        let objects = [shop.clone(), of_ingress, blog];
        assert!(is_as_fresh(&engine, settings, &objects), "{kind:?}");
        // Without the Ingress it is of whoever is older there.
        apply(&mut engine, "remove Ingress shop/web\n");
        assert_eq!(kept_out(&engine, kind, "blog"), HOLDS);
        assert_eq!(kept_out(&engine, kind, "shop"), taken);
    }
}

#[test]
fn below_a_wildcard_that_is_had_by_others_a_host_is_of_whoever_claims_it() {
    let mut engine = engine(Settings {
        host_proof: Some("edge.example".into()),
        ..Settings::default()
    });
    apply(
        &mut engine,
        &entity(ObjectKind::Gateway, "blog", 2021, "'*.a.test'"),
    );
    apply(
        &mut engine,
        &entity(ObjectKind::Gateway, "shop", 2026, "'*.a.test'"),
    );
    let route = route("HTTPRoute", 2026, "x.a.test", "").replace(
        "parentRefs: [{name: edge, namespace: infra}]",
        "parentRefs: [{name: own, namespace: blog}]",
    );
    apply(&mut engine, &route);
    // The domain of the wildcard answers for what is below it.
    assert_eq!(parts(&engine, "**.a.test"), ["gateway/blog/own/it"]);
    assert!(parts(&engine, "x.a.test").is_empty());
    apply(&mut engine, "proven **.a.test shop\n");
    assert_eq!(parts(&engine, "**.a.test"), ["gateway/shop/own/it"]);
    assert_eq!(parts(&engine, "x.a.test"), ["gateway/blog/own/it"]);
}

#[test]
fn a_younger_wildcard_of_others_takes_no_requests_of_a_host_that_a_route_enters() {
    for kind in [ObjectKind::Gateway, ObjectKind::ListenerSet] {
        for (year, expected) in [(2026, &["gateway/infra/edge/all"][..]), (2022, &[][..])] {
            let mut engine = engine(Settings::default());
            apply(
                &mut engine,
                &route("HTTPRoute", 2024, "x.b.shared.test", ""),
            );
            assert!(parts(&engine, "x.b.shared.test").is_empty());
            apply(
                &mut engine,
                &entity(kind, "blog", year, "'*.b.shared.test'"),
            );
            assert_eq!(parts(&engine, "x.b.shared.test"), expected, "{kind:?}");
        }
    }
}

#[test]
fn a_set_for_the_host_of_others_keeps_it_from_no_listener_for_all_hosts() {
    let mut engine = engine(Settings {
        catch_all_namespaces: CatchAll::Only(BTreeSet::new()),
        ..Settings::default()
    });
    let spec = "  gatewayClassName: myriad\n  allowedListeners: {namespaces: {from: All}}\n  \
                listeners: [{name: all, port: 80, protocol: HTTP, allowedRoutes: {namespaces: \
                {from: All}}}]\n";
    apply(
        &mut engine,
        &object_of("Gateway", ("infra", "any"), 2020, spec),
    );
    let at_any = |text: String| text.replace("name: edge,", "name: any,");
    apply(&mut engine, &at_any(route("HTTPRoute", 2024, "a.test", "")));
    let own = ["gateway/infra/any/all"];
    assert_eq!(parts(&engine, "a.test"), own);
    let strange = entity(ObjectKind::ListenerSet, "blog", 2026, "a.test");
    apply(&mut engine, &at_any(strange));
    assert_eq!(parts(&engine, "a.test"), own);
}

#[test]
fn who_loses_a_host_at_some_proxies_has_it_at_others() {
    let tenant = View {
        name: "tenant".into(),
        role: Role::Ingress,
        labels: [("istio".to_owned(), "tenant".to_owned())].into(),
        namespace: "tenant".into(),
    };
    let mut engine = engine(Settings {
        views: vec![tenant],
        ..Settings::default()
    });
    let kind = ObjectKind::Gateway;
    apply(&mut engine, &entity(kind, "shop", 2026, "a.test"));
    let older = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {namespace: blog, \
                 name: own, creationTimestamp: 2021-01-01T00:00:00Z}\nspec:\n  selector: {istio: \
                 tenant}\n  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: \
                 [a.test]}]\n";
    apply(&mut engine, older);
    assert_eq!(parts(&engine, "a.test"), ["gateway/shop/own/it"]);
    assert_eq!(kept_out(&engine, kind, "shop"), HOLDS);
}

#[test]
fn where_hosts_are_of_nobody_the_oldest_gateway_has_one_at_a_socket() {
    let mut engine = engine(Settings {
        host_sharing: HostSharing::Cluster,
        ..Settings::default()
    });
    let taken = TAKEN.map(|(name, reason)| (name.to_owned(), reason));
    let kind = ObjectKind::Gateway;
    apply(&mut engine, &entity(kind, "blog", 2021, "a.test"));
    apply(&mut engine, &entity(kind, "shop", 2026, "a.test"));
    apply(&mut engine, &ingress("shop", 2020, "a.test"));
    assert_eq!(kept_out(&engine, kind, "blog"), HOLDS);
    assert_eq!(kept_out(&engine, kind, "shop"), taken);
}

/// A route of a year at the listener that all share, with this beside the backends of its rule.
fn route(kind: &str, year: u32, host: &str, rule: &str) -> String {
    let spec = format!(
        "  parentRefs: [{{name: edge, namespace: infra}}]\n  hostnames: [{host}]\n  rules: \
         [{{{rule}backendRefs: [{{name: web, port: 80}}]}}]\n"
    );
    object_of(kind, ("shop", "web"), year, &spec)
}

#[test]
fn an_old_httproute_keeps_no_grpcroute_out_by_an_edit() {
    let out = |engine: &Engine, kind| refusals(&status(engine, kind, "shop", "web"), "Accepted");
    let kept_out = [("0".to_owned(), "NotAllowedByListeners")];
    let mut engine = engine(Settings::default());
    apply(&mut engine, &route("HTTPRoute", 2021, "a.shared.test", ""));
    apply(&mut engine, &route("GRPCRoute", 2026, "b.shared.test", ""));
    apply(&mut engine, &route("HTTPRoute", 2021, "b.shared.test", ""));
    assert_eq!(out(&engine, ObjectKind::GrpcRoute), HOLDS);
    assert_eq!(out(&engine, ObjectKind::HttpRoute), kept_out);
    // Nor by naming none, which stands for all.
    let unnamed = route("HTTPRoute", 2021, "a.shared.test", "");
    apply(&mut engine, &unnamed);
    assert_eq!(out(&engine, ObjectKind::HttpRoute), HOLDS);
    apply(&mut engine, &unnamed.replace("[a.shared.test]", "[]"));
    assert_eq!(out(&engine, ObjectKind::GrpcRoute), HOLDS);
    assert_eq!(out(&engine, ObjectKind::HttpRoute), kept_out);
}

#[test]
fn a_route_of_which_no_rule_has_an_effect_keeps_no_other_out() {
    let mut engine = engine(Settings::default());
    let dropped = "filters: [{type: Compress}], ";
    let written = route("HTTPRoute", 2021, "a.shared.test", dropped);
    apply(&mut engine, &written);
    apply(&mut engine, &route("GRPCRoute", 2026, "a.shared.test", ""));
    let grpc = status(&engine, ObjectKind::GrpcRoute, "shop", "web");
    assert_eq!(refusals(&grpc, "Accepted"), HOLDS);
    apply(&mut engine, &written.replace(dropped, ""));
    let grpc = status(&engine, ObjectKind::GrpcRoute, "shop", "web");
    let kept_out = [("0".to_owned(), "NotAllowedByListeners")];
    assert_eq!(refusals(&grpc, "Accepted"), kept_out);
}
