//! Checks as a kubelet asks for them, of workloads that are real sockets.
#![expect(clippy::disallowed_methods, reason = "tests may start tasks")]

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use myriad_admin::server::Source;
use myriad_base::metrics::Metrics;
use myriad_base::readiness::Readiness;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Probes, SharedChecks, read};

const PATH: &str = "/workload/app/readyz";

fn probes(check: &Value) -> Probes {
    Probes {
        readiness: Readiness::new(),
        metrics: Metrics::new(),
        checks: read(&json!({ PATH: check }).to_string()).unwrap(),
        pod: IpAddr::from([127, 0, 0, 1]),
        may_read_metrics: Box::new(|address| address == IpAddr::from([192, 0, 2, 9])),
    }
}

#[tokio::test]
async fn metrics_are_told_to_those_who_may_read_them_and_health_to_all() {
    let probes = probes(&json!({"tcpSocket": {"port": 1}, "timeoutSeconds": 1}));
    let shared = SharedChecks::new(Duration::ZERO);
    for (path, of_reader, of_stranger) in [
        ("/metrics", 200, 403),
        ("/stats/prometheus", 200, 403),
        ("/healthz", 200, 200),
    ] {
        for (last, expected) in [(9, of_reader), (10, of_stranger)] {
            let mut question = http::Request::get(path).body(bytes::Bytes::new()).unwrap();
            let address = IpAddr::from([192, 0, 2, last]);
            question.extensions_mut().insert(Source(address));
            let answer = probes.answer(&question, &shared).await;
            assert_eq!(answer.status().as_u16(), expected, "{path} of {address}");
        }
    }
}

/// The status that the kubelet gets, if nobody has asked before.
async fn answer(probes: &Probes, path: &str) -> u16 {
    let shared = SharedChecks::new(Duration::ZERO);
    answer_to("kube-probe/1.36", probes, &shared, path).await
}

/// The status that somebody gets.
async fn answer_to(asker: &str, probes: &Probes, shared: &SharedChecks, path: &str) -> u16 {
    let question = http::Request::get(path).header("user-agent", asker);
    let mut question = question.body(bytes::Bytes::new()).unwrap();
    let reader = Source(IpAddr::from([192, 0, 2, 9]));
    question.extensions_mut().insert(reader);
    let answer = probes.answer(&question, shared).await;
    answer.status().as_u16()
}

/// A workload that says this to one connection; the port, and what it was asked.
async fn workload(says: &'static str) -> (u16, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = tokio::spawn(async move {
        let (mut stream, from) = listener.accept().await.unwrap();
        assert_eq!(from.ip().to_string(), "127.0.0.6");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(says.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap()
    });
    (port, asked)
}

#[tokio::test]
async fn a_check_over_http_is_asked_of_the_workload_with_its_headers() {
    for (says, expected) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", 200),
        ("HTTP/1.1 302 Found\r\nlocation: /a\r\n\r\n", 200),
        ("HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n", 500),
        ("nonsense\r\n\r\n", 503),
    ] {
        let (port, asked) = workload(says).await;
        let headers = json!([{"name": "Host", "value": "own.example"}]);
        let get = json!({"path": "/health?deep", "port": port, "httpHeaders": headers});
        let probes = probes(&json!({"httpGet": get, "timeoutSeconds": 5}));
        assert_eq!(answer(&probes, PATH).await, expected, "{says}");
        let asked = asked.await.unwrap();
        assert!(
            asked.starts_with("GET /health?deep HTTP/1.1\r\n"),
            "{asked}"
        );
        assert!(asked.contains("host: own.example\r\n"), "{asked}");
        assert!(asked.contains("user-agent: kube-probe/1.36\r\n"), "{asked}");
    }
}

#[tokio::test]
async fn whoever_asks_the_workload_is_asked_as_a_kubelet_asks() {
    for (asker, expected) in [
        ("kube-probe/1.36+", "user-agent: kube-probe/1.36+\r\n"),
        ("sqlmap/1.8", "user-agent: kube-probe/\r\n"),
        ("kube-probe/1.36 sqlmap", "user-agent: kube-probe/\r\n"),
    ] {
        let (port, asked) = workload("HTTP/1.1 200 OK\r\n\r\n").await;
        let probes = probes(&json!({"httpGet": {"port": port}, "timeoutSeconds": 5}));
        let shared = SharedChecks::new(Duration::ZERO);
        assert_eq!(answer_to(asker, &probes, &shared, PATH).await, 200);
        let asked = asked.await.unwrap();
        assert!(asked.contains(expected), "{asked}");
    }
}

/// A workload that answers every connection once it may; the port, and how many came.
async fn slow_workload(may_answer: watch::Receiver<bool>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let mut may_answer = may_answer.clone();
            tokio::spawn(async move {
                may_answer.wait_for(|may| *may).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                // Whatever else it is sent does not matter.
                let _ = stream.read_u8().await;
            });
        }
    });
    (port, count)
}

#[tokio::test]
async fn a_crowd_that_asks_costs_the_workload_one_check_and_leaves_a_kubelet_its_answer() {
    let (gate, may_answer) = watch::channel(false);
    let (port, count) = slow_workload(may_answer).await;
    let get = json!({"httpGet": {"port": port}, "timeoutSeconds": 60});
    let probes = Arc::new(probes(&get));
    // Long enough for all of them, on whatever machine.
    let shared = Arc::new(SharedChecks::new(Duration::from_secs(3_600)));
    // The one that was first goes, and takes nothing from the others.
    let goes = answer_to("curl/8", &probes, &shared, PATH);
    let in_a_moment = tokio::time::timeout(Duration::from_millis(1), goes);
    assert!(in_a_moment.await.is_err());
    let mut crowd = JoinSet::new();
    for number in 0..300 {
        let (probes, shared) = (probes.clone(), shared.clone());
        let asker = ["curl/8", "kube-probe/1.36"][usize::from(number == 299)];
        crowd.spawn(async move { answer_to(asker, &probes, &shared, PATH).await });
    }
    while count.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    gate.send_replace(true);
    while let Some(status) = crowd.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
    // What is not fresh is asked anew.
    let shared = SharedChecks::new(Duration::ZERO);
    for _ in 0..2 {
        assert_eq!(answer_to("curl/8", &probes, &shared, PATH).await, 200);
    }
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_workload_that_is_not_there_or_does_not_answer_is_unwell() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = probes(&json!({"tcpSocket": {"port": port}, "timeoutSeconds": 1}));
    assert_eq!(answer(&socket, PATH).await, 200);
    let get = probes(&json!({"httpGet": {"port": port}, "timeoutSeconds": 1}));
    assert_eq!(answer(&get, PATH).await, 504);
    drop(listener);
    assert_eq!(answer(&socket, PATH).await, 503);
}

#[tokio::test]
async fn health_over_grpc_is_what_the_service_says() {
    for (status, expected) in [(1_u8, 200), (2, 503)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let (mut request, mut answers) = connection.accept().await.unwrap().unwrap();
            let drive = tokio::spawn(async move { connection.accept().await.is_none() });
            let path = request.uri().path().to_owned();
            let asked = request.body_mut().data().await.unwrap().unwrap();
            let mut body = answers
                .send_response(http::Response::new(()), false)
                .unwrap();
            let message = vec![0, 0, 0, 0, 2, 0x08, status];
            body.send_data(message.into(), false).unwrap();
            let ok = http::HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                http::HeaderValue::from_static("0"),
            )]);
            body.send_trailers(ok).unwrap();
            drive.await.unwrap();
            (path, asked)
        });
        let grpc = json!({"port": port, "service": "own"});
        let probes = probes(&json!({"grpc": grpc, "timeoutSeconds": 5}));
        assert_eq!(answer(&probes, PATH).await, expected);
        let (path, asked) = serving.await.unwrap();
        assert_eq!(path, "/grpc.health.v1.Health/Check");
        assert_eq!(&asked[..], b"\0\0\0\0\x05\x0a\x03own");
    }
}

#[tokio::test]
async fn the_proxy_answers_for_itself_as_well() {
    let probes = probes(&json!({"tcpSocket": {"port": 1}, "timeoutSeconds": 1}));
    let first = probes.readiness.require("the first snapshot");
    assert_eq!(answer(&probes, "/readyz").await, 503);
    first.meet();
    assert_eq!(answer(&probes, "/readyz").await, 200);
    assert_eq!(answer(&probes, "/healthz").await, 200);
    assert_eq!(answer(&probes, "/stats/prometheus").await, 200);
    assert_eq!(answer(&probes, "/workload/app/livez").await, 404);
}
