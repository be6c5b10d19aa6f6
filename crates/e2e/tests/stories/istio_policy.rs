//! Istio's policies over the gateway, as clients meet them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use myriad_e2e::authority::Authority;
use myriad_e2e::issuer::Issuer;
use myriad_e2e::{Answer, Backend, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SERVED: &str = "\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: default}
spec:
  hosts: [a.test]
  gateways: [edge]
  http:
  - match: [{uri: {prefix: /fixed}}]
    directResponse: {status: 200, body: {string: fixed}}
  - route: [{destination: {host: a-test, port: {number: 80}}}]
---
";

pub(super) fn policy(kind: &str, name: &str, annotations: &str, spec: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: \
         istio-system, annotations: {{{annotations}}}}}\nspec: {{{spec}}}\n"
    )
}

pub(super) fn authorization(spec: &str) -> String {
    policy("AuthorizationPolicy", "p", "", spec)
}

async fn serve(backend: &Backend, policies: &str) -> World {
    let site = myriad_e2e::Site::new("a.test").to(backend.address());
    let mut parts = site.documents();
    parts.remove(0);
    let text = format!("{SERVED}{}", parts.join("---\n"));
    let files = [("a.yaml", text), ("policy.yaml", policies.to_owned())];
    World::serve_with(Authority::new(), &files, &[]).await
}

pub(super) fn has(status: u16) -> impl Fn(&Answer) -> bool {
    move |answer| answer.status == status
}

pub(super) async fn ask(world: &World, url: &str, args: &[&str]) -> Answer {
    world.curl(url).args(args).ask().await
}

#[tokio::test]
async fn allow_admits_what_fits_until_the_policy_is_gone() {
    let backend = Backend::start("a").await;
    let spec = "rules: [{to: [{operation: {methods: [GET], paths: ['/open/*', /fixed]}}]}]";
    let world = serve(&backend, &authorization(spec)).await;
    assert_eq!(world.get("http://a.test/open/x").await.status, 200);
    assert_eq!(world.get("http://a.test/fixed").await.status, 200);
    for path in ["/other", "/fixed/more", "//open/x"] {
        let answer = world.get(&format!("http://a.test{path}")).await;
        assert_eq!((answer.status, &*answer.body), (403, "RBAC: access denied"));
    }
    let posted = ask(&world, "http://a.test/open/x", &["--data", "x"]).await;
    assert_eq!(posted.status, 403);
    world.delete("policy.yaml");
    world.eventually("http://a.test/other", has(200)).await;
    world.stop().await;
}

#[tokio::test]
async fn deny_refuses_by_address_and_header_and_a_trial_refuses_nobody() {
    let backend = Backend::start("a").await;
    let closed = "action: DENY, rules: [{from: [{source: {ipBlocks: [127.0.0.0/8]}}]}]";
    let trial = policy(
        "AuthorizationPolicy",
        "p",
        "istio.io/dry-run: 'true'",
        closed,
    );
    let world = serve(&backend, &trial).await;
    assert_eq!(world.get("http://a.test/").await.status, 200);
    assert!(
        world
            .metric("myriad_guards_on_trial_total{verdict=\"refused\"}")
            .await
            >= 1.0
    );
    world.write("policy.yaml", &authorization(closed));
    world.eventually("http://a.test/", has(403)).await;
    let header = "action: DENY, rules: [{when: [{key: 'request.headers[x-bot]', values: ['*']}]}]";
    world.write("policy.yaml", &authorization(header));
    world.eventually("http://a.test/", has(200)).await;
    let bot = ask(&world, "http://a.test/", &["--header", "X-Bot: yes"]).await;
    assert_eq!(bot.status, 403);
    world.write("policy.yaml", &authorization("rules: broken"));
    world.eventually("http://a.test/", has(403)).await;
    world.stop().await;
}

async fn ask_as(world: &World, issuer: &Issuer, claims: &str) -> Answer {
    let field = format!("Authorization: Bearer {}", issuer.token(claims));
    ask(world, "http://a.test/x", &["--header", &field]).await
}

#[tokio::test]
async fn tokens_are_verified_and_their_claims_are_asked_for() {
    let (issuer, stranger) = (Issuer::new(), Issuer::new());
    let backend = Backend::start("a").await;
    let rule = format!(
        "jwtRules: [{{issuer: me, audiences: [shop], jwks: '{}', outputClaimToHeaders: \
         [{{header: x-sub, claim: sub}}]}}]",
        issuer.keys()
    );
    let tokens = policy("RequestAuthentication", "t", "", &rule);
    let world = serve(&backend, &tokens).await;
    assert_eq!(world.get("http://a.test/x").await.status, 200);
    let good = r#"{"iss":"me","sub":"ann","aud":"shop","exp":4000000000,"groups":["staff"]}"#;
    let answer = ask_as(&world, &issuer, good).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("x-sub"), "{}", answer.body);
    assert!(!answer.body.contains("Bearer"), "{}", answer.body);
    assert_eq!(ask_as(&world, &stranger, good).await.status, 401);
    let expired = r#"{"iss":"me","sub":"ann","aud":"shop","exp":1000000000}"#;
    let refused = ask_as(&world, &issuer, expired).await;
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").is_some());
    let elsewhere = r#"{"iss":"me","sub":"ann","aud":"other"}"#;
    assert_eq!(ask_as(&world, &issuer, elsewhere).await.status, 401);

    let staff = authorization(
        "rules: [{from: [{source: {requestPrincipals: [me/ann]}}], when: [{key: \
         'request.auth.claims[groups]', values: [staff]}]}]",
    );
    world.write("policy.yaml", &format!("{tokens}---\n{staff}"));
    world.eventually("http://a.test/x", has(403)).await;
    assert_eq!(ask_as(&world, &issuer, good).await.status, 200);
    let guest = r#"{"iss":"me","sub":"ann","aud":"shop","groups":["guest"]}"#;
    assert_eq!(ask_as(&world, &issuer, guest).await.status, 403);
    world.stop().await;
}

#[tokio::test]
async fn keys_that_are_fetched_refuse_until_they_are_there() {
    let issuer = Issuer::new();
    let backend = Backend::start("a").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let is_up = Arc::new(AtomicBool::new(false));
    let server = tokio::spawn(serve_keys(listener, issuer.keys(), is_up.clone()));
    let rule = format!("jwtRules: [{{issuer: me, jwksUri: 'http://{address}/keys'}}]");
    let world = serve(&backend, &policy("RequestAuthentication", "t", "", &rule)).await;
    let good = r#"{"iss":"me","sub":"ann"}"#;
    assert_eq!(world.get("http://a.test/x").await.status, 200);
    assert_eq!(ask_as(&world, &issuer, good).await.status, 401);
    is_up.store(true, Ordering::SeqCst);
    let admitted = myriad_e2e::world::eventually(async || {
        let answer = ask_as(&world, &issuer, good).await;
        (answer.status == 200).then_some(())
    });
    assert!(admitted.await.is_some());
    // What was fetched stays when nobody is there to ask.
    server.abort();
    assert_eq!(ask_as(&world, &issuer, good).await.status, 200);
    world.stop().await;
}

/// Hangs up on every client, until it is up.
async fn serve_keys(listener: TcpListener, keys: String, is_up: Arc<AtomicBool>) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        if !is_up.load(Ordering::SeqCst) {
            continue;
        }
        let mut request = [0; 1_024];
        let _ = stream.read(&mut request).await;
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{keys}",
            keys.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}
