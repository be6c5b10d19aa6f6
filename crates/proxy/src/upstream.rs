//! Endpoints: which there are, and connections to them.

pub mod channel;
pub mod dial;
pub mod dynamic;
pub mod entry;
pub mod link;
pub mod original;
pub mod resolve;
pub mod secure;
pub mod target;
