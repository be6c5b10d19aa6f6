//! Upstreams and their endpoints.

use std::net::SocketAddr;

use super::*;
use crate::{
    Dns, DnsMode, DnsName, Endpoint, Host, MeshTls, Protocol, UpstreamOptions, UpstreamTls,
};

message! {
    /// A group of endpoints and how to speak to them.
    Upstream, upstream {
        /// 1 HTTP/1.1, 2 HTTP/1.1 over TLS, 3 HTTP/2, 4 HTTP/2 over TLS. Bytes are handed on either
        /// way.
        1 protocol: choice::<Protocol>("protocol");
        /// Set where endpoints come from DNS; more than one needs schema 3.
        2 dns: list_of(Dns::NAMES_MAX, "number of DNS names", each::<DnsName>()).many_since(3),
            of *upstream.dns.as_ref().map(|dns| &*dns.names).unwrap_or_default();
        3 tls: boxed::<UpstreamTls>();
        /// New connections go to the first address of the last answer.
        4 dns_logical: boolean(), since 3, of is_mode(upstream, DnsMode::Logical);
        5 options: boxed::<UpstreamOptions>(), since 3;
        /// The hosts of dns are patterns, and the request's own host is resolved where one covers
        /// it.
        6 dns_dynamic: boolean(), since 3, of is_mode(upstream, DnsMode::Dynamic);
        /// The endpoint is the address that the client's connection was meant for.
        7 original_destination: boolean(), since 3;
        /// Connections are opened from it: 4 or 16 bytes; empty for any.
        8 source_address: optional::<_, Box<_>>(ip()), since 3;
    } => {
        if tls.is_some() != Protocol::is_tls(protocol) {
            return Err(WireError::Invalid("combination of protocol and TLS"));
        }
        if original_destination && !dns.is_empty() {
            return Err(WireError::Invalid("combination of DNS and original destination"));
        }
        let dns = upstream_dns(dns, dns_logical, dns_dynamic)?;
        Upstream { protocol, dns, tls, options, original_destination, source_address }
    }
}

choices! {
    Protocol { Http1, Https1, H2c since 3, H2 since 3 }
}

fn is_mode(upstream: &Upstream, mode: DnsMode) -> bool {
    upstream.dns.as_ref().is_some_and(|dns| dns.mode == mode)
}

fn upstream_dns(
    names: Vec<DnsName>,
    is_logical: bool,
    is_dynamic: bool,
) -> Result<Option<Box<Dns>>, WireError> {
    let mode = match (is_logical, is_dynamic) {
        (false, false) => DnsMode::Strict,
        (true, false) => DnsMode::Logical,
        (false, true) => DnsMode::Dynamic,
        (true, true) => return Err(WireError::Invalid("mode of DNS")),
    };
    if is_dynamic && names.iter().any(|it| Host::parse(&it.host).is_err()) {
        return Err(WireError::Invalid("pattern of DNS names"));
    }
    let names: Box<[DnsName]> = names.into();
    Ok((!names.is_empty()).then(|| Box::new(Dns { mode, names })))
}

message! {
    /// A host that is resolved by the proxy.
    DnsName, dns {
        1 host: required_text("DNS name");
        2 port: port_number();
        /// 0 stands for 1.
        3 weight: uint32(), since 3, of if dns.weight == 1 { 0 } else { dns.weight };
        4 priority: priority_number(), since 3;
    } => DnsName { host, port, weight: weight.max(1), priority }
}

fn priority_number() -> impl Item<Value = u8, Out = u8> {
    at_most(Endpoint::PRIORITY_MAX, "priority")
}

message! {
    /// TLS towards endpoints.
    UpstreamTls {
        /// Server name to send; empty for that of the request's authority.
        1 server_name: string();
        2 verify: boolean();
        /// Empty for the system's roots.
        3 trust: optional_name(), since 3;
        /// Empty for none.
        4 certificate: optional_name(), since 3;
        5 subject_alt_names: list_of(
            UpstreamTls::NAMES_MAX, "number of subject alternative names", string()
        ), since 3;
        /// Mutual TLS of the mesh: 0 no, 1 with endpoints that speak it, plain text with others,
        /// 2 with all. The certificate and the authorities are then those of the mesh.
        6 mesh: choice::<MeshTls>("mutual TLS of the mesh"), since 3;
    }
}

choices! {
    MeshTls { None, Flagged, All }
}

message! {
    /// The addresses behind the upstream that the name begins with.
    Endpoints, endpoints {
        1 endpoints: list(each::<Endpoint>());
        /// The localities, as region/zone/subzone.
        2 localities: list_of(
            Endpoints::LOCALITIES_MAX, "number of localities", string()
        ), since 3;
        /// Other resources have more endpoints of the upstream.
        3 is_part: boolean(), since 4;
    } => {
        let is_listed = |it: &Endpoint| usize::from(it.locality) <= localities.len();
        if !endpoints.iter().all(is_listed) {
            return Err(WireError::Invalid("locality"));
        }
        Endpoints { endpoints: endpoints.into(), localities: localities.into(), is_part }
    }
}

message! {
    /// One address.
    Endpoint, endpoint {
        /// 4 or 16 bytes.
        1 address: ip(), of endpoint.address.ip();
        2 port: at_most(u16::MAX, "port"), of endpoint.address.port();
        3 weight: uint32();
        4 priority: priority_number(), since 3;
        /// The place of its locality in the list, from 1; 0 for none.
        5 locality: at_most(u16::MAX, "locality"), since 3;
        /// Speaks mutual TLS of the mesh.
        6 mesh: boolean(), since 3;
    } => Endpoint { address: SocketAddr::new(address, port), weight, priority, locality, mesh }
}
