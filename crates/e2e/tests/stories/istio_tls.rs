//! TLS of Gateways' servers, as clients with and without certificates meet it.

use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::istio::{Scene, credential, free_port, gateway, secret};
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, World};
use tokio::net::TcpStream;

const WORKLOAD: &str = "spiffe://mesh/ns/a/sa/b";

/// Servers of HTTPS for `a.test` with these terms.
fn server(terms: &str) -> String {
    format!(
        "port: {{number: 443, name: https, protocol: HTTPS}}, hosts: [a.test], tls: {{{terms}}}"
    )
}

/// A world whose `a.test` has these terms, and the Secret `own` these entries beside its own.
async fn serve(backend: &Backend, scene: Scene, terms: &str, more: &[(&str, &str)]) -> World {
    let own = scene.authority().issue(&["a.test"]);
    scene
        .own(&own, more)
        .servers(&[&server(&format!("credentialName: own, {terms}"))])
        .to(&[backend.address()])
        .serve()
        .await
}

/// Asks with the certificate of a client, if there is one.
async fn ask(world: &World, client: Option<&Pair>, more: &[&str]) -> Answer {
    ask_for(world, "https://a.test/", client, more).await
}

async fn ask_for(world: &World, url: &str, client: Option<&Pair>, more: &[&str]) -> Answer {
    let curl = world.curl(url).args(more);
    let Some(pair) = client else {
        return curl.ask().await;
    };
    let name = format!("client-{}", &pair.certificate_hash()[..16]);
    let certificate = world.keep(&format!("{name}.crt"), &pair.certificate);
    let key = world.keep(&format!("{name}.key"), &pair.key);
    curl.args(&["--cert", &certificate, "--key", &key])
        .ask()
        .await
}

/// The client's certificate as the endpoint was told of it.
fn forwarded(answer: &Answer) -> String {
    let told = answer.told();
    let header = &told["headers"]["x-forwarded-client-cert"];
    header.as_str().unwrap_or("nothing").to_owned()
}

const FORGED: [&str; 2] = ["-H", "X-Forwarded-Client-Cert: Hash=forged"];

#[tokio::test]
async fn mutual_admits_who_shows_a_certificate_of_the_authority_and_tells_the_endpoint() {
    let (backend, clients) = (Backend::start("a").await, Authority::new());
    let more = [("ca.crt", clients.root())];
    let world = serve(&backend, Scene::new(), "mode: MUTUAL", &more).await;
    let (known, stranger) = (
        clients.issue_client(WORKLOAD),
        Authority::new().issue_client(WORKLOAD),
    );
    let answer = ask(&world, Some(&known), &FORGED).await;
    let hash = known.certificate_hash();
    let told = forwarded(&answer);
    assert!(told.starts_with(&format!("Hash={hash};")), "{told}");
    assert!(told.contains("CN=story client"), "{told}");
    assert!(told.ends_with(&format!(";URI={WORKLOAD}")), "{told}");
    for refused in [None, Some(&stranger)] {
        let answer = ask(&world, refused, &[]).await;
        assert_eq!(answer.status, 0, "{answer:?}");
    }
    assert_eq!(backend.asked(), 1);
    world.stop().await;
}

#[tokio::test]
async fn optional_mutual_admits_whoever_shows_nothing_and_verifies_what_is_shown() {
    let (backend, clients) = (Backend::start("a").await, Authority::new());
    let more = [("ca.crt", clients.root())];
    let world = serve(&backend, Scene::new(), "mode: OPTIONAL_MUTUAL", &more).await;
    assert_eq!(forwarded(&ask(&world, None, &FORGED).await), "nothing");
    let known = clients.issue_client(WORKLOAD);
    let told = forwarded(&ask(&world, Some(&known), &FORGED).await);
    assert!(
        told.starts_with("Hash=") && !told.contains("forged"),
        "{told}"
    );
    let stranger = Authority::new().issue_client(WORKLOAD);
    assert_eq!(ask(&world, Some(&stranger), &[]).await.status, 0);
    world.stop().await;
}

#[tokio::test]
async fn a_client_on_the_revocation_list_is_refused_from_the_moment_that_it_is_written() {
    let (backend, clients) = (Backend::start("a").await, Authority::new());
    let (good, revoked) = (
        clients.issue_client(WORKLOAD),
        clients.issue_client(WORKLOAD),
    );
    let scene = Scene::new();
    let own = scene.authority().issue(&["a.test"]);
    let asked = |more: &[(&str, &str)]| credential("asked", &own, more);
    let world = scene
        .to(&[backend.address()])
        .servers(&[&server("mode: MUTUAL, credentialName: asked")])
        .serve()
        .await;
    let authorities = ("ca.crt", clients.root());
    world.write("asked.yaml", &asked(&[authorities]));
    let admitted = eventually(async || {
        let answer = ask(&world, Some(&revoked), &[]).await;
        (answer.status == 200).then_some(())
    });
    assert!(admitted.await.is_some(), "nobody is revoked yet");
    let list = clients.revoke(&[&revoked]);
    world.write("asked.yaml", &asked(&[authorities, ("ca.crl", &list)]));
    let refused = eventually(async || {
        let answer = ask(&world, Some(&revoked), &[]).await;
        (answer.status == 0).then_some(())
    });
    assert!(refused.await.is_some(), "it is revoked");
    assert_eq!(ask(&world, Some(&good), &[]).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_client_is_known_by_a_name_a_key_or_a_certificate() {
    let (backend, clients) = (Backend::start("a").await, Authority::new());
    let known = clients.issue_client(WORKLOAD);
    let other = clients.issue_client("spiffe://mesh/ns/a/sa/other");
    for terms in [
        format!("subjectAltNames: ['{WORKLOAD}']"),
        format!("verifyCertificateSpki: ['{}']", known.key_hash()),
        format!("verifyCertificateHash: ['{}']", known.certificate_hash()),
    ] {
        let more = [("ca.crt", clients.root())];
        let terms = format!("mode: MUTUAL, {terms}");
        let world = serve(&backend, Scene::new(), &terms, &more).await;
        assert_eq!(ask(&world, Some(&known), &[]).await.status, 200, "{terms}");
        assert_eq!(ask(&world, Some(&other), &[]).await.status, 0, "{terms}");
        world.stop().await;
    }
}

#[tokio::test]
async fn authorities_of_clients_may_lie_in_a_secret_of_their_own() {
    let (backend, clients) = (Backend::start("a").await, Authority::new());
    let known = clients.issue_client(WORKLOAD);
    for (name, terms) in [
        ("partners", "mode: MUTUAL, caCertCredentialName: partners"),
        ("own-cacert", "mode: MUTUAL"),
    ] {
        let authorities = secret(name, "Opaque", &[("ca.crt", clients.root())]);
        let scene = Scene::new().with(&authorities);
        let world = serve(&backend, scene, terms, &[]).await;
        assert_eq!(ask(&world, Some(&known), &[]).await.status, 200, "{name}");
        assert_eq!(ask(&world, None, &[]).await.status, 0, "{name}");
        world.stop().await;
    }
}

#[tokio::test]
async fn mutual_without_authorities_answers_nobody_and_says_which_secret_is_missing() {
    let backend = Backend::start("a").await;
    let world = serve(&backend, Scene::new(), "mode: MUTUAL", &[]).await;
    let client = Authority::new().issue_client(WORKLOAD);
    for client in [None, Some(&client)] {
        assert_eq!(ask(&world, client, &[]).await.status, 0);
    }
    let findings = world.findings().await;
    assert!(
        findings.iter().any(|it| it.contains("own-cacert")),
        "{findings:?}"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_host_has_certificates_for_clients_of_rsa_and_of_ecdsa() {
    let backend = Backend::start("a").await;
    let scene = Scene::new();
    let rsa = scene.authority().issue_rsa(&["a.test"]);
    let second = credential("second", &rsa, &[]);
    let by = |suite| ["--tls-max", "1.2", "--ciphers", suite];
    let ecdsa = by("ECDHE-ECDSA-AES128-GCM-SHA256");
    let rsa = by("ECDHE-RSA-AES128-GCM-SHA256");
    let terms = "mode: SIMPLE, credentialNames: [own, second]";
    let world = scene
        .to(&[backend.address()])
        .with(&second)
        .servers(&[&server(terms)])
        .serve()
        .await;
    for suite in [&ecdsa, &rsa] {
        assert_eq!(ask(&world, None, suite).await.status, 200, "{suite:?}");
    }
    assert_eq!(ask(&world, None, &[]).await.status, 200);
    world.stop().await;
    // With one certificate, a client of the other algorithm has nothing to agree on.
    let world = serve(&backend, Scene::new(), "mode: SIMPLE", &[]).await;
    assert_eq!(ask(&world, None, &ecdsa).await.status, 200);
    assert_eq!(ask(&world, None, &rsa).await.status, 0);
    world.stop().await;
}

#[tokio::test]
async fn versions_and_suites_are_those_that_the_server_names() {
    let backend = Backend::start("a").await;
    let (old, new) = (["--tls-max", "1.2"], ["--tlsv1.3", "--tls-max", "1.3"]);
    let suite = |name| ["--tls-max", "1.2", "--ciphers", name];
    let named = suite("ECDHE-ECDSA-AES256-GCM-SHA384");
    let other = suite("ECDHE-ECDSA-AES128-GCM-SHA256");
    for (terms, served, refused) in [
        ("minProtocolVersion: TLSV1_3", &new[..], &old[..]),
        ("maxProtocolVersion: TLSV1_2", &old, &new),
        (
            "cipherSuites: [ECDHE-ECDSA-AES256-GCM-SHA384]",
            &named,
            &other,
        ),
        // Suites are those of TLS 1.2; TLS 1.3 has its own.
        (
            "cipherSuites: [ECDHE-ECDSA-AES256-GCM-SHA384]",
            &new,
            &other,
        ),
    ] {
        let terms = format!("mode: SIMPLE, {terms}");
        let world = serve(&backend, Scene::new(), &terms, &[]).await;
        assert_eq!(ask(&world, None, served).await.status, 200, "{terms}");
        assert_eq!(ask(&world, None, refused).await.status, 0, "{terms}");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_second_door_for_https_opens_with_its_gateway_and_closes_with_it() {
    let (backend, port) = (Backend::start("a").await, free_port());
    let world = Scene::new().to(&[backend.address()]).serve().await;
    let door = server("mode: SIMPLE, credentialName: own");
    let door = door.replace("number: 443", &format!("number: {port}"));
    // The rules are bound to a Gateway of this name.
    let plain = "port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test]";
    let base = std::fs::read_to_string(world.served().join("base.yaml")).expect("a file");
    let rest = base.split_once("---\napiVersion: v1").expect("a Secret").1;
    let both = gateway("edge", &[plain, &door]);
    world.write("base.yaml", &format!("{both}---\napiVersion: v1{rest}"));
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let url = "https://a.test/x";
    let served = eventually(async || {
        let answer = world.curl_at(at, url).ask().await;
        (answer.status == 200).then_some(())
    });
    assert!(served.await.is_some(), "the door opens");
    // The usual door has no server any more.
    assert_eq!(world.get(url).await.status, 0);
    world.write("base.yaml", &base);
    let gone = eventually(async || TcpStream::connect(at).await.err());
    assert!(gone.await.is_some(), "the door closes");
    assert_eq!(world.get(url).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_server_that_is_bound_to_an_address_is_not_at_another() {
    let (backend, port) = (Backend::start("a").await, free_port());
    let door = format!(
        "port: {{number: {port}, name: http, protocol: HTTP}}, bind: 127.0.0.2, hosts: [a.test]"
    );
    let world = Scene::new()
        .to(&[backend.address()])
        .servers(&[&door])
        .argument("--gateway-namespace=default")
        .serve()
        .await;
    let bound = std::net::SocketAddr::from(([127, 0, 0, 2], port));
    let served = eventually(async || {
        let answer = world.curl_at(bound, "http://a.test/x").ask().await;
        (answer.status == 200).then_some(())
    });
    assert!(served.await.is_some(), "it is there");
    let elsewhere = TcpStream::connect(("127.0.0.1", port)).await;
    assert!(elsewhere.is_err(), "and nowhere else");
    world.stop().await;
}

#[tokio::test]
async fn a_connection_for_an_open_host_is_no_way_to_one_that_asks_for_certificates() {
    let (backend, clients) = (Backend::start("a").await, Authority::new());
    let scene = Scene::new();
    let own = scene.authority().issue(&["a.test", "b.test"]);
    let open = server("mode: SIMPLE, credentialName: own").replace("a.test", "b.test");
    let world = scene
        .own(&own, &[("ca.crt", clients.root())])
        .servers(&[&server("mode: MUTUAL, credentialName: own"), &open])
        .to(&[backend.address()])
        .serve()
        .await;
    let answer = ask_for(&world, "https://b.test/", None, &["-H", "Host: a.test"]).await;
    assert_eq!(answer.status, 421, "{answer:?}");
    let client = clients.issue_client(WORKLOAD);
    assert_eq!(ask(&world, Some(&client), &[]).await.status, 200);
    assert_eq!(backend.asked(), 1);
    world.stop().await;
}
