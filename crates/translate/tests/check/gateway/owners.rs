//! Whose a host is at Gateways that share proxies, or at one that tenants share: who had it first
//! keeps it from older objects that are edited, and who may not have it stands in nobody's way.

use myriad_api::ObjectKind;
use myriad_translate::{Engine, Settings};

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
