//! Telemetry: counts, latencies, standard metrics, the access log, and the ids of requests.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod access_log;
pub mod count;
mod escape;
pub mod latency;
pub mod live_trace;
#[allow(missing_docs, reason = "fields are named by OpenTelemetry's protocol")]
pub mod otlp;
pub mod queue;
pub mod recording;
pub mod refusal;
pub mod request_id;
pub mod standard;
pub mod top;
pub mod workloads;
