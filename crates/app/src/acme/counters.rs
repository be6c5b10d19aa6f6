//! Numbers of certificates that are obtained, for metrics.

use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_pki::acme::{Desk, DeskCounts};

/// The metrics.
#[derive(Clone)]
pub(super) struct Counters {
    wanted: Gauge,
    held: Gauge,
    open: Gauge,
    failing: Gauge,
    /// Certificates that were obtained.
    pub issued: Counter,
    /// Steps that failed.
    pub failed: Counter,
}

impl Counters {
    /// Counts from nothing.
    pub(super) fn new(metrics: &Metrics) -> Counters {
        let gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            metrics.register(name, help, gauge.clone());
            gauge
        };
        let counter = |name: &str, help: &str| {
            let counter = Counter::default();
            metrics.register(name, help, counter.clone());
            counter
        };
        Counters {
            wanted: gauge("acme_wanted", "Certificates that are wanted of an issuer"),
            held: gauge(
                "acme_held",
                "Certificates that are wanted of an issuer and are there",
            ),
            open: gauge("acme_orders", "Orders that an authority has"),
            failing: gauge(
                "acme_orders_failing",
                "Orders that failed and wait to be tried again",
            ),
            issued: counter("acme_issued", "Certificates that were obtained"),
            failed: counter("acme_failures", "Steps of orders that failed"),
        }
    }

    /// Shows how much there is at a desk: a walk over all certificates.
    pub(super) fn show(&self, desk: &Desk) {
        self.set(desk.counts());
    }

    /// Nothing is obtained here any more.
    pub(super) fn clear(&self) {
        self.set(DeskCounts::default());
    }

    fn set(&self, counts: DeskCounts) {
        for (gauge, count) in [
            (&self.wanted, counts.wanted),
            (&self.held, counts.held),
            (&self.open, counts.open),
            (&self.failing, counts.failing),
        ] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
