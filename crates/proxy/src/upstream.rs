//! Endpoints: which there are, and connections to them.

pub mod attempt;
pub mod channel;
pub mod dial;
pub mod dynamic;
pub mod endpoint;
pub mod entry;
pub mod link;
mod noise;
pub mod original;
pub mod resolve;
pub mod secure;
