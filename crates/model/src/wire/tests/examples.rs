//! Examples of each kind of resource, and of what newer schemas added.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{access_policy, provider, telemetry, upstream};
use crate::{
    Abort, AbortAnswer, Action, Affinity, Capture, CaptureDirection, Certificate, ChallengeAnswer,
    ChallengeForm, CipherSuite, ClientAuth, ClientAuthMode, Cors, Delay, Dns, Domain, Endpoint,
    Endpoints, Fault, HeaderEdit, HeaderEdits, Host, KeyEncoding, Listener, ListenerProtocol,
    Mirror, MutualTls, Name, PathMatch, PathRewrite, Policy, PrivateKey, Protocol, Retry,
    RetryConditions, Rewrite, Route, Share, Source, StreamRoute, Test, TlsRedirect, TlsSettings,
    Trust, Upstream, UpstreamTls, Users, Value, ValueMatch, WeightedUpstream,
};

pub(super) fn names(texts: &[&str]) -> Arc<[Name]> {
    texts.iter().map(|text| Name::from(*text)).collect()
}

pub(super) fn policy() -> Policy {
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
            echoes_wildcards: false,
            exposes_in_preflights: false,
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

pub(super) fn edits() -> HeaderEdits {
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
            keeps_authority: false,
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
        filters: None,
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
pub(super) fn first_route() -> Route {
    let forward = [WeightedUpstream {
        upstream: "ns/svc:80".into(),
        weight: 9,
        headers: None,
        filters: None,
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
pub(super) fn third_domain() -> Domain {
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
            depth: 0,
        })),
        mesh: false,
        section: None,
        by_name: false,
    }
}

/// A listener without a socket.
pub(super) fn captured() -> Listener {
    Listener {
        address: "0.0.0.0:8080".parse().unwrap(),
        tls: false,
        default_certificate: None,
        protocol: ListenerProtocol::Detected,
        capture: Some(Capture {
            direction: CaptureDirection::Inbound,
            mutual: MutualTls::Permissive,
            detects_hosts: true,
        }),
    }
}

pub(super) fn mesh_domain() -> Domain {
    Domain {
        certificate: None,
        alternatives: Box::default(),
        client_auth: None,
        mesh: true,
        ..third_domain()
    }
}

pub(super) fn stream_route() -> StreamRoute {
    let half = |upstream: &str| WeightedUpstream {
        upstream: upstream.into(),
        weight: 50,
        headers: None,
        filters: None,
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
        behind: 2,
        terminate: true,
        upstreams: [half("ns/db:5432"), half("ns/spare:5432")].into(),
        idle_timeout: Duration::from_secs(3_600),
        connect_timeout: Duration::from_secs(10),
    }
}

/// One example of each kind with every field set.
pub(super) fn examples() -> Vec<(&'static str, Value)> {
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
                section: None,
                by_name: false,
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
        ("upstream", Value::Upstream(Box::new(upstream))),
        (
            "endpoints",
            Value::Endpoints(Box::new(Endpoints::new(
                [Endpoint {
                    weight: 2,
                    ..Endpoint::even("10.1.2.3:8080".parse().unwrap())
                }]
                .into(),
            ))),
        ),
        ("second route", Value::Route(Box::new(second_route()))),
    ];
    all.extend(third_examples());
    let answer = Value::ChallengeAnswer(Box::new(challenge_answer()));
    all.push(("fourth challenge answer", answer));
    all
}

/// A trust of users.
pub(super) fn users() -> Trust {
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
        (
            "third upstream",
            Value::Upstream(Box::new(upstream::third())),
        ),
        (
            "third endpoints",
            Value::Endpoints(Box::new(upstream::third_endpoints())),
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
            Value::Endpoints(Box::new(upstream::mesh_endpoints())),
        ),
        (
            "third mesh upstream",
            Value::Upstream(Box::new(upstream::mesh())),
        ),
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

fn challenge_answer() -> ChallengeAnswer {
    ChallengeAnswer {
        host: Host::parse("a.example.com").expect("a host"),
        form: ChallengeForm::TlsAlpn,
        token: "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0".into(),
        text: "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0.9jg46WB3rR".into(),
    }
}
