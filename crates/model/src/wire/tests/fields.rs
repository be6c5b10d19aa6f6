//! The results of the descriptions: the .proto file, schemas, and the reading of bytes that no
//! description made.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::examples::{examples, first_route, policy};
use super::{encoded, resource};
use crate::wire::{SCHEMA, WireError, decode, proto};
use crate::{
    AnswerMemory, Dns, Inquiry, PathMatch, Policy, Protocol, Resource, SameSite, Source, Test,
    Trust, Upstream, Users, Value, ValueMatch,
};

/// The .proto file as it is committed.
const PROTO: &str = include_str!("../../../proto/myriad/model/v1/model.proto");

#[test]
fn the_proto_file_is_what_the_descriptions_say() {
    let described = proto();
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        let folder = env!("CARGO_MANIFEST_DIR");
        let path = format!("{folder}/proto/myriad/model/v1/model.proto");
        std::fs::write(path, described).unwrap();
        return;
    }
    let mut lines = PROTO.lines().zip(described.lines());
    let differing = lines.find(|(committed, described)| committed != described);
    assert!(
        PROTO == described,
        "model.proto is not what is described, first at {differing:?}; \
         UPDATE_GOLDENS=1 cargo test -p myriad-model proto rewrites it"
    );
}

#[test]
fn the_newest_schema_is_the_highest_that_a_field_needs() {
    let line = format!("\n// The newest schema is {SCHEMA}.\n");
    assert!(proto().contains(&line), "raise or lower `wire::SCHEMA`");
}

fn schema(value: Value) -> u8 {
    encoded(&resource(value))[1]
}

#[test]
fn each_field_that_came_later_raises_the_schema_alone() {
    let route = |edit: &dyn Fn(&mut crate::Route)| {
        let mut route = first_route();
        edit(&mut route);
        schema(Value::Route(Box::new(route)))
    };
    let with_policy = |edit: &dyn Fn(&mut Policy)| {
        let mut policy = policy();
        edit(&mut policy);
        route(&|route| route.policy = Arc::new(policy.clone()))
    };
    let condition = |source, test| {
        let (name, invert) = (Box::default(), false);
        [ValueMatch {
            source,
            name,
            test,
            invert,
        }]
    };
    assert_eq!(route(&|_| {}), 1);
    assert_eq!(route(&|it| it.path = PathMatch::Start("/a".into())), 2);
    let scheme = condition(Source::Scheme, Test::Exact("http".into()));
    assert_eq!(route(&|it| it.conditions = scheme.clone().into()), 2);
    let start = condition(Source::Method, Test::Start("P".into()));
    assert_eq!(route(&|it| it.conditions = start.clone().into()), 2);
    let claim = condition(Source::Claim, Test::Present);
    assert_eq!(route(&|it| it.conditions = claim.clone().into()), 3);
    let second = Duration::from_secs(1);
    assert_eq!(with_policy(&|it| it.request_timeout = second), 2);
    assert_eq!(with_policy(&|it| it.headers = Some(Box::default())), 2);
    assert_eq!(with_policy(&|it| it.processor = Some("a".into())), 3);
    let inquiry = || Some(Box::new(inquiry()));
    assert_eq!(with_policy(&|it| it.inquiry = inquiry()), 4);
    let denied: [ipnet::IpNet; 1] = ["192.0.2.0/24".parse().unwrap()];
    assert_eq!(with_policy(&|it| it.sources_denied = denied.into()), 3);

    let upstream = |dns: Dns| {
        schema(Value::Upstream(Box::new(Upstream {
            dns: Some(Box::new(dns)),
            ..Upstream::plain(Protocol::Http1)
        })))
    };
    assert_eq!(upstream(Dns::strict("a.example", 80)), 1);
    let mut two = Dns::strict("a.example", 80);
    let other = Dns::strict("b.example", 80);
    two.names = [two.names[0].clone(), other.names[0].clone()].into();
    assert_eq!(upstream(two), 3);
    let mut heavy = Dns::strict("a.example", 80);
    heavy.names[0].weight = 2;
    assert_eq!(upstream(heavy), 3);
    let h2c = Upstream::plain(Protocol::H2c);
    assert_eq!(schema(Value::Upstream(Box::new(h2c))), 3);
}

/// A route with the policy of another one, changed so, as it comes back.
fn comes_back(edit: impl Fn(&mut Policy)) {
    let mut policy = policy();
    edit(&mut policy);
    let route = crate::Route {
        policy: Arc::new(policy),
        ..first_route()
    };
    let resource = resource(Value::Route(Box::new(route)));
    assert_eq!(decode(&encoded(&resource)), Ok(resource));
}

fn inquiry() -> Inquiry {
    Inquiry {
        upstream: "shop/auth:80".into(),
        method: "GET".into(),
        authority: "$host".into(),
        target: "/check?a=$escaped_request_uri".into(),
        redirect: "$request_uri".into(),
        fields: [("x-a".into(), "$host".into()), ("x-b".into(), "".into())].into(),
        timeout: Duration::from_secs(5),
        passed: ["x-user".into()].into(),
        signin: "https://$host/start?rd=$scheme://$http_host$escaped_request_uri".into(),
        always_sets_cookies: true,
        memory: Some(Box::new(AnswerMemory {
            key: "$cookie_a".into(),
            ages: [
                (200, Duration::from_secs(300)),
                (401, Duration::from_secs(1)),
            ]
            .into(),
        })),
    }
}

#[test]
fn an_inquiry_comes_back_as_it_went_and_no_other_text_is_taken() {
    comes_back(|it| it.inquiry = Some(Box::new(inquiry())));
    let read = |edit: &dyn Fn(&mut Inquiry)| {
        let mut changed = inquiry();
        edit(&mut changed);
        let policy = Policy {
            inquiry: Some(Box::new(changed)),
            ..policy()
        };
        let route = crate::Route {
            policy: Arc::new(policy),
            ..first_route()
        };
        decode(&encoded(&resource(Value::Route(Box::new(route))))).is_ok()
    };
    assert!(read(&|_| {}));
    let wrong: [&dyn Fn(&mut Inquiry); 9] = [
        &|it| it.method = "GET /".into(),
        &|it| it.authority = "".into(),
        &|it| it.target = "check".into(),
        &|it| it.target = "/a b".into(),
        &|it| it.target = "/$uri".into(),
        &|it| it.redirect = "a\nb".into(),
        &|it| it.fields = [("X-A".into(), "1".into())].into(),
        &|it| it.signin = format!("/{}", "a".repeat(Inquiry::TEXT_BYTES_MAX)).into(),
        &|it| it.timeout = Duration::ZERO,
    ];
    for (at, edit) in wrong.into_iter().enumerate() {
        assert!(!read(edit), "{at}");
    }
}

#[test]
fn who_may_ask_comes_back_as_it_went() {
    comes_back(|it| {
        it.sources_denied = ["192.0.2.0/24".parse().unwrap(), "::/0".parse().unwrap()].into();
        it.satisfies_any = true;
    });
}

#[test]
fn what_browsers_are_told_comes_back_as_it_went() {
    comes_back(|it| it.hsts = "max-age=1; includeSubDomains".into());
}

#[test]
fn a_cookie_comes_back_as_it_went_and_needs_no_newer_schema() {
    let all = [
        SameSite::Unsaid,
        SameSite::Lax,
        SameSite::Strict,
        SameSite::None,
        SameSite::NoneWhereTaken,
    ];
    for same_site in all {
        comes_back(|it| {
            let affinity = it.affinity.as_mut().unwrap();
            affinity.same_site = same_site;
            affinity.domain = "example.com".into();
            affinity.stays_on_failure = true;
        });
    }
    let mut policy = policy();
    policy.affinity.as_mut().unwrap().same_site = SameSite::Lax;
    let route = crate::Route {
        policy: Arc::new(policy),
        ..first_route()
    };
    assert_eq!(schema(Value::Route(Box::new(route))), 1);
}

/// A resource, and these bytes behind its own.
fn followed_by(more: &[u8]) -> (Resource, Result<Resource, WireError>) {
    let resource = resource(examples().swap_remove(0).1);
    let mut bytes = encoded(&resource).to_vec();
    bytes.extend(more);
    let read = decode(&bytes.into());
    (resource, read)
}

#[test]
fn a_field_that_is_not_known_is_passed_over() {
    // Field 100 as a number, as eight bytes, as two bytes and as four.
    for more in [
        &[0xa0, 0x06, 0x96, 0x01][..],
        &[0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0xa2, 0x06, 2, 1, 2],
        &[0xa5, 0x06, 1, 2, 3, 4],
    ] {
        let (resource, read) = followed_by(more);
        assert_eq!(read, Ok(resource), "{more:x?}");
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for more in [
        // The schema as four bytes, the origin as a number.
        &[0x0d, 1, 0, 0, 0][..],
        &[0x10, 1],
        // A second origin.
        &[0x12, 0],
        // No field at all, a group, and a kind that there is not.
        &[0x00, 0x00],
        &[0xa3, 0x06, 0xa4, 0x06],
        &[0xa6, 0x06],
        // Cut short: a key, a number, a length, what is as long as it says.
        &[0xa0],
        &[0xa0, 0x06, 0x80],
        &[0xa2, 0x06],
        &[0xa2, 0x06, 2, 1],
        // More than 64 bits.
        &[
            0xa0, 0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02,
        ],
    ] {
        assert_eq!(followed_by(more).1, Err(WireError::Malformed), "{more:x?}");
    }
}

#[test]
fn no_part_of_a_resource_is_taken_for_the_whole() {
    for (name, value) in examples() {
        let resource = resource(value);
        let bytes = encoded(&resource);
        for end in 0..bytes.len() {
            let read = decode(&bytes.slice(..end));
            assert_ne!(read.as_ref(), Ok(&resource), "{name} up to {end}");
        }
    }
}

#[test]
fn a_list_is_refused_where_it_becomes_too_long() {
    let trust = |roots: usize| {
        let roots = vec![Bytes::from_static(b"root"); roots].into();
        let crls = Box::default();
        decode(&encoded(&resource(Value::Trust(Box::new(Trust {
            roots,
            crls,
            users: Users::default(),
        })))))
    };
    assert!(trust(crate::TRUST_PARTS_MAX).is_ok());
    assert_eq!(
        trust(crate::TRUST_PARTS_MAX + 1),
        Err(WireError::Invalid("number of roots or revocation lists"))
    );
}
