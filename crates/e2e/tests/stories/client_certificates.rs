//! Ingresses whose clients are asked for certificates, from the first Secret to the last.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, Site, World};

const HOST: &str = "a.test";
const NGINX: &str = "nginx.ingress.kubernetes.io";

fn secret(clients: &Authority, revoked: &[&Pair]) -> String {
    let list = match revoked {
        [] => String::new(),
        _ => format!(", ca.crl: {}", STANDARD.encode(clients.revoke(revoked))),
    };
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: ca, namespace: default}}\ntype: Opaque\n\
         data: {{ca.crt: {}{list}}}\n",
        STANDARD.encode(clients.root())
    )
}

async fn ask(world: &World, client: &Pair, more: &[&str]) -> Answer {
    let name = format!("client-{}", &client.certificate_hash()[..16]);
    let certificate = world.keep(&format!("{name}.crt"), &client.certificate);
    let key = world.keep(&format!("{name}.key"), &client.key);
    let curl = world.curl("https://a.test/").args(more);
    let shown = curl.args(&["--cert", &certificate, "--key", &key]);
    shown.ask().await
}

/// Waits until a client is answered with a status.
async fn answers(world: &World, client: &Pair, status: u16) {
    let asked = eventually(async || {
        let answer = ask(world, client, &[]).await;
        (answer.status == status).then_some(())
    });
    assert!(asked.await.is_some(), "the client is answered {status}");
}

#[tokio::test]
async fn a_host_is_open_to_those_whom_its_secret_verifies_and_to_nobody_without_it() {
    let (backend, clients) = (Backend::start("a").await, Authority::new());
    let authority = Authority::new();
    let site = Site::new(HOST)
        .to(backend.address())
        .annotation(&format!("{NGINX}/auth-tls-secret"), "default/ca")
        .annotation(&format!("{NGINX}/ssl-redirect"), "false")
        .tls(&authority.issue(&[HOST]));
    let world = World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await;
    let (ann, bob) = (
        clients.issue_client("spiffe://mesh/ns/a/sa/ann"),
        clients.issue_client("spiffe://mesh/ns/a/sa/bob"),
    );
    let stranger = Authority::new().issue_client("spiffe://mesh/ns/a/sa/ann");

    // Without its Secret nobody is verified.
    assert_eq!(ask(&world, &ann, &[]).await.status, 503);
    assert_eq!(world.get("http://a.test/").await.status, 503);
    let findings = world.findings().await;
    let told = |it: &String| it.contains("auth-tls-secret") && it.contains("is not there");
    assert!(findings.iter().any(told), "{findings:?}");

    world.write("ca.yaml", &secret(&clients, &[]));
    answers(&world, &ann, 200).await;
    let before = backend.asked();
    assert_eq!(ask(&world, &stranger, &[]).await.status, 400);
    assert_eq!(world.get("https://a.test/").await.status, 400);
    // No way but TLS leads there.
    assert_eq!(world.get("http://a.test/").await.status, 400);
    let forged = ["--header", "ssl-client-verify: SUCCESS"];
    let plain = world.curl("http://a.test/").args(&forged).ask().await;
    assert_eq!(plain.status, 400);
    assert_eq!(backend.asked(), before, "nobody else got past");

    let forged = ["--header", "ssl-client-subject-dn: CN=admin"];
    let told = ask(&world, &bob, &forged).await.told();
    let headers = &told["headers"];
    assert_eq!(headers["ssl-client-verify"], "SUCCESS");
    assert_eq!(headers["ssl-client-subject-dn"], "CN=story client");
    assert_eq!(headers["ssl-client-issuer-dn"], "CN=story authority");
    assert!(headers["ssl-client-cert"].is_null(), "{headers}");

    // One whose certificate is revoked is out, and others stay.
    world.write("ca.yaml", &secret(&clients, &[&bob]));
    answers(&world, &bob, 400).await;
    assert_eq!(ask(&world, &ann, &[]).await.status, 200);
    world.delete("ca.yaml");
    answers(&world, &ann, 503).await;
    world.stop().await;
}
