//! Requests: from a head that was read to a response that was written.
//!
//! HTTP/1 and HTTP/2 differ in how bytes become a head and how a body is framed, towards clients
//! (`downstream`) and towards endpoints (`upstream`). Everything between is one list of stages
//! (`stage`): they make a plan of head and tables in one step, which is then carried out against
//! whatever end the client speaks through.

pub mod account;
pub mod answer;
pub mod date;
pub mod downstream;
pub mod error_pages;
pub mod keeper;
pub mod page;
pub mod patience;
pub mod peer;
pub mod plan;
pub mod spans;
pub mod stage;
pub mod trouble;
pub mod tunnel;
pub mod upstream;
pub mod worker;
pub mod write;
