//! Objects that an API server would not take.

use super::*;

/// A value with another one at a path such as `/spec/rules`.
fn with(kind: ObjectKind, path: &str, new: Value) -> Value {
    let mut value = example(kind);
    let (parent, name) = path.rsplit_once('/').expect("a path");
    let parent = value.pointer_mut(parent).expect("a parent");
    match parent {
        Value::Array(items) => items[name.parse::<usize>().expect("a number")] = new,
        parent => parent[name] = new,
    }
    value
}

/// A list of so many values.
fn many(count: usize, value: &Value) -> Value {
    std::iter::repeat_n(value.clone(), count).collect()
}

fn listener(name: &str) -> Value {
    json!({"name": name, "port": 80, "protocol": "HTTP"})
}

/// The path of the problem of an object, which there is.
fn problem(value: &Value) -> (String, String) {
    match read(value) {
        Ok(object) => panic!("{} is read", object.key()),
        Err(problem) => problem,
    }
}

/// Kind, path, the most entries, and an entry.
const LISTS: &str = r#"
HTTPRoute /spec/parentRefs 32 {"name": "g"}
HTTPRoute /spec/hostnames 16 "a.test"
HTTPRoute /spec/rules 16 {}
HTTPRoute /spec/rules/0/matches 64 {}
HTTPRoute /spec/rules/0/filters 16 {"type": "New"}
HTTPRoute /spec/rules/0/backendRefs 16 {"name": "b", "port": 80}
HTTPRoute /spec/rules/0/retry/codes 200 500
GRPCRoute /spec/rules/0/backendRefs 16 {"name": "b", "port": 80}
TCPRoute /spec/rules/0/backendRefs 16 {"name": "b", "port": 80}
TLSRoute /spec/hostnames 1024 "a.test"
ReferenceGrant /spec/to 16 {"group": "", "kind": "Secret"}
BackendTLSPolicy /spec/targetRefs 16 {"group": "", "kind": "Service", "name": "a"}
Gateway /spec/addresses 16 {"value": "192.0.2.1"}
Gateway /spec/tls/frontend/default/validation/caCertificateRefs 16 {"name": "a"}
Gateway /spec/listeners/0/tls/certificateRefs 64 {"name": "a"}
Gateway /spec/listeners/0/allowedRoutes/kinds 8 {"kind": "HTTPRoute"}
Gateway /spec/allowedListeners/namespaces/selector/matchExpressions 16 {"key":"a","operator":"In"}
"#;

/// Kind, path and the most characters.
const TEXTS: &str = "
HTTPRoute /spec/rules/0/matches/1/path/value 1024
HTTPRoute /spec/rules/0/matches/0/headers/0/value 4096
HTTPRoute /spec/rules/0/matches/0/headers/0/name 256
HTTPRoute /spec/rules/0/name 253
Gateway /spec/listeners/0/hostname 253
Gateway /spec/listeners/0/protocol 255
GatewayClass /spec/description 64
";

/// A line of a table: its kind, its path, its number and the rest.
fn parts(line: &str) -> (ObjectKind, &str, usize, &str) {
    let mut parts = line.splitn(4, ' ');
    let mut next = || parts.next().unwrap_or_default();
    let (kind, path, most) = (next(), next(), next());
    let mut kinds = ObjectKind::GATEWAY_API.into_iter();
    let kind = kinds.find(|known| known.as_str() == kind).expect("a kind");
    (kind, path, most.parse().expect("a number"), next())
}

#[test]
fn lists_end_where_their_definitions_say() {
    for line in LISTS.trim().lines() {
        let (kind, path, most, item) = parts(line);
        let item: Value = serde_json::from_str(item).expect("an entry");
        read(&with(kind, path, many(most, &item))).expect(line);
        let (place, message) = problem(&with(kind, path, many(most + 1, &item)));
        let bound = format!("of which there may be {most}");
        assert!(message.contains(&bound), "{line}: {message}");
        let place = place.replace(['.', '['], "/").replace(']', "");
        assert_eq!(format!("/{place}"), path);
    }
}

#[test]
fn texts_end_where_their_definitions_say() {
    for line in TEXTS.trim().lines() {
        let (kind, path, most, _) = parts(line);
        let text = |count: usize| Value::from(format!("/{}", "x".repeat(count - 1)));
        read(&with(kind, path, text(most))).expect(line);
        let (_, message) = problem(&with(kind, path, text(most + 1)));
        let bound = format!("of which there may be {most}");
        assert!(message.contains(&bound), "{line}: {message}");
    }
}

#[test]
fn a_listener_is_one_of_sixty_four_with_names_of_their_own() {
    let listeners = |count: usize| -> Value {
        let names = (0..count).map(|number| listener(&format!("l{number}")));
        names.collect()
    };
    for kind in [ObjectKind::Gateway, ObjectKind::ListenerSet] {
        read(&with(kind, "/spec/listeners", listeners(64))).expect("64 listeners");
        problem(&with(kind, "/spec/listeners", listeners(65)));
        let twice = json!([listener("a"), listener("b"), listener("a")]);
        let (_, message) = problem(&with(kind, "/spec/listeners", twice));
        assert!(
            message.contains("spec.listeners has two listeners of one name"),
            "{message}"
        );
    }
}

#[test]
fn a_route_has_at_most_128_matches_in_all() {
    let rules = |last: usize| {
        let rule = |count: usize| json!({"matches": many(count, &json!({}))});
        json!([rule(64), rule(63), rule(last)])
    };
    assert_eq!(route(&rules(1)).spec.rules.len(), 3);
    let (_, message) = problem(&with_rules(&rules(2)));
    assert!(message.contains("more than 128 matches"), "{message}");
    let method = json!({"method": {"service": "a"}});
    let rule = |count: usize| json!({"matches": many(count, &method)});
    let rules = json!([rule(64), rule(64), rule(1)]);
    problem(&with(ObjectKind::GrpcRoute, "/spec/rules", rules));
}

#[test]
fn a_path_is_one_that_requests_have() {
    let rules =
        |kind: &str, path: &str| json!([{"matches": [{"path": {"type": kind, "value": path}}]}]);
    for path in ["/", "/a/b.c", "/a%20b", "/a/..b", "/~a;b=c@d"] {
        route(&rules("Exact", path));
        route(&rules("PathPrefix", path));
    }
    for path in [
        "", "a", "/a//b", "/./a", "/a/../b", "/a/..", "/a/.", "/a%2fb", "/a%2Fb", "/a#b", "/a?b",
        "/a b", "/a%2", "/a%zz", "/é",
    ] {
        let (_, message) = problem(&with_rules(&rules("Exact", path)));
        assert!(
            message.contains("spec.rules has a path"),
            "{path}: {message}"
        );
        problem(&with_rules(&rules("PathPrefix", path)));
        route(&rules("RegularExpression", path));
    }
}

#[test]
fn a_method_of_grpc_has_names_of_protobuf() {
    let fault = |kind: &str, service: &str, method: &str| {
        let method = json!({"type": kind, "service": service, "method": method});
        let rules = json!([{"matches": [{"method": method}]}]);
        let value = with(ObjectKind::GrpcRoute, "/spec/rules", rules);
        let Ok(Object::GrpcRoute(route)) = read(&value) else {
            panic!("{service} {method}");
        };
        let method = route.spec.rules[0].matches[0].method.as_ref();
        method.expect("a method").fault()
    };
    for (service, method) in [("a.B_1", "C"), (".a.B", ""), ("", "_c")] {
        assert_eq!(fault("Exact", service, method), None, "{service} {method}");
    }
    for (service, method) in [
        ("a/b", "C"),
        ("a..b", "C"),
        ("1a", "C"),
        ("a", "c.d"),
        ("a", "é"),
    ] {
        assert!(fault("Exact", service, method).is_some());
        assert_eq!(fault("RegularExpression", service, method), None);
    }
}

#[test]
fn a_filter_has_the_fields_of_its_type_and_no_others() {
    let cases = [
        json!({"type": "CORS"}),
        json!({"type": "URLRewrite", "cors": {}}),
        json!({"type": "CORS", "cors": {}, "urlRewrite": {}}),
        json!({"type": "Compress", "cors": {}}),
        json!({"urlRewrite": {}}),
        json!({"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath"}}}),
        json!({"type": "URLRewrite", "urlRewrite": {"path": {
            "type": "ReplaceFullPath", "replacePrefixMatch": "/"}}}),
        json!({"type": "RequestMirror", "requestMirror": {}}),
        json!({"type": "RequestMirror", "requestMirror": {
            "backendRef": {"name": "a"}, "percent": 1, "fraction": {"numerator": 1}}}),
        json!({"type": "RequestMirror", "requestMirror": {
            "backendRef": {"name": "a"}, "percent": 101}}),
        json!({"type": "RequestMirror", "requestMirror": {
            "backendRef": {"name": "a"}, "fraction": {"numerator": 1, "denominator": 0}}}),
        json!({"type": "ExternalAuth", "externalAuth": {
            "protocol": "HTTP", "backendRef": {"name": "a"}, "grpc": {}, "http": {}}}),
    ];
    for filter in cases {
        let (path, _) = problem(&with_rules(&json!([{"filters": [filter]}])));
        assert!(
            path.starts_with("spec.rules[0].filters[0]"),
            "{filter}: {path}"
        );
    }
}

#[test]
fn numbers_and_durations_are_those_of_the_definitions() {
    let rule = |rule: Value| with_rules(&json!([rule]));
    let backend = |field: &str, value: Value| {
        let mut backend = json!({"name": "a"});
        backend[field] = value;
        rule(json!({"backendRefs": [backend]}))
    };
    for (good, bad) in [
        (backend("port", json!(1)), backend("port", json!(0))),
        (
            backend("port", json!(65_535)),
            backend("port", json!(65_536)),
        ),
        (
            backend("weight", json!(1_000_000)),
            backend("weight", json!(1_000_001)),
        ),
        (backend("name", json!("b")), backend("name", json!(""))),
        (backend("group", json!("")), backend("kind", json!(""))),
        (
            rule(json!({"retry": {"codes": [400, 599]}})),
            rule(json!({"retry": {"codes": [399]}})),
        ),
        (
            rule(json!({"retry": {"attempts": 1}})),
            rule(json!({"retry": {"attempts": 0}})),
        ),
        (
            rule(json!({"timeouts": {"request": "0s"}})),
            rule(json!({"timeouts": {"request": "1.5s"}})),
        ),
    ] {
        read(&good).expect("within the bounds");
        problem(&bad);
    }
    let (path, _) = problem(&with(
        ObjectKind::Gateway,
        "/spec/listeners/1/port",
        json!(0),
    ));
    assert_eq!(path, "spec.listeners[1].port");
}

#[test]
fn required_fields_are_required() {
    for (kind, path) in [
        (ObjectKind::GatewayClass, "/spec/controllerName"),
        (ObjectKind::Gateway, "/spec/gatewayClassName"),
        (ObjectKind::Gateway, "/spec/listeners"),
        (ObjectKind::Gateway, "/spec/listeners/0/protocol"),
        (ObjectKind::ListenerSet, "/spec/parentRef"),
        (ObjectKind::TcpRoute, "/spec/rules"),
        (ObjectKind::BackendTlsPolicy, "/spec/targetRefs"),
        (ObjectKind::ReferenceGrant, "/spec/from/0/namespace"),
        (ObjectKind::HttpRoute, "/spec/parentRefs/0/name"),
    ] {
        let (_, message) = problem(&with(kind, path, Value::Null));
        assert!(
            message.contains("missing field"),
            "{kind:?} {path}: {message}"
        );
    }
    let bare = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "a"},
    });
    problem(&bare);
}
