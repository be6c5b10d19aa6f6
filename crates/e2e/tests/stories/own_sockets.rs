//! Endpoints that would lead into the gateway itself, by every way that people can write them.

use std::net::{IpAddr, SocketAddr};

use myriad_e2e::authority::Authority;
use myriad_e2e::name_server::Saying;
use myriad_e2e::{Backend, NameServer, Site, World};

use super::istio_names::{edge, entry};

/// The pages that a stranger would read at the admin address.
const PAGES: [&str; 3] = ["/config", "/metrics", "/healthz"];

/// Asks a public host for the admin pages, as `localhost` towards its endpoints.
async fn finds_nothing(world: &World, host: &str) {
    for page in PAGES {
        let answer = world.get(&format!("http://{host}{page}")).await;
        assert_eq!(answer.status, 503, "{host}{page}: {answer:?}");
    }
}

fn leading_to(host: &str, address: SocketAddr) -> String {
    let annotation = "nginx.ingress.kubernetes.io/upstream-vhost";
    let site = Site::new(host).to(address);
    site.annotation(annotation, "localhost").yaml()
}

#[tokio::test]
async fn the_admin_page_and_listeners_are_on_no_public_host() {
    let (backend, world) = World::serve_one("a.test").await;
    for (host, address) in [
        ("page.test", world.admin_address()),
        ("loop.test", world.http()),
    ] {
        world.write(&format!("{host}.yaml"), &leading_to(host, address));
        let refused = |finding: &String| finding.contains("where the gateway listens itself");
        let told = myriad_e2e::world::eventually(async || {
            let findings = world.findings().await;
            let of_host = host.replace('.', "-");
            let mut findings = findings.iter();
            findings
                .any(|it| refused(it) && it.contains(&of_host))
                .then_some(())
        });
        assert!(told.await.is_some(), "{:?}", world.findings().await);
        finds_nothing(&world, host).await;
    }
    // Other ports of the same machine are endpoints as ever.
    world.write("b.yaml", &leading_to("b.test", backend.address()));
    world
        .eventually("http://b.test/", |answer| answer.status == 200)
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_name_that_dns_leads_to_the_admin_page_is_not_followed_there() {
    let server = NameServer::start();
    server.say(
        "page.out.test",
        Saying::Addresses(vec![IpAddr::from([127, 0, 0, 1])], 60),
    );
    let resolver = format!("--resolver={}", server.address());
    let world = World::serve_with(Authority::new(), &[], &[&resolver]).await;
    let port = world.admin_address().port();
    let text = edge("a.test", "page.out.test") + &entry("page.out.test", port, "DNS");
    world.write("a.yaml", &text);
    world
        .eventually("http://a.test/config", |answer| answer.status == 503)
        .await;
    finds_nothing(&world, "a.test").await;
    let refused = world.metric("myriad_endpoint_connections_refused_total");
    assert!(refused.await >= 3.0);
    world.stop().await;
}

#[tokio::test]
async fn a_name_is_held_to_the_blocks_by_what_dns_says_each_time() {
    let one = Backend::start_at("one", SocketAddr::from(([127, 0, 0, 2], 0))).await;
    let port = one.address().port();
    let two = Backend::start_at("two", SocketAddr::from(([127, 0, 0, 3], port))).await;
    let server = NameServer::start();
    let at = |last| Saying::Addresses(vec![IpAddr::from([127, 0, 0, last])], 1);
    server.say("out.test", at(2));
    let resolver = format!("--resolver={}", server.address());
    let deny = "--endpoint-deny=127.0.0.3";
    let text = edge("a.test", "out.test") + &entry("out.test", port, "DNS");
    let (files, arguments) = ([("a.yaml", text)], [&*resolver, deny]);
    let world = World::serve_with(Authority::new(), &files, &arguments).await;
    world
        .eventually("http://a.test/", |answer| answer.status == 200)
        .await;
    server.say("out.test", at(3));
    world
        .eventually("http://a.test/", |answer| answer.status == 503)
        .await;
    assert_eq!(two.asked(), 0);
    assert!(world.metric("myriad_dns_addresses_refused_total").await >= 1.0);
    world.stop().await;
}

#[tokio::test]
async fn the_admin_address_is_called_by_no_name_of_a_stranger() {
    let world = World::serve_with(Authority::new(), &[], &["--admin-hosts=myriad.internal"]).await;
    for (host, status) in [
        ("rebind.test", 421),
        ("127.0.0.1.rebind.test:9901", 421),
        ("localhost:9901", 200),
        ("myriad.internal", 200),
    ] {
        let header = format!("Host: {host}");
        let curl = world.admin_curl("/config").args(&["-H", &header]);
        let answer = curl.ask().await;
        assert_eq!(answer.status, status, "{host}: {answer:?}");
    }
    world.stop().await;
}
