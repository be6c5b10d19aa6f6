use std::sync::Arc;
use std::time::Duration;

use myriad_model::{
    Action, Affinity, Cors, PathMatch, PathRewrite, Redirect, RedirectTarget, Respond, Rewrite,
    TlsRedirect, TlsSettings, Value, WeightedUpstream,
};

use tokio::net::TcpListener;

use super::world::{Backend, World, certificate, domain, header, route, with_policy};
use crate::balance::{Endpoint, TransportSettings};

fn get(host: &str, path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n")
}

#[tokio::test]
async fn plain_text_is_redirected_to_tls_and_tls_is_not() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let redirected = with_policy(route("a.example", "/", "u"), |policy| {
        policy.tls_redirect = Some(TlsRedirect {
            status: 308,
            port: 443,
            except_prefix: "/.well-known/acme-challenge/".into(),
        });
    });
    world.put_route("r", redirected);
    let response = world.ask(&get("a.example", "/x?y", "")).await;
    assert!(
        response.starts_with("HTTP/1.1 308 Permanent Redirect\r\n"),
        "{response}"
    );
    assert_eq!(header(&response, "location"), Some("https://a.example/x?y"));
    let response = world
        .ask(&get("a.example", "/.well-known/acme-challenge/t", ""))
        .await;
    assert!(response.ends_with("hello"), "{response}");
    let mut client = world.tls_client("a.example").await.unwrap();
    client.send(get("a.example", "/x", "")).await;
    assert_eq!(client.response().await.1, "hello");
}

#[tokio::test]
async fn a_path_is_rewritten_by_the_groups_of_its_regex() {
    let backend = Backend::echo().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let mut rewritten = with_policy(route("a.example", "/", "u"), |policy| {
        policy.rewrite = Some(Box::new(Rewrite {
            path: Some(PathRewrite::Template("/$2".into())),
            authority: "".into(),
        }));
    });
    rewritten.path = PathMatch::Regex("/app(/|$)(.*)".into());
    world.put_route("r", rewritten);
    let response = world.ask(&get("a.example", "/app/x/y?z=1", "")).await;
    assert!(
        response.contains("\r\n\r\nGET /x/y?z=1 HTTP/1.1\r\n"),
        "{response}"
    );
}

#[tokio::test]
async fn only_allowed_addresses_are_admitted() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    for (path, net) in [("/in", "127.0.0.0/8"), ("/out", "192.0.2.0/24")] {
        let limited = with_policy(route("a.example", path, "u"), |policy| {
            policy.sources_allowed = [net.parse().unwrap()].into();
        });
        world.put_route(path, limited);
    }
    // What the client says of itself is not believed.
    let claim = "X-Forwarded-For: 192.0.2.1\r\n";
    assert!(
        world
            .ask(&get("a.example", "/in", ""))
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(
        world
            .ask(&get("a.example", "/out", claim))
            .await
            .starts_with("HTTP/1.1 403")
    );
}

#[tokio::test]
async fn denied_addresses_are_refused_whatever_admits_them() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    for (path, net) in [("/here", "127.0.0.1/32"), ("/elsewhere", "192.0.2.0/24")] {
        let limited = with_policy(route("a.example", path, "u"), |policy| {
            policy.sources_allowed = ["127.0.0.0/8".parse().unwrap()].into();
            policy.sources_denied = [net.parse().unwrap()].into();
        });
        world.put_route(path, limited);
    }
    let claim = "X-Forwarded-For: 127.0.0.9\r\n";
    let refused = world.ask(&get("a.example", "/here", claim)).await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let served = world.ask(&get("a.example", "/elsewhere", "")).await;
    assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    // Another spelling of a path is no way around.
    let closed = with_policy(route("a.example", "/a/closed", "u"), |policy| {
        policy.sources_denied = ["127.0.0.0/8".parse().unwrap()].into();
    });
    world.put_route("closed", closed);
    world.put_route("open", route("a.example", "/", "u"));
    for path in ["/a/closed", "/a//closed", "/a/%63losed"] {
        let refused = world.ask(&get("a.example", path, "")).await;
        assert!(refused.starts_with("HTTP/1.1 403"), "{path}: {refused}");
    }
}

#[tokio::test]
async fn preflights_are_answered_and_answers_name_their_origin() {
    let backend = Backend::answering(|_| {
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 0\r\n\r\n".to_owned()
    })
    .await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let answering = |forwards_unmatched| {
        with_policy(route("a.example", "/", "u"), |policy| {
            policy.cors = Some(Box::new(Cors {
                origins: ["https://b.example".into()].into(),
                methods: "GET, PUT".into(),
                headers_allowed: "X-A".into(),
                headers_exposed: "X-B".into(),
                credentials: true,
                age_max_s: 60,
                origin_patterns: Box::default(),
                forwards_unmatched,
                echoes_wildcards: false,
                exposes_in_preflights: false,
            }));
        })
    };
    world.put_route("r", answering(true));
    for (origin, count) in [("https://b.example", 0), ("https://c.example", 1)] {
        let preflight = format!(
            "OPTIONS / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nOrigin: {origin}\r\n\
             Access-Control-Request-Method: PUT\r\n\r\n"
        );
        let response = world.ask(&preflight).await;
        assert_eq!(backend.requests(), count, "{response}");
    }
    world.put_route("r", answering(false));
    let preflight = "OPTIONS / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\
                     Origin: https://b.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n";
    let response = world.ask(preflight).await;
    assert!(
        response.starts_with("HTTP/1.1 204 No Content\r\n"),
        "{response}"
    );
    for (name, value) in [
        ("access-control-allow-origin", "https://b.example"),
        ("access-control-allow-methods", "GET, PUT"),
        ("access-control-allow-headers", "X-A"),
        ("access-control-allow-credentials", "true"),
        ("access-control-max-age", "60"),
    ] {
        assert_eq!(header(&response, name), Some(value));
    }
    assert_eq!(backend.requests(), 1);
    for (origin, allowed) in [("https://b.example", true), ("https://c.example", false)] {
        let origin_field = format!("Origin: {origin}\r\n");
        let response = world.ask(&get("a.example", "/", &origin_field)).await;
        let found = header(&response, "access-control-allow-origin");
        assert_eq!(found, allowed.then_some(origin));
        assert_eq!(response.matches("ccess-").count(), 3 * usize::from(allowed));
    }
}

#[tokio::test]
async fn a_cookie_keeps_a_client_on_its_endpoint() {
    let (one, two) = (Backend::saying("one").await, Backend::saying("two").await);
    let mut world = World::start();
    world.put_upstream("u", &[one.address, two.address]);
    let sticky = with_policy(route("a.example", "/", "u"), |policy| {
        policy.affinity = Some(Box::new(Affinity {
            cookie: "stick".into(),
            path: "/".into(),
            age_max_s: 0,
            secure: false,
            ..Affinity::default()
        }));
    });
    world.put_route("r", sticky);
    let first = world.ask(&get("a.example", "/", "")).await;
    let cookie = header(&first, "set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    let body = first.rsplit("\r\n").next().unwrap();
    for _ in 0..20 {
        let cookie_field = format!("Cookie: a=b; {cookie}\r\n");
        let next = world.ask(&get("a.example", "/", &cookie_field)).await;
        assert!(next.ends_with(body), "{next}");
        assert_eq!(header(&next, "set-cookie"), None);
    }
}

#[tokio::test]
async fn a_field_keeps_a_client_on_its_endpoint_until_it_is_too_old() {
    let (one, two) = (Backend::saying("one").await, Backend::saying("two").await);
    let mut world = World::start();
    world.put_upstream("u", &[one.address, two.address]);
    let sticky = |absolute_timeout| {
        with_policy(route("a.example", "/", "u"), |policy| {
            policy.affinity = Some(Box::new(Affinity {
                cookie: "x-session".into(),
                in_header: true,
                absolute_timeout,
                ..Affinity::default()
            }));
        })
    };
    for absolute_timeout in [Duration::ZERO, Duration::from_secs(3_600)] {
        world.put_route("r", sticky(absolute_timeout));
        let first = world.ask(&get("a.example", "/", "")).await;
        assert_eq!(header(&first, "set-cookie"), None);
        let token = header(&first, "x-session").unwrap();
        let body = first.rsplit("\r\n").next().unwrap();
        for _ in 0..20 {
            let field = format!("X-Session: {token}\r\n");
            let next = world.ask(&get("a.example", "/", &field)).await;
            assert!(next.ends_with(body), "{next}");
            assert_eq!(header(&next, "x-session"), None, "{next}");
        }
        // Whatever else it says leads nowhere, and is replaced.
        for wrong in ["", "x", "0123456789abcdef", &token[..15]] {
            let field = format!("X-Session: {wrong}\r\n");
            let next = world.ask(&get("a.example", "/", &field)).await;
            assert!(header(&next, "x-session").is_some(), "{next}");
        }
    }
    let mark = Endpoint::new(one.address, TransportSettings::shared(None)).mark();
    let old = format!("X-Session: {mark:016x}-{:016x}\r\n", 1_000);
    let next = world.ask(&get("a.example", "/", &old)).await;
    assert!(header(&next, "x-session").is_some(), "{next}");
}

#[tokio::test]
async fn a_cookie_leads_on_or_stays_when_its_endpoint_fails() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = gone.local_addr().unwrap();
    drop(gone);
    let live = Backend::saying("live").await;
    for stays in [false, true] {
        let mut world = World::start();
        world.put_upstream("u", &[dead, live.address]);
        let sticky = with_policy(route("a.example", "/", "u"), |policy| {
            policy.affinity = Some(Box::new(Affinity {
                cookie: "stick".into(),
                path: "/".into(),
                stays_on_failure: stays,
                ..Affinity::default()
            }));
        });
        world.put_route("r", sticky);
        let mark = |address| Endpoint::new(address, TransportSettings::shared(None)).mark();
        let cookie = format!("Cookie: stick={:016x}\r\n", mark(dead));
        let response = world.ask(&get("a.example", "/", &cookie)).await;
        assert!(response.ends_with("live"), "{response}");
        let wanted = format!("stick={:016x}; Path=/; HttpOnly", mark(live.address));
        let found = header(&response, "set-cookie");
        assert_eq!(found, (!stays).then_some(&*wanted), "{response}");
        // Who has none gets one that leads to where it was served.
        let response = world.ask(&get("a.example", "/", "")).await;
        assert_eq!(header(&response, "set-cookie"), Some(&*wanted));
    }
}

#[tokio::test]
async fn redirects_and_fixed_answers_need_no_endpoint() {
    let mut world = World::start();
    for (path, action) in [
        (
            "/url",
            Action::Redirect(Arc::new(Redirect {
                status: 301,
                target: RedirectTarget::Url("https://b.example/x".into()),
            })),
        ),
        (
            "/path",
            Action::Redirect(Arc::new(Redirect {
                status: 302,
                target: RedirectTarget::Path("/app".into()),
            })),
        ),
        (
            "/fixed",
            Action::Respond(Box::new(Respond {
                status: 503,
                body: (*b"held").into(),
            })),
        ),
        ("/nobody", Action::Forward(Default::default())),
    ] {
        let mut made = route("a.example", path, "u");
        made.action = action;
        world.put_route(path, made);
    }
    for (path, status, location, body) in [
        ("/url", "301", Some("https://b.example/x"), ""),
        ("/path", "302", Some("/app"), ""),
        ("/fixed", "503", None, "held"),
        ("/nobody", "503", None, "route leads nowhere\nrequest id: "),
    ] {
        let response = world.ask(&get("a.example", path, "")).await;
        assert_eq!(&response[9..12], status, "{path}");
        assert_eq!(header(&response, "location"), location, "{path}");
        assert!(header(&response, "date").is_some());
        assert_eq!(header(&response, "server"), Some("myriad"));
        assert!(response.contains(&format!("\r\n\r\n{body}")), "{response}");
    }
}

#[tokio::test]
async fn requests_are_shared_by_weight() {
    let (old, new) = (Backend::saying("old").await, Backend::saying("new").await);
    let mut world = World::start();
    world.put_upstream("old", &[old.address]);
    world.put_upstream("new", &[new.address]);
    let mut shared = route("a.example", "/", "old");
    let share = |upstream: &str, weight| WeightedUpstream {
        upstream: upstream.into(),
        weight,
        headers: None,
        filters: None,
    };
    shared.action = Action::Forward([share("old", 80), share("new", 20)].into());
    world.put_route("r", shared);
    let mut client = world.client().await;
    for _ in 0..500 {
        client
            .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .await;
        client.response().await;
    }
    assert!((50..150).contains(&new.requests()), "{}", new.requests());
    assert_eq!(old.requests() + new.requests(), 500);
}

#[tokio::test]
async fn browsers_are_told_to_come_by_https_where_they_can() {
    let silent = Backend::saying("hello").await;
    let saying = Backend::answering(|_| {
        "HTTP/1.1 200 OK\r\nStrict-Transport-Security: max-age=0\r\n\
         Access-Control-Allow-Origin: *\r\nContent-Length: 0\r\n\r\n"
            .to_owned()
    })
    .await;
    let mut world = World::start();
    world.put_upstream("silent", &[silent.address]);
    world.put_upstream("saying", &[saying.address]);
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    world.put_domain("localhost", &["localhost"], TlsSettings::default());
    let told = |host: &str, path: &str, upstream: &str| {
        with_policy(route(host, path, upstream), |policy| {
            policy.hsts = "max-age=60".into();
        })
    };
    world.put_route("r", told("a.example", "/", "silent"));
    world.put_route("own", told("a.example", "/own", "saying"));
    world.put_route("local", told("localhost", "/", "silent"));
    let mut moved = told("a.example", "/moved", "silent");
    moved.action = Action::Redirect(Arc::new(Redirect {
        status: 301,
        target: RedirectTarget::Path("/".into()),
    }));
    world.put_route("moved", moved);
    for (host, path, wanted) in [
        ("a.example", "/", Some("max-age=60")),
        ("a.example", "/moved", Some("max-age=60")),
        ("a.example", "/own", Some("max-age=0")),
        ("localhost", "/", None),
    ] {
        let mut client = world.tls_client(host).await.unwrap();
        client.send(get(host, path, "")).await;
        let (response, _) = client.response().await;
        let found = header(&response, "strict-transport-security");
        assert_eq!(found, wanted, "{host}{path}: {response}");
        assert!(response.to_lowercase().matches("strict-").count() < 2);
        // It leaves alone what it has nothing to do with.
        let origin = header(&response, "access-control-allow-origin");
        assert_eq!(origin.is_some(), path == "/own", "{response}");
    }
    let response = world.ask(&get("a.example", "/", "")).await;
    assert_eq!(header(&response, "strict-transport-security"), None);
}

#[tokio::test]
async fn browsers_are_told_nothing_by_the_certificate_of_last_resort() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let bare = domain("bare.example", None, TlsSettings::default());
    world.put("bare", Value::Domain(Box::new(bare)));
    let default = certificate(&["*.example"]);
    world.put("default", Value::Certificate(Box::new(default)));
    for host in ["bare.example", "stranger.example"] {
        let told = with_policy(route(host, "/", "u"), |policy| {
            policy.hsts = "max-age=60".into();
        });
        world.put_route(host, told);
        let mut client = world.tls_client(host).await.unwrap();
        client.send(get(host, "/", "")).await;
        let (response, _) = client.response().await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert_eq!(header(&response, "strict-transport-security"), None);
    }
}
