//! Domains by number: names, certificates, and what stands in their objects.

mod gateway_yaml;
mod layout;
mod yaml;

use std::net::SocketAddr;

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use time::OffsetDateTime;

use crate::backend;
use crate::probe::Wanted;

pub(crate) use layout::EDITED_PATH;
pub use layout::{DomainObjects, GATEWAY, Layout, SET_LISTENERS, Site, WILDCARD_HOST};
pub(crate) use yaml::pem;
pub use yaml::{documents, secret_document};

/// How certificates are spread over domains.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Certificates {
    /// Each domain has a certificate of its own.
    Unique,
    /// One wildcard certificate for all.
    Wildcard,
    /// Nine subdomains of one wildcard to one domain with a certificate of its own.
    Mixed,
}

/// Keys are expensive to make and are not what is measured, so certificates share a few.
const KEYS: usize = 256;

/// The namespace of all generated objects.
pub const NAMESPACE: &str = "bench";

/// The name of the Secret with the shared certificate.
pub const SHARED_SECRET: &str = "shared";

/// One domain as it is sent or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its number, which is part of the names of its objects.
    pub number: u64,
    /// Its host.
    pub host: String,
    /// Its only endpoint.
    pub endpoint: SocketAddr,
    /// Its certificate; `None` where it uses the shared one.
    pub own: Option<Pair>,
}

/// A leaf and its key, in DER.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The leaf.
    pub leaf: Vec<u8>,
    /// PKCS#8.
    pub key: Vec<u8>,
}

/// Makes domains.
pub struct Generator {
    certificates: Certificates,
    endpoints: [SocketAddr; 2],
    issuer: Issuer<'static, KeyPair>,
    issuer_der: Vec<u8>,
    keys: Vec<KeyPair>,
    shared: Pair,
    now: OffsetDateTime,
}

/// Keys are not shown, not even these.
impl std::fmt::Debug for Pair {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Pair(a leaf of {} bytes)", self.leaf.len())
    }
}

impl Certificates {
    /// The host of a domain, by its number.
    pub fn host(self, number: u64) -> String {
        if self.is_shared(number) {
            format!("d{number:08}.shared.test")
        } else {
            format!("www.d{number:08}.custom.test")
        }
    }

    /// Whether a domain has the shared certificate.
    pub fn is_shared(self, number: u64) -> bool {
        let is_sample = number % 2 == 1;
        match self {
            Certificates::Unique => false,
            Certificates::Wildcard => true,
            // Samples are of the dearer kind.
            Certificates::Mixed => !is_sample && !(number / 2).is_multiple_of(10),
        }
    }
}

impl Domain {
    /// The name of its Ingress, Service and Secret. Numbers have one width, so that the work of a
    /// change does not differ by the length of a name.
    pub fn name(&self) -> String {
        object_name(self.number)
    }
}

/// The name of the objects of a domain.
pub fn object_name(number: u64) -> String {
    format!("d{number:08}")
}

impl Generator {
    /// A generator with a fresh issuer. A domain without a certificate of its own changes by
    /// moving from the first endpoint to the second.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn new(certificates: Certificates, endpoints: [SocketAddr; 2]) -> anyhow::Result<Self> {
        let now = OffsetDateTime::now_utc();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Myriad Bench");
        params
            .distinguished_name
            .push(DnType::CommonName, "Myriad Bench Intermediate E1");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let issuer_der = params.self_signed(&key)?.der().to_vec();
        let issuer = Issuer::new(params, key);
        let keys = (0..KEYS).map(|_| KeyPair::generate());
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let key = keys.first().context("there is a key")?;
        let shared = sign(&issuer, key, "*.shared.test", 0, now)?;
        Ok(Generator {
            certificates,
            endpoints,
            issuer,
            issuer_der,
            keys,
            shared,
            now,
        })
    }

    /// The issuer's certificate in DER.
    pub fn issuer(&self) -> &[u8] {
        &self.issuer_der
    }

    /// Both endpoints.
    pub fn endpoints(&self) -> [SocketAddr; 2] {
        self.endpoints
    }

    /// The shared certificate, a wildcard.
    pub fn shared(&self) -> &Pair {
        &self.shared
    }

    /// The number of a domain that exists from the start. Those of samples lie between, so that a
    /// new name falls anywhere among the others, in whatever order somebody keeps them.
    pub fn existing(index: u64) -> u64 {
        index * 2
    }

    /// The number of a domain that is added after the one with the same index.
    pub fn fresh(index: u64) -> u64 {
        index * 2 + 1
    }

    /// The host of a domain.
    pub fn host(&self, number: u64) -> String {
        self.certificates.host(number)
    }

    /// A domain. Another `version` gives it another certificate, or another endpoint where the
    /// certificate is shared.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn domain(&self, number: u64, version: u64) -> anyhow::Result<Domain> {
        let host = self.host(number);
        let is_shared = self.certificates.is_shared(number);
        let own = if is_shared {
            None
        } else {
            let at = usize::try_from(number + version)? % self.keys.len();
            let key = self.keys.get(at).context("there is a key")?;
            let serial = number << 8 | version & 0xff;
            Some(sign(&self.issuer, key, &host, serial, self.now)?)
        };
        let [first, second] = self.endpoints;
        let is_moved = is_shared && version % 2 == 1;
        Ok(Domain {
            number,
            host,
            endpoint: if is_moved { second } else { first },
            own,
        })
    }

    /// The leaf that clients of a domain must see.
    pub fn leaf<'a>(&'a self, domain: &'a Domain) -> &'a [u8] {
        let own = domain.own.as_ref();
        own.map_or(&self.shared.leaf, |pair| &pair.leaf)
    }

    /// The status that clients of a domain must see.
    pub fn status(&self, domain: &Domain) -> u16 {
        let [first, second] = backend::STATUSES;
        if domain.endpoint == self.endpoints[0] {
            first
        } else {
            second
        }
    }

    /// The answer that clients of a domain must see.
    pub fn answer(&self, domain: &Domain) -> Wanted {
        Wanted::Answer {
            leaf: self.leaf(domain).to_vec(),
            status: self.status(domain),
        }
    }

    /// The answer that clients of a domain must see once it has gone: an alert, or that of the
    /// listener which all domains share.
    pub fn answer_after(&self, objects: DomainObjects) -> Wanted {
        match objects {
            DomainObjects::Ingresses | DomainObjects::ListenerSets => Wanted::Alert,
            DomainObjects::HttpRoutes => Wanted::Answer {
                leaf: self.shared.leaf.clone(),
                status: 404,
            },
        }
    }

    /// How these objects lead to so many domains.
    pub fn layout(&self, objects: DomainObjects, domains: u64) -> Layout {
        Layout {
            objects,
            certificates: self.certificates,
            domains,
        }
    }

    /// A domain with the other endpoint, whatever its certificate.
    pub fn moved(&self, mut domain: Domain) -> Domain {
        let [first, second] = self.endpoints;
        domain.endpoint = if domain.endpoint == first {
            second
        } else {
            first
        };
        domain
    }
}

/// A leaf of about 600 bytes, as public issuers make them.
fn sign(
    issuer: &Issuer<'_, KeyPair>,
    key: &KeyPair,
    host: &str,
    serial: u64,
    now: OffsetDateTime,
) -> anyhow::Result<Pair> {
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, host);
    params.serial_number = Some(SerialNumber::from(serial | 1 << 62));
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.custom_extensions = vec![log_timestamp(serial)];
    // Each has an end of its own, as those of many domains have.
    let days = 60 + i64::try_from(serial >> 8)? % 30;
    params.not_before = now - time::Duration::days(1);
    params.not_after = now + time::Duration::days(days);
    let leaf = params.signed_by(key, issuer);
    Ok(Pair {
        leaf: leaf.context("a leaf cannot be signed")?.der().to_vec(),
        key: key.serialize_der(),
    })
}

/// The extension of RFC 6962 with one timestamp. Nobody here reads it; it has the usual length,
/// and bytes that differ from leaf to leaf.
fn log_timestamp(serial: u64) -> CustomExtension {
    const OID: [u64; 10] = [1, 3, 6, 1, 4, 1, 11_129, 2, 4, 2];
    const CONTENT_BYTES: u8 = 121;
    let mut state = serial | 1;
    let mut content = vec![0x04, CONTENT_BYTES];
    for _ in 0..CONTENT_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.push(state.to_le_bytes()[3]);
    }
    CustomExtension::from_oid_content(&OID, content)
}

#[cfg(test)]
mod tests;
