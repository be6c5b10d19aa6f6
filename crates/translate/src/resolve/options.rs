//! A DestinationRule's settings of choosing, limiting and sparing endpoints.

use std::net::IpAddr;
use std::time::Duration;

use myriad_api::istio::destination_rule::balancer::{
    ConsistentHash, HttpCookie, LoadBalancer, SimpleBalancer,
};
use myriad_api::istio::destination_rule::connection::{
    ConnectionPool, HttpPool, OutlierDetection, ProxyProtocolVersion, RetryBudget, TcpPool,
};
use myriad_model::host::Pattern;
use myriad_model::{
    self as model, Balancer, HashBalancer, HashCookie, HashSource, HashTable, Host, Keepalive,
    Limits, Outlier, Ping, ProxyProtocol, Share, UpstreamOptions, is_token,
};

use super::locality;
use super::merged::Merged;
use super::policy_problem::{PolicyProblem, warn};
use super::policy_texts::{COOKIE_BYTES_MAX, NAME_BYTES_MAX, is_cookie};
use super::sendable::{has_control, is_attribute};
use crate::settings::Bounds;

/// The least time between two pings of a connection: each idle one costs them.
const PING_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The size of a ring of hashes where none is written.
const RING_SIZE: u32 = 1024;
/// The size of a table of Maglev where none is written.
const MAGLEV_SIZE: u32 = 65_537;
/// The shortest time that an endpoint is left out for: who is back has to be looked for.
const EJECTION_TIME_MIN: Duration = Duration::from_millis(100);
/// The most statuses of a list: there are no more.
const STATUSES_MAX: usize = 500;
/// The shortest time that is told apart from none.
const MILLISECOND: Duration = Duration::from_millis(1);
/// How long an answer to a ping is waited for where nothing is written.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The options of an upstream; none where the rules set nothing but defaults.
pub(super) fn build(
    policy: &Merged<'_>,
    bounds: &Bounds,
    problems: &mut Vec<PolicyProblem>,
) -> Option<UpstreamOptions> {
    let mut options = UpstreamOptions::default();
    if let Some(written) = policy.balancer {
        options.balancer = balancer(written, bounds.upstream_hash_slots, problems);
        options.warmup = warmup(written);
    }
    if let Some(written) = policy.pool {
        options.limits = limits(written);
        options.follows_client = policy.follows_client();
    }
    let outlier = policy.outlier.map(|written| outlier(written, problems));
    options.outlier = outlier.map(Box::new);
    options.locality = locality::build(policy.balancer, options.outlier.is_some(), problems);
    options.proxy_protocol = policy.proxy_protocol.map(|written| match written.version {
        ProxyProtocolVersion::V1 => ProxyProtocol::V1,
        ProxyProtocolVersion::V2 => ProxyProtocol::V2,
    });
    options.retry_budget = policy.retry_budget.map(retry_budget);
    options.tunnel = tunnel(policy, problems).map(Box::new);
    (options != UpstreamOptions::default()).then_some(options)
}

/// The options of an upstream. What is wrong with them is told by the unit of the rule alone.
pub(crate) fn of_policy(policy: &Merged<'_>, bounds: &Bounds) -> Option<UpstreamOptions> {
    build(policy, bounds, &mut Vec::new())
}

/// Whether streams go through a tunnel: one that was asked for and is not there closes.
pub(super) fn has_tunnel(options: Option<&UpstreamOptions>) -> bool {
    options.is_some_and(|options| options.tunnel.is_some())
}

fn balancer(written: &LoadBalancer, slots_max: u32, problems: &mut Vec<PolicyProblem>) -> Balancer {
    if let Some(hash) = &written.consistent_hash {
        return hash_balancer(hash, slots_max, problems);
    }
    match written.simple {
        Some(SimpleBalancer::RoundRobin) => Balancer::RoundRobin,
        Some(SimpleBalancer::Random) => Balancer::Random,
        Some(SimpleBalancer::Passthrough) => {
            problems.push(warn(
                "loadBalancer.simple",
                "is PASSTHROUGH, which a gateway has no address for, so LEAST_REQUEST is used",
                "write LEAST_REQUEST, ROUND_ROBIN or RANDOM",
            ));
            Balancer::LeastRequest
        }
        None
        | Some(
            SimpleBalancer::Unspecified | SimpleBalancer::LeastConn | SimpleBalancer::LeastRequest,
        ) => Balancer::LeastRequest,
    }
}

fn hash_balancer(
    written: &ConsistentHash,
    slots_max: u32,
    problems: &mut Vec<PolicyProblem>,
) -> Balancer {
    let source = match hash_source(written, problems) {
        Ok(source) => source,
        Err(problem) => {
            problems.push(problem);
            return Balancer::LeastRequest;
        }
    };
    let table = hash_table(written, slots_max, problems);
    Balancer::Hash(Box::new(HashBalancer {
        source,
        parts: Box::default(),
        table,
    }))
}

/// The table that a balancer by hashes takes; `None` where it is no such balancer.
pub(crate) fn table_of(written: &ConsistentHash, slots_max: u32) -> Option<HashTable> {
    hash_source(written, &mut Vec::new()).ok()?;
    Some(hash_table(written, slots_max, &mut Vec::new()))
}

/// The property that is hashed, or why none is.
fn hash_source(
    written: &ConsistentHash,
    problems: &mut Vec<PolicyProblem>,
) -> Result<HashSource, PolicyProblem> {
    fn name(text: Option<&str>) -> Option<&str> {
        text.filter(|text| !text.is_empty())
    }
    let is_bad = |text: &str| text.len() > NAME_BYTES_MAX || has_control(text);
    let bad = |field: &str| {
        Err(warn(
            &format!("loadBalancer.consistentHash.{field}"),
            "is no name that a request can have, so LEAST_REQUEST is used",
            "write a name of at most 256 bytes without control characters, and that of a cookie \
             without separators",
        ))
    };
    if let Some(header) = name(written.http_header_name.as_deref()) {
        return match is_bad(header) {
            true => bad("httpHeaderName"),
            false => Ok(HashSource::Header(header.to_ascii_lowercase().into())),
        };
    }
    if let Some(cookie) = &written.http_cookie {
        return match !is_bad(&cookie.name) && is_token(&cookie.name) {
            true => Ok(HashSource::Cookie(Box::new(hash_cookie(cookie, problems)))),
            false => bad("httpCookie.name"),
        };
    }
    if let Some(query) = name(written.http_query_parameter_name.as_deref()) {
        return match is_bad(query) {
            true => bad("httpQueryParameterName"),
            false => Ok(HashSource::Query(query.into())),
        };
    }
    match written.use_source_ip {
        Some(true) => Ok(HashSource::SourceIp),
        _ => Err(warn(
            "loadBalancer.consistentHash",
            "does not say what is hashed, so LEAST_REQUEST is used",
            "write httpHeaderName, httpCookie, useSourceIp or httpQueryParameterName",
        )),
    }
}

fn hash_table(
    written: &ConsistentHash,
    slots_max: u32,
    problems: &mut Vec<PolicyProblem>,
) -> HashTable {
    match (&written.maglev, &written.ring_hash) {
        (Some(maglev), _) => HashTable::Maglev(maglev_size(maglev.table_size, slots_max, problems)),
        (None, ring) => {
            let written = ring.map_or(written.minimum_ring_size, |ring| ring.minimum_ring_size);
            HashTable::Ring(ring_size(written, slots_max, problems))
        }
    }
}

/// A cookie that clients bring is hashed all the same where none can be made.
fn hash_cookie(written: &HttpCookie, problems: &mut Vec<PolicyProblem>) -> HashCookie {
    let field = "loadBalancer.consistentHash.httpCookie";
    let problem = match is_cookie(written) {
        false => Some(warn(
            field,
            format!("has more than {COOKIE_BYTES_MAX} bytes, so none is made"),
            "write a shorter path, and fewer or shorter attributes",
        )),
        true => bad_part(written).map(|part| {
            warn(
                &format!("{field}.{part}"),
                "cannot stand in a cookie, so none is made",
                "leave out control characters, semicolons and what is not ASCII",
            )
        }),
    };
    if let Some(problem) = problem {
        problems.push(problem);
        return HashCookie {
            name: written.name.clone(),
            path: Box::default(),
            age: None,
            attributes: Box::default(),
        };
    }
    let attributes = written.attributes.iter();
    HashCookie {
        name: written.name.clone(),
        path: written.path.clone(),
        // Whole seconds, so that what is sent is what is hashed as equal.
        age: written.ttl.map(|ttl| Duration::from_secs(ttl.as_secs())),
        attributes: attributes
            .map(|attribute| (attribute.name.clone(), attribute.value.clone()))
            .collect(),
    }
}

/// The first part of a cookie that would end its attribute, or the cookie.
fn bad_part(written: &HttpCookie) -> Option<String> {
    if !is_attribute(&written.path) {
        return Some("path".to_owned());
    }
    let mut attributes = written.attributes.iter().enumerate();
    attributes.find_map(|(at, attribute)| {
        let part = match is_token(&attribute.name) {
            true if is_attribute(&attribute.value) => return None,
            true => "value",
            false => "name",
        };
        Some(format!("attributes[{at}].{part}"))
    })
}

fn ring_size(written: u64, slots_max: u32, problems: &mut Vec<PolicyProblem>) -> u32 {
    match u32::try_from(written) {
        Ok(0) => RING_SIZE.min(slots_max),
        Ok(size) if size <= slots_max => size,
        _ => {
            problems.push(warn(
                "loadBalancer.consistentHash.ringHash.minimumRingSize",
                format!("is above {slots_max}, so {slots_max} is used"),
                "write a smaller ring, or raise --bound upstream-hash-slots",
            ));
            slots_max
        }
    }
}

fn maglev_size(written: u64, slots_max: u32, problems: &mut Vec<PolicyProblem>) -> u32 {
    let (message, remedy, size) = match u32::try_from(written) {
        Ok(0) => return prime_within(MAGLEV_SIZE.min(slots_max)),
        Ok(size) if size <= slots_max && is_prime(size) => return size,
        Ok(size) if size <= slots_max => {
            let usual = prime_within(MAGLEV_SIZE.min(slots_max));
            (
                format!("is {size}, which is no prime, so {usual} is used"),
                "write a prime such as 65537",
                usual,
            )
        }
        _ => {
            let most = prime_within(slots_max);
            (
                format!("is above {slots_max}, so {most} is used"),
                "write a smaller table, or raise --bound upstream-hash-slots",
                most,
            )
        }
    };
    let field = "loadBalancer.consistentHash.maglev.tableSize";
    problems.push(warn(field, message, remedy));
    size
}

/// The largest prime that is not above a number of at least 2.
fn prime_within(number: u32) -> u32 {
    let mut numbers = (2..=number).rev();
    numbers.find(|number| is_prime(*number)).unwrap_or(2)
}

fn is_prime(number: u32) -> bool {
    let mut divisors = (2_u32..).take_while(|divisor| divisor * divisor <= number);
    number >= 2 && divisors.all(|divisor| !number.is_multiple_of(divisor))
}

fn warmup(written: &LoadBalancer) -> Option<model::Warmup> {
    let own = written.warmup.as_ref();
    let duration = own.map(|own| own.duration).or(written.warmup_duration)?;
    let percent = own.and_then(|own| own.minimum_percent).unwrap_or(10.0);
    let aggression = own.and_then(|own| own.aggression).unwrap_or(1.0);
    (duration >= MILLISECOND).then(|| model::Warmup {
        duration: whole(duration),
        percent_min: percent.clamp(0.0, 100.0) as u8,
        aggression: (aggression * 1000.0).clamp(1.0, 1_000_000.0) as u32,
    })
}

fn limits(written: &ConnectionPool) -> Limits {
    let tcp = written.tcp.clone().unwrap_or_default();
    let http = written.http.clone().unwrap_or_default();
    Limits {
        connections_max: tcp.max_connections,
        pending_max: http.http1_max_pending_requests,
        requests_max: http.http2_max_requests,
        connection_requests_max: http.max_requests_per_connection,
        retries_max: http.max_retries,
        streams_max: http.max_concurrent_streams,
        connect_timeout: whole(tcp.connect_timeout.unwrap_or_default()),
        idle_timeout: idle_timeout(&tcp, &http),
        connection_time_max: whole(tcp.max_connection_duration.unwrap_or_default()),
        keepalive: tcp.tcp_keepalive.map(|written| Keepalive {
            probes: written.probes,
            time: whole(written.time.unwrap_or_default()),
            interval: whole(written.interval.unwrap_or_default()),
        }),
        ping: ping(&http),
    }
}

fn idle_timeout(tcp: &TcpPool, http: &HttpPool) -> Duration {
    whole(http.idle_timeout.or(tcp.idle_timeout).unwrap_or_default())
}

fn ping(http: &HttpPool) -> Option<Ping> {
    let written = http.http2_keep_alive.as_ref()?;
    let interval = written.interval.filter(|time| *time >= MILLISECOND)?;
    let timeout = written.timeout.filter(|time| *time >= MILLISECOND);
    Some(Ping {
        interval: whole(interval).max(PING_INTERVAL_MIN),
        timeout: whole(timeout.unwrap_or(PING_TIMEOUT)),
    })
}

/// Envoy's defaults where nothing is written: five errors in a row, looked at every 10 s, 30 s
/// out, a tenth of the endpoints.
fn outlier(written: &OutlierDetection, problems: &mut Vec<PolicyProblem>) -> Outlier {
    let codes = written.http_error_codes.iter().take(STATUSES_MAX);
    let statuses = codes.filter_map(|code| u16::try_from(*code).ok());
    let mut statuses: Vec<u16> = statuses.filter(|it| (100..600).contains(it)).collect();
    if statuses.len() != written.http_error_codes.len() {
        problems.push(warn(
            "outlierDetection.outlierDetectionHttpErrorCodes",
            "has a number that is no status, or more of them than there are, which is left out",
            "write statuses from 100 to 599",
        ));
    }
    statuses.sort_unstable();
    statuses.dedup();
    let former = Some(written.consecutive_errors).filter(|count| *count > 0);
    let interval = written.interval.filter(|time| *time >= MILLISECOND);
    let percent = |number: u32| number.min(100) as u8;
    Outlier {
        server_errors: written.consecutive_5xx_errors.unwrap_or(5),
        gateway_errors: written.consecutive_gateway_errors.or(former).unwrap_or(0),
        local_errors: written.consecutive_local_origin_failures.unwrap_or(5),
        is_split: written.split_external_local_origin_errors,
        interval: whole(interval.unwrap_or(Duration::from_secs(10))),
        ejection_time: ejection_time(written, problems),
        ejection_percent_max: match percent(written.max_ejection_percent) {
            0 => 10,
            percent => percent,
        },
        health_percent_min: percent(written.min_health_percent),
        error_statuses: statuses.into(),
    }
}

/// The time that an endpoint is left out for at first.
fn ejection_time(written: &OutlierDetection, problems: &mut Vec<PolicyProblem>) -> Duration {
    let time = written.base_ejection_time;
    let time = time.filter(|time| *time >= MILLISECOND);
    let time = time.unwrap_or(Duration::from_secs(30));
    if time < EJECTION_TIME_MIN {
        problems.push(warn(
            "outlierDetection.baseEjectionTime",
            format!("is below {EJECTION_TIME_MIN:?}, so that is used"),
            "write a longer time",
        ));
    }
    whole(time.max(EJECTION_TIME_MIN))
}

fn retry_budget(written: &RetryBudget) -> model::RetryBudget {
    let percent = written.percent.unwrap_or(20.0).clamp(0.0, 100.0);
    model::RetryBudget {
        share: Share::from_ppm((percent * 10_000.0) as u32).unwrap_or(Share::ALL),
        retries_min: match written.min_retry_concurrency {
            0 => 3,
            number => number,
        },
        interval: whole(written.budget_interval.unwrap_or_default()),
    }
}

/// The target that proxies are asked to connect to.
fn tunnel(policy: &Merged<'_>, problems: &mut Vec<PolicyProblem>) -> Option<model::Tunnel> {
    let written = policy.tunnel?;
    let mut closed = |field: &str, message: &str, remedy: &'static str| {
        problems.push(PolicyProblem {
            field: format!("tunnel.{field}"),
            message: format!("{message}, so nobody is reached"),
            remedy,
            is_error: true,
        });
    };
    let host = &*written.target_host;
    let known = Host::parse(host);
    let is_name = known.is_ok_and(|host| matches!(host.pattern(), Pattern::Exact(_)));
    let is_host = is_name || host.parse::<IpAddr>().is_ok();
    if !matches!(&*written.protocol, "" | "CONNECT") {
        let message = format!("is {}, which is not honoured", written.protocol);
        closed("protocol", &message, "write CONNECT");
        return None;
    }
    if !is_host || written.target_port == 0 {
        let message = "and targetPort are no host and port";
        closed("targetHost", message, "write a host name or an IP address");
        return None;
    }
    Some(model::Tunnel {
        host: host.into(),
        port: written.target_port,
    })
}

/// The time in whole milliseconds, as it is sent; a shorter time is one.
fn whole(time: Duration) -> Duration {
    if time.is_zero() {
        return time;
    }
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
}
