//! Bytes of protocols as what they say: heads, fields, paths, bodies, frames and HPACK.
//!
//! Nothing in here knows a socket. Everything in here may be fed by whoever reaches one, so
//! nothing in here may panic on what it is fed.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod body;
pub mod buffer;
pub mod client;
pub mod endpoint_head;
pub mod field;
pub mod frame;
pub mod head;
mod host;
pub mod hpack;
pub mod kept;
pub mod path;
pub mod proxy_header;
pub(crate) mod request_line;
pub mod response;
pub mod trailer;
pub mod websocket;
