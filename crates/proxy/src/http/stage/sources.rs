//! The client addresses that a route admits.

use myriad_model::Policy;

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene};
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::policy::client;

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
) -> Result<Flow, FailureKind> {
    let policy = &request.taken()?.route.policy;
    admit(policy, request.head.get(), scene)?;
    Ok(Flow::Continue)
}

pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let (policy, head) = (&taken.route.policy, request.head.get());
    if policy.sources_allowed.is_empty() {
        return StageVerdict::Silent;
    }
    let nets = policy.sources_allowed.iter().map(ToString::to_string);
    let nets = nets.collect::<Vec<String>>().join(", ");
    let client = client::address(head, scene.visit.client.ip(), scene.trusted_hops);
    match admit(policy, head, scene) {
        Ok(()) => StageVerdict::Passes(format!("{client} is one of the clients in {nets}")),
        Err(kind) => DryRunEnd::refused(
            kind,
            format_args!("only clients in {nets} are admitted, and {client} is not among them"),
        ),
    }
}

/// Whether a route admits the client of a request.
///
/// # Errors
/// That it does not.
pub(super) fn admit(
    policy: &Policy,
    head: &Head<'_>,
    scene: &Scene<'_>,
) -> Result<(), FailureKind> {
    if policy.sources_allowed.is_empty() {
        return Ok(());
    }
    let address = client::address(head, scene.visit.client.ip(), scene.trusted_hops);
    match client::is_allowed(&policy.sources_allowed, address) {
        true => Ok(()),
        false => Err(FailureKind::Forbidden),
    }
}
