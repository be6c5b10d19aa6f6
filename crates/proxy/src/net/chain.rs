//! The certificates that a peer shows beside its own, put in order before any of them is verified.
//!
//! A verifier tries every way through a chain, and certificates of one name that might each have
//! signed each other make very many of them.

use std::collections::VecDeque;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// The most certificates between a peer's own and an authority.
const DEPTH_MAX: usize = 8;

/// The most of them altogether.
const ISSUERS_MAX: usize = 10;

/// The most of one subject: an authority that others have signed has one by each.
const SUBJECT_MAX: usize = 2;

/// The most certificates that are looked at, of those that a peer shows.
const SHOWN_MAX: usize = 24;

/// The certificates that lead from a peer's own towards an authority, by their names and no
/// further than `depth` where that is not 0. Others are left out, and so the chain is not believed
/// where it needs them.
pub(crate) fn issuers<'a>(
    leaf: &CertificateDer<'_>,
    shown: &'a [CertificateDer<'_>],
    depth: usize,
) -> Vec<CertificateDer<'a>> {
    if shown.is_empty() {
        return Vec::new();
    }
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else {
        return Vec::new();
    };
    let shown = shown.iter().take(SHOWN_MAX);
    let parsed = shown.filter_map(|der| Some((der, X509Certificate::from_der(der).ok()?.1)));
    let parsed: Vec<_> = parsed.collect();
    let depth = if depth == 0 {
        DEPTH_MAX
    } else {
        depth.min(DEPTH_MAX)
    };
    let mut wanted = VecDeque::from([(leaf.issuer().as_raw(), 1)]);
    let mut known = vec![leaf.issuer().as_raw()];
    let mut found = Vec::new();
    while let Some((name, level)) = wanted.pop_front() {
        let of_name = parsed
            .iter()
            .filter(|(_, it)| it.subject().as_raw() == name);
        for (der, certificate) in of_name.take(SUBJECT_MAX) {
            if found.len() == ISSUERS_MAX {
                return found;
            }
            let der: &'a CertificateDer<'_> = der;
            found.push(CertificateDer::from(&**der));
            let next = certificate.issuer().as_raw();
            if level < depth && !known.contains(&next) {
                known.push(next);
                wanted.push_back((next, level + 1));
            }
        }
    }
    found
}

/// Verifies servers as the library does, by the certificates alone that lead to an authority.
#[derive(Debug)]
pub(crate) struct InOrder(pub(crate) Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for InOrder {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let issuers = issuers(leaf, shown, 0);
        self.0
            .verify_server_cert(leaf, &issuers, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls::pki_types::CertificateDer;

    use super::{DEPTH_MAX, SUBJECT_MAX, issuers};

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    fn signed(name: &str, by: &Issuer) -> Issuer {
        let key = KeyPair::generate().unwrap();
        CertifiedIssuer::signed_by(params(name), key, by).unwrap()
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn root(name: &str) -> Issuer {
        CertifiedIssuer::self_signed(params(name), KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn those_that_lead_on_stay_in_their_order_and_no_more_of_a_name_than_two() {
        let (root, other) = (root("root"), root("other"));
        let first = signed("first", &root);
        let crossed = signed("first", &other);
        let further = signed("first", &other);
        let second = signed("second", &first);
        let leaf = signed("leaf", &second);
        let shown: [CertificateDer<'_>; 6] = [
            other.der().clone(),
            first.der().clone(),
            crossed.der().clone(),
            second.der().clone(),
            further.der().clone(),
            leaf.der().clone(),
        ];
        let found = issuers(leaf.der(), &shown, 0);
        let expected = [second.der(), first.der(), crossed.der(), other.der()];
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        let found = issuers(leaf.der(), &shown, 1);
        assert_eq!(found.iter().collect::<Vec<_>>(), [second.der()]);
        assert!(issuers(&CertificateDer::from(&b"no"[..]), &shown, 0).is_empty());
    }

    #[test]
    fn chains_have_an_end() {
        let root = root("root");
        let same: Vec<_> = (0..55).map(|_| signed("x", &root).der().clone()).collect();
        let leaf = signed("leaf", &signed("x", &root));
        assert_eq!(issuers(leaf.der(), &same, 0).len(), SUBJECT_MAX);
        let mut chain = vec![root];
        for number in 0..20 {
            let next = signed(&number.to_string(), chain.last().unwrap());
            chain.push(next);
        }
        let shown: Vec<_> = chain.iter().rev().map(|it| it.der().clone()).collect();
        let leaf = signed("leaf", chain.last().unwrap());
        assert_eq!(issuers(leaf.der(), &shown, 0).len(), DEPTH_MAX);
    }
}
