//! Sources of objects.
//!
//! **Does** watch a directory or a cluster and emit the objects in it as batches of changes, each
//! with what was found wrong on the way, and write back what a cluster shall show.
//! **Knows** files, documents and the Kubernetes API, and which bytes it has seen before.
//! **Never** keeps an object after it was emitted, and never sees a resource of the proxy.

pub mod directory;
pub mod kubernetes;
mod wanted;

pub use directory::{
    Counters, Directory, Known, Limits, Loaded, Locator, OpenError, Settings, load, read,
};
pub use wanted::Wanted;
