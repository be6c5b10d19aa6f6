//! Round trips, pinned versions, and refusals.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::{SCHEMA, WireError, decode, encode};
use crate::{
    Action, Affinity, Certificate, Cors, DnsName, Domain, Endpoint, Endpoints, Form, Host,
    KeyEncoding, Listener, Name, Origin, OriginKind, PathMatch, Policy, PrivateKey, Protocol,
    Redirect, RedirectTarget, Resource, Route, Sealer, Source, Test, TlsRedirect, TlsSettings,
    Upstream, UpstreamTls, Value, ValueMatch, WeightedUpstream,
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
        rewrite: Some("/$2".into()),
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
        })),
        affinity: Some(Box::new(Affinity {
            cookie: "INGRESSCOOKIE".into(),
            path: "/".into(),
            age_max_s: 0,
            secure: true,
        })),
    }
}

/// One example of each kind with every field set.
fn examples() -> Vec<(&'static str, Value)> {
    let forward = [WeightedUpstream {
        upstream: "ns/svc:80".into(),
        weight: 9,
    }];
    let route = Route {
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
    };
    let upstream = Upstream {
        protocol: Protocol::Https1,
        dns: Some(Box::new(DnsName {
            host: "db.example.com".into(),
            port: 443,
        })),
        tls: Some(Box::new(UpstreamTls {
            server_name: "db".into(),
            verify: true,
        })),
    };
    vec![
        (
            "listener",
            Value::Listener(Box::new(Listener {
                address: "[::1]:8443".parse().unwrap(),
                tls: true,
                default_certificate: Some("ns/default".into()),
            })),
        ),
        (
            "domain",
            Value::Domain(Box::new(Domain {
                listeners: names(&["https"]),
                host: Host::parse("a.example.com").unwrap(),
                certificate: Some("ns/cert".into()),
                tls: Arc::new(TlsSettings::default()),
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
            Value::Endpoints(Endpoints {
                endpoints: [Endpoint {
                    address: "10.1.2.3:8080".parse().unwrap(),
                    weight: 2,
                }]
                .into(),
            }),
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
    ] {
        let Value::Route(mut route) = examples().swap_remove(3).1 else {
            panic!("not a route")
        };
        route.action = Action::Redirect(Box::new(Redirect {
            status: 302,
            target,
        }));
        let resource = resource(Value::Route(route));
        assert_eq!(decode(&encoded(&resource)).as_ref(), Ok(&resource));
    }
}

#[test]
fn a_newer_schema_is_refused_and_not_half_understood() {
    let mut bytes = encoded(&resource(examples().swap_remove(1).1)).to_vec();
    assert_eq!(bytes[..2], [0x08, SCHEMA as u8]);
    bytes[1] = SCHEMA as u8 + 1;
    assert_eq!(
        decode(&bytes.into()),
        Err(WireError::NewerSchema(SCHEMA + 1))
    );
}

#[test]
fn text_that_would_split_a_header_is_refused() {
    let Value::Route(mut route) = examples().swap_remove(3).1 else {
        panic!("not a route")
    };
    let target = RedirectTarget::Url("https://b/\r\nSet-Cookie: a=b".into());
    route.action = Action::Redirect(Box::new(Redirect {
        status: 302,
        target,
    }));
    let bytes = encoded(&resource(Value::Route(route)));
    assert_eq!(decode(&bytes), Err(WireError::Invalid("location")));
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(kind in 0_usize..6, at in any::<prop::sample::Index>(), byte: u8) {
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
