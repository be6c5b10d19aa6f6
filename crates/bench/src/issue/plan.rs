//! The domains of a run, and which of them fail for ever.

use std::str::FromStr;
use std::time::Duration;

/// How many domains fail for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Failing {
    /// A share of all.
    Share(f64),
    /// So many.
    Count(u64),
}

/// The domains of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// How many there are.
    pub domains: u64,
    /// How many of them fail for ever.
    pub failing: u64,
}

/// The least waits after the first and the second proof that failed, and the longest that the
/// least one becomes by doubling, in seconds.
const WAIT_FIRST: u64 = 5;
const WAIT_SECOND: u64 = 10;
const WAIT_MAX: u64 = 600;

impl FromStr for Failing {
    type Err = String;

    /// `10%`, or a number of domains.
    fn from_str(text: &str) -> Result<Failing, String> {
        let wrong = || format!("{text:?} is neither a number of domains nor a share as in 10%");
        let Some(percent) = text.strip_suffix('%') else {
            return text.parse().map(Failing::Count).map_err(|_| wrong());
        };
        let percent: f64 = percent.parse().map_err(|_| wrong())?;
        match (0.0..=100.0).contains(&percent) {
            true => Ok(Failing::Share(percent / 100.0)),
            false => Err(wrong()),
        }
    }
}

impl Plan {
    /// So many domains.
    pub(super) fn new(domains: u64, failing: Failing) -> Plan {
        let failing = match failing {
            Failing::Share(share) => (domains as f64 * share).round() as u64,
            Failing::Count(count) => count,
        };
        Plan {
            domains,
            failing: failing.min(domains),
        }
    }

    /// Whether a domain fails for ever. Those that do are spread over all.
    pub(super) fn is_failing(&self, index: u64) -> bool {
        let before = |index: u64| u128::from(index) * u128::from(self.failing);
        let domains = u128::from(self.domains.max(1));
        before(index) / domains < before(index + 1) / domains
    }

    /// The domains that get a certificate, by their indices.
    pub(super) fn good(&self) -> impl Iterator<Item = u64> {
        let plan = *self;
        (0..plan.domains).filter(move |index| !plan.is_failing(*index))
    }

    /// The domains that fail, by their indices.
    pub(super) fn bad(&self) -> impl Iterator<Item = u64> {
        let plan = *self;
        (0..plan.domains).filter(move |index| plan.is_failing(*index))
    }
}

/// The host of a domain.
pub(super) fn host(index: u64) -> String {
    format!("www.i{index:08}.issued.test")
}

/// The name of its Ingress and of its Secret.
pub(super) fn name(index: u64) -> String {
    format!("i{index:08}")
}

/// The most proofs of a name that always fails in a time, by the least waits between them: the
/// first is at once.
pub(super) fn proofs_max(span: Duration) -> u64 {
    let (mut proofs, mut at, mut wait) = (1, WAIT_FIRST, WAIT_SECOND);
    while at <= span.as_secs() {
        proofs += 1;
        at += wait;
        wait = (2 * wait).min(WAIT_MAX);
    }
    proofs
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Failing, Plan, proofs_max};

    #[test]
    fn those_that_fail_are_spread_and_as_many_as_was_said() {
        for (text, failing) in [
            ("10%", 33),
            ("0", 0),
            ("34", 34),
            ("100%", 334),
            ("999", 334),
        ] {
            let plan = Plan::new(334, text.parse().unwrap());
            assert_eq!(
                (plan.failing, plan.bad().count()),
                (failing, failing as usize)
            );
            assert_eq!(plan.good().count() as u64, 334 - failing, "{text}");
        }
        let plan = Plan::new(10, Failing::Share(0.2));
        assert_eq!(plan.bad().collect::<Vec<_>>(), [4, 9]);
        for wrong in ["", "x", "101%", "-1", "1.5", "NaN%"] {
            assert!(wrong.parse::<Failing>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_asked_ever_more_rarely() {
        let proofs = |seconds| proofs_max(Duration::from_secs(seconds));
        assert_eq!([0, 4, 5, 14, 15, 34, 35].map(proofs), [1, 1, 2, 2, 3, 3, 4]);
        // 5, 10, 20 and so on to 320, and then every 600 seconds.
        assert_eq!([634, 635, 1_235, 1_835].map(proofs), [7, 8, 9, 10]);
    }
}
