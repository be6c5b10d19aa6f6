//! Upstreams and their endpoints.

use std::net::SocketAddr;

/// How to speak to a group of endpoints. Without endpoints it answers 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// What is spoken.
    pub protocol: Protocol,
    /// Where endpoints come from DNS instead of the resource [`Endpoints`] of the same name.
    pub dns: Option<Box<DnsName>>,
    /// How TLS is done, for protocols over TLS.
    pub tls: Option<Box<UpstreamTls>>,
}

/// What is spoken to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// HTTP/1.1 in plain text.
    Http1 = 1,
    /// HTTP/1.1 over TLS.
    Https1 = 2,
}

/// A host that is resolved by the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsName {
    /// The host.
    pub host: Box<str>,
    /// The port of every address found.
    pub port: u16,
}

/// TLS towards endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The name sent and verified; empty sends the request's host.
    pub server_name: Box<str>,
    /// Whether the endpoint's certificate is verified against the system's roots.
    pub verify: bool,
}

/// The addresses behind the upstream of the same name; only those that may take traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Sorted by address, without duplicates.
    pub endpoints: Box<[Endpoint]>,
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// IP address and port.
    pub address: SocketAddr,
    /// Its share among its peers; 1 where nothing else is said.
    pub weight: u32,
}
