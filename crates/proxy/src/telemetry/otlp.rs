//! The messages of OpenTelemetry's protocol for metrics and logs, as far as they are said here, and
//! what those for spans share with them.
//!
//! Names and numbers of fields are those of opentelemetry-proto (Apache License 2.0):
//! `collector/metrics/v1`, `metrics/v1`, `collector/logs/v1`, `logs/v1`, `resource/v1` and
//! `common/v1`. Fields that are left out are not sent.

use std::time::Duration;

use myriad_base::metrics::{FamilyKind, HistogramValue, MetricFamily, Series, SeriesValue};
use prost::Message as _;

/// The producer of what is sent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// An attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// Its value, which is a text here.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    #[prost(string, optional, tag = "1")]
    pub string_value: Option<String>,
}

/// Metrics of one or more resources.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportMetricsServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_metrics: Vec<ResourceMetrics>,
}

/// Metrics of one resource.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_metrics: Vec<ScopeMetrics>,
}

/// Metrics of one library.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<OtlpMetric>,
}

/// All series of one name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtlpMetric {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(message, optional, tag = "5")]
    pub gauge: Option<OtlpGauge>,
    #[prost(message, optional, tag = "7")]
    pub sum: Option<OtlpSum>,
    #[prost(message, optional, tag = "9")]
    pub histogram: Option<OtlpHistogram>,
}

/// Numbers that go up and down.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtlpGauge {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
}

/// Numbers that only grow.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtlpSum {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
    /// 2 is since the start.
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

/// Values counted by their size.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtlpHistogram {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<HistogramDataPoint>,
    /// 2 is since the start.
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
}

/// One series of numbers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NumberDataPoint {
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    pub as_double: Option<f64>,
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
}

/// One series of a histogram.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HistogramDataPoint {
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
}

/// Lines of one or more resources.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportLogsServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_logs: Vec<ResourceLogs>,
}

/// Lines of one resource.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_logs: Vec<ScopeLogs>,
}

/// Lines of one library.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
}

/// A line.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LogRecord {
    /// 9 is information.
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
}

/// The number of what is counted since the start.
const CUMULATIVE: i32 = 2;

/// The number of a line that only informs.
const INFORMATION: i32 = 9;

/// A text as an attribute.
pub fn key_value(key: &str, value: String) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(text(value)),
    }
}

/// The message that brings metrics of a process that began at `started`, as they are at `now`; both
/// since 1970.
pub fn metrics_message(
    families: &[MetricFamily],
    resource: &[(&str, &str)],
    started: Duration,
    now: Duration,
) -> Vec<u8> {
    let at = (nanos(started), nanos(now));
    let metrics = families.iter().map(|family| metric(family, at));
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource_of(resource)),
            scope_metrics: vec![ScopeMetrics {
                metrics: metrics.collect(),
            }],
        }],
    };
    request.encode_to_vec()
}

/// The message that brings lines, each with the time when it was seen, since 1970.
pub fn logs_message(lines: Vec<(Duration, String)>, resource: &[(&str, &str)]) -> Vec<u8> {
    let records = lines.into_iter().map(|(seen, line)| LogRecord {
        severity_number: INFORMATION,
        body: Some(text(line)),
        observed_time_unix_nano: nanos(seen),
    });
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource_of(resource)),
            scope_logs: vec![ScopeLogs {
                log_records: records.collect(),
            }],
        }],
    };
    request.encode_to_vec()
}

fn metric(family: &MetricFamily, at: (u64, u64)) -> OtlpMetric {
    let mut metric = OtlpMetric {
        name: family.name.clone(),
        description: family.help.clone(),
        ..OtlpMetric::default()
    };
    let numbers = || {
        let points = family.series.iter().filter_map(|it| number_point(it, at));
        points.collect()
    };
    match family.kind {
        FamilyKind::Counter => {
            metric.sum = Some(OtlpSum {
                data_points: numbers(),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            });
        }
        FamilyKind::Gauge | FamilyKind::Untyped => {
            metric.gauge = Some(OtlpGauge {
                data_points: numbers(),
            });
        }
        FamilyKind::Histogram => {
            let points = family.series.iter();
            let points = points.filter_map(|it| histogram_point(it, at));
            metric.histogram = Some(OtlpHistogram {
                data_points: points.collect(),
                aggregation_temporality: CUMULATIVE,
            });
        }
    }
    metric
}

fn number_point(series: &Series, (started, now): (u64, u64)) -> Option<NumberDataPoint> {
    let SeriesValue::Number(number) = series.value else {
        return None;
    };
    Some(NumberDataPoint {
        start_time_unix_nano: started,
        time_unix_nano: now,
        as_double: Some(number),
        attributes: attributes(series),
    })
}

fn histogram_point(series: &Series, (started, now): (u64, u64)) -> Option<HistogramDataPoint> {
    let SeriesValue::Histogram(HistogramValue {
        count,
        sum,
        buckets,
        ..
    }) = &series.value
    else {
        return None;
    };
    let mut before = 0;
    let counts = buckets.iter().map(|(_, upto)| {
        let own = upto.saturating_sub(before);
        before = *upto;
        own
    });
    let bounds = buckets.iter().map(|(bound, _)| *bound);
    Some(HistogramDataPoint {
        start_time_unix_nano: started,
        time_unix_nano: now,
        count: *count,
        sum: Some(*sum),
        bucket_counts: counts.collect(),
        // What is beyond the last has no bound there.
        explicit_bounds: bounds.filter(|bound| bound.is_finite()).collect(),
        attributes: attributes(series),
    })
}

fn attributes(series: &Series) -> Vec<KeyValue> {
    let labels = series.labels.iter();
    labels
        .map(|(name, value)| key_value(name, value.clone()))
        .collect()
}

fn resource_of(attributes: &[(&str, &str)]) -> Resource {
    let attributes = attributes.iter();
    Resource {
        attributes: attributes
            .map(|(key, value)| key_value(key, (*value).to_owned()))
            .collect(),
    }
}

fn text(value: String) -> AnyValue {
    AnyValue {
        string_value: Some(value),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_base::metrics::{Counter, Metrics, NativeHistogram};
    use prost::Message as _;

    use super::{
        ExportLogsServiceRequest, ExportMetricsServiceRequest, logs_message, metrics_message,
    };

    #[test]
    fn metrics_are_told_since_the_start() {
        let metrics = Metrics::new();
        let counter = Counter::<u64>::default();
        counter.inc_by(3);
        metrics.register("things", "Things", counter);
        let histogram = NativeHistogram::new(&[0.1, 1.0]);
        histogram.observe(Duration::from_millis(500));
        histogram.observe(Duration::from_secs(2));
        metrics.register_native("took_seconds", "How long", &histogram);
        let (started, now) = (Duration::from_secs(1), Duration::from_secs(2));
        let resource = [("service.name", "myriad")];
        let bytes = metrics_message(&metrics.families(), &resource, started, now);
        let request = ExportMetricsServiceRequest::decode(&*bytes).unwrap();
        let of_resource = &request.resource_metrics[0];
        let attributes = &of_resource.resource.as_ref().unwrap().attributes;
        assert_eq!(attributes[0].key, "service.name");
        let [things, took] = &*of_resource.scope_metrics[0].metrics else {
            panic!("{of_resource:?}");
        };
        let sum = things.sum.as_ref().unwrap();
        assert_eq!(things.name, "myriad_things_total");
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        assert_eq!(sum.data_points[0].as_double, Some(3.0));
        assert_eq!(sum.data_points[0].start_time_unix_nano, 1_000_000_000);
        let point = &took.histogram.as_ref().unwrap().data_points[0];
        assert_eq!((point.count, point.sum), (2, Some(2.5)));
        assert_eq!(point.bucket_counts, [0, 1, 1]);
        assert_eq!(point.explicit_bounds, [0.1, 1.0]);
    }

    #[test]
    fn lines_are_told_as_they_are() {
        let lines = vec![(Duration::from_secs(5), "a line".to_owned())];
        let bytes = logs_message(lines, &[]);
        let request = ExportLogsServiceRequest::decode(&*bytes).unwrap();
        let record = &request.resource_logs[0].scope_logs[0].log_records[0];
        let body = record.body.as_ref().unwrap();
        assert_eq!(body.string_value.as_deref(), Some("a line"));
        assert_eq!(record.observed_time_unix_nano, 5_000_000_000);
    }
}
