//! Admission: who is let in where connections, requests or memory are short.
//!
//! Seats for connections, fair shares of namespaces and domains, requests that give way to others,
//! memory pressure and rate limits.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod bucket;
pub mod fifo;
pub mod holdings;
pub mod places;
pub mod pressure;
pub mod room;
pub mod share;
pub mod silent;
pub mod spaces;
pub mod tunnel;
pub mod waiting;
