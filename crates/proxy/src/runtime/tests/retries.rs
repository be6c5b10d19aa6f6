use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use myriad_base::{clock, task};
use myriad_model::{
    Abort, AbortAnswer, Delay, Fault, Policy, Retry, RetryConditions as Conditions, Share,
};
use tokio::net::TcpListener;

use super::world::{Backend, Client, World, header, route, with_policy};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn rule(attempts: u8, conditions: Conditions) -> Retry {
    Retry {
        attempts,
        try_timeout: Duration::ZERO,
        conditions,
        statuses: Box::default(),
        backoff: Duration::from_millis(1),
    }
}

fn world_of(endpoints: &[SocketAddr], change: impl FnOnce(&mut Policy)) -> World {
    let mut world = World::start();
    world.put_upstream("u", endpoints);
    world.put_route("r", with_policy(route("a.example", "/", "u"), change));
    world
}

/// An endpoint that gives one answer to the first requests, and then another.
async fn recovering(first: usize, answer: &'static str) -> Backend {
    let asked = Arc::new(AtomicUsize::new(0));
    Backend::answering(move |_| {
        let before = asked.fetch_add(1, Ordering::SeqCst);
        if before < first { answer } else { OK }.to_owned()
    })
    .await
}

/// An endpoint that says nothing on its first connections.
async fn silent(first: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("silent backend", async move {
        let mut held = Vec::new();
        while let Ok((tcp, _)) = listener.accept().await {
            if held.len() < first {
                held.push(tcp);
                continue;
            }
            let mut client = Client::new(tcp);
            client.read_until("\r\n\r\n").await;
            client.send(OK).await;
        }
    });
    address
}

#[tokio::test]
async fn an_answer_that_leads_to_a_repetition_is_never_seen() {
    const UNAVAILABLE: &str = "HTTP/1.1 503 S\r\nX-Try: 1\r\nContent-Length: 3\r\n\r\nbad";
    const CHUNKED: &str = "HTTP/1.1 503 S\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n";
    const CONFLICT: &str = "HTTP/1.1 409 C\r\nContent-Length: 0\r\n\r\n";
    const GRPC: &str = "HTTP/1.1 200 OK\r\nGrpc-Status: 14\r\nContent-Length: 0\r\n\r\n";
    for (answer, conditions) in [
        (UNAVAILABLE, Conditions::GATEWAY_ERROR),
        (UNAVAILABLE, Conditions::SERVER_ERROR),
        (CHUNKED, Conditions::GATEWAY_ERROR),
        (CONFLICT, Conditions::RETRIABLE_CLIENT_ERROR),
        (GRPC, Conditions::GRPC_UNAVAILABLE),
        ("", Conditions::RESET),
    ] {
        let backend = recovering(2, answer).await;
        let retry = rule(2, conditions);
        let world = world_of(&[backend.address], |policy| {
            policy.retry = Some(retry.into())
        });
        let response = world.ask(GET).await;
        assert!(
            response.starts_with("HTTP/1.1 200 "),
            "{answer:?}: {response}"
        );
        assert!(response.ends_with("\r\n\r\nok"), "{answer:?}: {response}");
        assert!(!response.to_lowercase().contains("x-try"), "{response}");
        assert_eq!(backend.requests(), 3);
    }
}

#[tokio::test]
async fn repetitions_end_with_the_last_answer() {
    const UNAVAILABLE: &str = "HTTP/1.1 503 S\r\nContent-Length: 3\r\n\r\nbad";
    for (conditions, statuses, requests) in [
        (Conditions::GATEWAY_ERROR, &[][..], 3),
        (Conditions::default(), &[503][..], 3),
        (Conditions::RESET | Conditions::CONNECT_FAILURE, &[][..], 1),
    ] {
        let backend = recovering(9, UNAVAILABLE).await;
        let mut retry = rule(2, conditions);
        retry.statuses = statuses.into();
        let world = world_of(&[backend.address], |policy| {
            policy.retry = Some(retry.into())
        });
        let response = world.ask(GET).await;
        assert!(response.starts_with("HTTP/1.1 503 S\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\nbad"), "{response}");
        assert_eq!(backend.requests(), requests, "{conditions:?}");
    }
}

#[tokio::test]
async fn a_body_is_kept_for_a_repetition_up_to_a_bound() {
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let long = "x".repeat(300_000);
    let long = format!("Content-Length: 300000\r\n\r\n{long}");
    for (rest, status, bodies) in [
        ("Content-Length: 5\r\n\r\nabcde", 200, 2),
        (CHUNKED, 200, 2),
        (&*long, 503, 0),
    ] {
        let whole = Arc::new(AtomicUsize::new(0));
        let (seen, asked) = (whole.clone(), AtomicUsize::new(0));
        let asked = Arc::new(asked);
        let backend = Backend::answering(move |request| {
            if request.ends_with("\r\n\r\nabcde") {
                seen.fetch_add(1, Ordering::SeqCst);
            }
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => "HTTP/1.1 503 S\r\nContent-Length: 0\r\n\r\n".to_owned(),
                _ => OK.to_owned(),
            }
        })
        .await;
        let retry = rule(1, Conditions::SERVER_ERROR);
        let world = world_of(&[backend.address], |policy| {
            policy.retry = Some(retry.into())
        });
        let mut client = world.client().await;
        let head = "POST / HTTP/1.1\r\nHost: a.example\r\n";
        client.send(format!("{head}{rest}")).await;
        let (head, _) = client.response().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert_eq!(whole.load(Ordering::SeqCst), bodies);
    }
}

#[tokio::test]
async fn a_response_that_began_is_never_repeated() {
    let backend = recovering(1, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
    let world = world_of(&[backend.address], |policy| {
        policy.retry = Some(rule(3, Conditions::ALL).into());
        policy.read_timeout = Duration::from_millis(100);
    });
    let response = world.ask(GET).await;
    assert!(response.ends_with("\r\n\r\nhalf"), "{response}");
    assert_eq!(backend.requests(), 1);
}

#[tokio::test]
async fn the_rule_of_a_route_says_whether_another_endpoint_is_tried() {
    let backend = Backend::saying("hello").await;
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoints = [dead.local_addr().unwrap(), backend.address];
    drop(dead);
    for (conditions, survives) in [
        (Conditions::CONNECT_FAILURE, true),
        (Conditions::RESET_BEFORE_REQUEST, true),
        (Conditions::RETRIABLE_CLIENT_ERROR, false),
    ] {
        let world = world_of(&endpoints, |policy| {
            policy.retry = Some(rule(1, conditions).into());
        });
        let mut failed = 0;
        for _ in 0..30 {
            let post = "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
            let response = world.ask(post).await;
            failed += usize::from(response.starts_with("HTTP/1.1 502 "));
        }
        assert_eq!(failed == 0, survives, "{conditions:?}: {failed} of 30");
    }
}

#[tokio::test]
async fn one_try_may_take_so_long_and_all_together_no_longer() {
    let mut slow = rule(2, Conditions::RESET);
    slow.try_timeout = Duration::from_millis(50);
    let world = world_of(&[silent(2).await], |policy| {
        policy.retry = Some(slow.clone().into());
    });
    assert!(world.ask(GET).await.ends_with("\r\n\r\nok"));
    let world = world_of(&[silent(9).await], |policy| {
        policy.retry = Some(slow.into())
    });
    assert!(world.ask(GET).await.starts_with("HTTP/1.1 504 "));
    world
        .counts("myriad_request_failures_total{reason=\"try_timeout\"} 1")
        .await;
    let mut endless = rule(32, Conditions::RESET);
    endless.try_timeout = Duration::from_millis(20);
    for retry in [None, Some(Box::new(endless))] {
        let timeout = Duration::from_millis(150);
        let world = world_of(&[silent(99).await], |policy| {
            policy.request_timeout = timeout;
            policy.retry = retry;
        });
        let before = clock::now();
        assert!(world.ask(GET).await.starts_with("HTTP/1.1 504 "));
        let took = clock::now() - before;
        assert!(took >= timeout && took < Duration::from_secs(5), "{took:?}");
        let line = "myriad_request_failures_total{reason=\"request_timeout\"} 1";
        world.counts(line).await;
    }
}

/// An endpoint that begins its answer and never ends it.
async fn halting() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    task::spawn("halting backend", async move {
        let mut held = Vec::new();
        while let Ok((tcp, _)) = listener.accept().await {
            let mut client = Client::new(tcp);
            client.read_until("\r\n\r\n").await;
            client
                .send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nha")
                .await;
            held.push(client);
        }
    });
    address
}

#[tokio::test]
async fn a_try_may_take_so_long_from_its_start_to_the_end_of_its_response() {
    let timeout = Duration::from_millis(100);
    let world = world_of(&[silent(1).await], |policy| {
        policy.attempt_timeout = timeout;
        policy.retry = Some(rule(1, Conditions::RESET).into());
    });
    assert!(world.ask(GET).await.ends_with("\r\n\r\nok"));
    for (endpoint, beginning) in [
        (silent(9).await, "HTTP/1.1 504 "),
        (halting().await, "HTTP/1.1 200 "),
    ] {
        let world = world_of(&[endpoint], |policy| policy.attempt_timeout = timeout);
        let before = clock::now();
        let response = world.ask(GET).await;
        let took = clock::now() - before;
        assert!(response.starts_with(beginning), "{response}");
        assert!(took >= timeout && took < Duration::from_secs(5), "{took:?}");
        let line = "myriad_request_failures_total{reason=\"try_timeout\"} 1";
        world.counts(line).await;
    }
    // What ends in time is left alone.
    let backend = Backend::saying("hello").await;
    let world = world_of(&[backend.address], |policy| {
        policy.attempt_timeout = timeout
    });
    for _ in 0..3 {
        tokio::time::sleep(timeout / 2).await;
        assert!(world.ask(GET).await.ends_with("hello"));
    }
}

#[tokio::test]
async fn trouble_is_made_on_purpose() {
    let backend = Backend::saying("hello").await;
    let faulty = |delay_ms: Option<u64>, answer: Option<AbortAnswer>| Fault {
        delay: delay_ms.map(|delay| Delay {
            share: Share::ALL,
            delay: Duration::from_millis(delay),
        }),
        abort: answer.map(|answer| Abort {
            share: Share::ALL,
            answer,
        }),
    };
    let world = world_of(&[backend.address], |policy| {
        let answer = AbortAnswer::Status(418);
        policy.fault = Some(faulty(None, Some(answer)).into());
    });
    let response = world.ask(GET).await;
    assert!(response.starts_with("HTTP/1.1 418 "), "{response}");
    assert!(response.contains("\r\n\r\nfault injected\n"), "{response}");
    world
        .counts("myriad_request_failures_total{reason=\"fault_abort\"} 1")
        .await;
    let world = world_of(&[backend.address], |policy| {
        policy.fault = Some(faulty(Some(1), Some(AbortAnswer::Grpc(14))).into());
    });
    let response = world.ask(GET).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert_eq!(header(&response, "content-type"), Some("application/grpc"));
    assert_eq!(header(&response, "grpc-status"), Some("14"));
    assert_eq!(backend.requests(), 0);
    let world = world_of(&[backend.address], |policy| {
        policy.fault = Some(faulty(Some(80), None).into());
    });
    let before = clock::now();
    assert!(world.ask(GET).await.ends_with("hello"));
    assert!(clock::now() - before >= Duration::from_millis(80));
    world.counts("myriad_requests_delayed_total 1").await;
}
