//! Whether the host of a request belongs on the connection that it came by (RFC 9110, section 7.4).

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene};
use crate::failure::FailureKind;
use crate::policy::direction;

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
) -> Result<Flow, FailureKind> {
    match direction::is_directed(scene.tables, scene.visit, &request.head.get().host) {
        true => Ok(Flow::Continue),
        false => Err(FailureKind::Misdirected),
    }
}

pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let host = &request.head.get().host;
    if direction::is_directed(scene.tables, scene.visit, host) {
        return StageVerdict::Silent;
    }
    let secured = scene.visit.secured.as_ref();
    let name = secured.and_then(|secured| secured.sni.as_deref());
    let name = name.unwrap_or("no name");
    DryRunEnd::refused(
        FailureKind::Misdirected,
        format_args!("{host} does not belong on a connection whose handshake was for {name}"),
    )
}
