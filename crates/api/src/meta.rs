//! The part of `metadata` that translation reads.

use serde::{Deserialize, Deserializer};

use crate::{ObjectKey, ObjectKind};

/// Annotation prefixes whose keys are kept; nearly all others are dropped while reading.
const ANNOTATION_PREFIXES: [&str; 7] = [
    "myriad.dev/",
    "nginx.ingress.kubernetes.io/",
    "higress.io/",
    "kubernetes.io/ingress.class",
    "ingressclass.kubernetes.io/",
    // An AuthorizationPolicy that is only tried out.
    "istio.io/dry-run",
    // The namespaces that see a Service.
    "networking.istio.io/exportTo",
];

/// Further annotations that are kept, by their whole keys: hints for cert-manager, which writes
/// many others to Secrets.
const ANNOTATION_KEYS: [&str; 2] = ["cert-manager.io/cluster-issuer", "cert-manager.io/issuer"];

/// The annotation by which controllers say since when an Ingress is served as it is: their own
/// word, so that nothing follows from it.
pub const LIVE_ANNOTATION: &str = "myriad.dev/live";

/// Whether an annotation is kept.
pub fn is_kept_annotation(key: &str) -> bool {
    let mut prefixes = ANNOTATION_PREFIXES.iter();
    let is_known = prefixes.any(|prefix| key.starts_with(prefix)) || ANNOTATION_KEYS.contains(&key);
    is_known && key != LIVE_ANNOTATION
}

/// The namespace of namespaced objects that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Key, age and the annotations that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Kind, namespace, name.
    pub key: ObjectKey,
    /// `creationTimestamp` in seconds since the epoch. An object without one counts as the
    /// youngest, so that a written age always wins over an unknown one.
    pub created: i64,
    /// Annotations that are kept ([`is_kept_annotation`]), sorted by key.
    pub annotations: Box<[(Box<str>, Box<str>)]>,
}

impl Meta {
    /// The age of an object without `creationTimestamp`.
    pub const UNKNOWN_AGE: i64 = i64::MAX;

    /// Metadata with a key and nothing else.
    pub fn new(key: ObjectKey) -> Self {
        Meta {
            key,
            created: Meta::UNKNOWN_AGE,
            annotations: Box::default(),
        }
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let at = self
            .annotations
            .binary_search_by(|(known, _)| (**known).cmp(key))
            .ok()?;
        Some(&self.annotations[at].1)
    }
}

/// `metadata` as it is written; becomes a [`Meta`] once the kind is known.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a mapping")]
pub(crate) struct RawMeta {
    #[serde(default)]
    namespace: Option<Box<str>>,
    name: Box<str>,
    #[serde(default)]
    pub(crate) uid: Option<Box<str>>,
    #[serde(default, deserialize_with = "timestamp")]
    creation_timestamp: Option<i64>,
    #[serde(default)]
    pub(crate) generation: Option<i64>,
    #[serde(default)]
    annotations: Option<Pairs>,
    #[serde(default)]
    pub(crate) labels: Option<Pairs>,
    #[serde(default)]
    pub(crate) owner_references: Option<Vec<RawOwner>>,
}

/// An entry of `ownerReferences`.
#[derive(Deserialize)]
#[serde(expecting = "a mapping")]
pub(crate) struct RawOwner {
    #[serde(default)]
    pub(crate) kind: Box<str>,
    #[serde(default)]
    pub(crate) name: Box<str>,
    #[serde(default)]
    pub(crate) controller: bool,
}

impl RawMeta {
    pub(crate) fn check<E: serde::de::Error>(self, kind: ObjectKind) -> Result<Meta, E> {
        for (field, text) in [
            ("name", Some(&self.name)),
            ("namespace", self.namespace.as_ref()),
        ] {
            let Some(text) = text else { continue };
            // A slash would let one object pose as another namespace's; the API server
            // refuses it as well.
            if text.is_empty() && field == "namespace" {
                continue;
            }
            if text.is_empty() || text.len() > 253 || !text.bytes().all(is_name_byte) {
                return Err(E::custom(format_args!(
                    "metadata.{field} is not a lower-case DNS name of at most 253 characters"
                )));
            }
        }
        let namespace = match self.namespace.as_deref() {
            None | Some("") => DEFAULT_NAMESPACE,
            Some(namespace) => namespace,
        };
        let mut annotations: Vec<_> = self.annotations.map_or_else(Vec::new, |pairs| {
            let pairs = pairs.0.into_iter();
            pairs.filter(|(key, _)| is_kept_annotation(key)).collect()
        });
        annotations.sort();
        Ok(Meta {
            key: ObjectKey::new(kind, namespace, &self.name),
            created: self.creation_timestamp.unwrap_or(Meta::UNKNOWN_AGE),
            annotations: annotations.into(),
        })
    }
}

/// A string map kept as pairs; a scalar of another type is read as its text would be.
pub(crate) struct Pairs(pub(crate) Vec<(Box<str>, Box<str>)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Pairs;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
            fn visit_unit<E>(self) -> Result<Pairs, E> {
                Ok(Pairs(Vec::new()))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b':')
}

/// Reads an RFC 3339 time in UTC, as the API server writes it, as seconds since the epoch.
fn timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let Some(text) = Option::<Box<str>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    parse_time(&text).map(Some).ok_or_else(|| {
        serde::de::Error::custom(
            "metadata.creationTimestamp is not of the form 2026-01-31T12:00:00Z",
        )
    })
}

fn parse_time(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:ddZ";
    let fits = bytes.len() == shape.len()
        && bytes.iter().zip(shape).all(|(byte, form)| match form {
            b'd' => byte.is_ascii_digit(),
            other => byte == other,
        });
    if !fits {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    // Days since the epoch in the proleptic Gregorian calendar, with years that start in March.
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::{is_kept_annotation, parse_time};
    use crate::{Object, ObjectKind};

    #[test]
    fn what_is_no_mapping_is_told_in_words_of_people() {
        let mut told = 0;
        for kind in ObjectKind::ALL {
            for text in [
                r#"{"metadata": 7}"#,
                r#"{"metadata": {"name": "a"}, "spec": 7}"#,
            ] {
                let Err(error) = Object::from_json(kind, text) else {
                    continue;
                };
                let error = error.to_string();
                assert!(!error.contains("struct "), "{kind:?}: {error}");
                told += usize::from(error.contains("a mapping"));
            }
        }
        assert!(told >= 10, "{told}");
    }

    #[test]
    fn of_what_cert_manager_writes_its_hints_alone_are_kept() {
        for key in ["myriad.dev/issuer", "cert-manager.io/cluster-issuer"] {
            assert!(is_kept_annotation(key), "{key}");
        }
        for key in ["cert-manager.io/issuer-name", "cert-manager.io/alt-names"] {
            assert!(!is_kept_annotation(key), "{key}");
        }
    }

    #[test]
    fn times_count_seconds_since_the_epoch() {
        assert_eq!(parse_time("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse_time("2000-02-29T12:30:01Z"), Some(951_827_401));
        assert_eq!(parse_time("2026-11-21T06:00:00Z"), Some(1_795_240_800));
        assert_eq!(parse_time("2026-13-21T06:00:00Z"), None);
        assert_eq!(parse_time("2026-11-21 06:00:00Z"), None);
    }
}
