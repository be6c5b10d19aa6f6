//! Paths that another spelling of leads to the same place: what restricts one holds for all.

use std::time::Duration;

use myriad_model::{
    Action, Inquiry, PathMatch, PathReading, PathRewrite, RateLimit, Respond, Rewrite, SourceRanges,
};

use super::world::{Backend, World, route, with_policy};
use crate::Settings;
use crate::limits::Limits;
use crate::limits::PathRule;

/// Other spellings of a path below `/admin`, by what servers make of them.
pub(super) const SPELLINGS: [&str; 19] = [
    "/%61dmin",
    "//admin",
    "/x/../admin",
    "/x/..//admin",
    "/admin%2fx",
    "/%2fadmin",
    "/admin;x",
    "/;x/admin",
    "/x/..;/admin",
    "/..;/admin",
    "/admin%5cx",
    "/admin\\x",
    "/admin%3bx",
    "/%2561dmin",
    // Servlet containers leave parameters out before they undo escapes.
    "/admin;%252f%252e%252e",
    "/admin;x/%252e%252e/y",
    "/admin;%2fx/%252e%252e/%252e%252e",
    "/;%252f%252e%252e/admin;%252f%252e%252e",
    "/admin%3b%252f%252e%252e",
];

fn start(paths: PathRule) -> World {
    World::start_with(Settings {
        workers: 1,
        limits: Limits {
            paths,
            ..Limits::default()
        },
        ..Settings::default()
    })
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn no_spelling_of_a_restricted_path_is_served() {
    let backend = Backend::saying("hello").await;
    let readings = [PathReading::AsSent, PathReading::Base, PathReading::Decoded];
    // More routes than are tried one by one are found by an index.
    for (reading, more) in readings.into_iter().zip([0, 20, 0]) {
        for rule in [PathRule::Dialect, PathRule::AsIs, PathRule::Base] {
            let mut world = start(rule);
            world.put_upstream("u", &[backend.address]);
            let read = |route, nets: &[&str]| {
                with_policy(route, |policy| {
                    policy.path_reading = reading;
                    policy.sources_allowed = nets.iter().map(|net| net.parse().unwrap()).collect();
                })
            };
            let admin = route("a.example", "/admin", "u");
            world.put_route("admin", read(admin, &["192.0.2.0/24"]));
            world.put_route("all", read(route("a.example", "/", "u"), &[]));
            for number in 0..more {
                let path = format!("/{number}");
                let other = route("a.example", &path, "u");
                world.put_route(&path, read(other, &[]));
            }
            for path in SPELLINGS {
                let answer = world.ask(&get(path)).await;
                let status = &answer[9..12];
                assert!(
                    ["400", "403"].contains(&status),
                    "{rule:?} {path}: {answer}"
                );
            }
            // Neighbours are untouched.
            for path in ["/administration", "/%61", "//", "/x;admin", "/x%2fy"] {
                let answer = world.ask(&get(path)).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
            }
        }
    }
}

/// A service is asked about the route alone that the dialect finds, so other readings are refused
/// where nobody asks it about theirs.
#[tokio::test]
async fn no_spelling_of_a_path_evades_the_service_that_is_asked_about_it() {
    let backend = Backend::saying("hello").await;
    let service = Backend::saying("it may pass").await;
    let mut world = start(PathRule::Dialect);
    world.put_upstream("u", &[backend.address]);
    world.put_upstream("auth", &[service.address]);
    let asked = |route, target: &str| {
        with_policy(route, |policy| {
            policy.path_reading = PathReading::Decoded;
            policy.inquiry = Some(Box::new(Inquiry {
                upstream: "auth".into(),
                method: "GET".into(),
                authority: "auth".into(),
                target: target.into(),
                redirect: "$request_uri".into(),
                fields: [].into(),
                timeout: Duration::from_secs(5),
                passed: [].into(),
                signin: "".into(),
                always_sets_cookies: false,
                memory: None,
            }));
        })
    };
    let admin = route("a.example", "/admin", "u");
    world.put_route("admin", asked(admin.clone(), "/check"));
    let all = with_policy(route("a.example", "/", "u"), |policy| {
        policy.path_reading = PathReading::Decoded;
    });
    world.put_route("all", all.clone());
    let statuses = async |world: &World| {
        let mut statuses = Vec::new();
        for path in SPELLINGS {
            let answer = world.ask(&get(path)).await;
            let status = answer[9..12].to_owned();
            assert!(
                ["200", "400", "403"].contains(&&*status),
                "{path}: {answer}"
            );
            statuses.push((path, status));
        }
        statuses
    };
    for (path, status) in statuses(&world).await {
        let before = service.requests();
        let answer = world.ask(&get(path)).await;
        let is_asked = service.requests() > before;
        assert!(status != "200" || is_asked, "{path}: {answer}");
    }

    // Where the other route has another service asked, that does not count for this one.
    world.put_route("all", asked(all, "/other"));
    let found = statuses(&world).await;
    assert!(found.contains(&("/admin;x", "403".to_owned())), "{found:?}");
    // Where it has the same one asked, that decides.
    world.put_route("all", asked(route("a.example", "/", "u"), "/check"));
    let found = statuses(&world).await;
    assert!(found.contains(&("/admin;x", "200".to_owned())), "{found:?}");
}

#[tokio::test]
async fn no_spelling_of_a_path_evades_its_rate() {
    let backend = Backend::saying("hello").await;
    let mut world = start(PathRule::Dialect);
    world.put_upstream("u", &[backend.address]);
    let read = |route| with_policy(route, |policy| policy.path_reading = PathReading::Decoded);
    let limited = with_policy(read(route("a.example", "/admin", "u")), |policy| {
        policy.rate_limits = [RateLimit {
            name: "twice".into(),
            requests: 1,
            interval: Duration::from_secs(3_600),
            burst: 1,
            is_per_client: true,
            exempt: SourceRanges::default(),
            is_at_once: false,
        }]
        .into();
    });
    world.put_route("admin", limited);
    world.put_route("all", read(route("a.example", "/", "u")));
    // One of another spelling counts as well.
    for path in ["/admin;x", "/admin"] {
        let answer = world.ask(&get(path)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    for path in SPELLINGS {
        let answer = world.ask(&get(path)).await;
        assert!(["400", "429"].contains(&&answer[9..12]), "{path}: {answer}");
    }
    for path in ["/administration", "/%61", "//", "/x;admin", "/x%2fy"] {
        let answer = world.ask(&get(path)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn no_spelling_of_a_closed_path_is_served() {
    let backend = Backend::saying("hello").await;
    let mut world = start(PathRule::Dialect);
    world.put_upstream("u", &[backend.address]);
    world.put_route("all", route("a.example", "/", "u"));
    let refusal = Respond {
        status: 403,
        body: b"closed".as_slice().into(),
    };
    for (action, status) in [
        (Action::Forward([].into()), "503"),
        (Action::Respond(Box::new(refusal)), "403"),
    ] {
        let mut closed = route("a.example", "/admin", "u");
        closed.action = action;
        world.put_route("closed", closed);
        for path in SPELLINGS {
            let answer = world.ask(&get(path)).await;
            assert!(
                ["400", status].contains(&&answer[9..12]),
                "{path}: {answer}"
            );
        }
    }
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn each_route_reads_the_path_as_its_dialect_does() {
    let backend = Backend::saying("hello").await;
    let mut world = start(PathRule::Dialect);
    world.put_upstream("u", &[backend.address]);
    for (name, path, reading) in [
        ("sent", "/sent%2F", PathReading::AsSent),
        ("base", "/base", PathReading::Base),
        ("decoded", "/decoded/x", PathReading::Decoded),
    ] {
        let mut read = with_policy(route("a.example", "/", "u"), |policy| {
            policy.path_reading = reading;
        });
        read.path = PathMatch::Start(path.into());
        world.put_route(name, read);
    }
    for (path, status) in [
        ("/sent%2F", "200"),
        ("/sent%2f", "404"),
        ("/%62ase", "200"),
        ("//base", "404"),
        ("/x/../base", "200"),
        ("/decoded%2fx", "200"),
        ("//%64ecoded//x", "200"),
        // What nginx refuses is refused on a host whose routes read as it does.
        ("/decoded/x/%zz", "400"),
        ("/../decoded/x", "400"),
    ] {
        let answer = world.ask(&get(path)).await;
        assert_eq!(&answer[9..12], status, "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_decoded_path_is_rewritten_and_escaped_again() {
    let backend = Backend::answering(|request| {
        let target = request.split(' ').nth(1).unwrap_or_default().to_owned();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{target}",
            target.len()
        )
    })
    .await;
    let mut world = start(PathRule::Dialect);
    world.put_upstream("u", &[backend.address]);
    let rewritten = with_policy(route("a.example", "/api", "u"), |policy| {
        policy.path_reading = PathReading::Decoded;
        policy.rewrite = Some(Box::new(Rewrite {
            path: Some(PathRewrite::Matched("/v1".into())),
            authority: Box::default(),
        }));
    });
    world.put_route("r", rewritten);
    for (asked, got) in [
        ("/api/a%20b?q=%20", "/v1/a%20b?q=%20"),
        ("//%61pi/%3f%23%25%ff/x", "/v1/%3F%23%25%FF/x"),
        ("/api%2Fgroup%2Fproject", "/v1/group/project"),
    ] {
        let answer = world.ask(&get(asked)).await;
        assert!(
            answer.ends_with(&format!("\r\n\r\n{got}")),
            "{asked}: {answer}"
        );
    }
}
