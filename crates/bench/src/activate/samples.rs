//! The samples of one run: times, and work counted per added domain.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::served::{Served, Settled};
use crate::child::Counts;

/// Times and counts.
#[derive(Default)]
pub(super) struct Samples {
    added: Vec<Settled>,
    changed: Vec<Settled>,
    removed: Vec<Settled>,
    work: Vec<Counts>,
}

/// Quantiles of a time in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 99th of 100.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// The number of samples.
    pub samples: usize,
}

/// A count per added domain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerDomain {
    /// Mean.
    pub mean: f64,
    /// Least.
    pub min: u64,
    /// Most.
    pub max: u64,
}

impl Samples {
    /// Adds, changes and removes one domain, one of so many.
    pub(super) fn cycle(
        &mut self,
        served: &mut Served<'_>,
        (cycle, of): (u64, u64),
        pace: &mut Pace,
    ) -> anyhow::Result<()> {
        let (fresh, renewed) = (served.fresh(cycle, of, 0)?, served.fresh(cycle, of, 1)?);
        pace.wait();
        let before = served.world().counts()?;
        self.added.push(served.put(&fresh)?);
        pace.wait();
        // By now whatever the change had to do has long been done.
        self.work.push(served.world().counts()?.since(&before));
        self.changed.push(served.put(&renewed)?);
        pace.wait();
        self.removed.push(served.remove(&renewed)?);
        Ok(())
    }

    /// The time from the write of a new domain to its first answer.
    pub(super) fn activation(&self) -> Quantiles {
        Quantiles::of(times(&self.added))
    }

    /// The time from the write of a new certificate to the first answer with it.
    pub(super) fn change(&self) -> Quantiles {
        Quantiles::of(times(&self.changed))
    }

    /// The time from the removal to the first alert.
    pub(super) fn removal(&self) -> Quantiles {
        Quantiles::of(times(&self.removed))
    }

    /// New connections that each change took, in order.
    pub(super) fn connections(&self) -> Vec<u32> {
        let cycles = self.added.iter().zip(&self.changed).zip(&self.removed);
        let changes = cycles.flat_map(|((added, changed), removed)| [added, changed, removed]);
        changes.map(|change| change.connections).collect()
    }

    /// A count per added domain.
    pub(super) fn per_domain(&self, count: impl Fn(&Counts) -> u64) -> PerDomain {
        PerDomain::of(self.work.iter().map(count).collect())
    }
}

impl PerDomain {
    /// The quantiles of these counts.
    pub fn of(counts: Vec<u64>) -> Self {
        let mean = counts.iter().sum::<u64>() as f64 / counts.len().max(1) as f64;
        PerDomain {
            mean: (mean * 10.0).round() / 10.0,
            min: counts.iter().copied().min().unwrap_or(0),
            max: counts.iter().copied().max().unwrap_or(0),
        }
    }

    /// Whether it was the same for all.
    pub fn is_constant(&self) -> bool {
        self.min == self.max
    }
}

impl Quantiles {
    /// The samples of these times.
    pub fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut sorted: Vec<_> = times.collect();
        sorted.sort_unstable();
        let at = |quantile: f64| {
            let rank = (sorted.len() as f64 * quantile).ceil() as usize;
            let time = sorted.get(rank.saturating_sub(1)).copied();
            (time.unwrap_or_default().as_secs_f64() * 1e6).round() / 1e3
        };
        Quantiles {
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
            samples: sorted.len(),
        }
    }
}

impl Counts {
    /// The work done since an earlier look.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            units_translated: self.units_translated - before.units_translated,
            objects_visited: self.objects_visited - before.objects_visited,
            resources_changed: self.resources_changed - before.resources_changed,
            table_nodes_copied: self.table_nodes_copied - before.table_nodes_copied,
            bytes_allocated: self.bytes_allocated - before.bytes_allocated,
            bytes_encoded: self.bytes_encoded - before.bytes_encoded,
            bytes_received: self.bytes_received - before.bytes_received,
        }
    }
}

fn times(changes: &[Settled]) -> impl Iterator<Item = Duration> {
    changes.iter().map(|change| change.after)
}

/// Turns at a constant rate. A turn that comes late does not make the next ones hurry.
pub struct Pace {
    period: Duration,
    next: Instant,
}

impl Pace {
    /// The first turn is at once.
    pub fn new(per_second: f64) -> Self {
        Pace {
            period: Duration::from_secs_f64(1.0 / per_second),
            next: Instant::now(),
        }
    }

    /// Waits for the next turn.
    pub fn wait(&mut self) {
        if let Some(rest) = self.next.checked_duration_since(Instant::now()) {
            std::thread::sleep(rest);
        }
        self.next = Instant::now() + self.period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times = (1..=200).rev().map(Duration::from_millis);
        let expected = Quantiles {
            p50: 100.0,
            p99: 198.0,
            max: 200.0,
            samples: 200,
        };
        assert_eq!(Quantiles::of(times), expected);
        assert_eq!(Quantiles::of(std::iter::empty()).max, 0.0);
    }

    #[test]
    fn a_count_has_its_mean_and_its_spread() {
        let spread = PerDomain::of(vec![3, 4, 4]);
        let expected = PerDomain {
            mean: 3.7,
            min: 3,
            max: 4,
        };
        assert_eq!(spread, expected);
        assert!(!spread.is_constant() && PerDomain::of(vec![5, 5]).is_constant());
    }
}
