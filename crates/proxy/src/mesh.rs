//! Connections that a workload's network rules lead to the proxy: what they were meant for, and
//! what they speak.

pub mod detect;
pub mod original;
