//! The rules of a route beside its match and its action: pure functions of a request.

pub mod affinity;
pub mod answers;
pub mod authorize;
pub mod check;
pub mod client;
pub mod client_certificate;
pub mod cors;
pub mod direction;
pub mod fault;
pub mod header;
pub mod hops;
pub mod inquiry;
pub mod limit;
pub mod process;
pub mod redirect;
pub mod retry;
pub mod rewrite;
pub mod sameness;
pub mod token;
pub mod trace;
pub mod underscore;
