//! The fields of every kind against the definitions.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// The fields of each message of a `spec`, by kind and path, in the definitions of v1.6.3 with
/// the experimental channel, in the version that is stored; sorted.
pub(super) const SCHEMA: &str = include_str!("schema.txt");

/// Fields that hold texts by name.
const MAPS: [&str; 4] = ["annotations", "labels", "matchLabels", "options"];

type Fields = BTreeMap<String, BTreeSet<String>>;

/// The fields that stand in a value, by path.
fn collect(path: &str, value: &Value, fields: &mut Fields) {
    match value {
        Value::Array(items) => {
            for item in items {
                collect(&format!("{path}[]"), item, fields);
            }
        }
        Value::Object(message) if !MAPS.iter().any(|map| path.ends_with(&format!(".{map}"))) => {
            let known = fields.entry(path.to_owned()).or_default();
            known.extend(message.keys().cloned());
            for (name, value) in message {
                collect(&format!("{path}.{name}"), value, fields);
            }
        }
        _ => {}
    }
}

/// No field is ignored: each is in some example, where it is known, and no other is.
#[test]
fn every_field_of_the_definitions_is_read() {
    let mut fields = Fields::new();
    for value in all_examples() {
        let object = read(&value).expect("a good example");
        let notes = notes_of(&object);
        assert!(notes.is_empty(), "{}: {notes:?}", object.key());
        let kind = value["kind"].as_str().expect("a kind");
        collect(&format!("{kind} spec"), &value["spec"], &mut fields);
    }
    let mut lines: Vec<String> = fields
        .iter()
        .map(|(path, names)| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("{path}: {}", names.join(" "))
        })
        .collect();
    lines.sort();
    let schema: Vec<&str> = SCHEMA.lines().collect();
    assert_eq!(lines, schema);
}

/// Without the note nobody would be told of a misspelt field.
#[test]
fn a_field_that_the_definitions_do_not_have_is_noted_wherever_it_stands() {
    for line in SCHEMA.lines() {
        let (path, _) = line.split_once(':').expect("a path");
        let (kind, path) = path.split_once(' ').expect("a kind");
        let path = path.strip_prefix("spec").expect("a field of the spec");
        let mut examples = all_examples().into_iter();
        let found = examples.find(|value| value["kind"] == kind);
        let mut value = found.expect("an example");
        let mut places = 0;
        stray(&mut value["spec"], path, &mut places);
        assert!(places > 0, "{line}");
        let object = read(&value).expect("an unknown field is no error");
        let notes = notes_of(&object);
        let is_ours = |it: &&Note| it.kind == NoteKind::Unknown && it.field.ends_with(".stray");
        assert_eq!(notes.iter().filter(is_ours).count(), places, "{line}");
    }
}

/// Adds a field to each message at a path such as `.rules[].matches[]`.
fn stray(value: &mut Value, path: &str, places: &mut usize) {
    if let Some(rest) = path.strip_prefix("[]") {
        let items = value.as_array_mut().into_iter().flatten();
        items.for_each(|item| stray(item, rest, places));
    } else if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        if let Some(inner) = value.get_mut(name) {
            stray(inner, rest, places);
        }
    } else if let Some(message) = value.as_object_mut() {
        message.insert("stray".to_owned(), Value::Null);
        *places += 1;
    }
}
