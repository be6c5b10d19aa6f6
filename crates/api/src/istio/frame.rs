//! The frame of an object whose spec is read with notes: metadata, spec, and the notes so far.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::note::{Notes, Step};
use super::reading::{Read, Value};
use crate::meta::RawMeta;

/// An object as its fields were read.
pub(crate) struct Framed<S> {
    pub(crate) metadata: RawMeta,
    pub(crate) spec: S,
    pub(crate) notes: Notes,
}

impl<'de, S: Read> Deserialize<'de> for Framed<S> {
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

impl<'de, S: Read> Visitor<'de> for Frame<S> {
    type Value = Framed<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with metadata and spec")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Framed<S>, A::Error> {
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
                    notes.add_field(&name, false)?;
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let metadata = metadata.ok_or_else(|| A::Error::missing_field("metadata"))?;
        let spec = match spec {
            Some(spec) => spec,
            // An absent spec is an empty one: what it lacks, the message says.
            None => read_empty(&mut notes)?,
        };
        Ok(Framed {
            metadata,
            spec,
            notes,
        })
    }
}

fn read_empty<S: Read, E: Error>(notes: &mut Notes) -> Result<S, E> {
    let empty = MapDeserializer::<_, E>::new(std::iter::empty::<(&str, &str)>());
    S::read(empty, notes)
}
