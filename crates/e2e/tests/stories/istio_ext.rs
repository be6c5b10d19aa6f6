//! Services that are asked for each request, and rates that are held, as clients meet them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use myriad_e2e::istio::{RULES, Scene, TO, policy, rules, service, service_speaking};
use myriad_e2e::{Answer, Backend, World};
use tokio::net::TcpListener;

/// A service that lets pass what bears `x-let-in: yes`, or a body that begins with `open`.
struct Authorizer {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Authorizer {
    async fn over_http() -> Authorizer {
        let (listener, authorizer) = Authorizer::listen().await;
        let router = Router::new()
            .fallback(decide)
            .with_state(authorizer.asked.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        authorizer
    }

    async fn over_grpc() -> Authorizer {
        let (listener, authorizer) = Authorizer::listen().await;
        let asked = authorizer.asked.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let asked = asked.clone();
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(tcp).await.expect("HTTP/2");
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        asked.fetch_add(1, Ordering::SeqCst);
                        tokio::spawn(decide_call(request, respond));
                    }
                });
            }
        });
        authorizer
    }

    async fn listen() -> (TcpListener, Authorizer) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::default();
        (listener, Authorizer { address, asked })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn decide(
    State(asked): State<Arc<AtomicUsize>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    asked.fetch_add(1, Ordering::SeqCst);
    let says = |name, value| headers.get(name).is_some_and(|it| it == value);
    if says("x-let-in", "yes") || body.starts_with(b"open") {
        let told = [
            ("x-user", "eve"),
            ("x-session", "7"),
            ("x-unlisted", "1"),
            ("x-envoy-auth-headers-to-remove", "x-secret"),
        ];
        return (told, "").into_response();
    }
    let told = [("x-why", "no"), ("x-unlisted", "1")];
    let words = format!("{uri} from {:?}", headers.get("x-from"));
    (StatusCode::UNAUTHORIZED, told, words).into_response()
}

/// A field of a message of protobuf, shorter than 128 bytes.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("it is short");
    assert!(length < 128, "it is short");
    [&[number << 3 | 2, length], value].concat()
}

/// A header with its value, as Envoy's API has it.
fn header(name: &str, value: &str) -> Vec<u8> {
    let both = [field(1, name.as_bytes()), field(2, value.as_bytes())];
    field(1, &both.concat())
}

/// `envoy.service.auth.v3.Authorization/Check`, on the bytes of the protocol.
async fn decide_call(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) {
    assert_eq!(
        request.uri().path(),
        "/envoy.service.auth.v3.Authorization/Check"
    );
    let mut question = Vec::new();
    let mut body = request.into_body();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        question.extend_from_slice(&data);
    }
    let entry = [field(1, b"x-let-in"), field(2, b"yes")].concat();
    let is_in = question.windows(entry.len()).any(|part| part == entry);
    let message = match is_in {
        true => {
            // Status 0; then what is set, what is removed, and what the client is told.
            let ok = [
                field(2, &header("x-user", "eve")),
                field(5, b"x-secret"),
                field(6, &header("x-session", "7")),
            ];
            [field(1, &[]), field(3, &ok.concat())].concat()
        }
        false => {
            let denied = [
                field(1, &[0x08, 0xa2, 0x03]),
                field(2, &header("x-why", "no")),
                field(3, b"not today"),
            ];
            [field(1, &[0x08, 7]), field(2, &denied.concat())].concat()
        }
    };
    let length = u32::try_from(message.len()).expect("it is short");
    let framed = [&[0][..], &length.to_be_bytes(), &message].concat();
    let response = http::Response::builder().header("content-type", "application/grpc");
    let response = response.body(()).expect("a head");
    let Ok(mut send) = respond.send_response(response, false) else {
        return;
    };
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().expect("a value"));
    let _ = send.send_data(framed.into(), false);
    let _ = send.send_trailers(trailers);
}

/// A world that asks the provider about everything but `/open`.
async fn guarded(backend: &Backend, check: &str, provider: &str) -> World {
    let custom = "action: CUSTOM, provider: {name: check}, rules: [{to: [{operation: {notPaths: \
                  [/open]}}]}]";
    let mesh = format!("extensionProviders:\n- {{name: check, {provider}}}\n");
    let scene = Scene::new().to(&[backend.address()]).with(check);
    let scene = scene.with(&policy("AuthorizationPolicy", "custom", custom));
    scene.mesh(&mesh).serve().await
}

async fn ask(world: &World, args: &[&str]) -> Answer {
    world.curl("https://a.test/a").args(args).ask().await
}

const AT: &str = "service: check.default.svc.cluster.local, port: 80";
const LET_IN: [&str; 4] = ["-H", "X-Let-In: yes", "-H", "X-Secret: s"];

#[tokio::test]
async fn a_service_over_http_decides_and_changes_headers() {
    let (backend, check) = (Backend::start("a").await, Authorizer::over_http().await);
    let provider = format!(
        "envoyExtAuthzHttp: {{{AT}, pathPrefix: /check, includeRequestHeadersInCheck: [x-let-in], \
         includeAdditionalHeadersInCheck: {{x-from: gateway}}, headersToUpstreamOnAllow: \
         [x-user], headersToDownstreamOnAllow: [x-session], headersToDownstreamOnDeny: [x-why]}}"
    );
    let world = guarded(&backend, &service("check", &[check.address]), &provider).await;
    let answer = ask(&world, &LET_IN).await;
    let told = answer.told();
    assert_eq!(told["headers"]["x-user"], "eve");
    for gone in ["x-unlisted", "x-secret"] {
        assert_eq!(told["headers"].get(gone), None, "{told}");
    }
    assert_eq!(answer.header("x-session"), Some("7"));
    assert_eq!(answer.header("x-unlisted"), None);
    let refused = ask(&world, &[]).await;
    assert_eq!(
        (refused.status, &*refused.body),
        (401, "/check/a from Some(\"gateway\")")
    );
    assert_eq!(refused.header("x-why"), Some("no"));
    assert_eq!(refused.header("x-unlisted"), None);
    assert_eq!(world.get("https://a.test/open").await.status, 200);
    assert_eq!((check.asked(), backend.asked()), (2, 2));
    world.stop().await;
}

#[tokio::test]
async fn a_service_over_grpc_decides_and_changes_headers() {
    let (backend, check) = (Backend::start("a").await, Authorizer::over_grpc().await);
    let service = service_speaking("grpc", "check", &[check.address]);
    let provider = format!("envoyExtAuthzGrpc: {{{AT}}}");
    let world = guarded(&backend, &service, &provider).await;
    let answer = ask(&world, &LET_IN).await;
    let told = answer.told();
    assert_eq!(told["headers"]["x-user"], "eve");
    assert_eq!(told["headers"].get("x-secret"), None, "{told}");
    assert_eq!(answer.header("x-session"), Some("7"));
    let refused = ask(&world, &[]).await;
    assert_eq!((refused.status, &*refused.body), (418, "not today"));
    assert_eq!(refused.header("x-why"), Some("no"));
    assert_eq!((check.asked(), backend.asked()), (2, 1));
    world.stop().await;
}

#[tokio::test]
async fn a_service_is_told_bodies_as_far_as_it_is_written() {
    let (backend, check) = (Backend::start("a").await, Authorizer::over_http().await);
    let service = service("check", &[check.address]);
    for (allows_part, of_long) in [("false", 413), ("true", 200)] {
        let provider = format!(
            "envoyExtAuthzHttp: {{{AT}, includeRequestBodyInCheck: {{maxRequestBytes: 8, \
             allowPartialMessage: {allows_part}}}}}"
        );
        let world = guarded(&backend, &service, &provider).await;
        let answer = ask(&world, &["-d", "open"]).await;
        assert_eq!(answer.told()["body_bytes"], 4, "the endpoint gets it too");
        assert_eq!(ask(&world, &["-d", "shut"]).await.status, 401);
        let long = ask(&world, &["-d", "open, and more than 8 bytes"]).await;
        assert_eq!(long.status, of_long, "{long:?}");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_service_that_is_down_or_silent_opens_or_closes_as_it_is_written() {
    let backend = Backend::start("a").await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent = [silent.local_addr().expect("an address")];
    for endpoints in [&[][..], &silent] {
        let service = service("check", endpoints);
        for (terms, status) in [
            ("failOpen: false", 403),
            ("statusOnError: '503'", 503),
            ("failOpen: true", 200),
        ] {
            let provider = format!("envoyExtAuthzHttp: {{{AT}, timeout: 0.2s, {terms}}}");
            let world = guarded(&backend, &service, &provider).await;
            assert_eq!(ask(&world, &[]).await.status, status, "{terms}");
            assert_eq!(world.get("https://a.test/open").await.status, 200);
            world.stop().await;
        }
    }
}

/// The rules of `a.test` with a limit, on hosts of their own as well.
fn limited(limits: &str, written: &[&str]) -> String {
    let annotation = format!("default, annotations: {{myriad.dev/rate-limit: '{limits}'}}");
    rules(written)
        .replacen("default", &annotation, 1)
        .replace("[a.test]", "[a.test, b.test]")
}

/// A world with a limit, whose hosts are `a.test` and `b.test`.
async fn limiting(backend: &Backend, limits: &str, written: &[&str]) -> World {
    let server = "port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test, b.test]";
    let scene = Scene::new().to(&[backend.address()]).servers(&[server]);
    let world = scene.serve().await;
    world
        .eventually("http://a.test/", |it| it.status == 200)
        .await;
    world.write(RULES, &limited(limits, written));
    world
        .eventually("http://b.test/first", |it| it.status != 404)
        .await;
    world
}

#[tokio::test]
async fn requests_beyond_the_rate_are_told_when_to_come_again() {
    let backend = Backend::start("a").await;
    let world = limiting(&backend, "1/h burst 3", &[TO]).await;
    let before = backend.asked();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(world.get("http://a.test/").await.status);
    }
    assert_eq!(statuses, [200, 200, 429], "one was taken before");
    assert_eq!(backend.asked() - before, 2);
    let answer = world.get("http://a.test/").await;
    let wait: u64 = answer
        .header("retry-after")
        .expect("it is told")
        .parse()
        .expect("seconds");
    assert!((1..=3_600).contains(&wait), "{wait}");
    world.stop().await;
}

#[tokio::test]
async fn clients_hosts_and_routes_are_counted_apart_where_it_is_written() {
    let backend = Backend::start("a").await;
    let first = format!("match: [{{uri: {{exact: /first}}}}], {TO}");
    // The other of two requests differs in one thing from the one that used the limit up.
    for (apart, url, interface) in [
        ("per client", "http://b.test/first", "127.0.0.2"),
        ("per host", "http://a.test/first", "127.0.0.1"),
        ("per route", "http://b.test/second", "127.0.0.1"),
    ] {
        let limits = format!("1/h {apart}");
        let world = limiting(&backend, &limits, &[&first, TO]).await;
        let again = world.get("http://b.test/first").await;
        assert_eq!(again.status, 429, "{apart}");
        let from = ["--interface", interface];
        assert_eq!(
            world.curl(url).args(&from).ask().await.status,
            200,
            "{apart}"
        );
        assert_eq!(
            world.curl(url).args(&from).ask().await.status,
            429,
            "{apart}"
        );
        world.stop().await;
    }
}

#[tokio::test]
async fn a_limit_that_is_not_understood_closes_and_is_named() {
    let backend = Backend::start("a").await;
    let world = limiting(&backend, "100 per second", &[TO]).await;
    assert_eq!(world.get("http://a.test/").await.status, 503);
    let findings = world.findings().await;
    assert!(
        findings
            .iter()
            .any(|it| it.contains("myriad.dev/rate-limit")),
        "{findings:?}"
    );
    world.stop().await;
}
