//! The provider that a route has asked whether a request may pass, beside those of access policies.
//! It is asked with them, once all that refuses a request without asking has let it pass.

use myriad_model::{Policy, Provider};

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Authorizer, Flow, RequestState, Scene, sources};
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::route::tables::upstream_hash;

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
) -> Result<Flow, FailureKind> {
    let taken = request.taken()?;
    if asked(taken.route.policy, request.head.get(), scene).is_some() {
        let entry = taken.entry.clone();
        request.providers.push(Authorizer::OfRoute(entry));
    }
    Ok(Flow::Continue)
}

/// Says whom it would ask: the answer is not known here.
pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let policy = taken.route.policy;
    let Some(provider) = policy.authorizer.as_deref() else {
        return StageVerdict::Silent;
    };
    if sources::suffices(policy, request.head.get(), scene) {
        return StageVerdict::Passes("the address suffices, so that no provider is asked".into());
    }
    let (upstream, status) = (&provider.upstream, provider.error_status);
    let found = scene.tables.upstream(upstream_hash(upstream), upstream);
    let is_there = found.is_some_and(|it| it.upstream.is_some());
    match (is_there, provider.fail_open) {
        (true, _) => StageVerdict::Passes(format!("asks {upstream}, which may refuse it")),
        (false, true) => StageVerdict::Passes(format!("{upstream} is missing, and is passed by")),
        (false, false) => StageVerdict::Ends(DryRunEnd {
            status: Some(status),
            failure: Some(FailureKind::ProviderFailed),
            text: format!("{status}: {upstream} is asked whether it may pass, and is missing"),
        }),
    }
}

/// The provider that a route has asked about a request; none where the client's address suffices.
pub(super) fn asked<'p>(
    policy: &'p Policy,
    head: &Head<'_>,
    scene: &Scene<'_>,
) -> Option<&'p Provider> {
    let provider = policy.authorizer.as_deref()?;
    (!sources::suffices(policy, head, scene)).then_some(provider)
}
