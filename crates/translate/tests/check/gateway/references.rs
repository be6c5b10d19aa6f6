//! References that lead where they must not, and what is refused whole.

use myriad_api::ObjectKind;
use myriad_model::Value;
use myriad_translate::{Engine, Settings};

use super::{HOLDS, apply, object_of, refusals, status, told};
use crate::{render, world};

/// Names that no object has, each of which would mean another one as a part of a longer name.
const NO_NAMES: [&str; 6] = [
    "ca,blog/ca",
    "ca+configmap",
    "blog/ca",
    "ca#x",
    "ca@80",
    "web:80+tls=p,blog/ca",
];

const GROUND: &str = "\
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web}, spec: {ports: [{name: \
http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: copy}, spec: {ports: [{name: \
http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: alias}, spec: {type: \
ExternalName, externalName: out.example, ports: [{name: http, port: 80}, {name: dns, port: 53, \
protocol: UDP}]}}
---
{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: own}, type: kubernetes.io/tls, \
stringData: {tls.crt: <certificate own.example>, tls.key: <key own.example>}}
---
{apiVersion: v1, kind: Secret, metadata: {namespace: blog, name: ca}, type: Opaque, stringData: \
{ca.crt: <certificate ca.example>}}";

fn engine() -> Engine {
    let mut engine = world::engine(Settings::default());
    apply(&mut engine, GROUND);
    engine
}

/// The Gateway with an HTTPS listener, and these authorities of clients.
fn secured(certificate: &str, authorities: &str) -> String {
    let spec = format!(
        "  gatewayClassName: myriad\n  tls: {{frontend: {{default: {{validation: {{mode: \
         AllowInsecureFallback, caCertificateRefs: [{authorities}]}}}}}}}}\n  listeners:\n  - \
         {{name: it, port: 443, protocol: HTTPS, hostname: own.example, tls: {{certificateRefs: \
         [{{name: {certificate:?}}}]}}}}\n"
    );
    object_of("Gateway", ("shop", "edge"), 2026, &spec)
}

/// A Gateway with other listeners.
fn gateway(listeners: &str) -> String {
    let spec = format!("  gatewayClassName: myriad\n  listeners: [{listeners}]\n");
    object_of("Gateway", ("shop", "edge"), 2026, &spec)
}

fn of_listeners(engine: &Engine, kind: &str) -> Vec<(String, &'static str)> {
    refusals(&status(engine, ObjectKind::Gateway, "shop", "edge"), kind)
}

/// The certificate of the only domain.
fn certificate(engine: &Engine) -> Option<String> {
    let resources = engine.snapshot().iter();
    let mut domains = resources.filter_map(|sealed| match &sealed.resource()?.value {
        Value::Domain(domain) => Some(domain.certificate.as_ref()?.to_string()),
        _ => None,
    });
    domains.next()
}

#[test]
fn a_name_that_no_object_has_means_no_other_one() {
    let invalid = [("it".to_owned(), "InvalidCACertificateRef")];
    let no_certificate = [("it".to_owned(), "InvalidCertificateRef")];
    for name in NO_NAMES {
        for kind in ["ConfigMap", "Secret"] {
            let mut engine = engine();
            let authority = format!("{{group: '', kind: {kind}, name: {name:?}}}");
            apply(&mut engine, &secured("own", &authority));
            assert_eq!(of_listeners(&engine, "ResolvedRefs"), invalid, "{name}");
            let lines = render::lines(engine.snapshot());
            assert!(!lines.iter().any(|line| line.contains("blog")), "{name}");
        }
        let mut engine = engine();
        apply(
            &mut engine,
            &secured(name, "{group: '', kind: ConfigMap, name: ca}"),
        );
        assert_eq!(
            of_listeners(&engine, "ResolvedRefs"),
            no_certificate,
            "{name}"
        );
        apply(
            &mut engine,
            &gateway("{name: it, port: 80, protocol: HTTP}"),
        );
        let route = route("HTTPRoute", &format!("{{name: {name:?}, port: 80}}"));
        apply(&mut engine, &route);
        assert_eq!(
            unresolved(&engine, ObjectKind::HttpRoute),
            NOT_FOUND,
            "{name}"
        );
        let lines = render::lines(engine.snapshot());
        assert!(!lines.iter().any(|line| line.contains("blog")), "{name}");
    }
}

const NOT_FOUND: [(u8, &str); 1] = [(0, "BackendNotFound")];

fn route(kind: &str, backends: &str) -> String {
    let spec =
        format!("  parentRefs: [{{name: edge}}]\n  rules: [{{backendRefs: [{backends}]}}]\n");
    object_of(kind, ("shop", "web"), 2026, &spec)
}

/// The reasons for which backends of a route are not there, by the number of the parent.
fn unresolved(engine: &Engine, kind: ObjectKind) -> Vec<(u8, &'static str)> {
    let found = refusals(&status(engine, kind, "shop", "web"), "ResolvedRefs").into_iter();
    let found = found.map(|(at, reason)| (at.parse().expect("a number"), reason));
    found.collect()
}

#[test]
fn an_alias_of_an_outside_host_is_no_backend_whatever_ports_it_lists() {
    let ends = "{name: it, port: 443, protocol: TLS, hostname: own.example, tls: {certificateRefs: \
                [{name: own}]}}";
    for (kind, word, listener, port) in [
        (
            ObjectKind::HttpRoute,
            "HTTPRoute",
            "{name: it, port: 80, protocol: HTTP}",
            80,
        ),
        (
            ObjectKind::GrpcRoute,
            "GRPCRoute",
            "{name: it, port: 80, protocol: HTTP}",
            80,
        ),
        (ObjectKind::TlsRoute, "TLSRoute", ends, 80),
        (
            ObjectKind::TcpRoute,
            "TCPRoute",
            "{name: it, port: 9000, protocol: TCP}",
            80,
        ),
        (
            ObjectKind::UdpRoute,
            "UDPRoute",
            "{name: it, port: 9000, protocol: UDP}",
            53,
        ),
    ] {
        let mut engine = engine();
        apply(&mut engine, &gateway(listener));
        let to_alias = route(word, &format!("{{name: alias, port: {port}}}"));
        let named = to_alias.replace("  rules:", "  hostnames: [own.example]\n  rules:");
        let is_named = kind == ObjectKind::TlsRoute;
        apply(&mut engine, if is_named { &named } else { &to_alias });
        assert_eq!(unresolved(&engine, kind), NOT_FOUND, "{word}");
        let lines = render::lines(engine.snapshot());
        assert!(!lines.iter().any(|line| line.contains("alias")), "{word}");
    }
}

#[test]
fn a_listener_by_whose_authorities_nobody_is_verified_answers_no_handshake() {
    let mut engine = engine();
    let authority = "{group: '', kind: ConfigMap, name: ca}";
    apply(&mut engine, &secured("own", authority));
    let refused = [("it".to_owned(), "NoValidCACertificate")];
    assert_eq!(of_listeners(&engine, "Accepted"), refused);
    let closed = "gateway/shop/edge/it/closed";
    assert_eq!(certificate(&engine).as_deref(), Some(closed));
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: ca}, data: \
               {ca.crt: <certificate ca.example>}}";
    apply(&mut engine, map);
    assert_eq!(of_listeners(&engine, "Accepted"), HOLDS);
    assert_eq!(certificate(&engine).as_deref(), Some("shop/own"));
    apply(&mut engine, "remove ConfigMap shop/ca");
    assert_eq!(certificate(&engine).as_deref(), Some(closed));
}

#[test]
fn what_is_refused_is_not_copied() {
    let mut engine = engine();
    apply(
        &mut engine,
        &gateway("{name: it, port: 80, protocol: HTTP}"),
    );
    let copied = "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: copy, port: \
                  80}}}]";
    let backends = |name: &str| format!("{{name: {name}, port: 80, {copied}}}");
    let is_copied = |engine: &Engine| {
        let lines = render::lines(engine.snapshot());
        lines.iter().any(|line| line.contains("shop/copy:80"))
    };
    apply(&mut engine, &route("HTTPRoute", &backends("web")));
    assert!(is_copied(&engine));
    apply(&mut engine, &route("HTTPRoute", &backends("gone")));
    assert!(!is_copied(&engine));
}

#[test]
fn a_listener_of_https_ends_tls() {
    let mut engine = engine();
    let of_mode = |mode: &str| {
        let tls = format!(
            "{{mode: {mode}, options: {{example.com/x: '1'}}, certificateRefs: [{{name: own}}]}}"
        );
        gateway(&format!(
            "{{name: it, port: 443, protocol: HTTPS, hostname: own.example, tls: {tls}}}"
        ))
    };
    apply(&mut engine, &of_mode("Passthrough"));
    let refused = [("it".to_owned(), "UnsupportedValue")];
    assert_eq!(of_listeners(&engine, "Accepted"), refused);
    apply(&mut engine, &of_mode("Terminate"));
    assert_eq!(of_listeners(&engine, "Accepted"), HOLDS);
    assert_eq!(told(&engine, "spec.listeners[0].tls.options"), 1);
}

#[test]
fn a_backend_of_another_namespace_is_told_of_clients_by_the_proxy_alone() {
    let service = "{apiVersion: v1, kind: Service, metadata: {namespace: blog, name: web}, spec: \
                   {ports: [{name: http, port: 80}]}}";
    let lent = "  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}]\n  \
                to: [{group: '', kind: Service}]\n";
    let lent = object_of("ReferenceGrant", ("blog", "web"), 2026, lent);
    let filters = "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: \
                   X-Real-IP, value: '9.9.9.9'}, {name: X-Team, value: a}]}}]";
    let (own, other) = (
        "name: web, port: 80".to_owned(),
        "name: web, namespace: blog, port: 80".to_owned(),
    );
    let copy =
        format!("filters: [{{type: RequestMirror, requestMirror: {{backendRef: {{{other}}}}}}}]");
    let edited_copy = copy.replace(']', &filters.replacen("filters: [", ", ", 1));
    let edited = format!("{{{own}, {filters}}}");
    for (of_rule, backends, namespace, is_told) in [
        (filters, format!("{{{own}}}"), "platform", true),
        (filters, format!("{{{other}}}"), "platform", false),
        (
            filters,
            format!("{{{own}}}, {{{other}}}"),
            "platform",
            false,
        ),
        (&*edited_copy, format!("{{{own}}}"), "platform", false),
        // A copy has what is changed for the backend too.
        (&*copy, edited.clone(), "platform", false),
        ("", format!("{edited}, {{{other}}}"), "platform", true),
        (
            "",
            format!("{{{own}}}, {{{other}, {filters}}}"),
            "platform",
            false,
        ),
        // Who operates the gateway answers for all endpoints.
        (filters, format!("{{{other}}}"), "shop", true),
    ] {
        let mut engine = world::engine(Settings {
            gateway_namespace: namespace.into(),
            ..Settings::default()
        });
        apply(&mut engine, GROUND);
        let listener = gateway("{name: it, port: 80, protocol: HTTP}");
        apply(
            &mut engine,
            &format!("{service}\n---\n{lent}---\n{listener}"),
        );
        let written = route("HTTPRoute", &backends);
        let written = match of_rule {
            "" => written,
            of_rule => written.replace("rules: [{", &format!("rules: [{{{of_rule}, ")),
        };
        apply(&mut engine, &written);
        let lines = render::lines(engine.snapshot()).join("\n");
        assert_eq!(lines.contains("9.9.9.9"), is_told, "{written}{lines}");
        assert!(lines.contains("x-team"), "{written}{lines}");
        assert_eq!(told(&engine, "whom requests come from") == 0, is_told);
        assert!(unresolved(&engine, ObjectKind::HttpRoute).is_empty());
    }
}
