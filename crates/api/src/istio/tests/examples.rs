//! The examples: what becomes of them, in every format that carries them.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use super::{Head, Yaml, all_examples, example, kind_of, notes_of, read, yaml};
use crate::{Object, ObjectKind};
use virtual_service::{Percent, RedirectPort};

#[test]
fn only_fields_that_cannot_be_honoured_are_noted() {
    let mut notes = Vec::new();
    for value in all_examples() {
        let object = read(&value).expect("a good example");
        let lines = notes_of(&object).into_iter();
        notes.extend(lines.map(|note| format!("{} {note}", object.key().kind.as_str())));
    }
    assert_eq!(
        notes,
        [
            "Gateway refused spec.servers[0].port.targetPort",
            "Gateway refused spec.servers[1].defaultEndpoint",
            "VirtualService refused spec.http[0].fault.abort.http2Error",
            "VirtualService refused spec.http[0].fault.delay.exponentialDelay",
            "Sidecar refused spec.ingress[0].port.targetPort",
            "ProxyConfig refused spec.environmentVariables",
            "ProxyConfig refused spec.image",
            "EnvoyFilter refused ",
            "WasmPlugin refused ",
        ]
    );
}

#[test]
fn every_format_and_version_reads_the_same() {
    for value in all_examples() {
        let kind = kind_of(&value);
        let object = read(&value).expect("a good example");
        let text = value.to_string();
        let from_json = Object::deserialize(kind, &mut serde_json::Deserializer::from_str(&text));
        assert_eq!(from_json.expect("the same in JSON"), object);
        for version in kind.api_versions() {
            let mut value = value.clone();
            value["apiVersion"] = (*version).into();
            assert_eq!(read(&value).expect("the same in any version"), object);
        }
    }
    for text in include_str!("examples/security.yaml").split("---\n") {
        let head: Head = serde_saphyr::from_str(text).expect("a head");
        let kind = ObjectKind::find(&head.api_version, &head.kind).expect("a kind");
        let object = Object::read(kind, Yaml(text)).expect("the same in YAML");
        assert_eq!(object, read(&yaml(text)).expect("a good example"));
    }
    let text = include_str!("examples/destination_rule.yaml");
    let object = Object::read(ObjectKind::DestinationRule, Yaml(text)).expect("the same in YAML");
    assert_eq!(object, read(&yaml(text)).expect("a good example"));
}

#[test]
fn null_means_not_set() {
    let mut value = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": "a"}, "spec": {"http": [{"route": []}]},
    });
    let plain = read(&value).expect("a plain object");
    let route = &mut value["spec"]["http"][0];
    for name in [
        "name",
        "match",
        "timeout",
        "redirect",
        "mirrorPercentage",
        "mirrors",
    ] {
        route[name] = Value::Null;
    }
    value["spec"]["exportTo"] = Value::Null;
    value["status"] = Value::Null;
    assert_eq!(read(&value), Ok(plain));
}

#[test]
fn values_are_read_as_protobuf_means_them() {
    let Object::VirtualService(shop) = example(ObjectKind::VirtualService, "shop") else {
        panic!("a VirtualService");
    };
    let [cart, moved, derived, teapot, raw, delegated] = &*shop.spec.http else {
        panic!("six routes");
    };
    assert_eq!(
        cart.matches[0].uri,
        Some(StringMatch::Exact("/cart".into()))
    );
    assert_eq!(
        cart.matches[0].headers.get("x-any"),
        Some(&StringMatch::Present)
    );
    assert_eq!(cart.matches[0].headers.get("x-none"), None);
    assert_eq!(cart.timeout, Some(Duration::from_millis(2_500)));
    assert_eq!(
        cart.route[0].destination.port.map(|port| port.number),
        Some(8080)
    );
    assert_eq!(cart.rare().mirror_percentage, Some(Percent { value: 41.5 }));
    let max_age = cart
        .rare()
        .cors_policy
        .as_ref()
        .and_then(|cors| cors.max_age);
    assert_eq!(max_age, Some(Duration::from_secs(86_400)));
    let redirect = |route: &virtual_service::HttpRoute| route.rare().redirect.clone();
    assert_eq!(
        redirect(moved).and_then(|redirect| redirect.port),
        Some(8443)
    );
    let port = redirect(derived).and_then(|redirect| redirect.derive_port);
    assert_eq!(port, Some(RedirectPort::FromRequestPort));
    assert_eq!(
        teapot
            .rare()
            .direct_response
            .as_ref()
            .map(|answer| answer.status),
        Some(418)
    );
    let body = raw
        .rare()
        .direct_response
        .clone()
        .and_then(|answer| answer.body?.bytes);
    assert_eq!(body, Some(scalar::Base64([0, 1, 2, 255].into())));
    let delegate = delegated.rare().delegate.as_ref();
    assert_eq!(
        delegate.map(|delegate| &*delegate.namespace),
        Some("others")
    );

    let Object::IstioGateway(gateway) = example(ObjectKind::IstioGateway, "shop") else {
        panic!("a Gateway");
    };
    assert_eq!(gateway.spec.servers[1].port.number, 443);
    let tls = gateway.spec.servers[1].tls.as_ref().expect("TLS");
    assert_eq!(tls.mode, gateway::TlsMode::Mutual);
    assert_eq!(tls.rare().insecure_skip_verify, Some(false));

    let Object::DestinationRule(rule) = example(ObjectKind::DestinationRule, "cart") else {
        panic!("a DestinationRule");
    };
    let policy = rule.spec.traffic_policy.as_ref().expect("a policy");
    let tls = policy.port_level_settings[0].tls.as_ref().expect("TLS");
    assert_eq!(tls.mode.as_str(), "ISTIO_MUTUAL");
}

#[test]
fn labels_of_a_workload_entry_lie_below_those_of_its_spec() {
    let Object::WorkloadEntry(entry) = example(ObjectKind::WorkloadEntry, "bank-1") else {
        panic!("a WorkloadEntry");
    };
    let labels: Vec<_> = entry
        .spec
        .labels
        .iter()
        .map(|(k, v)| (&**k, &**v))
        .collect();
    assert_eq!(labels, [("app", "bank"), ("version", "v2")]);
}

#[test]
fn a_policy_that_is_only_tried_out_says_so() {
    let policy = example(ObjectKind::AuthorizationPolicy, "guard");
    assert_eq!(policy.meta().annotation("istio.io/dry-run"), Some("true"));
}

/// Replaces the value at the `at`-th place of a tree, counted in depth; the places left over.
fn replace(tree: &mut Value, at: usize, with: &Value) -> Option<usize> {
    if at == 0 {
        *tree = with.clone();
        return None;
    }
    let mut left = at - 1;
    let children: Vec<&mut Value> = match tree {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        left = replace(child, left, with)?;
    }
    Some(left)
}

fn strays() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!([])),
        Just(json!([null])),
        Just(json!({"": null})),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[0-9.a-zµ+-]{0,6}".prop_map(Value::from),
    ]
}

proptest! {
    #[test]
    fn a_stray_value_is_read_or_refused_with_its_place(
        which in any::<prop::sample::Index>(),
        at in 0..300_usize,
        stray in strays(),
    ) {
        let examples = all_examples();
        let mut value = which.get(&examples).clone();
        let mut spec = value["spec"].take();
        replace(&mut spec, at, &stray);
        value["spec"] = spec;
        if let Err((path, message)) = read(&value) {
            prop_assert!(path.starts_with("spec") || path == ".", "{} {}", path, message);
            prop_assert!(!message.is_empty());
        }
    }
}
