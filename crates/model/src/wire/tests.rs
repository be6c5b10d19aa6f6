//! Round trips, pinned versions, and refusals.

mod access_policy;
mod examples;
mod fields;
mod gateway;
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
    Action, Capture, CaptureDirection, CertificateDemand, CertificateNeed, CipherSuite, ClientAuth,
    ClientAuthMode, ErrorPages, Form, Host, Listener, ListenerProtocol, MutualTls, Name, Origin,
    OriginKind, PathMatch, PathReading, Policy, RateLimit, Redirect, RedirectParts, RedirectPath,
    RedirectTarget, Resource, Respond, Route, Sealer, SourceRanges, StreamRoute, TlsSettings,
    Trust, Underscores, Users, Value, WeightedUpstream,
};

use examples::{
    captured, edits, examples, first_route, mesh_domain, stream_route, third_domain, users,
};

#[test]
fn users_whose_hashes_cost_too_much_or_stand_beside_authorities_are_refused() {
    let read = |trust: Trust| decode(&encoded(&resource(Value::Trust(Box::new(trust)))));
    let of = |hash: &str| Trust {
        users: Users::new(vec![("ann".into(), hash.into())]),
        ..users()
    };
    assert!(read(users()).is_ok());
    // One that no password has admits nobody, and others are admitted beside it.
    assert!(read(of("{SHA}5en6G6MezRroT3XKqkdPOmY/BfR=")).is_ok());
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
fn demands_of_certificates_come_back_and_are_refused_by_proxies_that_do_not_know_them() {
    let policy = Policy {
        client_certificate: Some(Box::new(CertificateDemand {
            trust: "shop/ca".into(),
            need: CertificateNeed::AnyAuthority,
            subject: "CN=(ann|bob)".into(),
            error_page: "https://a.example/help".into(),
            is_passed_on: true,
            spares_plain_text: true,
        })),
        ..Policy::default()
    };
    let route = Value::Route(Box::new(Route {
        policy: Arc::new(policy),
        ..first_route()
    }));
    let client_auth = |mode, depth| {
        let mut domain = third_domain();
        let auth = domain.client_auth.as_deref().cloned();
        domain.client_auth = auth.map(|auth| {
            Arc::new(ClientAuth {
                mode,
                depth,
                ..auth
            })
        });
        Value::Domain(Box::new(domain))
    };
    for (value, schema) in [
        (route, 4),
        (client_auth(ClientAuthMode::Shown, 0), 4),
        (client_auth(ClientAuthMode::Shown, 9), 4),
        (client_auth(ClientAuthMode::Optional, 0), 3),
    ] {
        let resource = resource(value);
        let encoded = encoded(&resource);
        assert_eq!(encoded[..2], [0x08, schema]);
        assert_eq!(decode(&encoded).as_ref(), Ok(&resource));
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
            Some(("fourth", _)) => 4,
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
        is_operators: true,
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
        detects_hosts: false,
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
        decode(&encoded(&resource(Value::Upstream(Box::new(upstream))))),
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
        detects_hosts: bool,
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
            capture: Some(Capture { direction, mutual, detects_hosts }),
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
fn an_address_of_ipv6_is_a_host_in_one_form_alone() {
    let text = "[2001:db8::1]";
    let mut value = stream_route();
    value.hosts = vec![Host::of_name(text).unwrap()].into();
    let resource = resource(Value::StreamRoute(Box::new(value)));
    let bytes = encoded(&resource);
    assert_eq!(decode(&bytes).as_ref(), Ok(&resource));
    let mut windows = bytes.windows(text.len());
    let at = windows.position(|it| it == text.as_bytes());
    let at = at.expect("it is in there");
    for other in ["[2001:DB8::1]", "[2001:db8:0:1", "[201:0db8::1]"] {
        let mut bytes = bytes.to_vec();
        bytes[at..at + text.len()].copy_from_slice(other.as_bytes());
        let refused = Err(WireError::Invalid("host"));
        assert_eq!(decode(&bytes.into()), refused, "{other}");
    }
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
                    filters: None,
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
