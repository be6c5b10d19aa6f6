//! Verification of TLS servers whose certificates are not judged by the name that was sent.

use std::fmt::Debug;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// A rule for the certificates of servers.
pub trait Judge: Debug + Send + Sync {
    /// Judges the certificate of a server, which came with these others and this OCSP response.
    ///
    /// # Errors
    /// The certificate is not believed.
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<(), Error>;
}

/// Every certificate is believed: the connection is private, and who is at its other end is not
/// known.
#[derive(Clone, Copy, Debug)]
pub struct Anybody;

/// Verifies servers by a rule of their certificates. Whatever the rule, a server has to sign with
/// the key of the certificate that it shows.
#[derive(Debug)]
pub struct ServerVerifier<J> {
    judge: J,
    provider: Arc<CryptoProvider>,
}

impl<J> ServerVerifier<J> {
    /// A rule, and the signatures that a provider verifies.
    pub fn new(judge: J, provider: Arc<CryptoProvider>) -> Self {
        ServerVerifier { judge, provider }
    }
}

impl Judge for Anybody {
    fn judge(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<(), Error> {
        Ok(())
    }
}

impl<J: Judge> ServerCertVerifier for ServerVerifier<J> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge
            .judge(end_entity, intermediates, ocsp_response, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
