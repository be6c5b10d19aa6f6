//! Values of one kind: how many, their sum, and how they are spread.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The highest value that is told apart: as nanoseconds 5 minutes, as bytes 300 GB.
const VALUE_MAX: u64 = 300_000_000_000;

/// The values, to three digits; least, greatest and sum are exact.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Packed", into = "Packed")]
pub(crate) struct Measure {
    values: Histogram<u64>,
    min: u64,
    max: u64,
    sum: f64,
    squares: f64,
}

/// The same on its way from one process to another.
#[derive(Serialize, Deserialize)]
struct Packed {
    /// Each value with its count.
    values: Vec<(u64, u64)>,
    min: u64,
    max: u64,
    sum: f64,
    squares: f64,
}

impl Measure {
    /// Nothing yet.
    pub(crate) fn new() -> anyhow::Result<Measure> {
        Ok(Measure {
            values: Histogram::new_with_bounds(1, VALUE_MAX, 3)?,
            min: u64::MAX,
            max: 0,
            sum: 0.0,
            squares: 0.0,
        })
    }

    /// Adds a value.
    pub(crate) fn record(&mut self, value: u64) {
        self.values.saturating_record(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += value as f64;
        self.squares += (value as f64).powi(2);
    }

    /// Adds all values of another.
    pub(crate) fn add(&mut self, other: &Measure) -> anyhow::Result<()> {
        self.values.add(&other.values)?;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.squares += other.squares;
        Ok(())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.values.len()
    }

    /// The least, or 0.
    pub(crate) fn min(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            _ => self.min as f64,
        }
    }

    /// The greatest, or 0.
    pub(crate) fn max(&self) -> f64 {
        self.max as f64
    }

    /// Their sum.
    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    /// Their mean, or 0.
    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.count().max(1) as f64
    }

    /// How far they are from it, as the root of the mean square.
    pub(crate) fn deviation(&self) -> f64 {
        let square = self.squares / self.count().max(1) as f64 - self.mean().powi(2);
        square.max(0.0).sqrt()
    }

    /// The value that this part of them does not exceed, of 0 to 100 percent.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let value = self.values.value_at_quantile(percent / 100.0) as f64;
        // The histogram knows three digits, and a little more of its ends.
        value.clamp(self.min(), self.max())
    }

    /// Each value that there is with its count, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        let recorded = self.values.iter_recorded();
        recorded.map(|it| (it.value_iterated_to(), it.count_at_value()))
    }
}

impl From<Measure> for Packed {
    fn from(measure: Measure) -> Packed {
        Packed {
            values: measure.values().collect(),
            min: measure.min,
            max: measure.max,
            sum: measure.sum,
            squares: measure.squares,
        }
    }
}

impl TryFrom<Packed> for Measure {
    type Error = anyhow::Error;

    fn try_from(packed: Packed) -> anyhow::Result<Measure> {
        let mut measure = Measure::new()?;
        for (value, count) in packed.values {
            // A value at the end is shown as the greatest that counts as the same.
            measure.values.saturating_record_n(value, count);
        }
        measure.min = packed.min;
        measure.max = packed.max;
        measure.sum = packed.sum;
        measure.squares = packed.squares;
        Ok(measure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_same_behind_a_pipe_and_together() {
        let mut all = Measure::new().unwrap();
        let (mut even, mut odd) = (Measure::new().unwrap(), Measure::new().unwrap());
        for value in (1..=2_000).map(|it| it * 1_000) {
            all.record(value);
            match value % 2_000 {
                0 => even.record(value),
                _ => odd.record(value),
            }
        }
        let text = serde_json::to_string(&odd).unwrap();
        even.add(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(even.count(), 2_000);
        for figure in [
            Measure::min,
            Measure::max,
            Measure::sum,
            Measure::mean,
            Measure::deviation,
        ] {
            assert!((figure(&even) - figure(&all)).abs() < 1.0);
        }
        for (percent, wanted) in [(50.0, 1e6), (99.0, 1.98e6), (100.0, 2e6)] {
            let found = even.percentile(percent);
            assert!((found / wanted - 1.0).abs() < 0.002, "{percent}: {found}");
            assert_eq!(found, all.percentile(percent));
        }
        let counts = even.values().map(|(_, count)| count);
        assert_eq!(counts.sum::<u64>(), 2_000);
    }

    #[test]
    fn nothing_is_zero() {
        let none = Measure::new().unwrap();
        let figures = [none.min(), none.max(), none.mean(), none.deviation()];
        assert_eq!(figures, [0.0; 4]);
        assert_eq!(none.percentile(99.0), 0.0);
        let text = serde_json::to_string(&none).unwrap();
        let mut same: Measure = serde_json::from_str(&text).unwrap();
        same.record(7);
        assert_eq!((same.min(), same.max()), (7.0, 7.0));
    }
}
