//! gRPC around the session cores.

mod accept;
pub mod client;
mod codec;
mod connection;
mod demanding;
mod event;
mod knock;
mod late;
mod lines;
mod search;
mod seats;
pub mod server;
mod service;
mod views;

use std::time::Duration;

pub use connection::{Connection, Guest};
pub use views::{TooManyViews, VIEWS_MAX, Views};

/// How often an idle connection is asked whether the other end is there.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long an answer to that may take, and a connection with its greeting.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection of a client may take, TLS included. An address behind which nobody
/// answers then costs no more than this before the next is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The protocol that both ends agree on by TLS.
const ALPN: &[u8] = b"h2";

#[cfg(test)]
mod tests;
