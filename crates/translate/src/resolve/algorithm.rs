//! The algorithms of certificates' keys, as far as clients tell them apart.

use std::fmt;

use x509_parser::prelude::SubjectPublicKeyInfo;

/// The algorithm of a certificate's key. A client can verify some of them, each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// ECDSA on the curve P-256.
    EcdsaP256,
    /// ECDSA on the curve P-384.
    EcdsaP384,
    /// ECDSA on the curve P-521.
    EcdsaP521,
    /// Ed25519.
    Ed25519,
    /// RSA, of whatever length.
    Rsa,
    /// One that is not served.
    Unknown,
}

/// Object identifiers as DER has them, without tag and length.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ELLIPTIC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

impl KeyAlgorithm {
    /// The algorithm of a public key.
    pub fn of(key: &SubjectPublicKeyInfo<'_>) -> Self {
        let parameters = key.algorithm.parameters.as_ref();
        let curve = parameters.map(|it| it.data).unwrap_or_default();
        match key.algorithm.algorithm.as_bytes() {
            RSA => KeyAlgorithm::Rsa,
            ED25519 => KeyAlgorithm::Ed25519,
            ELLIPTIC if curve == P256 => KeyAlgorithm::EcdsaP256,
            ELLIPTIC if curve == P384 => KeyAlgorithm::EcdsaP384,
            ELLIPTIC if curve == P521 => KeyAlgorithm::EcdsaP521,
            _ => KeyAlgorithm::Unknown,
        }
    }

    /// Its place among those that a client may be shown: the smallest that it can verify. ECDSA
    /// costs the proxy the least, and RSA is for those that know nothing else.
    pub fn place(self) -> u8 {
        match self {
            KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 | KeyAlgorithm::EcdsaP521 => 0,
            KeyAlgorithm::Ed25519 => 1,
            KeyAlgorithm::Rsa => 2,
            KeyAlgorithm::Unknown => 3,
        }
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyAlgorithm::EcdsaP256 => "ECDSA (P-256)",
            KeyAlgorithm::EcdsaP384 => "ECDSA (P-384)",
            KeyAlgorithm::EcdsaP521 => "ECDSA (P-521)",
            KeyAlgorithm::Ed25519 => "Ed25519",
            KeyAlgorithm::Rsa => "RSA",
            KeyAlgorithm::Unknown => "an unknown algorithm",
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
        PublicKeyData as _, RsaKeySize, SignatureAlgorithm,
    };
    use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo};

    use super::KeyAlgorithm;

    fn found(key: &KeyPair) -> KeyAlgorithm {
        let der = key.subject_public_key_info();
        let (_, info) = SubjectPublicKeyInfo::from_der(&der).unwrap();
        KeyAlgorithm::of(&info)
    }

    #[test]
    fn keys_are_told_apart_as_clients_do() {
        let of = |algorithm: &'static SignatureAlgorithm| {
            found(&KeyPair::generate_for(algorithm).unwrap())
        };
        assert_eq!(of(&PKCS_ECDSA_P256_SHA256), KeyAlgorithm::EcdsaP256);
        assert_eq!(of(&PKCS_ECDSA_P384_SHA384), KeyAlgorithm::EcdsaP384);
        assert_eq!(of(&PKCS_ED25519), KeyAlgorithm::Ed25519);
        let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
        assert_eq!(found(&rsa.unwrap()), KeyAlgorithm::Rsa);
    }

    #[test]
    fn rsa_comes_behind_all_others_that_are_served() {
        for other in [
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP384,
            KeyAlgorithm::EcdsaP521,
            KeyAlgorithm::Ed25519,
        ] {
            assert!(other.place() < KeyAlgorithm::Rsa.place(), "{other}");
        }
        assert!(KeyAlgorithm::Rsa.place() < KeyAlgorithm::Unknown.place());
    }
}
