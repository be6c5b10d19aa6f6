//! Datagrams: flows, each between one port of a client and one endpoint.

mod account;
mod flow;
mod flows;
mod lead;
mod pace;
mod scratch;
pub mod serve;
pub mod stop;
