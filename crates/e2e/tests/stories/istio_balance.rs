//! Fields of DestinationRules that other stories have not met: what leads back to an endpoint,
//! limits of connections, TLS that is verified, and PROXY protocol of version 2.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::istio::{Scene, TO, destination_rule, free_port, secret};
use myriad_e2e::world::eventually;
use myriad_e2e::{Backend, World};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A world whose endpoints have this policy, and no retries.
async fn serve(endpoints: &[SocketAddr], policy: &str) -> World {
    serve_with(Scene::new(), endpoints, policy).await
}

async fn serve_with(scene: Scene, endpoints: &[SocketAddr], policy: &str) -> World {
    let once = format!("retries: {{attempts: 0}}, {TO}");
    let rule = destination_rule("api", &format!("trafficPolicy: {policy}"));
    let scene = scene.to(endpoints).rules(&[&once]).with(&rule);
    scene.serve().await
}

async fn backends(count: usize) -> Vec<Backend> {
    let mut all = Vec::new();
    for number in 0..count {
        all.push(Backend::start(&number.to_string()).await);
    }
    all
}

fn addresses(backends: &[Backend]) -> Vec<SocketAddr> {
    backends.iter().map(Backend::address).collect()
}

/// The endpoints that answered, in order and each once.
async fn answerers(world: &World, asks: &[(&str, &str)]) -> Vec<String> {
    let mut seen = Vec::new();
    for (url, from) in asks {
        let curl = world.curl(url).args(&["--interface", from]);
        seen.push(curl.ask().await.told()["backend"].to_string());
    }
    seen.sort();
    seen.dedup();
    seen
}

#[tokio::test]
async fn equal_clients_and_equal_queries_lead_to_one_endpoint() {
    let all = backends(3).await;
    for (key, is_by_client) in [
        ("useSourceIp: true", true),
        ("useSourceIp: true, maglev: {}", true),
        ("httpQueryParameterName: user", false),
        (
            "httpQueryParameterName: user, maglev: {tableSize: 131}",
            false,
        ),
    ] {
        let policy = format!("{{loadBalancer: {{consistentHash: {{{key}}}}}}}");
        let world = serve(&addresses(&all), &policy).await;
        let mut everybody = Vec::new();
        for number in 1..13 {
            let url = match is_by_client {
                true => "http://a.test/".to_owned(),
                false => format!("http://a.test/?a=b&user={number}"),
            };
            let from = match is_by_client {
                true => format!("127.0.0.{number}"),
                false => "127.0.0.1".to_owned(),
            };
            let one = answerers(&world, &[(&*url, &*from); 4]).await;
            assert_eq!(one.len(), 1, "{key}: {number} was answered by {one:?}");
            everybody.extend(one);
        }
        everybody.sort();
        everybody.dedup();
        assert!(everybody.len() > 1, "{key}: all were answered by one");
        world.stop().await;
    }
}

/// An endpoint that notes what comes first on each connection, and answers all requests.
async fn noting() -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let firsts = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let firsts = firsts.clone();
            tokio::spawn(async move {
                let mut is_first = true;
                while let Some(head) = read_head(&mut tcp).await {
                    if is_first {
                        firsts.lock().expect("nobody panicked").push(head);
                    }
                    is_first = false;
                    let _ = tcp.write_all(OK).await;
                }
            });
        }
    });
    (address, seen)
}

async fn read_head(tcp: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") || !head.windows(4).any(|it| it == b"HTTP") {
        head.push(tcp.read_u8().await.ok()?);
    }
    Some(head)
}

#[tokio::test]
async fn an_endpoint_is_told_the_client_in_version_2_where_the_rule_says_so() {
    let (address, seen) = noting().await;
    let world = serve(&[address], "{proxyProtocol: {version: V2}}").await;
    let from = ["--interface", "127.0.0.9"];
    let answer = world.curl("http://a.test/").args(&from).ask().await;
    assert_eq!(answer.body, "ok");
    let heads = seen.lock().expect("nobody panicked").concat();
    // The signature, version 2 and PROXY, TCP over IPv4, 12 bytes of addresses.
    let wanted = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x09";
    assert!(heads.starts_with(wanted), "{heads:?}");
    world.stop().await;
}

#[tokio::test]
async fn connections_bear_as_many_requests_as_the_rule_says() {
    for (policy, wanted) in [
        ("{connectionPool: {http: {maxRequestsPerConnection: 1}}}", 4),
        ("{connectionPool: {http: {maxRequestsPerConnection: 0}}}", 1),
    ] {
        let (address, seen) = noting().await;
        let scene = Scene::new().argument("--workers=1");
        let world = serve_with(scene, &[address], policy).await;
        for _ in 0..4 {
            assert_eq!(world.get("http://a.test/").await.body, "ok");
        }
        let connections = seen.lock().expect("nobody panicked").len();
        assert_eq!(connections, wanted, "{policy}");
        world.stop().await;
    }
}

#[tokio::test]
async fn who_finds_no_connection_waits_and_beyond_the_limit_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let policy = "{connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 1}}}";
    let address = listener.local_addr().expect("an address");
    let scene = Scene::new().argument("--workers=1");
    let world = Arc::new(serve_with(scene, &[address], policy).await);
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let world = world.clone();
        asked.spawn(async move { world.get("http://a.test/").await });
    }
    let (mut tcp, _) = listener.accept().await.expect("a connection");
    read_head(&mut tcp).await.expect("a request");
    // One holds the connection, one waits for it, and one is too many.
    let refused = asked
        .join_next()
        .await
        .expect("an answer")
        .expect("no panic");
    assert_eq!(
        (refused.status, refused.body.lines().next()),
        (503, Some("upstream overflow"))
    );
    tcp.write_all(OK).await.expect("it is heard");
    read_head(&mut tcp).await.expect("the one that waited");
    tcp.write_all(OK).await.expect("it is heard");
    while let Some(answer) = asked.join_next().await {
        assert_eq!(answer.expect("no panic").body, "ok");
    }
}

/// An endpoint over TLS that answers with the name in the handshake.
async fn over_tls(pair: &Pair) -> SocketAddr {
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
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(tcp).await else {
                continue;
            };
            let name = tls.get_ref().1.server_name().unwrap_or("none").to_owned();
            let mut head = vec![0; 4_096];
            let _ = tls.read(&mut head).await;
            let length = name.len();
            let text = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{name}"
            );
            let _ = tls.write_all(text.as_bytes()).await;
            let _ = tls.shutdown().await;
        }
    });
    address
}

#[tokio::test]
async fn endpoints_are_verified_by_authority_and_name_where_tls_begins_here() {
    let authority = Authority::new();
    let address = over_tls(&authority.issue(&["backend.test"])).await;
    let (known, other) = (Authority::new(), "credentialName: other");
    for (terms, wanted) in [
        (
            "credentialName: roots, sni: backend.test",
            Some("backend.test"),
        ),
        (
            "credentialName: roots, sni: other.test, subjectAltNames: [backend.test]",
            Some("other.test"),
        ),
        (
            "credentialName: roots, sni: backend.test, subjectAltNames: [other.test]",
            None,
        ),
        ("credentialName: roots, sni: other.test", None),
        (&*format!("{other}, sni: backend.test"), None),
        ("credentialName: nobody, sni: backend.test", None),
        ("sni: backend.test", None),
        (
            "sni: backend.test, insecureSkipVerify: true",
            Some("backend.test"),
        ),
    ] {
        let roots = |name: &str, authority: &Authority| {
            secret(name, "Opaque", &[("ca.crt", authority.root())])
                .replace("namespace: default", "namespace: istio-system")
        };
        let scene = Scene::new()
            .with(&roots("roots", &authority))
            .with(&roots("other", &known));
        let policy = format!("{{tls: {{mode: SIMPLE, {terms}}}}}");
        let world = serve_with(scene, &[address], &policy).await;
        let answer = world.get("http://a.test/").await;
        let body = (answer.status == 200).then_some(&*answer.body);
        assert_eq!(body, wanted, "{terms}: {answer:?}");
        assert!(wanted.is_some() || answer.status >= 502, "{answer:?}");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_port_with_settings_of_its_own_takes_nothing_over() {
    let policy = |port: u32| {
        format!(
            "{{connectionPool: {{http: {{maxRequestsPerConnection: 1}}}}, portLevelSettings: \
             [{{port: {{number: {port}}}, loadBalancer: {{simple: RANDOM}}}}]}}"
        )
    };
    for (port, wanted) in [(80, 1), (81, 3)] {
        let (address, seen) = noting().await;
        let scene = Scene::new().argument("--workers=1");
        let world = serve_with(scene, &[address], &policy(port)).await;
        for _ in 0..3 {
            assert_eq!(world.get("http://a.test/").await.body, "ok");
        }
        let connections = seen.lock().expect("nobody panicked").len();
        assert_eq!(connections, wanted, "{port}");
        world.stop().await;
    }
}

#[tokio::test]
async fn an_endpoint_that_nobody_can_connect_to_is_left_out() {
    let all = backends(2).await;
    let dead = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let policy = "{loadBalancer: {simple: ROUND_ROBIN}, outlierDetection: \
                  {splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 2, \
                  baseEjectionTime: 600s, maxEjectionPercent: 100, interval: 1s}}";
    let mut endpoints = addresses(&all);
    endpoints.push(dead);
    let world = serve(&endpoints, policy).await;
    let settled = eventually(async || {
        let mut statuses = Vec::new();
        for _ in 0..6 {
            statuses.push(world.get("http://a.test/").await.status);
        }
        let is_calm = |answer: &u16| *answer == 200;
        statuses.iter().all(is_calm).then_some(())
    });
    assert!(settled.await.is_some(), "the dead endpoint is left out");
    assert_eq!(world.metric("myriad_upstream_ejections_total").await, 1.0);
    world.stop().await;
}
