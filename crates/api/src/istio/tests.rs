//! Fields that are read, that are noted and that are refused.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::reading::Message;
use crate::{Object, ObjectKind, ReadOne};

mod documented;
mod examples;
mod malformed;
mod memory;
mod reference;
mod size;

thread_local! {
    static USED: RefCell<BTreeSet<(&'static str, &'static str)>> = RefCell::default();
}

/// Tells that a field of a message was set, so that a test can ask for those that never were.
pub(super) fn note_use<M: Message>(field: &'static str) {
    USED.with_borrow_mut(|used| used.insert((std::any::type_name::<M>(), field)));
}

/// All examples, each as one value.
fn all_examples() -> Vec<Value> {
    [
        include_str!("tests/examples/gateway.yaml"),
        include_str!("tests/examples/virtual_service.yaml"),
        include_str!("tests/examples/destination_rule.yaml"),
        include_str!("tests/examples/entries.yaml"),
        include_str!("tests/examples/security.yaml"),
        include_str!("tests/examples/telemetry.yaml"),
    ]
    .iter()
    .flat_map(|text| text.split("---\n"))
    .map(yaml)
    .collect()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

/// The example of a kind and name.
fn example(kind: ObjectKind, name: &str) -> Object {
    let examples = all_examples();
    let mut fitting = examples
        .iter()
        .filter(|value| value["kind"] == kind.as_str() && value["metadata"]["name"] == name);
    read(fitting.next().expect("an example")).expect("a good example")
}

fn kind_of(value: &Value) -> ObjectKind {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let kind = ObjectKind::find(text("apiVersion"), text("kind"));
    kind.unwrap_or_else(|| panic!("no kind of {value}"))
}

/// Reads an object, or says which field of it is wrong and why.
fn read(value: &Value) -> Result<Object, (String, String)> {
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    Object::deserialize(kind_of(value), tracked)
        .map_err(|error| (track.path().to_string(), error.to_string()))
}

/// The notes of an object that has them, as `refused PATH` and `unknown PATH`.
fn notes_of(object: &Object) -> Vec<String> {
    use super::NoteKind;
    let notes = match object {
        Object::IstioGateway(object) => &object.notes,
        Object::VirtualService(object) => &object.notes,
        Object::DestinationRule(object) => &object.notes,
        Object::ServiceEntry(object) => &object.notes,
        Object::WorkloadEntry(object) => &object.notes,
        Object::Sidecar(object) => &object.notes,
        Object::RequestAuthentication(object) => &object.notes,
        Object::PeerAuthentication(object) => &object.notes,
        Object::AuthorizationPolicy(object) => &object.notes,
        Object::Telemetry(object) => &object.notes,
        Object::ProxyConfig(object) => &object.notes,
        Object::EnvoyFilter(object) => &object.notes,
        Object::WasmPlugin(object) => &object.notes,
        other => panic!("{} is not Istio's", other.key()),
    };
    let text = |note: &super::Note| match note.kind {
        NoteKind::Refused => format!("refused {}", note.field),
        NoteKind::Unknown => format!("unknown {}", note.field),
        NoteKind::More(more) => format!("{more} more"),
    };
    notes.iter().map(text).collect()
}

/// Reads YAML without a detour over values, as a directory does.
struct Yaml<'a>(&'a str);

impl ReadOne for Yaml<'_> {
    type Error = String;

    fn read<T: DeserializeOwned>(self) -> Result<T, String> {
        serde_saphyr::from_str(self.0).map_err(|error| error.to_string())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: String,
    kind: String,
}
