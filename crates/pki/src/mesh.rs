//! The authority of a mesh: it signs what workloads ask for, for the identity that they were
//! proven to have, and for no other.

use std::fmt;
use std::time::Duration;

use myriad_model::WorkloadNames;
use rcgen::string::Ia5String;
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, CustomExtension, DistinguishedName,
    ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData as _, SanType,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{
    CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;

use crate::authority::{Authority, CLOCK_SKEW, validity};
use crate::identity::Identity;
use crate::roots::{Roots, Texts};

/// The largest request that is read; one of a P-256 key has some 300 bytes.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;

/// The longest chain from a workload's certificate to a root, without either.
pub const INTERMEDIATES_MAX: usize = 8;

/// The shortest life that a certificate is signed for.
pub const LIFETIME_MIN: Duration = Duration::from_secs(60);

/// The longest life of an identity: roots overlap for a week, in which whatever the former one
/// signed has to end.
pub const LIFETIME_MAX: Duration = Duration::from_secs(6 * 86_400);

/// The keys of a Secret in the form of Istio's `cacerts`.
const ISTIO: Keys = Keys {
    certificate: "ca-cert.pem",
    key: "ca-key.pem",
    chain: Some("cert-chain.pem"),
    roots: "root-cert.pem",
};

/// The keys of a Secret of type `kubernetes.io/tls`, as certificate managers write them: the
/// chain follows the certificate.
const TLS: Keys = Keys {
    certificate: "tls.crt",
    key: "tls.key",
    chain: None,
    roots: "ca.crt",
};

struct Keys {
    certificate: &'static str,
    key: &'static str,
    chain: Option<&'static str>,
    roots: &'static str,
}

/// The authority of a mesh: a root, or an intermediate that another authority has signed.
pub struct MeshAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// From the authority upwards, without the root; empty if it is the root.
    intermediates: Vec<CertificateDer<'static>>,
    roots: Vec<CertificateDer<'static>>,
    /// The roots that the authority's own chain ends in, a subset of `roots`.
    anchors: Vec<CertificateDer<'static>>,
    until: i64,
}

/// A certificate that was signed for a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The workload's certificate, then the intermediates.
    pub chain: Vec<CertificateDer<'static>>,
    /// Since when, and until when it holds, in seconds since the epoch.
    pub from: i64,
    /// See `from`.
    pub until: i64,
}

/// A request for a certificate, and the key that it is for. The key stays where it was made.
pub struct Request {
    /// PKCS#10, in DER.
    pub der: Vec<u8>,
    /// The private key.
    pub key: PrivateKeyDer<'static>,
    /// The public key, as certificates have it.
    public: Vec<u8>,
}

/// A certificate, its key, and whose it is.
pub struct Credential {
    /// The certificate, and what was signed with it.
    pub signed: Signed,
    /// The private key, in PKCS#8.
    pub key: PrivateKeyDer<'static>,
    /// The identity that the certificate states.
    pub identity: Identity,
}

/// Why a chain that was received is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// It is empty, or not X.509.
    #[error("the certificate that was signed cannot be read")]
    Unreadable,
    /// It certifies another key than was asked for.
    #[error("the certificate that was signed is for another key")]
    Key,
    /// It has no URI, several, or one that is no identity.
    #[error("the certificate that was signed has not one identity")]
    Identity,
}

/// Why a Secret holds no authority for a mesh.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeshAuthorityError {
    /// A key that has to be there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value that is no PEM of what is expected.
    #[error("{0} cannot be read: it has to be PEM of what its name says")]
    Unreadable(&'static str),
    /// The private key is another's.
    #[error("the private key does not belong to the certificate of the authority")]
    Key,
    /// The certificate is none of an authority.
    #[error("{0} has a certificate that may not sign others (basicConstraints CA:TRUE)")]
    NoAuthority(&'static str),
    /// The chain has a gap.
    #[error("{0}: no certificate there has signed the one before it")]
    Gap(&'static str),
    /// More certificates than are read.
    #[error("{0} has more than {INTERMEDIATES_MAX} certificates")]
    TooMany(&'static str),
}

/// Why a request is not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// No PKCS#10, too long, not signed by its own key, or with extensions that nobody knows.
    #[error("the certificate request cannot be read, or is not signed by its own key")]
    Request,
    /// A key that is too weak, or of an algorithm that TLS here does not speak.
    #[error("the key has to be P-256, P-384, Ed25519, or RSA of 2048 to 4096 bits")]
    Key,
    /// The authority's own time is over, or nearly.
    #[error("the certificate of the authority ends too soon")]
    Expired,
    /// The cryptographic library refuses.
    #[error("the certificate cannot be signed")]
    Sign,
}

impl MeshAuthorityError {
    /// The key of the Secret that is to blame.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            MeshAuthorityError::Missing(key)
            | MeshAuthorityError::Unreadable(key)
            | MeshAuthorityError::NoAuthority(key)
            | MeshAuthorityError::Gap(key)
            | MeshAuthorityError::TooMany(key) => Some(key),
            MeshAuthorityError::Key => None,
        }
    }
}

impl MeshAuthority {
    /// Whether a Secret is meant to hold an authority that somebody else has made.
    pub fn is_in(texts: &Texts) -> bool {
        let keys = [ISTIO.certificate, TLS.certificate];
        keys.into_iter().any(|key| texts.contains_key(key))
    }

    /// An authority from a Secret: with the keys of Istio's `cacerts` (`ca-cert.pem`,
    /// `ca-key.pem`, `cert-chain.pem`, `root-cert.pem`), or those of type `kubernetes.io/tls`
    /// (`tls.crt`, `tls.key`, `ca.crt`). Chain and roots may be missing or empty where the
    /// authority has signed itself, as Istio's own `istio-ca-secret` has them.
    ///
    /// # Errors
    /// See [`MeshAuthorityError`].
    pub fn from_texts(texts: &Texts) -> Result<MeshAuthority, MeshAuthorityError> {
        let keys = match texts.contains_key(ISTIO.certificate) {
            true => ISTIO,
            false => TLS,
        };
        let filled = |key| texts.get(key).filter(|text| !text.trim().is_empty());
        let text = |key| filled(key).ok_or(MeshAuthorityError::Missing(key));
        let mut chain = certificates(keys.certificate, text(keys.certificate)?)?;
        let key = KeyPair::from_pem(text(keys.key)?);
        let key = key.map_err(|_| MeshAuthorityError::Unreadable(keys.key))?;
        let roots = match (text(keys.roots), chain.first()) {
            (Ok(text), _) => certificates(keys.roots, text)?,
            (Err(_), Some(own)) if is_self_signed(own) => vec![own.clone()],
            (Err(missing), _) => return Err(missing),
        };
        if let Some((name, text)) = keys.chain.and_then(|it| Some((it, filled(it)?))) {
            let own = chain.first().cloned();
            let further = certificates(name, text)?.into_iter();
            // Istio's chain begins with the authority's own certificate, as its tools write it.
            chain.truncate(1);
            chain.extend(further.filter(|it| Some(it) != own.as_ref()));
        }
        MeshAuthority::new(keys, key, chain, roots)
    }

    /// The authority of a cluster that was given none.
    ///
    /// # Errors
    /// Its texts cannot be read.
    pub fn of_root(root: &Authority) -> Result<MeshAuthority, MeshAuthorityError> {
        MeshAuthority::of(root, root.certificate_pem())
    }

    /// The authority of a cluster with several that follow one another: the current one signs, and
    /// all are trusted.
    ///
    /// # Errors
    /// Their texts cannot be read.
    pub fn of_roots(roots: &Roots) -> Result<MeshAuthority, MeshAuthorityError> {
        MeshAuthority::of(roots.current(), &roots.bundle())
    }

    fn of(root: &Authority, bundle: &str) -> Result<MeshAuthority, MeshAuthorityError> {
        let texts = [
            (TLS.certificate, root.certificate_pem()),
            (TLS.key, root.expose_key_pem()),
            (TLS.roots, bundle),
        ];
        let texts = texts.map(|(key, text)| (key.to_owned(), text.to_owned()));
        MeshAuthority::from_texts(&Texts::from(texts))
    }

    fn new(
        keys: Keys,
        key: KeyPair,
        chain: Vec<CertificateDer<'static>>,
        roots: Vec<CertificateDer<'static>>,
    ) -> Result<MeshAuthority, MeshAuthorityError> {
        let unreadable = || MeshAuthorityError::Unreadable(keys.certificate);
        let parsed = chain.iter().map(|it| parsed(keys.certificate, it));
        let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        let [own, ..] = &*parsed else {
            return Err(unreadable());
        };
        if own.public_key().raw != key.subject_public_key_info() {
            return Err(MeshAuthorityError::Key);
        }
        if !parsed.iter().all(|it| it.is_ca()) {
            return Err(MeshAuthorityError::NoAuthority(keys.certificate));
        }
        let gap = keys.chain.unwrap_or(keys.certificate);
        for pair in parsed.windows(2) {
            if let [signed, signer] = pair
                && !is_signed_by(signed, signer)
            {
                return Err(MeshAuthorityError::Gap(gap));
            }
        }
        let mut anchors = Vec::new();
        for root in &roots {
            let parsed_root = self::parsed(keys.roots, root)?;
            let is_anchor = |last| is_signed_by(last, &parsed_root);
            if parsed.last().is_some_and(is_anchor) {
                anchors.push(root.clone());
            }
        }
        if anchors.is_empty() {
            return Err(MeshAuthorityError::Gap(keys.roots));
        }
        // A chain is as long-lived as the first of its certificates that ends.
        let ends = parsed.iter().map(|it| it.validity().not_after.timestamp());
        let until = ends.min().unwrap_or(i64::MIN);
        let issuer = chain.first().ok_or_else(unreadable)?;
        let issuer = Issuer::from_ca_cert_der(issuer, key).map_err(|_| unreadable())?;
        let intermediates = chain.into_iter().filter(|it| !roots.contains(it));
        Ok(MeshAuthority {
            issuer,
            intermediates: intermediates.collect(),
            roots,
            anchors,
            until,
        })
    }

    /// The roots that peers of the workloads have to trust.
    pub fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    /// The roots that the authority's own chain ends in: each of them suffices to trust what it
    /// signs.
    pub fn anchors(&self) -> &[CertificateDer<'static>] {
        &self.anchors
    }

    /// Whether both sign with the same key.
    pub fn is_like(&self, other: &MeshAuthority) -> bool {
        let key = |it: &MeshAuthority| it.issuer.key().subject_public_key_info();
        key(self) == key(other) && self.intermediates == other.intermediates
    }

    /// When it can sign no longer, in seconds since the epoch.
    pub fn until(&self) -> i64 {
        self.until
    }

    /// Signs a request. Of the request only the key is believed: the certificate says the
    /// identity that was proven, whatever was asked for. It holds for `lifetime`, or until the
    /// authority itself ends.
    ///
    /// # Errors
    /// See [`SignError`].
    pub fn sign(
        &self,
        request: &[u8],
        identity: &Identity,
        now: i64,
        lifetime: Duration,
    ) -> Result<Signed, SignError> {
        self.sign_named(request, identity, None, now, lifetime)
    }

    /// Like [`MeshAuthority::sign`], with what the workload is called, for those who tell of it.
    ///
    /// # Errors
    /// See [`SignError`].
    pub fn sign_named(
        &self,
        request: &[u8],
        identity: &Identity,
        names: Option<&WorkloadNames>,
        now: i64,
        lifetime: Duration,
    ) -> Result<Signed, SignError> {
        let key = public_key(request)?;
        let left = u64::try_from(self.until.saturating_sub(now)).unwrap_or(0);
        let lifetime = lifetime.min(Duration::from_secs(left));
        if lifetime < LIFETIME_MIN {
            return Err(SignError::Expired);
        }
        let mut params = CertificateParams::default();
        // Without a subject the name in the URI is critical: RFC 5280, 4.2.1.6.
        params.distinguished_name = DistinguishedName::new();
        let uri = Ia5String::try_from(identity.uri()).map_err(|_| SignError::Sign)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        params.custom_extensions.extend(
            names.map(|names| {
                CustomExtension::from_oid_content(&WorkloadNames::OID, names.to_der())
            }),
        );
        let times = validity(now, lifetime).map_err(|_| SignError::Sign)?;
        (params.not_before, params.not_after) = times;
        let leaf = params.signed_by(&key, &self.issuer);
        let leaf = leaf.map_err(|_| SignError::Sign)?.der().clone();
        let mut chain = vec![leaf];
        chain.extend(self.intermediates.iter().cloned());
        Ok(Signed {
            chain,
            from: params.not_before.unix_timestamp(),
            until: params.not_after.unix_timestamp(),
        })
    }
}

impl Signed {
    /// When the next one is due: when two thirds of its life are over, or up to a tenth of it
    /// sooner, as `draw` says (any number), so that workloads that started together do not ask
    /// together. In seconds since the epoch.
    pub fn renewal(&self, draw: u32) -> i64 {
        // What the issuer's allowance for clocks put before its signing is no life.
        let from = self.from + i64::try_from(CLOCK_SKEW.as_secs()).unwrap_or(0);
        let life = (self.until - from).max(0);
        let jitter = life / 10 * i64::from(draw % 1_000) / 1_000;
        from + life / 3 * 2 - jitter
    }
}

impl Request {
    /// A new key, and a request for it.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn new() -> Result<Request, SignError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|_| SignError::Sign)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key);
        let request = request.map_err(|_| SignError::Sign)?;
        Ok(Request {
            der: request.der().to_vec(),
            public: key.subject_public_key_info(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        })
    }

    /// Joins the request and the chain that was signed for it into a credential.
    ///
    /// # Errors
    /// See [`CredentialError`].
    pub fn complete(
        self,
        chain: Vec<CertificateDer<'static>>,
    ) -> Result<Credential, CredentialError> {
        let leaf = chain.first().ok_or(CredentialError::Unreadable)?;
        let parsed = X509Certificate::from_der(leaf);
        let (_, parsed) = parsed.map_err(|_| CredentialError::Unreadable)?;
        if parsed.public_key().raw != self.public {
            return Err(CredentialError::Key);
        }
        let names = parsed.subject_alternative_name();
        let names = names.map_err(|_| CredentialError::Unreadable)?;
        let names = names.map(|it| &*it.value.general_names);
        let Some([GeneralName::URI(uri)]) = names else {
            return Err(CredentialError::Identity);
        };
        let identity = Identity::parse(uri).map_err(|_| CredentialError::Identity)?;
        let validity = parsed.validity();
        let (from, until) = (
            validity.not_before.timestamp(),
            validity.not_after.timestamp(),
        );
        Ok(Credential {
            signed: Signed { chain, from, until },
            key: self.key,
            identity,
        })
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("identity", &self.identity)
            .field("until", &self.signed.until)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MeshAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeshAuthority")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

/// The key of a request, if the request proves that its sender has it.
fn public_key(request: &[u8]) -> Result<rcgen::PublicKey, SignError> {
    if request.len() > REQUEST_BYTES_MAX {
        return Err(SignError::Request);
    }
    let (_, raw) = X509CertificationRequest::from_der(request).map_err(|_| SignError::Request)?;
    let asked = &raw.certification_request_info.subject_pki;
    match asked.parsed().map_err(|_| SignError::Key)? {
        PublicKey::RSA(rsa) if !(2_048..=4_096).contains(&rsa.key_size()) => {
            return Err(SignError::Key);
        }
        _ => {}
    }
    let der = CertificateSigningRequestDer::from(request);
    let read = CertificateSigningRequestParams::from_der(&der);
    let key = read.map_err(|_| SignError::Request)?.public_key;
    // The algorithm of a signature does not tell the curve: what is certified has to be the very
    // key that was shown, with its own algorithm.
    if key.subject_public_key_info() != asked.raw {
        return Err(SignError::Key);
    }
    Ok(key)
}

fn certificates(
    name: &'static str,
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, MeshAuthorityError> {
    let read = CertificateDer::pem_slice_iter(text.as_bytes()).take(INTERMEDIATES_MAX + 1);
    let read = read.collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|_| MeshAuthorityError::Unreadable(name))?;
    match read.len() {
        0 => Err(MeshAuthorityError::Unreadable(name)),
        n if n > INTERMEDIATES_MAX => Err(MeshAuthorityError::TooMany(name)),
        _ => Ok(read),
    }
}

fn parsed<'a>(
    name: &'static str,
    der: &'a CertificateDer<'_>,
) -> Result<X509Certificate<'a>, MeshAuthorityError> {
    let parsed = X509Certificate::from_der(der);
    let (_, parsed) = parsed.map_err(|_| MeshAuthorityError::Unreadable(name))?;
    Ok(parsed)
}

fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    let parsed = X509Certificate::from_der(certificate);
    parsed.is_ok_and(|(_, it)| is_signed_by(&it, &it))
}

fn is_signed_by(signed: &X509Certificate<'_>, signer: &X509Certificate<'_>) -> bool {
    signed.issuer() == signer.subject()
        && signer.is_ca()
        && signed.verify_signature(Some(signer.public_key())).is_ok()
}

#[cfg(test)]
mod tests;
