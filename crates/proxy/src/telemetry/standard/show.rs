//! Books as readers of metrics see them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use myriad_base::metrics::{EncodeMetric, MetricEncoder, MetricType, Metrics, NoLabelSet};
use myriad_model::{Metric, MetricAction, MetricRule, TagValue};

use super::{BOUNDS, Book, Distribution, Library, Reporter, Series, name_of};
use crate::telemetry::workloads::{Met, WorkloadId};

/// The value of a label of which nothing is known.
const UNKNOWN: &str = "unknown";

/// The cluster that every workload of the mesh is in: Istio's name where nobody gives another.
const CLUSTER: &str = "Kubernetes";

/// The workload that a proxy is, where its settings say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name.
    pub name: Box<str>,
    /// Its namespace.
    pub namespace: Box<str>,
}

/// Registers all standard metrics.
pub fn register(metrics: &Metrics, library: &Arc<Library>, workload: Option<Workload>) {
    let about = "What of standard metrics was counted together with others, for want of room";
    let overflows = library.bounds.overflows.clone();
    metrics.register("standard_metrics_overflows", about, overflows);
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
        Metric::TcpSent => "Bytes of streams that endpoints have sent",
        Metric::TcpReceived => "Bytes of streams that clients have sent",
    }
}

/// One metric of all books.
struct Shown {
    metric: Metric,
    library: Arc<Library>,
    workload: Arc<Option<Workload>>,
}

/// Names and values of labels, by name.
type Labels<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

/// One end of a request, as labels tell it.
#[derive(Clone, Copy)]
struct Party<'a> {
    workload: &'a str,
    namespace: &'a str,
    principal: &'a str,
    app: &'a str,
    version: &'a str,
    /// Empty where the service that is asked for stands in its place.
    service: &'a str,
    revision: &'a str,
    cluster: &'a str,
}

#[derive(Default)]
struct Sum {
    count: u64,
    sum: u64,
    buckets: [u64; BOUNDS.len() + 1],
}

impl<'a> Party<'a> {
    /// A workload of which nothing is known but this.
    fn called(word: &'a str) -> Self {
        Party {
            workload: word,
            namespace: word,
            principal: word,
            app: word,
            version: word,
            service: word,
            revision: "latest",
            cluster: word,
        }
    }

    /// The names in a certificate of the mesh.
    fn of(met: &'a Met) -> Self {
        let or_unknown = |text: &'a str| if text.is_empty() { UNKNOWN } else { text };
        let names = &met.names;
        Party {
            workload: or_unknown(&names.workload),
            namespace: or_unknown(met.namespace()),
            principal: &met.principal,
            app: or_unknown(&names.app),
            version: or_unknown(&names.version),
            service: or_unknown(&names.service),
            revision: match &*names.revision {
                "" => "latest",
                revision => revision,
            },
            cluster: CLUSTER,
        }
    }

    /// The proxy itself; what its settings say goes first.
    fn own(met: Option<&'a Met>, workload: Option<&'a Workload>) -> Self {
        let known = met.map_or(Party::called(UNKNOWN), Party::of);
        let Some(Workload { name, namespace }) = workload else {
            return known;
        };
        let or_name = |text: &'a str| if text == UNKNOWN { name } else { text };
        Party {
            workload: name,
            namespace,
            app: or_name(known.app),
            service: or_name(known.service),
            ..known
        }
    }
}

impl Shown {
    fn write(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let recording = self.library.recording.load_full();
        let rules = recording.as_ref().map_or(&[][..], |it| &it.told.metrics);
        if !is_shown(self.metric, rules) {
            return Ok(());
        }
        let books = self.library.all();
        let workloads = self.library.bounds.workloads.all();
        let own = self.library.own.load_full();
        let own = Party::own(own.as_deref(), (*self.workload).as_ref());
        let mut sums: BTreeMap<Labels<'_>, Sum> = BTreeMap::new();
        for book in &books {
            for (id, page) in book.pages() {
                let other = match workloads.get(id.index()) {
                    Some(Some(met)) => Party::of(met),
                    _ if id == WorkloadId::OVERFLOW => Party::called("overflow"),
                    _ => Party::called(UNKNOWN),
                };
                for series in page.series.iter().filter_map(|it| it.get()) {
                    let is_stream = series.labels.protocol == "tcp";
                    let is_of_streams = self.metric >= Metric::TcpOpened;
                    if is_stream != is_of_streams {
                        continue;
                    }
                    let ends = (own, other, id != WorkloadId::UNKNOWN);
                    let labels = self.labels(book, ends, series, rules);
                    self.read(series, sums.entry(labels).or_default());
                }
            }
        }
        sums.into_iter()
            .try_for_each(|(labels, sum)| self.write_one(encoder, &labels, &sum))
    }

    fn write_one(
        &self,
        encoder: &mut MetricEncoder<'_>,
        labels: &Labels<'_>,
        sum: &Sum,
    ) -> fmt::Result {
        let labels: Vec<(&str, &str)> = labels
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let mut encoder = encoder.encode_family(&labels)?;
        match self.metric_type() {
            MetricType::Histogram => {
                // Without a bucket for all there is no quantile.
                let bounds = BOUNDS.iter().chain([&f64::INFINITY]);
                let buckets: Vec<(f64, u64)> =
                    bounds.copied().zip(sum.buckets.iter().copied()).collect();
                let total = sum.sum as f64 / 1_000.0;
                encoder.encode_histogram::<NoLabelSet>(total, sum.count, &buckets, None)
            }
            _ => encoder.encode_counter::<NoLabelSet, _, u64>(&sum.count, None),
        }
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

    /// The labels of a series: of this proxy, of whoever is at the other end, and whether that
    /// one has shown who it is.
    fn labels<'a>(
        &self,
        book: &'a Book,
        (own, other, is_met): (Party<'a>, Party<'a>, bool),
        series: &Series,
        rules: &'a [MetricRule],
    ) -> Labels<'a> {
        let to = &book.destination;
        let (reporter, source, destination) = match book.reporter {
            Reporter::Source => ("source", own, other),
            Reporter::Destination => ("destination", other, own),
        };
        // As in Istio: a client does not know what the server demands.
        let security = match (book.reporter, is_met) {
            (Reporter::Source, _) => UNKNOWN,
            (Reporter::Destination, true) => "mutual_tls",
            (Reporter::Destination, false) => "none",
        };
        let canonical = match destination.service {
            UNKNOWN => &*to.name,
            service => service,
        };
        let own_labels = &series.labels;
        let flag = match own_labels.flag {
            "" => "-",
            flag => flag,
        };
        let all = [
            ("reporter", reporter),
            ("source_workload", source.workload),
            ("source_workload_namespace", source.namespace),
            ("source_canonical_service", source.service),
            ("source_canonical_revision", source.revision),
            ("source_principal", source.principal),
            ("source_app", source.app),
            ("source_version", source.version),
            ("source_cluster", source.cluster),
            ("destination_workload", destination.workload),
            ("destination_workload_namespace", destination.namespace),
            ("destination_principal", destination.principal),
            ("destination_app", destination.app),
            ("destination_version", destination.version),
            ("destination_service", &to.service),
            ("destination_service_name", &to.name),
            ("destination_service_namespace", &to.namespace),
            ("destination_canonical_service", canonical),
            ("destination_canonical_revision", destination.revision),
            ("destination_cluster", destination.cluster),
            ("request_protocol", own_labels.protocol),
            ("response_flags", flag),
            ("connection_security_policy", security),
        ];
        let borrowed = |(name, value): (&'a str, &'a str)| (name.into(), value.into());
        let mut labels: Labels<'a> = all.into_iter().map(borrowed).collect();
        if self.metric < Metric::TcpOpened {
            let status = own_labels.status.to_string();
            labels.insert("response_code".into(), status.into());
            if !own_labels.grpc_status.is_empty() {
                let status = own_labels.grpc_status;
                labels.insert("grpc_response_status".into(), status.into());
            }
        }
        self.change(&mut labels, own_labels, rules);
        labels
    }

    /// Does to the labels what is wanted of them.
    fn change<'a>(&self, labels: &mut Labels<'a>, own: &super::Labels, rules: &'a [MetricRule]) {
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
                    let value: &'a str = match value {
                        TagValue::Text(text) => text,
                        TagValue::Attribute(attribute) => {
                            let at = TagValue::BOUNDED.iter().position(|it| it == attribute);
                            let value = at.and_then(|at| own.tags.get(at));
                            let value = value.filter(|value| !value.is_empty());
                            value.map_or(UNKNOWN, |value| *value)
                        }
                    };
                    labels.insert((&**tag).into(), value.into());
                }
            }
        }
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
        self.write(&mut encoder)
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
