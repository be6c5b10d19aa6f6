//! How the endpoints of an upstream are chosen, limited and spared.

use std::time::Duration;

use super::*;
use crate::{
    Balancer, HashBalancer, HashCookie, HashPart, HashSource, HashTable, Keepalive, Limits,
    LocalityLevel, LocalityPart, LocalityRule, LocalityShares, Outlier, Ping, ProxyProtocol,
    RetryBudget, Tunnel, UpstreamOptions, Warmup,
};

message! {
    /// How endpoints are chosen, limited and spared.
    UpstreamOptions, options {
        1 balancer: some::<Balancer>(), of Some(options.balancer.clone());
        2 warmup: some::<Warmup>();
        3 limits: defaulted::<Limits>();
        4 outlier: boxed::<Outlier>();
        /// 0 none, or the version.
        5 proxy_protocol: optional_choice::<ProxyProtocol>("version of the PROXY protocol");
        6 retry_budget: some::<RetryBudget>();
        7 locality: boxed::<LocalityRule>();
        /// Clients of HTTP/2 are spoken for in HTTP/2, whatever the protocol says.
        8 follows_client: boolean();
        /// The target of streams.
        9 tunnel: boxed::<Tunnel>();
    } => UpstreamOptions {
        balancer: balancer.unwrap_or_default(),
        warmup,
        limits,
        outlier,
        proxy_protocol,
        retry_budget,
        locality,
        follows_client,
        tunnel,
    }
}

choices! {
    ProxyProtocol { V1, V2 }
}

message! {
    /// Endpoints are proxies, which are asked for a connection to this target (CONNECT).
    Tunnel {
        1 host: tunnel_host();
        2 port: port_number();
    }
}

/// A host that is written into the head of a request.
fn tunnel_host() -> impl Item<Value = str, Out = Box<str>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    text_as(
        |it: &str| it,
        move |it| match !it.is_empty() && it.bytes().all(is_plain) {
            true => Ok(it.into()),
            false => Err(WireError::Invalid("host of a tunnel")),
        },
    )
}

const ENTRIES_MAX: usize = LocalityRule::ENTRIES_MAX;

const ENTRIES: &str = "number of localities";

message! {
    /// Which endpoints are preferred by where they and the proxy are.
    LocalityRule, rule {
        /// 1 the nearest, 2 those that are alike, 3 shares.
        1 form: uint32(), of match rule {
            LocalityRule::Nearest(_) => 1,
            LocalityRule::Alike(_) => 2,
            LocalityRule::Shares(_) => 3,
        };
        /// For form 1: regions, each with the one that takes its place.
        2 regions: list_of(ENTRIES_MAX, ENTRIES, each::<RegionPair>()), of *match rule {
            LocalityRule::Nearest(regions) => &**regions,
            LocalityRule::Alike(_) | LocalityRule::Shares(_) => &[],
        };
        3 parts: list_of(ENTRIES_MAX, ENTRIES, each::<LocalityPart>()), of *match rule {
            LocalityRule::Alike(parts) => &**parts,
            LocalityRule::Nearest(_) | LocalityRule::Shares(_) => &[],
        };
        4 shares: list_of(ENTRIES_MAX, ENTRIES, each::<LocalityShares>()), of *match rule {
            LocalityRule::Shares(shares) => &**shares,
            LocalityRule::Nearest(_) | LocalityRule::Alike(_) => &[],
        };
    } => match form {
        1 => LocalityRule::Nearest(regions.into()),
        2 => LocalityRule::Alike(parts.into()),
        3 => LocalityRule::Shares(shares.into()),
        _ => return Err(WireError::Invalid("rule of localities")),
    }
}

message! {
    /// A region and the one that takes its place.
    RegionPair for (Box<str>, Box<str>), pair {
        1 from: string(), of pair.0;
        2 to: string(), of pair.1;
    } => (from, to)
}

message! {
    /// A part of a locality.
    LocalityPart, part {
        /// 1 region, 2 zone, 3 subzone.
        1 level: choice::<LocalityLevel>("part of a locality");
        /// Empty for what that of the proxy is.
        2 value: string(), of *part.value.as_deref().unwrap_or_default();
    } => LocalityPart { level, value: (!value.is_empty()).then_some(value) }
}

choices! {
    LocalityLevel { Region, Zone, Subzone }
}

message! {
    /// The shares of localities among the requests of proxies in one.
    LocalityShares {
        1 from: string();
        2 to: list_of(ENTRIES_MAX, ENTRIES, each::<LocalityShare>());
    }
}

message! {
    /// A locality and its share.
    LocalityShare for (Box<str>, u32), share {
        1 locality: string(), of share.0;
        2 weight: uint32(), of share.1;
    } => (locality, weight)
}

message! {
    /// The rule that picks an endpoint for each request.
    Balancer, balancer {
        /// 0 least requests, 1 round robin, 2 random, 3 ring of hashes, 4 Maglev.
        1 form: uint32(), of form_and_size(balancer).0;
        /// The size of the ring or table.
        2 size: uint32(), of form_and_size(balancer).1;
        3 source: some_of::<HashSource>(), of match balancer {
            Balancer::Hash(hash) => Some(hash.source.clone()),
            Balancer::LeastRequest | Balancer::RoundRobin | Balancer::Random => None,
        };
        /// All together in place of the source, for proxies that know of them.
        7 parts: list_of(HashPart::COUNT_MAX, "number of parts to hash by", each::<HashPart>()),
            of *match balancer {
                Balancer::Hash(hash) => &*hash.parts,
                Balancer::LeastRequest | Balancer::RoundRobin | Balancer::Random => &[],
            };
    } => match form {
        0 => Balancer::LeastRequest,
        1 => Balancer::RoundRobin,
        2 => Balancer::Random,
        _ => {
            let table = hash_table(form, size)?;
            let source = source.ok_or(WireError::Missing("hash source"))?;
            let parts = parts.into();
            Balancer::Hash(Box::new(HashBalancer { source, parts, table }))
        }
    }
}

fn form_and_size(balancer: &Balancer) -> (u32, u32) {
    match balancer {
        Balancer::LeastRequest => (0, 0),
        Balancer::RoundRobin => (1, 0),
        Balancer::Random => (2, 0),
        Balancer::Hash(hash) => match hash.table {
            HashTable::Ring(size) => (3, size),
            HashTable::Maglev(size) => (4, size),
        },
    }
}

fn hash_table(form: u32, size: u32) -> Result<HashTable, WireError> {
    match form {
        3 if (1..=HashTable::SIZE_MAX).contains(&size) => Ok(HashTable::Ring(size)),
        4 if size <= HashTable::SIZE_MAX && is_prime(size) => Ok(HashTable::Maglev(size)),
        3 | 4 => Err(WireError::Invalid("size of a table of hashes")),
        _ => Err(WireError::Invalid("balancer")),
    }
}

fn is_prime(number: u32) -> bool {
    let mut divisors = (2_u32..).take_while(|divisor| divisor * divisor <= number);
    number >= 2 && divisors.all(|divisor| !number.is_multiple_of(divisor))
}

forms! {
    HashSource {
        3 header: hash_name() => Header;
        4 cookie: each::<HashCookie>() => Cookie;
        5 source_ip => SourceIp;
        6 query: hash_name() => Query;
    }
}

message! {
    /// A part of what makes requests equal.
    HashPart, part {
        1 form: one_of::<HashPart>("part to hash by"), of *part;
    } => form
}

forms! {
    HashPart {
        /// The path and the query.
        1 target => Target;
        2 host => Host;
        3 header: hash_name() => Header;
        4 cookie: hash_name() => Cookie;
        5 source_ip => SourceIp;
        6 query: hash_name() => Query;
    }
}

fn hash_name() -> impl Item<Value = str, Out = Box<str>> {
    text_as(
        |it: &str| it,
        |it| match (it.is_empty(), has_control(it)) {
            (true, _) => Err(WireError::Missing("name to hash by")),
            (false, true) => Err(WireError::Invalid("name to hash by")),
            (false, false) => Ok(it.into()),
        },
    )
}

message! {
    /// A cookie that makes requests equal.
    HashCookie, cookie {
        1 name: hash_name();
        2 path: header_text("cookie path");
        /// Whether one is made for requests without.
        3 make: boolean(), of cookie.age.is_some();
        4 age_s: uint32(), of seconds(cookie.age.unwrap_or_default());
        /// A header stands for name and value.
        5 attributes: list(checked(each::<Header>(), attribute));
    } => HashCookie {
        name,
        path,
        age: make.then(|| Duration::from_secs(age_s.into())),
        attributes: attributes.into(),
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

fn attribute((name, value): &(Box<str>, Box<str>)) -> Result<(), WireError> {
    match has_control(name) || has_control(value) {
        true => Err(WireError::Invalid("cookie attribute")),
        false => Ok(()),
    }
}

message! {
    /// How new endpoints begin.
    Warmup, warmup {
        1 duration as duration_ms: positive(ZERO);
        2 percent_min: percent();
        /// The aggression, in thousandths.
        3 aggression: uint32();
    } => {
        if aggression == 0 {
            return Err(WireError::Invalid("aggression"));
        }
        Warmup { duration, percent_min, aggression }
    }
}

const ZERO: &str = "duration of zero";

fn percent() -> impl Item<Value = u8, Out = u8> {
    at_most(100_u8, "percentage")
}

message! {
    /// 0 stands for what the model says of each.
    Limits {
        1 connections_max: uint32();
        2 pending_max: uint32();
        3 requests_max: uint32();
        4 connection_requests_max: uint32();
        5 retries_max: uint32();
        6 streams_max: uint32();
        7 connect_timeout as connect_timeout_ms: milliseconds();
        8 idle_timeout as idle_timeout_ms: milliseconds();
        9 connection_time_max as connection_time_max_ms: milliseconds();
        10 keepalive: some::<Keepalive>();
        11 ping: some::<Ping>();
    }
}

message! {
    /// Probes of the kernel.
    Keepalive {
        1 probes: uint32();
        2 time as time_ms: milliseconds();
        3 interval as interval_ms: milliseconds();
    }
}

message! {
    /// Pings on connections of HTTP/2.
    Ping {
        1 interval as interval_ms: positive(ZERO);
        2 timeout as timeout_ms: positive(ZERO);
    }
}

message! {
    /// When an endpoint is left out for a while.
    Outlier, outlier {
        1 server_errors: uint32();
        2 gateway_errors: uint32();
        3 local_errors: uint32();
        4 is_split as split: boolean();
        5 interval as interval_ms: positive(ZERO);
        6 ejection_time as ejection_time_ms: positive(ZERO);
        7 ejection_percent_max: percent();
        8 health_percent_min: percent();
        /// Empty for 500 to 599.
        9 error_statuses: Packed(http_status(100..=599, "statuses"));
    } => {
        if ejection_percent_max == 0 {
            return Err(WireError::Invalid("percentage"));
        }
        let is_sorted = error_statuses.is_sorted_by(|one, other| one < other);
        if error_statuses.len() > Outlier::STATUSES_MAX || !is_sorted {
            return Err(WireError::Invalid("statuses"));
        }
        Outlier {
            server_errors,
            gateway_errors,
            local_errors,
            is_split,
            interval,
            ejection_time,
            ejection_percent_max,
            health_percent_min,
            error_statuses: error_statuses.into(),
        }
    }
}

message! {
    /// How many repetitions may be in flight.
    RetryBudget {
        1 share as share_ppm: millionths();
        2 retries_min: uint32();
        /// Requests that began in it count as much as those in flight; 0 for those in flight alone.
        3 interval as interval_ms: milliseconds();
    }
}
