//! Certificates of clients: who is admitted by one, and what is told of it.

use std::fmt::Write as _;
use std::sync::Arc;

use myriad_model::{ClientAuth, ClientAuthMode};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    SupportedCipherSuite,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::distinguished_name::DistinguishedText;
use super::tickets::until;
use crate::net::chain;
use crate::net::wanted_names::WantedNames;
use crate::route::downstream_connection::VerifiedPeer;
use crate::upstream::secure::is_identity;

/// Verifies by a trust, and then by what a server asks for beside it. The trust's own part is
/// shared by all that ask by it.
#[derive(Debug)]
pub struct Asking {
    /// Verifies chain, validity, purpose and revocation.
    pub trust: Arc<dyn ClientCertVerifier>,
    /// The request for a certificate.
    pub auth: Arc<ClientAuth>,
    /// The names that it asks for.
    pub(crate) names: WantedNames,
    /// The trust domains of which a certificate has to be (SPIFFE), where peers are those of the
    /// mesh; empty for all.
    pub mesh: Option<Arc<[Box<str>]>>,
}

impl ClientCertVerifier for Asking {
    fn offer_client_auth(&self) -> bool {
        self.trust.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.trust.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trust.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.auth.mode == ClientAuthMode::Shown {
            // That the client has its key is proven by what follows; the rest is found out behind
            // the handshake, for routes to judge.
            return Ok(ClientCertVerified::assertion());
        }
        let issuers = chain::issuers(leaf, issuers, 0);
        let verified = self.trust.verify_client_cert(leaf, &issuers, now)?;
        let domains = self.mesh.as_deref();
        let is_admitted = domains.is_none_or(|domains| is_workload(leaf, domains));
        if !is_admitted || !satisfies(&self.auth, &self.names, leaf) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        // A session that is resumed is not verified again.
        until::limit(until::end_of(leaf, &issuers, now));
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.supported_verify_schemes()
    }
}

/// The properties of a client's certificate; `None` where it cannot be read.
pub fn peer(leaf: &CertificateDer<'_>, own: Option<&CertificateDer<'_>>) -> Option<VerifiedPeer> {
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    let mut peer = VerifiedPeer {
        subject: DistinguishedText::of(parsed.subject()).text.into(),
        uris: alternatives(&parsed, uri).into(),
        dns_names: alternatives(&parsed, dns_name).into(),
        hash: sha256(leaf)?,
        forwarded: Box::default(),
    };
    let own = own.and_then(|own| X509Certificate::from_der(own).ok());
    let own_uris = own.map_or_else(Vec::new, |(_, own)| alternatives(&own, uri));
    peer.forwarded = forwarded(&peer, &own_uris).into();
    Some(peer)
}

/// One element of `X-Forwarded-Client-Cert`.
fn forwarded(peer: &VerifiedPeer, own_uris: &[Box<str>]) -> String {
    let mut text = String::new();
    for uri in own_uris {
        let _ = write!(text, "By={};", quoted(uri));
    }
    text.push_str("Hash=");
    for byte in peer.hash {
        let _ = write!(text, "{byte:02x}");
    }
    let subject = peer.subject.replace('\\', "\\\\").replace('"', "\\\"");
    let _ = write!(text, ";Subject=\"{subject}\"");
    if peer.uris.is_empty() {
        text.push_str(";URI=");
    }
    for uri in &peer.uris {
        let _ = write!(text, ";URI={}", quoted(uri));
    }
    for name in &peer.dns_names {
        let _ = write!(text, ";DNS={}", quoted(name));
    }
    // What a certificate says must not end the header field.
    text.replace(
        |letter: char| letter.is_control() || !letter.is_ascii(),
        "?",
    )
}

/// A value, in quotes where it has a character that would end it.
fn quoted(value: &str) -> String {
    match value.contains([',', ';', '=', '"', '\\']) {
        true => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
        false => value.to_owned(),
    }
}

fn uri<'a>(name: &'a GeneralName<'_>) -> Option<&'a str> {
    match name {
        GeneralName::URI(uri) => Some(uri),
        _ => None,
    }
}

fn dns_name<'a>(name: &'a GeneralName<'_>) -> Option<&'a str> {
    match name {
        GeneralName::DNSName(name) => Some(name),
        _ => None,
    }
}

fn alternatives(
    parsed: &X509Certificate<'_>,
    pick: for<'a> fn(&'a GeneralName<'_>) -> Option<&'a str>,
) -> Vec<Box<str>> {
    let Ok(Some(extension)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let names = extension.value.general_names.iter();
    names
        .filter_map(|name| pick(name).map(Into::into))
        .collect()
}

/// Whether a certificate is that of a workload: its URIs are SPIFFE's, of one of these trust
/// domains.
fn is_workload(leaf: &CertificateDer<'_>, trust_domains: &[Box<str>]) -> bool {
    let parsed = X509Certificate::from_der(leaf);
    let uris = parsed.map_or_else(|_| Vec::new(), |(_, parsed)| alternatives(&parsed, uri));
    !uris.is_empty() && uris.iter().all(|uri| is_identity(uri, trust_domains))
}

/// Whether a certificate is one of those that a server asks for by name or hash.
pub(crate) fn satisfies(auth: &ClientAuth, names: &WantedNames, leaf: &CertificateDer<'_>) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else {
        return false;
    };
    let has_name = names.is_empty() || names.are_held(&parsed);
    has_name && has_hash(auth, leaf, &parsed)
}

fn has_hash(auth: &ClientAuth, leaf: &CertificateDer<'_>, parsed: &X509Certificate<'_>) -> bool {
    let (keys, whole) = (&auth.key_hashes, &auth.certificate_hashes);
    if keys.is_empty() && whole.is_empty() {
        return true;
    }
    let is_in =
        |list: &[[u8; 32]], bytes: &[u8]| sha256(bytes).is_some_and(|hash| list.contains(&hash));
    is_in(keys, parsed.public_key().raw) || is_in(whole, leaf)
}

/// The provider's SHA-256, which each of its suites carries.
fn sha256(bytes: &[u8]) -> Option<[u8; 32]> {
    let SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else {
        return None;
    };
    let hash = suite.common.hash_provider.hash(bytes);
    hash.as_ref().try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_base::clock;
    use myriad_model::{ClientAuth, ClientAuthMode};
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
    };
    use rustls::crypto::aws_lc_rs;
    use rustls::pki_types::{CertificateDer, UnixTime};
    use rustls::server::WebPkiClientVerifier;
    use rustls::server::danger::ClientCertVerifier;
    use rustls::{CertificateError, Error, RootCertStore};

    use super::Asking;
    use crate::net::wanted_names::WantedNames;
    use crate::tls::tickets::until;

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    fn authority(name: &str, by: Option<&Issuer>) -> Issuer {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        match by {
            Some(issuer) => CertifiedIssuer::signed_by(params, key, issuer).unwrap(),
            None => CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    fn leaf(by: &Issuer) -> CertificateDer<'static> {
        let params = CertificateParams::new(vec!["leaf".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, by).unwrap().der().clone()
    }

    fn asking(root: &Issuer) -> Asking {
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
        Asking {
            trust: builder.build().unwrap(),
            auth: Arc::new(ClientAuth {
                trust: "t".into(),
                mode: ClientAuthMode::Required,
                subject_alt_names: Box::default(),
                key_hashes: Box::default(),
                certificate_hashes: Box::default(),
                depth: 0,
            }),
            names: WantedNames::default(),
            mesh: None,
        }
    }

    fn verified(
        asking: &Asking,
        leaf: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        let now = Duration::from_secs(clock::unix_seconds().unsigned_abs());
        let now = UnixTime::since_unix_epoch(now);
        asking.verify_client_cert(leaf, issuers, now).map(|_| ())
    }

    #[test]
    fn issuers_of_one_name_do_not_multiply() {
        let root = authority("root", None);
        let asking = asking(&root);
        // Each of them might have signed each.
        let forger = authority("x", None);
        let many: Vec<_> = (0..55)
            .map(|_| authority("x", Some(&forger)).der().clone())
            .collect();
        let refused = verified(&asking, &leaf(&forger), &many);
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(refused, Err(unknown));
    }

    #[test]
    fn a_session_lasts_no_longer_than_the_certificate_that_it_was_made_by() {
        let root = authority("root", None);
        let mut params = CertificateParams::new(vec!["leaf".to_owned()]).unwrap();
        params.not_after = date_time_ymd(2100, 1, 1);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &root).unwrap().der().clone();
        for (mode, end) in [
            (ClientAuthMode::Required, 4_102_444_800),
            (ClientAuthMode::Optional, 4_102_444_800),
            // It is verified again whenever it is resumed.
            (ClientAuthMode::Shown, i64::MAX),
        ] {
            let mut asking = asking(&root);
            asking.auth = Arc::new(ClientAuth {
                mode,
                ..ClientAuth::clone(&asking.auth)
            });
            let mut until = i64::MAX;
            until::around(&mut until, &mut || {
                assert_eq!(verified(&asking, &leaf, &[]), Ok(()));
            });
            assert_eq!(until, end, "{mode:?}");
        }
    }

    #[test]
    fn honest_chains_are_believed_in_any_order() {
        let root = authority("root", None);
        let (first, other) = (authority("first", Some(&root)), authority("other", None));
        let second = authority("second", Some(&first));
        let asking = asking(&root);
        let mut issuers = [other.der(), first.der(), second.der(), root.der()].map(Clone::clone);
        let leaf = leaf(&second);
        assert_eq!(verified(&asking, &leaf, &issuers), Ok(()));
        issuers.reverse();
        assert_eq!(verified(&asking, &leaf, &issuers), Ok(()));
    }
}
