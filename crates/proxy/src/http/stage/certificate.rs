//! The certificate that the client has shown, where the handshake has left it to the route: 400
//! without one that suffices, and 403 where its subject is another.

use myriad_model::{CertificateDemand, CertificateNeed};

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene};
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::policy::client_certificate;
use crate::route::entry::RouteEntry;

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
) -> Result<Flow, FailureKind> {
    let taken = request.taken()?;
    let Some(demand) = taken.route.policy.client_certificate.as_deref() else {
        return Ok(Flow::Continue);
    };
    match judge(taken.entry, demand, scene) {
        Ok(()) => Ok(Flow::Continue),
        Err(kind @ FailureKind::BadCertificate) if !demand.error_page.is_empty() => {
            let mut answer = LocalReply::redirect(302, demand.error_page.clone());
            answer.failure = Some(kind);
            Ok(Flow::answer(answer))
        }
        Err(kind) => Err(kind),
    }
}

/// Whether the client is served by its certificate, as a route demands.
///
/// # Errors
/// Why it is not.
pub(super) fn judge(
    entry: &RouteEntry,
    demand: &CertificateDemand,
    scene: &Scene<'_>,
) -> Result<(), FailureKind> {
    let subject = entry.subject_regex();
    client_certificate::judge(demand, subject, scene.visit, scene.budget)
}

/// Nobody has shown anything for a question: it is as for a client that has what is asked for,
/// where the handshake asks at all.
pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let Some(demand) = taken.route.policy.client_certificate.as_deref() else {
        return StageVerdict::Silent;
    };
    let (visit, trust) = (scene.visit, &demand.trust);
    if demand.spares_plain_text && visit.secured.is_none() {
        return StageVerdict::Passes("plain text needs no client certificate here".to_owned());
    }
    let auth = visit.secured.as_ref();
    let auth = auth.and_then(|secured| secured.client_auth.as_ref());
    let is_asked = auth.is_some_and(|auth| auth.trust == *trust);
    let named = match &*demand.subject {
        "" => String::new(),
        subject => format!(", and 403 where its subject does not match {subject:?}"),
    };
    match (is_asked, demand.need) {
        (false, CertificateNeed::Verified) => {
            let text = format!("a client certificate by {trust} is needed, and none is asked for");
            DryRunEnd::refused(FailureKind::BadCertificate, text)
        }
        (false, _) if !demand.subject.is_empty() => {
            let text =
                format!("the subject of a certificate by {trust} is needed, and none is asked for");
            DryRunEnd::refused(FailureKind::CertificateRefused, text)
        }
        (false, _) => StageVerdict::Passes(format!(
            "the client is asked for no certificate by {trust}, and needs none"
        )),
        (true, CertificateNeed::Verified) => StageVerdict::Passes(format!(
            "the client has a certificate that {trust} verifies: 400 without{named}"
        )),
        (true, CertificateNeed::VerifiedIfAny) => StageVerdict::Passes(format!(
            "a client certificate is asked for: 400 where {trust} does not verify it{named}"
        )),
        (true, CertificateNeed::AnyAuthority) => StageVerdict::Passes(format!(
            "a client certificate is asked for, by {trust} or of any authority: 400 where it is \
             not valid{named}"
        )),
    }
}
