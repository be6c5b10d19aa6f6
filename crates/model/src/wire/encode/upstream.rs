//! Upstreams and their endpoints.

use std::net::IpAddr;

use bytes::Bytes;

use super::super::generated as wire;
use super::{milliseconds, optional, socket};
use crate::{
    Balancer, DnsMode, Endpoint, Endpoints, HashBalancer, HashCookie, HashSource, HashTable,
    Limits, LocalityPart, LocalityRule, LocalityShares, MeshTls, Outlier, Ping, Protocol, Upstream,
    UpstreamOptions, UpstreamTls,
};

/// The lowest schema that understands an upstream. The third has HTTP/2 and bytes, several names,
/// what certificates are verified against, options, and what sidecars need.
pub fn schema(value: &Upstream) -> u32 {
    let is_first_protocol = matches!(value.protocol, Protocol::Http1 | Protocol::Https1);
    let is_first_dns = value.dns.as_ref().is_none_or(|dns| {
        let is_plain = |name: &crate::DnsName| name.weight == 1 && name.priority == 0;
        dns.mode == DnsMode::Strict && dns.names.len() == 1 && dns.names.iter().all(is_plain)
    });
    let is_first_tls = value.tls.as_ref().is_none_or(|tls| {
        let is_plain = tls.trust.is_none() && tls.certificate.is_none();
        is_plain && tls.subject_alt_names.is_empty() && tls.mesh == MeshTls::None
    });
    let is_first_place = !value.original_destination && value.source_address.is_none();
    let is_first = is_first_protocol && is_first_dns && is_first_tls && is_first_place;
    if is_first && value.options.is_none() {
        1
    } else {
        3
    }
}

/// The lowest schema that understands endpoints. The third has priorities, localities
/// and those of the mesh.
pub fn endpoints_schema(value: &Endpoints) -> u32 {
    let mut endpoints = value.endpoints.iter();
    let is_first = endpoints.all(|endpoint| endpoint.priority == 0 && !endpoint.mesh);
    if is_first && value.localities.is_empty() {
        1
    } else {
        3
    }
}

/// The message of an upstream.
pub fn upstream(value: &Upstream) -> wire::Upstream {
    let name = |name: &crate::DnsName| wire::DnsName {
        host: name.host.to_string(),
        port: name.port.into(),
        weight: if name.weight == 1 { 0 } else { name.weight },
        priority: name.priority.into(),
    };
    let dns = value.dns.as_deref();
    wire::Upstream {
        protocol: value.protocol as u32,
        dns: dns.map_or_else(Vec::new, |dns| dns.names.iter().map(name).collect()),
        tls: value.tls.as_deref().map(tls),
        dns_logical: dns.is_some_and(|dns| dns.mode == DnsMode::Logical),
        options: value.options.as_deref().map(options),
        dns_dynamic: dns.is_some_and(|dns| dns.mode == DnsMode::Dynamic),
        original_destination: value.original_destination,
        source_address: match value.source_address.as_deref() {
            None => Bytes::new(),
            Some(IpAddr::V4(ip)) => Bytes::copy_from_slice(&ip.octets()),
            Some(IpAddr::V6(ip)) => Bytes::copy_from_slice(&ip.octets()),
        },
    }
}

/// The message of endpoints.
pub fn endpoints(value: &Endpoints) -> wire::Endpoints {
    let endpoint = |endpoint: &Endpoint| {
        let (address, port) = socket(endpoint.address);
        wire::Endpoint {
            address,
            port,
            weight: endpoint.weight,
            priority: endpoint.priority.into(),
            locality: endpoint.locality.into(),
            mesh: endpoint.mesh,
        }
    };
    let localities = value.localities.iter();
    wire::Endpoints {
        endpoints: value.endpoints.iter().map(endpoint).collect(),
        localities: localities.map(ToString::to_string).collect(),
    }
}

fn tls(value: &UpstreamTls) -> wire::UpstreamTls {
    let names = value.subject_alt_names.iter();
    wire::UpstreamTls {
        server_name: value.server_name.to_string(),
        verify: value.verify,
        trust: optional(&value.trust),
        certificate: optional(&value.certificate),
        subject_alt_names: names.map(ToString::to_string).collect(),
        mesh: value.mesh as u32,
    }
}

fn options(value: &UpstreamOptions) -> wire::UpstreamOptions {
    let is_limited = value.limits != Limits::default();
    wire::UpstreamOptions {
        balancer: Some(balancer(&value.balancer)),
        warmup: value.warmup.map(|warmup| wire::Warmup {
            duration_ms: milliseconds(warmup.duration),
            percent_min: warmup.percent_min.into(),
            aggression: warmup.aggression,
        }),
        limits: is_limited.then(|| limits(&value.limits)),
        outlier: value.outlier.as_deref().map(outlier),
        proxy_protocol: value.proxy_protocol.map_or(0, |version| version as u32),
        retry_budget: value.retry_budget.map(|budget| wire::RetryBudget {
            share_ppm: budget.share.ppm(),
            retries_min: budget.retries_min,
            interval_ms: milliseconds(budget.interval),
        }),
        locality: value.locality.as_deref().map(locality),
        follows_client: value.follows_client,
        tunnel: value.tunnel.as_deref().map(|tunnel| wire::Tunnel {
            host: tunnel.host.to_string(),
            port: tunnel.port.into(),
        }),
    }
}

fn locality(value: &LocalityRule) -> wire::LocalityRule {
    let mut message = wire::LocalityRule::default();
    match value {
        LocalityRule::Nearest(regions) => {
            message.form = 1;
            let pair = |(from, to): &(Box<str>, Box<str>)| wire::RegionPair {
                from: from.to_string(),
                to: to.to_string(),
            };
            message.regions = regions.iter().map(pair).collect();
        }
        LocalityRule::Alike(parts) => {
            message.form = 2;
            let part = |part: &LocalityPart| wire::LocalityPart {
                level: part.level as u32,
                value: part.value.as_deref().unwrap_or_default().to_owned(),
            };
            message.parts = parts.iter().map(part).collect();
        }
        LocalityRule::Shares(shares) => {
            message.form = 3;
            message.shares = shares.iter().map(locality_shares).collect();
        }
    }
    message
}

fn locality_shares(value: &LocalityShares) -> wire::LocalityShares {
    let share = |(locality, weight): &(Box<str>, u32)| wire::LocalityShare {
        locality: locality.to_string(),
        weight: *weight,
    };
    wire::LocalityShares {
        from: value.from.to_string(),
        to: value.to.iter().map(share).collect(),
    }
}

fn balancer(value: &Balancer) -> wire::Balancer {
    let (form, hash) = match value {
        Balancer::LeastRequest => (0, None),
        Balancer::RoundRobin => (1, None),
        Balancer::Random => (2, None),
        Balancer::Hash(hash) => match hash.table {
            HashTable::Ring(size) => (3, Some((size, hash))),
            HashTable::Maglev(size) => (4, Some((size, hash))),
        },
    };
    wire::Balancer {
        form,
        size: hash.map_or(0, |(size, _)| size),
        source: hash.map(|(_, hash)| hash_source(hash)),
    }
}

fn hash_source(value: &HashBalancer) -> wire::balancer::Source {
    use wire::balancer::Source;
    match &value.source {
        HashSource::Header(name) => Source::Header(name.to_string()),
        HashSource::Cookie(cookie) => Source::Cookie(hash_cookie(cookie)),
        HashSource::SourceIp => Source::SourceIp(true),
        HashSource::Query(name) => Source::Query(name.to_string()),
    }
}

fn hash_cookie(value: &HashCookie) -> wire::HashCookie {
    let attribute = |(name, value): &(Box<str>, Box<str>)| wire::Header {
        name: name.to_string(),
        value: value.to_string(),
    };
    let age = value.age.unwrap_or_default().as_secs();
    wire::HashCookie {
        name: value.name.to_string(),
        path: value.path.to_string(),
        make: value.age.is_some(),
        age_s: u32::try_from(age).unwrap_or(u32::MAX),
        attributes: value.attributes.iter().map(attribute).collect(),
    }
}

fn limits(value: &Limits) -> wire::Limits {
    wire::Limits {
        connections_max: value.connections_max,
        pending_max: value.pending_max,
        requests_max: value.requests_max,
        connection_requests_max: value.connection_requests_max,
        retries_max: value.retries_max,
        streams_max: value.streams_max,
        connect_timeout_ms: milliseconds(value.connect_timeout),
        idle_timeout_ms: milliseconds(value.idle_timeout),
        connection_time_max_ms: milliseconds(value.connection_time_max),
        keepalive: value.keepalive.map(|keepalive| wire::Keepalive {
            probes: keepalive.probes,
            time_ms: milliseconds(keepalive.time),
            interval_ms: milliseconds(keepalive.interval),
        }),
        ping: value.ping.map(|Ping { interval, timeout }| wire::Ping {
            interval_ms: milliseconds(interval),
            timeout_ms: milliseconds(timeout),
        }),
    }
}

fn outlier(value: &Outlier) -> wire::Outlier {
    wire::Outlier {
        server_errors: value.server_errors,
        gateway_errors: value.gateway_errors,
        local_errors: value.local_errors,
        split: value.is_split,
        interval_ms: milliseconds(value.interval),
        ejection_time_ms: milliseconds(value.ejection_time),
        ejection_percent_max: value.ejection_percent_max.into(),
        health_percent_min: value.health_percent_min.into(),
        error_statuses: value.error_statuses.iter().map(|it| (*it).into()).collect(),
    }
}
