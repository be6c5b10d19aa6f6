//! Bounds that a run is held to, as k6 writes them: `p99<50ms`, `errors<0.1%`.

use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;

use super::outcome::Outcome;

/// The comparisons, the longer ones first: each is found by its text.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

/// The units of latencies and their seconds. Without one they are milliseconds.
const UNITS: [(&str, f64); 5] = [
    ("ms", 1e-3),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ns", 1e-9),
    ("s", 1.0),
];

/// A bound on one figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Threshold {
    text: String,
    figure: Figure,
    comparison: Comparison,
    bound: f64,
}

/// A threshold beside the figure of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Judged {
    /// The threshold as it was written.
    pub threshold: String,
    /// The figure, in seconds, as a part of 1, or as a number; none where nothing was answered.
    pub value: Option<f64>,
    /// Whether it holds.
    pub is_held: bool,
}

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    /// The latency that so many percent do not exceed.
    Percentile(f64),
    Mean,
    Least,
    Greatest,
    /// The part of requests that failed, of 1.
    Errors,
    /// Requests per second.
    Rate,
    /// Requests.
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
    Equal,
    Unequal,
}

impl FromStr for Threshold {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Threshold> {
        let split = COMPARISONS.iter().find_map(|(sign, comparison)| {
            let (figure, bound) = text.split_once(sign)?;
            Some((figure.trim(), *comparison, bound.trim()))
        });
        let (figure, comparison, bound) =
            split.with_context(|| format!("{text:?} compares nothing, as `p99<50ms` does"))?;
        let figure: Figure = figure.parse()?;
        let bound = figure.bound(bound);
        let bound = bound.with_context(|| format!("the bound of {text:?}"))?;
        Ok(Threshold {
            text: text.to_owned(),
            figure,
            comparison,
            bound,
        })
    }
}

impl FromStr for Figure {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Figure> {
        Ok(match text {
            "avg" => Figure::Mean,
            "min" => Figure::Least,
            "max" => Figure::Greatest,
            "med" => Figure::Percentile(50.0),
            "errors" => Figure::Errors,
            "qps" => Figure::Rate,
            "count" => Figure::Count,
            _ => {
                let digits = text.strip_prefix('p').map(|rest| {
                    let inner = rest.strip_prefix('(');
                    inner
                        .and_then(|inner| inner.strip_suffix(')'))
                        .unwrap_or(rest)
                });
                let Some(percent) = digits.and_then(|digits| digits.parse::<f64>().ok()) else {
                    bail!(
                        "{text:?} is no figure; there are p99 or p(99), avg, min, max, med, \
                         errors, qps and count"
                    );
                };
                let is_percent = (0.0..=100.0).contains(&percent);
                ensure!(is_percent, "{text:?} is not between p0 and p100");
                Figure::Percentile(percent)
            }
        })
    }
}

impl Figure {
    /// The bound in the figure's own unit.
    fn bound(self, text: &str) -> anyhow::Result<f64> {
        let (number, unit) = match self {
            Figure::Percentile(_) | Figure::Mean | Figure::Least | Figure::Greatest => {
                let unit = UNITS.iter().find_map(|(name, seconds)| {
                    let number = text.strip_suffix(name)?;
                    Some((number, *seconds))
                });
                unit.unwrap_or((text, 1e-3))
            }
            Figure::Errors => match text.strip_suffix('%') {
                Some(percent) => (percent, 0.01),
                None => (text, 1.0),
            },
            Figure::Rate | Figure::Count => (text, 1.0),
        };
        let number = number.trim().parse::<f64>();
        let number = number.with_context(|| format!("{text:?} is no number"))?;
        ensure!(number.is_finite() && number >= 0.0, "{text:?} is no bound");
        Ok(number * unit)
    }

    /// The figure of a run; none of latencies that there are not.
    fn of(self, outcome: &Outcome) -> Option<f64> {
        let latency = &outcome.latency;
        let is_there = latency.count() > 0;
        let seconds = |nanos: f64| is_there.then_some(nanos / 1e9);
        match self {
            Figure::Percentile(percent) => seconds(latency.percentile(percent)),
            Figure::Mean => seconds(latency.mean()),
            Figure::Least => seconds(latency.min()),
            Figure::Greatest => seconds(latency.max()),
            Figure::Errors => {
                is_there.then(|| outcome.failed.count() as f64 / latency.count() as f64)
            }
            Figure::Rate => Some(outcome.rate()),
            Figure::Count => Some(latency.count() as f64),
        }
    }
}

impl Threshold {
    /// Holds a run to it. What there is no figure of is not held.
    pub(super) fn judge(&self, outcome: &Outcome) -> Judged {
        let value = self.figure.of(outcome);
        Judged {
            threshold: self.text.clone(),
            value,
            is_held: value.is_some_and(|value| self.holds(value)),
        }
    }

    fn holds(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Below => value < self.bound,
            Comparison::AtMost => value <= self.bound,
            Comparison::Above => value > self.bound,
            Comparison::AtLeast => value >= self.bound,
            Comparison::Equal => value == self.bound,
            Comparison::Unequal => value != self.bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A hundred requests of 1 to 100 ms in two seconds, of which two failed.
    fn outcome() -> Outcome {
        let mut outcome = Outcome::new().unwrap();
        for millis in 1..=100 {
            let latency = Duration::from_millis(millis);
            match millis {
                40 | 50 => outcome.fail(latency, "it broke".to_owned()),
                _ => outcome.answer(latency, 200, (100, 1_024)),
            }
        }
        outcome.time = Duration::from_secs(2);
        outcome
    }

    fn is_held(text: &str) -> bool {
        text.parse::<Threshold>().unwrap().judge(&outcome()).is_held
    }

    #[test]
    fn a_run_is_held_to_its_figures() {
        for text in [
            "p99<100ms",
            "p(99)<0.1s",
            "p99 <= 100",
            "p99.9>99000us",
            "med<52ms",
            "avg<=51ms",
            "min<2ms",
            "max>=100ms",
            "errors<2.1%",
            "errors<0.021",
            "errors==2%",
            "qps>49",
            "count==100",
            "count!=99",
        ] {
            assert!(is_held(text), "{text}");
        }
        for text in [
            "p99<50ms",
            "p(50)<49ms",
            "max<100ms",
            "errors<2%",
            "errors==0",
            "qps>50",
            "count>100",
        ] {
            assert!(!is_held(text), "{text}");
        }
    }

    #[test]
    fn a_run_without_requests_holds_no_latency_and_no_errors() {
        let none = Outcome::new().unwrap();
        for text in ["p99<50ms", "errors<1%", "count>0"] {
            let judged = text.parse::<Threshold>().unwrap().judge(&none);
            assert!(!judged.is_held, "{text}");
        }
    }

    #[test]
    fn what_is_no_threshold_is_refused() {
        for text in [
            "",
            "p99",
            "p99<",
            "p101<1ms",
            "p99<fast",
            "latency<1ms",
            "p99<-1ms",
            "qps>10ms",
            "p99<inf",
            "errors<1ms",
        ] {
            assert!(text.parse::<Threshold>().is_err(), "{text}");
        }
    }
}
