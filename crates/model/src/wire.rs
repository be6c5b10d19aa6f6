//! The wire form: protobuf messages, and the checked way between them and values.
//!
//! Encoding is deterministic, since versions are hashes of it. Decoding trusts nothing: every
//! field is checked here once, so that the proxy never meets a value that it cannot obey.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod decode;
mod encode;
#[allow(missing_docs, clippy::all, reason = "generated from the .proto files")]
mod generated;

pub use decode::{decode, decode_within};
pub use encode::encode;

/// The newest schema that this build understands. Raised with every field that an older proxy
/// must not ignore.
pub const SCHEMA: u32 = 3;

/// Why bytes are not a resource that this build can obey.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not protobuf, or cut short.
    #[error("is not a protobuf message of a resource")]
    Malformed,
    /// Needs a newer build.
    #[error("needs schema {needed}, and schema {understood} is understood here")]
    NewerSchema {
        /// The lowest schema that understands it.
        needed: u32,
        /// The newest schema that is understood.
        understood: u32,
    },
    /// A required part is absent.
    #[error("has no {0}")]
    Missing(&'static str),
    /// A part has a value that it must not have.
    #[error("has a {0} that is not valid")]
    Invalid(&'static str),
    /// The body is of another kind than the key.
    #[error("is of another kind than its key says")]
    OtherKind,
}

#[cfg(test)]
mod tests;
