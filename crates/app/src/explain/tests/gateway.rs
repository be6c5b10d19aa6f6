//! Explanations of what Gateways alone have: several certificates for different names, and
//! datagrams.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::{Change, ObjectKind};
use myriad_base::clock;
use myriad_model::{Form, Sealer, Writer};
use myriad_pki::Authority;
use myriad_translate::{Engine, Settings};
use serde_json::{Value, json};

use super::{Explanation, Question, answer, gather, object, service};

fn of_gateway_api(kind: ObjectKind, name: &str, spec: Value) -> Change {
    let value = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind.as_str(),
        "metadata": {"namespace": "shop", "name": name},
        "spec": spec,
    });
    object(kind, value)
}

fn gateway(listeners: Value) -> Vec<Change> {
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "myriad"},
        "spec": {"controllerName": "myriad.dev/gateway-controller"},
    });
    let spec = json!({"gatewayClassName": "myriad", "listeners": listeners});
    vec![
        object(ObjectKind::GatewayClass, class),
        of_gateway_api(ObjectKind::Gateway, "edge", spec),
    ]
}

/// A Secret with a certificate for a name.
fn certificate(secret: &str, name: &str) -> Change {
    let now = clock::unix_seconds();
    let authority = Authority::new("ca", now).expect("an authority");
    let leaf = authority.issue(&[name.to_owned()], now, Duration::from_secs(90 * 86_400));
    let leaf = leaf.expect("a certificate");
    let pem = |label: &str, der: &[u8]| {
        let der = STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{der}\n-----END {label}-----\n")
    };
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": "shop", "name": secret},
        "type": "kubernetes.io/tls",
        "stringData": {
            "tls.crt": pem("CERTIFICATE", &leaf.chain[0]),
            "tls.key": pem("PRIVATE KEY", leaf.key.secret_der()),
        },
    });
    object(ObjectKind::Secret, secret)
}

fn explain_of(url: &str, changes: Vec<Change>) -> Explanation {
    let question = Question::new(url, "GET", &[]).expect("a question");
    let writer = Writer::new(Sealer::new([3; 32], Form::Value));
    let settings = Settings {
        https_port: 443,
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, writer);
    engine.apply(changes, clock::unix_seconds());
    let scene = gather::gather(engine.snapshot(), &question.names());
    answer::explain(&scene, &question, &|_| Vec::new())
}

#[test]
fn of_certificates_for_different_names_those_for_the_name_are_shown() {
    let tls = json!({"certificateRefs": [{"name": "a"}, {"name": "b"}]});
    let listener = json!({
        "name": "https",
        "port": 443,
        "protocol": "HTTPS",
        "hostname": "*.shop.test",
        "tls": tls,
    });
    let changes = || {
        let mut changes = gateway(json!([listener]));
        changes.push(certificate("a", "a.shop.test"));
        changes.push(certificate("b", "b.shop.test"));
        changes
    };
    for (name, secret) in [("a", "shop/a"), ("b", "shop/b")] {
        let seen = explain_of(&format!("https://{name}.shop.test/"), changes());
        let shown = seen.certificate.as_ref().expect("a certificate");
        assert_eq!((&*shown.secret, shown.is_for_host), (secret, true));
        assert!(seen.other_certificates.is_empty(), "{seen}");
        let hint = "of 2 certificates of **.shop.test those for this name are shown";
        assert!(seen.hints.iter().any(|it| it == hint), "{seen}");
    }
    let seen = explain_of("https://c.shop.test/", changes());
    let shown = seen.certificate.as_ref().expect("a certificate");
    assert!(!shown.is_for_host, "{seen}");
    assert_eq!(seen.other_certificates.len(), 1, "{seen}");
    let hint = "none of 2 certificates of **.shop.test is for this name";
    assert!(seen.hints.iter().any(|it| it == hint), "{seen}");
}

/// A Gateway with ports of datagrams, of which a route leads one to a Service.
fn datagrams(target: &str, addresses: &[&str]) -> Vec<Change> {
    let mut changes = gateway(json!([
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "log", "port": 514, "protocol": "UDP"},
        {"name": "web", "port": 80, "protocol": "HTTP"},
    ]));
    let spec = json!({
        "parentRefs": [{"name": "edge", "sectionName": "dns"}],
        "rules": [{"backendRefs": [{"name": target, "port": 53}]}],
    });
    changes.push(of_gateway_api(ObjectKind::UdpRoute, "dns", spec));
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}]);
    let dns = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": "dns"},
        "spec": {"ports": ports},
    });
    changes.push(object(ObjectKind::Service, dns));
    let endpoints = addresses.iter().map(|it| json!({"addresses": [it]}));
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "shop",
            "name": "dns-1",
            "labels": {"kubernetes.io/service-name": "dns"},
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": endpoints.collect::<Vec<_>>(),
    });
    changes.push(object(ObjectKind::EndpointSlice, slice));
    changes.extend(service("cart", &["10.0.0.1"]));
    changes
}

#[test]
fn datagrams_are_led_by_the_route_of_their_port() {
    let seen = explain_of(
        "udp://10.9.8.7:53",
        datagrams("dns", &["10.0.0.2", "10.0.0.3"]),
    );
    assert_eq!(seen.answer, "a flow is led to one of 2 endpoints", "{seen}");
    assert!(
        seen.is_served && seen.stages[0].text.contains("UDPRoute shop/dns"),
        "{seen}"
    );
    let upstream = &seen.upstreams[0];
    assert_eq!((&*upstream.protocol, upstream.endpoints.len()), ("UDP", 2));
    assert!(
        seen.to_string().starts_with("udp://10.9.8.7:53\n"),
        "{seen}"
    );
    let refused = |url: &str, changes| {
        let seen = explain_of(url, changes);
        assert!(!seen.is_served, "{seen}");
        seen
    };
    let seen = refused("udp://10.9.8.7:53", datagrams("dns", &[]));
    assert!(seen.answer.contains("no endpoints"), "{seen}");
    let seen = refused("udp://10.9.8.7:53", datagrams("cart", &[]));
    assert!(seen.upstreams[0].object.is_none(), "{seen}");
    let seen = refused("udp://10.9.8.7:514", datagrams("dns", &["10.0.0.2"]));
    assert!(seen.answer.contains("no object leads"), "{seen}");
    // A request is none of a port of datagrams.
    let seen = explain_of("http://10.9.8.7:53/", datagrams("dns", &["10.0.0.2"]));
    assert!(
        !seen.listener.as_deref().unwrap_or_default().contains("udp"),
        "{seen}"
    );
    let seen = explain_of("udp://10.9.8.7:53", service("cart", &[]).into());
    assert_eq!(seen.answer, "there is no listener for UDP");
}
