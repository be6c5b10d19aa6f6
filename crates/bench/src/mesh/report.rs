//! The figures of each service and of all together, as JSON or as a table.

use std::time::Duration;

use serde::Serialize;

use super::service::Counter;
use crate::table;

/// The name of the row of all together.
const ALL: &str = "all";

/// One service, or all together as who asks sees them.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    service: String,
    /// Processes with a sidecar each; the client counts among all.
    replicas: usize,
    /// Requests that were answered, whatever with; of a database its queries.
    requests: u64,
    /// The rows that were read of databases.
    rows: u64,
    /// Such requests per second.
    rps: f64,
    /// The time from the head of a request to its answer; for all together from when it was meant
    /// to be sent.
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    errors: u64,
    /// The processor time of the sidecars, for 1,000 requests to this service, or to the
    /// entrypoint.
    cpu_ms_per_1000: f64,
    /// The memory of the largest sidecar.
    rss_mib: f64,
    /// The memory of all sidecars together.
    rss_sum_mib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller_cpu_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller_rss_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl Row {
    /// The row of a service or of a database.
    pub(super) fn of_one(
        name: &str,
        counter: &Counter,
        time: Duration,
        worked: Duration,
        memory: &[f64],
    ) -> Row {
        // Those that failed were answered too, and are among the latencies.
        let requests = counter.seen.latency.len();
        Row::new(name, (counter, requests), time, worked, memory)
    }

    /// The row of all together as their client counts, with the controller's processor time and
    /// memory.
    pub(super) fn of_all(
        counter: &Counter,
        time: Duration,
        worked: Duration,
        memory: &[f64],
        (controller, controller_mib): (Duration, f64),
    ) -> Row {
        let requests = counter.seen.latency.len() + counter.seen.errors;
        let mut row = Row::new(ALL, (counter, requests), time, worked, memory);
        row.controller_cpu_ms = Some(tenth(controller.as_secs_f64() * 1e3));
        row.controller_rss_mib = Some(tenth(controller_mib));
        row
    }

    fn new(
        service: &str,
        (counter, requests): (&Counter, u64),
        time: Duration,
        worked: Duration,
        memory: &[f64],
    ) -> Row {
        let seen = &counter.seen;
        let quantile = |share| (seen.quantile_ms(share) * 1e3).round() / 1e3;
        let count = requests as f64;
        Row {
            service: service.to_owned(),
            replicas: memory.len(),
            requests,
            rows: counter.rows,
            rps: tenth(count / time.as_secs_f64()),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            errors: seen.errors,
            cpu_ms_per_1000: tenth(worked.as_secs_f64() * 1e6 / count.max(1.0)),
            rss_mib: tenth(memory.iter().copied().fold(0.0, f64::max)),
            rss_sum_mib: tenth(memory.iter().sum()),
            controller_cpu_ms: None,
            controller_rss_mib: None,
            last_error: seen.last_error.clone(),
        }
    }
}

impl table::Row<12> for Row {
    const COLUMNS: [(&'static str, usize); 12] = [
        ("service", 20),
        ("replicas", 8),
        ("rps", 8),
        ("p50 ms", 8),
        ("p90 ms", 8),
        ("p99 ms", 8),
        ("errors", 6),
        ("rows", 8),
        ("cpu ms/1000", 11),
        ("MiB", 6),
        ("MiB of all", 10),
        ("controller", 20),
    ];

    fn cells(&self) -> [String; 12] {
        let controller = match (self.controller_cpu_ms, self.controller_rss_mib) {
            (Some(cpu), Some(rss)) => format!("{cpu} ms, {rss} MiB"),
            _ => String::new(),
        };
        [
            self.service.clone(),
            self.replicas.to_string(),
            self.rps.to_string(),
            format!("{:.2}", self.p50_ms),
            format!("{:.2}", self.p90_ms),
            format!("{:.2}", self.p99_ms),
            self.errors.to_string(),
            self.rows.to_string(),
            self.cpu_ms_per_1000.to_string(),
            self.rss_mib.to_string(),
            self.rss_sum_mib.to_string(),
            controller,
        ]
    }

    fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_a_second_and_of_a_thousand_requests() {
        let mut counter = Counter::new().unwrap();
        (1..=100).for_each(|it| counter.seen.record(Duration::from_millis(it)));
        (counter.seen.errors, counter.rows) = (20, 300);
        let (time, worked) = (Duration::from_secs(2), Duration::from_millis(12));
        let controller = (Duration::from_millis(3), 40.0);
        let row = Row::of_all(&counter, time, worked, &[10.0, 14.0], controller);
        assert_eq!((row.rps, row.errors, row.replicas), (60.0, 20, 2));
        assert_eq!(
            (row.cpu_ms_per_1000, row.rss_mib, row.rss_sum_mib),
            (100.0, 14.0, 24.0)
        );
        assert!((row.p90_ms - 90.0).abs() < 0.2, "{}", row.p90_ms);
        assert_eq!(row.controller_cpu_ms, Some(3.0));
        assert_eq!((row.requests, row.rows), (120, 300));
        let one = Row::of_one("cart", &counter, time, worked, &[10.0]);
        assert_eq!((one.requests, one.rps, one.rows), (100, 50.0, 300));
    }
}
