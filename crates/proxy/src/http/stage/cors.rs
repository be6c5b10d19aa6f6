//! Cross-origin requests: preflights are answered, and others get their leave put on the response.

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene};
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::policy::cors;

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
) -> Result<Flow, FailureKind> {
    let taken = request.taken()?;
    let Some(rules) = &taken.route.policy.cors else {
        return Ok(Flow::Continue);
    };
    let (head, budget) = (request.head.get(), scene.budget);
    let is_preflight = cors::is_preflight(head);
    let regexes = taken.entry.origin_regexes();
    let mut additions = cors::additions(rules, regexes, head, is_preflight, budget);
    if budget.is_spent() {
        return Err(FailureKind::RegexBudget);
    }
    match is_preflight && rules.forwards_unmatched && !cors::is_leave(&additions) {
        // Its endpoint says what it thinks of the origin.
        true => additions.clear(),
        false if is_preflight => return Ok(Flow::answer(LocalReply::empty(204).with(additions))),
        false => {}
    }
    request.additions = additions;
    Ok(Flow::Continue)
}

pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let is_asked = request
        .taken()
        .is_ok_and(|it| it.route.policy.cors.is_some());
    match apply(request, scene) {
        Ok(Flow::Continue) if !is_asked => StageVerdict::Silent,
        Ok(Flow::Continue) if cors::is_leave(&request.additions) => {
            StageVerdict::Passes("the origin gets leave to read the response".to_owned())
        }
        Ok(Flow::Continue) => {
            StageVerdict::Passes("no origin gets leave by this request".to_owned())
        }
        Ok(Flow::Answer(answer)) => {
            let leave = match cors::is_leave(&answer.additions) {
                true => "gets leave",
                false => "gets no leave",
            };
            let text = format!("the proxy answers the preflight, whose origin {leave}");
            DryRunEnd::answered(answer.status, text)
        }
        Ok(Flow::Forward(_)) => StageVerdict::Silent,
        Err(kind) => DryRunEnd::refused(kind, "the regexes of origins take too many steps"),
    }
}
