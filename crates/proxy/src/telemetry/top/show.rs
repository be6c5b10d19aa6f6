//! The few that have most, as metrics: a series for each, and one for all others.
//!
//! A counter must never go back. So a series begins at nothing when its domain joins the few, it
//! grows by what is counted from there on, and what is not of the few goes to `other`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use myriad_base::metrics::{EncodeMetric, MetricEncoder, MetricType, Metrics, NoLabelSet};

use super::{Merged, TopCount, TopReader, ranked};

/// The label value of all that have no series of their own. A host that is called so is one of
/// them, and so are names that are the same as far as they are kept one: no series is there twice.
const OTHER: &str = "other";

/// How many series there are of each of [`TopCount`], beside that of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopSeries(usize);

impl TopSeries {
    /// The most that may be asked for.
    pub const MAX: usize = 100;

    /// So many; never more than [`TopSeries::MAX`].
    pub fn new(count: usize) -> Self {
        TopSeries(count.min(Self::MAX))
    }
}

impl Default for TopSeries {
    fn default() -> Self {
        TopSeries(10)
    }
}

/// The name of a metric, its help and its label.
fn about(of: TopCount) -> (&'static str, &'static str, &'static str) {
    match of {
        TopCount::DomainRequests => (
            "domain_requests",
            "Requests of the domains that have most; other has the rest",
            "domain",
        ),
        TopCount::DomainErrors => (
            "domain_errors",
            "Requests answered with 5xx of the domains that have most; other has the rest",
            "domain",
        ),
        TopCount::DomainBytes => (
            "domain_bytes",
            "Bytes of bodies, both ways, of the domains that have most; other has the rest",
            "domain",
        ),
        TopCount::DomainHandshakes => (
            "domain_handshakes",
            "TLS handshakes of the domains that have most; other has the rest",
            "domain",
        ),
        TopCount::RouteRequests => (
            "route_requests",
            "Requests by the object of their route, of those that have most; other has the rest",
            "route",
        ),
        TopCount::RouteErrors => (
            "route_errors",
            "Requests answered with 5xx by the object of their route, of those that have most; \
             other has the rest",
            "route",
        ),
    }
}

/// Registers the series of all workers.
pub(in crate::telemetry) fn register(metrics: &Metrics, reader: &TopReader, series: TopSeries) {
    for of in TopCount::ALL {
        let (name, help, _) = about(of);
        let shown = Shown {
            of,
            reader: reader.clone(),
            series,
            state: Mutex::default(),
        };
        metrics.register(name, help, shown);
    }
}

/// The series of one metric.
struct Shown {
    of: TopCount,
    reader: TopReader,
    series: TopSeries,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The few that have a series, by their hashes.
    few: HashMap<u64, Counted>,
    /// The value of all others.
    other: u64,
    /// How much there was in all when it was looked at last.
    total: u64,
}

/// One that has a series.
struct Counted {
    name: String,
    value: u64,
    /// The count of each worker when it was looked at last.
    seen: Vec<u64>,
}

impl State {
    /// Adds what was counted since the last look, and chooses who has a series from now on.
    fn look(&mut self, merged: &HashMap<u64, Merged>, total: u64, count: usize) {
        let mut own = 0_u64;
        for (hash, counted) in &mut self.few {
            let seen = merged.get(hash).map(|it| &*it.seen).unwrap_or_default();
            for (at, before) in counted.seen.iter_mut().enumerate() {
                let now = seen.get(at).copied().unwrap_or_default();
                // One that was pushed out, and is back, has begun anew.
                let more = now.checked_sub(*before).unwrap_or(now);
                *before = now;
                counted.value = counted.value.saturating_add(more);
                own = own.saturating_add(more);
            }
        }
        let more = total.saturating_sub(self.total).saturating_sub(own);
        self.other = self.other.saturating_add(more);
        self.total = total;
        self.choose(merged, count);
    }

    /// Lets those go that are far from having most, and fills their places.
    fn choose(&mut self, merged: &HashMap<u64, Merged>, count: usize) {
        let ranked = ranked(merged);
        // Who is about as large as another does not take turns with it.
        let stay: Vec<u64> = ranked
            .iter()
            .take(2 * count)
            .map(|(hash, _)| *hash)
            .collect();
        self.few.retain(|hash, _| stay.contains(hash));
        for (hash, it) in ranked.into_iter().take(count) {
            if self.few.len() >= count {
                return;
            }
            self.few.entry(hash).or_insert_with(|| Counted {
                name: it.name.clone(),
                value: 0,
                seen: it.seen.clone(),
            });
        }
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(about(self.of).0)
    }
}

impl EncodeMetric for Shown {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let (merged, total) = self.reader.merge(self.of);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.look(&merged, total, self.series.0);
        let (_, _, label) = about(self.of);
        let few = state.few.values().map(|it| (&*it.name, it.value));
        let mut all: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, value) in few.chain([(OTHER, state.other)]) {
            let sum = all.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
        for (name, value) in all {
            encoder
                .encode_family(&[(label, name)])?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}
