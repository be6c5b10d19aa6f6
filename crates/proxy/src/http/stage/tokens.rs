//! Signed tokens: verified, and taken out of the head or put into it as their issuers want.
//!
//! A request without a token goes on; whether it may is the next stages' question.

use myriad_base::clock;

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene, Serving, Token, route};
use crate::failure::FailureKind;
use crate::policy::cors;
use crate::policy::token::{self, BadToken, Remembered, Verified};

pub(super) fn apply<'a>(
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
    serving: &mut Serving<'_>,
) -> Result<Flow, FailureKind> {
    if scene.tables.access_policies().is_empty() {
        return Ok(Flow::Continue);
    }
    let Ok(verified) = authenticate(request, scene, &serving.worker.tokens) else {
        route::note(request, scene, serving);
        return Err(FailureKind::BadToken);
    };
    pass_on(request, scene, verified);
    Ok(Flow::Continue)
}

pub(super) fn explain<'a>(request: &mut RequestState<'a, '_>, scene: &Scene<'a>) -> StageVerdict {
    let issuers = || {
        scene
            .tables
            .access_policies()
            .issuers(&scene.visit.listener)
    };
    let named = |name: &str| match name {
        "" => "any issuer".to_owned(),
        name => name.to_owned(),
    };
    let all: Vec<String> = issuers().map(|(it, _)| named(&it.issuer)).collect();
    if matches!(request.token, Token::Kept(_)) {
        return StageVerdict::Passes("the claims of the question count as verified".to_owned());
    }
    if all.is_empty() {
        return StageVerdict::Silent;
    }
    if cors::is_preflight(request.head.get()) {
        return StageVerdict::Passes("a preflight is not asked for a token".to_owned());
    }
    match authenticate(request, scene, &Remembered::default()) {
        Ok(None) => StageVerdict::Passes(format!(
            "the request has no token of {}, and goes on without",
            all.join(", ")
        )),
        Ok(Some(verified)) => {
            let issuer = named(verified.issuer());
            pass_on(request, scene, Some(verified));
            StageVerdict::Passes(format!("the token of {issuer} is valid"))
        }
        Err(BadToken) => {
            let missing = issuers().filter(|(_, keys)| keys.now().is_none());
            let missing: Vec<String> = missing.map(|(it, _)| named(&it.issuer)).collect();
            let why = match missing.is_empty() {
                true => String::new(),
                false => format!("; the keys of {} are not here", missing.join(", ")),
            };
            let text = format!("the token is not a valid one of {}{why}", all.join(", "));
            DryRunEnd::refused(FailureKind::BadToken, text)
        }
    }
}

/// The token of a request. A preflight bears none, and is judged as what it is.
fn authenticate<'a>(
    request: &RequestState<'a, '_>,
    scene: &Scene<'a>,
    remembered: &Remembered,
) -> Result<Option<Verified<'a>>, BadToken> {
    let head = request.head.get();
    if cors::is_preflight(head) {
        return Ok(None);
    }
    let now = clock::unix_seconds();
    token::authenticate(
        scene.tables.access_policies(),
        scene.visit,
        head,
        remembered,
        now,
        scene.budget,
    )
}

/// Makes the head what everything behind this stage sees.
fn pass_on<'a>(
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
    verified: Option<Verified<'a>>,
) {
    if let Some(room) = request.room.take() {
        let access_policies = scene.tables.access_policies();
        let sent = request.head.sent;
        let changed = token::change(access_policies, scene.visit, sent, verified.as_ref(), room);
        request.head.changed = changed.map(Box::new);
    }
    if let Some(verified) = verified {
        request.token = Token::Verified(verified);
    }
}
