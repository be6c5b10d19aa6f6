//! The floor of the data plane: bytes, streams, heads, bodies, deadlines, counts and limits.
//!
//! Nothing in here knows a route, a domain or an upstream. Everything in here may be fed by
//! whoever reaches a socket, so nothing in here may panic on what it is fed.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod body;
pub mod border;
pub mod bucket;
pub mod buffer;
pub mod carrier;
pub mod client;
pub mod count;
pub mod deadline;
pub mod dice;
pub mod duplex;
pub mod failure;
pub mod field;
pub mod frame;
pub mod hash;
pub mod head;
pub mod hpack;
pub mod journal;
pub mod kept;
pub mod latency;
pub mod limits;
pub mod line;
pub mod local;
#[cfg(test)]
#[path = "../../e2e/src/name_server.rs"]
pub mod name_server;
pub mod names;
pub mod path;
pub mod pattern;
pub mod pressure;
pub mod proxy_header;
pub mod record;
pub mod recording;
pub mod refusal;
pub mod request_id;
pub mod response;
pub mod room;
pub mod share;
pub mod silent;
pub mod socket;
pub mod standard;
pub mod stream;
pub mod trailer;
pub mod websocket;
pub mod workloads;
