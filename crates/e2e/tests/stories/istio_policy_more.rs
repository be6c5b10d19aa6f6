//! Istio's policies together, and routes by the claims of tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use myriad_e2e::authority::Authority;
use myriad_e2e::issuer::Issuer;
use myriad_e2e::{Answer, Backend, Site, World};

use super::istio_policy::{ask, authorization, has, policy};

const EDGE: &str = "\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test]}
---
";

/// A VirtualService for `a.test` with these rules, in YAML's flow style.
fn service(rules: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: a, namespace: \
         default}}\nspec: {{hosts: [a.test], gateways: [edge], http: [{rules}]}}\n---\n"
    )
}

fn said(text: &str) -> String {
    format!("{{directResponse: {{status: 200, body: {{string: {text}}}}}}}")
}

/// The Service of a site without its Ingress.
fn behind(site: Site) -> String {
    let mut documents = site.documents();
    documents.remove(0);
    documents.join("---\n")
}

/// An authorizer that names everybody eve, and refuses requests that ask to be refused.
struct Authorizer {
    address: std::net::SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Authorizer {
    async fn start() -> Authorizer {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = move |headers: HeaderMap| async move {
            count.fetch_add(1, Ordering::SeqCst);
            match headers.contains_key("x-refuse-me") {
                true => StatusCode::UNAUTHORIZED.into_response(),
                false => [("x-user", "eve")].into_response(),
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Authorizer { address, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn mesh(more: &str) -> String {
    format!(
        "extensionProviders:\n- name: check\n  envoyExtAuthzHttp: {{service: \
         check-test.default.svc.cluster.local, port: 80, headersToUpstreamOnAllow: [x-user], \
         includeRequestHeadersInCheck: [x-refuse-me]{more}}}\n"
    )
}

async fn serve(files: &[(&str, String)], mesh: &str) -> World {
    let settings = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(settings.path(), mesh).expect("a file");
    let argument = format!("--mesh-config={}", settings.path().display());
    World::serve_with(Authority::new(), files, &[&argument]).await
}

#[tokio::test]
async fn whoever_is_asked_is_asked_first_and_then_deny_and_then_allow() {
    let (backend, check) = (Backend::start("a").await, Authorizer::start().await);
    let rule = "{route: [{destination: {host: a-test, port: {number: 80}}}]}";
    let served = [
        EDGE.to_owned(),
        service(rule),
        behind(Site::new("a.test").to(backend.address())),
        "---\n".to_owned(),
        behind(Site::new("check.test").to(check.address)),
    ];
    let custom = authorization("action: CUSTOM, provider: {name: check}, rules: [{}]");
    let deny = "action: DENY, rules: [{to: [{operation: {paths: [/denied]}}]}]";
    let allow = "rules: [{when: [{key: 'request.headers[x-user]', values: [eve]}]}]";
    let files = [
        ("a.yaml", served.concat()),
        ("custom.yaml", custom),
        ("deny.yaml", policy("AuthorizationPolicy", "d", "", deny)),
        ("allow.yaml", policy("AuthorizationPolicy", "a", "", allow)),
    ];
    let world = serve(&files, &mesh("")).await;
    // What the client says of itself is what the provider has said when ALLOW looks at it.
    let forged = ask(&world, "http://a.test/", &["--header", "X-User: mallory"]).await;
    assert_eq!(forged.status, 200);
    assert_eq!(forged.told()["headers"]["x-user"], "eve");
    assert_eq!(world.get("http://a.test/denied").await.status, 403);
    let args = ["--header", "X-Refuse-Me: now"];
    let refused = ask(&world, "http://a.test/denied", &args).await;
    assert_eq!(refused.status, 401);
    assert_eq!((check.asked(), backend.asked()), (3, 1));
    let other = "rules: [{when: [{key: 'request.headers[x-user]', values: [mallory]}]}]";
    world.write("allow.yaml", &policy("AuthorizationPolicy", "a", "", other));
    world.eventually("http://a.test/", has(403)).await;
    let forged = ask(&world, "http://a.test/", &["--header", "X-User: mallory"]).await;
    assert_eq!(forged.status, 403);
    world.stop().await;
}

#[tokio::test]
async fn a_provider_may_lead_a_request_to_another_route() {
    let check = Authorizer::start().await;
    let rules = format!(
        "{}, {}",
        said("for eve").replacen('{', "{match: [{headers: {x-user: {exact: eve}}}], ", 1),
        said("for others")
    );
    let served = [
        EDGE.to_owned(),
        service(&rules),
        behind(Site::new("check.test").to(check.address)),
    ];
    let custom = authorization("action: CUSTOM, provider: {name: check}, rules: [{}]");
    let files = [("a.yaml", served.concat()), ("custom.yaml", custom)];
    for (more, body) in [("", "for others"), (", clearRouteCache: true", "for eve")] {
        let world = serve(&files, &mesh(more)).await;
        assert_eq!(world.get("http://a.test/").await.body, body);
        world.stop().await;
    }
}

#[tokio::test]
async fn a_policy_asks_for_the_address_that_was_connected_to() {
    let served = [EDGE.to_owned(), service(&said("hello"))].concat();
    let of = |ip: &str| {
        let condition = format!("{{key: destination.ip, values: [{ip}]}}");
        authorization(&format!("action: DENY, rules: [{{when: [{condition}]}}]"))
    };
    let files = [("a.yaml", served), ("policy.yaml", of("127.0.0.2"))];
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    assert_eq!(world.get("http://a.test/").await.status, 200);
    world.write("policy.yaml", &of("127.0.0.0/30"));
    world.eventually("http://a.test/", has(403)).await;
    world.stop().await;
}

async fn ask_as(world: &World, issuer: &Issuer, claims: &str) -> Answer {
    let bearer = issuer.bearer(claims);
    let args: Vec<&str> = bearer.iter().map(String::as_str).collect();
    ask(world, "http://a.test/", &args).await
}

#[tokio::test]
async fn a_request_is_led_by_the_claims_of_its_token() {
    let issuer = Issuer::new();
    let on = |header: &str, value: &str, text: &str| {
        let start = format!("{{match: [{{headers: {{'{header}': {{exact: {value}}}}}}}], ");
        said(text).replacen('{', &start, 1)
    };
    let rules = [
        on("@request.auth.claims.groups", "staff", "staff"),
        on("@request.auth.claims[realm][role]", "admin", "admin"),
        on("@request.auth.claims.scope", "write", "writer"),
        said("guest"),
    ];
    let rule = format!("jwtRules: [{{issuer: me, jwks: '{}'}}]", issuer.keys());
    let files = [
        ("a.yaml", [EDGE, &service(&rules.join(", "))].concat()),
        ("t.yaml", policy("RequestAuthentication", "t", "", &rule)),
    ];
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    assert_eq!(world.get("http://a.test/").await.body, "guest");
    for (claims, body) in [
        (r#""groups":["users","staff"]"#, "staff"),
        (r#""groups":"staff""#, "staff"),
        (r#""groups":["users"]"#, "guest"),
        (r#""realm":{"role":"admin"}"#, "admin"),
        (r#""role":"admin""#, "guest"),
        (r#""scope":"read write""#, "writer"),
    ] {
        let answer = ask_as(&world, &issuer, &format!(r#"{{"iss":"me",{claims}}}"#)).await;
        assert_eq!(answer.body, body, "{claims}");
    }
    // A name that a header could have is no claim, and a token of nobody's leads nowhere.
    let args = ["--header", "@request.auth.claims.groups: staff"];
    assert_ne!(ask(&world, "http://a.test/", &args).await.body, "staff");
    let stranger = Issuer::new();
    let refused = ask_as(&world, &stranger, r#"{"iss":"me","groups":"staff"}"#).await;
    assert_eq!(refused.status, 401);
    // Without whoever verifies tokens, no claim is there.
    world.delete("t.yaml");
    let opened = myriad_e2e::world::eventually(async || {
        let answer = ask_as(&world, &issuer, r#"{"iss":"me","groups":"staff"}"#).await;
        (answer.body == "guest").then_some(())
    });
    assert!(opened.await.is_some());
    world.stop().await;
}

/// A message with one field of bytes.
fn message(field: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("a short message");
    assert!(length < 128, "a short message");
    [&[field << 3 | 2, length], content].concat()
}

/// An answer of a processor that sets a header.
fn setting(part: u8, name: &str, value: &str) -> Vec<u8> {
    let header = [message(1, name.as_bytes()), message(3, value.as_bytes())].concat();
    let option = message(1, &header);
    let common = message(2, &message(1, &option));
    message(part, &message(1, &common))
}

/// Speaks `envoy.service.ext_proc.v3.ExternalProcessor`: marks heads, and stops what asks for it.
async fn process(tcp: tokio::net::TcpStream) {
    let mut connection = h2::server::handshake(tcp).await.expect("HTTP/2");
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        tokio::spawn(async move {
            let mut told = request.into_body();
            let answer = axum::http::Response::new(());
            let mut said = respond.send_response(answer, false).expect("a stream");
            while let Some(Ok(data)) = told.data().await {
                let _ = told.flow_control().release_capacity(data.len());
                // The first byte of a message tells which part it is.
                let answer = match data.get(5) {
                    Some(0x12) if data.windows(7).any(|part| part == b"stop-me") => {
                        // 418, as a number in the first field of the first field.
                        message(7, &message(1, &[0x08, 0xa2, 0x03]))
                    }
                    Some(0x12) => setting(1, "x-user", "eve"),
                    Some(0x1a) => setting(2, "x-seen", "yes"),
                    _ => panic!("nobody was told of this part"),
                };
                let length = u32::try_from(answer.len()).expect("a short answer");
                let framed = [&[0][..], &length.to_be_bytes(), &answer].concat();
                let _ = said.send_data(framed.into(), false);
            }
        });
    }
}

#[tokio::test]
async fn requests_and_responses_pass_by_a_processor() {
    let backend = Backend::start("a").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(process(tcp));
        }
    });
    let rule = "{route: [{destination: {host: a-test, port: {number: 80}}}]}";
    let processed = service(rule).replacen(
        "namespace: default}",
        "namespace: default, annotations: {myriad.dev/external-processor: filter}}",
        1,
    );
    let rest = [
        behind(Site::new("a.test").to(backend.address())),
        "---\n".to_owned(),
        behind(Site::new("filter.test").to(address)),
    ]
    .concat();
    let files = [("a.yaml", [EDGE, &processed].concat()), ("rest.yaml", rest)];
    let mesh = "extensionProviders:\n- name: filter\n  myriadExtProcGrpc: {service: \
                filter-test.default.svc.cluster.local, port: 80, timeout: 5s}\n";
    let world = serve(&files, mesh).await;
    let answer = ask(&world, "http://a.test/", &["--header", "X-User: forged"]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-seen"), Some("yes"));
    assert_eq!(answer.told()["headers"]["x-user"], "eve");
    let stopped = ask(&world, "http://a.test/", &["--header", "X-Mode: stop-me"]).await;
    assert_eq!((stopped.status, backend.asked()), (418, 1));
    // A processor that nobody defined closes.
    world.write(
        "a.yaml",
        &[EDGE, &processed.replace(": filter}", ": nobody}")].concat(),
    );
    world.eventually("http://a.test/", has(503)).await;
    server.abort();
    world.stop().await;
}
