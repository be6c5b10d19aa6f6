//! Trouble that is made on purpose: a wait, or an answer in place of the endpoint's.

use myriad_model::{AbortAnswer, Share};

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Serving};
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::policy::fault;
use crate::telemetry::count::Count;

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    serving: &mut Serving<'_>,
) -> Result<Flow, FailureKind> {
    let Some(rule) = &request.taken()?.route.policy.fault else {
        return Ok(Flow::Continue);
    };
    let local = &serving.worker.local;
    let trouble = fault::draw(rule, &local.dice);
    request.delay = trouble.delay;
    if !trouble.delay.is_zero() {
        serving.account.is_delayed = true;
        local.counts.add(Count::FaultDelayed);
    }
    Ok(match trouble.abort {
        Some(answer) => {
            let additions = std::mem::take(&mut request.additions);
            Flow::answer(LocalReply::aborted(answer).with(additions))
        }
        None => Flow::Continue,
    })
}

pub(super) fn explain(request: &mut RequestState<'_, '_>) -> StageVerdict {
    let taken = request.taken();
    let Some(rule) = taken.ok().and_then(|it| it.route.policy.fault.as_ref()) else {
        return StageVerdict::Silent;
    };
    let mut told = Vec::new();
    if let Some(delay) = &rule.delay {
        let (share, wait) = (percent(delay.share), delay.delay.as_millis());
        told.push(format!("{share} of requests wait {wait} ms"));
    }
    if let Some(abort) = &rule.abort {
        let answer = match abort.answer {
            AbortAnswer::Status(status) => format!("{status}"),
            AbortAnswer::Grpc(status) => format!("status {status} of gRPC"),
        };
        if abort.share == Share::ALL {
            let status = LocalReply::aborted(abort.answer).status;
            return StageVerdict::Ends(DryRunEnd {
                status: Some(status),
                failure: Some(FailureKind::FaultAbort),
                text: format!("{status}: all requests get {answer} on purpose"),
            });
        }
        let share = percent(abort.share);
        told.push(format!("{share} of requests get {answer} on purpose"));
    }
    match told.is_empty() {
        true => StageVerdict::Silent,
        false => StageVerdict::Passes(told.join("; ")),
    }
}

fn percent(share: Share) -> String {
    format!("{}%", f64::from(share.ppm()) / 10_000.0)
}
