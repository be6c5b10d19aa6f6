//! How long requests may take, and when they are tried again.

use std::time::Duration;

use myriad_api::gateway::{HttpRouteRetry, HttpRouteTimeouts};
use myriad_model::{Policy, Retry, RetryConditions};

use super::fault::RuleFaults;

/// The longest time to connect to an endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time between two reads or writes where a rule says nothing of time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The longest time that proxies know, which stands for no limit: 49 days.
const NO_LIMIT: Duration = Duration::from_millis(0xffff_ffff);

/// The repetitions of a rule that does not say how many there may be.
const RETRY_ATTEMPTS: u8 = 2;

/// The wait before the first repetition of a rule that does not say how long it is.
const RETRY_BACKOFF: Duration = Duration::from_millis(25);

/// The policy of a rule that says nothing.
pub(super) fn usual() -> Policy {
    Policy {
        connect_timeout: CONNECT_TIMEOUT,
        read_timeout: IDLE_TIMEOUT,
        send_timeout: IDLE_TIMEOUT,
        ..Policy::default()
    }
}

/// Sets how long requests may take. Where a rule says so, nothing else ends them.
pub(super) fn limit(written: &HttpRouteTimeouts, policy: &mut Policy, faults: &mut RuleFaults) {
    let HttpRouteTimeouts {
        request,
        backend_request: attempt,
    } = written;
    if request.is_none() && attempt.is_none() {
        return;
    }
    (policy.read_timeout, policy.send_timeout) = (NO_LIMIT, NO_LIMIT);
    policy.request_timeout = request.unwrap_or_default().min(NO_LIMIT);
    policy.attempt_timeout = attempt.unwrap_or_default().min(NO_LIMIT);
    if !policy.request_timeout.is_zero() && policy.attempt_timeout > policy.request_timeout {
        faults.change(
            "timeouts.backendRequest",
            "is longer than timeouts.request, which ends requests before it does",
            "write a shorter one, or a longer timeouts.request",
        );
    }
}

/// The rule by which requests are tried again.
pub(super) fn retry(written: &HttpRouteRetry, faults: &mut RuleFaults) -> Retry {
    let attempts = match written.attempts {
        Some(attempts) => u8::try_from(attempts).unwrap_or(u8::MAX),
        None => RETRY_ATTEMPTS,
    };
    if attempts > Retry::ATTEMPTS_MAX {
        faults.change(
            "retry.attempts",
            format!(
                "asks for more repetitions than the {} that are made at most",
                Retry::ATTEMPTS_MAX
            ),
            "write a smaller number",
        );
    }
    let mut statuses = written.codes.to_vec();
    statuses.sort_unstable();
    statuses.dedup();
    // Proxies wait half as long at least, and what is written is the least.
    let backoff = written.backoff.unwrap_or(RETRY_BACKOFF).min(NO_LIMIT);
    Retry {
        attempts: attempts.min(Retry::ATTEMPTS_MAX),
        try_timeout: Duration::ZERO,
        conditions: RetryConditions::CONNECT_FAILURE
            | RetryConditions::RESET
            | RetryConditions::REFUSED_STREAM,
        statuses: statuses.into(),
        backoff: backoff.saturating_mul(2).min(NO_LIMIT),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_api::gateway::{HttpRouteRetry, HttpRouteTimeouts};
    use myriad_model::{Retry, RetryConditions};

    use super::{IDLE_TIMEOUT, NO_LIMIT, RuleFaults, limit, retry, usual};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_timeout_that_is_written_is_the_only_one() {
        let (zero, long) = (Duration::ZERO, SECOND * 60 * 60 * 99_999);
        for (request, attempt, expected) in [
            (None, None, (zero, zero, IDLE_TIMEOUT)),
            (Some(SECOND), None, (SECOND, zero, NO_LIMIT)),
            (None, Some(SECOND), (zero, SECOND, NO_LIMIT)),
            (Some(zero), None, (zero, zero, NO_LIMIT)),
            (None, Some(zero), (zero, zero, NO_LIMIT)),
            (
                Some(SECOND * 2),
                Some(SECOND),
                (SECOND * 2, SECOND, NO_LIMIT),
            ),
            (Some(long), Some(long), (NO_LIMIT, NO_LIMIT, NO_LIMIT)),
            (Some(zero), Some(SECOND), (zero, SECOND, NO_LIMIT)),
        ] {
            let (mut policy, mut faults) = (usual(), RuleFaults::default());
            let written = HttpRouteTimeouts {
                request,
                backend_request: attempt,
            };
            limit(&written, &mut policy, &mut faults);
            assert_eq!(policy.read_timeout, policy.send_timeout);
            let found = (
                policy.request_timeout,
                policy.attempt_timeout,
                policy.read_timeout,
            );
            assert_eq!(found, expected, "{request:?} {attempt:?}");
            assert!(faults.told().is_empty());
        }
    }

    #[test]
    fn an_attempt_that_may_take_longer_than_the_request_is_told() {
        let (mut policy, mut faults) = (usual(), RuleFaults::default());
        let written = HttpRouteTimeouts {
            request: Some(SECOND),
            backend_request: Some(SECOND * 2),
        };
        limit(&written, &mut policy, &mut faults);
        assert_eq!(faults.told()[0].field, "timeouts.backendRequest");
        assert!(faults.dropping().is_none());
    }

    #[test]
    fn requests_are_tried_again_for_codes_and_lost_connections() {
        let mut faults = RuleFaults::default();
        let found = retry(
            &HttpRouteRetry {
                codes: [503, 500, 503].into(),
                attempts: Some(3),
                backoff: Some(SECOND),
            },
            &mut faults,
        );
        let expected = Retry {
            attempts: 3,
            try_timeout: Duration::ZERO,
            conditions: RetryConditions::CONNECT_FAILURE
                | RetryConditions::RESET
                | RetryConditions::REFUSED_STREAM,
            statuses: [500, 503].into(),
            backoff: SECOND * 2,
        };
        assert_eq!(found, expected);
        let found = retry(&HttpRouteRetry::default(), &mut faults);
        assert_eq!((found.attempts, found.statuses.len()), (2, 0));
        assert_eq!(found.backoff, Duration::from_millis(50));
        assert!(faults.told().is_empty());
    }

    #[test]
    fn repetitions_are_bounded() {
        for (attempts, is_beyond) in [(32, false), (33, true), (u32::MAX, true)] {
            let written = HttpRouteRetry {
                attempts: Some(attempts),
                ..HttpRouteRetry::default()
            };
            let mut faults = RuleFaults::default();
            let found = retry(&written, &mut faults);
            assert_eq!(found.attempts, Retry::ATTEMPTS_MAX);
            assert_eq!(faults.told().len(), usize::from(is_beyond), "{attempts}");
        }
    }
}
