//! Rules that lead to Services of other namespaces: what they say there of clients, and what they
//! reach by delegating.

use myriad_model::Snapshot;
use myriad_translate::{Engine, ServiceExports, Settings};

use crate::{render, world};

/// The headers of a rule that speak of clients, beside one that speaks of itself.
const EDITS: &str = "headers: {request: {set: {X-Real-IP: 9.9.9.9, X-Team: a}, add: \
                     {X_Forwarded_For: 9.9.9.9}, remove: [X-Forwarded-Client-Cert]}}";

/// The destinations of the tests.
const OWN: &str = "destination: {host: web, port: {number: 80}}";
const OTHER: &str = "destination: {host: web.good.svc.cluster.local, port: {number: 80}}";

/// A copy of each request for another namespace.
const COPY: &str = "mirror: {host: web.good.svc.cluster.local, port: {number: 80}}";

/// The finding about what is left out.
const KEPT: &str =
    "changes fields that tell a backend of another namespace whom requests come from";

const EDGE: &str = "\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {namespace: istio-system, name: edge}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: ['*/*']}
";

/// An engine with a Gateway that lets everybody in, and a Service of each namespace.
fn engine(settings: Settings) -> Engine {
    let mut engine = world::engine(settings);
    let services = ["istio-system", "good", "evil"].map(|it| service(it, "web", ""));
    apply(
        &mut engine,
        &format!("{EDGE}---\n{}", services.join("---\n")),
    );
    engine
}

/// A Service, which is exported to namespaces, or says nothing of that.
fn service(namespace: &str, name: &str, exports: &str) -> String {
    let annotations = match exports {
        "" => String::new(),
        exports => format!(", annotations: {{networking.istio.io/exportTo: '{exports}'}}"),
    };
    let last = match namespace {
        "good" => 1,
        "evil" => 2,
        _ => 3,
    };
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {namespace}, name: \
         {name}{annotations}}}\nspec: {{clusterIP: 10.0.0.{last}, ports: [{{name: http, port: \
         80}}]}}\n"
    )
}

/// A ServiceEntry for a host, which is exported to all or to namespaces.
fn entry(namespace: &str, host: &str, exports: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{namespace: \
         {namespace}, name: out}}\nspec:\n  hosts: [{host}]\n  exportTo: [{exports}]\n  ports: \
         [{{number: 80, name: http, protocol: HTTP}}]\n  resolution: STATIC\n  endpoints: \
         [{{address: 192.0.2.1}}]\n"
    )
}

fn virtual_service(namespace: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: \
         {namespace}, name: r}}\nspec: {{{spec}}}\n"
    )
}

/// A VirtualService of a namespace for a host by the Gateway, with one rule.
fn rule(namespace: &str, rule: &str) -> String {
    let head = "hosts: [it.example], gateways: [istio-system/edge]";
    virtual_service(namespace, &format!("{head}, http: [{{{rule}}}]"))
}

/// A VirtualService that delegates to the namespace `good`, and says this beside that.
fn root(namespace: &str, rest: &str) -> String {
    let delegate = "delegate: {name: part, namespace: good}";
    rule(namespace, &format!("{delegate}{rest}"))
}

/// The delegate of the namespace `good`, with one rule.
fn part(exports: &str, rule: &str) -> String {
    let text = virtual_service("good", &format!("exportTo: {exports}, http: [{{{rule}}}]"));
    text.replace("name: r}", "name: part}")
}

fn apply(engine: &mut Engine, text: &str) {
    engine.apply(world::changes(text), world::NOW);
    while engine.has_postponed() {
        engine.apply(Vec::new(), world::NOW);
    }
}

fn text_of(snapshot: &Snapshot) -> String {
    render::lines(snapshot).join("\n")
}

/// How many findings say something.
fn told(engine: &Engine, text: &str) -> usize {
    let findings = engine.findings().map(ToString::to_string);
    findings.filter(|it| it.contains(text)).count()
}

/// Whether a snapshot has all that the rule tells of clients; it has all of it, or nothing.
fn is_told(snapshot: &Snapshot, what: &str) -> bool {
    let text = text_of(snapshot);
    assert!(text.contains("x-team:a"), "{what}\n{text}");
    let is_told = text.contains("x-real-ip:9.9.9.9");
    for field in [
        "request+x_forwarded_for:",
        "request-x-forwarded-client-cert",
    ] {
        assert_eq!(text.contains(field), is_told, "{what}\n{text}");
    }
    is_told
}

/// Checks that a rule of a namespace tells of clients, or that a finding about a field below it
/// says that it does not.
fn check(namespace: &str, text: &str, kept: Option<&str>) {
    let mut engine = engine(Settings::default());
    apply(&mut engine, &entry("evil", "out.example", "'*'"));
    apply(&mut engine, &rule(namespace, text));
    let what = format!("{namespace}: {text}");
    assert_eq!(is_told(engine.snapshot(), &what), kept.is_none(), "{what}");
    let count = usize::from(kept.is_some());
    let field = kept.unwrap_or_default();
    let finding = format!("VirtualService {namespace}/r: spec.http[0].{field}: {KEPT}");
    assert_eq!(told(&engine, &finding), count, "{what}");
    assert_eq!(told(&engine, KEPT), count, "{what}");
}

#[test]
fn a_service_of_another_namespace_is_told_of_clients_by_the_proxy_alone() {
    let half = |it: &str| format!("{{{it}, weight: 50}}");
    let edited = |it: &str| half(&format!("{it}, {EDITS}"));
    let (own, other) = (
        format!("route: [{{{OWN}}}]"),
        format!("route: [{{{OTHER}}}]"),
    );
    check("evil", &format!("{EDITS}, {own}"), None);
    check("good", &format!("{EDITS}, {other}"), None);
    // Who operates the gateway answers for all endpoints.
    check("istio-system", &format!("{EDITS}, {other}"), None);
    for rest in [
        other,
        format!("route: [{}, {}]", half(OWN), half(OTHER)),
        format!("{COPY}, {own}"),
    ] {
        let text = format!("{EDITS}, {rest}");
        check("evil", &text, Some("headers.request"));
    }
    let first = format!("route: [{}, {}]", edited(OWN), half(OTHER));
    check("evil", &first, None);
    let second = format!("route: [{}, {}]", half(OWN), edited(OTHER));
    check("evil", &second, Some("route[1].headers.request"));
    // A copy has what is changed for the destination.
    let copied = format!("{COPY}, route: [{{{OWN}, {EDITS}}}]");
    check("evil", &copied, Some("route[0].headers.request"));
    // Of a ServiceEntry the namespace counts that wrote it.
    let out = format!("{EDITS}, route: [{{destination: {{host: out.example}}}}]");
    check("evil", &out, None);
    check("good", &out, Some("headers.request"));
}

#[test]
fn what_a_root_says_of_clients_is_its_own_and_what_a_delegate_says_that_of_the_delegate() {
    let plain = format!("route: [{{{OWN}}}]");
    let edited = format!("{EDITS}, route: [{{{OWN}}}]");
    for (namespace, of_root, of_part, expected) in [
        ("evil", EDITS, &plain, false),
        ("good", EDITS, &plain, true),
        ("istio-system", EDITS, &plain, true),
        ("evil", "timeout: 5s", &edited, true),
    ] {
        // To be named by the delegate is no leave to say so.
        for exports in ["['*']", "[evil, good, istio-system]"] {
            let mut engine = engine(Settings::default());
            apply(&mut engine, &part(exports, of_part));
            apply(&mut engine, &root(namespace, &format!(", {of_root}")));
            let what = format!("{namespace}: {of_root}, {of_part}, {exports}");
            assert_eq!(is_told(engine.snapshot(), &what), expected, "{what}");
            let finding = format!("VirtualService {namespace}/r: spec.http[0].headers.request");
            assert_eq!(told(&engine, &finding), usize::from(!expected), "{what}");
            assert_eq!(told(&engine, KEPT), usize::from(!expected), "{what}");
        }
    }
}

#[test]
fn a_proxy_of_the_namespace_itself_is_told_what_its_rules_say_of_clients() {
    let views = [
        "tenant evil istio=ingressgateway",
        "own good app=a sidecar",
        "other evil app=a sidecar",
    ];
    let mut engine = engine(Settings {
        sidecars: true,
        views: views.iter().map(|text| world::view(text)).collect(),
        ..Settings::default()
    });
    let text_in = |engine: &Engine, view: &str| {
        let snapshot = engine.snapshot_of(view).expect("a view");
        is_told(&snapshot, view)
    };
    apply(
        &mut engine,
        &rule("evil", &format!("{EDITS}, route: [{{{OTHER}}}]")),
    );
    assert!(!is_told(engine.snapshot(), "the operator's"));
    assert!(text_in(&engine, "tenant"));
    apply(&mut engine, "remove VirtualService evil/r");
    // A rule for the Service of its namespace is for the requests of all callers.
    let away = "route: [{destination: {host: web.istio-system.svc.cluster.local}}]";
    let of_service = format!("hosts: [web], http: [{{{EDITS}, {away}}}]");
    apply(&mut engine, &virtual_service("good", &of_service));
    assert!(text_in(&engine, "own"));
    assert!(!text_in(&engine, "other"));
}

#[test]
fn what_is_kept_back_is_reached_by_no_delegate_that_does_not_name_the_root() {
    let rule = format!("route: [{{{OWN}}}]");
    for (namespace, of_part, of_service, exports, expected) in [
        ("evil", "['*']", ".", ServiceExports::All, false),
        ("evil", "['*']", "", ServiceExports::Named, false),
        ("evil", "['*']", "", ServiceExports::All, true),
        ("evil", "['*']", "evil", ServiceExports::Named, true),
        ("evil", "[evil]", ".", ServiceExports::All, true),
        ("evil", "[evil]", "", ServiceExports::Named, true),
        ("good", "['*']", ".", ServiceExports::Named, true),
        ("istio-system", "['*']", ".", ServiceExports::Named, true),
    ] {
        let mut engine = engine(Settings {
            service_exports: exports,
            ..Settings::default()
        });
        apply(&mut engine, &service("good", "web", of_service));
        apply(&mut engine, &part(of_part, &rule));
        apply(&mut engine, &root(namespace, ""));
        let is_reached = |engine: &Engine| text_of(engine.snapshot()).contains("-> good/web:80");
        let what = format!("{namespace}: {of_part} {of_service:?} {exports:?}");
        assert_eq!(is_reached(&engine), expected, "{what}");
        let finding = "VirtualService evil/r: spec.http[0].delegate: leads to \
                       spec.http[0].route[0].destination of VirtualService good/part: Service \
                       good/web is not exported to namespace evil";
        assert_eq!(told(&engine, finding), usize::from(!expected), "{what}");
        // An edit of the Service is enough.
        apply(&mut engine, &service("good", "web", "evil"));
        assert!(is_reached(&engine), "{what}");
        assert_eq!(told(&engine, finding), 0, "{what}");
    }
}

#[test]
fn a_host_that_is_kept_back_is_reached_by_no_delegate_either() {
    let rule = "route: [{destination: {host: out.example}}]";
    for (exports, expected) in [("'.'", false), ("'*'", true), ("'.', evil", true)] {
        let mut engine = engine(Settings::default());
        apply(&mut engine, &entry("good", "out.example", exports));
        apply(&mut engine, &part("['*']", rule));
        apply(&mut engine, &root("evil", ""));
        let text = text_of(engine.snapshot());
        let is_reached = text.contains("-> entry/good/out.example:80");
        assert_eq!(is_reached, expected, "{exports}\n{text}");
        let finding = "out.example is of no ServiceEntry that is exported to namespace evil";
        assert_eq!(told(&engine, finding), usize::from(!expected), "{exports}");
    }
}

#[test]
fn copies_that_a_root_asks_for_go_nowhere_that_it_does_not_see() {
    let rule = format!("route: [{{{OWN}}}]");
    for (exports, expected) in [(".", false), ("", true)] {
        let mut engine = engine(Settings::default());
        apply(&mut engine, &service("good", "copy", exports));
        // The delegate names the root, and leads where that may not.
        apply(&mut engine, &service("good", "web", "."));
        apply(&mut engine, &part("[evil]", &rule));
        let copy = ", mirror: {host: copy.good.svc.cluster.local, port: {number: 80}}";
        apply(&mut engine, &root("evil", copy));
        let text = text_of(engine.snapshot());
        assert!(text.contains("-> good/web:80"), "{text}");
        assert_eq!(text.contains("good/copy:80"), expected, "{text}");
        let finding = "VirtualService evil/r: spec.http[0].mirror.host: Service good/copy is not \
                       exported to namespace evil";
        assert_eq!(told(&engine, finding), usize::from(!expected), "{exports}");
    }
}
