//! Upstreams and their endpoints.

use std::net::{IpAddr, SocketAddr};

use super::options::UpstreamOptions;
use crate::Name;

/// How to speak to a group of endpoints. Without endpoints it answers 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The protocol of its endpoints.
    pub protocol: Protocol,
    /// The names whose addresses are the endpoints, instead of the resource [`Endpoints`] of this
    /// name.
    pub dns: Option<Box<Dns>>,
    /// How TLS is done; set for the protocols over TLS, and for no others.
    pub tls: Option<Box<UpstreamTls>>,
    /// How endpoints are chosen and spared; none for the defaults of [`UpstreamOptions`].
    pub options: Option<Box<UpstreamOptions>>,
    /// Its one endpoint is the address that the client's connection was meant for; it then has
    /// no `dns`.
    pub original_destination: bool,
    /// Connections are opened from it; none for any.
    pub source_address: Option<Box<IpAddr>>,
}

impl Upstream {
    /// Endpoints of the resource of the same name, spoken to in plain text.
    pub fn plain(protocol: Protocol) -> Self {
        Upstream {
            protocol,
            dns: None,
            tls: None,
            options: None,
            original_destination: false,
            source_address: None,
        }
    }
}

/// The protocol of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// HTTP/1.1 in plain text.
    Http1 = 1,
    /// HTTP/1.1 over TLS.
    Https1 = 2,
    /// HTTP/2 in plain text, by prior knowledge.
    H2c = 3,
    /// HTTP/2 over TLS.
    H2 = 4,
}

impl Protocol {
    /// Whether it is spoken over TLS.
    pub const fn is_tls(self) -> bool {
        matches!(self, Protocol::Https1 | Protocol::H2)
    }

    /// Whether it is HTTP/2.
    pub const fn is_h2(self) -> bool {
        matches!(self, Protocol::H2c | Protocol::H2)
    }
}

/// Hosts that are resolved by the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// The use of the addresses of an answer.
    pub mode: DnsMode,
    /// The names: at least one, at most [`Dns::NAMES_MAX`], sorted, without duplicates. With
    /// [`DnsMode::Dynamic`] they are the wire forms of [`crate::Host`].
    pub names: Box<[DnsName]>,
}

impl Dns {
    /// The most names of one upstream.
    pub const NAMES_MAX: usize = 256;

    /// One name, all of whose addresses are endpoints.
    pub fn strict(host: impl Into<Box<str>>, port: u16) -> Self {
        let (host, weight, priority) = (host.into(), 1, 0);
        let name = DnsName {
            host,
            port,
            weight,
            priority,
        };
        Dns {
            mode: DnsMode::Strict,
            names: [name].into(),
        }
    }
}

/// The use of the addresses of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsMode {
    /// Each is an endpoint, and those of a later answer take the place of all earlier ones.
    Strict,
    /// New connections go to the first of the last answer; those that are open stay.
    Logical,
    /// The host that a request or a handshake names is resolved when it comes, where one of the
    /// names covers it; the port is that of the name that does.
    Dynamic,
}

/// A host that is resolved by the proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DnsName {
    /// The host.
    pub host: Box<str>,
    /// The port of every address found.
    pub port: u16,
    /// The share of the name among the names of its priority, however many addresses it has; at
    /// least 1.
    pub weight: u32,
    /// The priority, as in [`Endpoint::priority`].
    pub priority: u8,
}

/// TLS towards endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamTls {
    /// The name sent, and verified unless others are listed; empty for the request's host.
    pub server_name: Box<str>,
    /// Whether the endpoint's certificate is verified.
    pub verify: bool,
    /// Against what: a resource of kind trust, without which no connection is made; none stands
    /// for the system's roots.
    pub trust: Option<Name>,
    /// The certificate shown to endpoints, without which no connection is made; none for none.
    pub certificate: Option<Name>,
    /// Names, of which the endpoint's certificate has to hold one, in place of the server name:
    /// DNS names, IP addresses or URIs. Sorted, without duplicates.
    pub subject_alt_names: Box<[Box<str>]>,
    /// Whether it is mutual TLS of the mesh: the identity of the proxy is shown, and the mesh's
    /// authorities verify. `verify`, `trust` and `certificate` then say nothing.
    pub mesh: MeshTls,
}

/// Whether TLS towards endpoints is the mesh's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MeshTls {
    /// It is not.
    #[default]
    None = 0,
    /// TLS with endpoints that speak it; others are spoken to in plain text.
    Flagged = 1,
    /// TLS with all endpoints.
    All = 2,
}

impl UpstreamTls {
    /// The most names of [`UpstreamTls::subject_alt_names`].
    pub const NAMES_MAX: usize = 256;

    /// The request's host is sent and nothing is verified.
    pub fn unverified() -> Self {
        UpstreamTls {
            server_name: Box::default(),
            verify: false,
            trust: None,
            certificate: None,
            subject_alt_names: Box::default(),
            mesh: MeshTls::None,
        }
    }
}

/// The addresses behind the upstream of the same name, or some of them; only those that may take
/// traffic. The names of parts begin with that of the upstream; see [`Endpoints::upstream_of`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Sorted by address, without duplicates.
    pub endpoints: Box<[Endpoint]>,
    /// The localities of endpoints, as `region/zone/subzone`; empty where nobody asks. At most
    /// [`Endpoints::LOCALITIES_MAX`].
    pub localities: Box<[Box<str>]>,
    /// Whether other resources have more endpoints of the upstream.
    pub is_part: bool,
}

impl Endpoints {
    /// Addresses of which nobody asks where they are.
    pub fn new(endpoints: Box<[Endpoint]>) -> Self {
        Endpoints {
            endpoints,
            localities: Box::default(),
            is_part: false,
        }
    }
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// IP address and port.
    pub address: SocketAddr,
    /// Its share among its peers; 1 where nothing else is said.
    pub weight: u32,
    /// 0 goes first: those of a higher number take traffic only where too few of the lower ones
    /// are healthy. At most [`Endpoint::PRIORITY_MAX`].
    pub priority: u8,
    /// The number of its locality among [`Endpoints::localities`], from 1; 0 where it is not
    /// known.
    pub locality: u16,
    /// Whether it speaks mutual TLS of the mesh.
    pub mesh: bool,
}

impl Endpoint {
    /// The highest priority.
    pub const PRIORITY_MAX: u8 = 15;

    /// An address like its peers.
    pub const fn even(address: SocketAddr) -> Self {
        Endpoint {
            address,
            weight: 1,
            priority: 0,
            locality: 0,
            mesh: false,
        }
    }
}
