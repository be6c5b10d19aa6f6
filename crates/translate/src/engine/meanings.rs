//! Wildcards' meanings to the hosts below them, as the units of the wildcards found them last.
//!
//! Hosts read them as they are, and run again when they are others. So whoever has a wildcard does
//! the work of finding them, and no host below it does, whosoever that is.

use std::any::Any;
use std::sync::Arc;

use super::output::Meaning;
use super::reader::Reader;
use super::stamp::Stamp;
use super::unit::Unit;
use crate::store::FactHasher;

/// The meanings of one wildcard.
pub struct Meanings {
    /// The hash of all of them, with their views.
    pub(super) hash: u64,
    /// The meaning in the views of each stamp.
    values: Box<[(Stamp, Option<Meaning>)]>,
}

/// The answer to what a wildcard means.
pub(crate) enum Told<T> {
    /// It means nothing in any view, or its unit has not run yet.
    Nothing,
    /// It means something, and its unit did not run for the view that is translated for.
    Elsewhere,
    /// Its meaning in the view.
    Here(Arc<T>),
}

impl Meanings {
    /// The meanings of a wildcard by their views; none where it has none in any.
    pub(super) fn new(hasher: &FactHasher, values: Vec<(Stamp, Option<Meaning>)>) -> Option<Self> {
        let hashes = values.iter();
        let hashes = hashes.map(|(stamp, it)| (stamp, it.as_ref().map_or(0, |it| it.hash)));
        let hashes: Vec<(&Stamp, u64)> = hashes.collect();
        let is_any = hashes.iter().any(|(_, hash)| *hash != 0);
        let hash = hasher.hash(&hashes);
        is_any.then(|| Meanings {
            hash,
            values: values.into(),
        })
    }
}

impl Reader<'_> {
    /// The meaning of a wildcard. The caller noted that it reads it.
    pub(crate) fn meaning<T: Any + Send + Sync>(&self, wildcard: &Unit) -> Told<T> {
        let known = self.find(wildcard).and_then(|id| self.meanings_of(id));
        let Some(known) = known else {
            return Told::Nothing;
        };
        let slot = self.view().slot();
        let mut values = known.values.iter();
        let here = values.find(|(stamp, _)| stamp.has(slot));
        let here = here.and_then(|(_, meaning)| meaning.clone());
        let value = here.and_then(|meaning| meaning.value.downcast().ok());
        value.map_or(Told::Elsewhere, Told::Here)
    }
}
