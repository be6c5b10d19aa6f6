//! Books as whoever reads metrics sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use myriad_base::metrics::{EncodeMetric, MetricEncoder, MetricType, Metrics, NoLabelSet};
use myriad_model::{Metric, MetricAction, MetricRule, TagValue};

use super::{BOUNDS, Book, Distribution, Library, Series, name_of};

/// The workload that a proxy is, as the labels of its requests' source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name.
    pub name: Box<str>,
    /// Its namespace.
    pub namespace: Box<str>,
}

impl Default for Workload {
    fn default() -> Self {
        Workload {
            name: "unknown".into(),
            namespace: "unknown".into(),
        }
    }
}

/// Registers all standard metrics.
pub fn register(metrics: &Metrics, library: &Arc<Library>, workload: Workload) {
    let workload = Arc::new(workload);
    for metric in Metric::ALL {
        let shown = Shown {
            metric,
            library: library.clone(),
            workload: workload.clone(),
        };
        metrics.register_plain(name_of(metric), help(metric), shown);
    }
}

fn help(metric: Metric) -> &'static str {
    match metric {
        Metric::Requests => "Requests",
        Metric::RequestDuration => "How long requests took",
        Metric::RequestBytes => "Bytes of requests' bodies",
        Metric::ResponseBytes => "Bytes of responses' bodies",
        Metric::TcpOpened => "Streams opened",
        Metric::TcpClosed => "Streams ended",
        Metric::TcpSent => "Bytes of ended streams that endpoints have sent",
        Metric::TcpReceived => "Bytes of ended streams that clients have sent",
    }
}

/// One metric of all books.
struct Shown {
    metric: Metric,
    library: Arc<Library>,
    workload: Arc<Workload>,
}

/// Names and values of labels, by name.
type Labels = BTreeMap<String, String>;

#[derive(Default)]
struct Sum {
    count: u64,
    sum: u64,
    buckets: [u64; BOUNDS.len() + 1],
}

impl Shown {
    fn sums(&self) -> BTreeMap<Labels, Sum> {
        let recording = self.library.recording.load_full();
        let rules = recording.as_ref().map_or(&[][..], |it| &it.told.metrics);
        let mut sums: BTreeMap<Labels, Sum> = BTreeMap::new();
        if !is_shown(self.metric, rules) {
            return sums;
        }
        for book in self.library.all() {
            let pages = book.pages.iter().filter_map(|page| page.get());
            for series in pages.flat_map(|page| page.series.iter().filter_map(|it| it.get())) {
                let is_stream = series.labels.protocol == "tcp";
                let is_of_streams = self.metric >= Metric::TcpOpened;
                if is_stream != is_of_streams {
                    continue;
                }
                let labels = self.labels(&book, series, rules);
                self.read(series, sums.entry(labels).or_default());
            }
        }
        sums
    }

    fn read(&self, series: &Series, sum: &mut Sum) {
        let counter = |counter: &AtomicU64, sum: &mut Sum| sum.count += counter.load(Relaxed);
        match self.metric {
            Metric::Requests => counter(&series.requests, sum),
            Metric::RequestDuration => sum.add(&series.duration),
            Metric::RequestBytes => sum.add(&series.request_bytes),
            Metric::ResponseBytes => sum.add(&series.response_bytes),
            Metric::TcpOpened => counter(&series.opened, sum),
            Metric::TcpClosed => counter(&series.closed, sum),
            Metric::TcpSent => counter(&series.sent, sum),
            Metric::TcpReceived => counter(&series.received, sum),
        }
    }

    fn labels(&self, book: &Book, series: &Series, rules: &[MetricRule]) -> Labels {
        let (to, own) = (&book.destination, &series.labels);
        let unknown = "unknown";
        let app = &*self.workload.name;
        let flag = if own.flag.is_empty() { "-" } else { own.flag };
        let all = [
            ("reporter", "source"),
            ("source_workload", app),
            ("source_workload_namespace", &*self.workload.namespace),
            ("source_canonical_service", app),
            ("source_canonical_revision", "latest"),
            ("source_principal", unknown),
            ("source_app", app),
            ("source_version", unknown),
            ("source_cluster", unknown),
            ("destination_workload", unknown),
            ("destination_workload_namespace", unknown),
            ("destination_principal", unknown),
            ("destination_app", unknown),
            ("destination_version", unknown),
            ("destination_service", &to.service),
            ("destination_service_name", &to.name),
            ("destination_service_namespace", &to.namespace),
            ("destination_canonical_service", &to.name),
            ("destination_canonical_revision", "latest"),
            ("destination_cluster", unknown),
            ("request_protocol", own.protocol),
            ("response_flags", flag),
            ("connection_security_policy", unknown),
        ];
        let own_label = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut labels: Labels = all.into_iter().map(own_label).collect();
        if self.metric < Metric::TcpOpened {
            labels.insert("response_code".to_owned(), own.status.to_string());
        }
        for rule in rules {
            if rule.metric.is_some_and(|metric| metric != self.metric) {
                continue;
            }
            match &rule.action {
                MetricAction::Disable | MetricAction::Enable => {}
                MetricAction::Remove(tag) => {
                    labels.remove(&**tag);
                }
                MetricAction::Set(tag, value) => {
                    let value = match value {
                        TagValue::Text(text) => text.to_string(),
                        TagValue::Attribute(attribute) => {
                            let at = TagValue::BOUNDED.iter().position(|it| it == attribute);
                            let value = at.and_then(|at| own.tags.get(at));
                            let value = value.filter(|value| !value.is_empty());
                            value.map_or(unknown, |value| *value).to_owned()
                        }
                    };
                    labels.insert(tag.to_string(), value);
                }
            }
        }
        labels
    }
}

/// Whether a metric is shown: the last word holds.
fn is_shown(metric: Metric, rules: &[MetricRule]) -> bool {
    let meant = rules
        .iter()
        .rev()
        .filter(|rule| rule.metric.is_none_or(|known| known == metric));
    for rule in meant {
        match rule.action {
            MetricAction::Disable => return false,
            MetricAction::Enable => return true,
            MetricAction::Remove(_) | MetricAction::Set(..) => {}
        }
    }
    true
}

impl Sum {
    fn add(&mut self, of: &Distribution) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&of.buckets) {
            let count = bucket.load(Relaxed);
            *sum += count;
            self.count += count;
        }
        self.sum = self.sum.wrapping_add(of.sum.load(Relaxed));
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(self.metric))
    }
}

impl EncodeMetric for Shown {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, sum) in self.sums() {
            let labels: Vec<(String, String)> = labels.into_iter().collect();
            let mut encoder = encoder.encode_family(&labels)?;
            match self.metric_type() {
                MetricType::Histogram => {
                    let bounds = BOUNDS.iter().chain([&f64::MAX]);
                    let buckets: Vec<(f64, u64)> =
                        bounds.copied().zip(sum.buckets.iter().copied()).collect();
                    let total = sum.sum as f64 / 1_000.0;
                    encoder.encode_histogram::<NoLabelSet>(total, sum.count, &buckets, None)?;
                }
                _ => encoder.encode_counter::<NoLabelSet, _, u64>(&sum.count, None)?,
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        match self.metric {
            Metric::RequestDuration | Metric::RequestBytes | Metric::ResponseBytes => {
                MetricType::Histogram
            }
            _ => MetricType::Counter,
        }
    }
}
