//! Providers that routes have asked whether requests may pass.

use myriad_model::{
    AccessAction, CheckProtocol, Cors, Endpoint, Endpoints, HttpCheck, Kind, Mirror, NameMatch,
    PathReading, Policy, Protocol, Provider, Route, Share, Source, Test, Upstream, Value,
    ValueMatch,
};
use prost::Message as _;
use tokio::sync::mpsc;

use super::checks::{access_policy_by, answer_call, over_http};
use super::endpoints::{Streams, put};
use super::paths::SPELLINGS;
use super::world::{Backend, PATIENCE, World, header, route, with_policy};
use crate::limits::{Limits, PathRule};
use crate::policy::check::envoy;

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n")
}

fn guarded(path: &str, provider: Provider, further: impl FnOnce(&mut Policy)) -> Route {
    with_policy(route("a.example", path, "u"), |policy| {
        policy.authorizer = Some(Box::new(provider));
        further(policy);
    })
}

/// Lets pass who has `x-let-in: yes`, by any name.
async fn service() -> Backend {
    Backend::answering(|told| match told.contains("x-let-in: yes") {
        true => "HTTP/1.1 200 OK\r\nX-User: eve\r\nContent-Length: 0\r\n\r\n".into(),
        false => "HTTP/1.1 401 No\r\nX-Why: no\r\nContent-Length: 2\r\n\r\nno".into(),
    })
    .await
}

async fn world() -> (World, Backend, Backend) {
    let (backend, service) = (Backend::echo().await, service().await);
    let mut world = World::limited(Limits {
        paths: PathRule::Dialect,
        ..Limits::default()
    });
    world.put_upstream("u", &[backend.address]);
    world.put_upstream("check", &[service.address]);
    (world, backend, service)
}

#[tokio::test]
async fn a_provider_of_a_route_is_asked_of_its_requests_alone() {
    let (mut world, backend, service) = world().await;
    world.put_route("closed", guarded("/closed", over_http(), |_| {}));
    world.put_route("open", route("a.example", "/", "u"));
    let response = world.ask(&get("/", "")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(service.requests(), 0);
    let response = world.ask(&get("/closed", "X-User: forged\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 401"), "{response}");
    assert_eq!(header(&response, "x-why"), Some("no"));
    assert_eq!((backend.requests(), service.requests()), (1, 1));
    let passed = get("/closed", "X-Let-In: yes\r\nX-User: forged\r\n");
    let response = world.ask(&passed).await;
    assert!(response.contains("\r\nx-user: eve\r\n"), "{response}");
    assert!(!response.contains("forged"), "{response}");
    let too_long = "POST /closed HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\
                    X-Let-In: yes\r\nContent-Length: 9\r\n\r\n123456789";
    let response = world.ask(too_long).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    assert_eq!((backend.requests(), service.requests()), (2, 2));
    // Nobody passes where nobody can be asked.
    world.remove(Kind::Upstream, "check");
    let response = world.ask(&passed).await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    assert_eq!(backend.requests(), 2);
}

#[tokio::test]
async fn all_fields_of_an_answer_reach_the_endpoint_where_any_may() {
    let (mut world, _backend, _service) = world().await;
    let any = HttpCheck {
        request: [NameMatch::Exact("x-let-in".into())].into(),
        upstream_on_allow: [NameMatch::Any].into(),
        ..HttpCheck::default()
    };
    let provider = Provider {
        protocol: CheckProtocol::Http(Box::new(any)),
        body: None,
        ..over_http()
    };
    world.put_route("closed", guarded("/", provider, |_| {}));
    let response = world.ask(&get("/", "X-Let-In: yes\r\n")).await;
    let (_, echoed) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(header(echoed, "x-user"), Some("eve"), "{echoed}");
    // What says how a message is sent is of each message alone.
    assert_eq!(header(echoed, "content-length"), None, "{echoed}");
}

/// An endpoint that was lent to a route believes what the proxy says of clients, and not what
/// whoever writes the route has a server of his own say.
#[tokio::test]
async fn endpoints_of_another_namespace_are_told_of_the_client_by_the_proxy_alone() {
    for (namespace, is_told) in [("ns", true), ("other", false)] {
        let backend = Backend::echo().await;
        let service = Backend::answering(|_| {
            "HTTP/1.1 200 OK\r\nX-User: eve\r\nX-Real-IP: 9.9.9.9\r\nX_Forwarded_For: 9.9.9.9\r\n\
             X-Forwarded-Client-Cert: Hash=9.9.9.9\r\nContent-Length: 0\r\n\r\n"
                .into()
        })
        .await;
        let (mut world, ..) = world().await;
        world.put_upstream("u", &[backend.address]);
        world.put_upstream("check", &[service.address]);
        let any = HttpCheck {
            upstream_on_allow: [NameMatch::Any].into(),
            ..HttpCheck::default()
        };
        let provider = Provider {
            protocol: CheckProtocol::Http(Box::new(any)),
            body: None,
            ..over_http()
        };
        let closed = guarded("/", provider, |_| {});
        world.put_all_of(namespace, vec![("closed", Value::Route(Box::new(closed)))]);
        let response = world.ask(&get("/", "")).await;
        let (_, echoed) = response.split_once("\r\n\r\n").unwrap();
        assert_eq!(header(echoed, "x-user"), Some("eve"), "{echoed}");
        assert_eq!(echoed.contains("9.9.9.9"), is_told, "{echoed}");
        let own = header(echoed, "x-real-ip");
        assert_eq!(own == Some("9.9.9.9"), is_told, "{echoed}");
        assert!(own.is_some(), "{echoed}");
    }
}

/// A service that names a user and an address of each client, and a provider whose fields all
/// reach the endpoint.
async fn naming() -> (Backend, Provider) {
    let service = Backend::answering(|_| {
        "HTTP/1.1 200 OK\r\nX-User: eve\r\nX-Real-IP: 9.9.9.9\r\nContent-Length: 0\r\n\r\n".into()
    })
    .await;
    let any = HttpCheck {
        upstream_on_allow: [NameMatch::Any].into(),
        ..HttpCheck::default()
    };
    let provider = Provider {
        protocol: CheckProtocol::Http(Box::new(any)),
        ..over_http()
    };
    (service, provider)
}

/// They judge a request once more when its provider has answered.
#[tokio::test]
async fn what_the_provider_of_a_route_says_of_clients_is_nothing_to_policies() {
    let (service, provider) = naming().await;
    let (mut world, ..) = world().await;
    world.put_upstream("check", &[service.address]);
    world.put_route("r", guarded("/", provider, |_| {}));
    let deny = |name, value| access_policy_by(AccessAction::Deny, name, value);
    world.put("deny", deny("x-real-ip", "9.9.9.9"));
    let response = world.ask(&get("/", "")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(response.contains("x-real-ip: 9.9.9.9\r\n"), "{response}");
    world.put("deny", deny("x-user", "eve"));
    let response = world.ask(&get("/", "")).await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
}

/// The head is written anew for the route that the request takes then, which may be another one.
#[tokio::test]
async fn what_the_provider_of_a_route_says_of_clients_stays_where_a_policy_reroutes() {
    let (service, provider) = naming().await;
    let judge = Backend::answering(|_| {
        "HTTP/1.1 200 OK\r\nX-Tier: gold\r\nContent-Length: 0\r\n\r\n".into()
    })
    .await;
    let of_policy = Provider {
        upstream: "judge".into(),
        protocol: CheckProtocol::Http(Box::new(HttpCheck {
            upstream_on_allow: [NameMatch::Exact("x-tier".into())].into(),
            ..HttpCheck::default()
        })),
        reroutes: true,
        ..over_http()
    };
    let cases = [
        ("ns", false, true),
        ("other", false, false),
        ("ns", true, false),
    ];
    for (namespace, is_led_away, is_told) in cases {
        let (mut world, ..) = world().await;
        world.put_upstream("check", &[service.address]);
        world.put_upstream("judge", &[judge.address]);
        world.put("p", Value::Provider(Box::new(of_policy.clone())));
        let custom = AccessAction::Custom("p".into());
        world.put("ask", access_policy_by(custom, "x-ask", "yes"));
        let closed = guarded("/", provider.clone(), |_| {});
        world.put_all_of(namespace, vec![("r", Value::Route(Box::new(closed)))]);
        if is_led_away {
            let mut gold = route("a.example", "/", "u");
            gold.conditions = [ValueMatch {
                source: Source::Header,
                name: "x-tier".into(),
                test: Test::Exact("gold".into()),
                invert: false,
            }]
            .into();
            world.put_route("gold", gold);
        }
        let response = world.ask(&get("/", "X-Ask: yes\r\n")).await;
        let (_, echoed) = response.split_once("\r\n\r\n").unwrap();
        let echoed = echoed.to_ascii_lowercase();
        for field in ["x-user: eve\r\n", "x-tier: gold\r\n", "x-real-ip: "] {
            assert_eq!(echoed.matches(field).count(), 1, "{echoed}");
        }
        let has_own = echoed.contains("x-real-ip: 9.9.9.9\r\n");
        assert_eq!(has_own, is_told, "{namespace}: {echoed}");
    }
}

/// A copy is of the request as its provider has changed it, but for what endpoints that were lent
/// are told of clients.
#[tokio::test]
async fn copies_have_what_a_provider_says_once_and_of_clients_where_they_are_their_own() {
    let (service, provider) = naming().await;
    for (namespace, is_told) in [("ns", true), ("other", false)] {
        let (sender, mut copies) = mpsc::channel(8);
        let copied = Backend::answering(move |request| {
            sender.try_send(request.to_owned()).unwrap();
            String::new()
        })
        .await;
        let (mut world, ..) = world().await;
        world.put_upstream("check", &[service.address]);
        let upstream = Upstream::plain(Protocol::Http1);
        let endpoints = Endpoints::new([Endpoint::even(copied.address)].into());
        let of_copy = vec![
            ("copy", Value::Upstream(Box::new(upstream))),
            ("copy", Value::Endpoints(Box::new(endpoints))),
        ];
        world.put_all_of(namespace, of_copy);
        let mirrored = guarded("/", provider.clone(), |policy| {
            policy.mirrors = [Mirror {
                upstream: "copy".into(),
                share: Share::ALL,
                authority: Box::default(),
                omits_body: false,
                keeps_authority: true,
            }]
            .into();
        });
        world.put_route("r", mirrored);
        let post = "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\
                    Content-Length: 3\r\n\r\nabc";
        let response = world.ask(post).await;
        let (_, echoed) = response.split_once("\r\n\r\n").unwrap();
        let copy = tokio::time::timeout(PATIENCE, copies.recv()).await;
        let copy = copy.unwrap().unwrap();
        for told in [echoed, copy.as_str()] {
            assert_eq!(told.matches("x-user: eve\r\n").count(), 1, "{told}");
            assert_eq!(told.contains("9.9.9.9"), is_told, "{told}");
            assert_eq!(told.matches("x-real-ip: ").count(), 1, "{told}");
        }
        assert!(copy.ends_with("\r\n\r\nabc"), "{copy}");
    }
}

#[tokio::test]
async fn preflights_are_answered_before_anybody_is_asked() {
    let (mut world, backend, service) = world().await;
    let closed = guarded("/", over_http(), |policy| {
        policy.cors = Some(Box::new(Cors {
            origins: ["https://own.example".into()].into(),
            methods: "GET".into(),
            ..Cors::default()
        }));
    });
    world.put_route("closed", closed);
    let preflight = "OPTIONS / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\
                     Origin: https://own.example\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    let response = world.ask(preflight).await;
    assert!(response.starts_with("HTTP/1.1 204"), "{response}");
    assert_eq!((backend.requests(), service.requests()), (0, 0));
    // The page that asked sees why it was refused.
    let origin = "Origin: https://own.example\r\n";
    let response = world.ask(&get("/", origin)).await;
    assert!(response.starts_with("HTTP/1.1 401"), "{response}");
    let allowed = header(&response, "access-control-allow-origin");
    assert_eq!(allowed, Some("https://own.example"), "{response}");
}

/// Endpoints may read a path as one of a route that has somebody asked.
#[tokio::test]
async fn no_spelling_of_a_path_evades_the_provider_of_its_route() {
    let (mut world, backend, service) = world().await;
    let decoded = |policy: &mut Policy| policy.path_reading = PathReading::Decoded;
    world.put_route("closed", guarded("/admin", over_http(), decoded));
    let open = with_policy(route("a.example", "/", "u"), decoded);
    world.put_route("open", open);
    for path in SPELLINGS {
        let before = service.requests();
        let response = world.ask(&get(path, "")).await;
        let status = &response[9..12];
        let is_asked = service.requests() > before;
        let is_refused = ["400", "403"].contains(&status);
        assert!(
            status == "401" && is_asked || is_refused,
            "{path}: {response}"
        );
    }
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn a_provider_over_grpc_is_told_the_fields_that_it_is_to_be_told() {
    let (sender, mut told) = mpsc::channel(8);
    let check = Streams::serving(move |_, request, mut respond| {
        let sender = sender.clone();
        async move {
            let mut body = request.into_body();
            let mut bytes = Vec::new();
            while let Some(data) = body.data().await {
                bytes.extend_from_slice(&data.unwrap());
            }
            let asked = envoy::CheckRequest::decode(&bytes[5..]).unwrap();
            let http = asked.attributes.unwrap().request.unwrap().http.unwrap();
            let names: Vec<String> = http.headers.into_keys().collect();
            sender.try_send(names).unwrap();
            let answer = envoy::CheckResponse {
                status: Some(envoy::RpcStatus { code: 0 }),
                http_response: None,
            };
            let answer = answer.encode_to_vec();
            let framed = [&[0][..], &(answer.len() as u32).to_be_bytes(), &answer].concat();
            answer_call(&mut respond, framed, "0");
        }
    })
    .await;
    let (mut world, _backend, _service) = world().await;
    put(&mut world, "check", check.address);
    let cases: [(&[&str], [bool; 2]); 2] = [(&[], [true, true]), (&["x-one"], [true, false])];
    for (wanted, is_told) in cases {
        let provider = Provider {
            protocol: CheckProtocol::Grpc,
            body: None,
            told: wanted
                .iter()
                .map(|name| NameMatch::Exact((*name).into()))
                .collect(),
            ..over_http()
        };
        world.put_route("r", guarded("/", provider, |_| {}));
        let response = world.ask(&get("/", "X-One: 1\r\nX-Two: 2\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let names = told.recv().await.unwrap();
        let has = |name: &str| names.iter().any(|it| it == name);
        assert_eq!([has("x-one"), has("x-two")], is_told, "{names:?}");
        assert!(has(":path") && has(":method"), "{names:?}");
    }
}

/// A service whose calls say yes and then fail has not said yes.
#[tokio::test]
async fn a_call_that_fails_behind_its_message_lets_nobody_pass() {
    for (ended, status) in [("0", "200"), ("13", "403")] {
        let check = Streams::serving(move |_, request, mut respond| async move {
            let mut body = request.into_body();
            while let Some(data) = body.data().await {
                data.unwrap();
            }
            let answer = envoy::CheckResponse {
                status: Some(envoy::RpcStatus { code: 0 }),
                http_response: None,
            };
            let answer = answer.encode_to_vec();
            let framed = [&[0][..], &(answer.len() as u32).to_be_bytes(), &answer].concat();
            answer_call(&mut respond, framed, ended);
        })
        .await;
        let (mut world, backend, _service) = world().await;
        put(&mut world, "check", check.address);
        let provider = Provider {
            protocol: CheckProtocol::Grpc,
            body: None,
            ..over_http()
        };
        world.put_route("r", guarded("/", provider, |_| {}));
        let response = world.ask(&get("/", "")).await;
        assert_eq!(&response[9..12], status, "{response}");
        assert_eq!(backend.requests(), usize::from(ended == "0"));
    }
}

/// A service that reads the first field alone knows all cookies, and so does the endpoint.
#[tokio::test]
async fn cookies_of_several_fields_are_one_to_providers_and_endpoints() {
    let service = Backend::answering(|told| match header(told, "cookie") {
        Some("a=1; session=x") => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into(),
        _ => "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".into(),
    })
    .await;
    let (mut world, ..) = world().await;
    world.put_upstream("check", &[service.address]);
    let telling = HttpCheck {
        request: [NameMatch::Exact("cookie".into())].into(),
        ..HttpCheck::default()
    };
    let provider = Provider {
        protocol: CheckProtocol::Http(Box::new(telling)),
        ..over_http()
    };
    world.put_route("r", guarded("/", provider, |_| {}));
    let several = "Cookie: a=1\r\nX-Other: 1\r\nCookie: session=x\r\n";
    let response = world.ask(&get("/", several)).await;
    let (head, echoed) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{response}");
    let lines = echoed.to_ascii_lowercase();
    assert_eq!(lines.matches("\r\ncookie: ").count(), 1, "{echoed}");
    assert_eq!(header(echoed, "cookie"), Some("a=1; session=x"), "{echoed}");
}

/// A field that a client declares to be of its connection does not reach the endpoint, so that
/// nobody is let pass by it either.
#[tokio::test]
async fn fields_that_belong_to_the_connection_are_nothing_to_policies_and_providers() {
    let (mut world, backend, service) = world().await;
    world.put_route("closed", guarded("/closed", over_http(), |_| {}));
    let mut by_field = route("a.example", "/open", "u");
    by_field.conditions = [ValueMatch {
        source: Source::Header,
        name: "x-tenant".into(),
        test: Test::Exact("mine".into()),
        invert: false,
    }]
    .into();
    world.put_route("open", by_field);
    for (connection, status) in [("x-else", "200"), ("X-Let-In", "401")] {
        let fields = format!("Connection: {connection}\r\nX-Let-In: yes\r\n");
        let response = world.ask(&get("/closed", &fields)).await;
        assert_eq!(&response[9..12], status, "{response}");
    }
    assert_eq!((backend.requests(), service.requests()), (1, 2));
    let tenant = |connection: &str| {
        let fields = format!("Connection: {connection}\r\nX-Tenant: mine\r\n");
        get("/open", &fields)
    };
    let response = world.ask(&tenant("X-Tenant")).await;
    assert!(response.starts_with("HTTP/1.1 404"), "{response}");
    let allow = access_policy_by(AccessAction::Allow, "x-tenant", "mine");
    world.put("allow", allow);
    for (connection, status) in [("x-else", "200"), ("keep-alive, X-Tenant", "403")] {
        let response = world.ask(&tenant(connection)).await;
        assert_eq!(&response[9..12], status, "{response}");
    }
    assert_eq!(backend.requests(), 2);
}
