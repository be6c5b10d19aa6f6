//! The only place that reads a clock, so that everything else can be given one.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the replacement that the ban names"
)]

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// A moment on the monotonic clock. Under tokio's paused time it stands still.
pub use tokio::time::Instant;

/// The monotonic clock.
pub fn now() -> Instant {
    Instant::now()
}

/// The processor time that this thread has taken.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
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

#[cfg(test)]
mod tests {
    use super::processor_time;

    #[test]
    fn a_thread_that_works_takes_processor_time() {
        let before = processor_time();
        while processor_time() == before {
            std::hint::spin_loop();
        }
        assert!(processor_time() > before);
    }
}
