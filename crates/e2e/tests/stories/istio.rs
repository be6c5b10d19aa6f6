//! Istio's Gateways and VirtualServices, as clients see them.

use std::time::{Duration, Instant};

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};

/// A Gateway with both doors to `a.test`.
const GATEWAY: &str = "\
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test]}
  - port: {number: 443, name: https, protocol: HTTPS}
    hosts: [a.test]
    tls: {mode: SIMPLE, credentialName: a-test}
";

/// A destination of the one Service, as it stands in a rule.
const TO: &str = "route: [{destination: {host: a-test, port: {number: 80}}}]";

/// A VirtualService on `a.test` with these rules, a flow mapping each.
fn rules(rules: &[&str]) -> String {
    let rules: String = rules
        .iter()
        .map(|rule| format!("  - {{{rule}}}\n"))
        .collect();
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: a, \
         namespace: default}}\nspec:\n  hosts: [a.test]\n  gateways: [edge]\n  http:\n{rules}"
    )
}

/// A world with the Gateway, one Service with its certificate, and these rules.
async fn serve(backend: &Backend, written: &[&str]) -> World {
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test"]));
    let mut parts = site.documents();
    parts.remove(0);
    let text = format!("{}{GATEWAY}{}", parts.join("---\n"), rules(written));
    World::serve_with(authority, &[("a.yaml", text)], &[]).await
}

#[tokio::test]
async fn a_gateway_and_a_virtual_service_serve_a_host_and_a_change_is_live() {
    let backend = Backend::start("a").await;
    let world = serve(
        &backend,
        &[&format!(
            "match: [{{uri: {{exact: /p1}}}}], rewrite: {{uri: /}}, {TO}"
        )],
    )
    .await;
    for url in ["http://a.test/p1?q=1", "https://a.test/p1?q=1"] {
        assert_eq!(world.get(url).await.told()["uri"], "/?q=1");
    }
    assert_eq!(world.get("https://a.test/other").await.status, 404);
    world.write("b.yaml", &rules(&[TO]).replace("name: a,", "name: b,"));
    let other = |answer: &myriad_e2e::Answer| answer.status == 200;
    world.eventually("https://a.test/other", other).await;
    world.stop().await;
}

#[tokio::test]
async fn a_server_that_redirects_leads_to_https() {
    let backend = Backend::start("a").await;
    let world = serve(&backend, &[TO]).await;
    assert_eq!(world.get("http://a.test/x").await.status, 200);
    let closed = GATEWAY.replace(
        "hosts: [a.test]}",
        "hosts: [a.test], tls: {httpsRedirect: true}}",
    );
    world.write("b.yaml", &closed.replace("name: edge", "name: door"));
    let is_redirect = |answer: &myriad_e2e::Answer| answer.status == 301;
    let answer = world.eventually("http://a.test/x?y=1", is_redirect).await;
    let location = format!("https://a.test:{}/x?y=1", world.https().port());
    assert_eq!(answer.header("location"), Some(&*location));
    world.stop().await;
}

#[tokio::test]
async fn matches_choose_among_rules() {
    let backend = Backend::start("a").await;
    let answer = |word: &str, rest: &str| {
        format!("match: [{{{rest}}}], directResponse: {{status: 200, body: {{string: {word}}}}}")
    };
    let written = [
        answer("exact", "uri: {exact: /Exact}"),
        answer("prefix", "uri: {prefix: /pre}"),
        answer("regex", "uri: {regex: '/r[0-9]+'}"),
        answer("any-case", "uri: {prefix: /CASE}, ignoreUriCase: true"),
        answer("header", "headers: {x-a: {prefix: one}}"),
        answer("method", "method: {exact: PUT}"),
        answer("query", "queryParams: {q: {exact: '1'}}"),
        answer("without", "uri: {prefix: /w}, withoutHeaders: {x-b: {}}"),
        answer("port", "uri: {prefix: /port}, port: 443"),
        answer("scheme", "uri: {prefix: /scheme}, scheme: {exact: https}"),
        answer(
            "source",
            "uri: {prefix: /source}, sourceLabels: {istio: ingressgateway}",
        ),
        answer(
            "foreign",
            "uri: {prefix: /foreign}, sourceLabels: {istio: other}",
        ),
    ];
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    let world = serve(&backend, &written).await;
    for (wanted, path, arguments) in [
        ("exact", "/Exact", &[][..]),
        ("prefix", "/prefixed/x", &[]),
        ("regex", "/r12", &[]),
        ("any-case", "/case/x", &[]),
        ("header", "/", &["-H", "X-A: oneself"]),
        ("method", "/", &["-X", "PUT"]),
        ("query", "/?q=1", &[]),
        ("without", "/w", &[]),
        ("port", "/port", &[]),
        ("scheme", "/scheme", &[]),
        ("source", "/source", &[]),
    ] {
        let url = format!("https://a.test{path}");
        let answer = world.curl(&url).args(arguments).ask().await;
        assert_eq!(answer.body, wanted, "{path}");
    }
    for (url, arguments) in [
        ("https://a.test/exact", &[][..]),
        ("https://a.test/r12x", &[]),
        ("https://a.test/w", &["-H", "X-B: 1"]),
        ("http://a.test/port", &[]),
        ("http://a.test/scheme", &[]),
        ("https://a.test/foreign", &[]),
    ] {
        assert_eq!(
            world.curl(url).args(arguments).ask().await.status,
            404,
            "{url}"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn targets_and_headers_are_changed_on_the_way() {
    let backend = Backend::start("a").await;
    let written = format!(
        "rewrite: {{uriRegexRewrite: {{match: '^/v([0-9]+)/(.*)', rewrite: '/\\2/\\1'}}, \
         authority: inner.test}}, headers: {{request: {{set: {{x-set: s}}, add: {{x-add: a}}, \
         remove: [x-gone]}}, response: {{set: {{x-back: b}}}}}}, {TO}"
    );
    let redirect = "match: [{uri: {exact: /old}}], redirect: {uri: /new, authority: b.test, \
                    scheme: https, redirectCode: 307}";
    let world = serve(&backend, &[redirect, &written]).await;
    let curl = world
        .curl("https://a.test/v2/things?q=1")
        .args(&["-H", "X-Gone: 1"]);
    let answer = curl.ask().await;
    let told = answer.told();
    assert_eq!(told["uri"], "/things/2?q=1");
    let headers = &told["headers"];
    assert_eq!(
        (&headers["host"], &headers["x-set"]),
        (&"inner.test".into(), &"s".into())
    );
    assert_eq!(headers["x-add"], "a");
    assert!(headers.get("x-gone").is_none());
    assert_eq!(answer.header("x-back"), Some("b"));
    let answer = world.get("https://a.test/old").await;
    assert_eq!(answer.status, 307);
    assert!(
        answer
            .header("location")
            .is_some_and(|to| to.starts_with("https://b.test"))
    );
    world.stop().await;
}

#[tokio::test]
async fn trouble_on_purpose_delays_and_aborts() {
    let hit = |path: &str, fault: &str| {
        format!("match: [{{uri: {{exact: /{path}}}}}], fault: {{{fault}}}, {TO}")
    };
    let backend = Backend::start("a").await;
    let world = serve(
        &backend,
        &[
            &hit(
                "abort",
                "abort: {httpStatus: 418, percentage: {value: 100}}",
            ),
            &hit(
                "late",
                "delay: {fixedDelay: 300ms, percentage: {value: 100}}",
            ),
            &hit("never", "abort: {httpStatus: 418, percentage: {value: 0}}"),
        ],
    )
    .await;
    assert_eq!(world.get("https://a.test/abort").await.status, 418);
    assert_eq!(world.get("https://a.test/never").await.status, 200);
    assert_eq!(backend.asked(), 1, "what is aborted reaches nobody");
    let start = Instant::now();
    assert_eq!(world.get("https://a.test/late").await.status, 200);
    assert!(start.elapsed() >= Duration::from_millis(300));
    world.stop().await;
}

#[tokio::test]
async fn copies_go_to_mirrors_and_shares_by_weight() {
    let (backend, shadow) = (Backend::start("a").await, Backend::start("shadow").await);
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test"]));
    let copy = Site::new("shadow.test").to(shadow.address());
    let mut parts = site.documents();
    parts.remove(0);
    parts.extend(copy.documents().into_iter().skip(1));
    let written = [
        format!(
            "match: [{{uri: {{exact: /m}}}}], mirror: {{host: shadow-test, port: {{number: \
             80}}}}, {TO}"
        ),
        "match: [{uri: {exact: /w}}], route: [{destination: {host: a-test, port: {number: 80}}, \
         weight: 0}, {destination: {host: shadow-test, port: {number: 80}}, weight: 100}]"
            .to_owned(),
    ];
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    let text = format!("{}{GATEWAY}{}", parts.join("---\n"), rules(&written));
    let world = World::serve_with(authority, &[("a.yaml", text)], &[]).await;
    assert_eq!(world.get("https://a.test/m").await.told()["backend"], "a");
    let copied = myriad_e2e::world::eventually(async || (shadow.asked() == 1).then_some(()));
    assert!(copied.await.is_some(), "the copy arrives");
    for _ in 0..5 {
        assert_eq!(
            world.get("https://a.test/w").await.told()["backend"],
            "shadow"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn what_cannot_be_honoured_is_named_and_neighbours_are_untouched() {
    let backend = Backend::start("a").await;
    let world = serve(
        &backend,
        &[
            "match: [{uri: {prefix: /subset}}], route: [{destination: {host: a-test, subset: v1}}]",
            "match: [{uri: {regex: '(?=x)'}}], directResponse: {status: 200}",
            "match: [{uri: {prefix: /gone}}], route: [{destination: {host: nobody, port: {number: \
         80}}}]",
            TO,
        ],
    )
    .await;
    assert_eq!(world.get("https://a.test/subset").await.status, 503);
    assert_eq!(world.get("https://a.test/gone").await.status, 503);
    assert_eq!(world.get("https://a.test/").await.status, 200);
    let findings = world.findings().await;
    for words in [
        "spec.http[0].route[0].destination.subset",
        "spec.http[1].match[0].uri",
        "there is no Service default/nobody",
    ] {
        assert!(
            findings.iter().any(|finding| finding.contains(words)),
            "{words}: {findings:?}"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_honoured_is_not_opened_by_a_wildcard() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test", "b.test"]));
    let mut parts = site.documents();
    parts.remove(0);
    let wildcard = GATEWAY
        .replace("name: edge", "name: all")
        .replace("[a.test]", "['*.test']");
    let gateways = GATEWAY.replace("SIMPLE", "MUTUAL") + &wildcard;
    let written = rules(&[TO]).replace("[a.test]", "[a.test, b.test]");
    let written = written.replace("[edge]", "[edge, all]");
    let text = format!("{}{gateways}{written}", parts.join("---\n"));
    let world = World::serve_with(authority, &[("a.yaml", text)], &[]).await;
    assert_eq!(world.get("https://b.test/").await.status, 200);
    let answer = world.get("https://a.test/").await;
    assert!(answer.error.contains("unrecognized name"), "{answer:?}");
    let headers = ["-H", "Host: a.test"];
    let answer = world.curl("https://b.test/").args(&headers).ask().await;
    assert_eq!(answer.status, 421, "and not behind another's handshake");
    world.stop().await;
}
