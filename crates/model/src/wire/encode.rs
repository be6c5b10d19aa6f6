//! From values to bytes.

mod guard;
mod listener;
mod passage;
mod policy;
mod provider;
mod route;
mod telemetry;
mod upstream;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;

pub(super) use telemetry::REQUEST_HEADER;

use super::generated as wire;
use crate::{Certificate, Name, Resource, Trust, Value};

/// Appends the encoded form of a resource.
pub fn encode(resource: &Resource, buffer: &mut Vec<u8>) {
    let message = wire::Resource {
        schema: schema(&resource.value),
        origin: Some(wire::Origin {
            kind: resource.origin.kind.as_str().to_owned(),
            namespace: resource.origin.namespace().to_owned(),
            name: resource.origin.name().to_owned(),
        }),
        body: Some(body(&resource.value)),
    };
    buffer.reserve(message.encoded_len());
    message.encode_raw(buffer);
}

/// The lowest schema that understands a value. Fields that came later raise it where set.
fn schema(value: &Value) -> u32 {
    match value {
        Value::Route(value) => route::schema(value),
        Value::Upstream(value) => upstream::schema(value),
        Value::Endpoints(value) => upstream::endpoints_schema(value),
        Value::Listener(value) => listener::schema(value),
        Value::Domain(value) => listener::domain_schema(value),
        Value::Trust(_)
        | Value::Passage(_)
        | Value::Guard(_)
        | Value::Provider(_)
        | Value::Telemetry(_) => 3,
        Value::Certificate(_) => 1,
    }
}

fn body(value: &Value) -> wire::resource::Body {
    use wire::resource::Body;
    match value {
        Value::Listener(value) => Body::Listener(listener::listener(value)),
        Value::Domain(value) => Body::Domain(listener::domain(value)),
        Value::Certificate(value) => Body::Certificate(certificate(value)),
        Value::Route(value) => Body::Route(route::route(value)),
        Value::Upstream(value) => Body::Upstream(upstream::upstream(value)),
        Value::Endpoints(value) => Body::Endpoints(upstream::endpoints(value)),
        Value::Trust(value) => Body::Trust(trust(value)),
        Value::Passage(value) => Body::Passage(passage::passage(value)),
        Value::Guard(value) => Body::Guard(guard::guard(value)),
        Value::Provider(value) => Body::Provider(provider::provider(value)),
        Value::Telemetry(value) => Body::Telemetry(telemetry::telemetry(value)),
    }
}

fn certificate(value: &Certificate) -> wire::Certificate {
    wire::Certificate {
        chain: value.chain.to_vec(),
        key: value.key.expose().clone(),
        key_encoding: value.key.encoding as u32,
    }
}

fn trust(value: &Trust) -> wire::Trust {
    wire::Trust {
        roots: value.roots.to_vec(),
        crls: value.crls.to_vec(),
    }
}

fn socket(address: SocketAddr) -> (Bytes, u32) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
    };
    (ip, address.port().into())
}

fn names(names: &[Name]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn optional(name: &Option<Name>) -> String {
    name.as_ref().map_or_else(String::new, ToString::to_string)
}

/// Whole milliseconds, at most 2^32 - 1 (49 days), which stands for no limit.
fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
