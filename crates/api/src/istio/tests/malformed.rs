//! Malformed objects: which field is blamed, and what is said about it.

use serde_json::{Value, json};

use super::super::*;
use super::{notes_of, read, yaml};
use crate::Object;

/// An object of a kind with a spec.
fn object(kind: &str, spec: &str) -> Value {
    let group = match kind {
        "AuthorizationPolicy" | "RequestAuthentication" | "PeerAuthentication" => "security",
        "Telemetry" => "telemetry",
        _ => "networking",
    };
    json!({
        "apiVersion": format!("{group}.istio.io/v1"),
        "kind": kind,
        "metadata": {"name": "a", "namespace": "n"},
        "spec": yaml(spec),
    })
}

#[test]
fn malformed_objects_are_refused_with_their_field() {
    #[rustfmt::skip]
    let cases = [
        ("VirtualService", "{http: [{match: [{uri: {exact: /, prefix: /}}]}]}",
            "spec.http[0].match[0].uri", "at most one of exact, prefix, regex may be set"),
        ("VirtualService", "{http: [{}, {timeout: 5 parsecs}]}",
            "spec.http[1].timeout", "invalid value: string \"5 parsecs\", expected a duration"),
        ("VirtualService", "{http: [{timeout: -1s}]}",
            "spec.http[0].timeout", "invalid value: string \"-1s\", expected a duration"),
        ("VirtualService", "{http: [{route: [{destination: {}}]}]}",
            "spec.http[0].route[0].destination", "missing field `host`"),
        ("VirtualService", "{http: [{route: [{destination: {host: null}}]}]}",
            "spec.http[0].route[0].destination", "missing field `host`"),
        ("VirtualService", "{http: [{route: [{destination: {host: a}, weight: -1}]}]}",
            "spec.http[0].route[0].weight", "the value is not a whole number from 0 to 4294967295"),
        ("VirtualService", "{http: [{route: [{destination: {host: a, port: {number: 70000}}}]}]}",
            "spec.http[0].route[0].destination.port.number",
            "the value is not a whole number from 0 to 65535"),
        ("VirtualService", "{http: [{match: [{headers: {x-a: {exact: 1, regex: 2}}}]}]}",
            "spec.http[0].match[0].headers.x-a.exact", "invalid type: integer `1`"),
        ("VirtualService", "{http: [{redirect: {port: 1, derivePort: FROM_REQUEST_PORT}}]}",
            "spec.http[0].redirect", "at most one of port, derivePort may be set"),
        ("VirtualService", "{http: [{fault: {abort: {httpStatus: 500, grpcStatus: A}}}]}",
            "spec.http[0].fault.abort", "at most one of httpStatus, grpcStatus may be set"),
        ("VirtualService", "{http: [{mirrorPercentage: {value: \"NaN\"}}]}",
            "spec.http[0].mirrorPercentage.value", "the number is not finite"),
        ("VirtualService", "{http: [{directResponse: {status: 200, body: {bytes: '*'}}}]}",
            "spec.http[0].directResponse.body.bytes", "the text is not base64"),
        ("VirtualService", "{hosts: [null]}", "spec.hosts[0]", "null stands in a list or map"),
        ("VirtualService", "{hosts: a}",
            "spec.hosts", "invalid type: string \"a\", expected a list"),
        ("VirtualService", "{exportTo: [a], export_to: [b]}",
            "spec", "exportTo is written twice"),
        ("VirtualService", "{tls: [{}]}", "spec.tls[0]", "missing field `match`"),
        ("Gateway", "{servers: [{port: {number: 80, name: a}, hosts: [a]}]}",
            "spec.servers[0].port", "missing field `protocol`"),
        ("Gateway", "{servers: [{port: {number: 1.5, name: a, protocol: TCP}, hosts: [a]}]}",
            "spec.servers[0].port.number", "the value is not a whole number from 0 to 65535"),
        ("Gateway", "{servers: [{port: {number: 1, name: a, protocol: TCP}, hosts: [a],
            tls: {mode: PLAIN}}]}",
            "spec.servers[0].tls.mode", "the value is none of PASSTHROUGH, SIMPLE, MUTUAL"),
        ("Gateway", "{servers: [{port: {number: 1, name: a, protocol: TCP}, hosts: [a],
            tls: {mode: 6}}]}",
            "spec.servers[0].tls.mode", "the value is none of PASSTHROUGH, SIMPLE, MUTUAL"),
        ("Gateway", "{selector: {a: null}}", "spec.selector.a", "null stands in a list or map"),
        ("DestinationRule", "{}", "spec", "missing field `host`"),
        ("DestinationRule", "null", ".", "missing field `host`"),
        ("DestinationRule",
            "{host: a, trafficPolicy: {loadBalancer: {simple: RANDOM, consistentHash: {}}}}",
            "spec.trafficPolicy.loadBalancer", "at most one of simple, consistentHash may be set"),
        ("ServiceEntry", "{ports: []}", "spec", "missing field `hosts`"),
        ("Telemetry", "{tracing: [{customTags: {a: {literal: {value: a}, header: {name: b}}}}]}",
            "spec.tracing[0].customTags.a", "at most one of literal, environment, header"),
    ];
    for (kind, spec, field, message) in cases {
        let (path, text) = read(&object(kind, spec)).expect_err(spec);
        assert_eq!(path, field, "{spec}: {text}");
        assert!(text.starts_with(message), "{spec}: {text}");
    }
}

#[test]
fn a_policy_that_cannot_be_read_is_there_with_its_fault() {
    let policy = object(
        "AuthorizationPolicy",
        "{action: DENY, rules: [{}, {from: [{source: 1}]}]}",
    );
    let Ok(Object::AuthorizationPolicy(policy)) = read(&policy) else {
        panic!("an AuthorizationPolicy");
    };
    let fault = policy.spec.as_ref().expect_err("a fault");
    assert_eq!(&*fault.field, "spec.rules[1].from[0].source");
    assert_eq!(
        &*fault.message,
        "invalid type: integer `1`, expected a map of fields"
    );

    for (kind, spec, field) in [
        ("AuthorizationPolicy", "{action: PERMIT}", "spec.action"),
        (
            "AuthorizationPolicy",
            "{selector: {}, targetRefs: []}",
            "spec",
        ),
        ("AuthorizationPolicy", "[]", "spec"),
    ] {
        let Ok(Object::AuthorizationPolicy(policy)) = read(&object(kind, spec)) else {
            panic!("{spec}");
        };
        assert_eq!(&*policy.spec.as_ref().expect_err(spec).field, field);
    }
    let Ok(Object::RequestAuthentication(jwt)) = read(&object(
        "RequestAuthentication",
        "{jwtRules: [{issuer: a, jwks: b, jwksUri: c}]}",
    )) else {
        panic!("a RequestAuthentication");
    };
    assert_eq!(
        &*jwt.spec.as_ref().expect_err("a fault").field,
        "spec.jwtRules[0]"
    );
    let Ok(Object::PeerAuthentication(peer)) = read(&object(
        "PeerAuthentication",
        "{portLevelMtls: {8080: {mode: OPEN}}}",
    )) else {
        panic!("a PeerAuthentication");
    };
    let field = &peer.spec.as_ref().expect_err("a fault").field;
    assert_eq!(&**field, "spec.portLevelMtls[8080].mode");
}

#[test]
fn a_policy_without_spec_is_an_empty_one() {
    let Ok(Object::AuthorizationPolicy(policy)) = read(&object("AuthorizationPolicy", "null"))
    else {
        panic!("an AuthorizationPolicy");
    };
    assert_eq!(policy.spec, Ok(AuthorizationPolicySpec::default()));
}

#[test]
fn misspelt_fields_are_noted_with_their_path() {
    let mut value = object(
        "VirtualService",
        "{host: [a], http: [{matches: [], match: [{headers: {x-a: {exakt: b}}}],
          route: [{destination: {host: a, Subset: b}}], websocketUpgrade: true}]}",
    );
    value["specs"] = json!({});
    let object = read(&value).expect("an object with strays");
    assert_eq!(
        notes_of(&object),
        [
            "unknown spec.host",
            "unknown spec.http[0].match[0].headers[x-a].exakt",
            "unknown spec.http[0].matches",
            "unknown spec.http[0].route[0].destination.Subset",
            "unknown spec.http[0].websocketUpgrade",
            "unknown specs",
        ]
    );
}

#[test]
fn the_last_note_counts_those_that_were_left_off() {
    let mut value = object("VirtualService", "{}");
    for number in 0..100 {
        value["spec"][format!("stray{number:02}")] = json!(number);
    }
    let notes = notes_of(&read(&value).expect("an object with strays"));
    assert_eq!(notes.len(), NOTES_MAX);
    assert_eq!(notes.last().map(String::as_str), Some("37 more"));
}

#[test]
fn notes_and_problems_keep_a_part_of_a_long_path_and_count_for_their_object() {
    let mut value = object("VirtualService", "{http: [{match: [{}]}]}");
    let bytes = |value: &Value| read(value).expect("an object").bytes() as usize;
    let text_max = 1 << 10;
    let key = "é".repeat(500_000);
    let of_key = |strays: usize| {
        let strays = (0..strays).map(|at| (format!("a{at:02}"), json!(at)));
        let strays: serde_json::Map<String, Value> = strays.collect();
        Value::from(serde_json::Map::from_iter([(key.clone(), strays.into())]))
    };
    value["spec"]["http"][0]["match"][0]["headers"] = of_key(0);
    let without = bytes(&value);
    value["spec"]["http"][0]["match"][0]["headers"] = of_key(100);
    let notes = notes_of(&read(&value).expect("an object with strays"));
    assert_eq!(notes.len(), NOTES_MAX);
    for (at, note) in notes.iter().take(NOTES_MAX - 1).enumerate() {
        let path = note.strip_prefix("unknown ").expect("a stray");
        let (begin, end) = ("spec.http[0].match[0].headers[éé", format!("éé].a{at:02}"));
        assert!(path.starts_with(begin) && path.ends_with(&end), "{path}");
        assert!(path.len() <= text_max && path.contains('…'), "{path}");
    }
    let of_notes = bytes(&value) - without;
    let expected = (NOTES_MAX - 1) * (text_max - 8)..NOTES_MAX * (text_max + 64);
    assert!(expected.contains(&of_notes), "{of_notes}");

    let mut policy = object("AuthorizationPolicy", "{}");
    policy["spec"]["rules"] = json!("x".repeat(1_000_000));
    let Ok(Object::AuthorizationPolicy(policy)) = read(&policy) else {
        panic!("an AuthorizationPolicy");
    };
    let fault = policy.spec.as_ref().expect_err("a fault");
    assert_eq!(&*fault.field, "spec.rules");
    assert!(fault.message.len() <= text_max && fault.message.ends_with("expected a list"));
    let counted = policy.bytes as usize;
    assert!((text_max..2 * text_max).contains(&counted), "{counted}");
}
