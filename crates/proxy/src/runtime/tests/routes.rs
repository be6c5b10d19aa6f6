use std::sync::Arc;

use myriad_model::{
    Action, Draft, HeaderEdit, HeaderEdits, Kind, Label, Mirror, Origin, PathMatch, PathRewrite,
    Redirect, RedirectParts, RedirectPath, RedirectTarget, Respond, Rewrite, Route, Share, Source,
    Test, TlsSettings, ValueMatch, divide,
};
use tokio::sync::mpsc;

use super::world::{Backend, PATIENCE, World, header, route, with_policy};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example:80\r\nConnection: close\r\n\r\n")
}

/// A route that answers with a text.
fn saying(path: PathMatch, rank: u64, text: &str) -> Route {
    let mut made = route("a.example", "/", "u");
    made.path = path;
    made.rank = rank;
    made.action = Action::Respond(Box::new(Respond {
        status: 200,
        body: text.as_bytes().into(),
    }));
    made
}

fn value(source: Source, test: Test) -> Box<[ValueMatch]> {
    [ValueMatch {
        source,
        name: "".into(),
        test,
        invert: false,
    }]
    .into()
}

fn edit(remove: &str, set: (&str, &str), add: (&str, &str)) -> HeaderEdit {
    HeaderEdit {
        remove: [remove.into()].into(),
        set: [(set.0.into(), set.1.into())].into(),
        add: [(add.0.into(), add.1.into())].into(),
    }
}

#[tokio::test]
async fn starts_authorities_and_schemes_are_matched() {
    let mut world = World::start();
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let start = |text: &str| PathMatch::Start(text.into());
    let mut by_port = saying(start("/b"), 1, "port");
    by_port.conditions = value(Source::Authority, Test::Start("a.example:".into()));
    let mut by_scheme = saying(start("/b"), 2, "https");
    by_scheme.conditions = value(Source::Scheme, Test::Exact("https".into()));
    world.put_route("start", saying(start("/a"), 0, "start"));
    world.put_route("port", by_port);
    world.put_route("scheme", by_scheme);
    for (path, body) in [
        ("/ab", "start"),
        ("/b", "port"),
        ("/c", "not found\nrequest id: "),
    ] {
        let response = world.ask(&get(path)).await;
        assert!(response.contains(&format!("\r\n\r\n{body}")), "{response}");
    }
    let without_port = "GET /b HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    assert!(world.ask(without_port).await.starts_with("HTTP/1.1 404"));
    let mut client = world.tls_client("a.example").await.unwrap();
    client.send(without_port).await;
    assert_eq!(client.response().await.1, "https");
}

#[tokio::test]
async fn paths_and_authorities_are_rewritten() {
    let backend = Backend::echo().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let rewritten = |path: &str, rule: PathRewrite, authority: &str| {
        with_policy(route("a.example", path, "u"), |policy| {
            policy.rewrite = Some(Box::new(Rewrite {
                path: Some(rule),
                authority: authority.into(),
            }));
        })
    };
    let matched = PathRewrite::Matched("/".into());
    let substituted = PathRewrite::Substitution {
        regex: "/v([0-9])".into(),
        template: "/w$1".into(),
    };
    world.put_route("matched", rewritten("/a", matched, "b.example"));
    world.put_route("substituted", rewritten("/s", substituted, ""));
    let response = world.ask(&get("/a/x?y=z")).await;
    assert!(
        response.contains("\r\n\r\nGET /x?y=z HTTP/1.1\r\nhost: b.example\r\n"),
        "{response}"
    );
    assert!(response.contains("\r\nx-forwarded-host: a.example:80\r\n"));
    let response = world.ask(&get("/s/v1/v2?v=/v3")).await;
    assert!(
        response.contains("\r\n\r\nGET /s/w1/w2?v=/v3 HTTP/1.1\r\nhost: a.example:80\r\n"),
        "{response}"
    );
}

#[tokio::test]
async fn a_redirect_changes_parts_of_the_url() {
    let mut world = World::start();
    let mut redirected = route("a.example", "/a", "u");
    redirected.action = Action::Redirect(Arc::new(Redirect {
        status: 307,
        target: RedirectTarget::Parts(Box::new(RedirectParts {
            scheme: "https".into(),
            host: "b.example".into(),
            port: Some(8443),
            path: Some(RedirectPath::Matched("/x".into())),
            keeps_port: false,
        })),
    }));
    world.put_route("r", redirected);
    let response = world.ask(&get("/a/b?c")).await;
    assert!(response.starts_with("HTTP/1.1 307 "), "{response}");
    assert_eq!(
        header(&response, "location"),
        Some("https://b.example:8443/x/b?c")
    );
}

#[tokio::test]
async fn headers_are_edited_by_the_policy_and_by_the_share() {
    let backend = Backend::answering(|request| {
        let length = request.len();
        format!(
            "HTTP/1.1 200 OK\r\nServer: s\r\nX-Both: endpoint\r\nContent-Length: {length}\r\n\r\n\
             {request}"
        )
    })
    .await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let mut edited = with_policy(route("a.example", "/", "u"), |policy| {
        policy.headers = Some(Box::new(HeaderEdits {
            request: edit("x-gone", ("x-both", "policy"), ("x-real-ip", "more")),
            response: edit("server", ("x-both", "policy"), ("content-length", "1")),
        }));
    });
    if let Action::Forward(shares) = &mut edited.action {
        Arc::make_mut(shares)[0].headers = Some(Box::new(HeaderEdits {
            request: edit("content-length", ("x-both", "share"), ("x-new", "1")),
            response: edit("x-none", ("x-both", "share"), ("x-new", "2")),
        }));
    }
    world.put_route("r", edited);
    let request = "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nX-Gone: 1\r\n\
                   X-Both: client\r\nX-Kept: 1\r\nContent-Length: 4\r\n\r\nbody";
    let response = world.ask(request).await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    for (text, name, found) in [
        (body, "x-gone", None),
        (body, "x-both", Some("share")),
        (body, "x-kept", Some("1")),
        (body, "x-new", Some("1")),
        (body, "content-length", Some("4")),
        (head, "server", None),
        (head, "x-both", Some("policy")),
        (head, "x-new", Some("2")),
    ] {
        assert_eq!(header(text, name), found, "{name} of {text}");
        assert!(text.to_lowercase().matches(&format!("{name}: ")).count() <= 1);
    }
    assert_eq!(body.matches("x-real-ip: ").count(), 2);
    assert_eq!(head.to_lowercase().matches("content-length").count(), 1);
    assert!(body.ends_with("\r\n\r\nbody"), "{body}");
}

#[tokio::test]
async fn the_answer_of_a_route_has_its_headers_and_its_bytes() {
    let mut world = World::start();
    let mut fixed = saying(PathMatch::Prefix("/".into()), 0, "");
    fixed.action = Action::Respond(Box::new(Respond {
        status: 200,
        body: (*b"{}").into(),
    }));
    let fixed = with_policy(fixed, |policy| {
        policy.headers = Some(Box::new(HeaderEdits {
            request: HeaderEdit::default(),
            response: edit("date", ("content-type", "application/json"), ("x-a", "1")),
        }));
    });
    world.put_route("r", fixed);
    let response = world.ask(&get("/")).await;
    assert_eq!(header(&response, "content-type"), Some("application/json"));
    assert_eq!(header(&response, "x-a"), Some("1"));
    assert_eq!(header(&response, "date"), None);
    assert!(response.ends_with("\r\n\r\n{}"), "{response}");
}

/// An endpoint that tells of every request, and answers none of them.
async fn listener_in() -> (Backend, mpsc::Receiver<String>) {
    let (sender, receiver) = mpsc::channel(8);
    let backend = Backend::answering(move |request| {
        sender.try_send(request.to_owned()).unwrap();
        String::new()
    })
    .await;
    (backend, receiver)
}

#[tokio::test]
async fn copies_are_sent_beside_the_request_and_never_waited_for() {
    let backend = Backend::saying("hello").await;
    let (copied, mut copies) = listener_in().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_upstream("copy", &[copied.address]);
    let mirrored = with_policy(route("a.example", "/", "u"), |policy| {
        let mirror = |upstream: &str, share| Mirror {
            upstream: upstream.into(),
            share,
            authority: Box::default(),
            omits_body: false,
            keeps_authority: false,
        };
        policy.mirrors = [
            mirror("copy", Share::ALL),
            mirror("copy", Share::from_ppm(0).unwrap()),
        ]
        .into();
    });
    world.put_route("r", mirrored);
    let mut client = world.client().await;
    for body in ["", "first ", "x"] {
        let head = "POST /p HTTP/1.1\r\nHost: a.example:80\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = match body {
            "" => String::new(),
            body => format!("{:x}\r\n{body}\r\n", body.len()),
        };
        let request = format!("{head}{chunk}0\r\n\r\n");
        client.send(request).await;
        assert_eq!(client.response().await.1, "hello");
        let copy = tokio::time::timeout(PATIENCE, copies.recv());
        let copy = copy.await.unwrap().unwrap();
        assert!(
            copy.starts_with("POST /p HTTP/1.1\r\nhost: a.example-shadow:80\r\n"),
            "{copy}"
        );
        assert!(copy.ends_with(&format!("\r\n\r\n{body}")), "{copy}");
    }
    let long = "x".repeat(200_000);
    client
        .send(format!(
            "PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 200000\r\n\r\n{long}"
        ))
        .await;
    assert_eq!(client.response().await.1, "hello");
    for (event, count) in [("sent", 3), ("dropped", 1)] {
        let line = format!("myriad_mirrored_requests_total{{event=\"{event}\"}} {count}\n");
        world.counts(&line).await;
    }
    assert_eq!(backend.requests(), 4);
    assert!(copies.try_recv().is_err());
}

#[tokio::test]
async fn hosts_that_headers_set_are_the_authority() {
    let backend = Backend::echo().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let set = |host: &str| HeaderEdits {
        request: edit("x-none", ("host", host), ("host", "never.example")),
        response: HeaderEdit::default(),
    };
    let mut edited = route("a.example", "/", "u");
    let mut policy = myriad_model::Policy {
        headers: Some(Box::new(set("policy.example"))),
        ..myriad_model::Policy::default()
    };
    edited.policy = Arc::new(policy.clone());
    world.put_route("policy", edited.clone());
    policy.rewrite = Some(Box::new(Rewrite {
        path: None,
        authority: "rewrite.example".into(),
    }));
    edited.path = PathMatch::Prefix("/rewrite".into());
    edited.rank -= 1;
    edited.policy = Arc::new(policy);
    world.put_route("rewrite", edited.clone());
    edited.path = PathMatch::Prefix("/share".into());
    if let Action::Forward(shares) = &mut edited.action {
        Arc::make_mut(shares)[0].headers = Some(Box::new(set("share.example")));
    }
    world.put_route("share", edited);
    for (path, host) in [
        ("/x", "policy.example"),
        ("/rewrite", "rewrite.example"),
        ("/share", "share.example"),
    ] {
        let response = world.ask(&get(path)).await;
        let head = format!("\r\n\r\nGET {path} HTTP/1.1\r\nhost: {host}\r\n");
        assert!(response.contains(&head), "{response}");
        assert_eq!(response.matches("\r\nhost: ").count(), 1, "{response}");
    }
}

/// The attack: an ordinary Ingress made one anonymous request take gigabytes and seconds.
#[tokio::test]
async fn regexes_that_take_too_many_steps_fail_their_request_and_no_other() {
    let mut world = World::start();
    for number in 0..64 {
        let pattern = format!("/(a{{1,200}}){{1,3}}b{number}");
        let path = PathMatch::Regex(pattern.into());
        world.put_route(&format!("r{number}"), saying(path, number, "hostile"));
    }
    world.put_route(
        "plain",
        saying(PathMatch::Prefix("/plain".into()), 100, "plain"),
    );
    let hostile = get(&format!("/{}", "a".repeat(4_000)));
    for _ in 0..3 {
        let response = world.ask(&hostile).await;
        assert!(response.starts_with("HTTP/1.1 503"), "{response}");
        assert!(response.contains("too much to match\n"), "{response}");
        assert!(world.ask(&get("/plain")).await.ends_with("plain"));
        assert!(world.ask(&get("/aab7")).await.ends_with("hostile"));
    }
    world.counts("reason=\"regex_budget\"} 3").await;
}

/// A condition that must not hold is not one that was not looked at.
#[tokio::test]
async fn a_condition_that_takes_too_many_steps_closes() {
    let mut world = World::start();
    let mut guarded = saying(PathMatch::Prefix("/".into()), 0, "open");
    guarded.conditions = [ValueMatch {
        source: Source::Header,
        name: "x-a".into(),
        test: Test::Regex("(a{1,200}){1,3}b".into()),
        invert: true,
    }]
    .into();
    world.put_route("guarded", guarded);
    let ask = |value: &str| {
        format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-A: {value}\r\nConnection: close\r\n\r\n")
    };
    assert!(world.ask(&ask("c")).await.ends_with("open"));
    assert!(world.ask(&ask("aab")).await.starts_with("HTTP/1.1 404"));
    let hostile = "a".repeat(4_000);
    assert!(world.ask(&ask(&hostile)).await.starts_with("HTTP/1.1 503"));
}

/// The routes of an older controller come one by one, and give way to blocks.
#[tokio::test]
async fn blocks_take_the_place_of_single_routes_and_the_first_row_that_matches_holds() {
    let mut world = World::start();
    let start = |text: &str| PathMatch::Start(text.into());
    let single = "shop/web/a.example/0.0";
    world.put_route(single, saying(start("/"), 7, "single"));
    let draft = |rule: u32, path: PathMatch, text: &str| Draft {
        origin: Origin::settings(),
        label: Label::Rule(Box::default()),
        rule,
        matched: 0,
        route: saying(path, 5, text),
    };
    let exact = |number: u32| PathMatch::Exact(format!("/{number}").into());
    let mut drafts: Vec<Draft> = (0..200)
        .map(|number| draft(number, exact(number), &number.to_string()))
        .collect();
    drafts.push(draft(200, start("/1"), "behind"));
    let blocks = divide("shop/web/a.example/", &Origin::settings(), drafts);
    assert!(blocks.len() > 1);
    // In whatever order they come.
    for (name, resource) in blocks.into_iter().rev() {
        world.put(&name, resource.value);
    }
    for (path, body) in [
        ("/0", "0"),
        ("/150", "150"),
        ("/199", "199"),
        ("/1999", "behind"),
        ("/x", "single"),
    ] {
        let response = world.ask(&get(path)).await;
        assert!(
            response.ends_with(&format!("\r\n\r\n{body}")),
            "{path}: {response}"
        );
    }
    world.remove(Kind::Route, single);
    assert!(world.ask(&get("/x")).await.starts_with("HTTP/1.1 404"));
}
