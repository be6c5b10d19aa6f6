//! Listeners and domains.

use std::sync::Arc;

use bytes::Bytes;

use super::{host, names, optional, required, socket};
use crate::wire::WireError;
use crate::wire::generated as wire;
use crate::{
    ALTERNATIVES_MAX, CLIENT_AUTH_PARTS_MAX, CipherSuite, ClientAuth, ClientAuthMode, Domain,
    Listener, ListenerProtocol, Name, TlsSettings, TlsVersion,
};

pub(super) fn listener(message: wire::Listener) -> Result<Listener, WireError> {
    let protocol = match message.protocol {
        0 => ListenerProtocol::Http,
        1 => ListenerProtocol::Tcp,
        _ => return Err(WireError::Invalid("protocol of a listener")),
    };
    Ok(Listener {
        address: socket(&message.address, message.port)?,
        tls: message.tls,
        default_certificate: optional(message.default_certificate),
        protocol,
    })
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
