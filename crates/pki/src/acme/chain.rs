//! Whether the chain that an authority hands out is the certificate that was ordered.

use std::fmt;
use std::net::IpAddr;

use rcgen::{KeyPair, PublicKeyData as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::{GeneralName, X509Certificate};

use super::{HeldCertificate, Millis, OrderKey, SECOND};

/// The most certificates of a chain, and the most bytes of them all: more is not served.
const CHAIN_LENGTH_MAX: usize = 16;
const CHAIN_BYTES_MAX: usize = 64 << 10;

/// The certificate of an order.
#[derive(Clone)]
pub struct IssuedChain {
    /// The chain as PEM, the leaf first.
    pub chain_pem: String,
    /// The key as PEM.
    key_pem: String,
    /// The facts about the leaf by which it is renewed.
    pub held: HeldCertificate,
}

/// Why a chain is not the certificate that was ordered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// It cannot be read.
    #[error("the authority sent something that is no chain of certificates")]
    Unreadable,
    /// It is longer than what is served.
    #[error("the authority sent a chain of more than 16 certificates or 64 KiB")]
    TooLong,
    /// It has another key.
    #[error("the authority sent a certificate of another key")]
    OtherKey,
    /// A name is missing.
    #[error("the authority sent a certificate that does not cover {0}")]
    Name(Box<str>),
    /// It is over, or its time is not to come for long.
    #[error("the authority sent a certificate that is not valid now")]
    Time,
    /// A certificate is not signed by the next.
    #[error("the authority sent a chain whose certificates are not signed by one another")]
    Unsigned,
}

impl IssuedChain {
    /// The key as PEM, for whoever keeps it.
    pub fn expose_key_pem(&self) -> &str {
        &self.key_pem
    }
}

impl fmt::Debug for IssuedChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("IssuedChain");
        shown.field("held", &self.held).finish_non_exhaustive()
    }
}

/// How far ahead a clock may be of that of the authority.
const CLOCK_SKEW: Millis = 86_400 * SECOND;

/// Checks a chain against what was ordered.
///
/// # Errors
/// See [`ChainError`].
pub fn check_chain(
    chain_pem: &str,
    key: &OrderKey,
    names: &[Box<str>],
    now: Millis,
) -> Result<IssuedChain, ChainError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
        .take(CHAIN_LENGTH_MAX + 1)
        .collect::<Result<_, _>>()
        .map_err(|_| ChainError::Unreadable)?;
    let bytes: usize = chain.iter().map(|der| der.len()).sum();
    if chain.len() > CHAIN_LENGTH_MAX || bytes > CHAIN_BYTES_MAX {
        return Err(ChainError::TooLong);
    }
    let parsed: Vec<X509Certificate<'_>> = chain
        .iter()
        .map(|der| x509_parser::parse_x509_certificate(der).map(|(_, parsed)| parsed))
        .collect::<Result<_, _>>()
        .map_err(|_| ChainError::Unreadable)?;
    let leaf = parsed.first().ok_or(ChainError::Unreadable)?;
    let pair = KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.expose()));
    let pair = pair.map_err(|_| ChainError::OtherKey)?;
    if leaf.public_key().raw != pair.subject_public_key_info() {
        return Err(ChainError::OtherKey);
    }
    let held = chain.first().and_then(|der| held(leaf, der));
    let held = held.ok_or(ChainError::Unreadable)?;
    let missing = names
        .iter()
        .find(|name| held.names.binary_search(name).is_err());
    if let Some(name) = missing {
        return Err(ChainError::Name(name.clone()));
    }
    if held.until <= now || held.from > now.saturating_add(CLOCK_SKEW) {
        return Err(ChainError::Time);
    }
    for (certificate, issuer) in parsed.iter().zip(parsed.iter().skip(1)) {
        let signed = certificate.verify_signature(Some(issuer.public_key()));
        signed.map_err(|_| ChainError::Unsigned)?;
    }
    Ok(IssuedChain {
        chain_pem: chain_pem.to_owned(),
        key_pem: pair.serialize_pem(),
        held,
    })
}

impl HeldCertificate {
    /// The facts about a certificate in DER; none where it cannot be read.
    pub fn of(der: &[u8]) -> Option<HeldCertificate> {
        let (_, leaf) = x509_parser::parse_x509_certificate(der).ok()?;
        held(&leaf, der)
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| v6()).ok()
}

fn held(leaf: &X509Certificate<'_>, der: &[u8]) -> Option<HeldCertificate> {
    let mut names: Vec<Box<str>> = Vec::new();
    if let Some(extension) = leaf.subject_alternative_name().ok()? {
        let found = extension.value.general_names.iter();
        names.extend(found.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase().into_boxed_str()),
            GeneralName::IPAddress(bytes) => Some(address(bytes)?.to_string().into_boxed_str()),
            _ => None,
        }));
    }
    names.sort_unstable();
    names.dedup();
    let validity = leaf.validity();
    Some(HeldCertificate {
        names,
        from: validity.not_before.timestamp().saturating_mul(SECOND),
        until: validity.not_after.timestamp().saturating_mul(SECOND),
        ari: super::clerk::ari_name(der),
        directory: None,
        placed_at: None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};

    use super::{ChainError, check_chain};
    use crate::acme::{DAY, OrderKey};
    use crate::{Authority, Leaf};

    const NOW_S: i64 = 1_800_000_000;
    const NOW: i64 = NOW_S * 1_000;

    fn pem(der: &[u8]) -> String {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }

    fn issue(root: &Authority, names: &[&str]) -> (Leaf, OrderKey) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let leaf = root.issue(&names, NOW_S, Duration::from_secs(90 * 86_400));
        let leaf = leaf.unwrap();
        let key = OrderKey::new(leaf.key.secret_der().to_vec());
        (leaf, key)
    }

    #[test]
    fn a_certificate_for_addresses_and_wildcards_names_them_as_they_were_ordered() {
        let root = Authority::new("ca", NOW_S).unwrap();
        let (leaf, key) = issue(&root, &["*.a.example", "192.0.2.7", "2001:db8::1"]);
        let whole = format!("{}{}", pem(&leaf.chain[0]), root.certificate_pem());
        let names: Vec<Box<str>> = ["*.a.example", "192.0.2.7", "2001:db8::1"]
            .map(Box::from)
            .into();
        let issued = check_chain(&whole, &key, &names, NOW).unwrap();
        assert_eq!(issued.held.names, names);
        let other = ["192.0.2.8".into()];
        assert_eq!(
            check_chain(&whole, &key, &other, NOW).unwrap_err(),
            ChainError::Name("192.0.2.8".into())
        );
    }

    #[test]
    fn the_certificate_that_was_ordered_is_taken_and_any_other_refused() {
        let root = Authority::new("ca", NOW_S).unwrap();
        let (leaf, key) = issue(&root, &["a.example", "b.example"]);
        let (leaf_pem, root_pem) = (pem(&leaf.chain[0]), root.certificate_pem());
        let whole = format!("{leaf_pem}{root_pem}");
        let names: Vec<Box<str>> = vec!["a.example".into(), "b.example".into()];
        let issued = check_chain(&whole, &key, &names, NOW).unwrap();
        assert_eq!(issued.held.names, names);
        assert!(issued.held.until > NOW + 89 * DAY && issued.held.from <= NOW);
        let line = issued.expose_key_pem().lines().nth(1).unwrap();
        assert!(!format!("{issued:?}").contains(line));

        let refused = |chain: &str, key: &OrderKey, names: &[Box<str>], now: i64| {
            check_chain(chain, key, names, now).unwrap_err()
        };
        let other = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let other = OrderKey::new(other.serialize_der());
        assert_eq!(refused(&whole, &other, &names, NOW), ChainError::OtherKey);
        let more = ["c.example".into()];
        assert_eq!(
            refused(&whole, &key, &more, NOW),
            ChainError::Name("c.example".into())
        );
        assert_eq!(
            refused(&whole, &key, &names, NOW + 91 * DAY),
            ChainError::Time
        );
        assert_eq!(
            refused(&whole, &key, &names, NOW - 2 * DAY),
            ChainError::Time
        );
        let stranger = Authority::new("ca", NOW_S).unwrap();
        let unsigned = format!("{leaf_pem}{}", stranger.certificate_pem());
        assert_eq!(refused(&unsigned, &key, &names, NOW), ChainError::Unsigned);
        assert_eq!(refused("", &key, &names, NOW), ChainError::Unreadable);
        assert_eq!(
            refused(&whole.replace("MII", "AAA"), &key, &names, NOW),
            ChainError::Unreadable
        );
        let long = whole + &root_pem.repeat(15);
        assert_eq!(refused(&long, &key, &names, NOW), ChainError::TooLong);
    }
}
