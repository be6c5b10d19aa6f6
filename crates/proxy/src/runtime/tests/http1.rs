use std::time::Duration;

use myriad_model::{PathMatch, Value};

use super::world::{Backend, Client, PATIENCE, World, header, route, with_policy};
use crate::{Limits, Settings};

/// A world in which `a.example` is served by a backend.
fn world_of(backend: &Backend) -> World {
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world
}

fn status(response: &str) -> u16 {
    let status = response
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse().ok());
    status.unwrap_or_else(|| panic!("no response: {response:?}"))
}

#[tokio::test]
async fn a_request_reaches_its_endpoint_and_its_answer_the_client() {
    let backend = Backend::echo().await;
    let world = world_of(&backend);
    let mut client = world.client().await;
    for _ in 0..3 {
        let request = "GET /x?y=z HTTP/1.1\r\nHost: a.example\r\nConnection: x-drop\r\n\
                       X-Drop: 1\r\nX-Keep: 2\r\nX-Forwarded-For: 9.9.9.9\r\n\
                       Proxy: http://evil/\r\n\r\n";
        client.send(request).await;
        let (head, body) = client.response().await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            body.starts_with("GET /x?y=z HTTP/1.1\r\nhost: a.example\r\n"),
            "{body}"
        );
        assert_eq!(header(&body, "x-keep"), Some("2"));
        assert_eq!(header(&body, "x-drop"), None);
        assert_eq!(header(&body, "proxy"), None);
        assert_eq!(header(&body, "x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(header(&body, "x-forwarded-proto"), Some("http"));
        assert_eq!(header(&body, "x-forwarded-host"), Some("a.example"));
    }
    assert_eq!(backend.connections(), 1);
    assert_eq!(backend.requests(), 3);
}

#[tokio::test]
async fn what_is_malformed_is_refused_and_the_connection_ends() {
    let backend = Backend::echo().await;
    let world = world_of(&backend);
    let long = "x".repeat(70_000);
    const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for (request, wanted) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\nHost: a.example\n\n".to_owned(), 400),
        (
            "GET / HTTP/1.1\r\nHost: a.example\r\nA: b\r\n c\r\n\r\n".to_owned(),
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a.example\r\nA: b\0\r\n\r\n".to_owned(),
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\
             Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\
             Content-Length: 4\r\n\r\nabcd"
                .to_owned(),
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
                .to_owned(),
            400,
        ),
        ("GET / HTTP/3.0\r\nHost: a.example\r\n\r\n".to_owned(), 505),
        (
            "CONNECT a.example:1 HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(),
            405,
        ),
        (
            format!("GET /{long} HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            414,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: a.example\r\nA: {long}\r\n\r\n"),
            431,
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: a.example\r\n{}\r\n",
                "A: b\r\n".repeat(200)
            ),
            431,
        ),
        ("\x16\x03\x01\x02\x00\x01\x00\n".to_owned(), 400),
    ] {
        let response = world.ask(&format!("{request}{NEXT}")).await;
        let shown: String = request.chars().take(80).collect();
        assert_eq!(status(&response), wanted, "{shown:?}");
        assert_eq!(header(&response, "connection"), Some("close"), "{shown:?}");
        assert!(
            !response.contains("/next"),
            "{shown:?} was followed by another request"
        );
    }
}

#[tokio::test]
async fn unknown_names_and_paths_and_absent_upstreams_have_their_status() {
    let backend = Backend::echo().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_upstream("empty", &[]);
    world.put_route("r", route("a.example", "/in", "u"));
    world.put_route("none", route("a.example", "/none", "missing"));
    world.put_route("empty", route("a.example", "/empty", "empty"));
    for (host, path, wanted) in [
        ("a.example", "/in/side", 200),
        ("a.example", "/inside", 404),
        ("b.example", "/in", 404),
        ("a.example", "/none", 503),
        ("a.example", "/empty", 503),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let response = world.ask(&request).await;
        assert_eq!(status(&response), wanted, "{host}{path}");
    }
    let line = "myriad_request_failures_total{reason=\"no_endpoint\"} 1\n";
    world.counts(line).await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let backend = Backend::echo().await;
    let world = world_of(&backend);
    let request = |path| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let mut client = world.client().await;
    client.send(["/1", "/2", "/3"].map(request).concat()).await;
    for path in ["/1", "/2", "/3"] {
        let (_, body) = client.response().await;
        assert!(body.starts_with(&format!("GET {path} ")), "{body}");
    }
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let backend = Backend::answering(|head| {
        if head.starts_with("HEAD") {
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned()
        } else if head.contains("/304") {
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n".to_owned()
        } else if head.contains("/204") {
            "HTTP/1.1 204 No Content\r\n\r\n".to_owned()
        } else {
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast".to_owned()
        }
    })
    .await;
    let world = world_of(&backend);
    let mut client = world.client().await;
    for (method, path, length) in [
        ("HEAD", "/", Some("5")),
        ("GET", "/304", Some("5")),
        ("GET", "/204", None),
    ] {
        client
            .send(format!(
                "{method} {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"
            ))
            .await;
        let head = client.read_until("\r\n\r\n").await;
        assert_eq!(header(&head, "content-length"), length, "{path}");
    }
    client
        .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    assert_eq!(client.response().await.1, "last");
}

#[tokio::test]
async fn bodies_without_a_length_are_framed_for_the_client() {
    let backend = Backend::answering(|head| {
        if head.contains("/chunked") {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
                .to_owned()
        } else {
            String::new()
        }
    })
    .await;
    let world = world_of(&backend);
    let mut client = world.client().await;
    client
        .send("GET /chunked HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    let response = client.read_until("0\r\n\r\n").await;
    assert_eq!(header(&response, "transfer-encoding"), Some("chunked"));
    let old = "GET /chunked HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n";
    let response = world.ask(old).await;
    assert!(response.ends_with("\r\n\r\nabcde"), "{response}");
    assert_eq!(header(&response, "connection"), Some("close"));
}

#[tokio::test]
async fn large_bodies_pass_both_ways_whole() {
    let backend = Backend::answering(|head| {
        let length = 3_000_000;
        assert!(head.starts_with("POST"));
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}",
            "y".repeat(length)
        )
    })
    .await;
    let world = world_of(&backend);
    let mut client = world.client().await;
    let body = "x".repeat(2_000_000);
    for framing in [
        format!("Content-Length: {}\r\n\r\n{body}", body.len()),
        format!(
            "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ),
    ] {
        client
            .send(format!("POST / HTTP/1.1\r\nHost: a.example\r\n{framing}"))
            .await;
        let (_, answer) = client.response().await;
        assert_eq!(answer.len(), 3_000_000);
        assert!(answer.bytes().all(|byte| byte == b'y'));
    }
}

#[tokio::test]
async fn a_body_beyond_the_policy_is_refused_however_it_is_framed() {
    let backend = Backend::echo().await;
    let mut world = world_of(&backend);
    let small = with_policy(route("a.example", "/", "u"), |policy| {
        policy.request_body_bytes_max = 4;
    });
    world.put_route("r", small);
    for (framing, wanted) in [
        ("Content-Length: 4\r\n\r\nabcd", 200),
        ("Content-Length: 5\r\n\r\nabcde", 413),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
            413,
        ),
    ] {
        let request =
            format!("POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{framing}");
        assert_eq!(status(&world.ask(&request).await), wanted, "{framing:?}");
    }
}

#[tokio::test]
async fn a_slow_head_is_given_up_and_an_idle_connection_closed() {
    let mut world = World::start_with(Settings {
        workers: 1,
        limits: Limits {
            head_timeout: Duration::from_millis(100),
            idle_timeout: Duration::from_millis(100),
            ..Limits::default()
        },
        ..Settings::default()
    });
    world.put_upstream("u", &[]);
    let mut slow = world.client().await;
    slow.send("GET / HTTP/1.1\r\nHost:").await;
    assert_eq!(status(&slow.read_to_end().await), 408);
    let mut idle = world.client().await;
    assert_eq!(idle.read_to_end().await, "");
}

#[tokio::test]
async fn a_client_that_waits_for_100_gets_it_from_the_endpoint() {
    use tokio::net::TcpListener;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    let mut client = world.client().await;
    client
        .send(
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\
             Expect: 100-continue\r\n\r\n",
        )
        .await;
    let mut endpoint = Client::new(listener.accept().await.unwrap().0);
    let head = endpoint.read_until("\r\n\r\n").await;
    assert_eq!(header(&head, "expect"), Some("100-continue"));
    endpoint.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert!(
        client
            .read_until("\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 100")
    );
    client.send("abc").await;
    endpoint.read_until("abc").await;
    endpoint
        .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    assert_eq!(client.response().await.1, "ok");
}

#[tokio::test]
async fn an_answer_that_comes_before_the_body_ends_is_passed_on() {
    use tokio::net::TcpListener;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    let mut client = world.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000\r\n\r\nbegin")
        .await;
    let mut endpoint = Client::new(listener.accept().await.unwrap().0);
    endpoint.read_until("begin").await;
    endpoint
        .send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        .await;
    let response = client.read_until("\r\n\r\n").await;
    assert_eq!(status(&response), 413);
    assert_eq!(header(&response, "connection"), Some("close"));
}

#[tokio::test]
async fn a_websocket_is_a_tunnel_once_the_endpoint_agrees() {
    use tokio::net::TcpListener;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    let mut client = world.client().await;
    client
        .send(
            "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\n\r\nfirst",
        )
        .await;
    let mut endpoint = Client::new(listener.accept().await.unwrap().0);
    let head = endpoint.read_until("\r\n\r\n").await;
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    endpoint
        .send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
             Upgrade: websocket\r\n\r\nhello",
        )
        .await;
    assert_eq!(endpoint.read_until("first").await, "first");
    let head = client.read_until("\r\n\r\n").await;
    assert_eq!(status(&head), 101);
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    assert_eq!(client.read_until("hello").await, "hello");
    client.send("ping").await;
    endpoint.read_until("ping").await;
    endpoint.send("pong").await;
    client.read_until("pong").await;
    drop(endpoint);
    assert_eq!(client.read_to_end().await, "");
}

#[tokio::test]
async fn a_dead_endpoint_is_passed_over_while_there_is_another() {
    let backend = Backend::saying("alive").await;
    let dead = {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        closed.local_addr().unwrap()
    };
    let mut world = World::start();
    world.put_upstream("u", &[backend.address, dead]);
    world.put_upstream("dead", &[dead]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_route("d", route("a.example", "/dead", "dead"));
    for _ in 0..20 {
        let request = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\
                       Connection: close\r\n\r\nx";
        let response = world.ask(request).await;
        assert!(response.ends_with("alive"), "{response}");
    }
    let request = "GET /dead HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&world.ask(request).await), 502);
}

#[tokio::test]
async fn an_endpoint_that_closed_an_idle_connection_is_asked_on_a_fresh_one() {
    use tokio::net::TcpListener;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    let mut client = world.client().await;
    client
        .send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    let mut first = Client::new(listener.accept().await.unwrap().0);
    first.read_until("\r\n\r\n").await;
    first
        .send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
        .await;
    client.response().await;
    // The second request reaches the idle connection, which closes without a word.
    client
        .send("GET /2 HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    first.read_until("\r\n\r\n").await;
    drop(first);
    let mut second = Client::new(listener.accept().await.unwrap().0);
    assert!(second.read_until("\r\n\r\n").await.starts_with("GET /2 "));
    second
        .send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2")
        .await;
    assert_eq!(client.response().await.1, "2");
    // What may have had an effect is not repeated.
    client
        .send("POST /3 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n")
        .await;
    second.read_until("\r\n\r\n").await;
    drop(second);
    assert_eq!(status(&client.response().await.0), 502);
}

#[tokio::test]
async fn an_endpoint_that_says_nothing_or_nonsense_is_a_bad_gateway() {
    let backend = Backend::answering(|head| {
        if head.contains("/nonsense") {
            "SMTP ready\r\n\r\n".to_owned()
        } else if head.contains("/two") {
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab".to_owned()
        } else if head.contains("/slow") {
            "HTTP/1.1 100 Continue\r\n\r\n".to_owned()
        } else {
            String::new()
        }
    })
    .await;
    let mut world = world_of(&backend);
    let hasty = with_policy(route("a.example", "/slow", "u"), |policy| {
        policy.read_timeout = Duration::from_millis(100);
    });
    world.put_route("slow", hasty);
    for (path, wanted) in [
        ("/nonsense", 502),
        ("/two", 502),
        ("/close", 502),
        ("/slow", 504),
    ] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&world.ask(&request).await), wanted, "{path}");
    }
}

#[tokio::test]
async fn a_body_that_ends_early_ends_early_for_the_client() {
    let backend = Backend::answering(|_| {
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\npart".to_owned()
    })
    .await;
    let mut world = world_of(&backend);
    let hasty = with_policy(route("a.example", "/", "u"), |policy| {
        policy.read_timeout = Duration::from_millis(100);
    });
    world.put_route("r", hasty);
    let response = world.ask("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert!(response.ends_with("\r\n\r\npart"), "{response}");
    assert_eq!(header(&response, "content-length"), Some("100"));
}

#[tokio::test]
async fn a_refused_route_leaves_its_last_good_version_in_service() {
    let backend = Backend::saying("good").await;
    let mut world = world_of(&backend);
    let mut broken = route("a.example", "/", "u");
    broken.path = PathMatch::Regex("/(".into());
    let applied = world.put_route("r", broken);
    assert_eq!(applied.refused.len(), 1);
    assert_eq!(applied.refused[0].key.name.as_str(), "r");
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    assert!(world.ask(request).await.ends_with("good"));
    // The next good version takes its place, and its removal takes it out.
    world.put("r", Value::Route(Box::new(route("b.example", "/", "u"))));
    assert_eq!(status(&world.ask(request).await), 404);
    world.remove(myriad_model::Kind::Route, "r");
    let request = request.replace("a.example", "b.example");
    assert_eq!(status(&world.ask(&request).await), 404);
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_fill_memory() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::AsyncWriteExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    let mut client = world.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    let mut endpoint = Client::new(listener.accept().await.unwrap().0);
    endpoint.read_until("\r\n\r\n").await;
    endpoint
        .send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        .await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let writing = async move {
        let block = vec![b'x'; 65_536];
        while endpoint.stream.write_all(&block).await.is_ok() {
            counted.fetch_add(block.len(), Ordering::SeqCst);
        }
    };
    // The endpoint is stopped by what the kernel holds on both sides, long before its end.
    assert!(
        tokio::time::timeout(Duration::from_secs(1), writing)
            .await
            .is_err()
    );
    assert!(sent.load(Ordering::SeqCst) < 64 << 20);
    assert!(PATIENCE > Duration::from_secs(1));
}

#[tokio::test]
async fn an_upstream_by_name_is_resolved() {
    let backend = Backend::saying("found").await;
    let mut world = World::start();
    let port = backend.address.port();
    for (name, host) in [("good", "localhost"), ("bad", "nowhere.invalid")] {
        let upstream = myriad_model::Upstream {
            protocol: myriad_model::Protocol::Http1,
            dns: Some(Box::new(myriad_model::Dns::strict(host, port))),
            tls: None,
            options: None,
            original_destination: false,
            source_address: None,
        };
        world.put(name, Value::Upstream(Box::new(upstream)));
        world.put_route(name, route("a.example", &format!("/{name}"), name));
    }
    for _ in 0..2 {
        let request = "GET /good HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        assert!(world.ask(request).await.ends_with("found"));
        let response = world.ask(&request.replace("good", "bad")).await;
        assert_eq!(status(&response), 503);
    }
}
