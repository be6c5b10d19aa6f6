//! Streams: connections whose bytes are handed on as they come.

mod account;
pub mod serve;
mod tunnel;
