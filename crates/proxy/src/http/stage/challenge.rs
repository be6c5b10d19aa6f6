//! The answers to challenges of certificate authorities (RFC 8555, section 8.3), before anything
//! that the host has to say. A token that is not known here is left to the routes of the host, so
//! that whoever obtains certificates by other means goes on doing so.

use std::sync::Arc;

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene};
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::route::challenge::ChallengeEntry;

/// The path below which tokens are.
const PREFIX: &str = "/.well-known/acme-challenge/";

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
) -> Result<Flow, FailureKind> {
    let found = find(request, scene);
    let Some(answer) = found.and_then(|entry| entry.answer()) else {
        return Ok(Flow::Continue);
    };
    let text = answer.text.as_bytes();
    let mut reply = LocalReply::empty(200);
    reply.body = Some(text.into());
    let kind = (*b"application/octet-stream").into();
    reply.additions.push(("content-type", kind));
    Ok(Flow::answer(reply))
}

pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let path = &*request.head.get().path;
    match find(request, scene) {
        Some(_) => DryRunEnd::answered(200, "is the answer to a challenge of an authority"),
        None if path.starts_with(PREFIX) => {
            StageVerdict::Passes("no challenge has this token, so it is left to routes".to_owned())
        }
        None => StageVerdict::Silent,
    }
}

/// The answer to a request for a token of its host.
fn find<'a>(request: &RequestState<'_, '_>, scene: &Scene<'a>) -> Option<&'a Arc<ChallengeEntry>> {
    let head = request.head.get();
    let token = head.path.strip_prefix(PREFIX)?;
    let is_asked = matches!(head.method, "GET" | "HEAD");
    is_asked.then(|| scene.tables.challenge(&head.host, token))?
}
