//! The figures, as JSON or as a table.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::way::Way;
use crate::table;

/// The measurements of so many clients.
pub(super) struct Turn {
    /// The times of transactions in nanoseconds.
    pub latency: Histogram<u64>,
    /// How long it took.
    pub time: Duration,
    /// Processor time of the sidecar, and of the gateway.
    pub worked: [Duration; 2],
}

/// One number of clients of one case.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// The number of the case, and the word for the way, which tells mutual TLS too.
    case: u8,
    way: &'static str,
    clients: usize,
    tps: f64,
    avg_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    /// The processor time of the sidecar and the gateway together, for 1,000 requests.
    cpu_ms_per_1000: f64,
    sidecar_cpu_ms_per_1000: f64,
    gateway_cpu_ms_per_1000: f64,
}

impl Row {
    /// The figures of a turn.
    pub(super) fn new(way: Way, clients: usize, turn: &Turn) -> Row {
        let latency = &turn.latency;
        let quantile = |share| thousandth(latency.value_at_quantile(share) as f64 / 1e6);
        let count = latency.len().max(1) as f64;
        let [sidecar, gateway] = turn.worked.map(|it| it.as_secs_f64() * 1e6 / count);
        Row {
            case: way.case(),
            way: way.word(),
            clients,
            tps: thousandth(latency.len() as f64 / turn.time.as_secs_f64()),
            avg_ms: thousandth(latency.mean() / 1e6),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            cpu_ms_per_1000: thousandth(sidecar + gateway),
            sidecar_cpu_ms_per_1000: thousandth(sidecar),
            gateway_cpu_ms_per_1000: thousandth(gateway),
        }
    }
}

impl table::Row<9> for Row {
    const COLUMNS: [(&'static str, usize); 9] = [
        ("case", 4),
        ("clients", 7),
        ("tps", 11),
        ("avg ms", 11),
        ("p50 ms", 11),
        ("p90 ms", 11),
        ("p95 ms", 11),
        ("p99 ms", 11),
        ("cpu ms/1000", 11),
    ];

    fn cells(&self) -> [String; 9] {
        let figure = |figure: f64| format!("{figure:.3}");
        [
            self.way.to_owned(),
            self.clients.to_string(),
            figure(self.tps),
            figure(self.avg_ms),
            figure(self.p50_ms),
            figure(self.p90_ms),
            figure(self.p95_ms),
            figure(self.p99_ms),
            figure(self.cpu_ms_per_1000),
        ]
    }
}

fn thousandth(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::{Row, Turn, Way};
    use hdrhistogram::Histogram;
    use std::time::Duration;

    #[test]
    fn figures_are_per_second_and_per_thousand() {
        let mut latency = Histogram::new(3).unwrap();
        for _ in 0..500 {
            latency.record(2_000_000).unwrap();
        }
        let turn = Turn {
            latency,
            time: Duration::from_secs(2),
            worked: [20, 30].map(Duration::from_millis),
        };
        let row = Row::new(Way::Gateway, 1, &turn);
        assert_eq!((row.tps, row.cpu_ms_per_1000), (250.0, 100.0));
        let apart = (row.sidecar_cpu_ms_per_1000, row.gateway_cpu_ms_per_1000);
        assert_eq!(apart, (40.0, 60.0));
        assert!((row.p99_ms - 2.0).abs() < 0.01 && (row.avg_ms - 2.0).abs() < 0.01);
    }
}
