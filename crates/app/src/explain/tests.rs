use myriad_api::{Change, Object, ObjectKind};
use myriad_model::{Form, Sealer, Writer};
use myriad_translate::Engine;
use serde_json::{Value, json};

use super::{Explanation, Question, answer, gather};

mod gateway;
mod policies;

fn object(kind: ObjectKind, value: Value) -> Change {
    Change::Put(Object::deserialize(kind, value).expect("an object"))
}

fn ingress(name: &str, annotations: Value, spec: Value) -> Change {
    let value = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"namespace": "shop", "name": name, "annotations": annotations},
        "spec": spec,
    });
    object(ObjectKind::Ingress, value)
}

fn rule(host: &str, path: &str, service: &str) -> Value {
    json!({"host": host, "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": {
        "service": {"name": service, "port": {"number": 80}}
    }}]}})
}

fn service(name: &str, addresses: &[&str]) -> [Change; 2] {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"ports": [{"name": "web", "port": 80, "targetPort": 8080}]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "shop",
            "name": format!("{name}-1"),
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": 8080}],
        "endpoints": addresses.iter().map(|it| json!({"addresses": [it]})).collect::<Vec<_>>(),
    });
    [
        object(ObjectKind::Service, service),
        object(ObjectKind::EndpointSlice, slice),
    ]
}

fn shop() -> Vec<Change> {
    let mut changes = vec![
        ingress(
            "front",
            json!({}),
            json!({"rules": [
                rule("www.shop.test", "/cart", "cart"),
                rule("www.shop.test", "/idle", "idle"),
                rule("www.shop.test", "/gone", "gone"),
            ]}),
        ),
        ingress(
            "secure",
            json!({}),
            json!({
                "tls": [{"hosts": ["pay.shop.test"], "secretName": "pay"}],
                "rules": [rule("pay.shop.test", "/", "cart")],
            }),
        ),
    ];
    changes.extend(service("cart", &["10.0.0.1", "10.0.0.2"]));
    changes.extend(service("idle", &[]));
    changes
}

/// The explanation of a request, made twice: it must not depend on the form in which resources are
/// held.
fn explain_with(url: &str, method: &str, headers: &[&str]) -> Explanation {
    let headers: Vec<String> = headers.iter().map(|it| (*it).to_owned()).collect();
    let question = Question::new(url, method, &headers).expect("a question");
    let mut texts = Vec::new();
    for form in [Form::Value, Form::Encoded] {
        let writer = Writer::new(Sealer::new([3; 32], form));
        let mut engine = Engine::new(myriad_translate::Settings::default(), writer);
        engine.apply(shop(), 0);
        let scene = gather::gather(engine.snapshot(), &question.names());
        let explanation = answer::explain(&scene, &question, &|is_wanted| {
            let findings = engine.findings();
            findings.filter(|it| is_wanted(it)).cloned().collect()
        });
        texts.push((explanation.to_string(), explanation));
    }
    assert_eq!(texts[0].0, texts[1].0);
    texts.swap_remove(0).1
}

fn explain(url: &str) -> Explanation {
    explain_with(url, "GET", &[])
}

#[test]
fn a_request_that_is_served_shows_every_step() {
    let seen = explain("http://www.shop.test/cart/3?x=1");
    assert!(seen.is_served, "{seen}");
    assert_eq!(seen.answer, "is sent to one of 2 endpoints");
    assert_eq!(seen.listener.as_deref(), Some("http at 0.0.0.0:8080"));
    let route = seen.route.as_ref().expect("a route");
    assert_eq!(
        (&*route.path, &*route.host),
        ("prefix /cart", "www.shop.test")
    );
    assert_eq!(route.object, "Ingress shop/front");
    let upstream = &seen.upstreams[0];
    assert_eq!(upstream.endpoints, ["10.0.0.1:8080", "10.0.0.2:8080"]);
    assert_eq!(seen.status, None);
}

#[test]
fn the_proxy_matches_what_it_would_match() {
    // A host in other case, with a port and a final dot, is the same host.
    assert!(explain("http://WWW.shop.test.:80/cart").is_served);
    let seen = explain_with("http://10.9.8.7/cart", "POST", &["Host: www.shop.test"]);
    assert!(seen.is_served, "{seen}");
    assert_eq!(seen.method, "POST");
    let seen = explain("http://www.shop.test/cartoon");
    assert_eq!(seen.status, Some(404));
    assert!(
        seen.hints.iter().any(|hint| hint.contains("prefix /cart")),
        "{seen}"
    );
}

#[test]
fn an_unknown_host_is_told_with_names_that_are_near() {
    let seen = explain("http://wwww.shop.test/cart");
    assert_eq!(seen.status, Some(404));
    assert!(!seen.is_served);
    assert_eq!(seen.hints, ["perhaps meant: www.shop.test"]);
    let seen = explain("https://www.shop.test/");
    assert!(seen.answer.contains("no object asks for HTTPS"), "{seen}");
}

#[test]
fn a_missing_secret_is_named() {
    let seen = explain("https://pay.shop.test/");
    assert!(seen.answer.contains("Secret shop/pay is missing"), "{seen}");
    assert_eq!(
        seen.domain.as_ref().expect("a domain").host,
        "pay.shop.test"
    );
    assert!(!seen.findings.is_empty(), "{seen}");
}

#[test]
fn missing_endpoints_and_services_are_told_apart() {
    let seen = explain("http://www.shop.test/idle");
    assert_eq!(seen.status, Some(503));
    assert_eq!(seen.answer, "503: there are no endpoints that are ready");
    let seen = explain("http://www.shop.test/gone");
    assert_eq!(seen.answer, "503: the route names no Service that is there");
    let names_it = |finding: &String| finding.contains("Service shop/gone");
    assert!(seen.findings.iter().any(names_it), "{seen}");
}

#[test]
fn what_is_no_question_is_refused() {
    for (url, method, header) in [
        ("www.shop.test", "GET", "A: b"),
        ("http://", "GET", "A: b"),
        ("http://u@h/", "GET", "A: b"),
        ("http://h:99999/", "GET", "A: b"),
        ("http://h/", "CONNECT", "A: b"),
        ("http://h/", "GE T", "A: b"),
        ("http://h/\r\nX: y", "GET", "A: b"),
        ("http://h/ b", "GET", "A: b"),
        ("http://h/", "GET", "no colon"),
        ("http://h/", "GET", "Content-Length: x"),
    ] {
        let result = Question::new(url, method, &[header.to_owned()]);
        assert!(result.is_err(), "{url} {method} {header}: {result:?}");
    }
    let long = format!("http://h/{}", "a".repeat(20_000));
    assert!(Question::new(&long, "GET", &[]).is_err());
}

#[test]
fn a_route_names_the_rule_that_it_came_from_and_its_delegate() {
    let own = answer::rule_of("shop/web/www.shop.test/2.0");
    assert_eq!(own.as_deref(), Some("spec.http[2], its match 0"));
    let delegated = answer::rule_of("shop/web/www.shop.test/2>team/part/1.3");
    assert_eq!(
        delegated.as_deref(),
        Some(
            "spec.http[2] of VirtualService shop/web, delegated to VirtualService team/part: \
             spec.http[1], its match 3"
        )
    );
    assert_eq!(answer::rule_of("shop/web/www.shop.test/other"), None);
}
