//! The metrics that every process has, under the names that all clients of Prometheus use.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Metrics;
use crate::kernel;
use crate::log::suppressed;

/// Clock ticks of a second, as Linux has it in everything that it tells of processes.
const TICKS: f64 = 100.0;

/// The size of a page.
const PAGE_BYTES: f64 = 4096.0;

/// The most that is read of a file that the kernel writes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One number, read when it is asked for.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    read: fn() -> Option<f64>,
}

const FIGURES: [Figure; 6] = [
    Figure {
        name: "process_cpu_seconds",
        help: "Processor time of the process",
        kind: MetricType::Counter,
        read: || Some((stat(14)? + stat(15)?) / TICKS),
    },
    Figure {
        name: "process_resident_memory_bytes",
        help: "Memory of the process that is resident",
        kind: MetricType::Gauge,
        read: || Some(stat(24)? * PAGE_BYTES),
    },
    Figure {
        name: "process_virtual_memory_bytes",
        help: "Address space of the process",
        kind: MetricType::Gauge,
        read: || stat(23),
    },
    Figure {
        name: "process_open_fds",
        help: "File descriptors that are open",
        kind: MetricType::Gauge,
        read: || {
            let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
            // The directory itself is open while it is read.
            Some(open.saturating_sub(1) as f64)
        },
    },
    Figure {
        name: "process_max_fds",
        help: "File descriptors that may be open",
        kind: MetricType::Gauge,
        read: || descriptors(&read("/proc/self/limits")?),
    },
    Figure {
        name: "process_start_time_seconds",
        help: "When the process started, in seconds since 1970",
        kind: MetricType::Gauge,
        read: || Some(booted(&read("/proc/stat")?)? + stat(22)? / TICKS),
    },
];

/// Registers what the process tells of itself, which build it is, and what it left out of the log.
pub(super) fn register(metrics: &Metrics, version: &'static str) {
    for figure in FIGURES {
        metrics.register_plain(figure.name, figure.help, figure);
    }
    let help = "The build that runs; always 1";
    metrics.register("build_info", help, Build(version));
    suppressed::register(metrics);
}

impl fmt::Debug for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl EncodeMetric for Figure {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let value = (self.read)().unwrap_or_default();
        match self.kind {
            MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
            _ => encoder.encode_gauge(&value),
        }
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

#[derive(Debug)]
struct Build(&'static str);

impl EncodeMetric for Build {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let labels = [("version", self.0)];
        let mut labelled = encoder.encode_family(&labels)?;
        labelled.encode_gauge(&1_i64)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

/// A field of `/proc/self/stat` by its number in proc(5), from 1.
fn stat(number: usize) -> Option<f64> {
    field(&read("/proc/self/stat")?, number)
}

/// The second field is a name in parentheses, which may hold anything.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    kernel::number(rest, number.checked_sub(3)?)
}

fn descriptors(limits: &str) -> Option<f64> {
    let mut lines = limits.lines();
    let rest = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    kernel::number(rest, 0)
}

fn booted(stat: &str) -> Option<f64> {
    let mut lines = stat.lines();
    let rest = lines.find_map(|line| line.strip_prefix("btime "))?;
    kernel::number(rest, 0)
}

fn read(path: &str) -> Option<String> {
    kernel::text(path, FILE_BYTES_MAX).ok()
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::{FIGURES, booted, descriptors, field, register};

    #[test]
    fn the_files_of_the_kernel_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 1 0 0 0 250 50 0 0 20 0 9 0 4200 8192 33 x";
        assert_eq!(
            (field(stat, 14), field(stat, 15)),
            (Some(250.0), Some(50.0))
        );
        let rest = (field(stat, 22), field(stat, 23), field(stat, 24));
        assert_eq!(rest, (Some(4200.0), Some(8192.0), Some(33.0)));
        assert_eq!(field("", 14), None);
        let limits = "Max processes   1 2 p\nMax open files            1024   4096   files\n";
        assert_eq!(descriptors(limits), Some(1024.0));
        assert_eq!(booted("cpu 1\nbtime 1700000000\n"), Some(1_700_000_000.0));
    }

    #[test]
    fn every_figure_of_this_process_is_there() {
        for figure in FIGURES {
            assert!((figure.read)().is_some_and(|it| it >= 0.0), "{figure:?}");
        }
        let metrics = Metrics::new();
        register(&metrics, "1.2.3");
        let text = metrics.encode();
        assert!(
            text.contains("myriad_build_info{version=\"1.2.3\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("\nprocess_cpu_seconds_total "), "{text}");
    }
}
