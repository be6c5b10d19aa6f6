//! Sockets: bytes to and from a peer, in plain text or in TLS records, their deadlines, and the
//! addresses that names have and that may be connected to.
//!
//! Nothing in here knows a route, a domain or an upstream.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod border;
pub mod carrier;
pub mod deadline;
pub mod duplex;
#[cfg(test)]
#[path = "../../lab/src/name_server.rs"]
pub mod name_server;
pub mod names;
pub mod record;
pub mod socket;
pub mod stream;
