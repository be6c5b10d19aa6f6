//! Round trips, pinned versions, and refusals.

mod access_policy;
mod fields;
mod provider;
mod routes;
mod telemetry;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::{SCHEMA, WireError, decode, encode};
use crate::{
    Abort, AbortAnswer, Action, Affinity, Capture, CaptureDirection, Certificate, CipherSuite,
    ClientAuth, ClientAuthMode, Cors, Delay, Dns, Domain, Endpoint, Endpoints, ErrorPages, Fault,
    Form, HeaderEdit, HeaderEdits, Host, KeyEncoding, Listener, ListenerProtocol, Mirror,
    MutualTls, Name, Origin, OriginKind, PathMatch, PathReading, PathRewrite, Policy, PrivateKey,
    Protocol, RateLimit, Redirect, RedirectParts, RedirectPath, RedirectTarget, Resource, Respond,
    Retry, RetryConditions, Rewrite, Route, Sealer, Share, Source, SourceRanges, StreamRoute, Test,
    TlsRedirect, TlsSettings, Trust, Underscores, Upstream, UpstreamTls, Users, Value, ValueMatch,
    WeightedUpstream,
};

fn names(texts: &[&str]) -> Arc<[Name]> {
    texts.iter().map(|text| Name::from(*text)).collect()
}

fn policy() -> Policy {
    Policy {
        tls_redirect: Some(TlsRedirect {
            status: 308,
            port: 8443,
            except_prefix: "/.well-known/acme-challenge/".into(),
        }),
        rewrite: Some(Box::new(Rewrite {
            path: Some(PathRewrite::Template("/$2".into())),
            authority: Box::default(),
        })),
        sources_allowed: ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()].into(),
        request_body_bytes_max: 1 << 20,
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_millis(1_500),
        send_timeout: Duration::from_secs(60),
        cors: Some(Box::new(Cors {
            origins: ["https://*.example.com".into()].into(),
            methods: "GET, PUT".into(),
            headers_allowed: "X-A".into(),
            headers_exposed: "".into(),
            credentials: true,
            age_max_s: 600,
            origin_patterns: Box::default(),
            forwards_unmatched: false,
        })),
        affinity: Some(Box::new(Affinity {
            cookie: "INGRESSCOOKIE".into(),
            path: "/".into(),
            age_max_s: 0,
            secure: true,
            ..Affinity::default()
        })),
        ..Policy::default()
    }
}

fn edits() -> HeaderEdits {
    let pair = |name: &str, value: &str| (name.into(), value.into());
    HeaderEdits {
        request: HeaderEdit {
            remove: ["x-internal".into()].into(),
            set: [pair("x-tenant", "a")].into(),
            add: [pair("x-via", "b")].into(),
        },
        response: HeaderEdit {
            set: [pair("x-frame-options", "DENY")].into(),
            ..HeaderEdit::default()
        },
    }
}

/// A route with all that the second schema adds.
fn second_route() -> Route {
    let half = Share::from_ppm(500_000).unwrap();
    let mut cors = *policy().cors.unwrap();
    cors.origin_patterns = [r"https://[a-z]+\.example".into()].into();
    let second = Policy {
        rewrite: Some(Box::new(Rewrite {
            path: Some(PathRewrite::Substitution {
                regex: "^/v1/(.*)".into(),
                template: "/$1".into(),
            }),
            authority: "inner.example".into(),
        })),
        cors: Some(Box::new(cors)),
        request_timeout: Duration::from_secs(15),
        retry: Some(Box::new(Retry {
            attempts: 3,
            try_timeout: Duration::from_secs(2),
            conditions: RetryConditions::CONNECT_FAILURE | RetryConditions::GRPC_UNAVAILABLE,
            statuses: [409, 503].into(),
            backoff: Duration::from_millis(25),
        })),
        fault: Some(Box::new(Fault {
            delay: Some(Delay {
                share: half,
                delay: Duration::from_secs(5),
            }),
            abort: Some(Abort {
                share: Share::ALL,
                answer: AbortAnswer::Grpc(14),
            }),
        })),
        mirrors: [Mirror {
            upstream: "ns/shadow:80".into(),
            share: half,
            authority: Box::default(),
            omits_body: false,
        }]
        .into(),
        headers: Some(Box::new(edits())),
        ..policy()
    };
    let condition = |source, test| ValueMatch {
        source,
        name: Box::default(),
        test,
        invert: false,
    };
    let upstreams = [WeightedUpstream {
        upstream: "ns/svc:80".into(),
        weight: 9,
        headers: Some(Box::new(edits())),
    }];
    Route {
        listeners: names(&["https"]),
        hosts: [Host::parse("a.example.com").unwrap()].into(),
        path: PathMatch::Start("/api".into()),
        conditions: [
            condition(Source::Authority, Test::Start("a.example.com:".into())),
            condition(Source::Scheme, Test::Exact("https".into())),
        ]
        .into(),
        rank: 7,
        action: Action::Forward(upstreams.into()),
        policy: Arc::new(second),
    }
}

/// A route with all that the first schema has.
fn first_route() -> Route {
    let forward = [WeightedUpstream {
        upstream: "ns/svc:80".into(),
        weight: 9,
        headers: None,
    }];
    Route {
        listeners: names(&["http", "https"]),
        hosts: [Host::parse("*.example.com").unwrap()].into(),
        path: PathMatch::Regex("/a(/|$)(.*)".into()),
        conditions: [ValueMatch {
            source: Source::Cookie,
            name: "canary".into(),
            test: Test::Exact("always".into()),
            invert: true,
        }]
        .into(),
        rank: 77,
        action: Action::Forward(forward.into()),
        policy: Arc::new(policy()),
    }
}

/// A domain with all that the third schema adds.
fn third_domain() -> Domain {
    Domain {
        listeners: names(&["https"]),
        host: Host::parse("b.example.com").unwrap(),
        certificate: Some("ns/ecdsa".into()),
        alternatives: ["ns/rsa".into()].into(),
        tls: Arc::new(TlsSettings {
            cipher_suites: CipherSuite::ALL.into(),
            ..TlsSettings::default()
        }),
        client_auth: Some(Arc::new(ClientAuth {
            trust: "ns/ca".into(),
            mode: ClientAuthMode::Optional,
            subject_alt_names: ["spiffe://mesh/ns/a/sa/b".into()].into(),
            key_hashes: [[7; 32]].into(),
            certificate_hashes: [[8; 32]].into(),
        })),
        mesh: false,
    }
}

/// A listener without a socket.
fn captured() -> Listener {
    Listener {
        address: "0.0.0.0:8080".parse().unwrap(),
        tls: false,
        default_certificate: None,
        protocol: ListenerProtocol::Detected,
        capture: Some(Capture {
            direction: CaptureDirection::Inbound,
            mutual: MutualTls::Permissive,
        }),
    }
}

fn mesh_domain() -> Domain {
    Domain {
        certificate: None,
        alternatives: Box::default(),
        client_auth: None,
        mesh: true,
        ..third_domain()
    }
}

fn stream_route() -> StreamRoute {
    let half = |upstream: &str| WeightedUpstream {
        upstream: upstream.into(),
        weight: 50,
        headers: None,
    };
    StreamRoute {
        listeners: names(&["https"]),
        hosts: [Host::parse("**.db.example.com").unwrap()].into(),
        sources: ["10.0.0.0/8".parse().unwrap()].into(),
        destinations: [
            "192.0.2.1/32".parse().unwrap(),
            "2001:db8::/32".parse().unwrap(),
        ]
        .into(),
        rank: 3,
        terminate: true,
        upstreams: [half("ns/db:5432"), half("ns/spare:5432")].into(),
        idle_timeout: Duration::from_secs(3_600),
        connect_timeout: Duration::from_secs(10),
    }
}

/// One example of each kind with every field set.
fn examples() -> Vec<(&'static str, Value)> {
    let route = first_route();
    let upstream = Upstream {
        protocol: Protocol::Https1,
        dns: Some(Box::new(Dns::strict("db.example.com", 443))),
        tls: Some(Box::new(UpstreamTls {
            server_name: "db".into(),
            verify: true,
            ..UpstreamTls::unverified()
        })),
        ..Upstream::plain(Protocol::Https1)
    };
    let mut all = vec![
        (
            "listener",
            Value::Listener(Box::new(Listener {
                address: "[::1]:8443".parse().unwrap(),
                tls: true,
                default_certificate: Some("ns/default".into()),
                protocol: ListenerProtocol::Http,
                capture: None,
            })),
        ),
        (
            "domain",
            Value::Domain(Box::new(Domain {
                listeners: names(&["https"]),
                host: Host::parse("a.example.com").unwrap(),
                certificate: Some("ns/cert".into()),
                alternatives: Box::default(),
                tls: Arc::new(TlsSettings::default()),
                client_auth: None,
                mesh: false,
            })),
        ),
        (
            "certificate",
            Value::Certificate(Box::new(Certificate {
                chain: [Bytes::from_static(b"leaf"), Bytes::from_static(b"issuer")].into(),
                key: PrivateKey::new(KeyEncoding::Sec1, Bytes::from_static(b"key")),
            })),
        ),
        ("route", Value::Route(Box::new(route))),
        ("upstream", Value::Upstream(upstream)),
        (
            "endpoints",
            Value::Endpoints(Endpoints::new(
                [Endpoint {
                    weight: 2,
                    ..Endpoint::even("10.1.2.3:8080".parse().unwrap())
                }]
                .into(),
            )),
        ),
        ("second route", Value::Route(Box::new(second_route()))),
    ];
    all.extend(third_examples());
    all
}

/// A trust of users.
fn users() -> Trust {
    let hash = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
    Trust {
        roots: Box::default(),
        crls: Box::default(),
        users: Users::new(vec![("ann".into(), hash.into())]),
    }
}

/// A route that asks them for passwords.
fn with_passwords() -> Route {
    Route {
        policy: Arc::new(Policy {
            users: Some("ns/users".into()),
            realm: "inner \"circle\"".into(),
            ..Policy::default()
        }),
        ..first_route()
    }
}

#[test]
fn users_whose_hashes_cost_too_much_or_stand_beside_authorities_are_refused() {
    let read = |trust: Trust| decode(&encoded(&resource(Value::Trust(Box::new(trust)))));
    let of = |hash: &str| Trust {
        users: Users::new(vec![("ann".into(), hash.into())]),
        ..users()
    };
    assert!(read(users()).is_ok());
    let costly = "$2y$31$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
    for hash in [costly, "rl0uE7ktq/6zU", ""] {
        assert_eq!(
            read(of(hash)),
            Err(WireError::Invalid("hash of a password")),
            "{hash}"
        );
    }
    let mixed = Trust {
        roots: [Bytes::from_static(b"root")].into(),
        ..users()
    };
    assert_eq!(read(mixed), Err(WireError::Invalid("trust")));
    let nobody = Trust {
        users: Users::default(),
        ..users()
    };
    assert_eq!(read(nobody), Err(WireError::Missing("root")));
}

/// A route with the policy of the third schema.
fn third_route() -> Route {
    Route {
        policy: Arc::new(provider::limited(policy())),
        ..first_route()
    }
}

/// Resources that need the third schema.
fn third_examples() -> Vec<(&'static str, Value)> {
    vec![
        ("third upstream", Value::Upstream(upstream::third())),
        (
            "third endpoints",
            Value::Endpoints(upstream::third_endpoints()),
        ),
        (
            "third trust",
            Value::Trust(Box::new(Trust {
                roots: [Bytes::from_static(b"root")].into(),
                crls: [Bytes::from_static(b"list")].into(),
                users: Users::default(),
            })),
        ),
        ("third users", Value::Trust(Box::new(users()))),
        (
            "third route with passwords",
            Value::Route(Box::new(with_passwords())),
        ),
        (
            "third listener",
            Value::Listener(Box::new(Listener {
                address: "0.0.0.0:5432".parse().unwrap(),
                tls: false,
                default_certificate: None,
                protocol: ListenerProtocol::Tcp,
                capture: None,
            })),
        ),
        ("third captured", Value::Listener(Box::new(captured()))),
        ("third mesh domain", Value::Domain(Box::new(mesh_domain()))),
        (
            "third mesh endpoints",
            Value::Endpoints(upstream::mesh_endpoints()),
        ),
        ("third mesh upstream", Value::Upstream(upstream::mesh())),
        ("third domain", Value::Domain(Box::new(third_domain()))),
        (
            "third stream route",
            Value::StreamRoute(Box::new(stream_route())),
        ),
        (
            "third access policy",
            Value::AccessPolicy(Box::new(access_policy::authorizing())),
        ),
        (
            "third tokens",
            Value::AccessPolicy(Box::new(access_policy::authenticating())),
        ),
        ("third route", Value::Route(Box::new(third_route()))),
        (
            "third provider",
            Value::Provider(Box::new(provider::over_http())),
        ),
        (
            "third telemetry",
            Value::Telemetry(Box::new(telemetry::recorded())),
        ),
    ]
}

fn resource(value: Value) -> Resource {
    Resource {
        origin: Origin {
            kind: OriginKind::Ingress,
            id: "ns/a".into(),
        },
        value,
    }
}

fn encoded(resource: &Resource) -> Bytes {
    let mut buffer = Vec::new();
    encode(resource, &mut buffer);
    buffer.into()
}

#[test]
fn every_kind_comes_back_as_it_went() {
    for (_, value) in examples() {
        let resource = resource(value);
        assert_eq!(decode(&encoded(&resource)).as_ref(), Ok(&resource));
    }
}

/// A changed version here means that every proxy of a running cluster would be sent every
/// resource of that kind after an upgrade. Add fields so that unset ones encode to nothing.
#[test]
fn versions_are_pinned() {
    let mut sealer = Sealer::new([0; 32], Form::Value);
    let versions: Vec<String> = examples()
        .into_iter()
        .map(|(name, value)| {
            format!(
                "{name} {}",
                sealer.seal(Name::from(name), resource(value)).version()
            )
        })
        .collect();
    assert_eq!(
        versions.join("\n"),
        include_str!("versions.golden").trim_end()
    );
}

#[test]
fn redirects_and_answers_come_back_too() {
    for target in [
        RedirectTarget::Url("https://b/".into()),
        RedirectTarget::Path("/app".into()),
        RedirectTarget::Parts(Box::new(RedirectParts {
            scheme: "https".into(),
            host: "b.example".into(),
            port: Some(8443),
            path: Some(RedirectPath::Matched("/new".into())),
            keeps_port: false,
        })),
        RedirectTarget::Parts(Box::new(RedirectParts {
            host: "b.example".into(),
            keeps_port: true,
            ..RedirectParts::default()
        })),
    ] {
        let Value::Route(mut route) = examples().swap_remove(3).1 else {
            panic!("not a route")
        };
        route.action = Action::Redirect(Arc::new(Redirect {
            status: 302,
            target,
        }));
        let resource = resource(Value::Route(route));
        assert_eq!(decode(&encoded(&resource)).as_ref(), Ok(&resource));
    }
}

#[test]
fn limits_of_requests_at_the_same_time_come_back_too() {
    let Value::Route(mut route) = examples().swap_remove(3).1 else {
        panic!("not a route")
    };
    let mut policy = Policy::clone(&route.policy);
    policy.rate_limits = [RateLimit {
        name: "Ingress/n/i/limit-connections".into(),
        requests: 10,
        interval: Duration::from_secs(1),
        burst: RateLimit::REQUESTS_MAX,
        is_per_client: true,
        exempt: SourceRanges::default(),
        is_at_once: true,
    }]
    .into();
    route.policy = Arc::new(policy);
    let resource = resource(Value::Route(route));
    assert_eq!(decode(&encoded(&resource)).as_ref(), Ok(&resource));
}

#[test]
fn pages_of_errors_come_back_and_statuses_out_of_order_do_not() {
    for (statuses, is_taken) in [(&[404, 503][..], true), (&[503, 404], false)] {
        let Value::Route(mut route) = examples().swap_remove(3).1 else {
            panic!("not a route")
        };
        let mut policy = Policy::clone(&route.policy);
        policy.error_pages = Some(Box::new(ErrorPages {
            statuses: statuses.into(),
            upstream: "shop/errors:80".into(),
            fields: [("x-namespace".into(), "shop".into())].into(),
        }));
        route.policy = Arc::new(policy);
        let resource = resource(Value::Route(route));
        let decoded = decode(&encoded(&resource));
        assert_eq!(decoded.as_ref() == Ok(&resource), is_taken, "{statuses:?}");
    }
}

#[test]
fn routes_that_answer_alike_have_one_body() {
    let read = || {
        let Value::Route(mut route) = examples().swap_remove(3).1 else {
            panic!("not a route")
        };
        route.action = Action::Respond(Box::new(Respond {
            status: 200,
            body: vec![b'x'; 1 << 10].into(),
        }));
        match decode(&encoded(&resource(Value::Route(route))))
            .unwrap()
            .value
        {
            Value::Route(route) => route.action,
            _ => panic!("not a route"),
        }
    };
    let (Action::Respond(one), Action::Respond(other)) = (read(), read()) else {
        panic!("not answered")
    };
    assert_eq!(one.body.len(), 1 << 10);
    assert!(Arc::ptr_eq(&one.body, &other.body));
}

#[test]
fn a_resource_asks_for_no_newer_schema_than_it_needs() {
    for (name, value) in examples() {
        let schema = match name.split_once(' ') {
            Some(("second", _)) => 2,
            Some(("third", _)) => 3,
            _ => 1,
        };
        assert_eq!(encoded(&resource(value))[..2], [0x08, schema], "{name}");
    }
}

#[test]
fn what_does_no_harm_unread_is_passed_over_by_older_proxies() {
    let policy = Policy {
        underscores: Underscores::Dropped,
        path_reading: PathReading::Decoded,
        is_foreign: true,
        ..Policy::default()
    };
    let route = Route {
        policy: Arc::new(policy),
        ..first_route()
    };
    let resource = resource(Value::Route(Box::new(route)));
    let encoded = encoded(&resource);
    assert_eq!(encoded[..2], [0x08, 1]);
    assert_eq!(decode(&encoded).as_ref(), Ok(&resource));
}

#[test]
fn a_newer_schema_is_refused_and_not_half_understood() {
    let mut bytes = encoded(&resource(examples().swap_remove(1).1)).to_vec();
    bytes[1] = SCHEMA as u8 + 1;
    assert_eq!(
        decode(&bytes.into()),
        Err(WireError::NewerSchema {
            needed: SCHEMA + 1,
            understood: SCHEMA
        })
    );
}

#[test]
fn text_that_would_split_a_header_is_refused() {
    let Value::Route(mut route) = examples().swap_remove(3).1 else {
        panic!("not a route")
    };
    let target = RedirectTarget::Url("https://b/\r\nSet-Cookie: a=b".into());
    route.action = Action::Redirect(Arc::new(Redirect {
        status: 302,
        target,
    }));
    let bytes = encoded(&resource(Value::Route(route)));
    assert_eq!(decode(&bytes), Err(WireError::Invalid("location")));
}

#[test]
fn suites_that_no_admitted_version_speaks_are_refused() {
    let mut domain = third_domain();
    domain.tls = Arc::new(TlsSettings {
        version_min: crate::TlsVersion::V13,
        cipher_suites: [CipherSuite::EcdheRsaAes128GcmSha256].into(),
        ..TlsSettings::default()
    });
    let bytes = encoded(&resource(Value::Domain(Box::new(domain))));
    let refused = WireError::Invalid("combination of versions and cipher suites");
    assert_eq!(decode(&bytes), Err(refused));
}

#[test]
fn a_capture_that_makes_no_sense_is_refused() {
    let with = |edit: &dyn Fn(&mut Listener)| {
        let mut value = captured();
        edit(&mut value);
        decode(&encoded(&resource(Value::Listener(Box::new(value)))))
    };
    let refused = Err(WireError::Invalid(
        "combination of protocol, TLS and capture",
    ));
    assert_eq!(with(&|it| it.capture = None), refused);
    assert_eq!(with(&|it| it.tls = true), refused);
    let outbound = Capture {
        direction: CaptureDirection::Outbound,
        mutual: MutualTls::Strict,
    };
    assert_eq!(
        with(&|it| it.capture = Some(outbound)),
        Err(WireError::Invalid("mutual TLS of a capture"))
    );
    let mut domain = mesh_domain();
    domain.certificate = Some("ns/own".into());
    assert_eq!(
        decode(&encoded(&resource(Value::Domain(Box::new(domain))))),
        Err(WireError::Invalid(
            "certificate of its own beside the mesh's"
        ))
    );
    let mut upstream = upstream::mesh();
    upstream.dns = upstream::third().dns;
    assert_eq!(
        decode(&encoded(&resource(Value::Upstream(upstream)))),
        Err(WireError::Invalid(
            "combination of DNS and original destination"
        ))
    );
}

proptest! {
    #[test]
    fn captured_listeners_come_back_as_they_went(
        (address, port, tls) in (any::<std::net::IpAddr>(), any::<u16>(), any::<bool>()),
        protocol in prop::sample::select(vec![
            ListenerProtocol::Http,
            ListenerProtocol::Tcp,
            ListenerProtocol::Detected,
        ]),
        mutual in prop::option::of(prop::sample::select(vec![
            MutualTls::None,
            MutualTls::Permissive,
            MutualTls::Strict,
        ])),
    ) {
        let direction = match mutual {
            None => CaptureDirection::Outbound,
            Some(_) => CaptureDirection::Inbound,
        };
        let mutual = mutual.unwrap_or_default();
        let is_plain = protocol == ListenerProtocol::Detected || mutual != MutualTls::None;
        let value = Listener {
            address: (address, port).into(),
            tls: tls && !is_plain,
            protocol,
            capture: Some(Capture { direction, mutual }),
            ..captured()
        };
        let resource = resource(Value::Listener(Box::new(value)));
        prop_assert_eq!(decode(&encoded(&resource)), Ok(resource));
    }

    #[test]
    fn damaged_bytes_never_panic(
        kind in 0_usize..examples().len(),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut bytes = encoded(&resource(examples().swap_remove(kind).1)).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode(&bytes.clone().into());
        bytes.truncate(at);
        let _ = decode(&bytes.into());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes.into());
    }
}

#[test]
fn a_stream_route_that_cannot_be_obeyed_is_refused() {
    let with = |edit: &dyn Fn(&mut StreamRoute)| {
        let mut value = stream_route();
        edit(&mut value);
        decode(&encoded(&resource(Value::StreamRoute(Box::new(value)))))
    };
    assert_eq!(
        with(&|it| it.upstreams[0].headers = Some(Box::new(edits()))),
        Err(WireError::Invalid("change of headers"))
    );
    assert_eq!(
        with(&|it| it.connect_timeout = Duration::ZERO),
        Err(WireError::Invalid("connect timeout"))
    );
    assert_eq!(
        with(&|it| it.hosts = vec![Host::any(); 4_097].into()),
        Err(WireError::Invalid("length of a list"))
    );
    assert!(with(&|it| it.hosts = Box::default()).is_ok());
}

#[test]
fn what_many_routes_have_in_common_is_held_once() {
    let routes = [1, 2].map(|rank| {
        let value = Route {
            listeners: [Name::from("https")].into(),
            hosts: [Host::parse("a.example.com").unwrap()].into(),
            path: PathMatch::Exact("/a".into()),
            conditions: Box::default(),
            rank,
            action: Action::Forward(
                [WeightedUpstream {
                    upstream: "u".into(),
                    weight: 1,
                    headers: None,
                }]
                .into(),
            ),
            policy: Arc::default(),
        };
        decode(&encoded(&resource(Value::Route(Box::new(value))))).unwrap()
    });
    let [Value::Route(one), Value::Route(other)] = routes.each_ref().map(|it| &it.value) else {
        panic!("two routes");
    };
    assert!(Arc::ptr_eq(&one.policy, &other.policy));
    assert!(Arc::ptr_eq(&one.listeners, &other.listeners));
    assert!(Arc::ptr_eq(&routes[0].origin.id, &routes[1].origin.id));
    let upstream = |route: &Route| match &route.action {
        Action::Forward(shares) => shares[0].upstream.text().clone(),
        Action::Redirect(_) | Action::Respond(_) => panic!("forwarded"),
    };
    assert!(Arc::ptr_eq(&upstream(one), &upstream(other)));

    // Whoever holds both may hold more of them once.
    let mut shared = one.clone();
    assert!(!Arc::ptr_eq(&shared.hosts, &other.hosts));
    shared.share_with(other);
    assert_eq!(shared, *one);
    assert!(Arc::ptr_eq(&shared.hosts, &other.hosts));
    let [Action::Forward(left), Action::Forward(right)] = [&shared.action, &other.action] else {
        panic!("forwarded");
    };
    assert!(Arc::ptr_eq(left, right));
}
