//! The only place that reads a clock, so that everything else can be given one.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the replacement that the ban names"
)]

use std::time::{Duration, SystemTime};

/// A moment on the monotonic clock. Under tokio's paused time it stands still.
pub use tokio::time::Instant;

/// The monotonic clock.
pub fn now() -> Instant {
    Instant::now()
}

/// Seconds since the Unix epoch; 0 on a machine that is set before it.
pub fn unix_seconds() -> i64 {
    i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX)
}

/// Time since the Unix epoch.
pub fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
