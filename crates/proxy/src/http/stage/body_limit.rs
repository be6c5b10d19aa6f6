//! The declared length of a body; one that declares none is measured while it is passed on.

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState};
use crate::codec::body::BodyLength;
use crate::failure::FailureKind;

pub(super) fn apply(request: &mut RequestState<'_, '_>) -> Result<Flow, FailureKind> {
    let bytes_max = request.taken()?.route.policy.request_body_bytes_max;
    match request.head.get().body {
        BodyLength::Exact(length) if length > bytes_max => Err(FailureKind::BodyTooLarge),
        _ => Ok(Flow::Continue),
    }
}

pub(super) fn explain(request: &mut RequestState<'_, '_>) -> StageVerdict {
    let taken = request.taken();
    let bytes_max = taken.map_or(u64::MAX, |it| it.route.policy.request_body_bytes_max);
    let has_body = request.head.get().body != BodyLength::None;
    match apply(request) {
        Err(kind) => DryRunEnd::refused(
            kind,
            format_args!("the body is longer than {bytes_max} bytes"),
        ),
        Ok(_) if has_body && bytes_max < u64::MAX => {
            StageVerdict::Passes(format!("a body of at most {bytes_max} bytes is taken"))
        }
        Ok(_) => StageVerdict::Silent,
    }
}
