//! How long requests took: a histogram per class of status, a row of numbers per worker.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use myriad_base::metrics::{EncodeMetric, MetricEncoder, MetricType, Metrics, NoLabelSet};

/// The upper bounds of the buckets, in microseconds.
const BOUNDS_US: [u64; 15] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 60_000_000,
];

/// Buckets, with the one of everything beyond.
const BUCKETS: usize = BOUNDS_US.len() + 1;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The durations of one worker's requests, which alone writes them.
#[derive(Default)]
pub struct Latency([Class; CLASSES.len()]);

#[derive(Default)]
struct Class {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Latency {
    /// Adds a request.
    pub fn add(&self, status: u16, duration: Duration) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(class) = self.0.get(class)
            && let Some(slot) = class.buckets.get(bucket)
        {
            bump(slot, 1);
            bump(&class.sum_us, us);
        }
    }
}

/// Adds to a number that no other thread writes, which takes no locked instruction.
fn bump(slot: &AtomicU64, more: u64) {
    let sum = slot.load(Ordering::Relaxed).wrapping_add(more);
    slot.store(sum, Ordering::Relaxed);
}

/// The durations of all workers.
struct Durations(Vec<Arc<Latency>>);

/// Registers the durations of all workers.
pub fn register(metrics: &Metrics, rows: impl Iterator<Item = Arc<Latency>>) {
    let help = "How long requests took, by class of status";
    metrics.register("request_duration_seconds", help, Durations(rows.collect()));
}

impl fmt::Debug for Durations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("request_duration_seconds")
    }
}

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (index, label) in CLASSES.into_iter().enumerate() {
            let mut counts = [0_u64; BUCKETS];
            let mut sum_us = 0_u64;
            let rows = self.0.iter();
            for class in rows.filter_map(|row| row.0.get(index)) {
                for (count, slot) in counts.iter_mut().zip(&class.buckets) {
                    *count += slot.load(Ordering::Relaxed);
                }
                sum_us = sum_us.saturating_add(class.sum_us.load(Ordering::Relaxed));
            }
            let bounds = BOUNDS_US.into_iter().map(|us| us as f64 / 1e6);
            let bounds = bounds.chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let count = counts.iter().sum();
            let sum = sum_us as f64 / 1e6;
            encoder
                .encode_family(&[("status", label)])?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_base::metrics::Metrics;

    use super::{Latency, register};

    #[test]
    fn durations_of_all_workers_fall_into_their_buckets() {
        let rows: Vec<Arc<Latency>> = vec![Arc::default(), Arc::default()];
        let ms = Duration::from_millis;
        rows[0].add(200, ms(1));
        rows[1].add(204, ms(7));
        rows[1].add(503, ms(90_000));
        let metrics = Metrics::new();
        register(&metrics, rows.into_iter());
        let text = metrics.encode();
        let has = |label: &str, value: &str| {
            let line = format!("myriad_request_duration_seconds_{label} {value}\n");
            assert!(text.contains(&line), "no {line} in {text}");
        };
        has("bucket{le=\"0.0005\",status=\"2xx\"}", "0");
        has("bucket{le=\"0.001\",status=\"2xx\"}", "1");
        has("bucket{le=\"0.01\",status=\"2xx\"}", "2");
        has("bucket{le=\"60.0\",status=\"5xx\"}", "0");
        has("bucket{le=\"+Inf\",status=\"5xx\"}", "1");
        has("sum{status=\"5xx\"}", "90.0");
        has("count{status=\"2xx\"}", "2");
    }
}
