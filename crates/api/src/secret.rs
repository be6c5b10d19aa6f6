//! `v1` Secret, of which only `kubernetes.io/tls` and generic ones have an effect.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use serde::{Deserialize, Deserializer};

use crate::meta::{Pairs, RawMeta};
use crate::{Meta, ObjectKind};

/// The type of Secrets that hold a certificate and its key.
pub const TLS_TYPE: &str = "kubernetes.io/tls";

/// The type of Secrets that may hold anything.
pub const GENERIC_TYPE: &str = "Opaque";

/// Where certificate and key stand.
const PAIR: (&str, &str) = ("tls.crt", "tls.key");

/// Where Istio's users put them in generic Secrets.
const GENERIC_PAIR: (&str, &str) = ("cert", "key");

/// The entries where authorities stand.
const AUTHORITIES: [&str; 2] = ["ca.crt", "cacert"];

/// Where revocation lists stand.
const REVOCATIONS: [&str; 2] = ["ca.crl", "crl"];

/// A Secret. Its bytes are decoded while reading, so that no PEM text is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Key and age.
    pub meta: Meta,
    /// `type` as written.
    pub secret_type: Box<str>,
    /// Certificate and key, or why there are none.
    pub tls: Result<TlsPair, SecretProblem>,
    /// The authorities that others are verified against, if there are any, or why they cannot be
    /// read.
    pub trust: Result<Option<Box<TrustDer>>, SecretProblem>,
}

/// Certificates of authorities and revocation lists, in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDer {
    /// Never empty.
    pub roots: Box<[Bytes]>,
    /// Revocation lists.
    pub crls: Box<[Bytes]>,
}

/// A certificate chain and its private key, both in DER. Whether they fit is not checked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPair {
    /// The leaf first, then its issuers; never empty.
    pub chain: Arc<[Bytes]>,
    /// The private key.
    pub key: KeyDer,
}

/// A private key in DER: PKCS#8, PKCS#1 or SEC1. It has no way to be printed or serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyDer {
    /// Which of the three encodings.
    pub encoding: KeyEncoding,
    secret: Bytes,
}

/// How a private key is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEncoding {
    /// RFC 5208.
    Pkcs8,
    /// RFC 8017, RSA only.
    Pkcs1,
    /// RFC 5915, elliptic curves only.
    Sec1,
}

/// Why a Secret holds no usable certificate and key. The texts name fields, never contents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretProblem {
    /// The Secret has another type.
    #[error("has a type other than kubernetes.io/tls")]
    OtherType,
    /// A data key is absent.
    #[error("has no data[{0}]")]
    Missing(&'static str),
    /// The value is not base64.
    #[error("has a data[{0}] that is not base64")]
    NotBase64(&'static str),
    /// The value holds no PEM block of the right kind.
    #[error("has a data[{0}] without a PEM block of the right kind")]
    NotPem(&'static str),
}

impl KeyDer {
    /// Takes over a key.
    pub fn new(encoding: KeyEncoding, secret: Bytes) -> Self {
        KeyDer { encoding, secret }
    }

    /// The secret bytes, for whoever parses or seals the key.
    pub fn expose(&self) -> &Bytes {
        &self.secret
    }
}

impl std::fmt::Debug for KeyDer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyDer(hidden)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Raw {
            metadata: RawMeta,
            #[serde(default, rename = "type")]
            secret_type: Option<Box<str>>,
            #[serde(default)]
            data: Option<Pairs>,
            #[serde(default)]
            string_data: Option<Pairs>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let secret_type = raw.secret_type.unwrap_or_default();
        let values = Values(&raw.data, &raw.string_data);
        let is_generic = matches!(&*secret_type, "" | GENERIC_TYPE);
        let (tls, trust) = if &*secret_type == TLS_TYPE {
            (read_pair(values, PAIR), read_trust(values))
        } else if !is_generic {
            (Err(SecretProblem::OtherType), Ok(None))
        } else {
            let mut pairs = [PAIR, GENERIC_PAIR].into_iter();
            let tls = match pairs.find(|(certificate, _)| values.has(certificate)) {
                Some(pair) => read_pair(values, pair),
                None => Err(SecretProblem::OtherType),
            };
            (tls, read_trust(values))
        };
        Ok(Secret {
            meta: raw.metadata.check(ObjectKind::Secret)?,
            secret_type,
            tls,
            trust,
        })
    }
}

/// `data` and `stringData`.
#[derive(Clone, Copy)]
struct Values<'a>(&'a Option<Pairs>, &'a Option<Pairs>);

impl Values<'_> {
    fn has(self, key: &str) -> bool {
        let has = |pairs: &Option<Pairs>| {
            let pairs = pairs.as_ref();
            pairs.is_some_and(|pairs| pairs.0.iter().any(|(known, _)| **known == *key))
        };
        has(self.0) || has(self.1)
    }
}

fn read_pair(
    values: Values<'_>,
    (certificate_key, key_key): (&'static str, &'static str),
) -> Result<TlsPair, SecretProblem> {
    let certificate = read_value(values, certificate_key)?;
    let key = read_value(values, key_key)?;
    let chain = CertificateDer::pem_slice_iter(&certificate)
        .map(|der| der.map(|der| Bytes::from(der.to_vec())))
        .collect::<Result<Arc<[Bytes]>, _>>()
        .map_err(|_| SecretProblem::NotPem(certificate_key))?;
    if chain.is_empty() {
        return Err(SecretProblem::NotPem(certificate_key));
    }
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| SecretProblem::NotPem(key_key))?;
    let encoding = match &key {
        PrivateKeyDer::Pkcs8(_) => KeyEncoding::Pkcs8,
        PrivateKeyDer::Pkcs1(_) => KeyEncoding::Pkcs1,
        PrivateKeyDer::Sec1(_) => KeyEncoding::Sec1,
        _ => return Err(SecretProblem::NotPem(key_key)),
    };
    let secret = Bytes::copy_from_slice(key.secret_der());
    Ok(TlsPair {
        chain,
        key: KeyDer { encoding, secret },
    })
}

/// Authorities and revocation lists. An empty value, as certificate managers write where they
/// know none, is none.
fn read_trust(values: Values<'_>) -> Result<Option<Box<TrustDer>>, SecretProblem> {
    let first = |keys: [&'static str; 2]| keys.into_iter().find(|key| values.has(key));
    let Some(key) = first(AUTHORITIES) else {
        return Ok(None);
    };
    let text = read_value(values, key)?;
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    let roots = CertificateDer::pem_slice_iter(&text)
        .map(|der| der.map(|der| Bytes::from(der.to_vec())))
        .collect::<Result<Box<[Bytes]>, _>>()
        .map_err(|_| SecretProblem::NotPem(key))?;
    if roots.is_empty() {
        return Err(SecretProblem::NotPem(key));
    }
    let mut crls: Box<[Bytes]> = Box::default();
    if let Some(key) = first(REVOCATIONS) {
        let text = read_value(values, key)?;
        crls = CertificateRevocationListDer::pem_slice_iter(&text)
            .map(|der| der.map(|der| Bytes::from(der.to_vec())))
            .collect::<Result<_, _>>()
            .map_err(|_| SecretProblem::NotPem(key))?;
        if crls.is_empty() && !text.trim_ascii().is_empty() {
            return Err(SecretProblem::NotPem(key));
        }
    }
    Ok(Some(Box::new(TrustDer { roots, crls })))
}

/// `stringData` wins over `data`, as the API server has it.
fn read_value(Values(data, text): Values<'_>, key: &'static str) -> Result<Vec<u8>, SecretProblem> {
    let find = |pairs: &'_ Option<Pairs>| -> Option<Box<str>> {
        let (_, value) = pairs
            .as_ref()?
            .0
            .iter()
            .find(|(known, _)| &**known == key)?;
        Some(value.clone())
    };
    if let Some(value) = find(text) {
        return Ok(value.into_string().into_bytes());
    }
    let encoded = find(data).ok_or(SecretProblem::Missing(key))?;
    let packed: Vec<u8> = encoded
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    STANDARD
        .decode(packed)
        .map_err(|_| SecretProblem::NotBase64(key))
}
