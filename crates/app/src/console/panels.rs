//! Panels: a few lines over time, and how their values are made of metrics.

use std::time::Duration;

use super::samples::Sample;

/// The most lines of a panel: as many can be told apart.
pub(super) const LINES_MAX: usize = 7;

/// A group of panels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dashboard {
    /// The name in addresses, which is that of the file in `deploy/grafana`.
    pub(super) name: &'static str,
    /// The heading.
    pub(super) title: &'static str,
    /// The panels.
    pub(super) panels: &'static [Panel],
}

/// A plot of a few lines over time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    /// The heading, which is that of the panel in Grafana.
    pub(super) title: &'static str,
    /// The unit of all lines.
    pub(super) unit: Unit,
    /// The lines, at most [`LINES_MAX`].
    pub(super) lines: &'static [PlotLine],
}

/// A line of a plot.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlotLine {
    /// The name in the table.
    pub(super) name: &'static str,
    /// The way in which its value is made.
    pub(super) reading: Reading,
}

/// The way in which the value of a line is made of metrics.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// The sum now.
    Level(Selector),
    /// One sum now by another.
    Part(Selector, Selector),
    /// The growth of a sum per second.
    Rate(Selector),
    /// The growth of one sum by that of another.
    Ratio(Selector, Selector),
    /// The seconds since the earliest of some times; a time of 0 is none.
    Since(Selector),
    /// The seconds until the earliest of some times, 0 for one that is over.
    Until(Selector),
    /// A quantile, from 0 to 1, of what a histogram has grown by.
    Quantile(Selector, f64),
}

/// The samples of a metric whose labels fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selector {
    /// The name of the samples, which for a histogram ends in `_bucket`, `_sum` or `_count`.
    pub(super) metric: &'static str,
    /// Labels, and how each has to be.
    pub(super) labels: &'static [(&'static str, Wanted)],
}

/// How the value of a label has to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// Equal to a text.
    Is(&'static str),
    /// Not beginning with a text.
    StartsNot(&'static str),
}

/// A unit of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A plain number, of what the word says.
    Plain(&'static str),
    /// Times per second.
    PerSecond,
    /// Seconds, shown as what is read best.
    Seconds,
    /// Bytes, shown as what is read best.
    Bytes,
    /// Bytes per second, shown as what is read best.
    BytesPerSecond,
    /// A part of one, shown in percent.
    Share,
}

/// A unit as values of a size are shown in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measure {
    /// The number that values are multiplied by.
    pub(super) factor: f64,
    /// The word for the unit.
    pub(super) word: &'static str,
}

impl Reading {
    /// The samples that it is made of, and those that they are compared with.
    pub(super) fn selectors(&self) -> (&Selector, Option<&Selector>) {
        match self {
            Reading::Level(one)
            | Reading::Rate(one)
            | Reading::Since(one)
            | Reading::Until(one)
            | Reading::Quantile(one, _) => (one, None),
            Reading::Part(one, other) | Reading::Ratio(one, other) => (one, Some(other)),
        }
    }
}

impl Selector {
    /// Whether a sample of the metric is one of those.
    pub(super) fn takes(&self, sample: &Sample) -> bool {
        let mut labels = self.labels.iter();
        labels.all(|(name, wanted)| {
            let value = sample.label(name);
            match wanted {
                Wanted::Is(text) => value == *text,
                Wanted::StartsNot(text) => !value.starts_with(*text),
            }
        })
    }
}

impl Unit {
    /// The unit as values up to this one are read best.
    pub(super) fn measure(self, most: f64) -> Measure {
        let (factor, word) = match self {
            Unit::Plain(word) => (1.0, word),
            Unit::PerSecond => (1.0, "per second"),
            Unit::Share => (100.0, "percent"),
            Unit::Seconds => {
                const UNITS: [(Duration, f64, &str); 5] = [
                    (Duration::from_millis(1), 1e6, "microseconds"),
                    (Duration::from_secs(1), 1e3, "milliseconds"),
                    (Duration::from_secs(600), 1.0, "seconds"),
                    (Duration::from_secs(7_200), 1.0 / 60.0, "minutes"),
                    (Duration::from_secs(172_800), 1.0 / 3_600.0, "hours"),
                ];
                let unit = UNITS.iter().find(|(below, ..)| most < below.as_secs_f64());
                unit.map_or((1.0 / 86_400.0, "days"), |(_, factor, word)| {
                    (*factor, *word)
                })
            }
            Unit::Bytes => binary(most, ["B", "KiB", "MiB", "GiB"]),
            Unit::BytesPerSecond => binary(most, ["B/s", "KiB/s", "MiB/s", "GiB/s"]),
        };
        Measure { factor, word }
    }
}

/// The first of the words, each of which stands for 1,024 times the one before, in which a value
/// is below 1,024.
fn binary(most: f64, words: [&'static str; 4]) -> (f64, &'static str) {
    let [first, second, third, last] = words;
    let mut factor = 1.0;
    for word in [first, second, third] {
        if most * factor < 1_024.0 {
            return (factor, word);
        }
        factor /= 1_024.0;
    }
    (factor, last)
}

/// A line by its name and its value.
pub(super) const fn line(name: &'static str, reading: Reading) -> PlotLine {
    PlotLine { name, reading }
}

/// All samples of a metric.
pub(super) const fn all(metric: &'static str) -> Selector {
    Selector {
        metric,
        labels: &[],
    }
}

/// The samples of a metric with such labels.
pub(super) const fn some(
    metric: &'static str,
    labels: &'static [(&'static str, Wanted)],
) -> Selector {
    Selector { metric, labels }
}

/// The line of the sum of a metric.
pub(super) const fn level(name: &'static str, metric: &'static str) -> PlotLine {
    line(name, Reading::Level(all(metric)))
}

/// The line of the growth of a metric per second.
pub(super) const fn rate(name: &'static str, metric: &'static str) -> PlotLine {
    line(name, Reading::Rate(all(metric)))
}

/// The same of the samples with such labels.
pub(super) const fn rate_of(
    name: &'static str,
    metric: &'static str,
    labels: &'static [(&'static str, Wanted)],
) -> PlotLine {
    line(name, Reading::Rate(some(metric, labels)))
}

/// The line of a quantile.
pub(super) const fn quantile(name: &'static str, metric: &'static str, share: f64) -> PlotLine {
    line(name, Reading::Quantile(all(metric), share))
}
