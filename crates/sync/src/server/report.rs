//! The report of a session to its caller.

use myriad_model::{Digest, Key, Position, Version};

#[cfg(doc)]
use crate::wire;

/// The meaning of a message for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Nothing to tell.
    Nothing,
    /// The proxy introduced itself.
    Greeted {
        /// The name that the proxy gives itself.
        instance: String,
        /// The newest schema it understands.
        schema: u32,
        /// The position of what it holds.
        position: Position,
        /// How many resources it holds.
        count: u64,
    },
    /// The proxy has put a commit into service.
    Acked {
        /// The position that it has reached.
        position: Position,
        /// The root that it reports: equal to a snapshot's digest where it has been sent all of
        /// that snapshot, whether it obeys it or refused parts of it.
        root: Digest,
        /// Whether it has been sent everything that is newest here.
        is_in_step: bool,
        /// The resources of this commit that it refused. A sidecar names no others, and few.
        receipts: Vec<Receipt>,
        /// Refusals that were counted but not listed, at most as many as a commit has resources.
        receipts_omitted: u64,
    },
}

/// One resource that a proxy refused. Its last good version stays in service there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The resource's key.
    pub key: Key,
    /// The version that was refused.
    pub version: Version,
    /// Why, for people; at most [`wire::TEXT_BYTES_MAX`] bytes.
    pub reason: String,
}
