//! Certificates that are obtained of a real authority, which refuses good nonces now and then.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use myriad_e2e::acme::REFUSED;
use myriad_e2e::authority::Authority;
use myriad_e2e::world::{eventually, eventually_within};
use myriad_e2e::{Answer, Backend, CertificateAuthority, Curl, Site, World};
use tokio::process::Child;

use super::commands::myriad;

/// How long a certificate may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves files with an authority.
pub(super) async fn serve(
    ca: &CertificateAuthority,
    files: &[(&str, String)],
    more: &[&str],
) -> World {
    let arguments = ca.arguments(&ca.state());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    World::serve_with(Authority::new(), files, &[&arguments[..], more].concat()).await
}

pub(super) fn site(backend: &Backend, host: &str) -> Site {
    Site::new(host).to(backend.address()).issued_by("default")
}

/// Asks a host over HTTPS, trusting what the authority issues, until it answers.
pub(super) async fn answers(ca: &CertificateAuthority, host: &str) -> Option<Answer> {
    let root = ca.root().await;
    let url = format!("https://{host}:{}/", ca.https);
    let resolve = [format!("{host}:{}:127.0.0.1", ca.https)];
    eventually_within(PATIENCE, async || {
        let answer = Curl::new(&url, &resolve, &root).ask().await;
        (answer.status == 200).then_some(answer)
    })
    .await
}

/// The findings about a host's Ingress.
pub(super) async fn told(world: &World, host: &str, part: &str) -> String {
    let name = host.replace('.', "-");
    let found = eventually(async || {
        let findings = world.findings().await;
        let mut findings = findings.into_iter();
        findings.find(|it| it.contains(&format!("/{name}")) && it.contains(part))
    });
    match found.await {
        Some(found) => found,
        None => panic!("nothing of {part}: {:?}", world.findings().await),
    }
}

#[tokio::test]
async fn an_ingress_that_names_an_issuer_is_served_with_a_certificate_of_it() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let files = [("a.yaml", site(&backend, "a.test").yaml())];
    let world = serve(&ca, &files, &["--acme-email=ops@shop.test"]).await;
    answers(&ca, "a.test").await.expect("it serves");
    // One that is written later too, and nothing is left in service that was only for the proof.
    world.write("b.yaml", &site(&backend, "b.test").yaml());
    answers(&ca, "b.test").await.expect("it serves");
    assert_eq!(ca.issued(), 2);
    assert_eq!(world.findings().await, Vec::<String>::new());
    let withdrawn = eventually(async || {
        let dump = world.admin("/config").await.body;
        let dump: serde_json::Value = serde_json::from_str(&dump).expect("a dump");
        let left = dump["resources"]["challenge_answer"].as_u64();
        (left.unwrap_or(0) == 0).then_some(())
    });
    withdrawn.await.expect("no answer is left in service");
    let kept = std::fs::read_dir(ca.state().join("orders")).expect("a folder");
    assert_eq!(kept.count(), 0);
    world.stop().await;

    // What is kept is served again, and nothing is ordered for it.
    let world = serve(&ca, &files, &[]).await;
    assert_eq!(world.metric("myriad_acme_issued_total").await, 0.0);
    answers(&ca, "a.test").await.expect("it serves");
    assert_eq!(ca.issued(), 2);
    world.stop().await;
}

#[tokio::test]
async fn names_are_proven_in_handshakes_where_that_is_asked_for() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let files = [("a.yaml", site(&backend, "a.test").yaml())];
    let world = serve(&ca, &files, &["--acme-challenge=tls-alpn-01"]).await;
    answers(&ca, "a.test").await.expect("it serves");
    assert_eq!(ca.issued(), 1);
    world.stop().await;
}

#[tokio::test]
async fn names_that_lead_elsewhere_or_are_refused_delay_no_others_and_are_told_of() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    // Nobody listens there.
    ca.names().say("lost.test", &["127.0.0.9"]).expect("said");
    let bad = ["lost.test", REFUSED];
    let mut files: Vec<(String, String)> = Vec::new();
    for host in bad {
        files.push((format!("{host}.yaml"), site(&backend, host).yaml()));
    }
    for number in 0..10 {
        let host = format!("good{number}.test");
        files.push((format!("{host}.yaml"), site(&backend, &host).yaml()));
    }
    let wildcard = Site::new("*.wild.test").to(backend.address());
    files.push(("wild.yaml".to_owned(), wildcard.issued_by("default").yaml()));
    let files: Vec<(&str, String)> = files.iter().map(|(a, b)| (a.as_str(), b.clone())).collect();
    let world = serve(&ca, &files, &[]).await;
    for number in 0..10 {
        let host = format!("good{number}.test");
        answers(&ca, &host).await.expect("it serves");
    }
    let lost = told(&world, "lost.test", "127.0.0.9").await;
    assert!(lost.contains("point lost.test at the gateway"), "{lost}");
    // The authority's own words.
    let refused = told(&world, REFUSED, "is refused by").await;
    assert!(refused.contains("rejectedIdentifier"), "{refused}");
    told(&world, "any.wild.test", "by DNS alone").await;
    assert_eq!(ca.issued(), 10);

    // Whoever mends the name need not wait long.
    ca.names().forget("lost.test").expect("forgotten");
    answers(&ca, "lost.test").await.expect("it serves");
    let gone = eventually(async || {
        let findings = world.findings().await;
        (!findings.iter().any(|it| it.contains("lost-test"))).then_some(())
    });
    gone.await.expect("nothing is told of it any more");
    world.stop().await;
}

#[tokio::test]
async fn a_certificate_is_renewed_when_the_authority_wants_it_and_no_connection_notices() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let files = [("a.yaml", site(&backend, "a.test").yaml())];
    let world = serve(&ca, &files, &["--acme-profile=shortlived"]).await;
    answers(&ca, "a.test").await.expect("it serves");
    world.stop().await;
    let file = ca.state().join("certificates/default+a-test.json");
    let before = std::fs::read_to_string(&file).expect("a certificate");
    let secret: serde_json::Value = serde_json::from_str(&before).expect("a Secret");
    let chain = secret["data"]["tls.crt"].as_str().expect("a chain");
    let window = "{\"suggestedWindow\":{\"start\":\"2020-01-01T00:00:00Z\",\
                  \"end\":\"2020-01-02T00:00:00Z\"}}";
    let body = serde_json::json!({ "certificate": decoded(chain), "ariResponse": window });
    let body = body.to_string();
    let said = ca
        .manage("/set-renewal-info/", &["--data-binary", &body])
        .await;
    assert_eq!(said.status, 200, "{said:?}");

    let world = serve(&ca, &files, &["--acme-profile=shortlived"]).await;
    let renewed = eventually(async || {
        let now = std::fs::read_to_string(&file).expect("a certificate");
        (now != before).then_some(())
    });
    renewed.await.expect("it is renewed");
    answers(&ca, "a.test").await.expect("it serves");
    assert_eq!(ca.issued(), 2);
    world.stop().await;
}

fn decoded(base64: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64);
    String::from_utf8(bytes.expect("base64")).expect("PEM")
}

#[tokio::test]
async fn a_second_authority_is_asked_while_the_first_is_down() {
    let ca = CertificateAuthority::down();
    let second = ca.beside();
    let backend = Backend::start("a").await;
    let files = [("a.yaml", site(&backend, "a.test").yaml())];
    let directories = format!("--acme-directory={},{}", ca.directory(), second.directory());
    let mut arguments = ca.arguments(&ca.state());
    arguments.retain(|it| !it.starts_with("--acme-directory"));
    arguments.push(directories);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let world = World::serve_with(Authority::new(), &files, &arguments).await;
    let file = ca.state().join("certificates/default+a-test.json");
    let issued = eventually(async || file.is_file().then_some(()));
    issued.await.expect("it has a certificate of the second");
    assert!(second.log().contains("Issued certificate serial"));
    world.stop().await;
}

#[tokio::test]
async fn an_authority_that_is_down_or_forgets_everything_is_waited_for() {
    let mut ca = CertificateAuthority::down();
    let backend = Backend::start("a").await;
    let files = [("a.yaml", site(&backend, "a.test").yaml())];
    let world = serve(&ca, &files, &[]).await;
    told(&world, "a.test", "does not answer as it should").await;
    ca.rise();
    answers(&ca, "a.test").await.expect("it serves");
    // One that is new knows neither the account nor any order.
    ca.rise();
    world.write("b.yaml", &site(&backend, "b.test").yaml());
    answers(&ca, "b.test").await.expect("it serves");
    assert_eq!(world.get("http://a.test/").await.status, 308);
    world.stop().await;
}

#[tokio::test]
async fn an_account_is_bound_to_one_elsewhere_where_the_authority_wants_that() {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let mut ca = CertificateAuthority::down().with_binding("kid-1", key);
    ca.rise();
    let backend = Backend::start("a").await;
    let files = [("a.yaml", site(&backend, "a.test").yaml())];
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("key");
    std::fs::write(&file, format!("{key}\n")).expect("a file");
    let file = format!("--acme-eab-key-file={}", file.display());
    let world = serve(&ca, &files, &["--acme-eab-key-id=kid-1", &file]).await;
    answers(&ca, "a.test").await.expect("it serves");
    world.stop().await;
}

#[tokio::test]
async fn a_secret_that_somebody_writes_is_left_alone() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let own = site(&backend, "a.test").tls(&authority.issue(&["a.test"]));
    let world = serve(&ca, &[("a.yaml", own.yaml())], &[]).await;
    world.write("b.yaml", &site(&backend, "b.test").yaml());
    answers(&ca, "b.test").await.expect("it serves");
    assert_eq!(ca.issued(), 1);
    // Once it is gone, the issuer provides one.
    world.write("a.yaml", &site(&backend, "a.test").yaml());
    answers(&ca, "a.test").await.expect("it serves");
    world.stop().await;
}

#[tokio::test]
async fn an_issuer_that_is_not_there_is_told_of() {
    let backend = Backend::start("a").await;
    let files = [("a.yaml", site(&backend, "a.test").yaml())];
    let world = World::serve(&files).await;
    told(&world, "a.test", "names issuer default, which is not there").await;
    world.stop().await;
}

/// An issuer of an authority: the kind, and the rest of its metadata after the name.
fn issuer(ca: &CertificateAuthority, kind: &str, metadata: &str) -> String {
    let root = std::fs::read_to_string(ca.directory_root()).expect("a file");
    // A JSON string is a YAML string.
    let root = serde_json::Value::from(root);
    let url = ca.directory();
    format!(
        "apiVersion: myriad.dev/v1alpha1\nkind: {kind}\nmetadata: {{{metadata}}}\nspec:\n  \
         acme: {{directories: [{{url: '{url}'}}], ca: {{pem: {root}}}}}\n"
    )
}

#[tokio::test]
async fn an_issuer_in_a_file_is_of_its_namespace_and_one_for_all_is_of_everybody() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let own = Site::new("a.test").to(backend.address()).issued_by("le");
    let other = Site::new("b.test").to(backend.address()).issued_by("le");
    let files = [
        ("a.yaml", own.yaml()),
        ("b.yaml", other.namespace("other").yaml()),
    ];
    let arguments = ca.arguments(&ca.state());
    let of_issuer = ["--acme-directory", "--acme-ca"];
    let is_of_process = |it: &&String| !of_issuer.iter().any(|flag| it.starts_with(flag));
    let arguments = arguments.iter().filter(is_of_process);
    let arguments: Vec<&str> = arguments.map(String::as_str).collect();
    let world = World::serve_with(Authority::new(), &files, &arguments).await;
    told(&world, "a.test", "names issuer le, which is not there").await;
    let text = issuer(&ca, "Issuer", "name: le, namespace: default");
    world.write("issuer.yaml", &text);
    answers(&ca, "a.test").await.expect("it serves");
    told(&world, "b.test", "names issuer le, which is not there").await;
    assert_eq!(ca.issued(), 1);
    world.write("all.yaml", &issuer(&ca, "ClusterIssuer", "name: le"));
    answers(&ca, "b.test").await.expect("it serves");
    assert_eq!(ca.issued(), 2);
    assert_eq!(world.findings().await, Vec::<String>::new());
    world.stop().await;
}

#[tokio::test]
async fn tokens_that_are_not_ours_are_left_to_routes_and_no_redirect_takes_ours() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let files = [("a.yaml", site(&backend, "a.test").yaml())];
    let world = serve(&ca, &files, &[]).await;
    answers(&ca, "a.test").await.expect("it serves");
    let path = "http://a.test/.well-known/acme-challenge/of-somebody-else";
    let answer = world.get(path).await;
    assert_eq!(answer.status, 200);
    let uri = "/.well-known/acme-challenge/of-somebody-else";
    assert_eq!(answer.told()["uri"], uri);
    world.stop().await;
}

#[tokio::test]
async fn a_server_of_a_gateway_gets_the_certificate_of_its_credential() {
    let ca = CertificateAuthority::start();
    let gateway = "\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata:
  name: web
  namespace: shop
  annotations: {myriad.dev/issuer: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: HTTPS, name: https, protocol: HTTPS}
    tls: {mode: SIMPLE, credentialName: web-tls}
    hosts: [g.test]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [g.test]
  gateways: [web]
  http:
  - directResponse: {status: 200, body: {string: hello}}
";
    let gateway = gateway.replace("HTTPS, name", &format!("{}, name", ca.https));
    let world = serve(&ca, &[("g.yaml", gateway)], &[]).await;
    let answer = answers(&ca, "g.test").await.expect("it serves");
    assert_eq!(answer.body, "hello");
    assert!(ca.state().join("certificates/shop+web-tls.json").is_file());
    world.stop().await;
}

/// A process that can be killed.
fn spawn(ca: &CertificateAuthority, served: &Path) -> Child {
    let mut command = myriad();
    command.arg("serve").args(ca.arguments(&ca.state()));
    command
        .args(["--admin=127.0.0.1:0", "--workers=1"])
        .arg(served);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().expect("the binary runs")
}

/// The names of the files in a folder. One that is still being written aside is not kept yet: if
/// its process died each time that one came or went, nothing would ever be kept.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// The files that are kept, and how far each order is.
fn kept(ca: &CertificateAuthority) -> BTreeSet<String> {
    let mut kept = BTreeSet::new();
    for folder in ["accounts", "orders", "certificates"] {
        let path = ca.state().join(folder);
        for name in files(&path) {
            let text = std::fs::read_to_string(path.join(&name)).unwrap_or_default();
            let stage = text.split("\"stage\":\"").nth(1).unwrap_or_default();
            let stage = stage.split('"').next().unwrap_or_default();
            kept.insert(format!("{folder} {name} {stage}"));
        }
    }
    kept
}

/// Whether an order was refused so often that with one more time it would wait for long.
fn is_any_worn(ca: &CertificateAuthority) -> bool {
    let path = ca.state().join("orders");
    files(&path).iter().any(|name| {
        let text = std::fs::read_to_string(path.join(name)).unwrap_or_default();
        let order: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        order["failures"].as_u64().is_some_and(|it| it >= 3)
    })
}

#[tokio::test]
async fn a_process_that_is_killed_between_any_steps_loses_and_doubles_nothing() {
    const SITES: usize = 6;
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let served = tempfile::tempdir().expect("a directory");
    for number in 0..SITES {
        let host = format!("k{number}.test");
        let path = served.path().join(format!("{host}.yaml"));
        std::fs::write(path, site(&backend, &host).yaml()).expect("a file");
    }
    let mut kills = 0;
    let certificates = ca.state().join("certificates");
    let count = || files(&certificates).len();
    while count() < SITES {
        let before = kept(&ca);
        let mut child = spawn(&ca, served.path());
        // It dies as soon as anything that is kept has changed. Where the authority looked just
        // then, it has refused the order, which is placed again after some seconds, three times.
        let changed = eventually_within(PATIENCE, async || {
            (kept(&ca) != before && !is_any_worn(&ca)).then_some(())
        });
        changed.await.expect("it goes on");
        child.kill().await.expect("it is killed");
        kills += 1;
    }
    assert!(kills >= SITES, "{kills}");
    let child = spawn(&ca, served.path());
    for number in 0..SITES {
        let host = format!("k{number}.test");
        answers(&ca, &host).await.expect("it serves");
    }
    assert_eq!(ca.issued(), SITES, "none was ordered twice");
    drop(child);
}
