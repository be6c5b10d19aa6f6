//! The way of resources from a controller to its proxies, and onto a proxy's disk.
//!
//! **Does** carry sealed resources between two ends: session cores without IO, a gRPC server and
//! client around them, and the append-only log from which a proxy restarts.
//! **Knows** frames, commits, digests and positions, and which of them an untrusted end may send.
//! **Never** decides what a resource means, which proxy may see it, or where it came from.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod client;
pub mod demand;
pub mod log;
pub mod metrics;
pub mod server;
pub mod signing;
pub mod transport;
pub mod wire;

pub use client::{ClientSession, Delivery, Received, Refusal};
pub use demand::DemandedHost;
pub use log::{Log, LogError, Logged};
pub use metrics::{ClientCounters, ServerCounters};
pub use server::{Asked, Receipt, Report, ServerSession, Steps};
pub use signing::{Anchors, Issued, NotSigned};
pub use transport::client::{Apply, Client, ClientError, ClientSettings, Connect, TcpConnect};
pub use transport::server::{
    Authenticate, Event, Identity, Obtain, Owner, Refused, Server, ServerSettings, Sign,
};
pub use transport::{TooManyViews, Views};
pub use wire::SessionError;

#[cfg(test)]
mod tests;
