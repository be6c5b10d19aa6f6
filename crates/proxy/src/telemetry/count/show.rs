//! Counts as metrics, summed over workers.

use std::fmt;
use std::sync::Arc;

use myriad_base::metrics::{EncodeMetric, MetricEncoder, MetricType, Metrics, NoLabelSet};

use super::family::{FAMILIES, Family};
use super::{COUNTS, Count, Counts};
use crate::failure::FailureKind;
use crate::limits::Reached;
use crate::telemetry::latency;
use crate::telemetry::top::{self, TopReader, TopSeries};

/// Registers the counts of all workers, with series for so many of those that have most.
pub fn register(metrics: &Metrics, workers: &[Arc<Counts>], series: TopSeries) {
    let rows: Arc<[Arc<Counts>]> = workers.into();
    for family in FAMILIES {
        let sum = Sum {
            family,
            rows: rows.clone(),
        };
        metrics.register(family.name, family.help, sum);
    }
    let reader = TopReader::new(rows.iter().map(|row| row.top.clone()));
    top::register(metrics, &reader, series);
    metrics.register(
        "connections",
        "Connections of clients that are open",
        Open(rows.clone()),
    );
    latency::register(metrics, rows.iter().map(|row| row.latency.clone()));
    let limits = ReachedSum { rows };
    let help = "Limits of what clients and endpoints can make grow, each time they are reached";
    metrics.register("limits_reached", help, limits);
}

struct Sum {
    family: &'static Family,
    rows: Arc<[Arc<Counts>]>,
}

impl Sum {
    fn of(&self, index: usize) -> u64 {
        self.rows.iter().map(|row| row.read(index)).sum()
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.family.name)
    }
}

impl EncodeMetric for Sum {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let label = self.family.label;
        if self.family.members.is_empty() {
            for kind in FailureKind::ALL {
                let value = self.of(COUNTS + kind as usize);
                encoder
                    .encode_family(&[(label, kind.verdict().flag)])?
                    .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
            return Ok(());
        }
        for (name, count) in self.family.members {
            let value = self.of(*count as usize);
            if label.is_empty() {
                encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            } else {
                encoder
                    .encode_family(&[(label, *name)])?
                    .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

/// How many connections of clients are open.
struct Open(Arc<[Arc<Counts>]>);

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connections")
    }
}

impl EncodeMetric for Open {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let of = |count| self.0.iter().map(|row| row.get(count)).sum::<u64>();
        // Read first, so that one that is accepted meanwhile does not count below nothing.
        let closed = of(Count::Closed);
        let open = of(Count::Accepted).saturating_sub(closed);
        encoder.encode_gauge(&i64::try_from(open).unwrap_or(i64::MAX))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

/// Limits that are counted by their own name.
struct ReachedSum {
    rows: Arc<[Arc<Counts>]>,
}

impl fmt::Debug for ReachedSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("limits_reached")
    }
}

impl EncodeMetric for ReachedSum {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for limit in Reached::ALL {
            let value: u64 = self.rows.iter().map(|row| row.get_reached(limit)).sum();
            encoder
                .encode_family(&[("limit", limit.label())])?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}
