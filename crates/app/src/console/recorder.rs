//! Keeps the values of plots: a sample now and then, of the last two hours, of a fixed number of
//! lines.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_base::metrics::Metrics;
use tokio::time::MissedTickBehavior;

use super::dashboards;
use super::panels::{Reading, Selector};
use super::samples::{Sample, named};

/// How often a sample is taken.
pub(super) const EVERY: Duration = Duration::from_secs(15);

/// The most samples that are kept: those of two hours.
pub(super) const SAMPLES_MAX: usize = 480;

/// The most buckets of a histogram that are read.
const BUCKETS_MAX: usize = 64;

/// The values of plots. Cheap to clone; clones are one.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    /// The sums that the last sample was made of.
    last: Option<Sums>,
    /// The samples, the oldest first.
    samples: VecDeque<PlotSample>,
}

/// The sums of all lines at a moment.
struct Sums {
    at: Instant,
    lines: Vec<LineSum>,
}

/// The values of all lines at a moment; not a number where there is none.
struct PlotSample {
    at: Instant,
    values: Box<[f64]>,
}

/// The sums that the value of one line is made of.
#[derive(Clone, Debug, Default)]
struct LineSum {
    /// Whether the process has such samples.
    is_there: bool,
    /// The sum of those that the line is about.
    sum: f64,
    /// The sum of those that they are compared with.
    other: f64,
    /// The least of the former that is more than 0.
    least: Option<f64>,
    /// Upper bounds of buckets with the number of values up to each.
    buckets: Vec<(f64, f64)>,
}

impl Recorder {
    /// Takes samples, for as long as somebody waits.
    pub(super) async fn record(self, metrics: Metrics) {
        let mut times = tokio::time::interval(EVERY);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            let (recorder, metrics) = (self.clone(), metrics.clone());
            // The text is as large as what a scraper gets: health does not wait for it.
            let taken = tokio::task::spawn_blocking(move || {
                let unix = clock::since_epoch().as_secs_f64();
                recorder.take(&metrics.encode(), clock::now(), unix);
            });
            if let Err(error) = taken.await {
                tracing::debug!("a sample for plots was not taken: {error}");
            }
        }
    }

    /// Takes a sample of the text of metrics, at a moment that is also so many seconds since 1970.
    pub(super) fn take(&self, text: &str, now: Instant, unix: f64) {
        let sums = Sums {
            at: now,
            lines: LineSum::read(text),
        };
        let mut recorded = self.lock();
        let before = recorded.last.as_ref();
        let lines = dashboards::lines().zip(&sums.lines).enumerate();
        let values = lines.map(|(index, (line, sum))| {
            let then = before.and_then(|before| {
                let passed = now.saturating_duration_since(before.at);
                Some((before.lines.get(index)?, passed.as_secs_f64()))
            });
            sum.value(&line.reading, then, unix)
        });
        let values: Box<[f64]> = values.collect();
        if recorded.samples.len() >= SAMPLES_MAX {
            recorded.samples.pop_front();
        }
        recorded.samples.push_back(PlotSample { at: now, values });
        recorded.last = Some(sums);
    }

    /// The values of a line by its number, the oldest first, each with its age in seconds; not a
    /// number where there was none.
    pub(super) fn values(&self, line: usize, now: Instant) -> Vec<(f64, f64)> {
        let recorded = self.lock();
        let samples = recorded.samples.iter();
        let values = samples.map(|sample| {
            let age = now.saturating_duration_since(sample.at).as_secs_f64();
            (age, sample.values.get(line).copied().unwrap_or(f64::NAN))
        });
        values.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineSum {
    /// The sums of all lines, read in one pass.
    fn read(text: &str) -> Vec<LineSum> {
        let mut wanted: HashMap<&str, Vec<(usize, &Selector, bool)>> = HashMap::new();
        let mut sums = Vec::new();
        for (index, line) in dashboards::lines().enumerate() {
            let (selector, other) = line.reading.selectors();
            let mut want = |selector: &'static Selector, is_other| {
                let of_metric = wanted.entry(selector.metric).or_default();
                of_metric.push((index, selector, is_other));
            };
            want(selector, false);
            if let Some(other) = other {
                want(other, true);
            }
            sums.push(LineSum::default());
        }
        for (name, sample) in named(text, |name| wanted.contains_key(name)) {
            for (index, selector, is_other) in wanted.get(name).into_iter().flatten() {
                if let Some(sum) = sums.get_mut(*index)
                    && selector.takes(&sample)
                {
                    sum.add(&sample, *is_other);
                }
            }
        }
        sums
    }

    fn add(&mut self, sample: &Sample, is_other: bool) {
        self.is_there = true;
        if is_other {
            self.other += sample.value;
            return;
        }
        self.sum += sample.value;
        if sample.value > 0.0 {
            let least = self.least.map_or(sample.value, |it| it.min(sample.value));
            self.least = Some(least);
        }
        let Ok(bound) = sample.label("le").parse::<f64>() else {
            return;
        };
        let is_full = self.buckets.len() >= BUCKETS_MAX;
        let mut buckets = self.buckets.iter_mut();
        match buckets.find(|(known, _)| known.total_cmp(&bound).is_eq()) {
            Some((_, count)) => *count += sample.value,
            None if is_full => {}
            None => self.buckets.push((bound, sample.value)),
        }
    }

    /// The value of a line, where so many seconds ago the sums were others; not a number where
    /// there is none.
    fn value(&self, reading: &Reading, then: Option<(&LineSum, f64)>, unix: f64) -> f64 {
        if !self.is_there {
            return f64::NAN;
        }
        let grown = |of: fn(&LineSum) -> f64| {
            // A sum that got smaller has begun anew.
            then.map_or(f64::NAN, |(then, _)| (of(self) - of(then)).max(0.0))
        };
        let value = match reading {
            Reading::Level(_) => self.sum,
            Reading::Part(..) => self.sum / self.other,
            Reading::Rate(_) => {
                let seconds = then.map_or(f64::NAN, |(_, seconds)| seconds);
                grown(|line| line.sum) / seconds
            }
            Reading::Ratio(..) => grown(|line| line.sum) / grown(|line| line.other),
            Reading::Since(_) => self.least.map_or(f64::NAN, |least| (unix - least).max(0.0)),
            Reading::Until(_) => self.least.map_or(f64::NAN, |least| (least - unix).max(0.0)),
            Reading::Quantile(_, share) => {
                then.map_or(f64::NAN, |(then, _)| self.quantile(then, *share))
            }
        };
        if value.is_finite() { value } else { f64::NAN }
    }

    /// A quantile of what buckets have grown by; within a bucket values lie evenly.
    fn quantile(&self, then: &LineSum, share: f64) -> f64 {
        let grown = self.buckets.iter().map(|&(bound, count)| {
            let mut buckets = then.buckets.iter();
            let before = buckets.find(|(known, _)| known.total_cmp(&bound).is_eq());
            let before = before.map_or(0.0, |&(_, count)| count);
            (bound, (count - before).max(0.0))
        });
        let mut grown: Vec<(f64, f64)> = grown.collect();
        grown.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let total = grown.last().map_or(0.0, |&(_, total)| total);
        if total <= 0.0 {
            return f64::NAN;
        }
        let (mut low, mut below) = (0.0, 0.0);
        for (bound, count) in grown {
            if count >= share * total {
                let part = match count > below {
                    true => (share * total - below) / (count - below),
                    false => 1.0,
                };
                // Nobody knows how large those are that no bound is above.
                return match bound.is_finite() {
                    true => low + (bound - low) * part,
                    false => low,
                };
            }
            (low, below) = (bound, count);
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_base::clock;

    use super::{BUCKETS_MAX, EVERY, LineSum, Recorder, SAMPLES_MAX};
    use crate::console::dashboards;

    /// The most bytes of values that the documentation speaks of.
    const BYTES_MAX: usize = 640 << 10;

    /// The number of a line by its panel and its name.
    fn number(panel: &str, name: &str) -> usize {
        let mut number = 0;
        for known in dashboards::DASHBOARDS.iter().flat_map(|it| it.panels) {
            for line in known.lines {
                if known.title == panel && line.name == name {
                    return number;
                }
                number += 1;
            }
        }
        panic!("there is no line {name} of {panel}");
    }

    /// The last value of a line after these texts, ten seconds apart, from second 1,000 on.
    fn value(panel: &str, name: &str, texts: &[&str]) -> Option<f64> {
        let (recorder, start) = (Recorder::default(), clock::now());
        let mut passed = Duration::ZERO;
        for text in texts {
            recorder.take(text, start + passed, 1_000.0 + passed.as_secs_f64());
            passed += Duration::from_secs(10);
        }
        let values = recorder.values(number(panel, name), start + passed);
        assert_eq!(values.len(), texts.len());
        let &(age, value) = values.last()?;
        assert!((age - 10.0).abs() < 1e-6, "{age}");
        (!value.is_nan()).then_some(value)
    }

    #[test]
    fn counters_are_shown_by_what_they_grow_by() {
        let text = |ok: u64, wrong: u64| {
            format!(
                "myriad_requests_total{{status=\"2xx\"}} {ok}\n\
                 myriad_requests_total{{status=\"5xx\"}} {wrong}\n"
            )
        };
        let (first, second) = (text(100, 10), text(160, 30));
        let texts = [&*first, &*second];
        assert_eq!(value("Requests", "all", &texts), Some(8.0));
        assert_eq!(value("Requests", "2xx", &texts), Some(6.0));
        assert_eq!(value("Errors", "5xx", &texts), Some(0.25));
        assert_eq!(value("Requests", "4xx", &texts), None);
        assert_eq!(value("Requests", "all", &texts[..1]), None);
        // Nothing came: there is no share of it.
        assert_eq!(value("Errors", "5xx", &[&first, &first]), None);
        // Series that are no longer there have taken theirs along.
        assert_eq!(value("Requests", "all", &[&second, &first]), Some(0.0));
        // A counter that was not there counts from nothing.
        assert_eq!(value("Requests", "all", &["", &first]), Some(11.0));
    }

    #[test]
    fn levels_and_times_are_those_of_now() {
        let text = "process_open_fds 10\nprocess_max_fds 40\n\
                    process_start_time_seconds 400.5\n\
                    myriad_mesh_authority_until_seconds 1600.0\n\
                    myriad_kubernetes_heard_timestamp_seconds{kind=\"Secret\"} 990\n\
                    myriad_kubernetes_heard_timestamp_seconds{kind=\"Service\"} 995\n\
                    myriad_kubernetes_heard_timestamp_seconds{kind=\"Pod\"} 0\n";
        let of = |panel, name| value(panel, name, &[text]);
        assert_eq!(of("File descriptors", "open"), Some(0.25));
        assert_eq!(of("Uptime", "since the start"), Some(599.5));
        assert_eq!(of("The authority", "until its end"), Some(600.0));
        let furthest = of("Behind the API server", "the kind that is furthest");
        assert_eq!(furthest, Some(10.0));
        assert_eq!(of("Proxies connected", "connected"), None);
        let ended = "myriad_mesh_authority_until_seconds 900.0\n";
        assert_eq!(value("The authority", "until its end", &[ended]), Some(0.0));
        let none = "myriad_mesh_authority_until_seconds 0.0\n";
        assert_eq!(value("The authority", "until its end", &[none]), None);
    }

    #[test]
    fn quantiles_are_of_what_came_since_the_last_sample() {
        let text = |low: u64, high: u64, all: u64| {
            format!(
                "myriad_request_duration_seconds_bucket{{le=\"0.1\",status=\"2xx\"}} {low}\n\
                 myriad_request_duration_seconds_bucket{{le=\"1.0\",status=\"2xx\"}} {high}\n\
                 myriad_request_duration_seconds_bucket{{le=\"+Inf\",status=\"2xx\"}} {all}\n"
            )
        };
        let (first, second) = (text(1_000, 1_000, 1_000), text(1_000, 1_100, 1_100));
        let texts = [&*first, &*second];
        let median = value("Time of requests", "p50", &texts).unwrap();
        assert!((median - 0.55).abs() < 1e-9, "{median}");
        // Beyond the last bound nobody knows.
        let third = text(1_000, 1_000, 1_100);
        assert_eq!(
            value("Time of requests", "p99", &[&first, &third]),
            Some(1.0)
        );
        assert_eq!(value("Time of requests", "p50", &[&first, &first]), None);
    }

    #[test]
    fn what_the_receiving_end_has_counted_is_shown_of_the_mesh() {
        let line = |reporter: &str, code: u16, policy: &str, value: u64| {
            format!(
                "istio_requests_total{{reporter=\"{reporter}\",response_code=\"{code}\",\
                 connection_security_policy=\"{policy}\"}} {value}\n"
            )
        };
        let none = line("destination", 200, "mutual_tls", 0);
        let some = line("destination", 200, "mutual_tls", 60)
            + &line("destination", 503, "none", 20)
            + &line("source", 200, "unknown", 1_000);
        let of = |panel, name| value(panel, name, &[&none, &some]);
        assert_eq!(of("Requests between workloads", "received"), Some(8.0));
        assert_eq!(of("Success", "not 5xx"), Some(0.75));
        assert_eq!(of("Mutual TLS", "of requests"), Some(0.75));
    }

    #[test]
    fn no_more_samples_and_buckets_are_kept_than_may_be() {
        let (recorder, start) = (Recorder::default(), clock::now());
        let mut now = start;
        for _ in 0..SAMPLES_MAX + 20 {
            now += EVERY;
            recorder.take("myriad_connections 7\n", now, 0.0);
        }
        let values = recorder.values(number("Open connections", "open"), now);
        assert_eq!(values.len(), SAMPLES_MAX);
        let oldest = EVERY.as_secs_f64() * 479.0;
        assert_eq!(values.first(), Some(&(oldest, 7.0)));
        assert_eq!(values.last(), Some(&(0.0, 7.0)));
        let lines = dashboards::lines().count();
        assert_eq!(lines, 151, "docs/console.md says how many there are");
        let bytes = lines * SAMPLES_MAX * size_of::<f64>();
        assert!(bytes <= BYTES_MAX, "{bytes}");
        let mut text = String::new();
        for bound in 0..2 * BUCKETS_MAX {
            text += &format!("myriad_live_seconds_bucket{{le=\"{bound}.0\"}} 1\n");
        }
        let sums = LineSum::read(&text);
        let sum = &sums[number("Live on every gateway", "p50")];
        assert_eq!(sum.buckets.len(), BUCKETS_MAX);
    }
}
