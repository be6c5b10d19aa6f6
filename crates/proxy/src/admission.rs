//! Admission: who is let in where connections, requests or memory are short.
//!
//! Seats for connections, fair shares of namespaces and domains, requests that give way to others,
//! memory pressure and rate limits.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub(crate) mod answers;
pub(crate) mod bucket;
pub(crate) mod fifo;
pub(crate) mod framing;
pub(crate) mod holdings;
pub(crate) mod networks;
pub(crate) mod places;
pub(crate) mod planning;
pub(crate) mod pressure;
pub(crate) mod resets;
pub(crate) mod room;
mod rounds;
pub(crate) mod share;
pub(crate) mod silent;
pub(crate) mod sources;
pub(crate) mod spaces;
pub(crate) mod tunnel;
pub(crate) mod turns;
pub(crate) mod waiting;
