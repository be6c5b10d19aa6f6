//! A certificate authority of a story's own.

use std::path::Path;
use std::sync::Mutex;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, PKCS_RSA_SHA256, PublicKeyData,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Issues certificates that the story's clients trust.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    /// The leaves so far; their serial numbers are their places, from 1.
    issued: Mutex<Vec<String>>,
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
            issued: Mutex::default(),
        }
    }

    /// That of a test cluster, which its images trust; it lies in the folder of the cluster.
    ///
    /// # Panics
    /// Where it does not.
    pub fn read(folder: &Path) -> Self {
        let file = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display()))
        };
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "myriad-test-cluster");
        let key = KeyPair::from_pem(&file("ca.key")).expect("a P-256 key");
        Authority {
            issuer: Issuer::new(params, key),
            certificate: file("ca.crt"),
            issued: Mutex::default(),
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

    /// One with an RSA key of 2048 bits.
    pub fn issue_rsa(&self, names: &[&str]) -> Pair {
        let key = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("an RSA key");
        self.sign_key(names, key, |_| ())
    }

    /// One for a client: a workload of a mesh by its name, such as `spiffe://mesh/ns/a/sa/b`.
    pub fn issue_client(&self, workload: &str) -> Pair {
        self.sign(&[], |params| {
            let uri = SanType::URI(workload.try_into().expect("a URI"));
            params.subject_alt_names = vec![uri];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let name = &mut params.distinguished_name;
            name.push(DnType::CommonName, "story client");
        })
    }

    /// A revocation list with these certificates, as PEM.
    ///
    /// # Panics
    /// Where one is of another authority.
    pub fn revoke(&self, pairs: &[&Pair]) -> String {
        let (then, later) = (
            rcgen::date_time_ymd(2_020, 1, 1),
            rcgen::date_time_ymd(2_100, 1, 1),
        );
        let issued = self.issued.lock().expect("nobody panicked");
        let serial = |pair: &Pair| {
            let at = issued.iter().position(|it| *it == pair.certificate);
            SerialNumber::from(at.expect("a leaf of this authority") as u64 + 1)
        };
        let revoked = pairs.iter().map(|pair| RevokedCertParams {
            serial_number: serial(pair),
            revocation_time: then,
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: then,
            next_update: later,
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("a list");
        list.pem().expect("PEM")
    }

    fn sign(&self, names: &[&str], change: impl Fn(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().expect("a P-256 key");
        self.sign_key(names, key, change)
    }

    fn sign_key(
        &self,
        names: &[&str],
        key: KeyPair,
        change: impl Fn(&mut CertificateParams),
    ) -> Pair {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts");
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
        let mut issued = self.issued.lock().expect("nobody panicked");
        params.serial_number = Some(SerialNumber::from(issued.len() as u64 + 1));
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a leaf").pem();
        issued.push(certificate.clone());
        Pair {
            certificate,
            key: key.serialize_pem(),
        }
    }
}

impl Pair {
    /// SHA-256 of the certificate, in hexadecimal digits.
    ///
    /// # Panics
    /// Where it is none.
    pub fn certificate_hash(&self) -> String {
        let leaf = CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("a leaf");
        let hash = digest(&SHA256, &leaf);
        hash.as_ref().iter().map(|it| format!("{it:02x}")).collect()
    }

    /// SHA-256 of the public key with its algorithm, in Base64.
    ///
    /// # Panics
    /// Where the key cannot be read.
    pub fn key_hash(&self) -> String {
        let key = KeyPair::from_pem(&self.key).expect("a key");
        STANDARD.encode(digest(&SHA256, &key.subject_public_key_info()))
    }
}
