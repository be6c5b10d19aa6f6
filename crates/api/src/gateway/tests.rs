//! Objects that are read, and those that are not.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::istio::{Note, NoteKind};
use crate::{Object, ObjectKey, ObjectKind};

mod bounds;
mod documented;
mod examples;
mod schema;

/// All examples, each as one value.
fn all_examples() -> Vec<Value> {
    [
        include_str!("tests/examples/gateway.yaml"),
        include_str!("tests/examples/http_route.yaml"),
        include_str!("tests/examples/grpc_route.yaml"),
        include_str!("tests/examples/streams.yaml"),
        include_str!("tests/examples/policies.yaml"),
    ]
    .iter()
    .flat_map(|text| text.split("---\n"))
    .map(|text| serde_saphyr::from_str(text).expect("an example"))
    .collect()
}

/// The example of a kind.
fn example(kind: ObjectKind) -> Value {
    let mut examples = all_examples().into_iter();
    let found = examples.find(|value| value["kind"] == kind.as_str());
    found.expect("an example")
}

/// Reads an object, or says which field of it is wrong and why.
fn read(value: &Value) -> Result<Object, (String, String)> {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let kind = ObjectKind::find(text("apiVersion"), text("kind")).expect("a kind");
    let json = value.to_string();
    Object::from_json(kind, &json).map_err(|error| {
        let (again, path) = Object::json_problem(kind, &json).expect("the same problem");
        assert_eq!(again.to_string(), error.to_string());
        (path, again.to_string())
    })
}

/// The notes of an object.
fn notes_of(object: &Object) -> &[Note] {
    match object {
        Object::GatewayClass(object) => &object.notes,
        Object::Gateway(object) => &object.notes,
        Object::ListenerSet(object) => &object.notes,
        Object::HttpRoute(object) => &object.notes,
        Object::GrpcRoute(object) => &object.notes,
        Object::TlsRoute(object) => &object.notes,
        Object::TcpRoute(object) => &object.notes,
        Object::UdpRoute(object) => &object.notes,
        Object::BackendTlsPolicy(object) => &object.notes,
        Object::ReferenceGrant(object) => &object.notes,
        other => panic!("{} is not of Gateway API", other.key()),
    }
}

/// An HTTPRoute with these rules.
fn with_rules(rules: &Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "a", "namespace": "n"}, "spec": {"rules": rules},
    })
}

/// The HTTPRoute with these rules.
fn route(rules: &Value) -> Arc<HttpRoute> {
    match read(&with_rules(rules)) {
        Ok(Object::HttpRoute(route)) => route,
        other => panic!("{other:?}"),
    }
}
