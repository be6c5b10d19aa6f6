//! Requests as metrics, the table of who has most, and a collector of OpenTelemetry tell of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use myriad_e2e::authority::Authority;
use myriad_e2e::world::eventually;
use myriad_e2e::{Backend, Site, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A message to a collector: its path and its bytes.
type Message = (String, Vec<u8>);

/// A collector that takes everything and hands it on.
async fn collector() -> (SocketAddr, mpsc::Receiver<Message>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (messages, taken) = mpsc::channel(256);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(collect(tcp, messages.clone()));
        }
    });
    (address, taken)
}

async fn collect(mut tcp: TcpStream, messages: mpsc::Sender<Message>) {
    let mut bytes = Vec::new();
    let mut room = vec![0; 64 << 10];
    while let Ok(count @ 1..) = tcp.read(&mut room).await {
        bytes.extend_from_slice(&room[..count]);
        let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = head
            .lines()
            .find_map(|it| it.strip_prefix("content-length: "));
        let length: usize = length.and_then(|it| it.parse().ok()).unwrap_or_default();
        if bytes.len() < end + 4 + length {
            continue;
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let body = bytes[end + 4..end + 4 + length].to_vec();
        bytes.drain(..end + 4 + length);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        if tcp.write_all(answer).await.is_err() || messages.send((path, body)).await.is_err() {
            return;
        }
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|it| it == text.as_bytes())
}

/// The world of two hosts, of which one is asked more.
async fn two_hosts(arguments: &[&str]) -> (Backend, World) {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = |host: &str| {
        Site::new(host)
            .to(backend.address())
            .tls(&authority.issue(&[host]))
            .yaml()
    };
    let files = [("a.yaml", site("a.test")), ("b.yaml", site("b.test"))];
    let world = World::serve_with(authority, &files, arguments).await;
    for url in ["https://a.test/", "https://a.test/", "https://b.test/"] {
        assert_eq!(world.get(url).await.status, 200);
    }
    (backend, world)
}

#[tokio::test]
async fn who_has_most_is_told_on_demand_and_has_a_series() {
    let (_backend, world) = two_hosts(&["--top-series=1"]).await;
    let all = eventually(async || {
        let text = world.admin("/top?by=requests").await.body;
        let rows: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
        (rows == ["2  a.test", "1  b.test"]).then_some(())
    });
    assert!(all.await.is_some());
    let json = world.admin("/top.json?of=routes&n=1").await;
    let json: serde_json::Value = serde_json::from_str(&json.body).expect("JSON");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(1), "{json}");
    assert_eq!(json["rows"][0]["count"], 2, "{json}");
    assert_eq!(world.admin("/top?by=sorrows").await.status, 400);
    // The series begins once somebody has looked.
    world.admin("/metrics").await;
    assert_eq!(world.get("https://a.test/").await.status, 200);
    let told = eventually(async || {
        let text = world.admin("/metrics").await.body;
        let series = text
            .lines()
            .filter(|it| it.starts_with("myriad_domain_requests_total{"));
        let series: Vec<&str> = series.collect();
        let expected = [
            "myriad_domain_requests_total{domain=\"a.test\"} 1",
            "myriad_domain_requests_total{domain=\"other\"} 3",
        ];
        (series == expected).then_some(())
    });
    assert!(told.await.is_some());
    world.stop().await;
}

#[tokio::test]
async fn a_change_counts_from_its_file_to_the_tables() {
    let (backend, world) = two_hosts(&[]).await;
    let count = "myriad_activation_seconds_count";
    assert_eq!(world.metric(count).await, 0.0, "the start is no change");
    let pair = world.authority.issue(&["c.test"]);
    let site = Site::new("c.test").to(backend.address()).tls(&pair);
    world.write("c.yaml", &site.yaml());
    let is_live = |answer: &myriad_e2e::Answer| answer.status == 200;
    world.eventually("https://c.test/", is_live).await;
    assert_eq!(world.metric(count).await, 1.0);
    let sum = world.metric("myriad_activation_seconds_sum").await;
    assert!(sum > 0.0 && sum < 20.0, "{sum} seconds");
    let protobuf = "Accept: application/vnd.google.protobuf;\
                    proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let answer = world
        .admin_curl("/metrics")
        .args(&["-H", protobuf])
        .ask()
        .await;
    let content_type = answer.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with("application/vnd.google.protobuf"));
    assert!(answer.body.contains("myriad_activation_seconds"));
    world.stop().await;
}

#[tokio::test]
async fn a_collector_gets_metrics_and_the_lines_of_the_access_log_in_their_format() {
    let (address, mut messages) = collector().await;
    let otlp = format!("--otlp=http://{address}");
    let format = "--access-log-format=%REQ(:AUTHORITY)% said %RESPONSE_CODE% to %REQ(X-TENANT)%";
    let arguments = [&*otlp, "--otlp-interval=1", "--access-log-otlp", format];
    let (_backend, world) = two_hosts(&arguments).await;
    let asked = world.curl("https://a.test/").args(&["-H", "X-Tenant: me"]);
    assert_eq!(asked.ask().await.status, 200);
    let mut missing = BTreeSet::from(["metrics", "a line", "a header"]);
    let all = eventually(async || {
        let (path, body) = messages.recv().await.expect("a message");
        match &*path {
            "/v1/metrics" if holds(&body, "myriad_requests_total") => missing.remove("metrics"),
            "/v1/logs" => {
                if holds(&body, "a.test said 200 to me") {
                    missing.remove("a header");
                }
                holds(&body, "b.test said 200 to -") && missing.remove("a line")
            }
            _ => false,
        };
        missing.is_empty().then_some(())
    });
    assert!(all.await.is_some(), "{missing:?}");
    world.stop().await;
}

#[tokio::test]
async fn each_metric_that_is_shown_stands_in_the_table() {
    let (address, _messages) = collector().await;
    let otlp = format!("--otlp=http://{address}");
    let (_backend, world) = two_hosts(&[&*otlp, "--access-log-otlp"]).await;
    let text = world.admin("/metrics").await.body;
    let strangers = myriad_e2e::catalogue::strangers(&text);
    assert!(strangers.is_empty(), "{strangers:#?}");
    world.stop().await;
}
