//! The run-time floor that the running process stands on.
//!
//! **Does** hold the clock, back-off, named tasks, drain, readiness, holds, the turns of newcomers,
//! logs, the metrics registry, the verifier of TLS servers and the readers of the kernel's files
//! and of people's.
//! **Knows** tokio, TLS and the format of metrics, and nothing of gateways.
//! **Never** sees an object, a resource or a request.

pub mod backoff;
pub mod clock;
pub mod drain;
pub mod file;
pub mod hold;
pub mod kernel;
pub mod log;
pub mod metrics;
pub mod newcomers;
pub mod readiness;
pub mod task;
pub mod tls;
