//! The fields that the third schema adds to upstreams and endpoints.

use std::time::Duration;

use proptest::prelude::*;

use super::{decode, encoded, resource};
use crate::wire::decode_within;
use crate::{
    Balancer, Dns, DnsMode, DnsName, Endpoint, Endpoints, HashBalancer, HashCookie, HashPart,
    HashSource, HashTable, Keepalive, Limits, LocalityLevel, LocalityPart, LocalityRule,
    LocalityShares, MeshTls, Outlier, Ping, Protocol, ProxyProtocol, RetryBudget, Share, Tunnel,
    Upstream, UpstreamOptions, UpstreamTls, Value, Warmup, WireError,
};

/// An upstream with every field set.
pub(super) fn third() -> Upstream {
    let name = |host: &str, weight, priority| DnsName {
        host: host.into(),
        port: 443,
        weight,
        priority,
    };
    Upstream {
        protocol: Protocol::H2,
        dns: Some(Box::new(Dns {
            mode: DnsMode::Logical,
            names: [name("a.example", 1, 0), name("b.example", 7, 1)].into(),
        })),
        tls: Some(Box::new(UpstreamTls {
            server_name: "db".into(),
            verify: true,
            trust: Some("ns/roots".into()),
            certificate: Some("ns/client".into()),
            subject_alt_names: ["db.example".into(), "spiffe://a/b".into()].into(),
            mesh: MeshTls::None,
        })),
        options: Some(Box::new(options())),
        original_destination: false,
        source_address: None,
    }
}

/// The upstream by which a sidecar reaches the original destination of connections.
pub(super) fn mesh() -> Upstream {
    Upstream {
        tls: Some(Box::new(UpstreamTls {
            server_name: "outbound_.80_._.a.b.svc.cluster.local".into(),
            subject_alt_names: ["spiffe://cluster.local/ns/b/sa/a".into()].into(),
            mesh: MeshTls::Flagged,
            ..UpstreamTls::unverified()
        })),
        original_destination: true,
        source_address: Some(Box::new("127.0.0.6".parse().unwrap())),
        ..Upstream::plain(Protocol::H2)
    }
}

/// Endpoints with every field set.
pub(super) fn third_endpoints() -> Endpoints {
    Endpoints::new(
        [Endpoint {
            weight: 2,
            priority: 3,
            ..Endpoint::even("10.1.2.3:8080".parse().unwrap())
        }]
        .into(),
    )
}

/// An endpoint that speaks mutual TLS of the mesh.
pub(super) fn mesh_endpoints() -> Endpoints {
    Endpoints::new(
        [Endpoint {
            mesh: true,
            ..Endpoint::even("10.1.2.3:8080".parse().unwrap())
        }]
        .into(),
    )
}

#[test]
fn endpoints_say_where_they_are_and_name_no_locality_that_is_not_listed() {
    let mut endpoints = third_endpoints();
    endpoints.localities = ["eu/a/1".into(), "eu/b".into()].into();
    for locality in 0..3 {
        endpoints.endpoints[0].locality = locality;
        let known = ["eu/a/1", "eu/b"].get(usize::from(locality).wrapping_sub(1));
        assert_eq!(endpoints.locality(0), known.copied());
        let value = Value::Endpoints(Box::new(endpoints.clone()));
        let back = decode(&encoded(&resource(value.clone()))).unwrap();
        assert_eq!(back.value, value);
    }
    endpoints.endpoints[0].locality = 3;
    let value = Value::Endpoints(Box::new(endpoints));
    let refused = Err(WireError::Invalid("locality"));
    assert_eq!(decode(&encoded(&resource(value))), refused);
}

fn options() -> UpstreamOptions {
    let seconds = Duration::from_secs;
    UpstreamOptions {
        balancer: Balancer::Hash(Box::new(HashBalancer {
            source: HashSource::Cookie(Box::new(HashCookie {
                name: "user".into(),
                path: "/".into(),
                age: Some(seconds(60)),
                attributes: [("SameSite".into(), "Strict".into())].into(),
            })),
            parts: Box::default(),
            table: HashTable::Maglev(65_537),
        })),
        warmup: Some(Warmup {
            duration: seconds(30),
            percent_min: 10,
            aggression: 1_500,
        }),
        limits: Limits {
            connections_max: 1,
            pending_max: 2,
            requests_max: 3,
            connection_requests_max: 4,
            retries_max: 5,
            streams_max: 6,
            connect_timeout: seconds(7),
            idle_timeout: seconds(8),
            connection_time_max: seconds(9),
            keepalive: Some(Keepalive {
                probes: 3,
                time: seconds(60),
                interval: seconds(10),
            }),
            ping: Some(Ping {
                interval: seconds(20),
                timeout: seconds(5),
            }),
        },
        outlier: Some(Box::new(Outlier {
            server_errors: 5,
            gateway_errors: 3,
            local_errors: 2,
            is_split: true,
            interval: seconds(10),
            ejection_time: seconds(30),
            ejection_percent_max: 10,
            health_percent_min: 50,
            error_statuses: [500, 503].into(),
        })),
        proxy_protocol: Some(ProxyProtocol::V2),
        retry_budget: Some(RetryBudget {
            share: Share::from_ppm(200_000).unwrap(),
            retries_min: 3,
            interval: seconds(10),
        }),
        locality: None,
        follows_client: true,
        tunnel: Some(Box::new(Tunnel {
            host: "far.example".into(),
            port: 443,
        })),
    }
}

#[test]
fn a_tunnel_to_what_is_no_host_is_refused() {
    for (host, port) in [("", 1), ("a\r\nb", 1), ("a b", 1), ("a", 0)] {
        let mut options = options();
        options.tunnel = Some(Box::new(Tunnel {
            host: host.into(),
            port,
        }));
        let value = Value::Upstream(Box::new(Upstream {
            options: Some(Box::new(options)),
            ..third()
        }));
        assert!(decode(&encoded(&resource(value))).is_err(), "{host:?}");
    }
}

#[test]
fn a_table_that_is_no_prime_or_too_large_is_refused() {
    for table in [
        HashTable::Maglev(65_536),
        HashTable::Maglev(HashTable::SIZE_MAX + 7),
        HashTable::Ring(0),
        HashTable::Ring(HashTable::SIZE_MAX + 1),
    ] {
        let mut options = options();
        options.balancer = Balancer::Hash(Box::new(HashBalancer {
            source: HashSource::SourceIp,
            parts: Box::default(),
            table,
        }));
        let value = Value::Upstream(Box::new(Upstream {
            options: Some(Box::new(options)),
            ..third()
        }));
        let refused = Err(WireError::Invalid("size of a table of hashes"));
        assert_eq!(decode(&encoded(&resource(value))), refused, "{table:?}");
    }
}

fn balancers() -> impl Strategy<Value = Balancer> {
    let source = prop_oneof![
        Just(HashSource::Header("x-user".into())),
        Just(HashSource::SourceIp),
        Just(HashSource::Query("user".into())),
        prop::option::of(0..100_u64).prop_map(|age| HashSource::Cookie(Box::new(HashCookie {
            name: "user".into(),
            path: Box::default(),
            age: age.map(Duration::from_secs),
            attributes: Box::default(),
        }))),
    ];
    let table = prop_oneof![
        (1..=HashTable::SIZE_MAX).prop_map(HashTable::Ring),
        Just(HashTable::Maglev(251)),
    ];
    prop_oneof![
        Just(Balancer::LeastRequest),
        Just(Balancer::RoundRobin),
        Just(Balancer::Random),
        (source, hash_parts(), table).prop_map(|(source, parts, table)| {
            Balancer::Hash(Box::new(HashBalancer {
                source,
                parts: parts.into(),
                table,
            }))
        }),
    ]
}

fn hash_parts() -> impl Strategy<Value = Vec<HashPart>> {
    let part = prop_oneof![
        Just(HashPart::Target),
        Just(HashPart::Host),
        Just(HashPart::SourceIp),
        Just(HashPart::Header("x-user".into())),
        Just(HashPart::Cookie("user".into())),
        Just(HashPart::Query("id".into())),
    ];
    prop::collection::vec(part, 0..=HashPart::COUNT_MAX)
}

/// Every form of a rule of localities.
fn localities() -> impl Strategy<Value = Option<Box<LocalityRule>>> {
    let part = LocalityPart {
        level: LocalityLevel::Zone,
        value: Some("b".into()),
    };
    let shares = LocalityShares {
        from: "eu/*".into(),
        to: [("eu/a/*".into(), 80), ("us".into(), 20)].into(),
    };
    let rules = [
        LocalityRule::Nearest([("eu".into(), "us".into())].into()),
        LocalityRule::Alike([part].into()),
        LocalityRule::Shares([shares].into()),
    ];
    prop::option::of(prop::sample::select(rules.map(Box::new).to_vec()))
}

const MODES: [DnsMode; 3] = [DnsMode::Strict, DnsMode::Logical, DnsMode::Dynamic];

fn protocols() -> impl Strategy<Value = Protocol> {
    prop::sample::select(vec![
        Protocol::Http1,
        Protocol::Https1,
        Protocol::H2c,
        Protocol::H2,
    ])
}

proptest! {
    #[test]
    fn upstreams_of_any_parts_come_back_as_they_went(
        protocol in protocols(),
        (names, mode) in (0_usize..3, prop::sample::select(MODES.to_vec())),
        balancer in balancers(),
        locality in localities(),
        parts in any::<[bool; 8]>(),
        mesh in prop::sample::select(vec![MeshTls::None, MeshTls::Flagged, MeshTls::All]),
        (original, source) in (any::<bool>(), any::<Option<std::net::IpAddr>>()),
        number: u32,
    ) {
        let mut options = options();
        options.balancer = balancer;
        options.locality = locality;
        options.warmup = options.warmup.filter(|_| parts[0]);
        options.limits.requests_max = number;
        options.limits.keepalive = options.limits.keepalive.filter(|_| parts[1]);
        options.limits.ping = options.limits.ping.filter(|_| parts[2]);
        options.outlier = options.outlier.filter(|_| parts[3]);
        options.proxy_protocol = parts[4].then_some(ProxyProtocol::V1);
        options.retry_budget = options.retry_budget.filter(|_| parts[5]);
        let mut tls = *third().tls.unwrap();
        tls.trust = tls.trust.filter(|_| parts[6]);
        tls.mesh = mesh;
        let mut dns = *third().dns.unwrap();
        dns.mode = mode;
        dns.names = dns.names[..names].into();
        let value = Upstream {
            protocol,
            dns: (names > 0).then(|| Box::new(dns)),
            tls: protocol.is_tls().then(|| Box::new(tls)),
            options: parts[7].then(|| Box::new(options)),
            original_destination: original && names == 0,
            source_address: source.map(Box::new),
        };
        let resource = resource(Value::Upstream(Box::new(value)));
        prop_assert_eq!(decode(&encoded(&resource)), Ok(resource));
    }
}

#[test]
fn a_part_of_endpoints_is_refused_by_who_would_take_it_for_all() {
    let mut endpoints = third_endpoints();
    endpoints.is_part = true;
    let part = resource(Value::Endpoints(Box::new(endpoints)));
    let needed = WireError::NewerSchema {
        needed: 4,
        understood: 3,
    };
    assert_eq!(decode_within(&encoded(&part), 3), Err(needed));
    assert_eq!(decode(&encoded(&part)), Ok(part));
}
