//! How the generator speaks TLS: one version, one cipher and one group, so that all proxies do the
//! same work, and every connection is held to them.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind,
    NamedGroup, SignatureScheme,
};

/// The certificate that each name must show, in DER.
pub(crate) type Leaves = HashMap<String, Vec<u8>>;

/// Holds certificates against those that were made. The signature of a handshake is taken as it
/// is: checking it would cost the generator as much as making it costs the proxy.
#[derive(Debug)]
struct Known {
    leaves: Arc<Leaves>,
    schemes: Vec<SignatureScheme>,
}

/// The settings of a client, which resumes sessions of so many names.
///
/// # Errors
/// The TLS library refuses.
pub(super) fn config(
    leaves: Arc<Leaves>,
    resumes: Option<usize>,
    protocol: &[u8],
) -> anyhow::Result<Arc<ClientConfig>> {
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::X25519];
    provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
    let schemes = provider
        .signature_verification_algorithms
        .supported_schemes();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Known { leaves, schemes }))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = match resumes {
        Some(names) => Resumption::in_memory_sessions(8 * names),
        None => Resumption::disabled(),
    };
    Ok(Arc::new(config))
}

/// A host as a name that is asked for.
///
/// # Errors
/// The text is no name of a server.
pub(super) fn name(host: &str) -> anyhow::Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).context("a name")
}

/// Whether a session is what was wanted, without a retry for another group.
pub(super) fn check(
    session: &ClientConnection,
    is_resumed: bool,
    protocol: &[u8],
) -> Result<(), String> {
    let suite = session.negotiated_cipher_suite().map(|it| it.suite());
    if suite != Some(CipherSuite::TLS13_AES_128_GCM_SHA256) {
        return Err(format!("the cipher is {suite:?}"));
    }
    let group = session.negotiated_key_exchange_group().map(|it| it.name());
    if group != Some(NamedGroup::X25519) {
        return Err(format!("the group is {group:?}"));
    }
    if session.alpn_protocol() != Some(protocol) {
        return Err("the protocol is another one".to_owned());
    }
    let wanted = match is_resumed {
        true => HandshakeKind::Resumed,
        false => HandshakeKind::Full,
    };
    match session.handshake_kind() == Some(wanted) {
        true => Ok(()),
        false => Err(format!("the handshake is {:?}", session.handshake_kind())),
    }
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let known = self.leaves.get(name.to_str().as_ref());
        match known.is_some_and(|known| known.as_slice() == leaf.as_ref()) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::General(
                "this is another name's certificate".to_owned(),
            )),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("this is TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
