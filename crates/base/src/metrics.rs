//! The metrics registry: crates register their typed metrics here once, and hold handles.

mod process;
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
pub use text::Exposition;

/// All metrics of the process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    /// Metrics whose names are not ours.
    plain: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            registry: Arc::new(Mutex::new(Registry::with_prefix("myriad"))),
            plain: Arc::default(),
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

    /// Registers what the process tells of itself: its build, processor time, memory and files,
    /// and the lines that it left out of the log.
    pub fn register_process(&self, version: &'static str) {
        process::register(self, version);
    }

    /// The metrics in the format that an `Accept` field prefers, OpenMetrics or Prometheus' older
    /// text, behind its `Content-Type`.
    pub fn expose(&self, accept: &str) -> (&'static str, String) {
        let exposition = Exposition::accepted(accept);
        let text = match exposition {
            Exposition::OpenMetrics => self.encode(),
            Exposition::Text => text::older(&self.encode()),
        };
        (exposition.content_type(), text)
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
