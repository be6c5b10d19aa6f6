//! Listeners and domains.

use std::net::SocketAddr;
use std::sync::Arc;

use super::*;
use crate::{
    ALTERNATIVES_MAX, BY_NAME_MAX, CLIENT_AUTH_PARTS_MAX, Capture, CaptureDirection, CipherSuite,
    ClientAuth, ClientAuthMode, ListenerProtocol, MutualTls, TlsSettings, TlsVersion,
};

message! {
    /// A socket that accepts connections, or receives datagrams.
    Listener, listener {
        /// IPv4 or IPv6 address, 4 or 16 bytes.
        1 address: ip(), of listener.address.ip();
        2 port: at_most(u16::MAX, "port"), of listener.address.port();
        3 tls: boolean();
        /// Certificate for names that no domain covers; empty for none.
        4 default_certificate: optional_name();
        /// 0 HTTP, 1 TCP, 2 whatever the first bytes say, 3 UDP.
        5 protocol: choice::<ListenerProtocol>("protocol of a listener"), since 3;
        /// Set where no socket is opened: connections are led to the proxy by a workload's network
        /// rules. Address and port are then what they were meant for; four zero bytes stand for any
        /// address, port 0 for any port.
        6 capture: some::<Capture>(), since 3;
    } => {
        let mutual = capture.map_or(MutualTls::None, |capture: Capture| capture.mutual);
        // TLS of a captured connection is found out, or its own; and so is what it speaks.
        let is_secured_twice = tls && mutual != MutualTls::None;
        let is_detected = protocol == ListenerProtocol::Detected;
        let is_datagrams = protocol == ListenerProtocol::Udp;
        if is_secured_twice
            || (is_detected && (capture.is_none() || tls))
            || (is_datagrams && (capture.is_some() || tls))
        {
            return Err(WireError::Invalid("combination of protocol, TLS and capture"));
        }
        let address = SocketAddr::new(address, port);
        Listener { address, tls, default_certificate, protocol, capture }
    }
}

message! {
    /// Which of the connections that network rules lead to the proxy belong to a listener.
    Capture, capture {
        /// 1 outbound, 2 inbound.
        1 direction: choice::<CaptureDirection>("direction of a capture");
        /// Inbound: 0 plain text only, 1 mutual TLS of the mesh or plain text, 2 mutual TLS only.
        2 mutual: choice::<MutualTls>("mutual TLS of a capture");
        /// First bytes are looked at only where the address that was meant is a host of routes, or
        /// where no stream route takes the connection; all others are bytes.
        3 detects_hosts: boolean();
    } => match (direction, mutual) {
        (CaptureDirection::Inbound, _) | (_, MutualTls::None) => {
            Capture { direction, mutual, detects_hosts }
        }
        _ => return Err(WireError::Invalid("mutual TLS of a capture")),
    }
}

message! {
    /// A name that a listener answers for.
    Domain, domain {
        1 listeners: list(resource_name("name"));
        2 host: host_pattern();
        3 certificate: optional_name();
        4 tls: part::<TlsSettings>("tls");
        /// Certificates beside the first, with keys of other algorithms or for other names.
        5 alternatives: list_of(BY_NAME_MAX, CERTIFICATES, resource_name("name")), since 3;
        6 client_auth: optional::<_, Arc<_>>(each::<ClientAuth>()), since 3;
        /// The certificate and the authorities of clients are those of the mesh.
        7 mesh: boolean(), since 3;
        /// The name of the listener in routes for its hosts; empty for the listener's own.
        8 section: optional_name(), since 5;
        /// The certificates are for different names.
        9 by_name: boolean(), since 5;
    } => {
        let most = if by_name { BY_NAME_MAX } else { ALTERNATIVES_MAX };
        if alternatives.len() > most || (certificate.is_none() && !alternatives.is_empty()) {
            return Err(WireError::Invalid(CERTIFICATES));
        }
        if mesh && (certificate.is_some() || client_auth.is_some()) {
            return Err(WireError::Invalid("certificate of its own beside the mesh's"));
        }
        Domain {
            listeners: listeners.into(),
            host,
            certificate,
            alternatives: alternatives.into(),
            tls: Arc::new(tls),
            client_auth,
            mesh,
            section,
            by_name,
        }
    }
}

const CERTIFICATES: &str = "number of certificates";

message! {
    /// The conditions on a client's certificate.
    ClientAuth {
        1 trust: resource_name("trust");
        /// 1 required, 2 optional, 3 left to routes.
        2 mode: choice::<ClientAuthMode>("mode of client authentication");
        3 subject_alt_names: list_of(CLIENT_AUTH_PARTS_MAX, ALT_NAME, alt_name());
        /// SHA-256.
        4 key_hashes: list_of(CLIENT_AUTH_PARTS_MAX, HASHES, hash());
        /// SHA-256.
        5 certificate_hashes: list_of(CLIENT_AUTH_PARTS_MAX, HASHES, hash());
        /// The most certificates below an authority that a client sends; 0 for any number.
        6 depth: at_most(u8::MAX, "depth"), since 4;
    }
}

const ALT_NAME: &str = "subject alternative name";

const HASHES: &str = "number of hashes";

fn alt_name() -> impl Item<Value = str, Out = Box<str>> {
    text_as(
        |it: &str| it,
        |it| match it.is_empty() {
            true => Err(WireError::Invalid(ALT_NAME)),
            false => Ok(it.into()),
        },
    )
}

fn hash() -> impl Item<Value = [u8; 32], Out = [u8; 32]> {
    bytes_as(|raw| {
        let hash = raw.bytes()?.try_into();
        hash.map_err(|_| WireError::Invalid("length of a hash"))
    })
}

message! {
    /// How handshakes are done.
    TlsSettings, tls {
        /// 12 or 13.
        1 version_min: choice::<TlsVersion>("TLS version");
        2 version_max: choice::<TlsVersion>("TLS version");
        /// IANA numbers in the order of preference; empty for all.
        3 cipher_suites: Packed(cipher_suite()), since 3;
    } => {
        if cipher_suites.len() > CipherSuite::ALL.len() {
            return Err(WireError::Invalid("number of cipher suites"));
        }
        if version_min > version_max {
            return Err(WireError::Invalid("range of TLS versions"));
        }
        let is_spoken = |it: &CipherSuite| (version_min..=version_max).contains(&it.version());
        if !cipher_suites.is_empty() && !cipher_suites.iter().any(is_spoken) {
            return Err(WireError::Invalid("combination of versions and cipher suites"));
        }
        TlsSettings { version_min, version_max, cipher_suites: cipher_suites.into() }
    }
}

fn cipher_suite()
-> Number<CipherSuite, impl Fn(&CipherSuite) -> u64, impl Fn(u64) -> Result<CipherSuite, WireError>>
{
    number_as(
        "uint32",
        |it: &CipherSuite| *it as u64,
        |number| {
            let mut all = CipherSuite::ALL.into_iter();
            let known = all.find(|suite| *suite as u32 == number as u32);
            known.ok_or(WireError::Invalid("cipher suite"))
        },
    )
}

choices! {
    ListenerProtocol { Http, Tcp, Detected, Udp since 5 }
    CaptureDirection { Outbound, Inbound }
    MutualTls { None, Permissive, Strict }
    ClientAuthMode { Required, Optional, Shown since 4 }
    TlsVersion { V12, V13 }
}
