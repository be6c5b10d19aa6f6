//! The identity of an object before it is decoded: its key, how new it is, and a hash of its
//! content.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use myriad_api::meta::is_kept_annotation;
use myriad_api::{Object, ObjectKey, ObjectKind};
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::pace::Label;

/// The most letters of the name of a writer.
const WRITER_LETTERS_MAX: usize = 128;

/// Marks the bookmark that ends the initial events of a streaming list (KEP-3157).
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// The identity of an object and of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectHead {
    /// `namespace/name`, as [`ObjectKey::id`] has it.
    pub(super) id: Arc<str>,
    /// `metadata.resourceVersion`; numbers that compare within one kind since KEP-5504, and did
    /// so in every server before.
    pub(super) version: u64,
    /// A hash of all that translation may read: not of `status`, `managedFields` and versions,
    /// so that a status write, our own above all, is no change.
    pub(super) hash: u64,
}

/// `metadata` of a bookmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bookmark {
    /// Everything up to this resourceVersion has been sent.
    pub(super) version: u64,
    /// Whether it ends a streaming list.
    pub(super) ends_list: bool,
}

/// Reads the head of an object.
///
/// # Errors
/// A text without key material: metadata that no API server writes.
pub(super) fn read_head(kind: ObjectKind, json: &str) -> Result<ObjectHead, String> {
    let raw: Content<'_> = serde_json::from_str(json).map_err(describe)?;
    let metadata = raw.metadata.ok_or("it has no metadata")?;
    let name = metadata.name.as_deref().ok_or("it has no metadata.name")?;
    let version = metadata.version()?;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let mut hasher = match kind {
        ObjectKind::Pod => blake3::Hasher::new(),
        _ => raw.hasher,
    };
    metadata.hash(&mut hasher);
    // Conditions name it, and an edit that was taken back has raised it.
    if ObjectKind::GATEWAY_API.contains(&kind) {
        add(&mut hasher, metadata.generation.map_or("", RawValue::get));
    }
    if kind == ObjectKind::Pod {
        // Of all that changes in a Pod, where it is reached and whether; and whether it is another.
        let Ok(Object::Pod(pod)) = Object::from_json(kind, json) else {
            return Err("its fields are not those of a Pod".to_owned());
        };
        let address = pod.address.map(|address| address.to_string());
        add(&mut hasher, &address.unwrap_or_default());
        add(&mut hasher, pod.uid.as_deref().unwrap_or_default());
        hasher.update(&[u8::from(pod.is_ready)]);
    }
    Ok(ObjectHead {
        id: ObjectKey::new(kind, namespace, name).id().clone(),
        version,
        hash: first_bytes(&hasher.finalize()),
    })
}

/// Reads the name and the version of an object, and no more than stands before them: the metadata
/// goes first in what API servers write. None where that is not so.
pub(super) fn read_label(kind: ObjectKind, json: &str) -> Option<Label> {
    let mut found = Found::default();
    // It ends with an error once everything is found.
    let mut reader = serde_json::Deserializer::from_str(json);
    let _ = LabelOf(&mut found, Level::Object).deserialize(&mut reader);
    let name = found.name?;
    let namespace = found.namespace.unwrap_or_default();
    Some(Label {
        id: ObjectKey::new(kind, &namespace, &name).id().clone(),
        version: found.version?.parse().ok()?,
    })
}

/// The parts of a label that were found so far.
#[derive(Default)]
struct Found {
    name: Option<String>,
    namespace: Option<String>,
    version: Option<String>,
}

#[derive(Clone, Copy)]
enum Level {
    Object,
    Metadata,
}

/// Reads a label until it is whole.
struct LabelOf<'f>(&'f mut Found, Level);

impl<'de> DeserializeSeed<'de> for LabelOf<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LabelOf<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let LabelOf(found, level) = self;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match (level, &*key) {
                (Level::Object, "metadata") => {
                    map.next_value_seed(LabelOf(found, Level::Metadata))?;
                    break;
                }
                (Level::Metadata, "name") => found.name = Some(map.next_value()?),
                (Level::Metadata, "namespace") => found.namespace = Some(map.next_value()?),
                // The namespace and the name stand before it.
                (Level::Metadata, "resourceVersion") => {
                    found.version = Some(map.next_value()?);
                    break;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Err(A::Error::custom("the rest is not read"))
    }
}

/// Reads a bookmark.
///
/// # Errors
/// Metadata that no API server writes.
pub(super) fn read_bookmark(json: &str) -> Result<Bookmark, String> {
    let raw: Content<'_> = serde_json::from_str(json).map_err(describe)?;
    let metadata = raw.metadata.ok_or("it has no metadata")?;
    let ends_list = metadata
        .annotations
        .iter()
        .any(|(key, value)| key == INITIAL_END && value.get() == "\"true\"");
    Ok(Bookmark {
        version: metadata.version()?,
        ends_list,
    })
}

/// Reads who wrote an object last, of those who write more than its status; none where it does not
/// say.
pub(super) fn read_writer(json: &str) -> Option<Arc<str>> {
    let written: Written<'_> = serde_json::from_str(json).ok()?;
    let managers = written.metadata?.managed_fields.into_iter();
    let managers = managers.filter(|it| it.subresource.as_deref().is_none_or(str::is_empty));
    // They are in the form 2026-01-31T12:00:00Z, and compare as texts.
    let last = managers.max_by(|one, other| one.time.cmp(&other.time))?;
    let name: String = last.manager.chars().take(WRITER_LETTERS_MAX).collect();
    (!name.is_empty()).then(|| name.into())
}

/// Decodes an object into the trimmed type.
///
/// # Errors
/// The problem of the object, without key material.
pub(super) fn decode(kind: ObjectKind, json: &str) -> Result<Object, String> {
    Object::from_json(kind, json).map_err(|error| match kind {
        // What serde says may quote a value, and the values of Secrets are nobody's business.
        ObjectKind::Secret => "its fields are not those of a Secret".to_owned(),
        _ => describe(error),
    })
}

/// The first 64 bits of a hash.
pub(super) fn first_bytes(hash: &blake3::Hash) -> u64 {
    let (first, _) = hash.as_bytes().split_at(8);
    u64::from_le_bytes(first.try_into().unwrap_or_default())
}

/// The error of serde, without the position: it counts from the start of a line that nobody sees.
fn describe(error: serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_owned()
}

/// An object of which nothing is read but who wrote it.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, default)]
    metadata: Option<WrittenMetadata<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata<'a> {
    #[serde(borrow, default)]
    managed_fields: Vec<Manager<'a>>,
}

/// One entry of `managedFields`.
#[derive(Deserialize)]
struct Manager<'a> {
    #[serde(borrow, default)]
    manager: Cow<'a, str>,
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    subresource: Option<Cow<'a, str>>,
}

/// An object whose fields were hashed as they stand: the server writes equal content alike.
struct Content<'a> {
    metadata: Option<Metadata<'a>>,
    hasher: blake3::Hasher,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    creation_timestamp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    generation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    labels: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "pairs")]
    annotations: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl Metadata<'_> {
    fn version(&self) -> Result<u64, String> {
        let text = self.resource_version.as_deref().unwrap_or_default();
        text.parse()
            .map_err(|_| "its metadata.resourceVersion is not a number".to_owned())
    }

    fn hash(&self, hasher: &mut blake3::Hasher) {
        for raw in [self.creation_timestamp, self.labels] {
            add(hasher, raw.map_or("", RawValue::get));
        }
        for (key, value) in &self.annotations {
            if is_kept_annotation(key) {
                add(hasher, key);
                add(hasher, value.get());
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Content<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut content = Content {
                    metadata: None,
                    hasher: blake3::Hasher::new(),
                };
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    match &*key {
                        "metadata" => content.metadata = Some(map.next_value()?),
                        "status" | "kind" | "apiVersion" => {
                            map.next_value::<IgnoredAny>()?;
                        }
                        _ => {
                            add(&mut content.hasher, &key);
                            let value: &'de RawValue = map.next_value()?;
                            add(&mut content.hasher, value.get());
                        }
                    }
                }
                Ok(content)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

fn pairs<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(Cow<'a, str>, &'a RawValue)>, D::Error> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(Cow<'de, str>, &'de RawValue)>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of strings")
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
    deserializer.deserialize_any(Pairs)
}

/// Adds a text with its length, so that no two lists of texts feed the hasher alike.
fn add(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::{
        Bookmark, WRITER_LETTERS_MAX, decode, read_bookmark, read_head, read_label, read_writer,
    };
    use myriad_api::ObjectKind;

    const INGRESS: &str = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7",
        "annotations":{"other":"x","myriad.dev/y":"z"}},"spec":{"rules":[]},
        "status":{"loadBalancer":{}}}"#;

    fn hash(json: &str) -> u64 {
        read_head(ObjectKind::Ingress, json).expect("a head").hash
    }

    #[test]
    fn the_head_names_object_and_version() {
        let head = read_head(ObjectKind::Ingress, INGRESS).expect("a head");
        assert_eq!((&*head.id, head.version), ("n/a", 7));
        let class = INGRESS.replace("\"namespace\":\"n\",", "");
        let head = read_head(ObjectKind::IngressClass, &class).expect("a head");
        assert_eq!(&*head.id, "/a");
    }

    #[test]
    fn a_label_is_read_of_the_metadata_alone() {
        let label = |json: &str| read_label(ObjectKind::Ingress, json);
        let whole = label(INGRESS).expect("a label");
        assert_eq!((&*whole.id, whole.version), ("n/a", 7));
        // What follows the version is not looked at.
        let start = r#"{"kind":"Ingress","metadata":{"name":"a","namespace":"n","uid":"u",
            "resourceVersion":"7","#;
        assert_eq!(label(start), Some(whole));
        for bad in [
            "",
            "{",
            "{}",
            "[]",
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":3}"#,
        ] {
            assert_eq!(label(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_translation_does_not_read_is_no_change() {
        for (from, to) in [
            ("\"7\"", "\"8\""),
            (
                "{\"loadBalancer\":{}}",
                "{\"loadBalancer\":{\"ingress\":[]}}",
            ),
            ("\"other\":\"x\"", "\"other\":\"w\""),
            ("\"other\":\"x\"", "\"myriad.dev/live\":\"generation 3\""),
            (
                "\"name\":\"a\"",
                "\"managedFields\":[{\"manager\":\"m\"}],\"name\":\"a\"",
            ),
        ] {
            let changed = INGRESS.replace(from, to);
            assert_ne!(changed, INGRESS);
            assert_eq!(hash(&changed), hash(INGRESS), "{from}");
        }
    }

    #[test]
    fn what_translation_reads_is_a_change() {
        for (from, to) in [
            ("\"rules\":[]", "\"rules\":[{}]"),
            ("\"z\"", "\"w\""),
            ("\"name\":\"a\"", "\"labels\":{\"l\":\"1\"},\"name\":\"a\""),
            ("\"spec\"", "\"data\""),
        ] {
            let changed = INGRESS.replace(from, to);
            assert_ne!(hash(&changed), hash(INGRESS), "{from}");
        }
    }

    #[test]
    fn a_generation_is_a_change_where_conditions_name_it() {
        let newer = INGRESS.replace("\"name\":\"a\"", "\"generation\":2,\"name\":\"a\"");
        let hash = |kind, json: &str| read_head(kind, json).expect("a head").hash;
        for (kind, is_change) in [
            (ObjectKind::HttpRoute, true),
            (ObjectKind::Gateway, true),
            (ObjectKind::Ingress, false),
        ] {
            assert_eq!(
                hash(kind, &newer) != hash(kind, INGRESS),
                is_change,
                "{kind:?}"
            );
        }
    }

    #[test]
    fn of_a_pod_its_labels_its_address_and_its_readiness_are_a_change() {
        const POD: &str = r#"{"metadata":{"name":"a","namespace":"n","uid":"u1",
            "resourceVersion":"7","labels":{"app":"a"}},"spec":{"nodeName":"x"},
            "status":{"podIP":"10.0.0.1","phase":"Running",
            "conditions":[{"type":"Ready","status":"True"}]}}"#;
        let hash = |json: &str| read_head(ObjectKind::Pod, json).expect("a head").hash;
        for (from, to, is_change) in [
            ("10.0.0.1", "10.0.0.2", true),
            ("\"u1\"", "\"u2\"", true),
            ("\"True\"", "\"False\"", true),
            ("\"app\":\"a\"", "\"app\":\"b\"", true),
            ("\"Running\"", "\"Failed\"", true),
            ("\"nodeName\":\"x\"", "\"nodeName\":\"y\"", false),
            (
                "\"status\":\"True\"",
                "\"status\":\"True\",\"reason\":\"r\"",
                false,
            ),
        ] {
            let changed = POD.replace(from, to);
            assert_ne!(changed, POD);
            assert_eq!(hash(&changed) != hash(POD), is_change, "{to}");
        }
    }

    #[test]
    fn a_bookmark_may_end_a_list() {
        let plain = r#"{"kind":"Ingress","metadata":{"resourceVersion":"9","annotations":null}}"#;
        let last = r#"{"metadata":{"resourceVersion":"9",
            "annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        let bookmark = |ends_list| Bookmark {
            version: 9,
            ends_list,
        };
        assert_eq!(read_bookmark(plain), Ok(bookmark(false)));
        assert_eq!(read_bookmark(last), Ok(bookmark(true)));
    }

    #[test]
    fn broken_objects_are_described_without_a_position() {
        let bad = INGRESS.replace("\"rules\":[]", "\"rules\":7");
        let text = decode(ObjectKind::Ingress, &bad).expect_err("rules is a number");
        assert!(text.contains("integer") && !text.contains("line"), "{text}");
        let secret = bad.replace("\"spec\"", "\"data\":\"canary\",\"spec\"");
        let text = decode(ObjectKind::Secret, &secret).expect_err("data is a string");
        assert!(!text.contains("canary"), "{text}");
        assert!(read_head(ObjectKind::Ingress, "{}").is_err());
        assert!(read_head(ObjectKind::Ingress, "[").is_err());
    }

    #[test]
    fn the_writer_is_who_wrote_last_and_not_who_wrote_the_status() {
        let written = |fields: &str| {
            let json = format!(r#"{{"metadata":{{"name":"a","managedFields":{fields}}}}}"#);
            read_writer(&json).map(|it| it.to_string())
        };
        let fields = r#"[
            {"manager":"helm","operation":"Update","time":"2026-01-31T12:00:00Z"},
            {"manager":"kubectl-edit","time":"2026-01-31T14:03:00Z","fieldsV1":{"f:spec":{}}},
            {"manager":"myriad","time":"2026-01-31T15:00:00Z","subresource":"status"},
            {"manager":"first","time":"2025-01-31T12:00:00Z"}]"#;
        assert_eq!(written(fields).as_deref(), Some("kubectl-edit"));
        for nobody in ["[]", "null", "7", r#"[{"operation":"Update"}]"#] {
            assert_eq!(written(nobody), None, "{nobody}");
        }
        let long = "é".repeat(10_000);
        let found = written(&format!(r#"[{{"manager":"{long}"}}]"#));
        assert_eq!(found.map(|it| it.chars().count()), Some(WRITER_LETTERS_MAX));
        assert_eq!(read_writer("{}"), None);
    }
}
