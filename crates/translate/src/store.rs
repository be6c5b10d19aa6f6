//! Objects at rest, and the maps that the engine keeps.

mod hasher;
pub mod interner;
pub mod multimap;
mod objects;
mod packed;
pub mod slab;

pub use hasher::{Fact, FactHasher};
pub use objects::{FoundUnder, Objects, Stored, WHOLE, object_fact};
pub use packed::SliceHead;
