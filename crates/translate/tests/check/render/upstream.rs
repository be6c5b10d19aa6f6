//! Upstreams and endpoints as text: what differs from the defaults.

use std::fmt::Write as _;
use std::time::Duration;

use myriad_model::{
    Balancer, DnsMode, DnsName, Endpoint, Endpoints, HashSource, HashTable, Limits, LocalityPart,
    LocalityRule, LocalityShares, MeshTls, Outlier, Upstream, UpstreamOptions, UpstreamTls,
};

/// The line of an upstream, and the lines of its options below it.
pub(super) fn text(upstream: &Upstream) -> (String, String) {
    let mut line = format!("{:?}", upstream.protocol);
    if let Some(dns) = &upstream.dns {
        let _ = write!(line, " dns={}", joined(dns.names.iter().map(name_text)));
        line.push_str(match dns.mode {
            DnsMode::Strict => "",
            DnsMode::Logical => " logical",
            DnsMode::Dynamic => " dynamic",
        });
    }
    if upstream.original_destination {
        line.push_str(" where it was meant to go");
    }
    if let Some(source) = &upstream.source_address {
        let _ = write!(line, " from={source}");
    }
    if let Some(tls) = &upstream.tls {
        line.push_str(&tls_text(tls));
    }
    let options = upstream
        .options
        .as_deref()
        .map_or_else(Vec::new, options_lines);
    let lines = options.iter().map(|line| format!("\n  {line}"));
    (line, lines.collect())
}

/// The endpoints, with weights and priorities that are not the usual ones.
pub(super) fn endpoints_text(endpoints: &Endpoints) -> String {
    let text = |(index, endpoint): (usize, &Endpoint)| {
        let marks = marks(endpoint.weight, endpoint.priority);
        let mesh = if endpoint.mesh { "+mesh" } else { "" };
        let locality = endpoints.locality(index).map(|text| format!("@{text}"));
        format!(
            "{}{marks}{mesh}{}",
            endpoint.address,
            locality.unwrap_or_default()
        )
    };
    let all: Vec<String> = endpoints.endpoints.iter().enumerate().map(text).collect();
    all.join(" ")
}

fn name_text(name: &DnsName) -> String {
    format!(
        "{}:{}{}",
        name.host,
        name.port,
        marks(name.weight, name.priority)
    )
}

fn marks(weight: u32, priority: u8) -> String {
    let weight = if weight == 1 {
        String::new()
    } else {
        format!("*{weight}")
    };
    match priority {
        0 => weight,
        _ => format!("{weight}^{priority}"),
    }
}

fn tls_text(tls: &UpstreamTls) -> String {
    let mut text = format!(" sni={:?} verify={}", tls.server_name, tls.verify);
    if tls.mesh != MeshTls::None {
        text = format!(" mesh={:?} sni={:?}", tls.mesh, tls.server_name);
    }
    if let Some(trust) = &tls.trust {
        let _ = write!(text, " trust={trust}");
    }
    if let Some(certificate) = &tls.certificate {
        let _ = write!(text, " certificate={certificate}");
    }
    if !tls.subject_alt_names.is_empty() {
        let _ = write!(text, " names={}", joined(tls.subject_alt_names.iter()));
    }
    text
}

fn options_lines(options: &UpstreamOptions) -> Vec<String> {
    let mut lines = Vec::new();
    match &options.balancer {
        Balancer::LeastRequest => {}
        Balancer::RoundRobin => lines.push("round robin".to_owned()),
        Balancer::Random => lines.push("random".to_owned()),
        Balancer::Hash(hash) => {
            let source = match hash.parts.is_empty() {
                true => source_text(&hash.source),
                false => format!("{:?}", hash.parts),
            };
            lines.push(match hash.table {
                HashTable::Ring(size) => format!("hash of {source}, ring of {size}"),
                HashTable::Maglev(size) => format!("hash of {source}, maglev of {size}"),
            });
        }
    }
    if let Some(warmup) = &options.warmup {
        lines.push(format!(
            "warmup {:?} from {}% aggression {}",
            warmup.duration, warmup.percent_min, warmup.aggression
        ));
    }
    let limits = limits_text(&options.limits);
    if !limits.is_empty() {
        lines.push(format!("limits{limits}"));
    }
    lines.extend(options.outlier.as_deref().map(outlier_text));
    if let Some(version) = options.proxy_protocol {
        lines.push(format!("PROXY protocol {version:?}"));
    }
    if let Some(budget) = options.retry_budget {
        let within = match budget.interval.is_zero() {
            true => String::new(),
            false => format!(", within {:?}", budget.interval),
        };
        lines.push(format!(
            "retries {} ppm, at least {}{within}",
            budget.share.ppm(),
            budget.retries_min
        ));
    }
    if let Some(rule) = options.locality.as_deref() {
        lines.push(locality_text(rule));
    }
    if options.follows_client {
        lines.push("as clients speak".to_owned());
    }
    if let Some(tunnel) = options.tunnel.as_deref() {
        lines.push(format!("tunnel to {}:{}", tunnel.host, tunnel.port));
    }
    lines
}

fn locality_text(rule: &LocalityRule) -> String {
    match rule {
        LocalityRule::Nearest(regions) => {
            let pairs = regions.iter().map(|(from, to)| format!(" {from}->{to}"));
            format!("nearest first{}", pairs.collect::<String>())
        }
        LocalityRule::Alike(parts) => {
            let part = |part: &LocalityPart| {
                let value = part.value.as_deref().unwrap_or("own");
                format!(" {:?}={value}", part.level)
            };
            format!("alike first{}", parts.iter().map(part).collect::<String>())
        }
        LocalityRule::Shares(shares) => {
            let text = |shares: &LocalityShares| {
                let to = shares.to.iter().map(|(to, share)| format!(" {to}={share}"));
                format!(" from {}:{}", shares.from, to.collect::<String>())
            };
            format!("shares{}", shares.iter().map(text).collect::<String>())
        }
    }
}

fn source_text(source: &HashSource) -> String {
    match source {
        HashSource::Header(name) => format!("header {name}"),
        HashSource::SourceIp => "source IP".to_owned(),
        HashSource::Query(name) => format!("query {name}"),
        HashSource::Cookie(cookie) => {
            let made = match cookie.age {
                Some(age) => format!(" made for {age:?}"),
                None => String::new(),
            };
            let attributes = cookie.attributes.iter();
            let attributes = attributes.map(|(name, value)| format!("; {name}={value}"));
            let attributes: String = attributes.collect();
            format!("cookie {}{}{made}{attributes}", cookie.name, cookie.path)
        }
    }
}

fn limits_text(limits: &Limits) -> String {
    let mut text = String::new();
    for (name, number) in [
        ("connections", limits.connections_max),
        ("pending", limits.pending_max),
        ("requests", limits.requests_max),
        ("connection_requests", limits.connection_requests_max),
        ("retries", limits.retries_max),
        ("streams", limits.streams_max),
    ] {
        if number != 0 {
            let _ = write!(text, " {name}={number}");
        }
    }
    for (name, time) in [
        ("connect", limits.connect_timeout),
        ("idle", limits.idle_timeout),
        ("connection_time", limits.connection_time_max),
    ] {
        if time != Duration::ZERO {
            let _ = write!(text, " {name}={time:?}");
        }
    }
    if let Some(keepalive) = limits.keepalive {
        let _ = write!(
            text,
            " keepalive={}x{:?} after {:?}",
            keepalive.probes, keepalive.interval, keepalive.time
        );
    }
    if let Some(ping) = limits.ping {
        let _ = write!(text, " ping={:?}/{:?}", ping.interval, ping.timeout);
    }
    text
}

fn outlier_text(outlier: &Outlier) -> String {
    let split = if outlier.is_split { " split" } else { "" };
    format!(
        "outlier 5xx={} gateway={} local={}{split} every {:?} for {:?} at most {}% healthy {}%",
        outlier.server_errors,
        outlier.gateway_errors,
        outlier.local_errors,
        outlier.interval,
        outlier.ejection_time,
        outlier.ejection_percent_max,
        outlier.health_percent_min
    )
}

fn joined<T: ToString>(parts: impl Iterator<Item = T>) -> String {
    let parts: Vec<String> = parts.map(|part| part.to_string()).collect();
    parts.join(",")
}
