//! The certificates that routes ask of clients: who is served by one, and what endpoints are told.
//!
//! Endpoints go by fields that begin with `ssl-client-`, as they do behind ingress-nginx. What a
//! client sends by such names, or by others that servers read as these, is never passed on where a
//! route asks.

use myriad_model::{CertificateDemand, CertificateNeed};

use crate::codec::field::tells_of_certificate;
use crate::failure::FailureKind;
use crate::pattern::{Budget, Pattern};
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::shown_certificate::{CertificateVerdict, ShownCertificate};

/// Why a certificate of an authority that nobody knows was not verified, in the words of OpenSSL.
const UNKNOWN: &str = "unable to verify the first certificate";

/// Whether a field is one that tells of a certificate, or that servers take for one.
pub fn is_told_by(name: &str) -> bool {
    tells_of_certificate(name)
}

/// Whether a client is served by the certificate that it has shown. `subject` is the regex of the
/// demand.
///
/// # Errors
/// That it has none that suffices, or that its subject is another.
pub fn judge(
    demand: &CertificateDemand,
    subject: Option<&Pattern>,
    visit: &DownstreamConnection,
    budget: &Budget,
) -> Result<(), FailureKind> {
    if demand.spares_plain_text && visit.secured.is_none() {
        return Ok(());
    }
    let shown = shown(demand, visit);
    let is_served = match (demand.need, shown.map(|it| it.verdict)) {
        (_, Some(CertificateVerdict::Verified)) => true,
        (CertificateNeed::Verified, _) => false,
        (CertificateNeed::VerifiedIfAny | CertificateNeed::AnyAuthority, None) => true,
        (CertificateNeed::AnyAuthority, Some(CertificateVerdict::UnknownAuthority)) => true,
        (CertificateNeed::VerifiedIfAny | CertificateNeed::AnyAuthority, Some(_)) => false,
    };
    if !is_served {
        return Err(FailureKind::BadCertificate);
    }
    let fits = demand.subject.is_empty()
        || shown.zip(subject).is_some_and(|(shown, pattern)| {
            let names = shown.common_names.iter();
            let mut rests = names.filter_map(|at| shown.subject.get(*at..));
            rests.any(|rest| pattern.is_match(rest.as_bytes(), budget))
        });
    match (fits, budget.is_spent()) {
        (true, _) => Ok(()),
        (false, false) => Err(FailureKind::CertificateRefused),
        (false, true) => Err(FailureKind::RegexBudget),
    }
}

/// Calls `field` with what an endpoint is told, each value in parts.
pub fn tell(
    demand: &CertificateDemand,
    visit: &DownstreamConnection,
    mut field: impl FnMut(&str, &[&[u8]]),
) {
    let shown = shown(demand, visit);
    let (word, why) = match shown.map(|it| it.verdict) {
        None => ("NONE", ""),
        Some(CertificateVerdict::Verified) => ("SUCCESS", ""),
        Some(CertificateVerdict::UnknownAuthority) => ("FAILED:", UNKNOWN),
        Some(CertificateVerdict::Failed(why)) => ("FAILED:", why),
    };
    field("ssl-client-verify", &[word.as_bytes(), why.as_bytes()]);
    let Some(shown) = shown else { return };
    let certificate = match demand.is_passed_on {
        true => shown.escaped(),
        false => "",
    };
    for (name, value) in [
        ("ssl-client-subject-dn", &*shown.subject),
        ("ssl-client-issuer-dn", &*shown.issuer),
        ("ssl-client-cert", certificate),
    ] {
        if !value.is_empty() {
            field(name, &[value.as_bytes()]);
        }
    }
}

/// The certificate that a client has shown to the trust of a demand.
fn shown<'v>(
    demand: &CertificateDemand,
    visit: &'v DownstreamConnection,
) -> Option<&'v ShownCertificate> {
    let secured = visit.secured.as_ref()?;
    let auth = secured.client_auth.as_ref()?;
    let shown = secured.shown.as_deref();
    shown.filter(|_| auth.trust == demand.trust)
}

#[cfg(test)]
mod tests;
