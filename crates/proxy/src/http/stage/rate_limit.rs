//! How often a route serves requests.

use super::dry_run::StageVerdict;
use super::{Flow, RequestState, Scene, Serving};
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::policy::cors::Additions;
use crate::policy::{client, limit};

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
    serving: &mut Serving<'_>,
) -> Result<Flow, FailureKind> {
    let limits = &request.taken()?.route.policy.rate_limits;
    if limits.is_empty() || request.is_counted {
        return Ok(Flow::Continue);
    }
    let local = &serving.worker.local;
    let peer = scene.visit.client.ip();
    let client = client::address(request.head.get(), peer, scene.trusted_hops);
    let Some(wait) = limit::wait(limits, &local.buckets, &local.counts, client) else {
        return Ok(Flow::Continue);
    };
    let mut additions = Additions::new();
    additions.push(("retry-after", limit::retry_after(wait)));
    Ok(Flow::answer(
        LocalReply::failed(FailureKind::RateLimited).with(additions),
    ))
}

/// What is left of a limit is not known here, and asking takes nothing from it.
pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let peer = scene.visit.client.ip();
    let client = client::address(request.head.get(), peer, scene.trusted_hops);
    let limits = taken.route.policy.rate_limits.iter();
    let counted = limits
        .filter(|limit| limit.exempt.is_empty() || !client::is_allowed(&limit.exempt, client));
    let told: Vec<String> = counted
        .map(|limit| {
            let interval = match limit.interval.as_secs() {
                1 => "second".to_owned(),
                60 => "minute".to_owned(),
                3_600 => "hour".to_owned(),
                seconds => format!("{seconds} seconds"),
            };
            let (requests, burst) = (limit.requests, limit.burst);
            let each = if limit.is_per_client {
                " and client"
            } else {
                ""
            };
            format!("may be limited to {requests} per {interval}{each}, {burst} more at once")
        })
        .collect();
    match told.is_empty() {
        true => StageVerdict::Silent,
        false => StageVerdict::Passes(format!("{}: 429 beyond", told.join("; "))),
    }
}
