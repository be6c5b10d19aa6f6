//! Numbers of certificates that are obtained, for metrics and for people.

use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_pki::acme::{Desk, DeskCounts};

use crate::obtained::{Obtained, ObtainedReport};

/// The metrics.
#[derive(Clone)]
pub(super) struct Counters {
    wanted: Gauge,
    held: Gauge,
    open: Gauge,
    failing: Gauge,
    renewing: Gauge,
    issued: Counter,
    renewed: Counter,
    /// Steps that failed.
    pub failed: Counter,
    obtained: Obtained,
}

impl Counters {
    /// Counts from nothing; people are shown the same.
    pub(super) fn new(metrics: &Metrics, obtained: Obtained) -> Counters {
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
            renewing: gauge(
                "acme_renewing",
                "Certificates that are there and that others are to take the place of",
            ),
            issued: counter("acme_issued", "Certificates that were obtained"),
            renewed: counter(
                "acme_renewed",
                "Certificates that were obtained in the place of others",
            ),
            failed: counter("acme_failures", "Steps of orders that failed"),
            obtained,
        }
    }

    /// A certificate was obtained, in the place of another one or where none was.
    pub(super) fn issue(&self, is_renewal: bool) {
        self.issued.inc();
        if is_renewal {
            self.renewed.inc();
        }
    }

    /// Shows how much there is at a desk.
    pub(super) fn show(&self, desk: &Desk) {
        let counts = desk.counts();
        self.set(counts);
        self.obtained.set(Some(ObtainedReport {
            wanted: counts.wanted,
            held: counts.held,
            renewing: counts.renewing,
            orders: counts.open,
            failing: counts.failing,
            issued: self.issued.get(),
            renewed: self.renewed.get(),
        }));
    }

    /// Nothing is obtained here any more.
    pub(super) fn clear(&self) {
        self.set(DeskCounts::default());
        self.obtained.set(None);
    }

    fn set(&self, counts: DeskCounts) {
        for (gauge, count) in [
            (&self.wanted, counts.wanted),
            (&self.held, counts.held),
            (&self.open, counts.open),
            (&self.failing, counts.failing),
            (&self.renewing, counts.renewing),
        ] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_base::metrics::Metrics;
    use myriad_pki::acme::{Bounds, Desk};

    use super::Counters;
    use crate::obtained::Obtained;

    #[test]
    fn renewals_are_told_apart_and_shown_until_nothing_is_obtained_here() {
        let (metrics, obtained) = (Metrics::new(), Obtained::default());
        let counters = Counters::new(&metrics, obtained.clone());
        for is_renewal in [false, true, true] {
            counters.issue(is_renewal);
        }
        assert_eq!(obtained.report(), None);
        counters.show(&Desk::new(Bounds::default(), 0));
        let shown = obtained.report().expect("it is shown");
        assert_eq!((shown.issued, shown.renewed), (3, 2));
        let text = metrics.encode();
        assert!(text.contains("myriad_acme_renewed_total 2"), "{text}");
        assert!(text.contains("myriad_acme_renewing 0"), "{text}");
        counters.clear();
        assert_eq!(obtained.report(), None);
    }
}
