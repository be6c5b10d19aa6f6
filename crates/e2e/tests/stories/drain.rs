//! The end: nothing that was begun is lost.

use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::{Site, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// An endpoint that answers one request when told to.
async fn slow_endpoint() -> (
    std::net::SocketAddr,
    oneshot::Receiver<()>,
    oneshot::Sender<()>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (asked, was_asked) = oneshot::channel();
    let (answer, may_answer) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the proxy connects");
        let mut bytes = [0; 4_096];
        let read = stream.read(&mut bytes).await.expect("a request");
        assert!(read > 0);
        asked.send(()).expect("the story listens");
        may_answer.await.expect("the story goes on");
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
        stream.write_all(answer).await.expect("an answer");
        // Held open, so that the proxy's side decides about the end.
        let _ = stream.read(&mut bytes).await;
    });
    (address, was_asked, answer)
}

#[tokio::test]
async fn a_request_in_flight_is_answered_and_idle_connections_are_closed() {
    let (address, was_asked, answer) = slow_endpoint().await;
    let site = Site::new("a.test").to(address);
    let world = World::serve_with(Authority::new(), &[("a.yaml", site.yaml())], &[]).await;
    let http = world.http();

    let mut idle = TcpStream::connect(http).await.expect("a connection");
    let mut busy = TcpStream::connect(http).await.expect("a connection");
    busy.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await
        .expect("a request");
    was_asked.await.expect("the endpoint is asked");

    let stopping = tokio::spawn(world.stop());
    let mut bytes = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), idle.read_to_end(&mut bytes))
        .await
        .expect("an idle connection is closed by the drain")
        .expect("cleanly");
    assert!(bytes.is_empty());
    assert!(!stopping.is_finished(), "a request is still in flight");

    answer.send(()).expect("the endpoint waits");
    busy.read_to_end(&mut bytes)
        .await
        .expect("the answer and the end");
    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    assert!(
        text.starts_with("http/1.1 200") && text.ends_with("done"),
        "{text}"
    );
    assert!(text.contains("connection: close"), "{text}");
    stopping.await.expect("the drain ends");
    assert!(
        TcpStream::connect(http).await.is_err(),
        "nobody listens any more"
    );
}
