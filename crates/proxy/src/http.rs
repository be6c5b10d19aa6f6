//! Requests: from a head that was read to a response that was written.
//!
//! HTTP/1 and HTTP/2 differ in how bytes become a head and how a body is framed. Everything
//! between is one path: a plan is made of head and tables in one step, and an exchange carries it
//! out against whatever end the client speaks through.

pub mod account;
pub mod admission;
pub mod answer;
pub mod around;
pub mod check;
pub mod date;
pub mod endpoint;
pub mod exchange;
pub mod gate;
pub mod h1;
pub mod h2;
pub mod keeper;
pub mod mirror;
pub mod outgoing;
pub mod page;
pub mod peer;
pub mod plan;
pub mod process;
pub mod processed;
pub mod relay;
pub mod spans;
pub mod timers;
pub mod tries;
pub mod trouble;
pub mod tunnel;
pub mod worker;
pub mod write;
