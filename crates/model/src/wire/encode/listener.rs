//! Listeners and domains.

use bytes::Bytes;

use super::{names, optional, socket};
use crate::wire::generated as wire;
use crate::{Capture, ClientAuth, Domain, Listener, ListenerProtocol, TlsSettings};

pub(super) fn schema(value: &Listener) -> u32 {
    match value.protocol {
        ListenerProtocol::Http if value.capture.is_none() => 1,
        ListenerProtocol::Http | ListenerProtocol::Tcp | ListenerProtocol::Detected => 3,
    }
}

pub(super) fn domain_schema(value: &Domain) -> u32 {
    let is_first = value.alternatives.is_empty()
        && value.client_auth.is_none()
        && !value.mesh
        && value.tls.cipher_suites.is_empty();
    if is_first { 1 } else { 3 }
}

pub(super) fn listener(value: &Listener) -> wire::Listener {
    let (address, port) = socket(value.address);
    wire::Listener {
        address,
        port,
        tls: value.tls,
        default_certificate: optional(&value.default_certificate),
        protocol: value.protocol as u32,
        capture: value
            .capture
            .map(|Capture { direction, mutual }| wire::Capture {
                direction: direction as u32,
                mutual: mutual as u32,
            }),
    }
}

pub(super) fn domain(value: &Domain) -> wire::Domain {
    wire::Domain {
        listeners: names(&value.listeners),
        host: value.host.as_str().to_owned(),
        certificate: optional(&value.certificate),
        tls: Some(tls_settings(&value.tls)),
        alternatives: names(&value.alternatives),
        client_auth: value.client_auth.as_deref().map(client_auth),
        mesh: value.mesh,
    }
}

fn tls_settings(value: &TlsSettings) -> wire::TlsSettings {
    wire::TlsSettings {
        version_min: value.version_min as u32,
        version_max: value.version_max as u32,
        cipher_suites: value.cipher_suites.iter().map(|it| *it as u32).collect(),
    }
}

fn client_auth(value: &ClientAuth) -> wire::ClientAuth {
    let hashes = |hashes: &[[u8; 32]]| {
        let copy = |hash: &[u8; 32]| Bytes::copy_from_slice(hash);
        hashes.iter().map(copy).collect()
    };
    let subject_alt_names = value.subject_alt_names.iter();
    wire::ClientAuth {
        trust: value.trust.to_string(),
        mode: value.mode as u32,
        subject_alt_names: subject_alt_names.map(ToString::to_string).collect(),
        key_hashes: hashes(&value.key_hashes),
        certificate_hashes: hashes(&value.certificate_hashes),
    }
}
