//! Histograms of how long something took, in classic buckets and in those of Prometheus' native
//! histograms, whose bounds grow by a ninth part: the former are for everybody, the latter for who
//! asks for protobuf.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::families::{HistogramValue, NativeReading};

/// The resolution: eight buckets from each number to its double.
pub(super) const NATIVE_SCHEMA: i32 = 3;

/// The number of the first bucket. Bucket `n` ends at 2^(n/8) seconds.
const FIRST: i32 = -17 * 8 + 1;

/// The number of the last bucket, which has everything beyond as well: 4,096 seconds.
const LAST: i32 = 12 * 8;

/// Durations up to this are all the same: 2^-17 seconds, which is 7.6 microseconds.
pub(super) const NATIVE_ZERO_THRESHOLD: f64 = 1.0 / 131_072.0;

/// The upper bounds of all buckets.
static BOUNDS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let bounds = (FIRST..=LAST).map(|number| (f64::from(number) / 8.0).exp2());
    bounds.collect()
});

/// How long something took, each time. Clones count together. It is for what happens a few thousand
/// times a second at most: a lock is taken for each.
#[derive(Clone)]
pub struct NativeHistogram {
    classic_bounds: &'static [f64],
    state: Arc<Mutex<State>>,
}

struct State {
    /// One for each bound, and one for everything beyond.
    classic: Box<[u64]>,
    native: Box<[u64]>,
    zero: u64,
    sum: f64,
}

impl NativeHistogram {
    /// A histogram of nothing, with these upper bounds of classic buckets in seconds.
    pub fn new(classic_bounds: &'static [f64]) -> Self {
        let state = State {
            classic: vec![0; classic_bounds.len() + 1].into(),
            native: vec![0; BOUNDS.len()].into(),
            zero: 0,
            sum: 0.0,
        };
        NativeHistogram {
            classic_bounds,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Adds a duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let classic = self.classic_bounds.partition_point(|it| *it < seconds);
        let native = BOUNDS.partition_point(|it| *it < seconds);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sum += seconds;
        if let Some(slot) = state.classic.get_mut(classic) {
            *slot += 1;
        }
        if seconds <= NATIVE_ZERO_THRESHOLD {
            state.zero += 1;
        } else if let Some(slot) = state.native.get_mut(native.min(BOUNDS.len() - 1)) {
            *slot += 1;
        }
    }

    /// All of it at this moment.
    pub(super) fn read(&self) -> HistogramValue {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        let bounds = self.classic_bounds.iter().copied();
        let bounds = bounds.chain([f64::INFINITY]);
        let buckets = bounds.zip(&*state.classic).map(|(bound, number)| {
            count += number;
            (bound, count)
        });
        let buckets = buckets.collect();
        let native = (FIRST..).zip(state.native.iter().copied());
        HistogramValue {
            count,
            sum: state.sum,
            buckets,
            native: Some(NativeReading {
                zero: state.zero,
                buckets: native.filter(|(_, number)| *number > 0).collect(),
            }),
        }
    }
}

impl fmt::Debug for NativeHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("histogram")
    }
}

impl EncodeMetric for NativeHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let value = self.read();
        let mut before = 0;
        let each = value.buckets.iter().map(|(bound, upto)| {
            let number = upto - before;
            before = *upto;
            (*bound, number)
        });
        let buckets: Vec<(f64, u64)> = each.collect();
        encoder.encode_histogram::<NoLabelSet>(value.sum, value.count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BOUNDS, FIRST, NATIVE_ZERO_THRESHOLD, NativeHistogram};

    #[test]
    fn a_duration_is_in_one_bucket_of_each_form() {
        let histogram = NativeHistogram::new(&[0.001, 1.0]);
        for micros in [1, 1_000, 1_001, 1_000_000, 2_000_000, 40_000_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let value = histogram.read();
        assert_eq!(
            (value.count, &*value.buckets),
            (6, &[(0.001, 2), (1.0, 4), (f64::INFINITY, 6)][..])
        );
        let native = value.native.expect("finer buckets");
        assert_eq!(native.zero, 1);
        let in_buckets: u64 = native.buckets.iter().map(|(_, number)| number).sum();
        assert_eq!(in_buckets + native.zero, value.count);
        // A second is the end of bucket 0, two of bucket 8; what is beyond all is in the last.
        assert!(native.buckets.contains(&(0, 1)) && native.buckets.contains(&(8, 1)));
        assert!(native.buckets.contains(&(96, 1)), "{native:?}");
    }

    #[test]
    fn the_bounds_are_those_of_the_schema() {
        let before_first = (f64::from(FIRST - 1) / 8.0).exp2();
        assert_eq!(before_first, NATIVE_ZERO_THRESHOLD);
        assert!(BOUNDS.windows(2).all(|pair| pair[1] / pair[0] < 1.091));
        assert_eq!(BOUNDS.last(), Some(&4_096.0));
    }
}
