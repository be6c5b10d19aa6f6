//! Requests to endpoints: attempts over either version, when there is another, and the requests
//! that the proxy sends of its own.

pub mod attempt;
mod h1;
mod h2;
mod mirror;
mod outgoing;
pub mod own;
pub mod retry;
mod retry_state;
mod timers;
