//! TLS towards endpoints.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use foldhash::fast::RandomState;
use myriad_base::tls::{Anybody, Judge, ServerVerifier};
use myriad_model::{MeshTls, SealedArc, UpstreamTls, Version};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{
    ClientSessionStore, Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, ServerName, SignatureVerificationAlgorithm, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, crypto};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::dial::Credentials;
use super::sessions::{Sessions, Way, WaySessions};
use crate::net::chain::{self, InOrder};
use crate::net::server_trust::ServerChain;
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

/// The most ways to do TLS that a worker keeps. Beyond, the oldest of the namespace goes that has
/// most.
const CONFIGS_MAX: usize = 1_024;

/// The configurations of one worker. Each has sessions of its own, so that none is resumed under
/// settings that it was not made with.
#[derive(Default)]
pub struct ClientConfigs {
    known: RefCell<KnownWays>,
    sessions: Arc<Sessions>,
    /// The number of the last way.
    numbers: Cell<u64>,
}

#[derive(Default)]
struct KnownWays {
    ways: HashMap<Arc<Settings>, (Way, Arc<ClientTls>), RandomState>,
    /// The ways of each namespace, oldest first.
    lines: HashMap<u64, VecDeque<Arc<Settings>>, RandomState>,
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
    /// The namespace whose it is; 0 where nothing in it is a tenant's.
    namespace: u64,
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
    /// The configuration to use for an upstream of a namespace, made at its first use.
    ///
    /// # Errors
    /// A resource that cannot be used.
    pub fn get(
        &self,
        tls: &UpstreamTls,
        is_http2: bool,
        is_stream: bool,
        (namespace, credentials): (u64, &Credentials),
    ) -> Result<Arc<ClientTls>, UnusableCredentials> {
        let (trust, certificate) = credentials.versions();
        let is_own = !tls.subject_alt_names.is_empty() || trust.is_some() || certificate.is_some();
        let settings = Settings {
            namespace: match is_own && tls.mesh == MeshTls::None {
                true => namespace,
                false => 0,
            },
            verify: tls.verify,
            is_http2,
            mesh: (tls.mesh != MeshTls::None).then_some(is_stream),
            names: tls.subject_alt_names.clone(),
            trust,
            certificate,
            trust_domains: credentials.trust_domains.clone(),
        };
        if let Some((_, known)) = self.known.borrow().ways.get(&settings) {
            return Ok(known.clone());
        }
        self.numbers.set(self.numbers.get() + 1);
        let way = Way {
            namespace: settings.namespace,
            number: self.numbers.get(),
        };
        let sessions = WaySessions {
            all: self.sessions.clone(),
            way,
        };
        let made = Arc::new(build(tls, is_http2, is_stream, credentials, sessions)?);
        let gone = self.known.borrow_mut().add(settings, (way, made.clone()));
        gone.into_iter().for_each(|way| self.sessions.drop_way(way));
        Ok(made)
    }
}

impl KnownWays {
    /// Adds a way, and returns those that have gone for it.
    fn add(&mut self, settings: Settings, way: (Way, Arc<ClientTls>)) -> Vec<Way> {
        let mut gone = Vec::new();
        if settings.mesh.is_some() {
            // There is one identity at a time, so those of an earlier one are of no use.
            let now = (settings.trust, settings.certificate);
            let is_of_now = |it: &Settings| it.mesh.is_none() || (it.trust, it.certificate) == now;
            self.ways.retain(|it, _| is_of_now(it));
            if let Some(line) = self.lines.get_mut(&0) {
                line.retain(|it| is_of_now(it));
            }
        }
        if self.ways.len() >= CONFIGS_MAX {
            gone.extend(self.make_room());
        }
        let settings = Arc::new(settings);
        let line = self.lines.entry(settings.namespace).or_default();
        line.push_back(settings.clone());
        self.ways.insert(settings, way);
        gone
    }

    /// Drops the oldest way of the namespace that has most.
    fn make_room(&mut self) -> Option<Way> {
        let most = self.lines.iter().max_by_key(|(_, line)| line.len());
        let namespace = *most?.0;
        let line = self.lines.get_mut(&namespace)?;
        let oldest = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&namespace);
        }
        let (way, _) = self.ways.remove(&oldest?)?;
        Some(way)
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
    kept: WaySessions,
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
            let store: Arc<dyn ClientSessionStore> = Arc::new(kept);
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
    let chain = match (&tls.trust, &credentials.trust) {
        (None, _) if !is_mesh => ServerChain::new(TRUSTED.clone(), Vec::new()),
        (_, None) => None,
        (_, Some(trust)) => trust.chain(),
    };
    let chain = chain.ok_or(UnusableCredentials)?;
    if tls.subject_alt_names.is_empty() && !is_mesh {
        return Ok(Arc::new(InOrder(chain.verifier)));
    }
    let named = Named {
        chain: chain.verifier,
        roots: chain.roots,
        has_crls: chain.has_crls,
        names: WantedNames::new(&tls.subject_alt_names),
        is_mesh,
        trust_domains: credentials.trust_domains.clone().unwrap_or_default(),
        algorithms: provider.signature_verification_algorithms.all,
    };
    Ok(Arc::new(ServerVerifier::new(named, provider)))
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
mod tests;
