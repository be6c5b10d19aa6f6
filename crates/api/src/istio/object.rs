//! Istio's objects: metadata, spec and notes.

use serde::{Deserialize, Deserializer};

use super::Labels;
use super::frame::Framed;
use super::note::Note;
use super::reading::Read;
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
        let Framed {
            mut metadata,
            mut spec,
            mut notes,
        } = Framed::<S>::deserialize(deserializer)?;
        let labels = metadata.labels.take().map(|labels| labels.0);
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
