//! From bytes to values, checking everything.

mod guard;
mod listener;
mod passage;
mod policy;
mod provider;
mod route;
mod shared;
mod telemetry;
mod upstream;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::generated as wire;
use super::{SCHEMA, WireError};
use crate::{
    Certificate, Host, KeyEncoding, Name, Origin, OriginKind, PrivateKey, Resource,
    TRUST_PARTS_MAX, Trust, Value,
};

/// Reads a resource. Byte fields are slices of `bytes`.
///
/// # Errors
/// See [`WireError`].
pub fn decode(bytes: &Bytes) -> Result<Resource, WireError> {
    decode_within(bytes, SCHEMA)
}

/// Reads a resource as a build does that understands no newer schema than this.
///
/// # Errors
/// See [`WireError`].
pub fn decode_within(bytes: &Bytes, schema_max: u32) -> Result<Resource, WireError> {
    let message = wire::Resource::decode(bytes.clone()).map_err(|_| WireError::Malformed)?;
    let understood = schema_max.min(SCHEMA);
    if message.schema > understood {
        let needed = message.schema;
        return Err(WireError::NewerSchema { needed, understood });
    }
    let origin = origin(message.origin.ok_or(WireError::Missing("origin"))?);
    Ok(Resource {
        origin,
        value: body(message.body.ok_or(WireError::Missing("body"))?)?,
    })
}

fn origin(message: wire::Origin) -> Origin {
    Origin {
        kind: OriginKind::from_word(&message.kind),
        id: shared::text(format!("{}/{}", message.namespace, message.name).into()),
    }
}

fn body(message: wire::resource::Body) -> Result<Value, WireError> {
    use wire::resource::Body;
    Ok(match message {
        Body::Listener(message) => Value::Listener(Box::new(listener::listener(message)?)),
        Body::Domain(message) => Value::Domain(Box::new(listener::domain(message)?)),
        Body::Certificate(message) => Value::Certificate(Box::new(certificate(message)?)),
        Body::Route(message) => Value::Route(Box::new(route::route(message)?)),
        Body::Upstream(message) => Value::Upstream(upstream::upstream(message)?),
        Body::Endpoints(message) => Value::Endpoints(upstream::endpoints(message)?),
        Body::Trust(message) => Value::Trust(Box::new(trust(message)?)),
        Body::Passage(message) => Value::Passage(Box::new(passage::passage(message)?)),
        Body::Guard(message) => Value::Guard(Box::new(guard::guard(message)?)),
        Body::Provider(message) => Value::Provider(Box::new(provider::provider(message)?)),
        Body::Telemetry(message) => Value::Telemetry(Box::new(telemetry::telemetry(message)?)),
    })
}

fn certificate(message: wire::Certificate) -> Result<Certificate, WireError> {
    if message.chain.is_empty() || message.chain.iter().any(Bytes::is_empty) {
        return Err(WireError::Missing("certificate"));
    }
    let encoding = match message.key_encoding {
        1 => KeyEncoding::Pkcs8,
        2 => KeyEncoding::Pkcs1,
        3 => KeyEncoding::Sec1,
        _ => return Err(WireError::Invalid("key encoding")),
    };
    if message.key.is_empty() {
        return Err(WireError::Missing("key"));
    }
    Ok(Certificate {
        chain: message.chain.into(),
        key: PrivateKey::new(encoding, message.key),
    })
}

fn trust(message: wire::Trust) -> Result<Trust, WireError> {
    let (roots, crls) = (message.roots, message.crls);
    if roots.is_empty() || roots.iter().any(Bytes::is_empty) {
        return Err(WireError::Missing("root"));
    }
    if crls.iter().any(Bytes::is_empty) {
        return Err(WireError::Missing("revocation list"));
    }
    if roots.len().max(crls.len()) > TRUST_PARTS_MAX {
        return Err(WireError::Invalid("number of roots or revocation lists"));
    }
    Ok(Trust {
        roots: roots.into(),
        crls: crls.into(),
    })
}

fn socket(address: &[u8], number: u32) -> Result<SocketAddr, WireError> {
    let port = u16::try_from(number).map_err(|_| WireError::Invalid("port"))?;
    let ip = if let Ok(octets) = <[u8; 4]>::try_from(address) {
        Ipv4Addr::from(octets).into()
    } else if let Ok(octets) = <[u8; 16]>::try_from(address) {
        Ipv6Addr::from(octets).into()
    } else {
        return Err(WireError::Invalid("address"));
    };
    Ok(SocketAddr::new(ip, port))
}

fn port(number: u32) -> Result<u16, WireError> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(WireError::Invalid("port")),
    }
}

fn redirect_status(number: u32) -> Result<u16, WireError> {
    match number {
        301 | 302 | 303 | 307 | 308 => Ok(number as u16),
        _ => Err(WireError::Invalid("redirect status")),
    }
}

fn host(text: &str) -> Result<Host, WireError> {
    Host::parse(text).map_err(|_| WireError::Invalid("host"))
}

/// Text that goes into a header or request line: no control character may split it.
fn header_text(text: String, what: &'static str) -> Result<Box<str>, WireError> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(WireError::Invalid(what));
    }
    Ok(text.into())
}

fn names(texts: Vec<String>) -> Result<Arc<[Name]>, WireError> {
    texts
        .into_iter()
        .map(|text| required(text, "name"))
        .collect()
}

fn required(text: String, what: &'static str) -> Result<Name, WireError> {
    if text.is_empty() {
        Err(WireError::Missing(what))
    } else {
        Ok(Name::new(text))
    }
}

fn optional(text: String) -> Option<Name> {
    (!text.is_empty()).then(|| Name::new(text))
}
