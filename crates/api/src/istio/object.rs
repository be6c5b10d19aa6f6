//! The frame of every Istio object: metadata, spec and notes.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Labels;
use super::note::{Note, Notes, Step};
use super::reading::{Read, Value};
use crate::meta::RawMeta;
use crate::{Meta, ObjectKind};

/// An Istio object.
#[derive(Clone, Debug, PartialEq)]
pub struct IstioObject<S> {
    /// Key, age and annotations.
    pub meta: Meta,
    /// The fields of Istio's message, which Istio calls the spec.
    pub spec: S,
    /// Fields that were written and are not read, in the order of their paths; at most
    /// [`NOTES_MAX`](super::NOTES_MAX).
    pub notes: Box<[Note]>,
    /// The memory that it takes beside its own structure, in bytes, at most
    /// [`OBJECT_BYTES_MAX`](super::OBJECT_BYTES_MAX); parts that objects share count for each.
    pub bytes: u32,
}

impl<S> IstioObject<S> {
    /// An object with nothing in it but its key, its age and its spec.
    pub fn hollow(of: &Meta, spec: S) -> Self {
        IstioObject {
            meta: Meta {
                annotations: Box::default(),
                ..of.clone()
            },
            spec,
            notes: Box::default(),
            bytes: 0,
        }
    }
}

/// The spec of one kind.
#[expect(
    private_bounds,
    reason = "how a spec is read is nobody's business outside"
)]
pub trait Spec: Read {
    /// The kind of its objects.
    const KIND: ObjectKind;

    /// Takes the labels of the object, where they count.
    fn take_labels(&mut self, _labels: Labels) {}
}

impl<S: Spec, E> Spec for Result<S, E>
where
    Result<S, E>: Read,
{
    const KIND: ObjectKind = S::KIND;
}

impl<'de, S: Spec> Deserialize<'de> for IstioObject<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Frame(PhantomData))
    }
}

struct Frame<S>(PhantomData<S>);

/// The fields of every object.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Metadata,
    Spec,
    ApiVersion,
    Kind,
    Status,
    Other(Box<str>),
}

impl<'de, S: Spec> Visitor<'de> for Frame<S> {
    type Value = IstioObject<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with metadata and spec")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<IstioObject<S>, A::Error> {
        let mut notes = Notes::default();
        let mut metadata: Option<RawMeta> = None;
        let mut spec: Option<S> = None;
        while let Some(field) = map.next_key::<Field>()? {
            match field {
                Field::Metadata if metadata.is_none() => metadata = Some(map.next_value()?),
                Field::Spec if spec.is_none() => {
                    notes.enter(Step::Field("spec"));
                    spec = map.next_value_seed(Value::new(&mut notes))?;
                    notes.leave();
                }
                Field::Metadata | Field::Spec => {
                    return Err(A::Error::custom("metadata or spec is written twice"));
                }
                Field::ApiVersion | Field::Kind | Field::Status => {
                    map.next_value::<IgnoredAny>()?;
                }
                Field::Other(name) => {
                    notes.add_field(&name, false);
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let mut metadata = metadata.ok_or_else(|| A::Error::missing_field("metadata"))?;
        let labels = metadata.labels.take().map(|labels| labels.0);
        let mut spec = match spec {
            Some(spec) => spec,
            // An absent spec is an empty one: what it lacks, the message says.
            None => read_empty(&mut notes)?,
        };
        for (key, value) in labels.iter().flatten() {
            notes.count(size_of::<[Box<str>; 2]>() + key.len() + value.len())?;
        }
        spec.take_labels(labels.into_iter().flatten().collect());
        let meta = metadata.check(S::KIND)?;
        for (key, value) in &meta.annotations {
            notes.count(size_of::<[Box<str>; 2]>() + key.len() + value.len())?;
        }
        Ok(IstioObject {
            meta,
            spec,
            bytes: u32::try_from(notes.bytes()).unwrap_or(u32::MAX),
            notes: notes.finish(),
        })
    }
}

fn read_empty<S: Read, E: Error>(notes: &mut Notes) -> Result<S, E> {
    let empty = MapDeserializer::<_, E>::new(std::iter::empty::<(&str, &str)>());
    S::read(empty, notes)
}
