//! Services that routes have asked whether requests may pass.

use std::time::Duration;

use myriad_model::{AnswerMemory, HeaderEdit, HeaderEdits, Inquiry, Kind, Policy};

use super::world::{Backend, PATIENCE, World, header, route, with_policy};

/// Asks with these fields, of `GET /a?b=c`.
fn get(fields: &str) -> String {
    format!("GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n")
}

pub(super) fn inquiry() -> Inquiry {
    Inquiry {
        upstream: "auth".into(),
        method: "GET".into(),
        authority: "auth.example".into(),
        target: "/check?for=$escaped_request_uri".into(),
        redirect: "$request_uri".into(),
        fields: Box::default(),
        timeout: PATIENCE,
        passed: ["x-user".into()].into(),
        signin: Box::default(),
        always_sets_cookies: false,
        memory: None,
    }
}

/// A route whose requests are asked about before they reach an endpoint that echoes them.
pub(super) fn guard(world: &mut World, inquiry: Inquiry, further: impl FnOnce(&mut Policy)) {
    let guarded = with_policy(route("a.example", "/", "u"), |policy| {
        policy.inquiry = Some(Box::new(inquiry));
        let request = HeaderEdit {
            remove: ["x-user".into()].into(),
            ..HeaderEdit::default()
        };
        policy.headers = Some(Box::new(HeaderEdits {
            request,
            ..HeaderEdits::default()
        }));
        further(policy);
    });
    world.put_route("r", guarded);
}

/// Lets pass who has the cookie `s=ann` and knows nobody else. What the path ends with is what is
/// answered otherwise.
async fn service() -> Backend {
    Backend::answering(|told| {
        let line = told.lines().next().unwrap_or_default();
        let ends = |end: &str| header(told, "x-wanted") == Some(end);
        let status = match header(told, "cookie") {
            Some(cookie) if cookie.contains("s=ann") => "202 Accepted",
            _ if ends("403") => "403 Forbidden",
            _ if ends("404") => "404 Not Found",
            _ if ends("302") => "302 Found",
            _ if ends("503") => "503 Unavailable",
            _ if ends("nothing") => return String::new(),
            _ => "401 Unauthorized",
        };
        format!(
            "HTTP/1.1 {status}\r\nX-User: ann\r\nX-Asked: {line}\r\nSet-Cookie: s=new\r\n\
             WWW-Authenticate: Bearer\r\nLocation: /elsewhere\r\nContent-Length: 2\r\n\r\nno"
        )
    })
    .await
}

async fn world() -> (World, Backend, Backend) {
    let (backend, service) = (Backend::echo().await, service().await);
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_upstream("auth", &[service.address]);
    (world, backend, service)
}

#[tokio::test]
async fn a_service_lets_pass_and_refuses() {
    let (mut world, backend, service) = world().await;
    guard(&mut world, inquiry(), |_| {});
    let response = world.ask(&get("Cookie: s=ann\r\nX-User: forged\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let (head, echoed) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(header(head, "set-cookie"), Some("s=new"));
    assert_eq!(header(head, "x-asked"), None);
    assert_eq!(header(echoed, "x-user"), Some("ann"), "{echoed}");
    assert!(!response.contains("forged"), "{response}");
    for (wanted, status, challenge) in [
        ("401", "401", Some("Bearer")),
        ("403", "403", None),
        ("404", "500", None),
        ("302", "500", None),
        ("503", "500", None),
        ("nothing", "500", None),
    ] {
        let request = get(&format!("X-Wanted: {wanted}\r\nX-User: forged\r\n"));
        let response = world.ask(&request).await;
        assert_eq!(&response[9..12], status, "{wanted}: {response}");
        assert_eq!(header(&response, "www-authenticate"), challenge, "{wanted}");
        for name in ["set-cookie", "location", "x-user"] {
            assert_eq!(header(&response, name), None, "{wanted} {name}");
        }
    }
    assert_eq!(backend.requests(), 1);
    assert!(service.requests() >= 7);
    // Nobody passes where nobody can be asked.
    world.remove(Kind::Upstream, "auth");
    let response = world.ask(&get("Cookie: s=ann\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 500"), "{response}");
    assert_eq!(backend.requests(), 1);
}

#[tokio::test]
async fn a_service_is_told_all_cookies_in_one_field_and_none_of_the_connection() {
    let (mut world, backend, service) = world().await;
    guard(&mut world, inquiry(), |_| {});
    let several = get("Cookie: a=1\r\nX-Other: 1\r\nCookie: s=ann\r\n");
    let response = world.ask(&several).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let (_, echoed) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(header(echoed, "cookie"), Some("a=1; s=ann"), "{echoed}");
    let hidden = get("Connection: x-wanted\r\nX-Wanted: 403\r\n");
    let response = world.ask(&hidden).await;
    assert!(response.starts_with("HTTP/1.1 401"), "{response}");
    assert_eq!((backend.requests(), service.requests()), (1, 2));
}

#[tokio::test]
async fn a_service_that_says_nothing_in_time_refuses() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (mut world, backend, _service) = world().await;
    world.put_upstream("auth", &[silent.local_addr().unwrap()]);
    let hasty = Inquiry {
        timeout: Duration::from_millis(50),
        ..inquiry()
    };
    guard(&mut world, hasty, |_| {});
    let response = world.ask(&get("Cookie: s=ann\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 500"), "{response}");
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn who_is_not_known_is_led_to_where_that_can_be_changed() {
    let (mut world, _backend, _service) = world().await;
    let leading = Inquiry {
        signin: "https://$host/start?rd=$scheme://$http_host$escaped_request_uri".into(),
        ..inquiry()
    };
    guard(&mut world, leading, |_| {});
    let response = world.ask(&get("")).await;
    assert!(response.starts_with("HTTP/1.1 302"), "{response}");
    let wanted = "https://a.example/start?rd=http://a.example%2Fa%3Fb%3Dc";
    assert_eq!(header(&response, "location"), Some(wanted));
    assert_eq!(header(&response, "set-cookie"), Some("s=new"));
    assert_eq!(header(&response, "www-authenticate"), None);
    let response = world.ask(&get("X-Wanted: 403\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    assert_eq!(header(&response, "location"), None);
}

#[tokio::test]
async fn cookies_go_with_successes_unless_they_always_go() {
    let (mut world, _backend, _service) = world().await;
    for (status, always, goes) in [
        ("200 OK", false, true),
        ("304 Not Modified", false, true),
        ("404 Not Found", false, false),
        ("500 Broken", false, false),
        ("404 Not Found", true, true),
    ] {
        let endpoint = Backend::answering(move |_| {
            format!("HTTP/1.1 {status}\r\nSet-Cookie: own=1\r\nContent-Length: 0\r\n\r\n")
        });
        world.put_upstream("u", &[endpoint.await.address]);
        let inquiry = Inquiry {
            always_sets_cookies: always,
            ..inquiry()
        };
        guard(&mut world, inquiry, |_| {});
        let response = world.ask(&get("Cookie: s=ann\r\n")).await;
        assert_eq!(&response[9..12], &status[..3], "{response}");
        let cookies = response.to_ascii_lowercase();
        assert_eq!(
            cookies.contains("set-cookie: s=new"),
            goes,
            "{status} {always}"
        );
        assert!(cookies.contains("set-cookie: own=1"), "{response}");
    }
}

#[tokio::test]
async fn an_address_suffices_where_either_does() {
    let (mut world, _backend, service) = world().await;
    for (allowed, asked, status) in [("127.0.0.0/8", 0, "200"), ("192.0.2.0/24", 1, "401")] {
        guard(&mut world, inquiry(), |policy| {
            policy.sources_allowed = allowed.parse::<ipnet::IpNet>().into_iter().collect();
            policy.satisfies_any = true;
        });
        let response = world.ask(&get("X-User: forged\r\n")).await;
        assert_eq!(&response[9..12], status, "{response}");
        assert!(!response.contains("forged"), "{response}");
        assert_eq!(service.requests(), asked);
    }
}

#[tokio::test]
async fn answers_are_remembered_by_what_requests_say() {
    let backend = Backend::echo().await;
    let service = Backend::answering(|told| {
        let status = match header(told, "cookie") {
            Some(cookie) if cookie.contains("ann") => "200 OK",
            Some(_) => "401 No",
            None => "403 No",
        };
        format!("HTTP/1.1 {status}\r\nX-User: ann\r\nContent-Length: 0\r\n\r\n")
    })
    .await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_upstream("auth", &[service.address]);
    let hour = Duration::from_secs(3_600);
    let remembering = Inquiry {
        memory: Some(Box::new(AnswerMemory {
            key: "$cookie_s".into(),
            ages: [(200, hour), (401, hour)].into(),
        })),
        ..inquiry()
    };
    guard(&mut world, remembering.clone(), |_| {});
    for (fields, status, asked) in [
        ("Cookie: s=ann\r\n", "200", 1),
        ("Cookie: s=ann\r\n", "200", 1),
        ("Cookie: s=ann; t=1\r\n", "200", 1),
        ("Cookie: s=bob\r\n", "401", 2),
        ("Cookie: s=bob\r\n", "401", 2),
        ("", "403", 3),
        ("", "403", 4),
    ] {
        let response = world.ask(&get(fields)).await;
        assert_eq!(&response[9..12], status, "{fields}{response}");
        assert_eq!(service.requests(), asked, "{fields}");
        if status == "200" {
            assert!(response.contains("x-user: ann"), "{response}");
        }
    }
    // Another route has answers of its own, whatever it asks.
    let other = with_policy(route("b.example", "/", "u"), |policy| {
        policy.inquiry = Some(Box::new(remembering));
    });
    world.put_route("other", other);
    let request = get("Cookie: s=ann\r\n").replace("a.example", "b.example");
    assert!(world.ask(&request).await.starts_with("HTTP/1.1 200"));
    assert_eq!(service.requests(), 5);
}
