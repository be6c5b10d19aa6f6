//! Keys, parsed at the first handshake that needs them, and forgotten when too many are.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use myriad_model::{Certificate, Host};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;

use crate::route::certificate::{CertificateEntry, Parsed};
use crate::telemetry::count::{Count, Counts};

/// Remembers which certificates have a parsed key, and takes it from those that were not used
/// lately when there are more than the limit (the clock algorithm).
pub struct ParsedKeys {
    parsed: Mutex<VecDeque<Weak<CertificateEntry>>>,
    parsed_max: usize,
}

/// A certificate cannot be used: its key or its chain cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate, its key or its authorities cannot be read")]
pub struct UnusableCertificate;

impl ParsedKeys {
    /// An empty store of keys, for at most so many.
    pub fn new(parsed_max: usize) -> Self {
        ParsedKeys {
            parsed: Mutex::new(VecDeque::new()),
            parsed_max: parsed_max.max(1),
        }
    }

    /// The key of a certificate, parsed now if nobody has.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn get(
        &self,
        entry: &Arc<CertificateEntry>,
        counts: &Counts,
    ) -> Result<Arc<Parsed>, UnusableCertificate> {
        if let Some(parsed) = entry.parsed() {
            return Ok(parsed);
        }
        let certificate = entry.sealed.certificate().ok_or(UnusableCertificate)?;
        let parsed = Arc::new(parse(certificate)?);
        counts.add(Count::KeyParsed);
        entry.keep(parsed.clone());
        self.remember(entry, counts);
        Ok(parsed)
    }

    fn remember(&self, entry: &Arc<CertificateEntry>, counts: &Counts) {
        let mut ring = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        ring.push_back(Arc::downgrade(entry));
        // A round at most: whoever was used is passed over once, and not twice.
        for _ in 0..ring.len() {
            if ring.len() <= self.parsed_max {
                return;
            }
            let Some(oldest) = ring.pop_front() else {
                return;
            };
            let Some(known) = oldest.upgrade() else {
                continue;
            };
            if known.take_used() {
                ring.push_back(oldest);
            } else {
                known.forget();
                counts.add(Count::KeyEvicted);
            }
        }
    }
}

/// Parses chain and key.
///
/// # Errors
/// When either cannot be read.
pub fn parse(certificate: &Certificate) -> Result<Parsed, UnusableCertificate> {
    let key = any_supported_type(&certificate.key.to_der()).map_err(|_| UnusableCertificate)?;
    let leaf = certificate.chain.first().ok_or(UnusableCertificate)?;
    let names = names(leaf)?;
    let chain = certificate
        .chain
        .iter()
        .map(|der| CertificateDer::from(der.to_vec()))
        .collect();
    Ok(Parsed {
        key: Arc::new(CertifiedKey::new(chain, key)),
        names,
    })
}

/// The DNS names and addresses that a leaf is for (RFC 9525, section 6.3: those of its subject
/// alternative names and no others).
fn names(leaf: &[u8]) -> Result<Box<[Host]>, UnusableCertificate> {
    let (_, leaf) = x509_parser::parse_x509_certificate(leaf).map_err(|_| UnusableCertificate)?;
    let alternatives = leaf
        .subject_alternative_name()
        .map_err(|_| UnusableCertificate)?;
    let Some(alternatives) = alternatives else {
        return Ok(Box::default());
    };
    let names = alternatives.value.general_names.iter();
    Ok(names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Host::parse(&name.to_ascii_lowercase()).ok(),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        })
        .collect())
}

/// The host of an address, by its bytes.
fn address(bytes: &[u8]) -> Option<Host> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    let address = v4.or_else(|_| v6()).ok()?;
    Host::of_name(&address.to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_leaf_is_for_its_names_and_for_its_addresses_as_requests_name_them() {
        let wanted = ["A.example", "192.0.2.7", "2001:db8::7"].map(String::from);
        let leaf = rcgen::generate_simple_self_signed(wanted).unwrap();
        let found = names(leaf.cert.der()).unwrap();
        let found: Vec<&str> = found.iter().map(|host| host.as_str()).collect();
        assert_eq!(found, ["a.example", "192.0.2.7", "[2001:db8::7]"]);
    }
}
