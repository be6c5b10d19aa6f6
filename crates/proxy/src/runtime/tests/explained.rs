//! The stages' words about a request that is only asked about agree with their deeds to one that is
//! sent.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{
    Abort, AbortAnswer, AccessAction, AccessCheck, AccessMatcher, AccessPolicy, AccessRule,
    AccessSubject, AccessTest, Action, Authorize, Cors, Fault, Policy, RateLimit, Redirect,
    RedirectTarget, Respond, Share, SourceRanges, Value,
};

use super::world::{Backend, World, route, with_policy};
use crate::codec::head;
use crate::http::stage::Scene;
use crate::http::stage::dry_run::{self, DryRun};
use crate::limits::Limits;
use crate::pattern::Budget;
use crate::policy::token::HeadMemory;
use crate::route::downstream_connection::DownstreamConnection;

/// A proxy with a route for each stage that ends a request.
fn world(backend: &Backend) -> World {
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let mut put = |path: &str, change: fn(&mut Policy)| {
        world.put_route(path, with_policy(route("a.example", path, "u"), change));
    };
    put("/open", |_| {});
    put("/denied", |_| {});
    put("/in", |policy| {
        policy.sources_allowed = ["127.0.0.0/8".parse().unwrap()].into();
    });
    put("/out", |policy| {
        policy.sources_allowed = ["192.0.2.0/24".parse().unwrap()].into();
    });
    put("/banned", |policy| {
        policy.sources_denied = ["127.0.0.0/8".parse().unwrap()].into();
    });
    put("/short", |policy| policy.request_body_bytes_max = 3);
    put("/aborted", |policy| {
        policy.fault = Some(Box::new(Fault {
            delay: None,
            abort: Some(Abort {
                share: Share::ALL,
                answer: AbortAnswer::Status(418),
            }),
        }));
    });
    put("/cors", |policy| {
        policy.cors = Some(Box::new(Cors {
            origins: ["https://b.example".into()].into(),
            methods: "GET".into(),
            headers_allowed: "".into(),
            headers_exposed: "".into(),
            credentials: false,
            age_max_s: 60,
            origin_patterns: Box::default(),
            forwards_unmatched: false,
            echoes_wildcards: false,
            exposes_in_preflights: false,
        }));
    });
    world.put_route("/gone", route("a.example", "/gone", "missing"));
    let respond = |status| {
        Action::Respond(Box::new(Respond {
            status,
            body: (*b"fixed").into(),
        }))
    };
    let redirect = Action::Redirect(Arc::new(Redirect {
        status: 301,
        target: RedirectTarget::Path("/open".into()),
    }));
    let actions = [
        ("/fixed", respond(202)),
        ("/closed", respond(403)),
        ("/moved", redirect),
    ];
    for (path, action) in actions {
        let mut acting = route("a.example", path, "u");
        acting.action = action;
        world.put_route(path, acting);
    }
    world.put("deny", Value::AccessPolicy(Box::new(denial())));
    world
}

/// An access policy that denies one path.
fn denial() -> AccessPolicy {
    let test = AccessTest {
        subject: AccessSubject::Path,
        any: [AccessMatcher::Exact("/denied".into())].into(),
        none: Box::default(),
    };
    let rule = AccessRule {
        to: [[test].into()].into(),
        ..AccessRule::default()
    };
    AccessPolicy {
        listeners: Default::default(),
        check: AccessCheck::Authorize(Authorize {
            action: AccessAction::Deny,
            is_dry_run: false,
            rules: [rule].into(),
        }),
    }
}

/// The status that the stages tell of, none for an endpoint's, and whether the request is served.
fn explained(world: &World, request: &str) -> (Option<u16>, bool) {
    let tables = world.proxy.reader()();
    let address = ([127, 0, 0, 1], 4711).into();
    let visit = DownstreamConnection::new("http".into(), address, 80);
    let (mut room, budget) = (HeadMemory::default(), Budget::default());
    let end = memchr::memmem::find(request.as_bytes(), b"\r\n\r\n").unwrap() + 4;
    let head = head::parse(&request.as_bytes()[..end], &Limits::default()).unwrap();
    let scene = Scene {
        tables: &tables,
        visit: &visit,
        budget: &budget,
        trusted_hops: 0,
    };
    let DryRun { end, .. } = dry_run::run(&scene, (&head, &mut room), None);
    (end.status, end.failure.is_none())
}

#[tokio::test]
async fn what_is_explained_is_what_is_done() {
    let backend = Backend::saying("hello").await;
    let world = world(&backend);
    let preflight = "Origin: https://b.example\r\nAccess-Control-Request-Method: GET\r\n";
    let long = "Content-Length: 9\r\n";
    for (method, path, fields, body, status, is_served) in [
        ("GET", "/open", "", "", 200, true),
        ("GET", "/denied", "", "", 403, false),
        ("GET", "/in", "", "", 200, true),
        ("GET", "/out", "", "", 403, false),
        ("GET", "/banned", "", "", 403, false),
        ("POST", "/short", long, "123456789", 413, false),
        ("GET", "/aborted", "", "", 418, false),
        ("OPTIONS", "/cors", preflight, "", 204, true),
        ("GET", "/gone", "", "", 503, false),
        ("GET", "/fixed", "", "", 202, true),
        ("GET", "/closed", "", "", 403, false),
        ("GET", "/moved", "", "", 301, true),
        ("GET", "/nowhere", "", "", 404, false),
    ] {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n\
             {body}"
        );
        let response = world.ask(&request).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {response}"
        );
        let (told, served) = explained(&world, &request);
        assert_eq!(told.unwrap_or(200), status, "{path}");
        assert_eq!(served, is_served, "{path}");
    }
}

#[tokio::test]
async fn asking_what_would_happen_takes_nothing_from_a_limit_and_reaches_no_endpoint() {
    let backend = Backend::saying("hello").await;
    let mut world = world(&backend);
    let rare = with_policy(route("a.example", "/rare", "u"), |policy| {
        policy.rate_limits = [RateLimit {
            name: "rare".into(),
            requests: 1,
            interval: Duration::from_secs(3_600),
            burst: 0,
            is_per_client: false,
            exempt: SourceRanges::default(),
            is_at_once: false,
        }]
        .into();
    });
    world.put_route("/rare", rare);
    let request = "GET /rare HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    for _ in 0..9 {
        assert_eq!(explained(&world, request), (None, true));
    }
    assert_eq!(backend.requests(), 0);
    for status in [200, 429] {
        let response = world.ask(request).await;
        let start = format!("HTTP/1.1 {status} ");
        assert!(response.starts_with(&start), "{response}");
    }
    assert_eq!(backend.requests(), 1);
}
