//! A document as a parser finds it, where its lines alone do not say what it is about.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::directory::head::Head;
use crate::directory::problem::Problem;

/// A document reduced to the fields that say what it is about. It takes whatever there is, since
/// what is wrong with a field is better said by the type of its kind.
#[derive(Default)]
pub(super) struct Written {
    shape: Shape,
    text: Option<Box<str>>,
    fields: Vec<(Box<str>, Written)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Shape {
    #[default]
    Null,
    Mapping,
    Other,
}

/// The fields that are kept, at any depth.
const FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "name", "namespace"];

impl Written {
    /// The head of the document, once it is an object with both fields that say so; `None` for a
    /// null, which is an empty document.
    pub(super) fn head(&self) -> Result<Option<Head<'_>>, Problem> {
        let fail = |field, message| {
            let remedy = "write an object with apiVersion, kind and metadata.name, or move the \
                          file out of the directory";
            Err(Problem::new(message, remedy).with_field(field))
        };
        match self.shape {
            Shape::Null => return Ok(None),
            Shape::Other => return fail("", "is not an object"),
            Shape::Mapping => {}
        }
        for field in ["apiVersion", "kind"] {
            if self.text(field).is_none_or(str::is_empty) {
                return fail(field, "is required");
            }
        }
        let metadata = self.field("metadata");
        Ok(Some(Head {
            api_version: self.text("apiVersion"),
            kind: self.text("kind"),
            namespace: metadata.and_then(|metadata| metadata.text("namespace")),
            name: metadata.and_then(|metadata| metadata.text("name")),
        }))
    }

    /// Whether the object has the field, with whatever value.
    pub(super) fn has(&self, field: &str) -> bool {
        self.field(field).is_some()
    }

    fn field(&self, name: &str) -> Option<&Written> {
        let mut fields = self.fields.iter();
        fields
            .find(|(known, _)| **known == *name)
            .map(|(_, value)| value)
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.field(field)?.text.as_deref()
    }

    fn other(text: Option<Box<str>>) -> Written {
        Written {
            shape: Shape::Other,
            text,
            fields: Vec::new(),
        }
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Written, D::Error> {
        deserializer.deserialize_any(WrittenVisitor)
    }
}

struct WrittenVisitor;

impl<'de> Visitor<'de> for WrittenVisitor {
    type Value = Written;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
        let mut written = Written {
            shape: Shape::Mapping,
            ..Written::default()
        };
        while let Some(key) = map.next_key::<Box<str>>()? {
            if FIELDS.contains(&&*key) {
                written.fields.push((key, map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(written)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Written, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Written::other(None))
    }

    fn visit_str<E>(self, text: &str) -> Result<Written, E> {
        Ok(Written::other(Some(text.into())))
    }

    fn visit_unit<E>(self) -> Result<Written, E> {
        Ok(Written::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Written, E> {
        Ok(Written::other(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Written, E> {
        Ok(Written::other(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Written, E> {
        Ok(Written::other(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Written, E> {
        Ok(Written::other(None))
    }
}
