//! TLS with clients: a handshake picks domain, settings and certificate by the name it is for.

pub mod accept;
pub mod client;
pub mod config;
pub mod hello;
pub mod key;
