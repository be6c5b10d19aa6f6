//! TLS towards endpoints.

use std::fs::File;
use std::io::{BufReader, Read};
use std::sync::{Arc, LazyLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, crypto};

/// Where systems keep the certificates that they trust; the first that is there counts.
const ROOTS: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// The largest file of trusted certificates that is read, in bytes.
const ROOTS_BYTES_MAX: u64 = 16 << 20;

/// The most endpoints of which a worker remembers a session.
const SESSIONS_MAX: usize = 256;

/// The configurations of one worker.
pub struct ClientConfigs {
    verified: Arc<ClientConfig>,
    unverified: Arc<ClientConfig>,
}

static TRUSTED: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| Arc::new(read_roots()));

/// Reads the system's trusted certificates, so that no request has to wait for that.
pub fn prepare() {
    LazyLock::force(&TRUSTED);
}

impl ClientConfigs {
    /// Configurations with session caches of their own.
    ///
    /// # Errors
    /// When the cryptography library lacks what every build has.
    pub fn new() -> Result<Self, Error> {
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let sessions = || Resumption::store(Arc::new(ClientSessionMemoryCache::new(SESSIONS_MAX)));
        let mut verified = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(TRUSTED.clone())
            .with_no_client_auth();
        verified.resumption = sessions();
        let mut unverified = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
            .with_no_client_auth();
        unverified.resumption = sessions();
        Ok(ClientConfigs {
            verified: Arc::new(verified),
            unverified: Arc::new(unverified),
        })
    }

    /// The configuration to use.
    pub fn pick(&self, verify: bool) -> Arc<ClientConfig> {
        if verify {
            self.verified.clone()
        } else {
            self.unverified.clone()
        }
    }
}

fn read_roots() -> RootCertStore {
    let mut store = RootCertStore::empty();
    for path in ROOTS {
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

/// For upstreams whose resource says that nothing is verified: the connection is private, and
/// who is at its other end is not known.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
