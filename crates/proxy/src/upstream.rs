//! Endpoints: which there are, and connections to them.

pub mod attempt;
mod crowds;
pub mod datagrams;
pub mod dial;
pub mod dynamic;
pub mod endpoint;
pub mod endpoint_stream;
pub mod entry;
pub mod h1_connection;
pub mod h2_connection;
pub mod idle;
mod local_usage;
mod noise;
pub mod original;
mod ports;
pub mod resolve;
pub mod secure;
mod sessions;
mod shake;
pub mod slices;
