//! The metrics registry: crates register their typed metrics here once, and hold handles.

mod families;
mod native;
mod process;
mod protobuf;
mod text;

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::{encode_eof, encode_registry};

pub use prometheus_client::encoding::{
    EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder, MetricEncoder, NoLabelSet,
};
pub use prometheus_client::metrics::MetricType;
pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::Gauge;
pub use prometheus_client::metrics::histogram::Histogram;
pub use prometheus_client::registry::{Metric, Registry};

pub use families::{FamilyKind, HistogramValue, MetricFamily, NativeReading, Series, SeriesValue};
pub use native::NativeHistogram;
pub use text::Exposition;

/// All metrics of the process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    /// Metrics whose names are not ours.
    plain: Arc<Mutex<Registry>>,
    /// The histograms that have finer buckets than text can carry, by their whole names.
    natives: Arc<Mutex<Vec<(String, NativeHistogram)>>>,
}

/// The prefix of every name that is ours.
const PREFIX: &str = "myriad";

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            registry: Arc::new(Mutex::new(Registry::with_prefix(PREFIX))),
            plain: Arc::default(),
            natives: Arc::default(),
        }
    }
}

impl Metrics {
    /// An empty registry; every name gets the prefix `myriad_`.
    pub fn new() -> Self {
        Metrics::default()
    }

    /// Registers a metric: a noun with its unit last. Counters get `_total` by themselves.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(name, help, metric);
    }

    /// Registers a metric under a name that others have given it, without the prefix.
    pub fn register_plain(&self, name: &str, help: &str, metric: impl Metric) {
        let mut registry = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(name, help, metric);
    }

    /// Registers a histogram that is told as a native one, too, to who understands such.
    pub fn register_native(&self, name: &str, help: &str, histogram: &NativeHistogram) {
        self.register(name, help, histogram.clone());
        let name = format!("{PREFIX}_{name}");
        let mut natives = self.natives.lock().unwrap_or_else(PoisonError::into_inner);
        natives.push((name, histogram.clone()));
    }

    /// Registers what the process tells of itself: its build, processor time, memory and files,
    /// and the lines that it left out of the log.
    pub fn register_process(&self, version: &'static str) {
        process::register(self, version);
    }

    /// The metrics in the format that an `Accept` field prefers, OpenMetrics, Prometheus' protobuf
    /// or its older text, behind its `Content-Type`.
    pub fn expose(&self, accept: &str) -> (&'static str, Vec<u8>) {
        let exposition = Exposition::accepted(accept);
        let body = match exposition {
            Exposition::OpenMetrics => self.encode().into_bytes(),
            Exposition::Text => text::older(&self.encode()).into_bytes(),
            Exposition::Protobuf => protobuf::encode(&self.families()),
        };
        (exposition.content_type(), body)
    }

    /// The metrics as values.
    pub fn families(&self) -> Vec<MetricFamily> {
        let mut families = families::parse(&text::older(&self.encode()));
        let natives = self.natives.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, histogram) in &*natives {
            let mut named = families.iter_mut().filter(|family| family.name == *name);
            let series = named.next().and_then(|family| family.series.first_mut());
            if let Some(series) = series {
                // As a whole, so that its two forms are of the same moment.
                series.value = SeriesValue::Histogram(histogram.read());
            }
        }
        families
    }

    /// The OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        for registry in [&self.registry, &self.plain] {
            let registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
            // Writing into a String cannot fail.
            let _ = encode_registry(&mut text, &registry);
        }
        let _ = encode_eof(&mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Metrics, NativeHistogram, SeriesValue};

    #[test]
    fn a_native_histogram_is_classic_in_text_and_both_in_protobuf() {
        let metrics = Metrics::new();
        let histogram = NativeHistogram::new(&[0.1, 1.0]);
        metrics.register_native("took_seconds", "How long it took", &histogram);
        histogram.observe(Duration::from_millis(250));
        let (content_type, text) = metrics.expose("text/plain");
        assert!(content_type.starts_with("text/plain"));
        let text = String::from_utf8(text).expect("a text");
        let line = "myriad_took_seconds_bucket{le=\"1.0\"} 1\n";
        assert!(text.contains(line), "{text}");
        let families = metrics.families();
        let [family] = &*families else {
            panic!("{families:?}");
        };
        let SeriesValue::Histogram(value) = &family.series[0].value else {
            panic!("{family:?}");
        };
        // Bucket -16 ends at 2^(-16/8), which is a quarter.
        let native = value.native.as_ref().map(|native| &*native.buckets);
        assert_eq!(native, Some(&[(-16, 1)][..]));
        assert_eq!(value.buckets.len(), 3);
        let (content_type, bytes) = metrics.expose(
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
             encoding=delimited,text/plain;q=0.5",
        );
        assert!(content_type.starts_with("application/vnd.google.protobuf; "));
        assert!(bytes.windows(19).any(|it| it == b"myriad_took_seconds"));
    }
}
