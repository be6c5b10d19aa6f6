//! Wildcards' meanings to the hosts below them, as the units of the wildcards found them last.
//!
//! Hosts read them as they are, and run again when they are others. So whoever has a wildcard does
//! the work of finding them, and no host below it does, whosoever that is.

use super::output::Meaning;
use super::stamp::{Slot, Stamp};
use crate::store::FactHasher;

/// The meanings of one wildcard.
pub struct Meanings {
    /// The hash of all of them, with their views.
    pub(super) hash: u64,
    /// The meaning in the views of each stamp.
    values: Box<[(Stamp, Option<Meaning>)]>,
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

    /// The meaning in a view; none where its unit did not run for that.
    pub(super) fn at(&self, slot: Slot) -> Option<&Meaning> {
        let mut values = self.values.iter();
        let (_, meaning) = values.find(|(stamp, _)| stamp.has(slot))?;
        meaning.as_ref()
    }
}
