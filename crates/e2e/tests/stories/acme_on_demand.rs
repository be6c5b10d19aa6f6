//! Certificates on demand: of a real authority, for names that stand in no object, where an
//! endpoint allows them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use myriad_e2e::ask::AskEndpoint;
use myriad_e2e::authority::Authority;
use myriad_e2e::world::{eventually, eventually_within};
use myriad_e2e::{Answer, Backend, CertificateAuthority, Curl, Site, World};
use myriad_lab::port::free_port;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// How long a certificate may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long handshakes wait in these stories, which is as long as their clients do.
const PARK: &str = "--limit=park_timeout=1m";

/// An Ingress for every host that no other names, without TLS.
fn catch_all(backend: &Backend) -> String {
    let site = Site::new("all.test").to(backend.address()).yaml();
    let every = site.replace("  - host: 'all.test'\n    http:", "  - http:");
    assert_ne!(every, site);
    every
}

/// Serves every host with an authority.
async fn serve(ca: &CertificateAuthority, backend: &Backend, more: &[&str]) -> World {
    let arguments = ca.arguments(&ca.state());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let files = [("all.yaml", catch_all(backend))];
    let arguments = [&arguments[..], &[PARK], more].concat();
    World::serve_with(Authority::new(), &files, &arguments).await
}

/// Asks a host over HTTPS once, trusting what the authority issues.
async fn ask(ca: &CertificateAuthority, host: &str) -> Answer {
    let root = ca.root().await;
    let url = format!("https://{host}:{}/", ca.https);
    let resolve = [format!("{host}:{}:127.0.0.1", ca.https)];
    let curl = Curl::new(&url, &resolve, &root);
    curl.args(&["--max-time", "90"]).ask().await
}

fn is_refused(answer: &Answer) -> bool {
    answer.status == 0 && answer.error.contains("unrecognized name")
}

#[tokio::test]
async fn the_first_handshake_of_an_allowed_name_gets_its_certificate_and_a_restart_keeps_it() {
    let ca = CertificateAuthority::start();
    let (backend, endpoint) = (Backend::start("a").await, AskEndpoint::start().await);
    let world = serve(&ca, &backend, &[&endpoint.argument()]).await;
    // Several at once, of which each waits.
    let all = tokio::join!(
        ask(&ca, "a.ok.test"),
        ask(&ca, "a.ok.test"),
        ask(&ca, "b.ok.test"),
    );
    for answer in [all.0, all.1, all.2] {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let mut asked = endpoint.asked();
    asked.sort();
    assert_eq!(asked, ["a.ok.test", "b.ok.test"]);
    assert_eq!(ca.issued(), 2);
    assert_eq!(world.metric("myriad_acme_on_demand_names").await, 2.0);
    assert_eq!(world.findings().await, Vec::<String>::new());
    assert!(
        ca.state()
            .join("certificates/on-demand:a.ok.test.json")
            .is_file()
    );
    let dump = world.admin("/config").await.body;
    let dump: serde_json::Value = serde_json::from_str(&dump).expect("a dump");
    assert_eq!(dump["resources"]["certificate"], 2, "{dump}");
    world.stop().await;

    let world = serve(&ca, &backend, &[&endpoint.argument()]).await;
    let answer = ask(&ca, "a.ok.test").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(endpoint.asked().len(), 2);
    assert_eq!(ca.issued(), 2);
    world.stop().await;
}

#[tokio::test]
async fn a_name_that_is_refused_gets_an_alert_and_the_authority_hears_nothing_of_it() {
    let ca = CertificateAuthority::start();
    let (backend, endpoint) = (Backend::start("a").await, AskEndpoint::start().await);
    let world = serve(&ca, &backend, &[&endpoint.argument()]).await;
    for _ in 0..3 {
        let answer = ask(&ca, "shop.no.test").await;
        assert!(is_refused(&answer), "{answer:?}");
    }
    assert_eq!(endpoint.asked(), ["shop.no.test"]);
    // Nor is it where the name is allowed and leads elsewhere.
    ca.names()
        .say("lost.ok.test", &["127.0.0.9"])
        .expect("said");
    let answer = ask(&ca, "lost.ok.test").await;
    assert!(is_refused(&answer), "{answer:?}");
    assert_eq!(endpoint.asked(), ["shop.no.test", "lost.ok.test"]);
    let log = ca.log();
    assert!(!log.contains("shop.no.test") && !log.contains("lost.ok.test"));
    assert_eq!(world.metric("myriad_acme_on_demand_names").await, 0.0);
    world.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_is_down_allows_nothing_until_it_is_there() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let port = free_port();
    let argument = format!("--acme-on-demand-ask=http://127.0.0.1:{port}/");
    let world = serve(&ca, &backend, &[&argument]).await;
    let answer = ask(&ca, "a.ok.test").await;
    assert!(is_refused(&answer), "{answer:?}");
    assert!(world.metric("myriad_acme_on_demand_unanswered_total").await >= 1.0);
    assert!(!ca.log().contains("a.ok.test"));
    let _endpoint = AskEndpoint::start_at(port, false).await;
    let served = eventually_within(PATIENCE, async || {
        (ask(&ca, "a.ok.test").await.status == 200).then_some(())
    });
    served.await.expect("it serves");
    assert_eq!(ca.issued(), 1);
    world.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_says_yes_to_everything_gets_what_the_bounds_have() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let endpoint = AskEndpoint::start_at(0, true).await;
    let bounds = ["--acme-on-demand-per-domain=2", "--acme-on-demand-max=3"];
    let argument = endpoint.argument();
    let more = [&[&*argument], &bounds[..]].concat();
    let world = serve(&ca, &backend, &more).await;
    let mut served = 0;
    for host in [
        "a.one.test",
        "b.one.test",
        "c.one.test",
        "a.two.test",
        "a.three.test",
    ] {
        let answer = ask(&ca, host).await;
        assert!(answer.status == 200 || is_refused(&answer), "{answer:?}");
        served += usize::from(answer.status == 200);
    }
    assert_eq!((served, ca.issued()), (3, 3));
    assert_eq!(
        world.metric("myriad_acme_on_demand_limited_total").await,
        2.0
    );
    world.stop().await;
}

#[tokio::test]
async fn an_object_that_names_the_host_comes_before_what_was_obtained_on_demand() {
    let ca = CertificateAuthority::start();
    let (backend, endpoint) = (Backend::start("a").await, AskEndpoint::start().await);
    let world = serve(&ca, &backend, &[&endpoint.argument()]).await;
    assert_eq!(ask(&ca, "a.ok.test").await.status, 200);
    let own = Backend::start("own").await;
    let pair = Authority::new().issue(&["a.ok.test"]);
    let site = Site::new("a.ok.test").to(own.address()).tls(&pair);
    world.write("own.yaml", &site.yaml());
    // The authority of the story is not the one that issued it.
    let shown = eventually(async || (ask(&ca, "a.ok.test").await.status == 0).then_some(()));
    shown.await.expect("its own certificate is shown");
    world.delete("own.yaml");
    let shown = eventually(async || (ask(&ca, "a.ok.test").await.status == 200).then_some(()));
    shown.await.expect("the other one is shown again");
    assert_eq!(ca.issued(), 1);
    world.stop().await;
}

#[tokio::test]
async fn an_issuer_for_all_says_whom_to_ask_until_it_is_gone() {
    let ca = CertificateAuthority::start();
    let (backend, endpoint) = (Backend::start("a").await, AskEndpoint::start().await);
    let arguments = ca.arguments(&ca.state());
    let of_issuer = ["--acme-directory", "--acme-ca"];
    let is_of_process = |it: &&String| !of_issuer.iter().any(|flag| it.starts_with(flag));
    let arguments = arguments.iter().filter(is_of_process);
    let arguments: Vec<&str> = arguments.map(String::as_str).chain([PARK]).collect();
    let files = [("all.yaml", catch_all(&backend))];
    let world = World::serve_with(Authority::new(), &files, &arguments).await;
    assert!(is_refused(&ask(&ca, "a.ok.test").await));
    let root = std::fs::read_to_string(ca.directory_root()).expect("a file");
    // A JSON string is a YAML string.
    let root = serde_json::Value::from(root);
    let issuer = format!(
        "apiVersion: myriad.dev/v1alpha1\nkind: ClusterIssuer\nmetadata: {{name: default}}\n\
         spec:\n  onDemand: {{ask: '{}'}}\n  \
         acme: {{directories: [{{url: '{}'}}], ca: {{pem: {root}}}}}\n",
        endpoint.url(),
        ca.directory()
    );
    world.write("issuer.yaml", &issuer);
    let served = eventually_within(PATIENCE, async || {
        (ask(&ca, "a.ok.test").await.status == 200).then_some(())
    });
    served.await.expect("it serves");
    world.delete("issuer.yaml");
    let closed = eventually(async || {
        let name = format!("n{}.ok.test", endpoint.asked().len());
        is_refused(&ask(&ca, &name).await).then_some(())
    });
    closed.await.expect("nothing is obtained any more");
    let answer = ask(&ca, "a.ok.test").await;
    assert_eq!(answer.status, 200, "what is there is served: {answer:?}");
    let asked = endpoint.asked().len();
    assert!(is_refused(&ask(&ca, "late.ok.test").await));
    assert_eq!(endpoint.asked().len(), asked);
    world.stop().await;
}

/// The first message of a handshake for a name.
fn hello(config: &Arc<ClientConfig>, name: &str) -> Vec<u8> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(config.clone(), name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("memory");
    hello
}

/// Begins a handshake from an address of this machine.
async fn begin(from: [u8; 4], to: SocketAddr, hello: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind(SocketAddr::from((from, 0)))
        .expect("an address");
    let mut tcp = socket.connect(to).await.expect("a connection");
    tcp.write_all(hello).await.expect("it is sent");
    tcp
}

#[tokio::test]
async fn a_flood_of_names_costs_few_questions_and_places_and_delays_nobody_else() {
    const NAMES: usize = 5_000;
    let ca = CertificateAuthority::start();
    let (backend, endpoint) = (Backend::start("a").await, AskEndpoint::start().await);
    let bounds = ["--acme-on-demand-asks=1", "--limit=parked=64"];
    let argument = endpoint.argument();
    let more = [&[&*argument], &bounds[..]].concat();
    let world = serve(&ca, &backend, &more).await;
    let config = ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ));
    let config = config
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = config.with_root_certificates(RootCertStore::empty());
    let config = Arc::new(config.with_no_client_auth());
    let began = Instant::now();
    let mut flood = Vec::new();
    for number in 0..NAMES {
        let hello = hello(&config, &format!("n{number}.flood.test"));
        flood.push(begin([127, 0, 0, 2], world.https(), &hello).await);
        // Most have lost their places, and are told so.
        if flood.len() == 512 {
            for mut tcp in flood.drain(..256) {
                let mut alert = [0; 7];
                let read = tcp.read(&mut alert).await.expect("an alert");
                assert!(read > 0);
            }
        }
    }
    // Whoever comes from elsewhere is asked about before the rest of the flood.
    let answer = ask(&ca, "a.ok.test").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let waiting = world.metric("myriad_on_demand_waiting").await;
    assert!(waiting <= 128.0, "{waiting}");
    // One question in a second, and those of ten seconds at once.
    let bound = 10 + began.elapsed().as_secs() + 2;
    let asked = endpoint.asked().len();
    assert!(
        u64::try_from(asked).is_ok_and(|it| it <= bound),
        "{asked} of {bound}"
    );
    assert!(asked < NAMES / 10, "{asked}");
    assert_eq!(ca.issued(), 1);
    assert!(!ca.log().contains("flood.test"));
    drop(flood);
    let gone =
        eventually(async || (world.metric("myriad_on_demand_waiting").await == 0.0).then_some(()));
    gone.await.expect("their places are free");
    world.stop().await;
}
