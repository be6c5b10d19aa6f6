//! The certificates that a peer shows beside its own, put in order before any of them is verified.
//!
//! A verifier tries every way through a chain, and certificates of one name that might each have
//! signed each other make very many of them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;

/// The most certificates between a peer's own and an authority.
const DEPTH_MAX: usize = 8;

/// The most of them altogether.
const ISSUERS_MAX: usize = 10;

/// The most of one subject: an authority that others have signed has one by each.
const SUBJECT_MAX: usize = 2;

/// The most subjects that have more than one: each of them doubles the ways that are tried, so that
/// there are four. The library itself verifies at most a hundred signatures.
const DOUBLED_MAX: usize = 2;

/// The most bytes of the modulus of an RSA key that is verified by: 4,096 bits. A longer one takes
/// several times as long.
const RSA_BYTES_MAX: usize = 512;

/// The most certificates that are looked at, of those that a peer shows.
const SHOWN_MAX: usize = 24;

/// The most authorities of one subject in a mesh: as many as its controllers trust at all, each of
/// which follows another.
pub(crate) const MESH_SUBJECT_MAX: usize = 16;

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
    let parsed: Vec<_> = parsed.filter(|(_, it)| !is_costly(it)).collect();
    let depth = if depth == 0 {
        DEPTH_MAX
    } else {
        depth.min(DEPTH_MAX)
    };
    let mut wanted = VecDeque::from([(leaf.issuer().as_raw(), 1)]);
    let mut known = vec![leaf.issuer().as_raw()];
    let (mut found, mut doubled) = (Vec::new(), 0);
    while let Some((name, level)) = wanted.pop_front() {
        let most = match doubled < DOUBLED_MAX {
            true => SUBJECT_MAX,
            false => 1,
        };
        let before = found.len();
        let of_name = parsed
            .iter()
            .filter(|(_, it)| it.subject().as_raw() == name);
        for (der, certificate) in of_name.take(most) {
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
        doubled += usize::from(found.len() > before + 1);
    }
    found
}

/// Whether verifying what a certificate has signed takes too long.
fn is_costly(certificate: &X509Certificate<'_>) -> bool {
    let Ok(PublicKey::RSA(key)) = certificate.public_key().parsed() else {
        return false;
    };
    let zeroes = key.modulus.iter().take_while(|byte| **byte == 0).count();
    key.modulus.len() - zeroes > RSA_BYTES_MAX
}

/// The last second in which a certificate is valid, since the epoch; none where it cannot be read.
pub(crate) fn end_of(der: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

/// The authorities of a trust in their order, each once, and of one subject the first alone, as
/// many as may be: a verifier tries the key of each that has the name of a certificate's issuer.
/// `None` if no authority can be read.
pub(crate) fn authorities(roots: &[Bytes], subject_max: usize) -> Option<Arc<RootCertStore>> {
    let mut store = RootCertStore::empty();
    let all = roots.iter().map(|der| CertificateDer::from(&**der));
    store.add_parsable_certificates(all);
    let (mut known, mut of_subject) = (HashSet::new(), HashMap::new());
    store.roots.retain(|authority| {
        if !known.insert(authority.clone()) {
            return false;
        }
        let count = of_subject.entry(authority.subject.clone()).or_insert(0);
        *count += 1;
        *count <= subject_max
    });
    (!store.is_empty()).then(|| Arc::new(store))
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
    use bytes::Bytes;
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
        PKCS_RSA_SHA256, PublicKeyData, SignatureAlgorithm,
    };
    use rustls::pki_types::CertificateDer;

    use super::{DEPTH_MAX, DOUBLED_MAX, RSA_BYTES_MAX, SUBJECT_MAX, authorities, issuers};

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
    fn few_subjects_have_more_than_one() {
        let mut issuer = root("root");
        let mut shown = Vec::new();
        for level in 0..5 {
            let name = format!("level {level}");
            let [one, other] = [(); 2].map(|()| signed(&name, &issuer));
            shown.extend([one.der().clone(), other.der().clone()]);
            issuer = one;
        }
        let leaf = signed("leaf", &issuer);
        assert_eq!(issuers(leaf.der(), &shown, 0).len(), 5 + DOUBLED_MAX);
    }

    /// The public half of an RSA key that nobody has.
    struct Wide(Vec<u8>);

    impl Wide {
        fn of(bytes: usize) -> Self {
            let length = |count: usize| u16::try_from(count).unwrap().to_be_bytes();
            let modulus = [&[0][..], &vec![0xff; bytes][..]].concat();
            let numbers = [
                &[0x02, 0x82][..],
                &length(modulus.len())[..],
                &modulus[..],
                &[0x02, 3, 1, 0, 1][..],
            ]
            .concat();
            Wide([&[0x30, 0x82][..], &length(numbers.len())[..], &numbers[..]].concat())
        }
    }

    impl PublicKeyData for Wide {
        fn der_bytes(&self) -> &[u8] {
            &self.0
        }

        fn algorithm(&self) -> &'static SignatureAlgorithm {
            &PKCS_RSA_SHA256
        }
    }

    #[test]
    fn issuers_with_keys_that_take_too_long_to_verify_by_are_left_out() {
        let root = root("root");
        let leaf = signed("leaf", &signed("wide", &root));
        let found = |bytes: usize| {
            let wide = params("wide").signed_by(&Wide::of(bytes), &root).unwrap();
            issuers(leaf.der(), &[wide.der().clone()], 0).len()
        };
        assert_eq!((found(RSA_BYTES_MAX), found(1_024)), (1, 0));
    }

    #[test]
    fn few_authorities_of_one_subject_count_and_each_of_them_once() {
        let bytes = |it: &Issuer| Bytes::from(it.der().to_vec());
        let [one, other] = [root("one"), root("other")].map(|it| bytes(&it));
        let mut same: Vec<Bytes> = (0..6).map(|_| bytes(&root("same"))).collect();
        let first = authorities(&same[..4], 4).unwrap();
        assert_eq!(first.len(), 4);
        // Copies take no place, and nor do others.
        same.insert(1, same[0].clone());
        same.insert(2, one);
        same.push(other);
        same.push(Bytes::from_static(b"no"));
        let found = authorities(&same, 4).unwrap();
        assert_eq!(found.len(), 6);
        let of_same = found.roots.iter().filter(|it| first.roots.contains(it));
        assert_eq!(of_same.count(), 4);
        assert_eq!(authorities(&same, 16).unwrap().len(), 8);
        assert!(authorities(&[Bytes::from_static(b"no")], 4).is_none());
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
