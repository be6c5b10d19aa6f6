//! The places of tokens, the claims that are told, and keys that come from elsewhere.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::issuer::Issuer;
use myriad_e2e::istio::{Scene, gateway, policy, rules};
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, Curl, World};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::commands::myriad;

const CLAIMS: &str = r#"{"iss":"me","sub":"ann","team":{"name":"red"}}"#;

/// A rule that admits everybody with a valid token.
const ANYBODY: &str = "rules: [{from: [{source: {requestPrincipals: ['*']}}]}]";

/// A world that admits bearers of tokens by the rule of an issuer.
async fn serve(backend: &Backend, rule: &str) -> World {
    let tokens = format!("jwtRules: [{{issuer: me, {rule}}}]");
    Scene::new()
        .to(&[backend.address()])
        .with(&policy("RequestAuthentication", "tokens", &tokens))
        .with(&policy("AuthorizationPolicy", "anybody", ANYBODY))
        .serve()
        .await
}

async fn ask(world: &World, url: &str, header: &str) -> Answer {
    world.curl(url).args(&["-H", header]).ask().await
}

#[tokio::test]
async fn tokens_are_found_where_the_rule_says_and_nowhere_else() {
    let (backend, issuer) = (Backend::start("a").await, Issuer::new());
    let rule = format!(
        "jwks: '{}', fromHeaders: [{{name: x-token, prefix: 'Tok '}}], fromParams: [access], \
         fromCookies: [session]",
        issuer.keys()
    );
    let world = serve(&backend, &rule).await;
    let (url, token) = ("https://a.test/x", issuer.token(CLAIMS));
    let of_param = format!("{url}?access={token}");
    for (url, header) in [
        (url, format!("X-Token: Tok {token}")),
        (&of_param, "X-Nothing: 1".to_owned()),
        (url, format!("Cookie: a=b; session={token}")),
    ] {
        assert_eq!(ask(&world, url, &header).await.status, 200, "{header}");
    }
    let usual = format!("Authorization: Bearer {token}");
    assert_eq!(ask(&world, url, &usual).await.status, 403, "no token");
    let stranger = format!("X-Token: Tok {}", Issuer::new().token(CLAIMS));
    assert_eq!(ask(&world, url, &stranger).await.status, 401);
    world.stop().await;
}

#[tokio::test]
async fn endpoints_are_told_of_the_token_what_the_rule_says() {
    let (backend, issuer) = (Backend::start("a").await, Issuer::new());
    let rule = format!(
        "jwks: '{}', outputPayloadToHeader: x-payload, forwardOriginalToken: true, \
         outputClaimToHeaders: [{{header: x-sub, claim: sub}}, {{header: x-team, claim: \
         team.name}}]",
        issuer.keys()
    );
    let world = serve(&backend, &rule).await;
    let bearer = format!("Authorization: Bearer {}", issuer.token(CLAIMS));
    let forged = [
        "-H",
        &bearer,
        "-H",
        "X-Sub: root",
        "-H",
        "X-Payload: forged",
    ];
    let answer = world.curl("https://a.test/").args(&forged).ask().await;
    let told = answer.told();
    let headers = &told["headers"];
    assert_eq!(headers["x-payload"], URL_SAFE_NO_PAD.encode(CLAIMS));
    assert_eq!(
        (&headers["x-sub"], &headers["x-team"]),
        (&"ann".into(), &"red".into())
    );
    assert!(headers.get("authorization").is_some(), "{told}");
    world.stop().await;
}

#[tokio::test]
async fn a_token_does_not_reach_the_endpoint_unless_it_is_to() {
    let (backend, issuer) = (Backend::start("a").await, Issuer::new());
    let world = serve(&backend, &format!("jwks: '{}'", issuer.keys())).await;
    let bearer = format!("Authorization: Bearer {}", issuer.token(CLAIMS));
    let told = ask(&world, "https://a.test/", &bearer).await.told();
    assert_eq!(told["headers"].get("authorization"), None, "{told}");
    world.stop().await;
}

/// A server of keys over HTTPS: what it says, which may change, as text.
async fn keys_over_https(pair: &Pair, keys: Arc<Mutex<String>>) -> u16 {
    let chain = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("a leaf");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("a pair");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(tcp).await else {
                continue;
            };
            let mut head = vec![0; 4_096];
            let _ = tls.read(&mut head).await;
            let body = keys.lock().expect("nobody panicked").clone();
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
            let _ = tls.write_all(answer.as_bytes()).await;
            let _ = tls.shutdown().await;
        }
    });
    port
}

/// The objects of a plain host whose issuer's keys are fetched from a server.
fn fetching(port: u16, path: &str) -> String {
    let server = "port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test]";
    let rule = format!("jwtRules: [{{issuer: me, jwksUri: 'https://localhost:{port}{path}'}}]");
    let answer = "directResponse: {status: 200, body: {string: in}}";
    gateway("edge", &[server])
        + &rules(&[answer])
        + &policy("RequestAuthentication", "tokens", &rule)
        + &policy("AuthorizationPolicy", "anybody", ANYBODY)
}

#[tokio::test]
async fn keys_are_fetched_over_https_by_authorities_of_the_environment() {
    let (authority, issuer, next) = (Authority::new(), Issuer::new(), Issuer::new());
    // Down at first, as far as keys go.
    let keys = Arc::new(Mutex::new("soon".to_owned()));
    let port = keys_over_https(&authority.issue(&["localhost"]), keys.clone()).await;
    let directory = tempfile::tempdir().expect("a directory");
    let served = directory.path().join("served");
    let root = directory.path().join("root.pem");
    std::fs::create_dir(&served).expect("a directory");
    std::fs::write(&root, authority.root()).expect("a file");
    std::fs::write(served.join("a.yaml"), fetching(port, "/1")).expect("a file");
    let mut process = myriad()
        .args(["serve", "--http=127.0.0.1:0", "--https=127.0.0.1:0"])
        .arg("--admin=127.0.0.1:0")
        .arg(&served)
        .env("SSL_CERT_FILE", &root)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(process.stderr.take().expect("a pipe")).lines();
    let http = eventually(async || {
        let line = lines.next_line().await.expect("text").expect("a line");
        let (_, rest) = line.split_once("http on ")?;
        rest.split(',').next().map(str::to_owned)
    });
    let http = http.await.expect("the start line");
    let log = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let ask = async |issuer: &Issuer| {
        let bearer = format!("Authorization: Bearer {}", issuer.token(CLAIMS));
        let curl = Curl::new(&format!("http://{http}/"), &[], &root);
        let args = ["-H", "Host: a.test", "-H", &bearer];
        curl.args(&args).ask().await.status
    };
    let eventually_is = async |issuer: &Issuer, status: u16| {
        let asked = eventually(async || (ask(issuer).await == status).then_some(()));
        assert!(asked.await.is_some(), "never {status}");
    };
    assert_eq!(ask(&issuer).await, 401, "there are no keys yet");
    *keys.lock().expect("nobody panicked") = issuer.keys();
    eventually_is(&issuer, 200).await;
    // Another address of the keys, and the issuer signs with the next one.
    *keys.lock().expect("nobody panicked") = next.keys();
    let aside = directory.path().join("aside");
    std::fs::write(&aside, fetching(port, "/2")).expect("a file");
    std::fs::rename(&aside, served.join("a.yaml")).expect("a rename");
    eventually_is(&next, 200).await;
    assert_eq!(ask(&issuer).await, 401, "the old key is gone");
    log.abort();
}
