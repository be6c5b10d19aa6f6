//! `networking.istio.io` Gateway.

use super::object::Spec;
use super::reading::message;
use super::scalar::words;
use super::{Labels, Names};
use crate::ObjectKind;

message! {
    /// The spec of a Gateway.
    pub struct GatewaySpec {
        servers: Box<[Server]> = "servers",
        /// Labels of the workloads that serve it; empty means every gateway.
        selector: Labels = "selector",
    }
}

message! {
    /// One port of a gateway with some of its hosts.
    pub struct Server {
        port: Port = "port" required,
        /// Address to listen on; empty means all.
        bind: Box<str> = "bind",
        /// Hosts as written, such as `*.example.com` or `namespace/host`.
        hosts: Names = "hosts" required,
        tls: Option<Box<ServerTls>> = "tls",
        /// The server's own name, unique among all servers of a gateway; for people.
        name: Box<str> = "name",
    }
    refused ["defaultEndpoint", "default_endpoint"]
}

message! {
    /// A port to listen on.
    #[derive(Eq)]
    pub struct Port {
        number: u16 = "number" required,
        /// HTTP, HTTPS, HTTP2, GRPC, GRPC-WEB, TCP, TLS or MONGO, in any case.
        protocol: Box<str> = "protocol" required,
        name: Box<str> = "name" required,
    }
    refused ["targetPort", "target_port"]
}

words! {
    /// How the TLS of clients is handled.
    pub enum TlsMode {
        Passthrough = 0 "PASSTHROUGH",
        Simple = 1 "SIMPLE",
        Mutual = 2 "MUTUAL",
        AutoPassthrough = 3 "AUTO_PASSTHROUGH",
        IstioMutual = 4 "ISTIO_MUTUAL",
        OptionalMutual = 5 "OPTIONAL_MUTUAL",
    }
}

words! {
    /// A version of TLS.
    pub enum TlsProtocol {
        Auto = 0 "TLS_AUTO",
        V1_0 = 1 "TLSV1_0",
        V1_1 = 2 "TLSV1_1",
        V1_2 = 3 "TLSV1_2",
        V1_3 = 4 "TLSV1_3",
    }
}

message! {
    /// TLS towards clients.
    pub struct ServerTls {
        https_redirect: bool = "httpsRedirect" | "https_redirect",
        mode: TlsMode = "mode",
        /// Secret with the certificate, in the namespace of the gateway's workload.
        credential_name: Box<str> = "credentialName" | "credential_name",
        min_protocol_version: TlsProtocol = "minProtocolVersion" | "min_protocol_version",
        max_protocol_version: TlsProtocol = "maxProtocolVersion" | "max_protocol_version",
    }
    rare ServerTlsRare {
        /// Path of a file.
        server_certificate: Box<str> = "serverCertificate" | "server_certificate",
        /// Path of a file.
        private_key: Box<str> = "privateKey" | "private_key",
        /// Path of a file.
        ca_certificates: Box<str> = "caCertificates" | "ca_certificates",
        /// Path of a file.
        ca_crl: Box<str> = "caCrl" | "ca_crl",
        /// Secrets with certificates of different kinds of keys.
        credential_names: Names = "credentialNames" | "credential_names",
        ca_cert_credential_name: Box<str> = "caCertCredentialName" | "ca_cert_credential_name",
        tls_certificates: Box<[CertificateFiles]> = "tlsCertificates" | "tls_certificates",
        subject_alt_names: Names = "subjectAltNames" | "subject_alt_names",
        /// Base64 of SHA-256 over the public key of a client's certificate.
        verify_certificate_spki: Names = "verifyCertificateSpki" | "verify_certificate_spki",
        /// Hexadecimal SHA-256 of a client's certificate.
        verify_certificate_hash: Names = "verifyCertificateHash" | "verify_certificate_hash",
        cipher_suites: Names = "cipherSuites" | "cipher_suites",
        insecure_skip_verify: Option<bool> = "insecureSkipVerify" | "insecure_skip_verify",
    }
}

message! {
    /// Paths of the files of one certificate.
    #[derive(Eq)]
    pub struct CertificateFiles {
        server_certificate: Box<str> = "serverCertificate" | "server_certificate",
        private_key: Box<str> = "privateKey" | "private_key",
        ca_certificates: Box<str> = "caCertificates" | "ca_certificates",
    }
}

impl Spec for GatewaySpec {
    const KIND: ObjectKind = ObjectKind::IstioGateway;
}
