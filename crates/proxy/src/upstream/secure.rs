//! TLS towards endpoints.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use foldhash::fast::RandomState;
use myriad_base::tls::{Anybody, Judge, ServerVerifier};
use myriad_model::{MeshTls, SealedArc, TRUST_SUBJECT_MAX, UpstreamTls, Version};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, WebPkiServerVerifier,
    verify_server_cert_signed_by_trust_anchor,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName,
    SignatureVerificationAlgorithm, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, crypto};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::dial::Credentials;
use crate::net::chain::{self, InOrder, MESH_SUBJECT_MAX};
use crate::net::wanted_names::{self, WantedNames};

/// The environment's own file of trusted certificates, instead of the system's: the name that
/// OpenSSL and Go know too.
const ROOTS_FILE: &str = "SSL_CERT_FILE";

/// The files where systems keep the certificates that they trust; the first that is there counts.
const ROOTS: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// The largest file of trusted certificates that is read, in bytes.
const ROOTS_BYTES_MAX: u64 = 16 << 20;

/// The most sessions with endpoints that a worker remembers, for each way to do TLS.
const SESSIONS_MAX: usize = 256;

/// The most ways to do TLS that a worker keeps. Beyond, it begins anew.
const CONFIGS_MAX: usize = 1_024;

/// The configurations of one worker. Each has sessions of its own, so that none is resumed under
/// settings that it was not made with.
#[derive(Default)]
pub struct ClientConfigs {
    known: RefCell<HashMap<Settings, Arc<ClientTls>, RandomState>>,
}

/// A way to do TLS with endpoints.
pub struct ClientTls {
    /// The configuration.
    pub config: Arc<ClientConfig>,
    verifier: Arc<dyn ServerCertVerifier>,
    /// The sessions that may be resumed; absent where none may, or nobody is verified.
    sessions: Option<Arc<dyn ClientSessionStore>>,
}

/// The settings by which configurations differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Settings {
    verify: bool,
    is_http2: bool,
    /// Whether it is TLS of the mesh, and then whether bytes are handed on.
    mesh: Option<bool>,
    names: Box<[Box<str>]>,
    trust: Option<Version>,
    certificate: Option<Version>,
    trust_domains: Option<Arc<[Box<str>]>>,
}

static TRUSTED: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| Arc::new(read_roots()));

/// A resource that TLS needs cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trust or the certificate of the upstream cannot be used")]
pub struct UnusableCredentials;

/// Reads the system's trusted certificates, so that no request has to wait for that.
pub fn prepare() {
    LazyLock::force(&TRUSTED);
}

/// A configuration that verifies peers by the system's trusted certificates.
///
/// # Errors
/// When the cryptography library lacks what every build has.
pub fn trusting() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(TRUSTED.clone(), provider.clone());
    let verifier = verifier
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider);
    let mut config = builder
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(InOrder(verifier)))
        .with_no_client_auth();
    // Who is asked now and then is verified each time.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

impl ClientConfigs {
    /// The configuration to use, made at its first use.
    ///
    /// # Errors
    /// A resource that cannot be used.
    pub fn get(
        &self,
        tls: &UpstreamTls,
        is_http2: bool,
        is_stream: bool,
        credentials: &Credentials,
    ) -> Result<Arc<ClientTls>, UnusableCredentials> {
        let version = |sealed: &Option<SealedArc>| sealed.as_ref().map(|s| s.version());
        let settings = Settings {
            verify: tls.verify,
            is_http2,
            mesh: (tls.mesh != MeshTls::None).then_some(is_stream),
            names: tls.subject_alt_names.clone(),
            trust: version(&credentials.trust),
            certificate: version(&credentials.certificate),
            trust_domains: credentials.trust_domains.clone(),
        };
        if let Some(known) = self.known.borrow().get(&settings) {
            return Ok(known.clone());
        }
        let made = Arc::new(build(tls, is_http2, is_stream, credentials)?);
        let mut known = self.known.borrow_mut();
        if settings.mesh.is_some() {
            // There is one identity at a time, so those of an earlier one are of no use.
            let now = (settings.trust, settings.certificate);
            known.retain(|it, _| it.mesh.is_none() || (it.trust, it.certificate) == now);
        }
        if known.len() >= CONFIGS_MAX {
            known.clear();
        }
        known.insert(settings, made.clone());
        Ok(made)
    }
}

impl ClientTls {
    /// Whether an endpoint is still believed by the certificates that began a session which was
    /// resumed. Trust and names are the same as then, so that where none of them has ended the
    /// answer is; a certificate beside the first that has ended may have led nowhere.
    pub fn believes(
        &self,
        name: &ServerName<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> bool {
        if self.sessions.is_none() {
            return true;
        }
        let Some((leaf, beside)) = shown.split_first() else {
            return false;
        };
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let is_valid = |der| chain::end_of(der).is_some_and(|end| end >= seconds);
        let verify = || {
            self.verifier
                .verify_server_cert(leaf, beside, name, &[], now)
        };
        shown.iter().all(is_valid) || verify().is_ok()
    }

    /// Forgets the sessions with endpoints of a name.
    pub fn forget(&self, name: &ServerName<'static>) {
        let Some(sessions) = &self.sessions else {
            return;
        };
        sessions.remove_tls12_session(name);
        while sessions.take_tls13_ticket(name).is_some() {}
    }

    /// The same way with no session to begin from.
    pub fn anew(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }
}

fn build(
    tls: &UpstreamTls,
    is_http2: bool,
    is_stream: bool,
    credentials: &Credentials,
) -> Result<ClientTls, UnusableCredentials> {
    let is_mesh = tls.mesh != MeshTls::None;
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|_| UnusableCredentials)?;
    let verifier = verifier(tls, credentials, provider)?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone());
    let mut config = match (&tls.certificate, &credentials.certificate) {
        (None, _) if !is_mesh => builder.with_no_client_auth(),
        (_, None) => return Err(UnusableCredentials),
        (_, Some(sealed)) => {
            let (chain, key) = shown(sealed).ok_or(UnusableCredentials)?;
            let built = builder.with_client_auth_cert(chain, key);
            built.map_err(|_| UnusableCredentials)?
        }
    };
    let mut sessions: Option<Arc<dyn ClientSessionStore>> = None;
    config.resumption = match is_mesh {
        // A resumed session would outlive the certificates and authorities that it was made by.
        true => Resumption::disabled(),
        false => {
            let store = ClientSessionMemoryCache::new(SESSIONS_MAX);
            let store: Arc<dyn ClientSessionStore> = Arc::new(store);
            sessions = tls.verify.then(|| store.clone());
            Resumption::store(store)
        }
    };
    // What peers of Istio know as well: the first says that it is a proxy of a mesh who speaks.
    let protocols: &[&[u8]] = match (is_mesh, is_http2, is_stream) {
        (true, _, true) => &[b"istio"],
        (true, true, false) => &[b"istio-h2", b"istio", b"h2"],
        (true, false, false) => &[b"istio-http/1.1", b"istio", b"http/1.1"],
        (false, true, _) => &[b"h2"],
        (false, false, _) => &[],
    };
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    Ok(ClientTls {
        config: Arc::new(config),
        verifier,
        sessions,
    })
}

fn verifier(
    tls: &UpstreamTls,
    credentials: &Credentials,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, UnusableCredentials> {
    let is_mesh = tls.mesh != MeshTls::None;
    if !tls.verify && !is_mesh {
        return Ok(Arc::new(ServerVerifier::new(Anybody, provider)));
    }
    let (roots, crls) = match (&tls.trust, &credentials.trust) {
        (None, _) if !is_mesh => (TRUSTED.clone(), Vec::new()),
        (_, None) => return Err(UnusableCredentials),
        (_, Some(sealed)) => read_trust(sealed, is_mesh).ok_or(UnusableCredentials)?,
    };
    let has_crls = !crls.is_empty();
    let chain = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
        .with_crls(crls)
        .build()
        .map_err(|_| UnusableCredentials)?;
    if tls.subject_alt_names.is_empty() && !is_mesh {
        return Ok(Arc::new(InOrder(chain)));
    }
    let named = Named {
        chain,
        roots,
        has_crls,
        names: WantedNames::new(&tls.subject_alt_names),
        is_mesh,
        trust_domains: credentials.trust_domains.clone().unwrap_or_default(),
        algorithms: provider.signature_verification_algorithms.all,
    };
    Ok(Arc::new(ServerVerifier::new(named, provider)))
}

fn read_trust(
    sealed: &SealedArc,
    is_mesh: bool,
) -> Option<(
    Arc<RootCertStore>,
    Vec<CertificateRevocationListDer<'static>>,
)> {
    let trust = sealed.trust()?;
    let subject_max = match is_mesh {
        true => MESH_SUBJECT_MAX,
        false => TRUST_SUBJECT_MAX,
    };
    let roots = chain::authorities(&trust.roots, subject_max)?;
    let crls = trust.crls.iter().map(|der| der.to_vec().into());
    Some((roots, crls.collect()))
}

fn shown(sealed: &SealedArc) -> Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certificate = sealed.certificate()?;
    let chain = certificate.chain.iter().map(|der| der.to_vec().into());
    let key = certificate.key.to_der().clone_key();
    Some((chain.collect(), key))
}

/// Believes a certificate that holds one of some names, in place of the name that was sent.
#[derive(Debug)]
struct Named {
    chain: Arc<dyn ServerCertVerifier>,
    roots: Arc<RootCertStore>,
    has_crls: bool,
    names: WantedNames,
    /// Whether the peer is a workload, so that without names any identity of the mesh will do.
    is_mesh: bool,
    /// Then those of these trust domains; empty for all.
    trust_domains: Arc<[Box<str>]>,
    algorithms: &'static [&'static dyn SignatureVerificationAlgorithm],
}

/// Whether a URI is an identity of one of these trust domains; of any, if there are none.
pub fn is_identity(uri: &str, trust_domains: &[Box<str>]) -> bool {
    let path = uri.strip_prefix("spiffe://");
    let domain = path.and_then(|path| path.split('/').next());
    domain.is_some_and(|domain| {
        trust_domains.is_empty() || trust_domains.iter().any(|known| **known == *domain)
    })
}

impl Named {
    /// A certificate of a workload has no name of a server but a URI (SPIFFE).
    fn verify_uri(
        &self,
        (end_entity, parsed): (&CertificateDer<'_>, &X509Certificate<'_>),
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let mut names = wanted_names::alternatives(parsed).iter();
        let is_listed = names.any(|name| match name {
            GeneralName::URI(uri) if self.names.is_empty() => {
                self.is_mesh && is_identity(uri, &self.trust_domains)
            }
            GeneralName::URI(uri) => self.names.has(uri),
            _ => false,
        });
        // Revocation is looked at only together with a server's name, so this closes.
        if !is_listed || self.has_crls {
            return Err(CertificateError::NotValidForName.into());
        }
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            self.algorithms,
        )
    }
}

impl Judge for Named {
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<(), Error> {
        let intermediates = chain::issuers(end_entity, intermediates, 0);
        let Ok((_, parsed)) = X509Certificate::from_der(end_entity) else {
            return Err(CertificateError::NotValidForName.into());
        };
        // The mesh knows its peers by identity, and by no name of a server.
        if !self.is_mesh
            && let Some(name) = self.names.server(&parsed)
        {
            let chain = &self.chain;
            let verified =
                chain.verify_server_cert(end_entity, &intermediates, &name, ocsp_response, now);
            return verified.map(|_| ());
        }
        self.verify_uri((end_entity, &parsed), &intermediates, now)
    }
}

fn read_roots() -> RootCertStore {
    let mut store = RootCertStore::empty();
    let named = std::env::var_os(ROOTS_FILE).filter(|path| !path.is_empty());
    // A file that is named and not there is no reason to trust others.
    let paths = match named {
        Some(path) => vec![PathBuf::from(path)],
        None => ROOTS.map(PathBuf::from).to_vec(),
    };
    for path in paths {
        let Ok(file) = File::open(path) else {
            continue;
        };
        let mut reader = BufReader::new(file.take(ROOTS_BYTES_MAX));
        let certificates = CertificateDer::pem_reader_iter(&mut reader).filter_map(Result::ok);
        store.add_parsable_certificates(certificates);
        break;
    }
    store
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use myriad_base::clock;
    use myriad_base::tls::Judge as _;
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd,
    };
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, WebPkiServerVerifier};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme, crypto};

    use super::{ClientTls, Named, trusting};
    use crate::net::wanted_names::WantedNames;

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    /// Verifies as the library does, and counts how often.
    #[derive(Debug)]
    struct Counting(Arc<WebPkiServerVerifier>, AtomicUsize);

    impl ServerCertVerifier for Counting {
        fn verify_server_cert(
            &self,
            leaf: &CertificateDer<'_>,
            issuers: &[CertificateDer<'_>],
            name: &ServerName<'_>,
            ocsp_response: &[u8],
            now: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0
                .verify_server_cert(leaf, issuers, name, ocsp_response, now)
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

    fn authority() -> Issuer {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn leaf(by: &Issuer, names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, by).unwrap().der().clone()
    }

    /// A certificate beside the first that has ended takes part in nothing here.
    #[test]
    fn a_session_is_believed_for_as_long_as_the_chain_that_began_it() {
        let root = authority();
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        let counting = Arc::new(Counting(builder.build().unwrap(), AtomicUsize::new(0)));
        let sessions: Arc<dyn ClientSessionStore> = Arc::new(ClientSessionMemoryCache::new(1));
        let way = |is_verified: bool| ClientTls {
            config: trusting().unwrap(),
            verifier: counting.clone(),
            sessions: is_verified.then(|| sessions.clone()),
        };
        let ending = |year: i32| {
            let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            params.not_after = date_time_ymd(year, 1, 1);
            let key = KeyPair::generate().unwrap();
            params.signed_by(&key, &root).unwrap().der().clone()
        };
        let (ended, lasting) = (ending(2020), ending(2120));
        let name = ServerName::try_from("a.example").unwrap();
        let now = Duration::from_secs(clock::unix_seconds().unsigned_abs());
        let now = UnixTime::since_unix_epoch(now);
        for (shown, is_verified, is_believed, count) in [
            (vec![lasting.clone()], true, true, 0),
            (vec![lasting.clone(), lasting.clone()], true, true, 0),
            (vec![lasting.clone(), ended.clone()], true, true, 1),
            (vec![ended.clone()], true, false, 1),
            (vec![ended.clone(), lasting], true, false, 1),
            (Vec::new(), true, false, 0),
            (vec![ended], false, true, 0),
        ] {
            let before = counting.1.load(Ordering::Relaxed);
            let believes = way(is_verified).believes(&name, &shown, now);
            let verified = counting.1.load(Ordering::Relaxed) - before;
            let length = shown.len();
            assert_eq!((believes, verified), (is_believed, count), "{length}");
        }
    }

    /// A chain was verified again for each name that was listed.
    #[test]
    fn a_chain_is_verified_once_however_many_names_are_listed() {
        let (root, other) = (authority(), authority());
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let roots = Arc::new(roots);
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let builder = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
        let counting = Arc::new(Counting(builder.build().unwrap(), AtomicUsize::new(0)));
        let mut list: Vec<Box<str>> = (0..255)
            .map(|number| format!("{number}.a.example").into())
            .collect();
        list.push("10.0.0.1".into());
        let named = Named {
            chain: counting.clone(),
            roots,
            has_crls: false,
            names: WantedNames::new(&list),
            is_mesh: false,
            trust_domains: Arc::default(),
            algorithms: provider.signature_verification_algorithms.all,
        };
        let now = Duration::from_secs(clock::unix_seconds().unsigned_abs());
        let now = UnixTime::since_unix_epoch(now);
        for (leaf, is_believed, count) in [
            (leaf(&root, &["254.A.example"]), true, 1),
            (leaf(&root, &["other.example", "*.a.example"]), true, 1),
            (leaf(&root, &["10.0.0.1"]), true, 1),
            (leaf(&other, &["7.a.example", "8.a.example"]), false, 1),
            (leaf(&root, &["other.example", "256.a.example"]), false, 0),
            (leaf(&root, &["10.0.0.2"]), false, 0),
            (leaf(&root, &[]), false, 0),
        ] {
            let before = counting.1.load(Ordering::Relaxed);
            let judged = named.judge(&leaf, &[], &[], now);
            let verified = counting.1.load(Ordering::Relaxed) - before;
            assert_eq!(
                (judged.is_ok(), verified),
                (is_believed, count),
                "{judged:?}"
            );
        }
    }
}
