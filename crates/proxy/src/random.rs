//! Pseudo-random numbers and hashes, seeded where nobody outside can foresee them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod hash;
pub mod rng;
