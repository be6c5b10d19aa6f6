//! Browsers that sign in at a provider of OpenID Connect, at a gate that an Ingress has asked by
//! the contract of oauth2-proxy.

use std::net::SocketAddr;

use myriad_e2e::authority::Authority;
use myriad_e2e::gate::{CLIENT, Gate};
use myriad_e2e::istio::service;
use myriad_e2e::openid::OpenIdProvider;
use myriad_e2e::{Answer, Backend, Site, World};

const NGINX: &str = "nginx.ingress.kubernetes.io";

/// A browser, with its cookies.
struct Browser<'a> {
    world: &'a World,
    provider: SocketAddr,
    jar: String,
}

impl<'a> Browser<'a> {
    fn new(world: &'a World, provider: SocketAddr, name: &str) -> Self {
        Browser {
            world,
            provider,
            jar: world.keep(name, ""),
        }
    }

    /// Asks for a URL of the site, or of the provider.
    async fn ask(&self, url: &str, args: &[&str]) -> Answer {
        let own = self.world.http();
        let (_, rest) = url.split_once("://").expect("a URL");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.split(':').next().unwrap_or_default();
        let address = match host {
            "127.0.0.1" => self.provider,
            _ => own,
        };
        let curl = self
            .world
            .curl_at(address, &format!("http://{host}/{path}"));
        let cookies = ["--cookie", &*self.jar, "--cookie-jar", &*self.jar];
        curl.args(&cookies).args(args).ask().await
    }

    /// Goes where an answer leads from a URL; none where it leads nowhere.
    fn next(from: &str, answer: &Answer) -> Option<String> {
        let location = answer.header("location")?;
        if location.starts_with("http") {
            return Some(location.to_owned());
        }
        let (scheme, rest) = from.split_once("://")?;
        let authority = rest.split('/').next()?;
        Some(format!("{scheme}://{authority}{location}"))
    }

    /// Follows redirects from a URL, and fills in the forms of the provider on the way.
    async fn visit(&self, url: &str, name: &str) -> (String, Answer) {
        let mut url = url.to_owned();
        let mut answer = self.ask(&url, &[]).await;
        for _ in 0..20 {
            if let Some(next) = Browser::next(&url, &answer) {
                url = next;
                answer = self.ask(&url, &[]).await;
                continue;
            }
            let is_form = url.contains("/interaction/") && answer.status == 200;
            if !is_form {
                return (url, answer);
            }
            let form = match answer.body.contains("value=\"login\"") {
                true => format!("prompt=login&login={name}&password=any"),
                false => "prompt=consent".to_owned(),
            };
            answer = self.ask(&url, &["--data", &form]).await;
        }
        panic!("{url} leads nowhere: {answer:?}");
    }
}

/// The files of two hosts: one whose gate stands below a path of its own, as oauth2-proxy has it,
/// and one that names it as a Service, and leads nobody there.
fn files(backend: SocketAddr, gate: SocketAddr) -> [(&'static str, String); 4] {
    let with =
        |site: Site, name: &str, value: &str| site.annotation(&format!("{NGINX}/{name}"), value);
    let fields = "X-Auth-Request-User, X-Auth-Request-Email";
    let app = Site::new("app.test").to(backend);
    let app = with(app, "auth-url", "http://$host/oauth2/auth");
    let signin = "http://$http_host/oauth2/start?rd=$escaped_request_uri";
    let app = with(app, "auth-signin", signin);
    let app = with(app, "auth-response-headers", fields);
    let lone = Site::new("lone.test").to(backend);
    let lone = with(
        lone,
        "auth-url",
        "http://gate.default.svc.cluster.local/oauth2/auth",
    );
    let lone = with(lone, "auth-response-headers", fields);
    let path = "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
                metadata: {namespace: default, name: oauth2}\n\
                spec:\n  rules:\n  - host: app.test\n    http:\n      paths:\n      \
                - {path: /oauth2, pathType: Prefix, backend: {service: {name: gate, port: \
                {number: 80}}}}\n";
    [
        ("app.yaml", app.yaml()),
        ("lone.yaml", lone.yaml()),
        ("oauth2.yaml", path.to_owned()),
        ("gate.yaml", service("gate", &[gate])),
    ]
}

#[tokio::test]
async fn a_browser_signs_in_at_a_provider_and_gets_what_it_asked_for() {
    let (backend, gate) = (Backend::start("a").await, Gate::start().await);
    let files = files(backend.address(), gate.address());
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    let callback = format!("http://app.test:{}/oauth2/callback", world.http().port());
    let (id, secret) = CLIENT;
    let provider = OpenIdProvider::start(id, secret, &callback).await;
    gate.sign_in_at(provider.issuer(), callback);

    let browser = Browser::new(&world, provider.address, "ann.jar");
    let refused = browser.ask("http://app.test/cart?a=b", &[]).await;
    assert_eq!(refused.status, 302, "{refused:?}");
    let location = refused.header("location").expect("a location");
    assert!(
        location.ends_with("/oauth2/start?rd=%2Fcart%3Fa%3Db"),
        "{location}"
    );
    assert_eq!(backend.asked(), 0);

    let (url, answer) = browser.visit("http://app.test/cart?a=b", "ann").await;
    assert!(url.ends_with("/cart?a=b"), "{url}: {answer:?}");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.told()["headers"]["x-auth-request-user"], "ann");
    assert_eq!(
        answer.told()["headers"]["x-auth-request-email"],
        "ann@staff.test"
    );
    let cookie = answer.header("set-cookie");
    assert_eq!(cookie, Some("_oauth2_proxy_seen=ann; Path=/"));

    // Whoever is somebody cannot be somebody else, and whoever is nobody is that.
    let forged = ["--header", "X-Auth-Request-User: mallory"];
    let answer = browser.ask("http://app.test/", &forged).await;
    assert_eq!(answer.told()["headers"]["x-auth-request-user"], "ann");
    for (args, status) in [
        (&["--cookie", "_oauth2_proxy=guessed"][..], 401),
        (&forged[..], 401),
    ] {
        let answer = world.curl("http://lone.test/").args(args).ask().await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.header("location"), None);
    }
    assert_eq!(backend.asked(), 2);

    // Another browser is another user.
    let other = Browser::new(&world, provider.address, "bob.jar");
    let (_, answer) = other.visit("http://app.test/", "bob").await;
    assert_eq!(answer.told()["headers"]["x-auth-request-user"], "bob");

    browser.ask("http://app.test/oauth2/sign_out", &[]).await;
    let answer = browser.ask("http://app.test/cart", &[]).await;
    assert_eq!(answer.status, 302, "{answer:?}");
    let answer = other.ask("http://app.test/cart", &[]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    world.stop().await;
}

#[tokio::test]
async fn nobody_passes_while_the_gate_is_away() {
    let (backend, gate) = (Backend::start("a").await, Gate::start().await);
    let files = files(backend.address(), gate.address());
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    assert_eq!(world.get("http://lone.test/").await.status, 401);
    assert_eq!(gate.asked(), 1);
    world.write("gate.yaml", &service("gate", &[]));
    for host in ["lone.test", "app.test"] {
        let url = format!("http://{host}/");
        let away = world.eventually(&url, |answer| answer.status == 500);
        assert_eq!(away.await.header("location"), None, "{host}");
    }
    // Without the Service nobody knows whom to ask.
    world.delete("gate.yaml");
    let closed = world.eventually("http://lone.test/", |answer| answer.status == 503);
    assert!(closed.await.body.contains("closed"));
    assert_eq!(backend.asked(), 0);
    world.stop().await;
}
