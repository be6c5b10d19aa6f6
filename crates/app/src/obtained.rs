//! The numbers of certificates that this process obtains, for people.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Where the numbers are shown: whoever obtains certificates writes, and pages read. Cheap to
/// clone; clones are one place.
#[derive(Clone, Debug, Default)]
pub struct Obtained(Arc<Mutex<Option<ObtainedReport>>>);

/// The numbers of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObtainedReport {
    /// Certificates that are wanted of an issuer.
    pub wanted: usize,
    /// Wanted certificates that are there.
    pub held: usize,
    /// Wanted certificates that are there and that others are to take the place of.
    pub renewing: usize,
    /// Orders that authorities have.
    pub orders: usize,
    /// Orders that wait after a failure.
    pub failing: usize,
    /// Certificates that were obtained since the start.
    pub issued: u64,
    /// Obtained certificates that have taken the place of others.
    pub renewed: u64,
}

impl Obtained {
    /// Shows numbers; none where this process obtains nothing now.
    pub fn set(&self, report: Option<ObtainedReport>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// The numbers that were shown last.
    pub fn report(&self) -> Option<ObtainedReport> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for ObtainedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObtainedReport {
            wanted,
            held,
            renewing,
            orders,
            failing,
            issued,
            renewed,
        } = self;
        writeln!(
            f,
            "certificates of issuers: {held} of {wanted} there, {orders} on order, {failing} \
             failing"
        )?;
        writeln!(
            f,
            "  since the start {issued} obtained, {renewed} of them renewals; {renewing} left to \
             renew"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Obtained, ObtainedReport};

    #[test]
    fn all_clones_show_the_numbers_that_were_set_last() {
        let obtained = Obtained::default();
        let shown = obtained.clone();
        assert_eq!(shown.report(), None);
        let report = ObtainedReport {
            wanted: 9,
            held: 7,
            renewing: 3,
            orders: 4,
            failing: 2,
            issued: 11,
            renewed: 4,
        };
        obtained.set(Some(report));
        let text = shown.report().expect("it is shown").to_string();
        assert_eq!(
            text,
            "certificates of issuers: 7 of 9 there, 4 on order, 2 failing\n  \
             since the start 11 obtained, 4 of them renewals; 3 left to renew\n"
        );
        obtained.set(None);
        assert_eq!(shown.report(), None);
    }
}
