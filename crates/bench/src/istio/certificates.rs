//! Certificates of the setup: cheap to make and to use, and valid for as long as samples lie about.

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use super::Credential;

/// How long a certificate is valid.
const VALIDITY: Duration = Duration::days(3_650);

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    now: OffsetDateTime,
}

impl Authority {
    /// A fresh authority.
    pub fn new() -> anyhow::Result<Self> {
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
            issuer: Issuer::new(params, key),
            certificate,
            now,
        })
    }

    /// A certificate of the host, on a P-256 key of its own.
    pub fn sign(&self, host: &str) -> anyhow::Result<Credential> {
        let mut params = CertificateParams::new([host.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, host);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = self.now - Duration::DAY;
        params.not_after = self.now + VALIDITY;
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &self.issuer);
        let leaf = leaf.with_context(|| format!("{host} gets no certificate"))?;
        Ok(Credential {
            leaf: leaf.der().to_vec(),
            chain: leaf.pem() + &self.certificate,
            key: key.serialize_pem(),
        })
    }
}
