//! The fields that Gateway API asks for: what the fifth schema adds.

use std::sync::Arc;
use std::time::Duration;

use super::examples::{first_route, policy, stream_route, third_domain};
use super::provider::over_http;
use super::{encoded, resource};
use crate::wire::{WireError, decode};
use crate::{
    ALTERNATIVES_MAX, Action, Affinity, BY_NAME_MAX, CheckProtocol, Cors, Domain, Listener,
    ListenerProtocol, Mirror, Name, NameMatch, Origin, OriginKind, PathRewrite, Policy, Processing,
    Provider, Redirect, RedirectTarget, Resource, Rewrite, Route, Share, ShareAnswer, ShareFilters,
    Value, WeightedUpstream,
};

/// The schema that a value needs, which comes back as it went.
fn schema(value: Value) -> u8 {
    let resource = resource(value);
    let encoded = encoded(&resource);
    assert_eq!(decode(&encoded).as_ref(), Ok(&resource));
    encoded[1]
}

fn read(value: Value) -> Result<Resource, WireError> {
    decode(&encoded(&resource(value)))
}

fn with_policy(edit: impl Fn(&mut Policy)) -> Value {
    let mut policy = policy();
    edit(&mut policy);
    let policy = Arc::new(policy);
    Value::Route(Box::new(Route {
        policy,
        ..first_route()
    }))
}

fn filtered(filters: ShareFilters) -> Value {
    let share = WeightedUpstream {
        upstream: "shop/web:80".into(),
        weight: 1,
        headers: None,
        filters: Some(Box::new(filters)),
    };
    Value::Route(Box::new(Route {
        action: Action::Forward([share].into()),
        ..first_route()
    }))
}

fn mirror(keeps_authority: bool) -> Mirror {
    Mirror {
        upstream: "shop/copy:80".into(),
        share: Share::ALL,
        authority: Box::default(),
        omits_body: false,
        keeps_authority,
    }
}

fn cors(pattern: Option<&str>) -> Cors {
    Cors {
        origins: ["*".into()].into(),
        methods: "*".into(),
        headers_allowed: "*".into(),
        headers_exposed: "x-a".into(),
        credentials: true,
        age_max_s: 5,
        origin_patterns: pattern.into_iter().map(Into::into).collect(),
        forwards_unmatched: false,
        echoes_wildcards: true,
        exposes_in_preflights: true,
    }
}

#[test]
fn rules_of_a_share_come_back_as_they_went() {
    let redirect = Arc::new(Redirect {
        status: 302,
        target: RedirectTarget::Path("/elsewhere".into()),
    });
    let rewrite = Rewrite {
        path: Some(PathRewrite::Matched("/inner".into())),
        authority: "inner.example".into(),
    };
    for filters in [
        ShareFilters::default(),
        ShareFilters {
            answer: Some(ShareAnswer::Refuse(500)),
            ..ShareFilters::default()
        },
        ShareFilters {
            answer: Some(ShareAnswer::Redirect(redirect)),
            ..ShareFilters::default()
        },
        ShareFilters {
            rewrite: Some(Box::new(rewrite)),
            mirrors: [mirror(true), mirror(false)].into(),
            cors: Some(Box::new(cors(None))),
            ..ShareFilters::default()
        },
    ] {
        assert_eq!(schema(filtered(filters)), 5);
    }
}

#[test]
fn rules_of_a_share_that_cannot_be_obeyed_are_refused() {
    let with = |edit: &dyn Fn(&mut ShareFilters)| {
        let mut filters = ShareFilters::default();
        edit(&mut filters);
        read(filtered(filters))
    };
    for status in [0, 200, 399, 600] {
        let refused = with(&|it| it.answer = Some(ShareAnswer::Refuse(status)));
        assert_eq!(
            refused,
            Err(WireError::Invalid("status of a refusal")),
            "{status}"
        );
    }
    assert_eq!(
        with(&|it| it.cors = Some(Box::new(cors(Some("https://.*"))))),
        Err(WireError::Invalid("pattern of origins"))
    );
    let substitution = PathRewrite::Substitution {
        regex: "a".into(),
        template: "b".into(),
    };
    let rewrite = Rewrite {
        path: Some(substitution),
        authority: Box::default(),
    };
    assert_eq!(
        with(&|it| it.rewrite = Some(Box::new(rewrite.clone()))),
        Err(WireError::Invalid("rewrite of a share"))
    );
    let many = |count: usize| vec![mirror(false); count].into();
    assert!(with(&|it| it.mirrors = many(ShareFilters::MIRRORS_MAX)).is_ok());
    assert_eq!(
        with(&|it| it.mirrors = many(ShareFilters::MIRRORS_MAX + 1)),
        Err(WireError::Invalid("number of mirrors"))
    );
    let mut streams = stream_route();
    streams.upstreams[0].filters = Some(Box::default());
    assert_eq!(
        read(Value::StreamRoute(Box::new(streams))),
        Err(WireError::Invalid("filter of streams"))
    );
}

#[test]
fn what_an_older_proxy_must_not_ignore_needs_the_fifth_schema() {
    let second = Duration::from_secs(1);
    assert_eq!(schema(with_policy(|_| {})), 1);
    assert_eq!(schema(with_policy(|it| it.attempt_timeout = second)), 5);
    let authorizer = |protocol| {
        Some(Box::new(Provider {
            protocol,
            ..over_http()
        }))
    };
    let http = || over_http().protocol;
    assert_eq!(
        schema(with_policy(|it| it.authorizer = authorizer(http()))),
        5
    );
    let grpc = with_policy(|it| it.authorizer = authorizer(CheckProtocol::Grpc));
    assert_eq!(schema(grpc), 5);
    let affinity = |edit: fn(&mut Affinity)| {
        schema(with_policy(|it| {
            edit(it.affinity.as_mut().unwrap());
        }))
    };
    assert_eq!(affinity(|_| {}), 1);
    assert_eq!(
        affinity(|it| {
            it.in_header = true;
            it.cookie = "x-session".into();
        }),
        5
    );
    let hour = |it: &mut Affinity| it.absolute_timeout = Duration::from_secs(3_600);
    assert_eq!(affinity(hour), 5);
    let echoed = |it: &mut Policy| it.cors = Some(Box::new(cors(None)));
    assert_eq!(schema(with_policy(echoed)), 5);
    let copied = |it: &mut Policy| it.mirrors = [mirror(true)].into();
    assert_eq!(schema(with_policy(copied)), 2);
    let told = |names: &[NameMatch]| {
        Value::Provider(Box::new(Provider {
            told: names.into(),
            ..over_http()
        }))
    };
    assert_eq!(schema(told(&[])), 3);
    assert_eq!(schema(told(&[NameMatch::Exact("x-a".into())])), 5);
    assert_eq!(schema(told(&[NameMatch::Any])), 5);
}

#[test]
fn an_authorizer_is_no_processor_and_a_session_has_the_name_of_a_field() {
    let processor = Provider {
        protocol: CheckProtocol::Process(Processing {
            tells_response: false,
        }),
        ..over_http()
    };
    assert_eq!(
        read(with_policy(
            |it| it.authorizer = Some(Box::new(processor.clone()))
        )),
        Err(WireError::Invalid("protocol of an authorizer"))
    );
    for name in ["X-Session", "a b", "a:b", "a\r\nb"] {
        let named = read(with_policy(|it| {
            let affinity = it.affinity.as_mut().unwrap();
            (affinity.in_header, affinity.cookie) = (true, name.into());
        }));
        assert!(named.is_err(), "{name:?}");
    }
}

#[test]
fn a_section_and_certificates_by_name_come_back_as_they_went() {
    let names = |count: usize| -> Box<[Name]> {
        let all = 0..count;
        all.map(|number| Name::new(format!("shop/c{number}")))
            .collect()
    };
    let with = |edit: &dyn Fn(&mut Domain)| {
        let mut domain = third_domain();
        edit(&mut domain);
        Value::Domain(Box::new(domain))
    };
    assert_eq!(schema(with(&|_| {})), 3);
    let section = Some("gateway/shop/web/https".into());
    assert_eq!(schema(with(&|it| it.section = section.clone())), 5);
    let by_name = |count| {
        with(&|it| {
            it.by_name = true;
            it.alternatives = names(count);
        })
    };
    assert_eq!(schema(by_name(BY_NAME_MAX)), 5);
    let too_many = Err(WireError::Invalid("number of certificates"));
    assert_eq!(read(by_name(BY_NAME_MAX + 1)), too_many);
    let alike = |count| with(&|it| it.alternatives = names(count));
    assert!(read(alike(ALTERNATIVES_MAX)).is_ok());
    assert_eq!(read(alike(ALTERNATIVES_MAX + 1)), too_many);
}

#[test]
fn datagrams_have_neither_tls_nor_capture() {
    let with = |edit: &dyn Fn(&mut Listener)| {
        let mut listener = Listener {
            protocol: ListenerProtocol::Udp,
            capture: None,
            ..super::captured()
        };
        edit(&mut listener);
        Value::Listener(Box::new(listener))
    };
    assert_eq!(schema(with(&|_| {})), 5);
    let refused = Err(WireError::Invalid(
        "combination of protocol, TLS and capture",
    ));
    assert_eq!(read(with(&|it| it.tls = true)), refused);
    let capture = super::captured().capture;
    assert_eq!(read(with(&|it| it.capture = capture)), refused);
}

#[test]
fn the_two_kinds_of_gateway_are_told_apart() {
    for kind in [
        OriginKind::Gateway,
        OriginKind::KubernetesGateway,
        OriginKind::ListenerSet,
        OriginKind::HttpRoute,
        OriginKind::GrpcRoute,
        OriginKind::TlsRoute,
        OriginKind::TcpRoute,
        OriginKind::UdpRoute,
    ] {
        let resource = Resource {
            origin: Origin {
                kind,
                id: "shop/web".into(),
            },
            value: Value::Domain(Box::new(third_domain())),
        };
        assert_eq!(decode(&encoded(&resource)), Ok(resource), "{kind:?}");
    }
}
