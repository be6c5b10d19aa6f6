//! The common ground of the tools: the machines, servers and peers that tests and measurements
//! need.
//!
//! **Does** start API servers, make networks, answer names, start other proxies, and build and keep
//! the programs for that, and the images.
//! **Knows** the command lines of these programs, and where their pinned sources are.
//! **Never** is part of the product, and never sees it: it is there before anything of it is built.
#![allow(
    clippy::disallowed_methods,
    reason = "a tool of the developer: it waits for programs and reads what they say whole"
)]
#![allow(
    clippy::print_stdout,
    reason = "what takes minutes to be built is named to the one who waits"
)]

pub mod bind;
pub mod cert_manager;
pub mod cluster;
pub mod gateway_api;
pub mod image;
pub mod name_server;
pub mod network;
pub mod pebble;
pub mod peer;
pub mod port;
pub mod postgresql;
pub mod tool;
