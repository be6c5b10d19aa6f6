//! The load and scale commands.
//!
//! **Does** generate domains and traffic, measure from outside, and print one JSON object per run.
//! **Knows** the app as a library, so that it can run it in a process of its own with a counting
//! allocator.
//! **Never** is part of the product, and never judges unless asked: it prints what it saw.
#![allow(
    clippy::disallowed_methods,
    reason = "measuring needs the real clock and plain threads"
)]

pub mod activate;
pub mod allocation;
pub mod backend;
pub mod child;
pub mod cluster;
pub mod console;
pub mod domains;
pub mod egress;
pub mod flap;
pub mod fleet;
pub mod gateway_api;
pub mod issue;
pub mod istio;
pub mod latency;
pub mod load;
pub mod mesh;
pub mod plot;
pub mod pods;
pub mod poll;
pub mod probe;
pub mod record;
pub mod regex;
pub mod report;
pub mod scale;
pub mod table;
pub mod throughput;
