//! The run-time floor that the running process stands on.
//!
//! **Does** hold the clock, named tasks, drain, readiness, logs and the metrics registry.
//! **Knows** tokio and the format of metrics, and nothing of gateways.
//! **Never** sees an object, a resource or a request.

pub mod clock;
pub mod drain;
pub mod log;
pub mod metrics;
pub mod readiness;
pub mod task;
