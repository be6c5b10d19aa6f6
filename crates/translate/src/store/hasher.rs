//! Hashes by which objects and their readers are found.

use std::hash::{BuildHasher, Hash, RandomState};

/// Something that a unit may read, and under which objects are found. Whoever knows the kinds of
/// objects makes facts; the engine sees their hashes alone.
pub trait Fact: Hash {
    /// Tells these facts from others that are made of the same parts.
    const FAMILY: u8;
}

/// Hashes facts. The seed is random, so that nobody can write objects whose facts collide;
/// a collision could only make a unit run for nothing.
pub struct FactHasher(RandomState);

impl FactHasher {
    /// A hasher with a seed of its own.
    pub fn new() -> Self {
        FactHasher(RandomState::new())
    }

    /// The hash of a fact.
    pub fn fact<F: Fact>(&self, fact: F) -> u64 {
        self.hash((F::FAMILY, fact))
    }

    /// The hash of anything else that stands in an index of the engine.
    pub fn hash(&self, value: impl Hash) -> u64 {
        self.0.hash_one(value)
    }
}
