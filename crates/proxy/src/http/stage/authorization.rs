//! The stage of the listener's policies, which deny and allow. Where a provider is asked, they are
//! weighed once it has answered, on the request as it has left it.

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene, Serving, route};
use crate::failure::FailureKind;
use crate::policy::authorize::{self, Weighed};
use crate::route::access_policies::AccessPolicies;
use crate::telemetry::count::{Count, Counts};

pub(super) fn apply<'a>(
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
    serving: &mut Serving<'_>,
) -> Result<Flow, FailureKind> {
    let is_later = !request.providers.is_empty();
    let access_policies = scene.tables.access_policies();
    if is_later || access_policies.is_empty() || admits(request, access_policies, scene, serving) {
        return Ok(Flow::Continue);
    }
    route::note(request, scene, serving);
    Err(FailureKind::Unauthorized)
}

pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let access_policies = scene.tables.access_policies();
    let judged = judged(request, scene);
    let verdict = authorize::judge(access_policies, &judged, &Counts::new());
    let named = |wanted: Weighed| -> Vec<String> {
        let all = authorize::weighed(access_policies, &judged).into_iter();
        let wanted = all.filter(|(_, weighed)| *weighed == wanted);
        let resources = wanted.filter_map(|(sealed, _)| sealed.resource());
        resources.map(|it| it.origin.to_string()).collect()
    };
    let denied = named(Weighed::Denies);
    let allowed = named(Weighed::Allows);
    let passed_over = named(Weighed::DoesNotAllow);
    if !verdict.is_admitted {
        let text = match denied.is_empty() {
            false => format!("denied by {}", denied.join(", ")),
            true => format!("allowed by none of {}", passed_over.join(", ")),
        };
        let client = scene.visit.client.ip();
        let text = format!("{text}, for a client at {client}");
        return DryRunEnd::refused(FailureKind::Unauthorized, text);
    }
    match allowed.is_empty() {
        true if access_policies
            .authorizing(&scene.visit.listener)
            .next()
            .is_none() =>
        {
            StageVerdict::Silent
        }
        true => StageVerdict::Passes("no policy denies the request".to_owned()),
        false => StageVerdict::Passes(format!("allowed by {}", allowed.join(", "))),
    }
}

/// Whether the access policies that nobody has to be asked for admit a request.
pub(super) fn admits(
    request: &RequestState<'_, '_>,
    access_policies: &AccessPolicies,
    scene: &Scene<'_>,
    serving: &mut Serving<'_>,
) -> bool {
    let counts = &serving.worker.local.counts;
    let judgement = authorize::judge(access_policies, &judged(request, scene), counts);
    if judgement.is_audited {
        serving.account.is_audited = true;
        counts.add(Count::Audited);
    }
    judgement.is_admitted
}

/// The parts of a request that policies judge.
pub(super) fn judged<'s, 'h>(
    request: &'s RequestState<'_, 'h>,
    scene: &Scene<'s>,
) -> authorize::JudgedRequest<'s, 'h> {
    authorize::JudgedRequest {
        visit: scene.visit,
        head: request.head.get(),
        token: request.token.said(),
        trusted_hops: scene.trusted_hops,
        budget: scene.budget,
    }
}
