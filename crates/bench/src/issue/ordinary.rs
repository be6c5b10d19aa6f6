//! Ordinary domains, whose certificates are there: how long they take to be live while nothing
//! else happens, and while certificates are issued for others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Handle;

use super::place::Place;
use crate::activate::{Pace, Quantiles};
use crate::domains::Generator;
use crate::probe::Prober;

/// How many are written in a second.
const RATE: f64 = 5.0;

/// Adds ordinary domains, one after the other.
pub(super) struct Ordinary<'a> {
    place: Place,
    runtime: Handle,
    generator: &'a Generator,
    prober: Prober,
    next: u64,
}

/// The figures of ordinary domains.
#[derive(Debug, Serialize)]
pub(super) struct OrdinaryFigures {
    /// While nothing else happens.
    quiet_ms: Quantiles,
    /// While certificates are issued for others.
    during_ms: Quantiles,
    /// How much longer that is, at both quantiles.
    ratio_p50: f64,
    ratio_p99: f64,
}

impl<'a> Ordinary<'a> {
    /// No domain has come yet.
    pub(super) fn new(
        (place, runtime): (Place, Handle),
        generator: &'a Generator,
        prober: Prober,
    ) -> Self {
        Ordinary {
            place,
            runtime,
            generator,
            prober,
            next: 0,
        }
    }

    /// Adds so many, and says how long each took.
    ///
    /// # Errors
    /// One cannot be written, or is not live in time.
    pub(super) fn add(&mut self, count: u64) -> anyhow::Result<Vec<Duration>> {
        let mut pace = Pace::new(RATE);
        let added = (0..count).map(|_| {
            pace.wait();
            self.add_one()
        });
        added.collect()
    }

    /// Adds some until something else is over, one at least, and says how long each took.
    ///
    /// # Errors
    /// One cannot be written, or is not live in time.
    pub(super) fn add_until(&mut self, is_over: &AtomicBool) -> anyhow::Result<Vec<Duration>> {
        let (mut pace, mut added) = (Pace::new(RATE), Vec::new());
        loop {
            pace.wait();
            added.push(self.add_one()?);
            if is_over.load(Ordering::Relaxed) {
                return Ok(added);
            }
        }
    }

    fn add_one(&mut self) -> anyhow::Result<Duration> {
        let (place, runtime, generator) = (&self.place, &self.runtime, self.generator);
        let domain = generator.domain(Generator::existing(self.next), 0)?;
        self.next += 1;
        runtime.block_on(place.prepare(&domain, generator.issuer()))?;
        let publish = || runtime.block_on(place.publish(&domain));
        let wanted = generator.answer(&domain);
        let (written, hit) = self.prober.watch(&domain.host, wanted, publish)?;
        Ok(hit.at.saturating_duration_since(written))
    }
}

impl OrdinaryFigures {
    /// The figures of these times.
    pub(super) fn new(quiet: &[Duration], during: &[Duration]) -> OrdinaryFigures {
        let quiet_ms = Quantiles::of(quiet.iter().copied());
        let during_ms = Quantiles::of(during.iter().copied());
        let ratio = |during: f64, quiet: f64| (during / quiet.max(0.001) * 100.0).round() / 100.0;
        OrdinaryFigures {
            ratio_p50: ratio(during_ms.p50, quiet_ms.p50),
            ratio_p99: ratio(during_ms.p99, quiet_ms.p99),
            quiet_ms,
            during_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::OrdinaryFigures;

    #[test]
    fn what_is_seen_beside_others_is_held_against_what_is_seen_alone() {
        let [quiet, during] = [10, 15].map(|ms| [Duration::from_millis(ms)]);
        let figures = OrdinaryFigures::new(&quiet, &during);
        assert_eq!((figures.ratio_p50, figures.ratio_p99), (1.5, 1.5));
        assert_eq!(OrdinaryFigures::new(&quiet, &[]).ratio_p50, 0.0);
    }
}
