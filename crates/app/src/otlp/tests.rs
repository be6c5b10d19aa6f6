use std::io::Write;
use std::time::Duration;

use myriad_base::drain::Drain;
use myriad_base::metrics::{Counter, Metrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Collector, LineQueue, Otlp, SenderName};

/// The next request of a connection: its head and its body.
async fn request(tcp: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        let mut room = [0; 4096];
        let count = tcp.read(&mut room).await.expect("bytes");
        assert!(count > 0, "the connection ended");
        bytes.extend_from_slice(&room[..count]);
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
        let Some(end) = end else { continue };
        let head = String::from_utf8(bytes.drain(..end + 4).collect()).expect("a head");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        break (
            head.clone(),
            length.expect("a length").parse().expect("a length"),
        );
    };
    while bytes.len() < length {
        let mut room = [0; 4096];
        let count = tcp.read(&mut room).await.expect("bytes");
        bytes.extend_from_slice(&room[..count]);
    }
    (head, bytes)
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|it| it == text.as_bytes())
}

/// Sends lines to this collector, and metrics once, at the end.
fn start(url: &str, queue: &LineQueue, metrics: &Metrics, drain: &Drain) {
    let otlp = Otlp {
        collector: Collector::parse(url).expect("a collector"),
        interval: Duration::from_secs(3_600),
        lines: Some(queue.clone()),
    };
    let name = SenderName {
        role: "serve",
        instance: "here".to_owned(),
        version: "1.2.3",
    };
    otlp.start(name, metrics, drain).expect("a thread");
}

#[tokio::test]
async fn a_collector_gets_lines_soon_and_metrics_at_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (metrics, drain, queue) = (Metrics::new(), Drain::new(), LineQueue::new());
    let counter = Counter::<u64>::default();
    metrics.register("things", "Things", counter.clone());
    start(&format!("http://{address}/otel"), &queue, &metrics, &drain);
    let mut writer = queue.writer();
    writer.write_all(b"one\ntwo\n").expect("written");
    let (mut tcp, _) = listener.accept().await.expect("a connection");
    let (head, body) = request(&mut tcp).await;
    assert!(
        head.starts_with("POST /otel/v1/logs HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(holds(&body, "one") && holds(&body, "two") && holds(&body, "1.2.3"));
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    tcp.write_all(answer).await.expect("answered");
    while !metrics.encode().contains("outcome=\"sent\"") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    counter.inc();
    drain.start();
    // On the same connection.
    let (head, body) = request(&mut tcp).await;
    assert!(
        head.starts_with("POST /otel/v1/metrics HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(holds(&body, "myriad_things_total"));
    tcp.write_all(answer).await.expect("answered");
    drain.finished().await;
    let text = metrics.encode();
    for signal in ["logs", "metrics"] {
        let line = format!("{{signal=\"{signal}\",outcome=\"sent\"}} 1\n");
        assert!(text.contains(&line), "{text}");
    }
}

#[tokio::test]
async fn lines_that_nobody_takes_are_counted_and_the_end_waits_for_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let (metrics, drain, queue) = (Metrics::new(), Drain::new(), LineQueue::new());
    queue.writer().write_all(b"one\ntwo\n").expect("written");
    start(&format!("http://{address}"), &queue, &metrics, &drain);
    drain.start();
    drain.finished().await;
    let text = metrics.encode();
    assert!(
        text.contains("myriad_otlp_log_lines_dropped_total 2\n"),
        "{text}"
    );
    let line = "{signal=\"metrics\",outcome=\"failed\"} 1\n";
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn a_collector_that_never_answers_holds_neither_memory_nor_the_end() {
    // The kernel takes the connection, and nobody reads from it.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (metrics, drain, queue) = (Metrics::new(), Drain::new(), LineQueue::new());
    start(&format!("http://{address}"), &queue, &metrics, &drain);
    let (mut writer, lines) = (queue.writer(), 60_000);
    for _ in 0..lines {
        writer.write_all(b"a line\n").expect("written");
    }
    // Those that wait, and those of a few messages that are given up meanwhile.
    let most = 16_384 + 8 * 2_048;
    assert!(queue.dropped().get() >= lines - most);
    drain.start();
    let ended = tokio::time::timeout(Duration::from_secs(10), drain.finished());
    assert!(ended.await.is_ok(), "the end waits for the collector");
}
