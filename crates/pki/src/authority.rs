//! A certificate authority of a cluster's own, by which proxies know their controllers.

use std::fmt;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData as _,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

/// How long an authority lives. It is replaced long before; see [`Authority::is_due`].
pub(crate) const AUTHORITY_LIFETIME: Duration = Duration::from_secs(3_650 * DAY_SECONDS);

/// Clocks of a cluster may differ by this much.
pub(crate) const CLOCK_SKEW: Duration = Duration::from_secs(300);

const DAY_SECONDS: u64 = 86_400;

/// An authority: a self-signed P-256 certificate and its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// Both in PEM, as they are kept in a Secret.
    certificate_pem: String,
    key_pem: String,
    from: i64,
    until: i64,
}

/// A certificate for a server, and its key.
pub struct Leaf {
    /// The leaf alone; its issuer is the root that clients have.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key.
    pub key: PrivateKeyDer<'static>,
    /// When it ends, in seconds since the epoch.
    pub until: i64,
}

/// Why there is no authority or no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate is no PEM, or no X.509.
    #[error("the certificate of the authority cannot be read")]
    Certificate,
    /// The key is no PEM, of a kind that is not supported, or does not fit the certificate.
    #[error("the key of the authority cannot be read, or does not fit its certificate")]
    Key,
    /// A name that no certificate can have.
    #[error("{0:?} is no name for a certificate")]
    Name(String),
    /// The cryptographic library refuses.
    #[error("the certificate cannot be signed")]
    Sign,
}

impl Authority {
    /// A new authority; `now` is in seconds since the epoch.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn new(name: &str, now: i64) -> Result<Authority, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        let key = key.map_err(|_| AuthorityError::Sign)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        (params.not_before, params.not_after) = validity(now, AUTHORITY_LIFETIME)?;
        let certificate = params.self_signed(&key).map_err(|_| AuthorityError::Sign)?;
        Authority::from_pem(&certificate.pem(), &key.serialize_pem())
    }

    /// An authority that was kept.
    ///
    /// # Errors
    /// One of the two cannot be read, or they do not fit.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Authority, AuthorityError> {
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|_| AuthorityError::Certificate)?;
        let key = KeyPair::from_pem(key_pem).map_err(|_| AuthorityError::Key)?;
        let (from, until) = {
            let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
                .map_err(|_| AuthorityError::Certificate)?;
            if parsed.public_key().raw != key.subject_public_key_info() {
                return Err(AuthorityError::Key);
            }
            let validity = parsed.validity();
            (
                validity.not_before.timestamp(),
                validity.not_after.timestamp(),
            )
        };
        let issuer = Issuer::from_ca_cert_der(&certificate, key);
        Ok(Authority {
            issuer: issuer.map_err(|_| AuthorityError::Certificate)?,
            certificate,
            certificate_pem: certificate_pem.to_owned(),
            key_pem: key_pem.to_owned(),
            from,
            until,
        })
    }

    /// The root, for those who shall trust it.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The root as PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The key as PEM, for the Secret that keeps it.
    pub fn expose_key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Whether half of its life is over, so that a successor shall be made: both are trusted
    /// while the certificates that the former one signed are in use.
    pub fn is_due(&self, now: i64) -> bool {
        now >= self.from + (self.until - self.from) / 2
    }

    /// When it was made, in seconds since the epoch.
    pub fn made_at(&self) -> i64 {
        self.from + CLOCK_SKEW.as_secs() as i64
    }

    /// Whether its time has begun, for everybody whose clock is nearly right.
    pub fn has_begun(&self, now: i64) -> bool {
        now >= self.from
    }

    /// Signs a certificate for a server with these names.
    ///
    /// # Errors
    /// A name that no certificate can have, or the cryptographic library refuses.
    pub fn issue(
        &self,
        names: &[String],
        now: i64,
        lifetime: Duration,
    ) -> Result<Leaf, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        let key = key.map_err(|_| AuthorityError::Sign)?;
        let wrong = || AuthorityError::Name(names.join(", "));
        let mut params = CertificateParams::new(names).map_err(|_| wrong())?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (params.not_before, params.not_after) = validity(now, lifetime)?;
        let until = params.not_after.unix_timestamp();
        let leaf = params.signed_by(&key, &self.issuer);
        let leaf = leaf.map_err(|_| AuthorityError::Sign)?;
        Ok(Leaf {
            chain: vec![leaf.der().clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            until,
        })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

pub(crate) fn validity(
    now: i64,
    lifetime: Duration,
) -> Result<(OffsetDateTime, OffsetDateTime), AuthorityError> {
    let now = OffsetDateTime::from_unix_timestamp(now).map_err(|_| AuthorityError::Sign)?;
    Ok((now - CLOCK_SKEW, now + lifetime))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{RootCertStore, crypto::aws_lc_rs};

    use super::{AUTHORITY_LIFETIME, Authority, AuthorityError};

    const NOW: i64 = 1_800_000_000;
    const HOUR: Duration = Duration::from_secs(3_600);

    fn is_trusted(root: &Authority, leaf: &super::Leaf, name: &str, seconds: i64) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(root.certificate().clone()).unwrap();
        let provider = aws_lc_rs::default_provider().into();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds.unsigned_abs()));
        let verified =
            verifier
                .build()
                .unwrap()
                .verify_server_cert(&leaf.chain[0], &[], &name, &[], now);
        verified.is_ok()
    }

    #[test]
    fn a_leaf_is_trusted_for_its_names_and_its_time_by_those_who_have_the_root() {
        let root = Authority::new("myriad", NOW).unwrap();
        let names = ["controller.myriad.svc".to_owned(), "localhost".to_owned()];
        let leaf = root.issue(&names, NOW, HOUR).unwrap();
        assert!(is_trusted(&root, &leaf, "controller.myriad.svc", NOW));
        assert!(is_trusted(&root, &leaf, "localhost", NOW - 200));
        assert!(!is_trusted(&root, &leaf, "other.svc", NOW));
        assert!(!is_trusted(&root, &leaf, "localhost", leaf.until + 1));
        let other = Authority::new("myriad", NOW).unwrap();
        assert!(!is_trusted(&other, &leaf, "localhost", NOW));
    }

    #[test]
    fn a_kept_authority_goes_on() {
        let root = Authority::new("myriad", NOW).unwrap();
        let kept = Authority::from_pem(root.certificate_pem(), root.expose_key_pem()).unwrap();
        let leaf = kept.issue(&["localhost".to_owned()], NOW, HOUR).unwrap();
        assert!(is_trusted(&root, &leaf, "localhost", NOW));
        assert!(!kept.is_due(NOW));
        let half = i64::try_from(AUTHORITY_LIFETIME.as_secs() / 2).unwrap();
        assert!(kept.is_due(NOW + half));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_no_key_is_printed() {
        let root = Authority::new("myriad", NOW).unwrap();
        let other = Authority::new("myriad", NOW).unwrap();
        let misfit = Authority::from_pem(root.certificate_pem(), other.expose_key_pem());
        assert!(matches!(misfit, Err(AuthorityError::Key)));
        let garbage = Authority::from_pem("nothing", root.expose_key_pem());
        assert!(matches!(garbage, Err(AuthorityError::Certificate)));
        let line = root.expose_key_pem().lines().nth(1).unwrap();
        let leaf = root.issue(&["localhost".to_owned()], NOW, HOUR).unwrap();
        assert!(!format!("{root:?} {leaf:?} {misfit:?}").contains(line));
    }
}
