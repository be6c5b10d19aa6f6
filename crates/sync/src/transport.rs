//! gRPC around the session cores.

pub mod client;
mod connection;
pub mod server;
mod service;

use std::time::Duration;

pub use connection::Connection;

/// How often an idle connection is asked whether the other end is there.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long an answer to that may take, and a connection, a handshake or a greeting.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The protocol that both ends agree on by TLS.
const ALPN: &[u8] = b"h2";

#[cfg(test)]
mod tests;
