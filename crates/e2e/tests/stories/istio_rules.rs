//! Fields of VirtualServices that other stories have not met: matches, redirects, time, retries,
//! CORS, copies, headers and delegates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use myriad_e2e::istio::{
    Scene, TO, free_port, gateway, rules, service, service_speaking, virtual_service,
};
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BUSY: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy";

/// A rule for an exact path.
fn at(path: &str, rest: &str) -> String {
    format!("match: [{{uri: {{exact: {path}}}}}], {rest}")
}

/// A rule with these conditions that answers with a word.
fn says(word: &str, conditions: &str) -> String {
    format!("match: [{{{conditions}}}], directResponse: {{status: 200, body: {{string: {word}}}}}")
}

async fn serve(endpoints: &[SocketAddr], written: &[&str]) -> World {
    Scene::new().to(endpoints).rules(written).serve().await
}

async fn ask(world: &World, url: &str, args: &[&str]) -> Answer {
    world.curl(url).args(args).ask().await
}

/// An endpoint that gives these answers in turn, the last for ever; an empty one is silence.
async fn in_turn(answers: &'static [&'static str]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(answer_in_turn(tcp, answers, count.clone()));
        }
    });
    (address, asked)
}

async fn answer_in_turn(
    mut tcp: TcpStream,
    answers: &'static [&'static str],
    count: Arc<AtomicUsize>,
) {
    let mut head = [0; 4_096];
    while tcp.read(&mut head).await.is_ok_and(|length| length > 0) {
        let turn = count.fetch_add(1, Ordering::SeqCst);
        let answer = answers[turn.min(answers.len() - 1)];
        if tcp.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn authorities_gateways_and_namespaces_choose_among_rules() {
    let written = [
        says(
            "by-port",
            "authority: {regex: 'a\\.test:[0-9]+'}, uri: {prefix: /authority}",
        ),
        says(
            "by-prefix",
            "authority: {prefix: a.}, uri: {prefix: /start}",
        ),
        says("foreign", "authority: {exact: other.test}"),
        says(
            "here",
            "sourceNamespace: istio-system, uri: {prefix: /namespace}",
        ),
        says(
            "there",
            "sourceNamespace: default, uri: {prefix: /elsewhere}",
        ),
        says("edge", "gateways: [edge], uri: {prefix: /gateway}"),
        says("inner", "gateways: [mesh], uri: {prefix: /mesh}"),
    ];
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    let world = serve(&[], &written).await;
    for (path, wanted) in [
        ("start", "by-prefix"),
        ("authority", "by-port"),
        ("namespace", "here"),
        ("gateway", "edge"),
    ] {
        let answer = world.get(&format!("https://a.test/{path}")).await;
        assert_eq!((answer.status, &*answer.body), (200, wanted), "{path}");
    }
    for path in ["elsewhere", "mesh", "other"] {
        let answer = world.get(&format!("https://a.test/{path}")).await;
        assert_eq!(answer.status, 404, "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn the_rest_of_a_path_stays_where_its_start_is_rewritten() {
    let backend = Backend::start("a").await;
    let rewritten = format!("match: [{{uri: {{prefix: /api/}}}}], rewrite: {{uri: /v2/}}, {TO}");
    let world = serve(&[backend.address()], &[&rewritten, TO]).await;
    let answer = world.get("https://a.test/api/x/y?q=1").await;
    assert_eq!(answer.told()["uri"], "/v2/x/y?q=1");
    assert_eq!(
        world.get("https://a.test/other").await.told()["uri"],
        "/other"
    );
    world.stop().await;
}

#[tokio::test]
async fn redirects_change_what_they_name_and_keep_the_rest() {
    let written = [
        at("/port", "redirect: {port: 8443}"),
        at("/scheme", "redirect: {scheme: http}"),
        at(
            "/derived",
            "redirect: {scheme: http, derivePort: FROM_PROTOCOL_DEFAULT}",
        ),
        at("/code", "redirect: {uri: /new, redirectCode: 308}"),
        at("/host", "redirect: {authority: b.test}"),
    ];
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    let world = serve(&[], &written).await;
    let own = world.https().port();
    for (path, code, wanted) in [
        ("port", 301, "https://a.test:8443/port?q=1".to_owned()),
        // The port of HTTPS is none of HTTP.
        ("scheme", 301, "http://a.test/scheme?q=1".to_owned()),
        ("derived", 301, "http://a.test/derived?q=1".to_owned()),
        ("code", 308, format!("https://a.test:{own}/new?q=1")),
        ("host", 301, "https://b.test/host?q=1".to_owned()),
    ] {
        let answer = world.get(&format!("https://a.test/{path}?q=1")).await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (code, Some(&*wanted))
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn a_fixed_answer_may_be_of_bytes_and_have_headers() {
    let answer = "directResponse: {status: 418, body: {bytes: aGVsbG8=}}, headers: {response: \
                  {set: {content-type: text/plain}}}";
    let world = serve(&[], &[answer]).await;
    let answer = world.get("https://a.test/").await;
    assert_eq!((answer.status, &*answer.body), (418, "hello"));
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    world.stop().await;
}

#[tokio::test]
async fn a_request_takes_no_longer_than_the_rule_says() {
    let (silent, _) = in_turn(&[""]).await;
    let (late, none) = (at("/late", &format!("timeout: 0.3s, {TO}")), TO);
    let world = serve(&[silent], &[&late, none]).await;
    let start = Instant::now();
    let answer = ask(&world, "https://a.test/late", &["--max-time", "8"]).await;
    assert_eq!(answer.status, 504, "{answer:?}");
    assert!(start.elapsed() >= Duration::from_millis(300));
    // Without a timeout it goes on for as long as the client does.
    let answer = ask(&world, "https://a.test/", &["--max-time", "1"]).await;
    assert_eq!(answer.status, 0, "{answer:?}");
    world.stop().await;
}

#[tokio::test]
async fn what_fails_is_tried_again_as_often_and_when_the_rule_says() {
    for (answers, retries, status, attempts) in [
        (&[BUSY, BUSY, OK][..], "attempts: 2, retryOn: 5xx", 200, 3),
        (&[BUSY, BUSY, OK], "attempts: 1, retryOn: 5xx", 503, 2),
        (&[BUSY, OK], "attempts: 0", 503, 1),
        (&[BUSY, OK], "attempts: 3, retryOn: connect-failure", 503, 1),
        (
            &[BUSY, OK],
            "attempts: 1, retryOn: '503', backoff: 1ms",
            200,
            2,
        ),
        (
            &["", OK],
            "attempts: 1, perTryTimeout: 0.2s, retryOn: 5xx",
            200,
            2,
        ),
        (
            &["", OK],
            "attempts: 1, perTryTimeout: 0.2s, retryOn: reset",
            200,
            2,
        ),
    ] {
        let (address, asked) = in_turn(answers).await;
        let world = serve(&[address], &[&format!("retries: {{{retries}}}, {TO}")]).await;
        let answer = world.get("https://a.test/").await;
        assert_eq!(answer.status, status, "{retries}: {answer:?}");
        assert_eq!(asked.load(Ordering::SeqCst), attempts, "{retries}");
        world.stop().await;
    }
}

#[tokio::test]
async fn calls_of_grpc_are_aborted_with_its_status() {
    let aborted =
        format!("fault: {{abort: {{grpcStatus: UNAVAILABLE, percentage: {{value: 100}}}}}}, {TO}");
    let backend = Backend::start("a").await;
    let world = serve(&[backend.address()], &[&aborted]).await;
    let call = [
        "--http2",
        "-X",
        "POST",
        "-H",
        "content-type: application/grpc",
    ];
    let answer = ask(&world, "https://a.test/pkg.Service/Method", &call).await;
    assert_eq!(
        (answer.status, answer.header("grpc-status")),
        (200, Some("14"))
    );
    assert_eq!(backend.asked(), 0);
    world.stop().await;
}

#[tokio::test]
async fn copies_go_to_each_mirror_by_its_percentage() {
    let (backend, all, none) = (
        Backend::start("a").await,
        Backend::start("all").await,
        Backend::start("none").await,
    );
    let to = |name: &str, percent: u32| {
        format!(
            "{{destination: {{host: {name}, port: {{number: 80}}}}, percentage: {{value: \
             {percent}}}}}"
        )
    };
    let mirrors = format!("mirrors: [{}, {}], {TO}", to("all", 100), to("none", 0));
    let world = Scene::new()
        .to(&[backend.address()])
        .with(&service("all", &[all.address()]))
        .with(&service("none", &[none.address()]))
        .rules(&[&mirrors])
        .serve()
        .await;
    for _ in 0..5 {
        assert_eq!(world.get("https://a.test/").await.told()["backend"], "a");
    }
    let copied = eventually(async || (all.asked() == 5).then_some(()));
    assert!(copied.await.is_some(), "every request is copied");
    assert_eq!(none.asked(), 0);
    world.stop().await;
}

#[tokio::test]
async fn browsers_of_other_origins_are_answered_as_the_rule_says() {
    let cors = format!(
        "corsPolicy: {{allowOrigins: [{{exact: 'https://shop.test'}}, {{regex: \
         'https://.*\\.dev\\.test'}}], allowMethods: [GET, PUT], allowHeaders: [x-a], \
         exposeHeaders: [x-b], maxAge: 1h, allowCredentials: true}}, {TO}"
    );
    let backend = Backend::start("a").await;
    let world = serve(&[backend.address()], &[&cors]).await;
    let preflight = async |origin: &str| {
        let origin = format!("Origin: {origin}");
        let method = "Access-Control-Request-Method: PUT";
        let args = ["-X", "OPTIONS", "-H", &origin, "-H", method];
        ask(&world, "https://a.test/", &args).await
    };
    for origin in ["https://shop.test", "https://x.dev.test"] {
        let answer = preflight(origin).await;
        assert_eq!(answer.status, 204, "{answer:?}");
        for (name, value) in [
            ("access-control-allow-origin", origin),
            ("access-control-allow-methods", "GET,PUT"),
            ("access-control-allow-headers", "x-a"),
            ("access-control-max-age", "3600"),
            ("access-control-allow-credentials", "true"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name}");
        }
    }
    assert_eq!(backend.asked(), 0, "preflights are answered here");
    let origin = ["-H", "Origin: https://shop.test"];
    let answer = ask(&world, "https://a.test/", &origin).await;
    assert_eq!(
        answer.header("access-control-allow-origin"),
        Some("https://shop.test")
    );
    assert_eq!(answer.header("access-control-expose-headers"), Some("x-b"));
    world.stop().await;
}

#[tokio::test]
async fn preflights_of_other_origins_go_to_the_endpoint_unless_the_rule_ignores_them() {
    for (unmatched, passed) in [("", 1), ("FORWARD", 1), ("IGNORE", 0)] {
        let unmatched = match unmatched {
            "" => String::new(),
            word => format!(", unmatchedPreflights: {word}"),
        };
        let cors = format!(
            "corsPolicy: {{allowOrigins: [{{exact: 'https://shop.test'}}], allowMethods: \
             [PUT]{unmatched}}}, {TO}"
        );
        let backend = Backend::start("a").await;
        let world = serve(&[backend.address()], &[&cors]).await;
        let preflight = async |origin: &str| {
            let origin = format!("Origin: {origin}");
            let method = "Access-Control-Request-Method: PUT";
            let args = ["-X", "OPTIONS", "-H", &origin, "-H", method];
            ask(&world, "https://a.test/", &args).await
        };
        let answer = preflight("https://evil.test").await;
        assert_eq!(answer.header("access-control-allow-origin"), None);
        assert_eq!(backend.asked(), passed, "{cors}: {answer:?}");
        let wanted = if passed == 1 { 200 } else { 204 };
        assert_eq!(answer.status, wanted, "{cors}");
        let answer = preflight("https://shop.test").await;
        assert_eq!((answer.status, backend.asked()), (204, passed), "{cors}");
        world.stop().await;
    }
}

#[tokio::test]
async fn headers_of_a_destination_go_with_those_of_the_rule() {
    let written = "headers: {request: {set: {x-rule: r}}, response: {remove: [x-gone], add: \
                   {x-rule: r}}}, route: [{destination: {host: api, port: {number: 80}}, headers: \
                   {request: {set: {x-share: s}}, response: {set: {x-share: s}}}}]";
    let (address, _) =
        in_turn(&["HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Gone: 1\r\n\r\nok"]).await;
    let world = serve(&[address], &[written]).await;
    let answer = world.get("https://a.test/").await;
    assert_eq!(
        (answer.header("x-rule"), answer.header("x-share")),
        (Some("r"), Some("s"))
    );
    assert_eq!(answer.header("x-gone"), None);
    world.stop().await;
    let backend = Backend::start("a").await;
    let world = serve(&[backend.address()], &[written]).await;
    let told = world.get("https://a.test/").await.told();
    let headers = &told["headers"];
    assert_eq!(
        (&headers["x-rule"], &headers["x-share"]),
        (&"r".into(), &"s".into())
    );
    world.stop().await;
}

#[tokio::test]
async fn a_delegate_answers_within_the_match_of_its_root() {
    let root = "match: [{uri: {prefix: /shop}}], headers: {request: {set: {x-root: r}}}, delegate: \
                {name: part}";
    let backend = Backend::start("a").await;
    let part = |rules: &[&str]| virtual_service("part", "exportTo: ['*']", "http", rules);
    let cart = at("/shop/cart", &format!("rewrite: {{uri: /cart}}, {TO}"));
    let elsewhere = at("/else", TO);
    let world = Scene::new()
        .to(&[backend.address()])
        .rules(&[root])
        .serve()
        .await;
    assert_eq!(world.get("https://a.test/shop/cart").await.status, 404);
    world.write("part.yaml", &part(&[&cart, &elsewhere]));
    let is_there = |answer: &Answer| answer.status == 200;
    let answer = world.eventually("https://a.test/shop/cart", is_there).await;
    let told = answer.told();
    assert_eq!(
        (&told["uri"], &told["headers"]["x-root"]),
        (&"/cart".into(), &"r".into())
    );
    for path in ["else", "shop/other"] {
        let answer = world.get(&format!("https://a.test/{path}")).await;
        assert_eq!(answer.status, 404, "{path}");
    }
    world.delete("part.yaml");
    world
        .eventually("https://a.test/shop/cart", |it| it.status == 404)
        .await;
    world.stop().await;
}

/// Says something to a port from an address, and returns the answer.
async fn say(from: &str, port: u16) -> Option<String> {
    let socket = tokio::net::TcpSocket::new_v4().ok()?;
    socket.bind(format!("{from}:0").parse().ok()?).ok()?;
    let mut tcp = socket.connect(([127, 0, 0, 1], port).into()).await.ok()?;
    tcp.write_all(b"GET / HTTP/1.0\r\n\r\n").await.ok()?;
    let mut heard = String::new();
    tcp.read_to_string(&mut heard).await.ok()?;
    Some(heard)
}

#[tokio::test]
async fn plain_connections_are_led_by_where_they_come_from_and_go_to() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let port = free_port();
    let to = |name: &str| format!("route: [{{destination: {{host: {name}}}}}]");
    let written = [
        format!("match: [{{port: 1}}], {}", to("one")),
        format!(
            "match: [{{sourceSubnet: 127.0.0.2/32, port: {port}}}], {}",
            to("one")
        ),
        format!(
            "match: [{{destinationSubnets: [10.0.0.0/8]}}], {}",
            to("one")
        ),
        format!(
            "match: [{{destinationSubnets: [127.0.0.0/8]}}], {}",
            to("two")
        ),
    ];
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    let spec = "hosts: ['*'], gateways: [edge]";
    let server = format!("port: {{number: {port}, name: t, protocol: TCP}}, hosts: ['*']");
    let world = Scene::new()
        .servers(&[&server])
        .with(&service_speaking("tcp", "one", &[one.address()]))
        .with(&service_speaking("tcp", "two", &[two.address()]))
        .with(&virtual_service("t", spec, "tcp", &written))
        .serve()
        .await;
    for (from, wanted) in [("127.0.0.2", "\"one\""), ("127.0.0.3", "\"two\"")] {
        let heard = eventually(async || say(from, port).await.filter(|it| !it.is_empty()));
        let heard = heard.await.expect("an answer");
        assert!(heard.contains(wanted), "{from}: {heard}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_gateway_of_other_labels_and_a_rule_for_them_are_not_served_here() {
    let backend = Backend::start("a").await;
    let server = "port: {number: 80, name: http, protocol: HTTP}, hosts: [b.test]";
    let other = gateway("other", &[server]).replace("istio: ingressgateway", "istio: other");
    let written = rules(&[TO])
        .replace("name: a,", "name: b,")
        .replace("[a.test]", "[b.test]")
        .replace("[edge]", "[other]");
    let world = Scene::new()
        .to(&[backend.address()])
        .with(&other)
        .with(&written)
        .serve()
        .await;
    assert_eq!(world.get("http://b.test/").await.status, 404);
    assert_eq!(world.get("http://a.test/").await.status, 200);
    world.write(
        "mine.yaml",
        &gateway("other", &[server]).replace("name: other", "name: mine"),
    );
    world.write(
        "b.yaml",
        &written
            .replace("[other]", "[mine]")
            .replace("name: b,", "name: c,"),
    );
    world
        .eventually("http://b.test/", |it| it.status == 200)
        .await;
    world.stop().await;
}
