//! Bounds of the memory that objects may take, however little is written.

use serde_json::{Value, json};

use super::super::OBJECT_BYTES_MAX;
use super::read;
use crate::Object;

/// Objects of about a megabyte of text in which everything is as small as it can be written.
fn dense(kind: &str, api_version: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "a", "namespace": "n"}, "spec": spec,
    })
}

fn empties(count: usize) -> Value {
    vec![json!({}); count].into()
}

#[test]
fn lists_of_empty_messages_end_at_the_bound() {
    let count = 500_000;
    let security = "security.istio.io/v1";
    for (kind, spec) in [
        ("RequestAuthentication", json!({"jwtRules": empties(count)})),
        (
            "AuthorizationPolicy",
            json!({"rules": [{"to": [{"operation": {
                "paths": vec![""; 3 * count],
            }}]}]}),
        ),
    ] {
        let object = read(&dense(kind, security, &spec)).expect("a policy stays, and closes");
        let problem = match &object {
            Object::RequestAuthentication(policy) => policy.spec.as_ref().err(),
            Object::AuthorizationPolicy(policy) => policy.spec.as_ref().err(),
            _ => None,
        };
        let problem = problem.expect("a problem");
        assert!(problem.message.contains("32 MiB"), "{}", problem.message);
        // The problem alone.
        assert!((50..500).contains(&object.bytes()), "{}", object.bytes());
    }
    let networking = "networking.istio.io/v1";
    let rare = vec![json!({"fault": {}}); count];
    for (kind, spec) in [
        ("VirtualService", json!({"http": empties(count)})),
        ("VirtualService", json!({"http": rare})),
        (
            "VirtualService",
            json!({"http": [{"match": empties(count)}]}),
        ),
    ] {
        let problem = read(&dense(kind, networking, &spec)).expect_err("too much");
        assert!(
            problem.0.contains("32 MiB") || problem.1.contains("32 MiB"),
            "{kind}: {problem:?}"
        );
    }
}

#[test]
fn honest_objects_count_for_what_they_take() {
    let route = |number: usize| {
        json!({
            "match": [{"uri": {"exact": format!("/path-{number:03}")}}],
            "route": [{"destination": {"host": "backend", "port": {"number": 8080}}}],
        })
    };
    let spec = json!({"hosts": ["a.example.com"], "http": (0..100).map(route).collect::<Vec<_>>()});
    let object = read(&dense("VirtualService", "networking.istio.io/v1", &spec)).expect("honest");
    // A hundred routes of 80 bytes, matches of 64, paths of 9, destinations of 56 with their host
    // of 7, which they share and count for each; with allocations.
    assert_eq!(object.bytes(), 25_645);
    let written = spec.to_string().len();
    assert!(object.bytes() as usize <= 4 * written, "{written}");
    assert!(object.bytes() as usize * 1_000 <= OBJECT_BYTES_MAX);
}
