//! How often a route serves requests, and how many at the same time.

use myriad_model::RateLimit;
use smallvec::SmallVec;

use super::dry_run::StageVerdict;
use super::{Flow, RequestState, Scene, Serving};
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::policy::cors::Additions;
use crate::policy::{client, limit};

/// The status of requests beyond those that are served at the same time, as nginx has it.
const AT_ONCE: u16 = 503;

/// The limits of a request: those of its route, and of each other that the endpoint may take it for
/// by another reading of its path.
type AllLimits<'a> = SmallVec<[&'a [RateLimit]; 4]>;

pub(super) fn apply<'a>(
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
    serving: &mut Serving<'_>,
) -> Result<Flow, FailureKind> {
    let all = all_limits(request, scene)?;
    if all.is_empty() || request.is_counted {
        return Ok(Flow::Continue);
    }
    let worker = serving.worker;
    let local = &worker.local;
    let peer = scene.visit.client.ip();
    let client = client::address(request.head.get(), peer, scene.trusted_hops);
    let (buckets, counts) = (&local.buckets, &local.counts);
    let failed = || LocalReply::failed(FailureKind::RateLimited);
    let mut waits = all.iter();
    if let Some(wait) = waits.find_map(|limits| limit::wait(limits, buckets, counts, client)) {
        let mut additions = Additions::new();
        additions.push(("retry-after", limit::retry_after(wait)));
        return Ok(Flow::answer(failed().with(additions)));
    }
    let running = &mut serving.account.running;
    let mut enter = |limits: &&[RateLimit]| limit::enter(limits, buckets, counts, client, running);
    if all.iter().all(&mut enter) {
        return Ok(Flow::Continue);
    }
    let mut answer = failed();
    answer.status = AT_ONCE;
    Ok(Flow::answer(answer))
}

fn all_limits<'a>(
    request: &RequestState<'a, '_>,
    scene: &Scene<'a>,
) -> Result<AllLimits<'a>, FailureKind> {
    let taken = request.taken()?;
    let own: &[RateLimit] = &taken.route.policy.rate_limits;
    let mut all: AllLimits<'a> = [own].into_iter().filter(|own| !own.is_empty()).collect();
    let Scene { tables, visit, .. } = *scene;
    let (head, token) = (request.head.get(), request.token.said());
    for other in tables.routes_otherwise(&visit.listener, taken.entry, head, token, scene.budget) {
        let policy = other.policy();
        let limits: &[RateLimit] = policy.map_or(&[], |policy| &policy.rate_limits);
        if !limits.is_empty() && !all.contains(&limits) {
            all.push(limits);
        }
    }
    match scene.budget.is_spent() {
        true => Err(FailureKind::RegexBudget),
        false => Ok(all),
    }
}

/// Says which limits hold. How much is left of them is not known here, and asking takes nothing.
pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let peer = scene.visit.client.ip();
    let client = client::address(request.head.get(), peer, scene.trusted_hops);
    let limits = taken.route.policy.rate_limits.iter();
    let counted = limits.filter(|limit| !limit::is_exempt(limit, client));
    let told: Vec<String> = counted.map(told).collect();
    match told.is_empty() {
        true => StageVerdict::Silent,
        false => StageVerdict::Passes(told.join("; ")),
    }
}

fn told(limit: &RateLimit) -> String {
    let requests = limit.requests;
    if limit.is_at_once {
        let each = if limit.is_per_client {
            " of a client"
        } else {
            ""
        };
        return format!("may be limited to {requests} at the same time{each}: {AT_ONCE} beyond");
    }
    let interval = match limit.interval.as_secs() {
        1 => "second".to_owned(),
        60 => "minute".to_owned(),
        3_600 => "hour".to_owned(),
        seconds => format!("{seconds} seconds"),
    };
    let burst = limit.burst;
    let each = if limit.is_per_client {
        " and client"
    } else {
        ""
    };
    format!("may be limited to {requests} per {interval}{each}, {burst} more at once: 429 beyond")
}
