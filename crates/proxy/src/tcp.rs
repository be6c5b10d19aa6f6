//! Streams: connections whose bytes are handed on as they come.

mod account;
mod client;
pub mod serve;
mod tunnel;
