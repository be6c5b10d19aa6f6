//! `v1` Secret, of which only `kubernetes.io/tls` has an effect.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Deserializer};

use crate::meta::{Pairs, RawMeta};
use crate::{Meta, ObjectKind};

/// The type of Secrets that hold a certificate and its key.
pub const TLS_TYPE: &str = "kubernetes.io/tls";

/// A Secret. Its bytes are decoded while reading, so that no PEM text is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Key and age.
    pub meta: Meta,
    /// `type` as written.
    pub secret_type: Box<str>,
    /// Certificate and key, or why there are none.
    pub tls: Result<TlsPair, SecretProblem>,
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
        let tls = if &*secret_type == TLS_TYPE {
            read_pair(&raw.data, &raw.string_data)
        } else {
            Err(SecretProblem::OtherType)
        };
        Ok(Secret {
            meta: raw.metadata.check(ObjectKind::Secret)?,
            secret_type,
            tls,
        })
    }
}

fn read_pair(data: &Option<Pairs>, text: &Option<Pairs>) -> Result<TlsPair, SecretProblem> {
    const CERTIFICATE: &str = "tls.crt";
    const KEY: &str = "tls.key";
    let certificate = read_value(data, text, CERTIFICATE)?;
    let key = read_value(data, text, KEY)?;
    let chain = CertificateDer::pem_slice_iter(&certificate)
        .map(|der| der.map(|der| Bytes::from(der.to_vec())))
        .collect::<Result<Arc<[Bytes]>, _>>()
        .map_err(|_| SecretProblem::NotPem(CERTIFICATE))?;
    if chain.is_empty() {
        return Err(SecretProblem::NotPem(CERTIFICATE));
    }
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| SecretProblem::NotPem(KEY))?;
    let encoding = match &key {
        PrivateKeyDer::Pkcs8(_) => KeyEncoding::Pkcs8,
        PrivateKeyDer::Pkcs1(_) => KeyEncoding::Pkcs1,
        PrivateKeyDer::Sec1(_) => KeyEncoding::Sec1,
        _ => return Err(SecretProblem::NotPem(KEY)),
    };
    let secret = Bytes::copy_from_slice(key.secret_der());
    Ok(TlsPair {
        chain,
        key: KeyDer { encoding, secret },
    })
}

/// `stringData` wins over `data`, as the API server has it.
fn read_value(
    data: &Option<Pairs>,
    text: &Option<Pairs>,
    key: &'static str,
) -> Result<Vec<u8>, SecretProblem> {
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
