//! Objects at rest, and the maps that the engine keeps.

mod hasher;
pub(crate) mod interner;
pub(crate) mod multimap;
mod objects;
mod packed;
pub(crate) mod slab;

pub(crate) use hasher::{Fact, FactHasher};
pub(crate) use objects::{AtRest, FoundUnder, Objects, Stored, WHOLE, object_fact};
pub(crate) use packed::SliceHead;
