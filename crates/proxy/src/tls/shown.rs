//! Certificates that clients show where any may be: what becomes of one is found out when the
//! handshake is done, also of a session that is resumed, and judged by routes.

use std::time::Duration;

use myriad_base::clock;
use myriad_model::ClientAuth;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::client;
use super::distinguished_name::DistinguishedText;
use crate::net::chain;
use crate::net::wanted_names::WantedNames;
use crate::route::shown_certificate::{CertificateVerdict, ShownCertificate};
use crate::route::trust::TrustEntry;

/// The largest certificate that is looked at, in bytes.
const CERTIFICATE_BYTES_MAX: usize = 16 << 10;

/// The longest names of its subject and issuer as text, in bytes: endpoints are told both.
const NAME_BYTES_MAX: usize = 4 << 10;

/// The result of verifying the first certificate of a chain; none where there is none.
pub fn shown(
    auth: &ClientAuth,
    trust: &TrustEntry,
    chain: &[CertificateDer<'_>],
) -> Option<ShownCertificate> {
    let (leaf, issuers) = chain.split_first()?;
    let Some([subject, issuer]) = names(leaf) else {
        let verdict = CertificateVerdict::Failed("certificate too large or not readable");
        return Some(ShownCertificate::unread(verdict));
    };
    let mut shown = ShownCertificate::new(verify(auth, trust, (leaf, issuers)), leaf);
    shown.subject = subject.text.into();
    shown.common_names = subject.common_names.into();
    shown.issuer = issuer.text.into();
    Some(shown)
}

/// The names of the subject and the issuer; none of a certificate that cannot be read, or that is
/// larger than one may be.
fn names(leaf: &CertificateDer<'_>) -> Option<[DistinguishedText; 2]> {
    if leaf.len() > CERTIFICATE_BYTES_MAX {
        return None;
    }
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    let names = [parsed.subject(), parsed.issuer()].map(DistinguishedText::of);
    let are_short = names.iter().all(|name| name.text.len() <= NAME_BYTES_MAX);
    are_short.then_some(names)
}

fn verify(
    auth: &ClientAuth,
    trust: &TrustEntry,
    (leaf, issuers): (&CertificateDer<'_>, &[CertificateDer<'_>]),
) -> CertificateVerdict {
    const REFUSED: CertificateVerdict = CertificateVerdict::Failed("certificate rejected");
    let Some(verifier) = trust.verifier(auth.mode) else {
        return REFUSED;
    };
    // Nobody asks for names where routes judge, so there is nothing to read.
    let names = WantedNames::new(&auth.subject_alt_names);
    let issuers = chain::issuers(leaf, issuers, auth.depth.into());
    let now = Duration::from_secs(clock::unix_seconds().unsigned_abs());
    match verifier.verify_client_cert(leaf, &issuers, UnixTime::since_unix_epoch(now)) {
        Ok(_) if client::satisfies(auth, &names, leaf) => CertificateVerdict::Verified,
        Err(Error::InvalidCertificate(error)) => verdict_of(&error),
        Ok(_) | Err(_) => REFUSED,
    }
}

/// The text of an error, in the words of OpenSSL where it has any.
fn verdict_of(error: &CertificateError) -> CertificateVerdict {
    CertificateVerdict::Failed(match error {
        // A certificate that is its own authority counts as other.
        CertificateError::UnknownIssuer | CertificateError::Other(_) => {
            return CertificateVerdict::UnknownAuthority;
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate is not yet valid"
        }
        CertificateError::Revoked => "certificate revoked",
        CertificateError::UnknownRevocationStatus => "unable to get certificate CRL",
        CertificateError::BadSignature => "certificate signature failure",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "unsuitable certificate purpose"
        }
        _ => "certificate rejected",
    })
}
