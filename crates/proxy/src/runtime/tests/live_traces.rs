//! Requests whose way somebody asks to see: what is told of them is what happened.

use std::time::Duration;

use http::Version;
use myriad_model::{RateLimit, Retry, RetryConditions, SourceRanges};
use socket2::SockRef;
use tokio::net::TcpListener;

use super::http2::{ask, connect, get};
use super::world::{Backend, PATIENCE, World, route, with_policy};
use crate::telemetry::live_trace::{LiveTraces, RequestTrace, StageOutcome, TraceOrder};

const CANARY: &str = "c4n4ry-c4n4ry-c4n4ry";

fn order(traces: &LiveTraces, path: &str, count: u32) -> u64 {
    let order = TraceOrder {
        host: "a.example".to_owned(),
        path: path.to_owned(),
        headers: Vec::new(),
        count,
        time: Duration::from_secs(60),
    };
    traces.start(order).unwrap().id
}

/// The only request of an order, once it is as wanted.
async fn seen(
    traces: &LiveTraces,
    id: u64,
    is_wanted: impl Fn(&RequestTrace) -> bool,
) -> RequestTrace {
    let found = async {
        loop {
            let report = traces.report(id).unwrap();
            if let [request] = &report.requests[..]
                && is_wanted(request)
            {
                return request.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.unwrap_or_else(|_| panic!("never as wanted: {:?}", traces.report(id)))
}

fn is_over(request: &RequestTrace) -> bool {
    request.is_over
}

/// The outcome and the words of a stage that a request has passed.
fn stage<'a>(request: &'a RequestTrace, name: &str) -> (StageOutcome, &'a str) {
    let mut stages = request.stages.iter();
    let stage = stages.find(|stage| stage.name == name);
    stage.map_or_else(
        || panic!("no stage {name}: {request:?}"),
        |stage| (stage.outcome, &*stage.text),
    )
}

fn request(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n")
}

#[tokio::test]
async fn a_request_of_http1_is_traced_to_its_endpoint_and_back() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    let traces = world.proxy.live_traces();
    let id = order(&traces, "/", 1);
    let fields = format!("Authorization: Bearer {CANARY}\r\nX-Plain: yes\r\n");
    let answer = world.ask(&request("/a?key=secret", &fields)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = seen(&traces, id, is_over).await;
    assert_eq!(
        (&*seen.protocol, &*seen.target),
        ("HTTP/1.1", "/a?key=[redacted]")
    );
    assert_eq!((seen.status, seen.bytes_sent, &*seen.failure), (200, 5, ""));
    let (outcome, text) = stage(&seen, "route");
    assert_eq!(outcome, StageOutcome::Passed);
    assert!(
        text.contains(&seen.route) && !seen.route.is_empty(),
        "{seen:?}"
    );
    let (outcome, text) = stage(&seen, "action");
    assert_eq!(outcome, StageOutcome::Forwarded);
    assert!(text.contains("one of 1 endpoints"), "{text}");
    assert_eq!(seen.tries.len(), 1);
    assert_eq!(seen.tries[0].endpoint, backend.address.to_string());
    assert_eq!(
        (seen.tries[0].is_reused, seen.tries[0].status),
        (Some(false), 200)
    );
    let shown = format!("{seen:?}");
    assert!(
        !shown.contains(CANARY) && shown.contains("X-Plain"),
        "{shown}"
    );
    // Nobody has asked for the next one.
    world.ask(&request("/a", "")).await;
    assert_eq!(traces.report(id).unwrap().requests.len(), 1);
}

#[tokio::test]
async fn a_request_of_http2_is_traced_as_well() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    let traces = world.proxy.live_traces();
    let id = order(&traces, "/", 1);
    let mut client = connect(&world, "a.example").await;
    let (response, _) = ask(&mut client, get("https://a.example/"), b"").await;
    assert_eq!(
        (response.version(), response.status().as_u16()),
        (Version::HTTP_2, 200)
    );
    let seen = seen(&traces, id, is_over).await;
    assert_eq!((&*seen.protocol, &*seen.scheme), ("HTTP/2", "https"));
    assert_eq!(stage(&seen, "action").0, StageOutcome::Forwarded);
    assert_eq!(seen.tries.len(), 1);
}

#[tokio::test]
async fn what_a_stage_really_did_is_told_where_it_could_not_be_foretold() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let rare = with_policy(route("a.example", "/rare", "u"), |policy| {
        policy.rate_limits = [RateLimit {
            name: "rare".into(),
            requests: 1,
            interval: Duration::from_secs(3_600),
            burst: 0,
            is_per_client: false,
            exempt: SourceRanges::default(),
            is_at_once: false,
        }]
        .into();
    });
    world.put_route("rare", rare);
    world.ask(&request("/rare", "")).await;
    let traces = world.proxy.live_traces();
    let id = order(&traces, "/rare", 1);
    world.ask(&request("/rare", "")).await;
    let limited = seen(&traces, id, is_over).await;
    let (outcome, text) = stage(&limited, "rate limit");
    assert_eq!(outcome, StageOutcome::Refused);
    assert!(text.starts_with("429: too many requests"), "{text}");
    assert_eq!((limited.status, &*limited.failure), (429, "rate_limited"));
    assert!(limited.tries.is_empty() && !limited.why.is_empty());
    assert_eq!(backend.requests(), 1);
    let id = order(&traces, "/nowhere", 1);
    world.ask(&request("/nowhere", "")).await;
    let lost = seen(&traces, id, is_over).await;
    let (outcome, text) = stage(&lost, "route");
    assert_eq!(outcome, StageOutcome::Refused);
    assert!(
        text.contains("no route of a.example takes GET /nowhere"),
        "{text}"
    );
}

#[tokio::test]
async fn tries_that_failed_are_told_with_the_last_one() {
    // An address where nobody listens.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = free.local_addr().unwrap();
    drop(free);
    let mut world = World::start();
    world.put_upstream("u", &[dead]);
    let retried = with_policy(route("a.example", "/", "u"), |policy| {
        policy.retry = Some(Box::new(Retry {
            attempts: 2,
            try_timeout: Duration::ZERO,
            conditions: RetryConditions::CONNECT_FAILURE,
            statuses: Box::default(),
            backoff: Duration::from_millis(2),
        }));
    });
    world.put_route("r", retried);
    let traces = world.proxy.live_traces();
    let id = order(&traces, "/", 1);
    world.ask(&request("/", "")).await;
    let seen = seen(&traces, id, is_over).await;
    assert_eq!(seen.tries.len(), 3, "{seen:?}");
    assert!(seen.tries.iter().all(|it| it.failure == "connect_failed"));
    assert_eq!((seen.status, &*seen.failure), (502, "connect_failed"));
}

#[tokio::test]
async fn a_request_that_hangs_says_what_it_waits_for() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[silent.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    let traces = world.proxy.live_traces();
    let id = order(&traces, "/", 1);
    let mut client = world.client().await;
    client.send(request("/", "")).await;
    let hanging = seen(&traces, id, |request| {
        let mut waits = request.waits.iter();
        waits.any(|wait| !wait.is_over && wait.what == "the endpoint's answer")
    });
    let hanging = hanging.await;
    assert!(!hanging.is_over && hanging.status == 0, "{hanging:?}");
    // One that only closes may still read the answer.
    let linger = Some(Duration::ZERO);
    SockRef::from(&client.stream).set_linger(linger).unwrap();
    drop(client);
    let gone = seen(&traces, id, is_over).await;
    assert!(!gone.why.is_empty(), "{gone:?}");
}
