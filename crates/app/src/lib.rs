//! Myriad: the place where the crates meet.
//!
//! **Does** read the command line and its settings, join source, translation, proxy and admin
//! pages into one process, and run the control loop.
//! **Knows** every crate of the product.
//! **Never** decides what an object means, and never touches a connection.

pub mod acme;
mod activation;
pub mod ask;
pub mod board;
pub mod catalog;
pub mod check;
pub mod cli;
pub mod completions;
pub mod confirm;
pub mod console;
pub mod control;
pub mod controller;
pub mod dedicated;
pub mod descriptors;
pub mod diff;
pub mod explain;
#[cfg(test)]
mod fake_api;
pub mod follower;
pub mod gateways;
pub mod greeting;
pub mod history;
pub mod holdings;
pub mod host_proof;
pub mod limits;
pub mod live;
pub mod log_file;
pub mod mesh;
pub mod metrics;
pub mod obtained;
pub mod otlp;
pub mod pages;
mod problems;
pub mod process;
pub mod resident;
pub mod restart;
pub mod rivals;
pub mod serve;
pub mod settings;
pub mod signals;
pub mod stated;
pub mod status;
pub mod tenants;
pub mod tickets;
pub mod tokens;
pub mod told;
pub mod top;
pub mod trace;
pub mod why;
pub mod wishes;
