//! Endpoints that answer badly, and are left out for a while.
//!
//! Nothing runs in the background: an endpoint that is out comes back by the clock, and what its
//! absences have cost is forgiven when the next one begins.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use myriad_model::Outlier;

/// The longest absence, unless the first is longer.
const EJECTION_TIME_MAX: Duration = Duration::from_secs(300);

/// The outcome of a try, as far as it tells of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointOutcome {
    /// It answered with a status.
    Response(u16),
    /// It answered a request of a route of another namespace with a status.
    ForeignResponse(u16),
    /// There was no connection, or it broke off or took too long before a response.
    Failure,
}

/// The memory of an endpoint's outcomes, of all workers together.
#[derive(Debug, Default)]
pub struct Record {
    server_errors: AtomicU32,
    gateway_errors: AtomicU32,
    local_errors: AtomicU32,
    /// When it comes back, in milliseconds of [`super::now_ms`]; 0 before the first absence.
    back_ms: AtomicU64,
    /// Absences, less those that are forgiven.
    absences: AtomicU32,
    /// The place of its part in the row that it was last taken from.
    seat: AtomicU32,
}

impl Record {
    /// Whether it is left out.
    pub fn is_out(&self, now_ms: u64) -> bool {
        self.back_ms.load(Relaxed) > now_ms
    }

    /// The place of its part in the row that it was last taken from, as far as anybody has said.
    /// Other rows may have it elsewhere, or not at all.
    pub fn seat(&self) -> u32 {
        self.seat.load(Relaxed)
    }

    /// Remembers the place of its part in a row that it is taken from.
    pub fn remember_seat(&self, seat: u32) {
        if self.seat() != seat {
            self.seat.store(seat, Relaxed);
        }
    }

    /// When it comes back, if it is left out.
    pub fn back_ms(&self, now_ms: u64) -> Option<u64> {
        Some(self.back_ms.load(Relaxed)).filter(|back| *back > now_ms)
    }

    /// Takes note of an outcome; whether the endpoint is to be left out.
    pub fn note(&self, rule: &Outlier, outcome: EndpointOutcome) -> bool {
        match outcome {
            EndpointOutcome::Failure if rule.is_split => {
                count(&self.local_errors, rule.local_errors)
            }
            EndpointOutcome::ForeignResponse(status) => {
                let is_error = match rule.error_statuses.is_empty() {
                    true => matches!(status, 500..=599),
                    false => rule.error_statuses.contains(&status),
                };
                if is_error {
                    // Who wrote the route may have asked for what has to fail. That the endpoint
                    // can be reached is known all the same.
                    clear(&self.local_errors);
                    return false;
                }
                self.note(rule, EndpointOutcome::Response(status))
            }
            // Which statuses are errors is said, so none of them is one of a gateway alone.
            EndpointOutcome::Response(status) if !rule.error_statuses.is_empty() => {
                clear(&self.gateway_errors);
                clear(&self.local_errors);
                if rule.error_statuses.contains(&status) {
                    return count(&self.server_errors, rule.server_errors);
                }
                clear(&self.server_errors);
                false
            }
            // Without the split a failure counts like the status that the client gets of it.
            EndpointOutcome::Failure | EndpointOutcome::Response(502..=504) => {
                let by_server = count(&self.server_errors, rule.server_errors);
                let by_gateway = count(&self.gateway_errors, rule.gateway_errors);
                by_server || by_gateway
            }
            EndpointOutcome::Response(status) => {
                clear(&self.gateway_errors);
                clear(&self.local_errors);
                if matches!(status, 500..=599) {
                    return count(&self.server_errors, rule.server_errors);
                }
                clear(&self.server_errors);
                false
            }
        }
    }

    /// Leaves it out; false where another worker has done so already.
    pub fn eject(&self, rule: &Outlier, now_ms: u64) -> bool {
        let before = self.back_ms.load(Relaxed);
        if before > now_ms {
            return false;
        }
        let interval_ms = to_ms(rule.interval).max(1);
        let forgiven = (now_ms - before) / interval_ms;
        let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
        let absences = self.absences.load(Relaxed).saturating_sub(forgiven) + 1;
        let bound = rule.ejection_time.max(EJECTION_TIME_MAX);
        let absence = rule.ejection_time.saturating_mul(absences).min(bound);
        let back = now_ms.saturating_add(to_ms(absence).max(1));
        let swapped = self
            .back_ms
            .compare_exchange(before, back, Relaxed, Relaxed);
        if swapped.is_err() {
            return false;
        }
        self.absences.store(absences, Relaxed);
        clear(&self.server_errors);
        clear(&self.gateway_errors);
        clear(&self.local_errors);
        true
    }
}

fn count(counter: &AtomicU32, bound: u32) -> bool {
    let counted = counter.fetch_add(1, Relaxed).saturating_add(1);
    bound > 0 && counted >= bound
}

/// Most answers are good, and what is zero already need not be written by every worker.
fn clear(counter: &AtomicU32) {
    if counter.load(Relaxed) != 0 {
        counter.store(0, Relaxed);
    }
}

fn to_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_model::Outlier;

    use super::{EndpointOutcome, Record};

    fn rule() -> Outlier {
        Outlier {
            server_errors: 3,
            gateway_errors: 2,
            local_errors: 2,
            is_split: false,
            interval: Duration::from_secs(10),
            ejection_time: Duration::from_secs(30),
            ejection_percent_max: 100,
            health_percent_min: 0,
            error_statuses: Box::default(),
        }
    }

    /// After how many of the outcomes, given in turns, an endpoint is left out.
    fn after(rule: &Outlier, outcomes: &[EndpointOutcome]) -> Option<usize> {
        let record = Record::default();
        let noted = outcomes
            .iter()
            .position(|outcome| record.note(rule, *outcome));
        noted.map(|index| index + 1)
    }

    #[test]
    fn errors_in_a_row_lead_to_an_absence() {
        const OK: EndpointOutcome = EndpointOutcome::Response(200);
        const ERROR: EndpointOutcome = EndpointOutcome::Response(500);
        const GATEWAY: EndpointOutcome = EndpointOutcome::Response(503);
        let split = Outlier {
            is_split: true,
            ..rule()
        };
        assert_eq!(after(&rule(), &[ERROR, ERROR, ERROR]), Some(3));
        assert_eq!(after(&rule(), &[ERROR, ERROR, OK, ERROR, ERROR]), None);
        assert_eq!(after(&rule(), &[GATEWAY, GATEWAY]), Some(2));
        assert_eq!(after(&rule(), &[GATEWAY, ERROR, GATEWAY]), Some(3));
        assert_eq!(
            after(&rule(), &[EndpointOutcome::Failure, GATEWAY]),
            Some(2)
        );
        assert_eq!(after(&split, &[EndpointOutcome::Failure, GATEWAY]), None);
        assert_eq!(
            after(
                &split,
                &[EndpointOutcome::Failure, EndpointOutcome::Failure]
            ),
            Some(2)
        );
        assert_eq!(
            after(
                &split,
                &[EndpointOutcome::Failure, OK, EndpointOutcome::Failure]
            ),
            None
        );
        let never = Outlier {
            server_errors: 0,
            gateway_errors: 0,
            ..rule()
        };
        assert_eq!(after(&never, &[GATEWAY; 10]), None);
    }

    #[test]
    fn routes_of_another_namespace_tell_of_what_is_good_alone() {
        use EndpointOutcome::{Failure, ForeignResponse, Response};
        let split = Outlier {
            is_split: true,
            ..rule()
        };
        let listed = Outlier {
            error_statuses: [404].into(),
            ..rule()
        };
        assert_eq!(after(&rule(), &[ForeignResponse(503); 10]), None);
        assert_eq!(after(&listed, &[ForeignResponse(404); 10]), None);
        let between = [Response(503), ForeignResponse(500), Response(503)];
        assert_eq!(after(&rule(), &between), Some(3));
        let better = [Response(503), ForeignResponse(200), Response(503)];
        assert_eq!(after(&rule(), &better), None);
        assert_eq!(
            after(&rule(), &[Failure, ForeignResponse(200), Failure]),
            None
        );
        assert_eq!(
            after(&rule(), &[Failure, ForeignResponse(500), Failure]),
            Some(3)
        );
        assert_eq!(
            after(&split, &[Failure, ForeignResponse(500), Failure]),
            None
        );
    }

    #[test]
    fn absences_grow_and_are_forgiven() {
        let (record, rule) = (Record::default(), rule());
        let mut now = 1_000;
        for seconds in [30, 60, 90] {
            assert!(record.eject(&rule, now));
            assert!(!record.eject(&rule, now), "it is out already");
            assert_eq!(record.back_ms(now), Some(now + seconds * 1_000));
            now += seconds * 1_000;
            assert!(!record.is_out(now));
        }
        // Two intervals of good service take two of the three absences back.
        now += 20_000;
        assert!(record.eject(&rule, now));
        assert_eq!(record.back_ms(now), Some(now + 60_000));
    }

    #[test]
    fn an_absence_has_a_bound() {
        let (record, rule) = (Record::default(), rule());
        let mut now = 1;
        for _ in 0..20 {
            assert!(record.eject(&rule, now));
            now = record.back_ms(now).unwrap();
        }
        assert!(record.eject(&rule, now));
        assert_eq!(record.back_ms(now), Some(now + 300_000));
    }

    #[test]
    fn statuses_that_are_named_are_the_only_errors() {
        let rule = Outlier {
            error_statuses: [429, 500].into(),
            gateway_errors: 1,
            server_errors: 2,
            ..rule()
        };
        let record = Record::default();
        let note = |status| record.note(&rule, EndpointOutcome::Response(status));
        assert!(!note(503) && !note(503) && !note(503));
        assert!(!note(429));
        // Another status is none, and begins the count anew.
        assert!(!note(501) && !note(500));
        assert!(note(429));
    }
}
