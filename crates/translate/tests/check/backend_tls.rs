//! BackendTLSPolicies: which one a port of a Service has, what it makes of upstreams, and what its
//! status says at which Gateways.

use myriad_api::gateway::status::State;
use myriad_api::{Change, ObjectKey, ObjectKind};
use myriad_model::{Kind, Protocol, Upstream};
use myriad_translate::{Bounds, Engine, Settings};

use crate::world;

const BASE: &str = "\
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: ours}, spec: \
{controllerName: myriad.dev/gateway-controller}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web}, spec: {ports: \
[{name: web, port: 443}, {name: more, port: 8443}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: shop, name: web-a, \
labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{name: web, port: 9443}, \
{name: more, port: 9443}], endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: ca}, data: \
{ca.crt: <certificate ca.example>}}";

const CA: &str = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]";

fn engine(objects: &[String]) -> Engine {
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(BASE), world::NOW);
    let changes = objects.iter().flat_map(|text| world::changes(text));
    engine.apply(changes.collect(), world::NOW);
    engine
}

fn gateway(name: &str, tls: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{namespace: shop, \
         name: {name}}}, spec: {{gatewayClassName: ours, {tls} listeners: [{{name: http, port: \
         80, protocol: HTTP}}]}}}}"
    )
}

fn route(kind: &str, name: &str, parents: &str, port: u16) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{namespace: shop, \
         name: {name}}}, spec: {{parentRefs: [{parents}], hostnames: [{name}.example], rules: \
         [{{backendRefs: [{{name: web, port: {port}}}]}}]}}}}"
    )
}

/// A policy of a second of the year 2026 for a port of the Service; empty for all.
fn policy(name: &str, second: u32, section: &str, validation: &str) -> String {
    let section = match section {
        "" => String::new(),
        section => format!(", sectionName: {section}"),
    };
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: \
         {{namespace: shop, name: {name}, creationTimestamp: '2026-01-01T00:00:{second:02}Z'}}, \
         spec: {{targetRefs: [{{group: '', kind: Service, name: web{section}}}], validation: \
         {{hostname: {name}.internal, {validation}}}}}}}"
    )
}

/// A Gateway, a route to port 443, and these objects.
fn served(objects: &[String]) -> Engine {
    let mut all = vec![
        gateway("edge", ""),
        route("HTTPRoute", "a", "{name: edge}", 443),
    ];
    all.extend_from_slice(objects);
    engine(&all)
}

/// The names of all upstreams, in order.
fn names(engine: &Engine) -> Vec<String> {
    let snapshot = engine.snapshot();
    let upstreams = snapshot.iter().filter(|it| it.upstream().is_some());
    let mut names: Vec<String> = upstreams.map(|it| it.name().to_string()).collect();
    names.sort_unstable();
    names
}

fn upstream(engine: &Engine, name: &str) -> Upstream {
    let snapshot = engine.snapshot();
    let mut all = snapshot.iter();
    let sealed = all.find(|it| it.upstream().is_some() && it.name().as_str() == name);
    let sealed = sealed.unwrap_or_else(|| panic!("no {name} in {:?}", names(engine)));
    sealed.upstream().expect("an upstream").clone()
}

fn has_trust(engine: &Engine) -> bool {
    let snapshot = engine.snapshot();
    let mut all = snapshot.iter();
    all.any(|it| it.key().kind == Kind::Trust)
}

/// Each ancestor of a policy, with the reasons of its conditions.
fn told(engine: &Engine, name: &str) -> Vec<(String, Vec<&'static str>)> {
    let mut statuses = engine.statuses();
    let status = statuses
        .find(|it| it.object.kind == ObjectKind::BackendTlsPolicy && it.object.name() == name);
    let Some(State::Policy(policy)) = status.map(|status| &status.state) else {
        return Vec::new();
    };
    let ancestors = policy.ancestors.iter().map(|ancestor| {
        assert_eq!(ancestor.parent.kind(), "Gateway");
        assert_eq!(ancestor.parent.namespace.as_deref(), Some("shop"));
        let reasons = ancestor.conditions.iter().map(|it| it.reason).collect();
        (ancestor.parent.name.to_string(), reasons)
    });
    ancestors.collect()
}

fn at_edge(reasons: &[&'static str]) -> Vec<(String, Vec<&'static str>)> {
    vec![("edge".to_owned(), reasons.to_vec())]
}

fn apply(engine: &mut Engine, text: &str) {
    engine.apply(world::changes(text), world::NOW);
}

#[test]
fn a_backend_is_verified_by_the_name_and_the_authorities_of_its_policy() {
    let engine = served(&[policy("first", 1, "", CA)]);
    let found = upstream(&engine, "shop/web:443+tls=first");
    assert_eq!(found.protocol, Protocol::Https1);
    let tls = found.tls.expect("TLS");
    assert_eq!((&*tls.server_name, tls.verify), ("first.internal", true));
    assert_eq!(
        tls.trust.as_ref().map(|it| it.as_str()),
        Some("shop/ca+configmap")
    );
    assert!(tls.subject_alt_names.is_empty() && tls.certificate.is_none());
    assert!(has_trust(&engine));
    assert_eq!(names(&engine), ["shop/web:443+tls=first"]);
    assert_eq!(
        told(&engine, "first"),
        at_edge(&["Accepted", "ResolvedRefs"])
    );
}

#[test]
fn names_of_certificates_and_the_system_are_taken_as_they_are_written() {
    let names = "wellKnownCACertificates: System, subjectAltNames: [{type: URI, uri: \
                 'spiffe://x/y'}, {type: Hostname, hostname: b.internal}]";
    let engine = served(&[policy("first", 1, "", names)]);
    let tls = upstream(&engine, "shop/web:443+tls=first")
        .tls
        .expect("TLS");
    assert_eq!((tls.trust, tls.verify), (None, true));
    let names: Vec<&str> = tls.subject_alt_names.iter().map(|it| &**it).collect();
    assert_eq!(names, ["b.internal", "spiffe://x/y"]);
}

#[test]
fn what_a_policy_cannot_mean_closes_its_upstream() {
    let other = "caCertificateRefs: [{group: example.com, kind: Thing, name: ca}]";
    let both = "wellKnownCACertificates: example.com/ours";
    let wild = "wellKnownCACertificates: System, subjectAltNames: [{type: Hostname, hostname: \
                '*.internal'}]";
    for (validation, reasons) in [
        (other, &["NoValidCACertificate", "InvalidKind"]),
        (both, &["Invalid", "ResolvedRefs"]),
        (wild, &["Invalid", "ResolvedRefs"]),
    ] {
        let engine = served(&[policy("first", 1, "", validation)]);
        assert!(
            upstream(&engine, "shop/web:443+tls=first").tls.is_none(),
            "{validation}"
        );
        let snapshot = engine.snapshot();
        let endpoints = snapshot.iter().filter_map(|it| it.endpoints());
        let count: usize = endpoints.map(|it| it.endpoints.len()).sum();
        assert_eq!(count, 0, "{validation}");
        assert_eq!(told(&engine, "first"), at_edge(reasons), "{validation}");
    }
}

#[test]
fn an_authority_that_comes_later_mends_a_policy() {
    let missing = "caCertificateRefs: [{group: '', kind: ConfigMap, name: later}]";
    let mut engine = served(&[policy("first", 1, "", missing)]);
    let refused = at_edge(&["NoValidCACertificate", "InvalidCACertificateRef"]);
    assert_eq!(told(&engine, "first"), refused);
    // Nobody is believed by a trust that is not there.
    let tls = upstream(&engine, "shop/web:443+tls=first")
        .tls
        .expect("TLS");
    assert!(tls.verify && tls.trust.is_some() && !has_trust(&engine));
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: later}, data: ";
    apply(&mut engine, &format!("{map} {{}}}}"));
    assert_eq!(told(&engine, "first"), refused);
    apply(
        &mut engine,
        &format!("{map} {{ca.crt: <certificate ca.example>}}}}"),
    );
    let mended = at_edge(&["Accepted", "ResolvedRefs"]);
    assert_eq!(told(&engine, "first"), mended);
    assert!(has_trust(&engine));
}

#[test]
fn the_oldest_policy_for_a_port_has_it_until_it_goes() {
    let mut engine = served(&[policy("old", 1, "", CA), policy("new", 2, "", CA)]);
    assert_eq!(names(&engine), ["shop/web:443+tls=old"]);
    let lost = at_edge(&["Conflicted", "ResolvedRefs"]);
    let held = at_edge(&["Accepted", "ResolvedRefs"]);
    assert_eq!(
        (told(&engine, "old"), told(&engine, "new")),
        (held.clone(), lost.clone())
    );
    // Of the same age, the name says.
    apply(&mut engine, &policy("a", 1, "", CA));
    assert_eq!(names(&engine), ["shop/web:443+tls=a"]);
    assert_eq!(told(&engine, "old"), lost);
    let key = |name: &str| ObjectKey::new(ObjectKind::BackendTlsPolicy, "shop", name);
    let gone = ["a", "old"].map(|name| Change::Remove(key(name)));
    engine.apply(gone.into(), world::NOW);
    assert_eq!(names(&engine), ["shop/web:443+tls=new"]);
    assert_eq!(told(&engine, "new"), held);
    assert!(told(&engine, "old").is_empty());
    engine.apply(vec![Change::Remove(key("new"))], world::NOW);
    assert_eq!(names(&engine), ["shop/web:443"]);
    assert_eq!(engine.statuses().count(), 3, "class, Gateway and route");
}

#[test]
fn a_policy_for_a_port_goes_before_one_for_all_ports() {
    let more = route("HTTPRoute", "b", "{name: edge}", 8443);
    let engine = served(&[
        more,
        policy("all", 1, "", CA),
        policy("one", 2, "web", CA),
        policy("none", 3, "other", CA),
    ]);
    let wanted = ["shop/web:443+tls=one", "shop/web:8443+tls=all"];
    assert_eq!(names(&engine), wanted);
    let held = at_edge(&["Accepted", "ResolvedRefs"]);
    assert_eq!(
        (told(&engine, "all"), told(&engine, "one")),
        (held.clone(), held)
    );
    let missing = at_edge(&["TargetNotFound", "ResolvedRefs"]);
    assert_eq!(told(&engine, "none"), missing);
}

#[test]
fn a_policy_that_no_gateway_leads_to_has_no_status() {
    let mut engine = engine(&[policy("first", 1, "", "caCertificateRefs: []")]);
    assert!(told(&engine, "first").is_empty());
    assert_eq!(engine.findings().count(), 0);
    apply(&mut engine, &gateway("edge", ""));
    apply(&mut engine, &route("HTTPRoute", "a", "{name: edge}", 443));
    assert_eq!(
        told(&engine, "first"),
        at_edge(&["Invalid", "ResolvedRefs"])
    );
    // One that may not name the Service makes nobody an ancestor.
    let foreign = gateway("far", "").replace("namespace: shop", "namespace: far");
    apply(&mut engine, &foreign);
    let stranger = route("HTTPRoute", "s", "{name: far}", 443)
        .replace("namespace: shop", "namespace: far")
        .replace("{name: web,", "{name: web, namespace: shop,");
    apply(&mut engine, &stranger);
    assert_eq!(told(&engine, "first").len(), 1);
    let key = ObjectKey::new(ObjectKind::HttpRoute, "shop", "a");
    engine.apply(vec![Change::Remove(key)], world::NOW);
    assert!(told(&engine, "first").is_empty());
}

#[test]
fn calls_of_grpc_are_secured_as_http2() {
    let engine = engine(&[
        gateway("edge", ""),
        route("GRPCRoute", "a", "{name: edge}", 443),
        policy("first", 1, "", CA),
    ]);
    let found = upstream(&engine, "shop/web:443+h2+tls=first");
    assert_eq!((found.protocol, found.tls.is_some()), (Protocol::H2, true));
}

#[test]
fn a_gateway_shows_its_certificate_where_backends_are_secured() {
    let tls = "tls: {backend: {clientCertificateRef: {group: '', kind: Secret, name: own}}},";
    let secret = "{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: own}, type: \
                  kubernetes.io/tls, stringData: {tls.crt: <certificate own.example>, tls.key: \
                  <key own.example>}}";
    let objects = [
        gateway("edge", tls),
        gateway("plain", ""),
        route("HTTPRoute", "a", "{name: edge}, {name: plain}", 443),
        policy("first", 1, "", CA),
        secret.to_owned(),
    ];
    let engine = engine(&objects);
    let wanted = ["shop/web:443+tls=first", "shop/web:443+tls=first,shop/own"];
    assert_eq!(names(&engine), wanted);
    let shown = upstream(&engine, wanted[1]).tls.expect("TLS").certificate;
    assert_eq!(shown.as_ref().map(|it| it.as_str()), Some("shop/own"));
    assert!(
        upstream(&engine, wanted[0])
            .tls
            .expect("TLS")
            .certificate
            .is_none()
    );
}

#[test]
fn a_gateway_that_may_not_use_its_certificate_reaches_no_secured_backend() {
    let tls = "tls: {backend: {clientCertificateRef: {group: '', kind: Secret, name: own, \
               namespace: other}}},";
    let objects = [
        gateway("edge", tls),
        route("HTTPRoute", "a", "{name: edge}", 443),
    ];
    let mut engine = engine(&objects);
    assert_eq!(names(&engine), ["shop/web:443"]);
    apply(&mut engine, &policy("first", 1, "", CA));
    assert!(names(&engine).is_empty());
}

#[test]
fn so_many_gateways_are_told_and_no_more() {
    let gateways: Vec<String> = (0..17).map(|at| format!("g{at:02}")).collect();
    let parents = gateways.iter().map(|name| format!("{{name: {name}}}"));
    let parents: Vec<String> = parents.collect();
    let mut objects: Vec<String> = gateways.iter().map(|name| gateway(name, "")).collect();
    objects.push(policy("first", 1, "", CA));
    for (count, told_of, is_warned) in [(16, 16, false), (17, 16, true)] {
        let mut objects = objects.clone();
        let parents = parents[..count].join(", ");
        objects.push(route("HTTPRoute", "a", &parents, 443));
        let engine = engine(&objects);
        assert_eq!(told(&engine, "first").len(), told_of);
        let mut findings = engine.findings();
        let warned = findings.any(|it| it.field == "spec.targetRefs");
        assert_eq!(warned, is_warned);
    }
}

#[test]
fn a_changed_policy_is_translated_once_for_all_routes() {
    let mut work = Vec::new();
    for count in [1, 40] {
        let mut objects = vec![gateway("edge", ""), policy("first", 1, "", CA)];
        let routes = 0..count;
        objects.extend(routes.map(|at| route("HTTPRoute", &format!("r{at}"), "{name: edge}", 443)));
        let mut engine = engine(&objects);
        let changed = policy("first", 1, "", CA).replace("first.internal", "other.internal");
        let outcome = engine.apply(world::changes(&changed), world::NOW);
        assert_eq!(outcome.delta.len(), 1);
        work.push(outcome.work.units_translated);
    }
    assert_eq!(work[0], work[1]);
}

/// A ConfigMap with an authority, of a year.
fn authority(name: &str, year: u32) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{namespace: shop, name: {name}, \
         creationTimestamp: '{year}-01-01T00:00:00Z'}}, data: {{ca.crt: <certificate \
         {name}.example>}}}}"
    )
}

/// The names of ConfigMaps as a policy refers to them.
fn authorities(names: &[&str]) -> String {
    let names = names.iter();
    let references = names.map(|name| format!("{{group: '', kind: ConfigMap, name: {name}}}"));
    let references: Vec<String> = references.collect();
    format!("caCertificateRefs: [{}]", references.join(", "))
}

/// The names of trusts of several objects.
fn joined(engine: &Engine) -> Vec<String> {
    let snapshot = engine.snapshot();
    let trusts = snapshot.iter().filter(|it| it.key().kind == Kind::Trust);
    let names = trusts.map(|it| it.name().to_string());
    let mut names: Vec<String> = names.filter(|name| name.contains(',')).collect();
    names.sort_unstable();
    names
}

fn findings_with(engine: &Engine, text: &str) -> usize {
    let findings = engine.findings().map(ToString::to_string);
    findings.filter(|it| it.contains(text)).count()
}

#[test]
fn authorities_of_several_objects_count_as_a_secret_with_all_of_them_would() {
    let of = |name: &str| format!("shop+shop/ca+configmap,shop/{name}+configmap");
    let told = "beyond 1 certificates or authorities, so nobody is verified by them together";
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            certificates: 1,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    let objects = [
        BASE.to_owned(),
        authority("cb", 2021),
        authority("cc", 2022),
        gateway("edge", ""),
        route("HTTPRoute", "a", "{name: edge}", 443),
        route("HTTPRoute", "b", "{name: edge}", 8443),
        // Whoever names them is younger where they are older.
        policy("late", 2, "web", &authorities(&["ca", "cb"])),
        policy("early", 1, "more", &authorities(&["ca", "cc"])),
    ];
    apply(&mut engine, &objects.join("\n---\n"));
    assert_eq!(joined(&engine), [of("cb")]);
    assert_eq!(findings_with(&engine, told), 1);
    // The upstream asks for authorities that nobody has, so nothing gets through.
    let tls = upstream(&engine, "shop/web:8443+tls=early").tls;
    let tls = tls.expect("TLS");
    assert_eq!(tls.trust.map(|it| it.to_string()), Some(of("cc")));
    assert!(tls.verify);
    // What goes makes room, and what Secrets take is not there for others.
    apply(&mut engine, "remove BackendTLSPolicy shop/late");
    assert_eq!(joined(&engine), [of("cc")]);
    assert_eq!(findings_with(&engine, told), 0);
    let secret = "{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: own}, type: \
                  Opaque, stringData: {ca.crt: <certificate own.example>}}";
    apply(&mut engine, secret);
    assert!(joined(&engine).is_empty());
    assert_eq!(findings_with(&engine, told), 1);
    apply(&mut engine, "remove Secret shop/own");
    assert_eq!(joined(&engine), [of("cc")]);
    assert_eq!(findings_with(&engine, told), 0);
}

#[test]
fn many_combinations_of_a_few_authorities_are_no_more_than_their_namespace_may_have() {
    let (bound, count) = (5, 12);
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            certificates: bound,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    let ports = (0..count).map(|at| format!("{{name: p{at}, port: {}}}", 9_000 + at));
    let ports: Vec<String> = ports.collect();
    let mut objects = vec![
        BASE.to_owned(),
        gateway("edge", ""),
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{namespace: shop, name: web}}, spec: \
             {{ports: [{}]}}}}",
            ports.join(", ")
        ),
    ];
    for at in 0..count {
        let name = format!("c{at}");
        let port = u16::try_from(9_000 + at).expect("a port");
        objects.push(authority(&name, 2021));
        objects.push(route("HTTPRoute", &format!("r{at}"), "{name: edge}", port));
        let both = authorities(&["ca", &name]);
        objects.push(policy(&format!("t{at}"), 1, &format!("p{at}"), &both));
    }
    apply(&mut engine, &objects.join("\n---\n"));
    assert_eq!(joined(&engine).len() as u64, bound);
    let told = "so nobody is verified by them together";
    assert_eq!(findings_with(&engine, told) as u64, count - bound);
}
