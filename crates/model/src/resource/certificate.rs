//! Certificates and their keys, kept as DER until a handshake needs them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};

/// A certificate chain and the key of its leaf. Translation has checked that they fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Certificate {
    /// DER, the leaf first, then its issuers; never empty. Equal issuers share their bytes.
    pub chain: Arc<[Bytes]>,
    /// The key.
    pub key: PrivateKey,
}

/// A private key in DER. It has no way to be printed or serialised but the wire form.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey {
    /// How the bytes are encoded.
    pub encoding: KeyEncoding,
    secret: Bytes,
}

/// How a private key is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyEncoding {
    /// RFC 5208.
    Pkcs8 = 1,
    /// RFC 8017, RSA only.
    Pkcs1 = 2,
    /// RFC 5915, elliptic curves only.
    Sec1 = 3,
}

impl PrivateKey {
    /// Takes over the bytes of a key.
    pub fn new(encoding: KeyEncoding, secret: Bytes) -> Self {
        PrivateKey { encoding, secret }
    }

    /// The secret bytes, for parsing or sending the key.
    pub fn expose(&self) -> &Bytes {
        &self.secret
    }

    /// The key as a TLS library takes it, borrowed.
    pub fn to_der(&self) -> PrivateKeyDer<'_> {
        match self.encoding {
            KeyEncoding::Pkcs8 => PrivatePkcs8KeyDer::from(&*self.secret).into(),
            KeyEncoding::Pkcs1 => PrivatePkcs1KeyDer::from(&*self.secret).into(),
            KeyEncoding::Sec1 => PrivateSec1KeyDer::from(&*self.secret).into(),
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(hidden)")
    }
}
