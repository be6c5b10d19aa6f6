//! Identities of the mesh as they travel: bytes whose meaning is others' business.

use std::time::Duration;

use bytes::Bytes;

use crate::wire::{self, SessionError, cut_text};

/// The most bytes of a request to sign; one of a P-256 key has some 300.
pub const SIGN_REQUEST_BYTES_MAX: usize = 16 << 10;
/// The most bytes of a token; a projected service-account token has about one thousand.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// The most bytes of one certificate.
pub const CERTIFICATE_BYTES_MAX: usize = 32 << 10;
/// The most certificates of a chain, the proxy's own counted.
pub const CHAIN_MAX: usize = 12;
/// The most roots that are trusted at a time.
pub const ROOTS_MAX: usize = 24;
/// The most trust domains, the mesh's own counted.
pub const TRUST_DOMAINS_MAX: usize = 32;
/// The most bytes of a trust domain.
pub const TRUST_DOMAIN_BYTES_MAX: usize = 255;
/// The longest time that a proxy is kept from asking again.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The roots and trust domains by which peers of the mesh are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anchors {
    /// Certificates in DER, at most [`ROOTS_MAX`].
    pub roots: Vec<Bytes>,
    /// The trust domain of the mesh, then its aliases; at most [`TRUST_DOMAINS_MAX`].
    pub trust_domains: Vec<String>,
}

/// A certificate that was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Certificates in DER, the proxy's own first; at most [`CHAIN_MAX`].
    pub chain: Vec<Bytes>,
    /// The anchors of the mesh, the authority of this chain included.
    pub anchors: Anchors,
}

/// Why nothing was signed, for people, and when it is worth asking again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotSigned {
    /// One sentence, without secrets; cut at [`wire::TEXT_BYTES_MAX`] bytes.
    pub reason: String,
    /// The wait before another request, at most [`RETRY_AFTER_MAX`]; zero leaves it to the proxy.
    pub retry_after: Duration,
}

impl Anchors {
    pub(crate) fn message(&self) -> wire::Anchors {
        wire::Anchors {
            roots: self.roots.clone(),
            trust_domains: self.trust_domains.clone(),
        }
    }

    pub(crate) fn read(message: wire::Anchors) -> Result<Anchors, SessionError> {
        let wire::Anchors {
            roots,
            trust_domains,
        } = message;
        certificates(&roots, ROOTS_MAX, "roots")?;
        if trust_domains.len() > TRUST_DOMAINS_MAX {
            return Err(SessionError::TooMany("trust domains"));
        }
        let fits = |it: &String| (1..=TRUST_DOMAIN_BYTES_MAX).contains(&it.len());
        if !trust_domains.iter().all(fits) {
            return Err(SessionError::Invalid("trust domain"));
        }
        Ok(Anchors {
            roots,
            trust_domains,
        })
    }
}

/// Reads a server's answer to a request.
pub(crate) fn read(message: wire::Signed) -> Result<Result<Issued, NotSigned>, SessionError> {
    if message.chain.is_empty() {
        let retry_after = Duration::from_secs(message.retry_after.into());
        return Ok(Err(NotSigned {
            reason: cut_text(&message.refusal),
            retry_after: retry_after.min(RETRY_AFTER_MAX),
        }));
    }
    certificates(&message.chain, CHAIN_MAX, "certificates of a chain")?;
    let anchors = message.anchors.ok_or(SessionError::Invalid("signature"))?;
    Ok(Ok(Issued {
        chain: message.chain,
        anchors: Anchors::read(anchors)?,
    }))
}

fn certificates(all: &[Bytes], most: usize, what: &'static str) -> Result<(), SessionError> {
    if all.len() > most {
        return Err(SessionError::TooMany(what));
    }
    let fits = |it: &Bytes| (1..=CERTIFICATE_BYTES_MAX).contains(&it.len());
    match !all.is_empty() && all.iter().all(fits) {
        true => Ok(()),
        false => Err(SessionError::Invalid("certificate")),
    }
}
