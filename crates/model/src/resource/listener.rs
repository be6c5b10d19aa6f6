//! Listeners, and the domains that TLS listeners answer for.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::{Host, Name};

/// A socket that accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where it listens; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Whether connections start with a TLS handshake.
    pub tls: bool,
    /// The certificate for names that no domain covers; none means an alert.
    pub default_certificate: Option<Name>,
}

/// A name that TLS listeners answer for. Without a usable certificate it is not in their SNI
/// table, and a client gets an alert, never another domain's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The listeners, sorted; the same list is shared by all domains that have it.
    pub listeners: Arc<[Name]>,
    /// The name or wildcard.
    pub host: Host,
    /// The certificate resource; none means the listener's default certificate.
    pub certificate: Option<Name>,
    /// Versions and the like; the same settings are shared by all domains that have them.
    pub tls: Arc<TlsSettings>,
}

/// How handshakes are done. Tickets and sessions are bound to equal settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TlsSettings {
    /// The oldest version that is spoken.
    pub version_min: TlsVersion,
    /// The newest version that is spoken.
    pub version_max: TlsVersion,
}

impl Default for TlsSettings {
    fn default() -> Self {
        TlsSettings {
            version_min: TlsVersion::V12,
            version_max: TlsVersion::V13,
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
