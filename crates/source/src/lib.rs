//! Where objects come from.
//!
//! **Does** watch a directory and emit the objects in it as batches of changes, each with what
//! was found wrong on the way.
//! **Knows** files, YAML and JSON documents, and which bytes it has seen before.
//! **Never** keeps an object after it was emitted, and never sees a resource of the proxy.

pub mod directory;

pub use directory::{Counters, Directory, Limits, Loaded, Locator, OpenError, Settings, load};
