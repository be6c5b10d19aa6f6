//! Checks as a kubelet asks for them, of workloads that are real sockets.
#![expect(clippy::disallowed_methods, reason = "tests may start tasks")]

use std::net::IpAddr;

use myriad_base::metrics::Metrics;
use myriad_base::readiness::Readiness;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::{Probes, UNDER_WAY_MAX, read};

const PATH: &str = "/workload/app/readyz";

fn probes(check: &Value) -> Probes {
    Probes {
        readiness: Readiness::new(),
        metrics: Metrics::new(),
        checks: read(&json!({ PATH: check }).to_string()).unwrap(),
        pod: IpAddr::from([127, 0, 0, 1]),
    }
}

/// The status that the kubelet gets.
async fn answer(probes: &Probes, path: &str) -> u16 {
    let question = http::Request::get(path).header("user-agent", "kube-probe/1.36");
    let question = question.body(bytes::Bytes::new()).unwrap();
    let under_way = Semaphore::new(UNDER_WAY_MAX);
    let answer = probes.answer(&question, &under_way).await;
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
