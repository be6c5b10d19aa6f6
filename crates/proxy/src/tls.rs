//! TLS with clients: a handshake picks domain, settings and certificate by the name it is for.

pub mod accept;
pub mod by_name;
pub mod challenge;
pub mod client;
pub mod config;
pub mod demand;
pub mod distinguished_name;
pub mod gate;
pub mod hello;
pub mod key;
pub mod park;
pub mod shown;
pub mod tickets;
