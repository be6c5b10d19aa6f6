//! The common part of attempts at endpoints, whether they carry a request or a stream.

use std::sync::Arc;

use crate::balance::outlier::EndpointOutcome;
use crate::balance::{Choice, Endpoint, Pool, now_ms};
use crate::failure::{Failure, FailureKind, Retry};
use crate::telemetry::count::{Count, Counts};

/// The endpoint of an attempt.
///
/// # Errors
/// That there is none, or none that is healthy.
pub fn choose<'p>(pool: &'p Pool, choice: &Choice<'_>) -> Result<&'p Arc<Endpoint>, FailureKind> {
    pool.choose(choice).ok_or(match pool.is_empty() {
        true => FailureKind::NoEndpoint,
        false => FailureKind::Ejected,
    })
}

/// Takes note of what became of an attempt, as far as it tells of the endpoint.
pub fn note(counts: &Counts, pool: &Pool, target: &Endpoint, outcome: EndpointOutcome) {
    if pool.note(target, outcome, now_ms) {
        counts.add(Count::UpstreamEjected);
    }
}

/// Whether an attempt that found no connection may be made once more, at another endpoint.
pub fn may_change(failure: &Failure, pool: &Pool) -> bool {
    failure.retry == Retry::Yes && pool.len() > 1
}
