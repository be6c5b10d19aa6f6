//! Sockets: bytes to and from a peer, in plain text or in TLS records, their deadlines, and the
//! addresses that names have and that may be connected to.
//!
//! Nothing in here knows a route, a domain or an upstream.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub(crate) mod allowance;
pub(crate) mod border;
pub(crate) mod carrier;
pub(crate) mod chain;
pub(crate) mod deadline;
pub(crate) mod duplex;
pub(crate) mod intake;
pub(crate) mod lane;
#[cfg(test)]
#[allow(unreachable_pub, reason = "a library there, a module of tests here")]
#[path = "../../lab/src/name_server.rs"]
pub mod name_server;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod server_trust;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod wanted_names;
