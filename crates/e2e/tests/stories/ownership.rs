//! Tenants that reach for each other's hosts, as clients see it.

use myriad_e2e::authority::Authority;
use myriad_e2e::istio::{self, Scene};
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, Site, World};

use super::istio_tcp::tls_endpoint;

/// The wildcard `*.wild.test` of one namespace, and `login.wild.test` of another without TLS.
async fn below_a_wildcard(owner: &Backend, other: &Backend, arguments: &[&str]) -> World {
    let authority = Authority::new();
    let wild = Site::new("*.wild.test").to(owner.address());
    let wild = wild.tls(&authority.issue(&["*.wild.test"]));
    let login = Site::new("login.wild.test").to(other.address());
    let files = [
        ("wild.yaml", wild.namespace("a").yaml()),
        ("login.yaml", login.namespace("b").yaml()),
    ];
    World::serve_with(authority, &files, arguments).await
}

#[tokio::test]
async fn a_name_below_the_wildcard_of_another_tenant_is_not_served_with_its_certificate() {
    let (owner, thief) = (Backend::start("owner").await, Backend::start("thief").await);
    let world = below_a_wildcard(&owner, &thief, &[]).await;
    let plain = world.get("http://login.wild.test/").await;
    assert_eq!(plain.told()["backend"], "thief");
    for url in ["https://login.wild.test/", "https://x.wild.test/"] {
        for version in ["--http1.1", "--http2"] {
            let curl = world.curl(url);
            let answer = curl
                .args(&["-H", "Host: login.wild.test", version])
                .ask()
                .await;
            assert_eq!(answer.told()["backend"], "owner", "{url} {version}");
        }
    }
    assert_eq!(thief.asked(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_setting_shares_a_wildcard() {
    let (owner, friend) = (
        Backend::start("owner").await,
        Backend::start("friend").await,
    );
    let world = below_a_wildcard(&owner, &friend, &["--wildcard-sharing=b"]).await;
    let answer = world.get("https://login.wild.test/").await;
    assert_eq!(answer.told()["backend"], "friend");
    world.stop().await;
}

#[tokio::test]
async fn a_younger_ingress_takes_no_host_that_a_gateway_asks_for_client_certificates() {
    let (owner, thief) = (Backend::start("owner").await, Backend::start("thief").await);
    let clients = Authority::new();
    let scene = Scene::new();
    let pair = scene.authority().issue(&["a.test"]);
    let ingress = Site::new("a.test").to(thief.address()).tls(&pair);
    let ingress = format!("---\n{}", ingress.namespace("thief").yaml());
    let world = scene
        .own(&pair, &[("ca.crt", clients.root())])
        .servers(&[
            "port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test]",
            "port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.test], \
             tls: {mode: MUTUAL, credentialName: own}",
        ])
        .to(&[owner.address()])
        .with(&ingress)
        .serve()
        .await;
    let plain = world.get("http://a.test/").await;
    assert_eq!(plain.told()["backend"], "owner");
    let unproved = world.get("https://a.test/").await;
    assert_eq!(unproved.status, 0, "no client certificate");
    assert_eq!(thief.asked(), 0);
    world.stop().await;
}

#[tokio::test]
async fn a_rule_for_tls_takes_no_name_of_another_tenant() {
    let authority = Authority::new();
    let owner = Backend::start("owner").await;
    let pair = authority.issue(&["a.test", "free.test"]);
    let thief = tls_endpoint("thief", &pair).await;
    let site = Site::new("a.test").to(owner.address());
    let site = site.tls(&authority.issue(&["a.test"])).namespace("a");
    let servers = [
        "port: {number: 443, name: t, protocol: TLS}, hosts: ['*'], \
                    tls: {mode: PASSTHROUGH}",
    ];
    let rule = "match: [{sniHosts: [a.test, free.test]}], \
                route: [{destination: {host: thief, port: {number: 80}}}]";
    let names = istio::virtual_service("thief", "hosts: ['*'], gateways: [edge]", "tls", &[rule]);
    let taken = istio::gateway("edge", &servers) + &istio::service("thief", &[thief]) + &names;
    let files = [("site.yaml", site.yaml()), ("thief.yaml", taken)];
    let world = World::serve_with(authority, &files, &[]).await;
    let kept = world.get("https://a.test/").await;
    assert_eq!(kept.told()["backend"], "owner");
    assert_eq!(world.get("https://free.test/").await.body, "thief");
    let findings = world.findings().await;
    let mut findings = findings.iter();
    assert!(findings.any(|it| it.contains("a.test, which belongs to namespace a")));
    world.stop().await;
}

#[tokio::test]
async fn a_younger_wildcard_takes_no_https_from_an_older_name() {
    for has_secret in [false, true] {
        let (owner, thief) = (Backend::start("owner").await, Backend::start("thief").await);
        let authority = Authority::new();
        // No certificate names the host but that of the operator and that of the wildcard.
        let operator = Site::new("op.test").to(owner.address()).namespace("op");
        let operator = operator.tls(&authority.issue(&["*.wild.test"]));
        let plain = Site::new("plain.wild.test").to(owner.address());
        let wild = Site::new("*.wild.test").to(thief.address()).namespace("b");
        let wild = wild.tls(&authority.issue(&["*.wild.test"])).yaml();
        let wild = match has_secret {
            true => wild,
            false => wild.replace("    secretName: any-wild-test\n", ""),
        };
        let files = [
            ("op.yaml", operator.yaml()),
            ("plain.yaml", plain.namespace("a").yaml()),
        ];
        let arguments = ["--default-certificate=op/op-test"];
        let world = World::serve_with(authority, &files, &arguments).await;
        let before = world.get("https://plain.wild.test/").await;
        assert_eq!(before.told()["backend"], "owner");
        world.write("wild.yaml", &wild);
        let other = world.eventually("https://x.wild.test/", |it| it.status == 200);
        assert_eq!(other.await.told()["backend"], "thief");
        let after = world.get("https://plain.wild.test/").await;
        assert_eq!(after.told()["backend"], "owner", "has_secret={has_secret}");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_younger_wildcard_answers_no_plain_http_for_a_name_of_https_alone() {
    let (owner, thief) = (Backend::start("owner").await, Backend::start("thief").await);
    let scene = Scene::new();
    let pair = scene.authority().issue(&["a.test"]);
    let world = scene
        .own(&pair, &[])
        .servers(&[
            "port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.test], \
             tls: {mode: SIMPLE, credentialName: own}",
        ])
        .to(&[owner.address()])
        .serve()
        .await;
    assert_eq!(world.get("http://a.test/").await.status, 404);
    let wild = Site::new("*.test").to(thief.address()).namespace("thief");
    world.write("wild.yaml", &wild.yaml());
    let other = world.eventually("http://x.test/", |it| it.status == 200);
    assert_eq!(other.await.told()["backend"], "thief");
    assert_eq!(world.get("http://a.test/").await.status, 404);
    let kept = world.get("https://a.test/").await;
    assert_eq!(kept.told()["backend"], "owner");
    assert_eq!(thief.asked(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_list_of_hosts_says_which_tenant_may_serve_what_whoever_came_first() {
    let (owner, thief) = (Backend::start("owner").await, Backend::start("thief").await);
    let directory = tempfile::tempdir().expect("a directory");
    let tenants = directory.path().join("tenants.yaml");
    let text = "namespaces:\n  a: {hosts: [\"*.a.test\"], quota: {hosts: 2}}\n  b: {hosts: []}\n";
    std::fs::write(&tenants, text).expect("a file");
    let site = |host: &str, namespace: &str, backend: &Backend| {
        let site = Site::new(host).to(backend.address());
        site.namespace(namespace).yaml()
    };
    let argument = format!("--tenants={}", tenants.display());
    let stolen = ("stolen.yaml", site("login.a.test", "b", &thief));
    let world = World::serve_with(Authority::new(), &[stolen], &[&argument]).await;
    assert_eq!(world.get("http://login.a.test/").await.status, 404);
    let findings = world.findings().await.join("\n");
    let told = "the hosts of namespace b in --tenants do not cover host login.a.test";
    assert!(findings.contains(told), "{findings}");
    let is_from = |it: &Answer, name: &str| it.status == 200 && it.told()["backend"] == name;
    world.write("free.yaml", &site("c.test", "c", &thief));
    world
        .eventually("http://c.test/", |it| is_from(it, "thief"))
        .await;
    // Of three hosts of the namespace two are within its quota: the oldest, by their names.
    for host in ["login.a.test", "shop.a.test", "third.a.test"] {
        world.write(&format!("{host}.yaml"), &site(host, "a", &owner));
    }
    for url in ["http://login.a.test/", "http://shop.a.test/"] {
        world.eventually(url, |it| is_from(it, "owner")).await;
    }
    let told = eventually(async || {
        let findings = world.findings().await;
        let mut told = findings.into_iter();
        told.find(|it| it.contains("beyond 2 hosts"))
    });
    let told = told.await.expect("one is told");
    assert!(told.contains("third-a-test") && told.contains("raise hosts: 2 of namespace a"));
    assert_eq!(world.get("http://third.a.test/").await.status, 404);
    // Another file takes effect while it serves: one more for the one, and none for the other.
    let others = "namespaces:\n  a: {hosts: [\"*.a.test\"], quota: {hosts: 3}}\n  c: {hosts: []}\n";
    std::fs::write(&tenants, others).expect("a file");
    world
        .eventually("http://third.a.test/", |it| is_from(it, "owner"))
        .await;
    world
        .eventually("http://c.test/", |it| it.status == 404)
        .await;
    assert_eq!(world.get("http://shop.a.test/").await.status, 200);
    world.stop().await;
}
