//! Upstreams and their endpoints.

use std::time::Duration;

use super::super::{WireError, generated as wire};
use super::policy::milliseconds;
use super::{header_text, optional, port, required, socket};
use crate::{
    Balancer, Dns, DnsMode, DnsName, Endpoint, Endpoints, HashBalancer, HashCookie, HashSource,
    HashTable, Host, Keepalive, Limits, LocalityLevel, LocalityPart, LocalityRule, LocalityShares,
    MeshTls, Outlier, Ping, Protocol, ProxyProtocol, RetryBudget, Share, Tunnel, Upstream,
    UpstreamOptions, UpstreamTls, Warmup,
};

/// Reads an upstream.
pub fn upstream(message: wire::Upstream) -> Result<Upstream, WireError> {
    let protocol = match message.protocol {
        1 => Protocol::Http1,
        2 => Protocol::Https1,
        3 => Protocol::H2c,
        4 => Protocol::H2,
        _ => return Err(WireError::Invalid("protocol")),
    };
    let tls = message.tls.map(tls).transpose()?.map(Box::new);
    if tls.is_some() != protocol.is_tls() {
        return Err(WireError::Invalid("combination of protocol and TLS"));
    }
    let mode = match (message.dns_logical, message.dns_dynamic) {
        (false, false) => DnsMode::Strict,
        (true, false) => DnsMode::Logical,
        (false, true) => DnsMode::Dynamic,
        (true, true) => return Err(WireError::Invalid("mode of DNS")),
    };
    if message.original_destination && !message.dns.is_empty() {
        return Err(WireError::Invalid(
            "combination of DNS and original destination",
        ));
    }
    let source = &message.source_address;
    let source_address = match source.is_empty() {
        true => None,
        false => Some(Box::new(socket(source, 0)?.ip())),
    };
    Ok(Upstream {
        protocol,
        dns: dns(message.dns, mode)?.map(Box::new),
        tls,
        options: message.options.map(options).transpose()?.map(Box::new),
        original_destination: message.original_destination,
        source_address,
    })
}

/// Reads endpoints.
pub fn endpoints(message: wire::Endpoints) -> Result<Endpoints, WireError> {
    let count = message.localities.len();
    if count > Endpoints::LOCALITIES_MAX {
        return Err(WireError::Invalid("number of localities"));
    }
    let locality = |number: u32| {
        let number = u16::try_from(number).ok();
        let number = number.filter(|number| usize::from(*number) <= count);
        number.ok_or(WireError::Invalid("locality"))
    };
    let endpoint = |entry: &wire::Endpoint| {
        Ok(Endpoint {
            address: socket(&entry.address, entry.port)?,
            weight: entry.weight,
            priority: priority(entry.priority)?,
            locality: locality(entry.locality)?,
            mesh: entry.mesh,
        })
    };
    let endpoints = message.endpoints.iter().map(endpoint);
    Ok(Endpoints {
        endpoints: endpoints.collect::<Result<_, WireError>>()?,
        localities: message.localities.into_iter().map(Into::into).collect(),
    })
}

fn dns(messages: Vec<wire::DnsName>, mode: DnsMode) -> Result<Option<Dns>, WireError> {
    if messages.is_empty() {
        return Ok(None);
    }
    if messages.len() > Dns::NAMES_MAX {
        return Err(WireError::Invalid("number of DNS names"));
    }
    let name = |message: wire::DnsName| {
        let host = required(message.host, "DNS name")?;
        if mode == DnsMode::Dynamic && Host::parse(&host).is_err() {
            return Err(WireError::Invalid("pattern of DNS names"));
        }
        Ok(DnsName {
            host: host.as_str().into(),
            port: port(message.port)?,
            weight: message.weight.max(1),
            priority: priority(message.priority)?,
        })
    };
    let names = messages.into_iter().map(name);
    Ok(Some(Dns {
        mode,
        names: names.collect::<Result<_, WireError>>()?,
    }))
}

fn priority(number: u32) -> Result<u8, WireError> {
    let priority = u8::try_from(number).ok();
    priority
        .filter(|priority| *priority <= Endpoint::PRIORITY_MAX)
        .ok_or(WireError::Invalid("priority"))
}

fn tls(message: wire::UpstreamTls) -> Result<UpstreamTls, WireError> {
    if message.subject_alt_names.len() > UpstreamTls::NAMES_MAX {
        return Err(WireError::Invalid("number of subject alternative names"));
    }
    let names = message.subject_alt_names.into_iter();
    let mesh = match message.mesh {
        0 => MeshTls::None,
        1 => MeshTls::Flagged,
        2 => MeshTls::All,
        _ => return Err(WireError::Invalid("mutual TLS of the mesh")),
    };
    Ok(UpstreamTls {
        server_name: message.server_name.into(),
        verify: message.verify,
        trust: optional(message.trust),
        certificate: optional(message.certificate),
        subject_alt_names: names.map(Into::into).collect(),
        mesh,
    })
}

fn options(message: wire::UpstreamOptions) -> Result<UpstreamOptions, WireError> {
    let proxy_protocol = match message.proxy_protocol {
        0 => None,
        1 => Some(ProxyProtocol::V1),
        2 => Some(ProxyProtocol::V2),
        _ => return Err(WireError::Invalid("version of the PROXY protocol")),
    };
    Ok(UpstreamOptions {
        balancer: balancer(message.balancer.unwrap_or_default())?,
        warmup: message.warmup.map(warmup).transpose()?,
        limits: message.limits.map(limits).transpose()?.unwrap_or_default(),
        outlier: message.outlier.map(outlier).transpose()?.map(Box::new),
        proxy_protocol,
        retry_budget: message.retry_budget.map(retry_budget).transpose()?,
        locality: message.locality.map(locality).transpose()?.map(Box::new),
        follows_client: message.follows_client,
        tunnel: message.tunnel.map(tunnel).transpose()?.map(Box::new),
    })
}

fn tunnel(message: wire::Tunnel) -> Result<Tunnel, WireError> {
    // It is written into the head of a request.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if message.host.is_empty() || !message.host.bytes().all(is_plain) {
        return Err(WireError::Invalid("host of a tunnel"));
    }
    Ok(Tunnel {
        host: message.host.into(),
        port: port(message.port)?,
    })
}

fn locality(message: wire::LocalityRule) -> Result<LocalityRule, WireError> {
    let lists = [
        message.regions.len(),
        message.parts.len(),
        message.shares.len(),
    ];
    let all = message.shares.iter().map(|shares| shares.to.len());
    if lists
        .into_iter()
        .chain(all)
        .any(|count| count > LocalityRule::ENTRIES_MAX)
    {
        return Err(WireError::Invalid("number of localities"));
    }
    Ok(match message.form {
        1 => {
            let regions = message.regions.into_iter();
            LocalityRule::Nearest(regions.map(|it| (it.from.into(), it.to.into())).collect())
        }
        2 => {
            let parts = message.parts.into_iter().map(locality_part);
            LocalityRule::Alike(parts.collect::<Result<_, WireError>>()?)
        }
        3 => {
            let shares = message.shares.into_iter().map(|shares| LocalityShares {
                from: shares.from.into(),
                to: shares
                    .to
                    .into_iter()
                    .map(|share| (share.locality.into(), share.weight))
                    .collect(),
            });
            LocalityRule::Shares(shares.collect())
        }
        _ => return Err(WireError::Invalid("rule of localities")),
    })
}

fn locality_part(message: wire::LocalityPart) -> Result<LocalityPart, WireError> {
    Ok(LocalityPart {
        level: match message.level {
            1 => LocalityLevel::Region,
            2 => LocalityLevel::Zone,
            3 => LocalityLevel::Subzone,
            _ => return Err(WireError::Invalid("part of a locality")),
        },
        value: (!message.value.is_empty()).then(|| message.value.into()),
    })
}

fn balancer(message: wire::Balancer) -> Result<Balancer, WireError> {
    let size = message.size;
    let table = match message.form {
        0 => return Ok(Balancer::LeastRequest),
        1 => return Ok(Balancer::RoundRobin),
        2 => return Ok(Balancer::Random),
        3 if (1..=HashTable::SIZE_MAX).contains(&size) => HashTable::Ring(size),
        4 if size <= HashTable::SIZE_MAX && is_prime(size) => HashTable::Maglev(size),
        3 | 4 => return Err(WireError::Invalid("size of a table of hashes")),
        _ => return Err(WireError::Invalid("balancer")),
    };
    let source = message.source.ok_or(WireError::Missing("hash source"))?;
    Ok(Balancer::Hash(Box::new(HashBalancer {
        source: hash_source(source)?,
        table,
    })))
}

fn is_prime(number: u32) -> bool {
    let mut divisors = (2_u32..).take_while(|divisor| divisor * divisor <= number);
    number >= 2 && divisors.all(|divisor| !number.is_multiple_of(divisor))
}

fn hash_source(source: wire::balancer::Source) -> Result<HashSource, WireError> {
    use wire::balancer::Source;
    let name = |text: String| match text.is_empty() {
        true => Err(WireError::Missing("name to hash by")),
        false => header_text(text, "name to hash by"),
    };
    Ok(match source {
        Source::Header(text) => HashSource::Header(name(text)?),
        Source::Query(text) => HashSource::Query(name(text)?),
        Source::SourceIp(_) => HashSource::SourceIp,
        Source::Cookie(cookie) => {
            let attribute = |entry: wire::Header| {
                let value = header_text(entry.value, "cookie attribute")?;
                Ok((header_text(entry.name, "cookie attribute")?, value))
            };
            let age = Duration::from_secs(cookie.age_s.into());
            let attributes = cookie.attributes.into_iter().map(attribute);
            HashSource::Cookie(Box::new(HashCookie {
                name: name(cookie.name)?,
                path: header_text(cookie.path, "cookie path")?,
                age: cookie.make.then_some(age),
                attributes: attributes.collect::<Result<_, WireError>>()?,
            }))
        }
    })
}

fn warmup(message: wire::Warmup) -> Result<Warmup, WireError> {
    if message.aggression == 0 {
        return Err(WireError::Invalid("aggression"));
    }
    Ok(Warmup {
        duration: positive(message.duration_ms)?,
        percent_min: percent(message.percent_min)?,
        aggression: message.aggression,
    })
}

fn limits(message: wire::Limits) -> Result<Limits, WireError> {
    let keepalive = message.keepalive.map(|message| Keepalive {
        probes: message.probes,
        time: milliseconds(message.time_ms),
        interval: milliseconds(message.interval_ms),
    });
    let ping = |message: wire::Ping| {
        Ok(Ping {
            interval: positive(message.interval_ms)?,
            timeout: positive(message.timeout_ms)?,
        })
    };
    Ok(Limits {
        connections_max: message.connections_max,
        pending_max: message.pending_max,
        requests_max: message.requests_max,
        connection_requests_max: message.connection_requests_max,
        retries_max: message.retries_max,
        streams_max: message.streams_max,
        connect_timeout: milliseconds(message.connect_timeout_ms),
        idle_timeout: milliseconds(message.idle_timeout_ms),
        connection_time_max: milliseconds(message.connection_time_max_ms),
        keepalive,
        ping: message.ping.map(ping).transpose()?,
    })
}

fn outlier(message: wire::Outlier) -> Result<Outlier, WireError> {
    let ejection_percent_max = percent(message.ejection_percent_max)?;
    if ejection_percent_max == 0 {
        return Err(WireError::Invalid("percentage"));
    }
    Ok(Outlier {
        server_errors: message.server_errors,
        gateway_errors: message.gateway_errors,
        local_errors: message.local_errors,
        is_split: message.split,
        interval: positive(message.interval_ms)?,
        ejection_time: positive(message.ejection_time_ms)?,
        ejection_percent_max,
        health_percent_min: percent(message.health_percent_min)?,
        error_statuses: error_statuses(&message.error_statuses)?,
    })
}

fn error_statuses(numbers: &[u32]) -> Result<Box<[u16]>, WireError> {
    const BAD: WireError = WireError::Invalid("statuses");
    let is_sorted = numbers.windows(2).all(|pair| pair.first() < pair.last());
    if numbers.len() > Outlier::STATUSES_MAX || !is_sorted {
        return Err(BAD);
    }
    let status = |number: &u32| {
        let status = u16::try_from(*number).ok();
        status.filter(|it| (100..600).contains(it)).ok_or(BAD)
    };
    numbers.iter().map(status).collect()
}

fn retry_budget(message: wire::RetryBudget) -> Result<RetryBudget, WireError> {
    Ok(RetryBudget {
        share: Share::from_ppm(message.share_ppm).ok_or(WireError::Invalid("share"))?,
        retries_min: message.retries_min,
        interval: milliseconds(message.interval_ms),
    })
}

fn percent(number: u32) -> Result<u8, WireError> {
    match u8::try_from(number) {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => Err(WireError::Invalid("percentage")),
    }
}

fn positive(number: u32) -> Result<Duration, WireError> {
    match number {
        0 => Err(WireError::Invalid("duration of zero")),
        _ => Ok(milliseconds(number)),
    }
}
