//! Listeners and domains.

use std::sync::Arc;

use bytes::Bytes;

use super::{host, names, optional, required, socket};
use crate::wire::WireError;
use crate::wire::generated as wire;
use crate::{
    ALTERNATIVES_MAX, CLIENT_AUTH_PARTS_MAX, Capture, CaptureDirection, CipherSuite, ClientAuth,
    ClientAuthMode, Domain, Listener, ListenerProtocol, MutualTls, Name, TlsSettings, TlsVersion,
};

pub(super) fn listener(message: wire::Listener) -> Result<Listener, WireError> {
    let protocol = match message.protocol {
        0 => ListenerProtocol::Http,
        1 => ListenerProtocol::Tcp,
        2 => ListenerProtocol::Detected,
        _ => return Err(WireError::Invalid("protocol of a listener")),
    };
    let capture = message.capture.map(capture).transpose()?;
    let mutual = capture.map_or(MutualTls::None, |capture| capture.mutual);
    // TLS of a captured connection is found out, or its own; and so is what it speaks.
    let is_secured_twice = message.tls && mutual != MutualTls::None;
    let is_detected = protocol == ListenerProtocol::Detected;
    if is_secured_twice || (is_detected && (capture.is_none() || message.tls)) {
        return Err(WireError::Invalid(
            "combination of protocol, TLS and capture",
        ));
    }
    Ok(Listener {
        address: socket(&message.address, message.port)?,
        tls: message.tls,
        default_certificate: optional(message.default_certificate),
        protocol,
        capture,
    })
}

fn capture(message: wire::Capture) -> Result<Capture, WireError> {
    let direction = match message.direction {
        1 => CaptureDirection::Outbound,
        2 => CaptureDirection::Inbound,
        _ => return Err(WireError::Invalid("direction of a capture")),
    };
    let mutual = match (direction, message.mutual) {
        (_, 0) => MutualTls::None,
        (CaptureDirection::Inbound, 1) => MutualTls::Permissive,
        (CaptureDirection::Inbound, 2) => MutualTls::Strict,
        _ => return Err(WireError::Invalid("mutual TLS of a capture")),
    };
    Ok(Capture { direction, mutual })
}

pub(super) fn domain(message: wire::Domain) -> Result<Domain, WireError> {
    let certificate = optional(message.certificate);
    let alternatives: Box<[Name]> = message
        .alternatives
        .into_iter()
        .map(|text| required(text, "name"))
        .collect::<Result<_, _>>()?;
    if alternatives.len() > ALTERNATIVES_MAX || (certificate.is_none() && !alternatives.is_empty())
    {
        return Err(WireError::Invalid("number of certificates"));
    }
    if message.mesh && (certificate.is_some() || message.client_auth.is_some()) {
        return Err(WireError::Invalid(
            "certificate of its own beside the mesh's",
        ));
    }
    Ok(Domain {
        listeners: names(message.listeners)?,
        host: host(&message.host)?,
        certificate,
        alternatives,
        tls: Arc::new(tls_settings(message.tls.ok_or(WireError::Missing("tls"))?)?),
        client_auth: match message.client_auth {
            Some(message) => Some(Arc::new(client_auth(message)?)),
            None => None,
        },
        mesh: message.mesh,
    })
}

fn tls_settings(message: wire::TlsSettings) -> Result<TlsSettings, WireError> {
    let version = |number| match number {
        12 => Ok(TlsVersion::V12),
        13 => Ok(TlsVersion::V13),
        _ => Err(WireError::Invalid("TLS version")),
    };
    let numbers = &message.cipher_suites;
    if numbers.len() > CipherSuite::ALL.len() {
        return Err(WireError::Invalid("number of cipher suites"));
    }
    let suite = |number: &u32| {
        let mut all = CipherSuite::ALL.into_iter();
        all.find(|suite| *suite as u32 == *number)
            .ok_or(WireError::Invalid("cipher suite"))
    };
    let settings = TlsSettings {
        version_min: version(message.version_min)?,
        version_max: version(message.version_max)?,
        cipher_suites: numbers.iter().map(suite).collect::<Result<_, _>>()?,
    };
    if settings.version_min > settings.version_max {
        return Err(WireError::Invalid("range of TLS versions"));
    }
    let versions = settings.version_min..=settings.version_max;
    let mut suites = settings.cipher_suites.iter();
    if !numbers.is_empty() && !suites.any(|suite| versions.contains(&suite.version())) {
        return Err(WireError::Invalid(
            "combination of versions and cipher suites",
        ));
    }
    Ok(settings)
}

fn client_auth(message: wire::ClientAuth) -> Result<ClientAuth, WireError> {
    let mode = match message.mode {
        1 => ClientAuthMode::Required,
        2 => ClientAuthMode::Optional,
        _ => return Err(WireError::Invalid("mode of client authentication")),
    };
    let names = message.subject_alt_names;
    if names.len() > CLIENT_AUTH_PARTS_MAX || names.iter().any(String::is_empty) {
        return Err(WireError::Invalid("subject alternative name"));
    }
    Ok(ClientAuth {
        trust: required(message.trust, "trust")?,
        mode,
        subject_alt_names: names.into_iter().map(String::into_boxed_str).collect(),
        key_hashes: hashes(&message.key_hashes)?,
        certificate_hashes: hashes(&message.certificate_hashes)?,
    })
}

fn hashes(list: &[Bytes]) -> Result<Box<[[u8; 32]]>, WireError> {
    if list.len() > CLIENT_AUTH_PARTS_MAX {
        return Err(WireError::Invalid("number of hashes"));
    }
    let hash = |bytes: &Bytes| {
        <[u8; 32]>::try_from(&**bytes).map_err(|_| WireError::Invalid("length of a hash"))
    };
    list.iter().map(hash).collect()
}
