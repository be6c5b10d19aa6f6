//! A certificate authority of a story's own.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

/// Issues certificates that the story's clients trust.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate and its key, both as PEM.
#[derive(Clone)]
pub struct Pair {
    /// The leaf.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Authority::new()
    }
}

impl Authority {
    /// An authority with a fresh key.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "story authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a P-256 key");
        let certificate = params.self_signed(&key).expect("a root").pem();
        Authority {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// The root as PEM.
    pub fn root(&self) -> &str {
        &self.certificate
    }

    /// A P-256 certificate for some names.
    pub fn issue(&self, names: &[&str]) -> Pair {
        self.sign(names, |_| ())
    }

    /// One whose time was over before the turn of the century.
    pub fn issue_expired(&self, names: &[&str]) -> Pair {
        self.sign(names, |params| {
            params.not_before = rcgen::date_time_ymd(1_998, 1, 1);
            params.not_after = rcgen::date_time_ymd(1_999, 1, 1);
        })
    }

    fn sign(&self, names: &[&str], change: impl Fn(&mut CertificateParams)) -> Pair {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts");
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
        change(&mut params);
        let key = KeyPair::generate().expect("a P-256 key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a leaf").pem();
        Pair {
            certificate,
            key: key.serialize_pem(),
        }
    }
}
