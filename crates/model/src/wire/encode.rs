//! From values to bytes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::generated as wire;
use crate::{
    Action, Certificate, Domain, Endpoints, Listener, Name, PathMatch, Policy, Redirect,
    RedirectTarget, Resource, Route, Test, TlsSettings, Upstream, Value, ValueMatch,
};

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
fn schema(_value: &Value) -> u32 {
    1
}

fn body(value: &Value) -> wire::resource::Body {
    use wire::resource::Body;
    match value {
        Value::Listener(value) => Body::Listener(listener(value)),
        Value::Domain(value) => Body::Domain(domain(value)),
        Value::Certificate(value) => Body::Certificate(certificate(value)),
        Value::Route(value) => Body::Route(route(value)),
        Value::Upstream(value) => Body::Upstream(upstream(value)),
        Value::Endpoints(value) => Body::Endpoints(endpoints(value)),
    }
}

fn listener(value: &Listener) -> wire::Listener {
    let (address, port) = socket(value.address);
    let default_certificate = optional(&value.default_certificate);
    wire::Listener {
        address,
        port,
        tls: value.tls,
        default_certificate,
    }
}

fn domain(value: &Domain) -> wire::Domain {
    wire::Domain {
        listeners: names(&value.listeners),
        host: value.host.as_str().to_owned(),
        certificate: optional(&value.certificate),
        tls: Some(tls_settings(&value.tls)),
    }
}

fn tls_settings(value: &TlsSettings) -> wire::TlsSettings {
    wire::TlsSettings {
        version_min: value.version_min as u32,
        version_max: value.version_max as u32,
    }
}

fn certificate(value: &Certificate) -> wire::Certificate {
    wire::Certificate {
        chain: value.chain.to_vec(),
        key: value.key.expose().clone(),
        key_encoding: value.key.encoding as u32,
    }
}

fn route(value: &Route) -> wire::Route {
    use wire::path_match::Form;
    let form = match &value.path {
        PathMatch::Exact(path) => Form::Exact(path.to_string()),
        PathMatch::Prefix(path) => Form::Prefix(path.to_string()),
        PathMatch::Regex(regex) => Form::Regex(regex.to_string()),
    };
    wire::Route {
        listeners: names(&value.listeners),
        hosts: value
            .hosts
            .iter()
            .map(|host| host.as_str().to_owned())
            .collect(),
        path: Some(wire::PathMatch { form: Some(form) }),
        conditions: value.conditions.iter().map(value_match).collect(),
        rank: value.rank,
        action: Some(action(&value.action)),
        policy: Some(policy(&value.policy)),
    }
}

fn value_match(value: &ValueMatch) -> wire::ValueMatch {
    use wire::value_match::Form;
    let form = match &value.test {
        Test::Exact(text) => Form::Exact(text.to_string()),
        Test::Regex(regex) => Form::Regex(regex.to_string()),
        Test::Present => Form::Present(true),
    };
    wire::ValueMatch {
        source: value.source as u32,
        name: value.name.to_string(),
        form: Some(form),
        invert: value.invert,
    }
}

fn action(value: &Action) -> wire::route::Action {
    match value {
        Action::Forward(upstreams) => {
            let weighted = |entry: &crate::WeightedUpstream| wire::WeightedUpstream {
                upstream: entry.upstream.to_string(),
                weight: entry.weight,
            };
            let upstreams = upstreams.iter().map(weighted).collect();
            wire::route::Action::Forward(wire::Forward { upstreams })
        }
        Action::Redirect(value) => wire::route::Action::Redirect(redirect(value)),
        Action::Respond(value) => wire::route::Action::Respond(wire::Respond {
            status: value.status.into(),
            body: value.body.to_string(),
        }),
    }
}

fn redirect(value: &Redirect) -> wire::Redirect {
    use wire::redirect::Location;
    let location = match &value.target {
        RedirectTarget::Url(url) => Location::Url(url.to_string()),
        RedirectTarget::Path(path) => Location::Path(path.to_string()),
    };
    wire::Redirect {
        status: value.status.into(),
        location: Some(location),
    }
}

fn policy(value: &Policy) -> wire::Policy {
    wire::Policy {
        tls_redirect: value
            .tls_redirect
            .as_ref()
            .map(|redirect| wire::TlsRedirect {
                status: redirect.status.into(),
                port: redirect.port.into(),
                except_prefix: redirect.except_prefix.to_string(),
            }),
        rewrite: value.rewrite.as_ref().map(|path| wire::Rewrite {
            path: path.to_string(),
        }),
        sources_allowed: value
            .sources_allowed
            .iter()
            .map(ToString::to_string)
            .collect(),
        request_body_bytes_max: value.request_body_bytes_max,
        connect_timeout_ms: milliseconds(value.connect_timeout),
        read_timeout_ms: milliseconds(value.read_timeout),
        send_timeout_ms: milliseconds(value.send_timeout),
        cors: value.cors.as_ref().map(|cors| wire::Cors {
            origins: cors.origins.iter().map(ToString::to_string).collect(),
            methods: cors.methods.to_string(),
            headers_allowed: cors.headers_allowed.to_string(),
            headers_exposed: cors.headers_exposed.to_string(),
            credentials: cors.credentials,
            age_max_s: cors.age_max_s,
        }),
        affinity: value.affinity.as_ref().map(|affinity| wire::Affinity {
            cookie: affinity.cookie.to_string(),
            path: affinity.path.to_string(),
            age_max_s: affinity.age_max_s,
            secure: affinity.secure,
        }),
    }
}

fn upstream(value: &Upstream) -> wire::Upstream {
    wire::Upstream {
        protocol: value.protocol as u32,
        dns: value.dns.as_ref().map(|dns| wire::DnsName {
            host: dns.host.to_string(),
            port: dns.port.into(),
        }),
        tls: value.tls.as_ref().map(|tls| wire::UpstreamTls {
            server_name: tls.server_name.to_string(),
            verify: tls.verify,
        }),
    }
}

fn endpoints(value: &Endpoints) -> wire::Endpoints {
    let endpoint = |endpoint: &crate::Endpoint| {
        let (address, port) = socket(endpoint.address);
        wire::Endpoint {
            address,
            port,
            weight: endpoint.weight,
        }
    };
    wire::Endpoints {
        endpoints: value.endpoints.iter().map(endpoint).collect(),
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
