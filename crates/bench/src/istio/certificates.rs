//! Certificates of the setup: cheap to make and to use, and valid for as long as samples lie about.

use std::cell::Cell;

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256,
};
use time::{Duration, OffsetDateTime};

use super::Credential;

/// How long a certificate is valid.
const VALIDITY: Duration = Duration::days(3_650);

/// The kind of keys that certificates are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Each has one of its own.
    P256,
    /// RSA of 2,048 bits. These take a tenth of a second to make, and a few are shared.
    Rsa,
}

/// How many keys are shared where they are.
const SHARED_KEYS: usize = 8;

/// Signs certificates.
pub(super) struct Authority {
    /// The keys in PKCS#8 and PEM; empty where each certificate has its own.
    shared: Vec<String>,
    signed: Cell<usize>,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    now: OffsetDateTime,
}

impl Authority {
    /// A fresh authority.
    pub(super) fn new(keys: Keys) -> anyhow::Result<Self> {
        let count = match keys {
            Keys::P256 => 0,
            Keys::Rsa => SHARED_KEYS,
        };
        let shared = (0..count)
            .map(|_| Ok(KeyPair::generate_for(&PKCS_RSA_SHA256)?.serialize_pem()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let now = OffsetDateTime::now_utc();
        let mut params = CertificateParams::default();
        let name = "Myriad Scale Authority";
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = now - Duration::DAY;
        params.not_after = now + VALIDITY;
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority {
            shared,
            signed: Cell::new(0),
            issuer: Issuer::new(params, key),
            certificate,
            now,
        })
    }

    /// A certificate of the host.
    pub(super) fn sign(&self, host: &str) -> anyhow::Result<Credential> {
        let mut params = CertificateParams::new([host.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, host);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = self.now - Duration::DAY;
        params.not_after = self.now + VALIDITY;
        let turn = self.signed.replace(self.signed.get() + 1);
        let key = match self.shared.get(turn % SHARED_KEYS) {
            Some(shared) => KeyPair::from_pem(shared)?,
            None => KeyPair::generate()?,
        };
        let leaf = params.signed_by(&key, &self.issuer);
        let leaf = leaf.with_context(|| format!("{host} gets no certificate"))?;
        Ok(Credential {
            leaf: leaf.der().to_vec(),
            chain: leaf.pem() + &self.certificate,
            key: key.serialize_pem(),
        })
    }
}
