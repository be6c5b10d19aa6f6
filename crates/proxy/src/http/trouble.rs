//! Answers of 5xx that the proxy gives itself, on the log now and then: whoever has no access log
//! learns from it why a request failed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use myriad_base::clock;
use myriad_base::log::suppressed::Topic;

use crate::failure::FailureKind;
use crate::route::entry::RouteEntry;

/// When a reason may be told again, and how often it was not told since.
struct Reason {
    told: AtomicI64,
    left_out: AtomicU64,
}

impl Reason {
    const fn new() -> Self {
        Reason {
            told: AtomicI64::new(i64::MIN),
            left_out: AtomicU64::new(0),
        }
    }

    /// Makes room for one line in a second; gives how many were left out before it.
    fn admit(&self, now: i64) -> Option<u64> {
        let is_due = |told: i64| (told != now).then_some(now);
        match self.told.fetch_update(Relaxed, Relaxed, is_due) {
            Ok(_) => Some(self.left_out.swap(0, Relaxed)),
            Err(_) => {
                self.left_out.fetch_add(1, Relaxed);
                Topic::Failure.suppress();
                None
            }
        }
    }
}

/// Tells of a failure that is answered with a status of 5xx: one line a second for each reason,
/// with how many were left out before. Faults that are made on purpose are none.
pub fn tell<'a>(
    kind: FailureKind,
    status: u16,
    host: &str,
    route: impl FnOnce() -> Option<&'a RouteEntry>,
) {
    static REASONS: [Reason; FailureKind::ALL.len()] =
        [const { Reason::new() }; FailureKind::ALL.len()];
    let verdict = kind.verdict();
    if status < 500 || kind == FailureKind::FaultAbort {
        return;
    }
    let reason = REASONS.get(kind as usize);
    let Some(left_out) = reason.and_then(|it| it.admit(clock::unix_seconds())) else {
        return;
    };
    let origin = route().and_then(|route| route.origin());
    let route = origin.map(|it| it.to_string()).unwrap_or_default();
    tracing::warn!(
        reason = verdict.flag,
        ?host,
        route,
        left_out,
        "answered {status} itself: {}",
        verdict.text.trim_end()
    );
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn a_reason_is_one_line_a_second_and_a_count() {
        let reason = Reason::new();
        let lines: Vec<Option<u64>> = [5, 5, 5, 6, 7].map(|now| reason.admit(now)).into();
        assert_eq!(lines, [Some(0), None, None, Some(2), Some(0)]);
    }
}
