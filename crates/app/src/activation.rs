//! How long changes take until they are live on this proxy, from when their objects were written.
//!
//! The write itself tells no usable time: objects of a cluster carry seconds, and files that are
//! moved into place the time of their content. What is known is when the source noticed it: the
//! event of the file system, or that of the watch, which comes to the controller within a
//! millisecond of the API server's own answer. A commit counts once, from its oldest change.
//!
//! Between a controller and a proxy the moment travels as time since 1970, so that the two clocks
//! matter: where that of the proxy is behind, nothing is negative but less than nothing was seen.

use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Metrics, NativeHistogram};

/// Upper bounds of the classic buckets, in seconds.
pub(crate) const BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
];

/// The times of all changes so far. Clones count together.
#[derive(Clone)]
pub(crate) struct Activation(NativeHistogram);

impl Activation {
    /// Times of nothing yet.
    pub(crate) fn new(metrics: &Metrics) -> Activation {
        let seconds = NativeHistogram::new(&BUCKETS);
        let help = "From the write of an object, as its source noticed it, to the moment when this \
                    proxy serves it";
        metrics.register_native("activation_seconds", help, &seconds);
        Activation(seconds)
    }

    /// Notes that what was noticed in this process is live.
    pub(crate) fn observe_since(&self, since: Instant) {
        self.0
            .observe(clock::now().saturating_duration_since(since));
    }

    /// Notes that what another process noticed is live, so long after 1970.
    pub(crate) fn observe_noticed(&self, noticed: Duration) {
        self.0.observe(clock::since_epoch().saturating_sub(noticed));
    }
}

/// When a moment of this process was, since 1970.
pub(crate) fn since_epoch(moment: Instant) -> Duration {
    let age = clock::now().saturating_duration_since(moment);
    clock::since_epoch().saturating_sub(age)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_base::clock;
    use myriad_base::metrics::Metrics;

    use super::{Activation, since_epoch};

    #[test]
    fn a_moment_means_the_same_in_both_forms() {
        let metrics = Metrics::new();
        let activation = Activation::new(&metrics);
        let moment = clock::now() - Duration::from_secs(3);
        activation.observe_since(moment);
        activation.observe_noticed(since_epoch(moment));
        // A clock that is ahead of this one.
        activation.observe_noticed(clock::since_epoch() + Duration::from_secs(60));
        let text = metrics.encode();
        let line = |bound: &str, count: u64| {
            let line = format!("myriad_activation_seconds_bucket{{le=\"{bound}\"}} {count}\n");
            assert!(text.contains(&line), "no {line} in {text}");
        };
        line("0.001", 1);
        line("2.5", 1);
        line("5.0", 3);
    }
}
