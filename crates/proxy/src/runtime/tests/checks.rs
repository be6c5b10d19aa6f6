//! Providers that are asked, and rates that are held.

use std::time::Duration;

use ::h2::server::SendResponse;
use bytes::Bytes;
use http::{HeaderMap, Response};
use myriad_model::{
    AccessAction, AccessCheck, AccessMatcher, AccessPolicy, AccessRule, AccessSubject, AccessTest,
    Authorize, CheckBody, CheckProtocol, HttpCheck, Kind, NameMatch, Provider, RateLimit, Source,
    SourceRanges, Test, Trust, Users, Value, ValueMatch,
};
use prost::Message as _;
use tokio::net::TcpListener;

use super::endpoints::{Streams, put};
use super::world::{Backend, Client, PATIENCE, World, header, route, with_policy};
use crate::policy::check::envoy;

fn get(fields: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n")
}

fn post(body: &str) -> String {
    let length = body.len();
    format!(
        "POST /a HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nX-User: forged\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// A provider over HTTP that is told bodies of up to 8 bytes.
pub(super) fn over_http() -> Provider {
    let exact = |name: &str| NameMatch::Exact(name.into());
    Provider {
        upstream: "check".into(),
        protocol: CheckProtocol::Http(Box::new(HttpCheck {
            path_prefix: "/check".into(),
            request: [exact("x-let-in")].into(),
            upstream_on_allow: [exact("x-user")].into(),
            downstream_on_allow: [exact("x-session")].into(),
            ..HttpCheck::default()
        })),
        timeout: PATIENCE,
        fail_open: false,
        error_status: 403,
        reroutes: false,
        body: Some(CheckBody {
            bytes_max: 8,
            allows_part: false,
            is_raw: false,
        }),
        authority: "check.ns".into(),
        told: Box::default(),
    }
}

/// Every request is asked about before it reaches an endpoint that echoes it.
async fn guarded(provider: Provider) -> (World, Backend) {
    let backend = Backend::echo().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put("p", Value::Provider(Box::new(provider)));
    let access_policy = AccessPolicy {
        listeners: Default::default(),
        check: AccessCheck::Authorize(Authorize {
            action: AccessAction::Custom("p".into()),
            is_dry_run: false,
            rules: [AccessRule::default()].into(),
        }),
    };
    world.put("g", Value::AccessPolicy(Box::new(access_policy)));
    (world, backend)
}

#[tokio::test]
async fn a_provider_over_http_lets_pass_and_refuses() {
    let check = Backend::answering(|request| match request {
        told if told.contains("x-let-in: yes") || told.ends_with("\r\n\r\nopen") => {
            "HTTP/1.1 200 OK\r\nX-User: eve\r\nX-Session: 7\r\nContent-Length: 0\r\n\r\n".into()
        }
        told => {
            let line = told.lines().next().unwrap();
            let length = line.len();
            format!("HTTP/1.1 401 No\r\nX-Why: no\r\nContent-Length: {length}\r\n\r\n{line}")
        }
    })
    .await;
    let (mut world, backend) = guarded(over_http()).await;
    world.put_upstream("check", &[check.address]);
    let response = world.ask(&get("X-Let-In: yes\r\nX-User: forged\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(header(&response, "x-session"), Some("7"));
    assert!(response.contains("\r\nx-user: eve\r\n"), "{response}");
    assert!(!response.contains("forged"), "{response}");
    // What the provider was told of the body reaches the endpoint all the same.
    let response = world.ask(&post("open")).await;
    assert!(
        response.contains("Content-Length: 4\r\n") || response.contains("content-length: 4\r\n")
    );
    assert!(!response.contains("forged"), "{response}");
    let refused = world.ask(&get("")).await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    assert_eq!(header(&refused, "x-why"), Some("no"));
    assert!(refused.ends_with("GET /check/a HTTP/1.1"), "{refused}");
    let refused = world.ask(&post("longer than 8 bytes")).await;
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    assert_eq!((backend.requests(), check.requests()), (2, 3));
}

#[tokio::test]
async fn no_field_of_a_client_is_what_a_provider_could_have_set() {
    let check = Backend::answering(|_| "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into()).await;
    let (mut world, backend) = guarded(Provider {
        fail_open: true,
        ..over_http()
    })
    .await;
    world.put_upstream("check", &[check.address]);
    let forging = get("X-User: forged\r\nX-Other: kept\r\n");
    let silent = world.ask(&forging).await;
    world.remove(Kind::Upstream, "check");
    let unasked = world.ask(&forging).await;
    for response in [silent, unasked] {
        assert!(response.contains(": kept\r\n"), "{response}");
        assert!(!response.contains("forged"), "{response}");
    }
    assert_eq!((backend.requests(), check.requests()), (2, 1));
}

#[tokio::test]
async fn no_trailer_is_what_a_provider_has_set() {
    let check = Backend::answering(|_| {
        "HTTP/1.1 200 OK\r\nX-User: eve\r\nContent-Length: 0\r\n\r\n".to_owned()
    })
    .await;
    let (mut world, _backend) = guarded(Provider {
        body: None,
        ..over_http()
    })
    .await;
    world.put_upstream("check", &[check.address]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    let mut client = world.client().await;
    client
        .send(
            "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
             3\r\nabc\r\n0\r\nX-User: root\r\nX-Sum: 1\r\n\r\n",
        )
        .await;
    let mut endpoint = Client::new(listener.accept().await.unwrap().0);
    let request = endpoint.read_until("x-sum: 1\r\n\r\n").await;
    assert_eq!(header(&request, "x-user"), Some("eve"), "{request}");
    assert!(request.ends_with("\r\n0\r\nx-sum: 1\r\n\r\n"), "{request}");
}

#[tokio::test]
async fn a_provider_is_told_the_id_that_the_endpoint_gets() {
    let check = Backend::answering(|told| {
        let id = header(told, "x-request-id").unwrap_or("none");
        format!("HTTP/1.1 200 OK\r\nX-Session: {id}\r\nContent-Length: 0\r\n\r\n")
    })
    .await;
    let mut provider = over_http();
    if let CheckProtocol::Http(check) = &mut provider.protocol {
        check.request = [NameMatch::Exact("x-request-id".into())].into();
    }
    let (mut world, _backend) = guarded(provider).await;
    world.put_upstream("check", &[check.address]);
    for (fields, is_made) in [
        ("", true),
        ("X-Request-ID: <b>\r\n", true),
        ("X-Request-ID: mine-1\r\n", false),
    ] {
        let response = world.ask(&get(fields)).await;
        let (head, echoed) = response.split_once("\r\n\r\n").unwrap();
        let told = header(head, "x-session").unwrap();
        assert_eq!(header(echoed, "x-request-id"), Some(told), "{response}");
        assert_eq!(told.len() == 36, is_made, "{told}");
        assert_eq!(told == "mine-1", !is_made, "{told}");
    }
}

#[tokio::test]
async fn a_provider_that_is_down_closes_or_opens_as_written() {
    for (fail_open, status) in [(false, "HTTP/1.1 503"), (true, "HTTP/1.1 200")] {
        let provider = Provider {
            fail_open,
            error_status: 503,
            timeout: Duration::from_millis(200),
            ..over_http()
        };
        let (mut world, _backend) = guarded(provider).await;
        // Nobody, somebody who closes, somebody who fails, and somebody who never answers.
        let gone = world.ask(&get("")).await;
        assert!(gone.starts_with(status), "{gone}");
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closing = Backend::answering(|_| String::new()).await;
        let failing =
            Backend::answering(|_| "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n".into()).await;
        for address in [
            closing.address,
            failing.address,
            silent.local_addr().unwrap(),
        ] {
            world.put_upstream("check", &[address]);
            let response = world.ask(&get("")).await;
            assert!(response.starts_with(status), "{response}");
        }
    }
}

#[tokio::test]
async fn a_provider_over_grpc_lets_pass_and_refuses() {
    let check = Streams::serving(|_, request, mut respond| async move {
        assert_eq!(
            request.uri().path(),
            "/envoy.service.auth.v3.Authorization/Check"
        );
        let mut body = request.into_body();
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            bytes.extend_from_slice(&data.unwrap());
        }
        let asked = envoy::CheckRequest::decode(&bytes[5..]).unwrap();
        let http = asked.attributes.unwrap().request.unwrap().http.unwrap();
        let answer = answer_to(&http).encode_to_vec();
        let framed = [&[0][..], &(answer.len() as u32).to_be_bytes(), &answer].concat();
        answer_call(&mut respond, framed, "0");
    })
    .await;
    let provider = Provider {
        protocol: CheckProtocol::Grpc,
        ..over_http()
    };
    let (mut world, backend) = guarded(provider).await;
    put(&mut world, "check", check.address);
    let response = world.ask(&get("X-Let-In: yes\r\nX-User: forged\r\n")).await;
    assert!(response.contains("\r\nx-user: eve\r\n"), "{response}");
    assert!(!response.contains("forged"), "{response}");
    let refused = world.ask(&post("body")).await;
    assert!(refused.starts_with("HTTP/1.1 418"), "{refused}");
    assert_eq!(header(&refused, "x-user"), Some("eve"));
    assert!(refused.ends_with("/a body"), "{refused}");
    assert_eq!(backend.requests(), 1);
}

/// Answers a call of gRPC by a message, and ends it by a status.
pub(super) fn answer_call(respond: &mut SendResponse<Bytes>, framed: Vec<u8>, status: &str) {
    let head = Response::builder().header("content-type", "application/grpc");
    let head = head.body(()).unwrap();
    let mut send = respond.send_response(head, false).unwrap();
    send.send_data(Bytes::from(framed), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    send.send_trailers(trailers).unwrap();
}

/// An access policy whose requests have this value of a header.
pub(super) fn access_policy_by(action: AccessAction, name: &str, value: &str) -> Value {
    access_policy_on(action, AccessSubject::Header(name.into()), value)
}

/// An access policy whose requests have this value of a property.
pub(super) fn access_policy_on(action: AccessAction, subject: AccessSubject, value: &str) -> Value {
    let test = AccessTest {
        subject,
        any: [AccessMatcher::Exact(value.into())].into(),
        none: Box::default(),
    };
    let rule = AccessRule {
        when: [test].into(),
        ..AccessRule::default()
    };
    Value::AccessPolicy(Box::new(AccessPolicy {
        listeners: Default::default(),
        check: AccessCheck::Authorize(Authorize {
            action,
            is_dry_run: false,
            rules: [rule].into(),
        }),
    }))
}

/// A provider that names the user of each request, but for those it refuses.
async fn telling() -> Backend {
    Backend::answering(|request| match request.contains("x-let-in: no") {
        false => "HTTP/1.1 200 OK\r\nX-User: eve\r\nContent-Length: 0\r\n\r\n".into(),
        true => "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".into(),
    })
    .await
}

#[tokio::test]
async fn what_denies_and_allows_is_weighed_after_the_answer_and_by_it() {
    let check = telling().await;
    let (mut world, backend) = guarded(over_http()).await;
    world.put_upstream("check", &[check.address]);
    world.put("deny", access_policy_by(AccessAction::Deny, "x-bad", "yes"));
    world.put(
        "allow",
        access_policy_by(AccessAction::Allow, "x-user", "eve"),
    );
    let response = world.ask(&get("X-User: mallory\r\n")).await;
    assert!(response.contains("\r\nx-user: eve\r\n"), "{response}");
    // Whoever is asked sees what is denied afterwards, and has the first word.
    let denied = world.ask(&get("X-Bad: yes\r\n")).await;
    assert!(denied.starts_with("HTTP/1.1 403"), "{denied}");
    let refused = world.ask(&get("X-Bad: yes\r\nX-Let-In: no\r\n")).await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    assert_eq!((check.requests(), backend.requests()), (3, 1));
    world.put(
        "allow",
        access_policy_by(AccessAction::Allow, "x-user", "mallory"),
    );
    let forged = world.ask(&get("X-User: mallory\r\n")).await;
    assert!(forged.starts_with("HTTP/1.1 403"), "{forged}");
}

#[tokio::test]
async fn all_providers_are_asked_and_each_is_told_what_the_others_changed() {
    let check = telling().await;
    let (mut world, backend) = guarded(over_http()).await;
    world.put_upstream("check", &[check.address]);
    let second = Backend::answering(|told| match told.contains("x-user: eve") {
        true => "HTTP/1.1 200 OK\r\nX-Session: 7\r\nContent-Length: 0\r\n\r\n".into(),
        false => "HTTP/1.1 418 No\r\nContent-Length: 0\r\n\r\n".into(),
    })
    .await;
    world.put_upstream("second", &[second.address]);
    let mut provider = over_http();
    provider.upstream = "second".into();
    if let CheckProtocol::Http(check) = &mut provider.protocol {
        check.request = [NameMatch::Start("x-".into())].into();
    }
    world.put("q", Value::Provider(Box::new(provider)));
    let custom = AccessAction::Custom("q".into());
    world.put("h", access_policy_by(custom, "x-user", "mallory"));
    let response = world.ask(&get("X-User: mallory\r\n")).await;
    assert_eq!(header(&response, "x-session"), Some("7"));
    assert!(response.contains("\r\nx-user: eve\r\n"), "{response}");
    let counts = (check.requests(), second.requests(), backend.requests());
    assert_eq!(counts, (1, 1, 1));
    world.remove(Kind::Provider, "q");
    let lost = world.ask(&get("X-User: mallory\r\n")).await;
    assert!(lost.starts_with("HTTP/1.1 403"), "{lost}");
}

#[tokio::test]
async fn a_route_is_looked_for_again_where_the_provider_says_so() {
    let check = telling().await;
    for (reroutes, said) in [(false, "u"), (true, "v")] {
        let provider = Provider {
            reroutes,
            ..over_http()
        };
        let (mut world, _backend) = guarded(provider).await;
        world.put_upstream("check", &[check.address]);
        let backends = [Backend::saying("u").await, Backend::saying("v").await];
        let [u, v] = backends.each_ref().map(|backend| [backend.address]);
        world.put_upstream("u", &u);
        world.put_upstream("v", &v);
        let mut eve = route("a.example", "/", "v");
        eve.conditions = [ValueMatch {
            source: Source::Header,
            name: "x-user".into(),
            test: Test::Exact("eve".into()),
            invert: false,
        }]
        .into();
        world.put_route("eve", eve);
        for _ in 0..2 {
            let response = world.ask(&get("")).await;
            assert!(response.ends_with(said), "{response}");
            let response = world.ask(&post("body")).await;
            assert!(response.ends_with(said), "{response}");
        }
    }
}

fn answer_to(http: &envoy::HttpRequest) -> envoy::CheckResponse {
    let header = envoy::CheckHeaderOption {
        header: Some(envoy::HeaderValue {
            key: "x-user".into(),
            value: "eve".into(),
            ..envoy::HeaderValue::default()
        }),
        append: None,
    };
    let (code, answer) = match http.headers.contains_key("x-let-in") {
        true => {
            let ok = envoy::OkHttpResponse {
                headers: vec![header],
                ..envoy::OkHttpResponse::default()
            };
            (0, envoy::HttpResponse::Ok(ok))
        }
        false => {
            let denied = envoy::DeniedHttpResponse {
                status: Some(envoy::HttpStatus { code: 418 }),
                headers: vec![header],
                body: format!("{} {}", http.path, http.body),
            };
            (7, envoy::HttpResponse::Denied(denied))
        }
    };
    envoy::CheckResponse {
        status: Some(envoy::RpcStatus { code }),
        http_response: Some(answer),
    }
}

/// The trust of one user, `ann`.
fn of_ann(hash: &str) -> Value {
    Value::Trust(Box::new(Trust {
        roots: Box::default(),
        crls: Box::default(),
        users: Users::new(vec![("ann".into(), hash.into())]),
    }))
}

#[tokio::test]
async fn a_route_with_users_answers_whoever_shows_the_password_of_one() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    // `secret`, at a cost that takes a while.
    let slow = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
    world.put("users", of_ann(slow));
    let guarded = with_policy(route("a.example", "/", "u"), |policy| {
        policy.users = Some("users".into());
        policy.realm = "Staff".into();
    });
    world.put_route("r", guarded);
    let (right, wrong) = (
        "Authorization: Basic YW5uOnNlY3JldA==\r\n",
        "Authorization: Basic YW5uOm90aGVy\r\n",
    );
    let nobody = "Authorization: Basic Ym9iOnNlY3JldA==\r\n";
    for fields in ["", wrong, nobody, &format!("{right}{right}")] {
        let response = world.ask(&get(fields)).await;
        assert!(response.starts_with("HTTP/1.1 401"), "{fields}: {response}");
        let asked = header(&response, "www-authenticate");
        assert_eq!(asked, Some("Basic realm=\"Staff\""), "{fields}");
    }
    for _ in 0..2 {
        assert!(world.ask(&get(right)).await.ends_with("hello"));
    }
    // Another password takes effect at once, however well the former one is known.
    world.put("users", of_ann("{PLAIN}other"));
    assert!(world.ask(&get(right)).await.starts_with("HTTP/1.1 401"));
    assert!(world.ask(&get(wrong)).await.ends_with("hello"));
    // Where the users are not, nobody is one.
    world.remove(Kind::Trust, "users");
    assert!(world.ask(&get(wrong)).await.starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn an_address_or_a_password_suffices_where_a_route_says_so() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put("users", of_ann("{PLAIN}secret"));
    world.put_route("all", route("a.example", "/", "u"));
    let right = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    // Another spelling of the path is no way around.
    let otherwise = get(right).replace("GET /a ", "GET /%61 ");
    let (here, elsewhere) = ("127.0.0.0/8", "192.0.2.0/24");
    let nets = |net: &str| net.parse::<ipnet::IpNet>().into_iter().collect();
    for (allowed, denied, satisfies_any, wanted) in [
        (here, "", false, ["401", "200", "403"]),
        (elsewhere, "", false, ["403"; 3]),
        (here, "", true, ["200"; 3]),
        (elsewhere, "", true, ["401", "200", "403"]),
        ("", elsewhere, true, ["401", "200", "403"]),
        (here, here, true, ["401", "200", "403"]),
    ] {
        let guarded = with_policy(route("a.example", "/a", "u"), |policy| {
            policy.users = Some("users".into());
            policy.sources_allowed = nets(allowed);
            policy.sources_denied = nets(denied);
            policy.satisfies_any = satisfies_any;
        });
        world.put_route("r", guarded);
        for (request, status) in [&get(""), &get(right), &otherwise].into_iter().zip(wanted) {
            let response = world.ask(request).await;
            let said = format!("{allowed:?} {denied:?} {satisfies_any}: {request}{response}");
            assert_eq!(&response[9..12], status, "{said}");
        }
    }
}

#[tokio::test]
async fn requests_beyond_a_rate_are_told_when_to_come_again() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let limit = RateLimit {
        name: "a test of its own".into(),
        requests: 1,
        interval: Duration::from_secs(3_600),
        burst: 1,
        is_per_client: true,
        exempt: SourceRanges::default(),
        is_at_once: false,
    };
    let limited = |read_timeout| {
        with_policy(route("a.example", "/", "u"), |policy| {
            policy.rate_limits = [limit.clone()].into();
            policy.read_timeout = read_timeout;
        })
    };
    world.put_route("r", limited(PATIENCE));
    for _ in 0..2 {
        assert!(world.ask(&get("")).await.ends_with("hello"));
    }
    let response = world.ask(&get("")).await;
    assert!(response.starts_with("HTTP/1.1 429"), "{response}");
    let wait = header(&response, "retry-after").unwrap();
    assert!((3_500..=3_600).contains(&wait.parse().unwrap()), "{wait}");
    // A change of something else does not begin the count anew.
    world.put_route("r", limited(PATIENCE * 2));
    assert!(world.ask(&get("")).await.starts_with("HTTP/1.1 429"));
}

#[tokio::test]
async fn requests_beyond_those_at_the_same_time_are_refused_until_one_is_over() {
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    const RESPONSE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[endpoint.local_addr().unwrap()]);
    let limited = with_policy(route("a.example", "/", "u"), |policy| {
        policy.rate_limits = [RateLimit {
            name: "at the same time".into(),
            requests: 1,
            interval: Duration::from_secs(1),
            burst: RateLimit::REQUESTS_MAX,
            is_per_client: true,
            exempt: SourceRanges::default(),
            is_at_once: true,
        }]
        .into();
    });
    world.put_route("r", limited);
    let mut client = world.client().await;
    // The account of a request is closed before the next one of its connection is read.
    for _ in 0..2 {
        client.send(REQUEST).await;
        let mut held = Client::new(endpoint.accept().await.unwrap().0);
        held.read_until("\r\n\r\n").await;
        let refused = world.ask(&get("")).await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert_eq!(header(&refused, "retry-after"), None);
        held.send(RESPONSE).await;
        drop(held);
        assert_eq!(client.response().await.1, "ok");
    }
}
