//! Annotations that ingress-nginx's users bring, as clients see them.

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};

const NGINX: &str = "nginx.ingress.kubernetes.io";

/// A world with one site, `a.test`, with TLS and these annotations.
async fn serve(backend: &Backend, annotations: &[(&str, &str)]) -> World {
    let authority = Authority::new();
    let mut site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test"]));
    for (key, value) in annotations {
        site = site.annotation(&format!("{NGINX}/{key}"), value);
    }
    World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await
}

#[tokio::test]
async fn a_host_with_tls_redirects_but_for_the_challenges_of_acme() {
    let backend = Backend::start("a").await;
    let world = serve(&backend, &[]).await;
    let answer = world.get("http://a.test/x?y=1").await;
    assert_eq!(answer.status, 308);
    let location = format!("https://a.test:{}/x?y=1", world.https().port());
    assert_eq!(answer.header("location"), Some(&*location));
    let challenge = world
        .get("http://a.test/.well-known/acme-challenge/token")
        .await;
    assert_eq!(challenge.status, 200);
    world.stop().await;

    let world = serve(&backend, &[("ssl-redirect", "false")]).await;
    assert_eq!(world.get("http://a.test/").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn paths_are_rewritten_by_groups_and_the_query_stays() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(backend.address())
        .path("/api(/|$)(.*)")
        .annotation(&format!("{NGINX}/rewrite-target"), "/$2")
        .annotation(&format!("{NGINX}/use-regex"), "true");
    let site = site
        .yaml()
        .replace("pathType: Prefix", "pathType: ImplementationSpecific");
    let world = World::serve_with(authority, &[("a.yaml", site)], &[]).await;
    let told = world.get("http://a.test/api/v1/things?id=7").await.told();
    assert_eq!(told["uri"], "/v1/things?id=7");
    assert_eq!(world.get("http://a.test/other").await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn only_listed_addresses_get_in() {
    let backend = Backend::start("a").await;
    let world = serve(&backend, &[("whitelist-source-range", "10.0.0.0/8")]).await;
    assert_eq!(world.get("https://a.test/").await.status, 403);
    world.stop().await;
    let world = serve(
        &backend,
        &[("whitelist-source-range", "10.0.0.0/8,127.0.0.0/8")],
    )
    .await;
    assert_eq!(world.get("https://a.test/").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn listed_addresses_stay_out_whatever_lets_them_in() {
    let backend = Backend::start("a").await;
    let annotations = [
        ("whitelist-source-range", "127.0.0.0/8"),
        ("denylist-source-range", "127.0.0.2"),
        ("satisfy", "any"),
    ];
    let world = serve(&backend, &annotations).await;
    for (client, status) in [("127.0.0.1", 200), ("127.0.0.2", 403)] {
        let curl = world.curl("https://a.test/");
        let answer = curl.args(&["--interface", client]).ask().await;
        assert_eq!(answer.status, status, "{client}: {answer:?}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_and_without_a_length() {
    let backend = Backend::start("a").await;
    let world = serve(&backend, &[("proxy-body-size", "1k")]).await;
    let body = "x".repeat(2_000);
    for extra in ["Content-Type: a/b", "Transfer-Encoding: chunked"] {
        let arguments = ["--data-binary", &body, "-H", extra, "--http1.1"];
        let answer = world.curl("https://a.test/").args(&arguments).ask().await;
        assert_eq!(answer.status, 413, "{extra}: {answer:?}");
    }
    let answer = world
        .curl("https://a.test/")
        .args(&["--data-binary", &body[..1_000]])
        .ask()
        .await;
    assert_eq!(answer.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_preflight_is_answered_and_the_endpoint_is_not_asked() {
    let backend = Backend::start("a").await;
    let annotations = [
        ("enable-cors", "true"),
        ("cors-allow-origin", "https://*.shop.test, https://one.test"),
    ];
    let world = serve(&backend, &annotations).await;
    let ask = async |origin: &str| {
        let origin = format!("Origin: {origin}");
        let method = "Access-Control-Request-Method: PUT";
        let arguments = ["-X", "OPTIONS", "-H", &origin, "-H", method];
        world.curl("https://a.test/").args(&arguments).ask().await
    };
    let answer = ask("https://x.shop.test").await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(
        answer.header("access-control-allow-origin"),
        Some("https://x.shop.test")
    );
    let answer = ask("https://evil.test").await;
    assert_eq!(
        answer.header("access-control-allow-origin"),
        None,
        "{answer:?}"
    );
    assert_eq!(backend.asked(), 0);
    world.stop().await;
}

#[tokio::test]
async fn a_canary_takes_those_who_ask_for_it() {
    let (main, canary) = (Backend::start("main").await, Backend::start("canary").await);
    let main_site = Site::new("a.test").to(main.address());
    // The same host in Ingress and Service of another name.
    let canary_site = Site::new("a.test")
        .to(canary.address())
        .annotation(&format!("{NGINX}/canary"), "true")
        .annotation(&format!("{NGINX}/canary-by-header"), "X-Canary")
        .annotation(&format!("{NGINX}/canary-by-cookie"), "canary")
        .yaml()
        .replace("name: a-test", "name: canary")
        .replace("service-name: a-test", "service-name: canary");
    let files = [
        ("main.yaml", main_site.yaml()),
        ("canary.yaml", canary_site),
    ];
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    let ask = async |header: &str| {
        let answer = world
            .curl("http://a.test/")
            .args(&["-H", header])
            .ask()
            .await;
        answer.told()["backend"]
            .as_str()
            .map(str::to_owned)
            .unwrap_or_default()
    };
    assert_eq!(ask("X-Other: 1").await, "main");
    assert_eq!(ask("X-Canary: always").await, "canary");
    assert_eq!(ask("Cookie: a=b; canary=always").await, "canary");
    world.stop().await;
}

#[tokio::test]
async fn a_cookie_keeps_a_client_on_its_endpoint() {
    let (first, second) = (
        Backend::start("first").await,
        Backend::start("second").await,
    );
    let site = Site::new("a.test")
        .to(first.address())
        .to(second.address())
        .annotation(&format!("{NGINX}/affinity"), "cookie");
    let world = World::serve_with(Authority::new(), &[("a.yaml", site.yaml())], &[]).await;
    let answer = world.get("http://a.test/").await;
    let cookie = answer.header("set-cookie").expect("a cookie").to_owned();
    let cookie = cookie.split(';').next().expect("its value");
    let header = format!("Cookie: {cookie}");
    for _ in 0..20 {
        let again = world
            .curl("http://a.test/")
            .args(&["-H", &header])
            .ask()
            .await;
        assert_eq!(again.told()["backend"], answer.told()["backend"]);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_cookie_says_which_sites_it_goes_along_with() {
    let backend = Backend::start("a").await;
    let annotations = [
        ("affinity", "cookie"),
        ("session-cookie-domain", "a.test"),
        ("session-cookie-samesite", "None"),
        ("session-cookie-conditional-samesite-none", "true"),
    ];
    let world = serve(&backend, &annotations).await;
    let old = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
               Chrome/60.0.3112.90 Safari/537.36";
    for (agent, end) in [
        (
            "curl/8.0",
            "; Path=/; Domain=a.test; Secure; HttpOnly; SameSite=None",
        ),
        (old, "; Path=/; Domain=a.test; Secure; HttpOnly"),
    ] {
        let curl = world.curl("https://a.test/").args(&["--user-agent", agent]);
        let answer = curl.ask().await;
        let cookie = answer.header("set-cookie").expect("a cookie");
        assert!(cookie.ends_with(end), "{agent}: {cookie}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_private_site_is_never_opened_by_moving_here() {
    let backend = Backend::start("a").await;
    let world = serve(
        &backend,
        &[("auth-type", "basic"), ("auth-secret", "users")],
    )
    .await;
    assert_eq!(world.get("https://a.test/").await.status, 503);
    let findings = world.findings().await;
    assert!(
        findings
            .iter()
            .any(|finding| finding.contains("auth-secret")),
        "{findings:?}"
    );
    assert_eq!(backend.asked(), 0);
    world.stop().await;
}

#[tokio::test]
async fn a_snippet_that_adds_is_left_out_and_one_that_may_restrict_closes() {
    let backend = Backend::start("a").await;
    for (snippet, status) in [
        ("add_header X-Frame-Options DENY;", 200),
        ("proxy_set_header X-Forwarded-User \"\";", 503),
        ("if ($http_x) { return 301 /login; }", 503),
    ] {
        let annotations = [
            ("configuration-snippet", snippet),
            ("ssl-redirect", "false"),
        ];
        let world = serve(&backend, &annotations).await;
        let answer = world.get("http://a.test/").await;
        assert_eq!(answer.status, status, "{snippet}");
        if status == 503 {
            let body = "closed: what restricts this path cannot be honoured\n";
            assert_eq!(answer.body, body);
        }
        world.stop().await;
    }
}

#[tokio::test]
async fn a_redirect_keeps_what_was_asked_for() {
    let backend = Backend::start("a").await;
    let target = ("temporal-redirect", "https://b.test$request_uri");
    let world = serve(&backend, &[target, ("ssl-redirect", "false")]).await;
    let answer = world.get("http://a.test/x?y=1").await;
    assert_eq!(answer.status, 302);
    assert_eq!(answer.header("location"), Some("https://b.test/x?y=1"));
    world.stop().await;
}

#[tokio::test]
async fn browsers_are_asked_for_https_where_an_ingress_says_so_and_can_keep_it() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let asking = |host: &str| {
        let site = Site::new(host).to(backend.address());
        let site = site.annotation("myriad.dev/hsts", "max-age=600; includeSubDomains");
        site.annotation(&format!("{NGINX}/ssl-redirect"), "false")
    };
    let own = asking("a.test").tls(&authority.issue(&["a.test"]));
    let silent = Site::new("c.test").to(backend.address());
    let silent = silent.tls(&authority.issue(&["c.test"]));
    let files = [
        ("a.yaml", own.yaml()),
        ("b.yaml", asking("b.test").yaml()),
        ("c.yaml", silent.yaml()),
    ];
    let arguments = ["--default-certificate=default/a-test"];
    let world = World::serve_with(authority, &files, &arguments).await;
    for (url, wanted) in [
        ("https://a.test/", Some("max-age=600; includeSubDomains")),
        ("http://a.test/", None),
        ("https://b.test/", None),
        ("https://c.test/", None),
    ] {
        // The certificate of last resort is not for b.test.
        let answer = world.curl(url).args(&["--insecure"]).ask().await;
        assert_eq!(answer.status, 200, "{url}: {answer:?}");
        let found = answer.header("strict-transport-security");
        assert_eq!(found, wanted, "{url}");
    }
    world.stop().await;
}

#[tokio::test]
async fn headers_of_a_configmap_are_put_on_responses_and_follow_it() {
    let backend = Backend::start("a").await;
    let key = format!("{NGINX}/custom-headers");
    let site = Site::new("a.test").to(backend.address());
    let site = site.annotation(&key, "default/fields");
    let map = |value: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{namespace: default, name: fields}}\n\
             data:\n  X-Frame-Options: {value}\n  Connection: close\n  Content-Type: ''\n"
        )
    };
    let files = [("a.yaml", site.yaml()), ("map.yaml", map("DENY"))];
    let world = World::serve(&files).await;
    let answer = world.get("http://a.test/").await;
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    assert_eq!(answer.header("connection"), None, "{answer:?}");
    assert_eq!(answer.header("content-type"), None, "{answer:?}");
    let findings = world.findings().await;
    assert!(findings.iter().any(|it| it.contains("Connection")));
    world.write("map.yaml", &map("SAMEORIGIN"));
    let is_new =
        |answer: &myriad_e2e::Answer| answer.header("x-frame-options") == Some("SAMEORIGIN");
    world.eventually("http://a.test/", is_new).await;
    world.stop().await;
}
