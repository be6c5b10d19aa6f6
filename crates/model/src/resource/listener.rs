//! Listeners, and the domains that TLS listeners answer for.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::{Host, Name};

/// A socket that accepts connections, or receives datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address it listens on; port 0 lets the system choose. With `capture`, the original
    /// destination of connections: an address that is not specified and port 0 stand for any.
    pub address: SocketAddr,
    /// Whether connections start with a TLS handshake.
    pub tls: bool,
    /// The certificate for names that no domain covers; none means an alert.
    pub default_certificate: Option<Name>,
    /// The protocol that its connections are assumed to speak.
    pub protocol: ListenerProtocol,
    /// Set where no socket is opened, since a workload's network rules lead its connections to
    /// the proxy. One that no such listener stands for is closed.
    pub capture: Option<Capture>,
}

/// Which of the connections that network rules lead to the proxy belong to a listener: those of
/// its address and port in this direction. The address goes before any address, and its port
/// before any port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Which way they go.
    pub direction: CaptureDirection,
    /// Whether they are mutual TLS of the mesh.
    pub mutual: MutualTls,
    /// Whether first bytes are looked at only in connections to addresses that are hosts of routes
    /// of the listener, and in those that no stream route takes; all others are bytes.
    pub detects_hosts: bool,
}

/// Which way captured connections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CaptureDirection {
    /// From the workload to others.
    Outbound = 1,
    /// From others to the workload.
    Inbound = 2,
}

/// Whether inbound connections are mutual TLS of the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum MutualTls {
    /// They are not; whatever TLS they speak is the workload's own.
    #[default]
    None = 0,
    /// They may be. TLS that offers no protocol of the mesh is the workload's own.
    Permissive = 1,
    /// They are, or they are closed.
    Strict = 2,
}

/// The protocol that the connections of a listener are assumed to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ListenerProtocol {
    /// HTTP/1.1 and HTTP/2, behind TLS if the listener says so.
    #[default]
    Http = 0,
    /// Streams of bytes that are passed on.
    Tcp = 1,
    /// Whatever the first bytes say: a ClientHello or a stream for stream routes, a request for
    /// routes. Only with [`Listener::capture`].
    Detected = 2,
    /// Datagrams, which stream routes without hosts take by the flow that they are of. Never with
    /// TLS or [`Listener::capture`].
    Udp = 3,
}

/// A name that listeners answer for. Without a usable certificate it is not in the SNI table of
/// those with TLS, and a client gets an alert, never another domain's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The listeners, sorted; the same list is shared by all domains that have it.
    pub listeners: Arc<[Name]>,
    /// The name or wildcard.
    pub host: Host,
    /// The certificate resource; none means the listener's default certificate.
    pub certificate: Option<Name>,
    /// Certificates beside that one whose keys are of other algorithms, in the order of
    /// preference; a client gets the first of all that it can verify. At most
    /// [`ALTERNATIVES_MAX`], or [`BY_NAME_MAX`] where `by_name` is set, and none without a
    /// certificate.
    pub alternatives: Box<[Name]>,
    /// Versions and the like; the same settings are shared by all domains that have them.
    pub tls: Arc<TlsSettings>,
    /// The request for a client's certificate; `None` asks for nothing.
    pub client_auth: Option<Arc<ClientAuth>>,
    /// Its certificate, and the authorities that every client is verified by, are those of the
    /// mesh; it then has neither certificates nor `client_auth` of its own.
    pub mesh: bool,
    /// The part of its listeners that its hosts are of: routes and stream routes for them have this
    /// name among their listeners in place of the listener's, and none of another part takes what
    /// comes for them. On TLS, requests for hosts of one part come by handshakes for it alone. None
    /// for the listeners as a whole.
    pub section: Option<Name>,
    /// Whether its certificates are for different names: a client gets one of those that are for
    /// the name that it asks for, the longest name first.
    pub by_name: bool,
}

/// The most certificates of one domain beside the first, for the same names.
pub const ALTERNATIVES_MAX: usize = 7;

/// The most certificates of one domain beside the first, for different names.
pub const BY_NAME_MAX: usize = 63;

/// The most names, and the most hashes of each sort, that client authentication asks for.
pub const CLIENT_AUTH_PARTS_MAX: usize = 1_024;

/// The conditions on a client's certificate, beside being valid now and for clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientAuth {
    /// The authorities; while they are not there, every handshake fails.
    pub trust: Name,
    /// Whether a client may come without.
    pub mode: ClientAuthMode,
    /// Subject alternative names (DNS, URI, address or mailbox) of which a certificate has at
    /// least one; empty asks for none.
    pub subject_alt_names: Box<[Box<str>]>,
    /// SHA-256 of the public keys (SubjectPublicKeyInfo) or whole certificates, one of which has
    /// to be the client's; both empty asks for none.
    pub key_hashes: Box<[[u8; 32]]>,
    /// See `key_hashes`.
    pub certificate_hashes: Box<[[u8; 32]]>,
    /// The most certificates between the client's and an authority, of those that it sends; 0 for
    /// no such limit. Only with [`ClientAuthMode::Shown`].
    pub depth: u8,
}

/// Whether a client may come without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ClientAuthMode {
    /// It may not.
    Required = 1,
    /// It may; a certificate that does not satisfy fails the handshake all the same.
    Optional = 2,
    /// It may, and with any: what became of its certificate is for routes to judge, by their
    /// [`CertificateDemand`](crate::CertificateDemand). It counts as none for everybody else where
    /// it does not satisfy.
    Shown = 3,
}

/// How handshakes are done. Tickets and sessions are bound to equal settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TlsSettings {
    /// The oldest version that is spoken.
    pub version_min: TlsVersion,
    /// The newest version that is spoken.
    pub version_max: TlsVersion,
    /// The cipher suites, in the order of preference; empty stands for all, in the order of the
    /// client. Each version needs one of its own to be spoken.
    pub cipher_suites: Box<[CipherSuite]>,
}

/// A cipher suite that Myriad speaks, by its IANA number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum CipherSuite {
    /// TLS 1.3.
    Aes128GcmSha256 = 0x1301,
    /// TLS 1.3.
    Aes256GcmSha384 = 0x1302,
    /// TLS 1.3.
    Chacha20Poly1305Sha256 = 0x1303,
    /// TLS 1.2.
    EcdheEcdsaAes128GcmSha256 = 0xc02b,
    /// TLS 1.2.
    EcdheEcdsaAes256GcmSha384 = 0xc02c,
    /// TLS 1.2.
    EcdheRsaAes128GcmSha256 = 0xc02f,
    /// TLS 1.2.
    EcdheRsaAes256GcmSha384 = 0xc030,
    /// TLS 1.2.
    EcdheRsaChacha20Poly1305Sha256 = 0xcca8,
    /// TLS 1.2.
    EcdheEcdsaChacha20Poly1305Sha256 = 0xcca9,
}

impl CipherSuite {
    /// All of them, by number.
    pub const ALL: [CipherSuite; 9] = [
        CipherSuite::Aes128GcmSha256,
        CipherSuite::Aes256GcmSha384,
        CipherSuite::Chacha20Poly1305Sha256,
        CipherSuite::EcdheEcdsaAes128GcmSha256,
        CipherSuite::EcdheEcdsaAes256GcmSha384,
        CipherSuite::EcdheRsaAes128GcmSha256,
        CipherSuite::EcdheRsaAes256GcmSha384,
        CipherSuite::EcdheRsaChacha20Poly1305Sha256,
        CipherSuite::EcdheEcdsaChacha20Poly1305Sha256,
    ];

    /// The version of TLS that it belongs to.
    pub fn version(self) -> TlsVersion {
        match (self as u16) >> 8 {
            0x13 => TlsVersion::V13,
            _ => TlsVersion::V12,
        }
    }
}

impl Default for TlsSettings {
    fn default() -> Self {
        TlsSettings {
            version_min: TlsVersion::V12,
            version_max: TlsVersion::V13,
            cipher_suites: Box::default(),
        }
    }
}

/// A TLS version that Myriad speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TlsVersion {
    /// RFC 5246.
    V12 = 12,
    /// RFC 8446.
    V13 = 13,
}
