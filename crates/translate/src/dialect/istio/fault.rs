//! Faults that a rule injects, and shares of requests.

use myriad_api::istio::virtual_service::{FaultAbort, FaultDelay, HttpFault, Percent};
use myriad_model::{Abort, AbortAnswer, Delay, Fault, Share};

use super::rule_problem::RuleProblem;

/// The fault; none where nothing is delayed or aborted.
pub(super) fn build(written: &HttpFault, problems: &mut Vec<RuleProblem>) -> Option<Fault> {
    let delay = written.delay.as_ref().and_then(|it| delay(it, problems));
    let abort = written.abort.as_ref().and_then(|it| abort(it, problems));
    (delay.is_some() || abort.is_some()).then_some(Fault { delay, abort })
}

fn delay(written: &FaultDelay, problems: &mut Vec<RuleProblem>) -> Option<Delay> {
    let share = match (written.percentage, written.percent) {
        (Some(percent), _) => share(percent, "fault.delay.percentage", problems)?,
        (None, 0) => Share::ALL,
        (None, percent) => Share::from_ppm(percent.saturating_mul(10_000)).unwrap_or(Share::ALL),
    };
    let delay = written.fixed_delay.filter(|delay| !delay.is_zero())?;
    Some(Delay { share, delay })
}

fn abort(written: &FaultAbort, problems: &mut Vec<RuleProblem>) -> Option<Abort> {
    let share = match written.percentage {
        Some(percent) => share(percent, "fault.abort.percentage", problems)?,
        None => Share::ALL,
    };
    let answer = match (&written.http_status, &written.grpc_status) {
        (Some(status @ 200..=599), _) => Some(AbortAnswer::Status(*status)),
        (None, Some(word)) => grpc_status(word).map(AbortAnswer::Grpc),
        _ => None,
    };
    if answer.is_none() {
        problems.push(RuleProblem {
            field: "fault.abort".into(),
            message: "has no status that can be answered, so nothing is aborted".into(),
            remedy: "write httpStatus from 200 to 599, or grpcStatus",
        });
    }
    Some(Abort {
        share,
        answer: answer?,
    })
}

/// The number of a gRPC status, by its name or number (gRPC's status codes).
fn grpc_status(word: &str) -> Option<u8> {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let upper = word.to_ascii_uppercase();
    let named = NAMES.iter().position(|name| *name == upper);
    let number = named.or_else(|| word.parse().ok())?;
    u8::try_from(number)
        .ok()
        .filter(|number| (1..=16).contains(number))
}

/// A share; none, and nothing is done, where it is 0 or no share.
pub(super) fn share(
    percent: Percent,
    field: &str,
    problems: &mut Vec<RuleProblem>,
) -> Option<Share> {
    let ppm = percent.value * 10_000.0;
    if !(0.0..=1_000_000.0).contains(&ppm) {
        problems.push(RuleProblem {
            field: field.into(),
            message: format!(
                "is {}, which is no percentage and has no effect",
                percent.value
            ),
            remedy: "write a number from 0 to 100",
        });
        return None;
    }
    Share::from_ppm(ppm.round() as u32).filter(|share| share.ppm() > 0)
}

#[cfg(test)]
mod tests {
    use super::grpc_status;

    #[test]
    fn a_grpc_status_has_a_name_and_a_number() {
        assert_eq!(grpc_status("UNAVAILABLE"), Some(14));
        assert_eq!(grpc_status("14"), Some(14));
        assert_eq!(grpc_status("OK"), None);
        assert_eq!(grpc_status("99"), None);
    }
}
