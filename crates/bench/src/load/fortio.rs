//! A run in the form that fortio writes, for whatever reads its results: names and units of fields
//! are fortio's.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::measure::Measure;
use super::outcome::Outcome;
use super::threshold::Judged;

/// The ends of buckets within each power of ten.
const STEPS: [f64; 10] = [1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// The longest identifier of a run, in characters.
const ID_CHARACTERS_MAX: usize = 96;

/// The width of the first buckets of the sizes of responses, in bytes.
const SIZE_STEP: f64 = 100.0;

/// The same of the sizes of their heads.
const HEAD_STEP: f64 = 5.0;

/// A run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Report {
    run_type: &'static str,
    labels: String,
    start_time: String,
    #[serde(rename = "RequestedQPS")]
    requested_qps: String,
    requested_duration: String,
    #[serde(rename = "ActualQPS")]
    actual_qps: f64,
    /// Nanoseconds.
    actual_duration: u64,
    num_threads: usize,
    version: String,
    duration_histogram: HistogramData,
    errors_duration_histogram: HistogramData,
    exactly: u64,
    jitter: bool,
    uniform: bool,
    no_catch_up: bool,
    #[serde(rename = "RunID")]
    run_id: u64,
    access_logger_info: &'static str,
    #[serde(rename = "ID")]
    id: String,
    ret_codes: BTreeMap<i32, u64>,
    #[serde(rename = "IPCountMap")]
    addresses: BTreeMap<String, u64>,
    #[serde(rename = "URL")]
    url: String,
    num_connections: u64,
    compression: bool,
    #[serde(rename = "HTTP10")]
    is_http10: bool,
    #[serde(rename = "H2")]
    is_h2: bool,
    disable_keep_alive: bool,
    follow_redirects: bool,
    insecure: bool,
    /// Nanoseconds.
    #[serde(rename = "HTTPReqTimeOut")]
    request_timeout: u64,
    sizes: HistogramData,
    header_sizes: HistogramData,
    socket_count: u64,
    connection_stats: HistogramData,
    abort_on: i32,
    /// The part of a run that this is; fortio has no such field, nor the next.
    execution_segment: String,
    thresholds: Vec<Judged>,
}

/// How values are spread.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HistogramData {
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
    avg: f64,
    std_dev: f64,
    data: Vec<Bucket>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    percentiles: Vec<Percentile>,
}

/// The values between two bounds, of which the upper one is in.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Bucket {
    start: f64,
    end: f64,
    /// Values up to the upper bound, in percent of all.
    percent: f64,
    count: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Percentile {
    percentile: f64,
    value: f64,
}

/// The things that were asked for, as a report tells them.
#[derive(Clone, Debug)]
pub(super) struct Requested {
    pub url: String,
    pub address: String,
    pub labels: String,
    pub started: OffsetDateTime,
    /// Requests per second; 0 for as many as there can be.
    pub qps: f64,
    pub duration: Duration,
    /// Requests; 0 where a duration counts.
    pub exactly: u64,
    pub connections: usize,
    pub has_jitter: bool,
    pub is_insecure: bool,
    pub timeout: Duration,
    pub percentiles: Vec<f64>,
    /// The width of the first buckets of latencies.
    pub resolution: Duration,
    pub segment: String,
}

impl Report {
    /// The report of a run.
    pub(super) fn new(
        requested: &Requested,
        outcome: &Outcome,
        thresholds: Vec<Judged>,
    ) -> anyhow::Result<Report> {
        let step = requested.resolution.as_secs_f64();
        let latency = |measure: &Measure| {
            let percentiles = &requested.percentiles;
            HistogramData::new(measure, SECOND, step, percentiles)
        };
        let size = |measure: &Measure, step| HistogramData::new(measure, 1.0, step, &[]);
        let sockets = outcome.connects.count();
        Ok(Report {
            run_type: "HTTP",
            labels: requested.labels.clone(),
            start_time: requested.started.format(&Rfc3339)?,
            requested_qps: match requested.qps > 0.0 {
                true => requested.qps.to_string(),
                false => "max".to_owned(),
            },
            requested_duration: match requested.exactly {
                0 => duration_text(requested.duration),
                count => format!("exactly {count} calls"),
            },
            actual_qps: outcome.rate(),
            actual_duration: nanos(outcome.time),
            num_threads: requested.connections,
            version: format!("myriad-bench {}", env!("CARGO_PKG_VERSION")),
            duration_histogram: latency(&outcome.latency),
            errors_duration_histogram: latency(&outcome.failed),
            exactly: requested.exactly,
            jitter: requested.has_jitter,
            uniform: !requested.has_jitter && requested.qps > 0.0,
            no_catch_up: false,
            run_id: 0,
            access_logger_info: "",
            id: identifier(requested),
            ret_codes: outcome.codes.clone(),
            addresses: BTreeMap::from([(requested.address.clone(), sockets)]),
            url: requested.url.clone(),
            num_connections: 1,
            compression: false,
            is_http10: false,
            is_h2: false,
            disable_keep_alive: false,
            follow_redirects: false,
            insecure: requested.is_insecure,
            request_timeout: nanos(requested.timeout),
            sizes: size(&outcome.sizes, SIZE_STEP),
            header_sizes: size(&outcome.head_sizes, HEAD_STEP),
            socket_count: sockets,
            connection_stats: latency(&outcome.connects),
            abort_on: 0,
            execution_segment: requested.segment.clone(),
            thresholds,
        })
    }
}

impl HistogramData {
    /// The spread of values of which `unit` make one of the report; its first buckets are `step`
    /// wide.
    fn new(measure: &Measure, unit: f64, step: f64, percentiles: &[f64]) -> HistogramData {
        let percentiles = percentiles.iter().map(|&percentile| Percentile {
            percentile,
            value: measure.percentile(percentile) / unit,
        });
        HistogramData {
            count: measure.count(),
            min: measure.min() / unit,
            max: measure.max() / unit,
            sum: measure.sum() / unit,
            avg: measure.mean() / unit,
            std_dev: measure.deviation() / unit,
            data: buckets(measure, unit, step),
            percentiles: match measure.count() {
                0 => Vec::new(),
                _ => percentiles.collect(),
            },
        }
    }
}

/// The buckets that have values, in order.
fn buckets(measure: &Measure, unit: f64, step: f64) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut ends = ends(step);
    let (mut start, mut end) = (0.0, ends.next().unwrap_or(f64::INFINITY));
    let mut seen = 0;
    for (value, count) in measure.values() {
        // The histogram says the greatest that counts as the same.
        let value = (value as f64).min(measure.max()) / unit;
        let mut is_next = buckets.is_empty();
        while value > end {
            (start, end) = (end, ends.next().unwrap_or(f64::INFINITY));
            is_next = true;
        }
        seen += count;
        let percent = 100.0 * seen as f64 / measure.count() as f64;
        if is_next {
            buckets.push(Bucket {
                start,
                end,
                percent,
                count,
            });
        } else if let Some(last) = buckets.last_mut() {
            last.count += count;
            last.percent = percent;
        }
    }
    if let Some(first) = buckets.first_mut() {
        first.start = measure.min() / unit;
    }
    if let Some(last) = buckets.last_mut() {
        last.end = measure.max() / unit;
    }
    buckets
}

/// The ends of buckets: `step` apart at first, then ever wider.
fn ends(step: f64) -> impl Iterator<Item = f64> {
    let first = (1..10_u32).map(f64::from);
    let decades = (1..12).flat_map(|exponent| STEPS.map(|factor| factor * 10_f64.powi(exponent)));
    first.chain(decades).map(move |end| end * step)
}

/// A duration as Go writes it.
fn duration_text(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let minutes = (seconds / 60.0).floor();
    match minutes >= 1.0 {
        true => format!("{minutes}m{}s", seconds - minutes * 60.0),
        false if seconds >= 1.0 || time.is_zero() => format!("{seconds}s"),
        false => format!("{}ms", seconds * 1e3),
    }
}

/// The time of the start and the labels, as a name of a file.
fn identifier(requested: &Requested) -> String {
    let at = requested.started;
    let time = format!(
        "{:04}-{:02}-{:02}-{:02}{:02}{:02}",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    );
    let letters = requested.labels.chars().map(|letter| match letter {
        letter if letter.is_ascii_alphanumeric() => letter,
        _ => '_',
    });
    let all = time.chars().chain(['_']).chain(letters);
    let id: String = all.take(ID_CHARACTERS_MAX).collect();
    id.trim_end_matches('_').to_owned()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use time::macros::datetime;

    use super::*;

    fn requested() -> Requested {
        Requested {
            url: "http://a.test/".to_owned(),
            address: "127.0.0.1:80".to_owned(),
            labels: "a run: 1/2".to_owned(),
            started: datetime!(2026-01-02 03:04:05.5 UTC),
            qps: 100.0,
            duration: Duration::from_secs(2),
            exactly: 0,
            connections: 4,
            has_jitter: false,
            is_insecure: false,
            timeout: Duration::from_secs(3),
            percentiles: vec![50.0, 99.0],
            resolution: Duration::from_millis(1),
            segment: "0:1".to_owned(),
        }
    }

    fn report(outcome: &Outcome) -> Value {
        serde_json::to_value(Report::new(&requested(), outcome, Vec::new()).unwrap()).unwrap()
    }

    #[test]
    fn a_report_has_the_fields_of_fortio_with_their_types_and_units() {
        let mut outcome = Outcome::new().unwrap();
        for millis in 1..=198 {
            outcome.answer(Duration::from_millis(millis), 200, (100, 1_024));
        }
        outcome.answer(Duration::from_millis(300), 503, (90, 0));
        outcome.fail(Duration::from_millis(400), "it broke".to_owned());
        outcome.connect(Duration::from_micros(250));
        outcome.time = Duration::from_secs(2);
        let report = report(&outcome);
        for (field, wanted) in [
            ("RunType", json!("HTTP")),
            ("Labels", json!("a run: 1/2")),
            ("StartTime", json!("2026-01-02T03:04:05.5Z")),
            ("RequestedQPS", json!("100")),
            ("RequestedDuration", json!("2s")),
            ("ActualQPS", json!(100.0)),
            ("ActualDuration", json!(2_000_000_000_u64)),
            ("NumThreads", json!(4)),
            ("Exactly", json!(0)),
            ("Jitter", json!(false)),
            ("Uniform", json!(true)),
            ("ID", json!("2026-01-02-030405_a_run__1_2")),
            ("RetCodes", json!({"-1": 1, "200": 198, "503": 1})),
            ("URL", json!("http://a.test/")),
            ("HTTPReqTimeOut", json!(3_000_000_000_u64)),
            ("SocketCount", json!(1)),
            ("AbortOn", json!(0)),
        ] {
            assert_eq!(report[field], wanted, "{field}");
        }
        let latency = &report["DurationHistogram"];
        assert_eq!(latency["Count"], 200);
        assert_eq!(
            (&latency["Min"], &latency["Max"]),
            (&json!(0.001), &json!(0.4))
        );
        let mean = (198.0 * 99.5 + 700.0) / 200.0 / 1e3;
        assert!((latency["Avg"].as_f64().unwrap() - mean).abs() < 1e-9);
        assert!((latency["Sum"].as_f64().unwrap() - mean * 200.0).abs() < 1e-6);
        assert!(latency["StdDev"].as_f64() > Some(0.05), "{latency}");
        assert_eq!(latency["Percentiles"][0]["Percentile"], 50.0);
        let median = latency["Percentiles"][0]["Value"].as_f64().unwrap();
        assert!((median - 0.1).abs() < 0.001, "{median}");
        assert_eq!(report["ErrorsDurationHistogram"]["Count"], 2);
        assert_eq!(report["Sizes"]["Count"], 199);
        assert_eq!(report["Sizes"]["Max"], 1_124.0);
        assert_eq!(report["HeaderSizes"]["Min"], 90.0);
        assert_eq!(report["Sizes"]["Percentiles"], Value::Null);
    }

    #[test]
    fn buckets_are_in_order_and_have_all_values_between_the_least_and_the_greatest() {
        let mut outcome = Outcome::new().unwrap();
        for micros in (100..100_000).step_by(77) {
            outcome.answer(Duration::from_micros(micros), 200, (1, 1));
        }
        outcome.time = Duration::from_secs(1);
        let histogram = &report(&outcome)["DurationHistogram"];
        let buckets = histogram["Data"].as_array().unwrap();
        assert!(buckets.len() > 10, "{histogram}");
        let field = |bucket: &Value, name: &str| bucket[name].as_f64().unwrap();
        for pair in buckets.windows(2) {
            assert!(field(&pair[0], "End") <= field(&pair[1], "Start"));
            assert!(field(&pair[0], "Percent") < field(&pair[1], "Percent"));
        }
        let counts = buckets.iter().map(|it| it["Count"].as_u64().unwrap());
        assert_eq!(Some(counts.sum::<u64>()), histogram["Count"].as_u64());
        let (first, last) = (&buckets[0], &buckets[buckets.len() - 1]);
        assert_eq!(first["Start"], histogram["Min"]);
        assert_eq!(last["End"], histogram["Max"]);
        assert_eq!(last["Percent"], 100.0);
    }

    #[test]
    fn a_run_without_requests_has_a_report() {
        let report = report(&Outcome::new().unwrap());
        assert_eq!(report["DurationHistogram"]["Count"], 0);
        assert_eq!(report["DurationHistogram"]["Data"], json!([]));
        assert_eq!(report["ActualQPS"], 0.0);
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (millis, text) in [
            (0, "0s"),
            (250, "250ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (60_000, "1m0s"),
            (90_000, "1m30s"),
        ] {
            assert_eq!(duration_text(Duration::from_millis(millis)), text);
        }
    }
}
