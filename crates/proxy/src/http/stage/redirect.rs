//! The redirect to HTTPS of what comes in plain text.

use myriad_model::TlsRedirect;

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene};
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::policy::{client, redirect};

pub(super) fn apply<'a>(
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
) -> Result<Flow, FailureKind> {
    Ok(match target(request, scene)? {
        Some((rule, url)) => Flow::answer(LocalReply::redirect(rule.status, url)),
        None => Flow::Continue,
    })
}

pub(super) fn explain<'a>(request: &mut RequestState<'a, '_>, scene: &Scene<'a>) -> StageVerdict {
    match target(request, scene) {
        Ok(Some((rule, url))) => {
            DryRunEnd::answered(rule.status, format_args!("is redirected to {url}"))
        }
        Ok(None) => StageVerdict::Silent,
        Err(kind) => DryRunEnd::refused(kind, kind.verdict().text.trim_end()),
    }
}

/// Where the request is sent, unless it came by HTTPS.
fn target<'a>(
    request: &RequestState<'a, '_>,
    scene: &Scene<'a>,
) -> Result<Option<(&'a TlsRedirect, String)>, FailureKind> {
    let Some(rule) = &request.taken()?.route.policy.tls_redirect else {
        return Ok(None);
    };
    let head = request.head.get();
    if client::is_secure(head, scene.visit, scene.trusted_hops) {
        return Ok(None);
    }
    Ok(redirect::to_tls(rule, head).map(|url| (rule, url)))
}
