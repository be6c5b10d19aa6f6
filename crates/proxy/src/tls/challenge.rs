//! Handshakes by which a certificate authority finds out whose a name is (RFC 8737): they settle on
//! a protocol of their own, see a certificate with the answer, and end.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use myriad_model::ChallengeAnswer;
use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, ServerConfig, crypto, version};

/// The protocol that these handshakes offer, and no other.
pub const PROTOCOL: &[u8] = b"acme-tls/1";

/// The certificate that gives an answer.
pub fn certificate(answer: &ChallengeAnswer) -> Option<CertifiedKey> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).ok()?;
    let mut params = CertificateParams::new([answer.host.as_str().to_owned()]).ok()?;
    let hash = digest(&SHA256, answer.text.as_bytes());
    let extension = CustomExtension::new_acme_identifier(hash.as_ref());
    params.custom_extensions.push(extension);
    let certificate = params.self_signed(&key).ok()?;
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = any_supported_type(&der).ok()?;
    Some(CertifiedKey::new(vec![certificate.der().clone()], key))
}

/// The configuration of a handshake that shows a certificate. Nothing can be resumed.
///
/// # Errors
/// The cryptography library lacks what every build has.
pub fn config(resolver: Arc<dyn ResolvesServerCert>) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let versions = [&version::TLS13, &version::TLS12];
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&versions)?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
