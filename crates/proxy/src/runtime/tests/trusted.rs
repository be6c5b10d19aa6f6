//! Proxies in front, and what they tell of the client.

use std::time::Duration;

use myriad_model::{HeaderEdit, HeaderEdits, RateLimit, TlsRedirect, TlsSettings, Underscores};

use super::world::{Backend, World, header, route, with_policy};
use crate::Settings;

fn get(path: &str, fields: &[u8]) -> Vec<u8> {
    let start = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n");
    [start.as_bytes(), fields, b"\r\n"].concat()
}

/// A proxy behind a balancer at 127.0.0.1, which is in the networks of inside that are allowed.
async fn world(trusted_hops: usize) -> World {
    let backend = Backend::echo().await;
    let mut world = World::start_with(Settings {
        workers: 1,
        trusted_hops,
        ..Settings::default()
    });
    world.put_upstream("u", &[backend.address]);
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let inside = with_policy(route("a.example", "/inside", "u"), |policy| {
        policy.sources_allowed = ["127.0.0.0/8", "10.0.0.0/8"]
            .map(|net| net.parse().unwrap())
            .into();
    });
    world.put_route("inside", inside);
    let limited = with_policy(route("a.example", "/limited", "u"), |policy| {
        policy.rate_limits = [RateLimit {
            name: "Ingress/ns/a".into(),
            requests: 1,
            interval: Duration::from_secs(3_600),
            burst: 0,
            is_per_client: true,
            exempt: ["127.0.0.0/8".parse().unwrap()].into(),
            is_at_once: false,
        }]
        .into();
    });
    world.put_route("limited", limited);
    let redirected = with_policy(route("a.example", "/", "u"), |policy| {
        policy.tls_redirect = Some(TlsRedirect {
            status: 308,
            port: 443,
            except_prefix: "".into(),
        });
    });
    world.put_route("redirected", redirected);
    world
}

async fn ask(world: &World, path: &str, fields: &[u8]) -> String {
    let mut client = world.client().await;
    client.send(get(path, fields)).await;
    client.read_to_end().await
}

/// The value of a field as the endpoint got it.
fn told<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    header(answer.split_once("\r\n\r\n")?.1, name)
}

#[tokio::test]
async fn nothing_that_a_client_adds_makes_it_the_balancer_in_front() {
    let world = world(1).await;
    for left in [
        &b"\xff"[..],
        b"unknown",
        b"203.0.113.5:1234",
        b"10.0.0.1",
        b"",
    ] {
        // As nginx sends it, and as HAProxy does.
        let joined = [b"X-Forwarded-For: ", left, b", 203.0.113.5\r\n"].concat();
        let apart = [
            b"X-Forwarded-For: ",
            left,
            b"\r\nX-Forwarded-For: 203.0.113.5\r\n",
        ]
        .concat();
        for fields in [joined, apart] {
            let answer = ask(&world, "/inside", &fields).await;
            let told = fields.escape_ascii();
            assert!(answer.starts_with("HTTP/1.1 403"), "{told}: {answer}");
        }
    }
    for entry in [
        &b"\xff"[..],
        b"unknown",
        b"",
        b"127.0.0.1.",
        b"10.0.0.1 10.0.0.1",
    ] {
        let fields = [b"X-Forwarded-For: 10.0.0.1, ", entry, b"\r\n"].concat();
        let answer = ask(&world, "/inside", &fields).await;
        let told = fields.escape_ascii();
        assert!(answer.starts_with("HTTP/1.1 403"), "{told}: {answer}");
    }
    for fields in [
        &b"X-Forwarded-For: \xff, 10.0.0.1\r\n"[..],
        b"X-Forwarded-For: \xff\r\nX-Forwarded-For: 10.0.0.1:4711\r\n",
        b"",
    ] {
        let answer = ask(&world, "/inside", fields).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn clients_that_nobody_can_tell_are_one_client_for_limits() {
    let world = world(1).await;
    let mut served = 0;
    for entry in [&b"\xff"[..], b"unknown", b"a", b"b", b"\xfe"] {
        let fields = [b"X-Forwarded-For: ", entry, b"\r\n"].concat();
        let answer = ask(&world, "/limited", &fields).await;
        served += usize::from(answer.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(served, 1);
}

#[tokio::test]
async fn the_endpoint_is_told_of_the_client_as_it_was_understood() {
    let world = world(1).await;
    let https = "X-Forwarded-Proto: https\r\nX-Forwarded-For: ";
    for (chain, client) in [
        ("203.0.113.5:99", "203.0.113.5"),
        ("[2001:db8::1]:99", "2001:db8::1"),
        ("unknown", "unknown"),
    ] {
        let fields = format!("{https}{chain}\r\n");
        let answer = ask(&world, "/", fields.as_bytes()).await;
        assert_eq!(told(&answer, "x-real-ip"), Some(client), "{answer}");
    }
}

#[tokio::test]
async fn a_client_of_https_at_a_trusted_balancer_is_not_redirected() {
    let own = "https://a.example/x";
    for (hops, fields, redirected) in [
        (0, "X-Forwarded-Proto: https\r\n", true),
        (1, "", true),
        (1, "X-Forwarded-Proto: http\r\n", true),
        (1, "X-Forwarded-Proto: https, http\r\n", true),
        (
            1,
            "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n",
            true,
        ),
        (1, "X-Forwarded-Proto: HTTPS\r\n", false),
        (1, "X-Forwarded-Proto: http, https\r\n", false),
        (2, "X-Forwarded-Proto: https, http\r\n", false),
        (2, "X-Forwarded-Proto: https\r\n", false),
    ] {
        let world = world(hops).await;
        let answer = ask(&world, "/x", fields.as_bytes()).await;
        let case = format!("{hops} {fields}: {answer}");
        if redirected {
            assert_eq!(header(&answer, "location"), Some(own), "{case}");
        } else {
            assert!(answer.starts_with("HTTP/1.1 200"), "{case}");
            assert_eq!(told(&answer, "x-forwarded-proto"), Some("https"), "{case}");
        }
    }
    // The balancer speaks TLS with the proxy, and its client does not.
    let world = world(1).await;
    let mut client = world.tls_client("a.example").await.unwrap();
    client.send(get("/x", b"X-Forwarded-Proto: http\r\n")).await;
    let (head, _) = client.response().await;
    assert_eq!(header(&head, "location"), Some(own));
}

#[tokio::test]
async fn lengths_with_a_sign_bit_and_waits_for_nothing_are_not_passed_on() {
    let world = world(0).await;
    for length in ["9223372036854775808", "18446744073709551615"] {
        let fields = format!("Content-Length: {length}\r\n");
        let answer = ask(&world, "/inside", fields.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    let answer = ask(&world, "/inside", b"Expect: 100-continue\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(told(&answer, "expect"), None, "{answer}");
}

#[tokio::test]
async fn only_who_is_trusted_tells_endpoints_how_a_request_came() {
    const CLAIMS: [&str; 10] = [
        "x-scheme",
        "x-forwarded-scheme",
        "x-forwarded-ssl",
        "front-end-https",
        "x-original-forwarded-for",
        "x-envoy-external-address",
        "x-envoy-internal",
        "x-envoy-original-path",
        "ssl-client-verify",
        "ssl-client-subject-dn",
    ];
    const OTHERS: [&str; 2] = ["x-forwarded-prefix", "x-forwarded-server"];
    let sent = CLAIMS.iter().chain(&OTHERS);
    let fields: String = sent.map(|name| format!("{name}: on\r\n")).collect();
    for (hops, claimed) in [(0, None), (1, Some("on"))] {
        let world = world(hops).await;
        let answer = ask(&world, "/inside", fields.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        for name in CLAIMS {
            assert_eq!(told(&answer, name), claimed, "{hops} {name}: {answer}");
        }
        for name in OTHERS {
            assert_eq!(told(&answer, name), Some("on"), "{hops} {name}: {answer}");
        }
    }
}

/// Asks with each of these fields, and tells which reached the endpoint.
async fn passed(rule: Underscores) -> String {
    let backend = Backend::echo().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let edits = HeaderEdits {
        request: HeaderEdit {
            set: [("x-group".into(), "staff".into())].into(),
            remove: ["x-internal".into()].into(),
            add: Box::default(),
        },
        response: HeaderEdit::default(),
    };
    let ruled = with_policy(route("a.example", "/", "u"), |policy| {
        policy.underscores = rule;
        policy.headers = Some(Box::new(edits));
    });
    world.put_route("r", ruled);
    let sent = [
        "X_Forwarded_For",
        "x-real_ip",
        "X_Forwarded_Client_Cert",
        "Transfer_Encoding",
        "Content_Length",
        "X_Request_Id",
        "X_Group",
        "x_internal",
        "x_own",
        "X.Forwarded.For",
        "Content.Length",
        "x~group",
        "x.own",
    ];
    let fields: String = sent.iter().map(|name| format!("{name}: eve\r\n")).collect();
    let answer = ask(&world, "/", fields.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(told(&answer, "x-group"), Some("staff"), "{answer}");
    let passed = sent.iter().filter(|name| told(&answer, name).is_some());
    let passed: Vec<&str> = passed.copied().collect();
    let dropped = match rule {
        Underscores::Colliding => 8,
        Underscores::Dropped => 13,
        Underscores::Passed => 0,
    };
    let line = format!("header_fields_dropped_total{{reason=\"underscore\"}} {dropped}\n");
    world.counts(&line).await;
    passed.join(" ")
}

#[tokio::test]
async fn underscores_stand_for_no_field_that_the_proxy_answers_for() {
    // An edit of the route has the last word on what it sets and removes, whatever passes.
    assert_eq!(passed(Underscores::Colliding).await, "x_own x.own");
    assert_eq!(passed(Underscores::Dropped).await, "");
    assert_eq!(
        passed(Underscores::Passed).await,
        "X_Forwarded_For x-real_ip X_Forwarded_Client_Cert Transfer_Encoding Content_Length \
         X_Request_Id x_own X.Forwarded.For Content.Length x.own"
    );
}
