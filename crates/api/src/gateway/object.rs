//! The frame of every object of Gateway API: metadata, generation, spec and notes.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::istio::frame::Framed;
use crate::istio::reading::Read;
use crate::istio::{Note, SpecProblem};
use crate::{Meta, ObjectKind};

/// An object of Gateway API.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayObject<S> {
    /// Key, age and annotations.
    pub meta: Meta,
    /// `metadata.generation`, which conditions name; 0 where there is none.
    pub generation: i64,
    /// The spec.
    pub spec: S,
    /// Fields that were written and are not known, in the order of their paths; at most
    /// [`NOTES_MAX`](crate::istio::NOTES_MAX).
    pub notes: Box<[Note]>,
    /// The memory that it takes beside its own structure, in bytes, at most
    /// [`OBJECT_BYTES_MAX`](crate::istio::OBJECT_BYTES_MAX).
    pub bytes: u32,
}

/// The spec of one kind.
#[expect(
    private_bounds,
    reason = "how a spec is read is nobody's business outside"
)]
pub trait GatewayKind: Read {
    /// The kind of its objects.
    const KIND: ObjectKind;

    /// Fills in defaults that depend on several fields, and says what is wrong with them
    /// together.
    ///
    /// # Errors
    /// The problem of the first field that has one.
    fn finish(&mut self) -> Result<(), SpecProblem> {
        Ok(())
    }
}

impl<'de, S: GatewayKind> Deserialize<'de> for GatewayObject<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Framed {
            metadata,
            mut spec,
            mut notes,
        } = Framed::<S>::deserialize(deserializer)?;
        if let Err(SpecProblem { field, message }) = spec.finish() {
            return Err(D::Error::custom(format_args!("{field} {message}")));
        }
        let generation = metadata.generation.unwrap_or(0);
        let meta = metadata.check(S::KIND)?;
        for (key, value) in &meta.annotations {
            notes.count(size_of::<[Box<str>; 2]>() + key.len() + value.len())?;
        }
        Ok(GatewayObject {
            meta,
            generation,
            spec,
            bytes: u32::try_from(notes.bytes()).unwrap_or(u32::MAX),
            notes: notes.finish(),
        })
    }
}

/// The problem of a field.
pub(super) fn problem(field: &str, message: &str) -> SpecProblem {
    SpecProblem {
        field: field.into(),
        message: message.into(),
    }
}
