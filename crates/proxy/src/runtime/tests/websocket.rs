//! WebSocket over either version of HTTP, on either side.

use std::sync::Arc;
use std::time::Duration;

use ::h2::client::SendRequest;
use ::h2::ext::Protocol;
use ::h2::{RecvStream, SendStream};
use bytes::Bytes;
use http::{Method, Request, Response};
use myriad_base::task;
use myriad_model::{Action, Endpoint, Endpoints, Protocol as Speaks, Respond, Upstream, Value};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::http2::connect;
use super::world::{Client, PATIENCE, World, header, route, with_policy};
use crate::codec::websocket::accept;

/// The request of a client of HTTP/1.1; the key is that of RFC 6455.
pub(super) const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// The bytes of an open stream.
pub(super) struct Open {
    send: SendStream<Bytes>,
    receive: RecvStream,
}

impl Open {
    pub(super) async fn say(&mut self, text: &'static str, is_last: bool) {
        let text = Bytes::from_static(text.as_bytes());
        self.send.send_data(text, is_last).unwrap();
    }

    /// The next bytes; none at the end.
    pub(super) async fn hear(&mut self) -> Option<String> {
        loop {
            let data = tokio::time::timeout(PATIENCE, self.receive.data());
            let data = data.await.expect("somebody speaks")?.unwrap();
            let _ = self.receive.flow_control().release_capacity(data.len());
            if !data.is_empty() {
                return Some(String::from_utf8(data.to_vec()).unwrap());
            }
        }
    }
}

/// A request to carry a protocol.
pub(super) fn carry(protocol: &str) -> Request<()> {
    Request::builder()
        .method(Method::CONNECT)
        .uri("https://a.example/chat?room=1")
        .header("sec-websocket-version", "13")
        .extension(Protocol::from(protocol))
        .body(())
        .unwrap()
}

/// A client of HTTP/2 to whom the proxy has said that streams may carry protocols.
pub(super) async fn offered(world: &World) -> SendRequest<Bytes> {
    let mut client = connect(world, "a.example").await;
    // An answer comes behind the settings.
    let request = Request::get("https://a.example/none").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    response.await.unwrap();
    assert!(client.is_extended_connect_protocol_enabled());
    client
}

/// The head of the answer, and the stream behind it.
pub(super) async fn open(
    client: &mut SendRequest<Bytes>,
    request: Request<()>,
) -> (Response<()>, Open) {
    let mut ready = client.clone().ready().await.unwrap();
    let (response, send) = ready.send_request(request, false).unwrap();
    let response = tokio::time::timeout(PATIENCE, response).await.unwrap();
    let (parts, receive) = response.unwrap().into_parts();
    (Response::from_parts(parts, ()), Open { send, receive })
}

/// A world whose host leads to an endpoint that speaks some version.
async fn world(speaks: Speaks) -> (World, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    let upstream = Upstream {
        protocol: speaks,
        dns: None,
        tls: None,
        options: None,
        original_destination: false,
        source_address: None,
    };
    let address = listener.local_addr().unwrap();
    let endpoints = Endpoints::new([Endpoint::even(address)].into());
    world.put_all(vec![
        ("u", Value::Upstream(Box::new(upstream))),
        ("u", Value::Endpoints(Box::new(endpoints))),
    ]);
    world.put_domain("a.example", &["a.example"], Default::default());
    world.put_route("r", route("a.example", "/", "u"));
    let mut none = route("a.example", "/none", "u");
    none.action = Action::Respond(Box::new(Respond {
        status: 204,
        body: Arc::default(),
    }));
    world.put_route("none", none);
    (world, listener)
}

/// An endpoint of HTTP/2, and the first request that it gets, answered by a status.
async fn endpoint(
    listener: TcpListener,
    offers: bool,
    status: u16,
) -> (http::request::Parts, Open) {
    let (sender, asked) = tokio::sync::oneshot::channel();
    task::spawn("endpoint", async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut builder = ::h2::server::Builder::new();
        if offers {
            builder.enable_connect_protocol();
        }
        let mut connection = builder.handshake::<_, Bytes>(tcp).await.unwrap();
        let mut sender = Some(sender);
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let mut response = Response::new(());
            *response.status_mut() = status.try_into().unwrap();
            let send = respond.send_response(response, false).unwrap();
            let (parts, receive) = request.into_parts();
            if let Some(sender) = sender.take() {
                let _ = sender.send((parts, Open { send, receive }));
            }
        }
    });
    tokio::time::timeout(PATIENCE, asked)
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn a_stream_becomes_an_upgrade_of_http1_and_each_side_ends_for_itself() {
    let (world, listener) = world(Speaks::Http1).await;
    let mut client = offered(&world).await;
    let opening = open(&mut client, carry("websocket"));
    let answering = async {
        let mut endpoint = Client::new(listener.accept().await.unwrap().0);
        let head = endpoint.read_until("\r\n\r\n").await;
        assert!(
            head.starts_with("GET /chat?room=1 HTTP/1.1\r\nhost: a.example\r\n"),
            "{head}"
        );
        assert_eq!(header(&head, "upgrade"), Some("websocket"));
        assert_eq!(header(&head, "connection"), Some("upgrade"));
        assert_eq!(header(&head, "sec-websocket-version"), Some("13"));
        let key = header(&head, "sec-websocket-key").unwrap();
        assert_eq!(key.len(), 24, "{head}");
        let accept = accept(key.as_bytes());
        endpoint
            .send(format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                 Connection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\
                 Sec-WebSocket-Protocol: chat\r\n\r\nearly"
            ))
            .await;
        endpoint
    };
    let ((response, mut stream), mut endpoint) = tokio::join!(opening, answering);
    assert_eq!(response.status(), 200);
    let fields = response.headers();
    assert_eq!(fields.get("sec-websocket-protocol").unwrap(), "chat");
    for name in ["upgrade", "connection", "sec-websocket-accept"] {
        assert!(!fields.contains_key(name), "{name}");
    }
    assert_eq!(stream.hear().await.unwrap(), "early");
    stream.say("hello", false).await;
    assert_eq!(endpoint.read_exact(5).await, b"hello");
    stream.say("bye", true).await;
    assert_eq!(endpoint.read_to_end().await, "bye");
    endpoint.send("late").await;
    assert_eq!(stream.hear().await.unwrap(), "late");
    endpoint.stream.shutdown().await.unwrap();
    assert_eq!(stream.hear().await, None);
}

#[tokio::test]
async fn an_upgrade_of_http1_becomes_a_stream() {
    let (world, listener) = world(Speaks::H2c).await;
    let asking = async {
        let mut client = world.client().await;
        client.send(UPGRADE).await;
        let head = client.read_until("\r\n\r\n").await;
        (client, head)
    };
    let ((mut client, head), (asked, mut stream)) =
        tokio::join!(asking, endpoint(listener, true, 200));
    assert_eq!(asked.method, Method::CONNECT);
    assert_eq!(asked.uri, "http://a.example/chat");
    let protocol = asked.extensions.get::<Protocol>().unwrap();
    assert_eq!(protocol.as_str(), "websocket");
    assert!(!asked.headers.contains_key("sec-websocket-key"));
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    assert_eq!(header(&head, "connection"), Some("upgrade"));
    let accept = header(&head, "sec-websocket-accept");
    assert_eq!(accept, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    client.send("hello").await;
    assert_eq!(stream.hear().await.unwrap(), "hello");
    client.stream.shutdown().await.unwrap();
    assert_eq!(stream.hear().await, None);
    stream.say("late", true).await;
    assert_eq!(client.read_to_end().await, "late");
}

#[tokio::test]
async fn a_stream_stays_one_and_much_passes_while_others_go_on() {
    let (world, listener) = world(Speaks::H2c).await;
    let mut client = offered(&world).await;
    let opening = open(&mut client, carry("websocket"));
    let ((response, mut stream), (_, mut far)) =
        tokio::join!(opening, endpoint(listener, true, 200));
    assert_eq!(response.status(), 200);
    // More than any window, which opens only as the client reads.
    let sent = task::spawn("much", async move {
        let mut left = 4 << 20;
        while left > 0 {
            far.send.reserve_capacity(left);
            let granted = std::future::poll_fn(|context| far.send.poll_capacity(context)).await;
            let granted = granted.unwrap().unwrap().min(left);
            far.send
                .send_data(vec![b'x'; granted].into(), false)
                .unwrap();
            left -= granted;
        }
        far.say("", true).await;
        far
    });
    // Another stream of the connection does not wait for this one.
    let request = Request::get("https://a.example/none").body(()).unwrap();
    let (none, _) = open(&mut client, request).await;
    assert_eq!(none.status(), 204);
    let mut heard = 0;
    while let Some(text) = stream.hear().await {
        heard += text.len();
    }
    assert_eq!(heard, 4 << 20);
    drop(sent.await.unwrap());
}

#[tokio::test]
async fn what_is_not_offered_is_refused() {
    let (world, listener) = world(Speaks::H2c).await;
    let mut client = offered(&world).await;
    task::spawn("endpoint", async move {
        endpoint(listener, false, 200).await;
    });
    let (response, _) = open(&mut client, carry("websocket")).await;
    assert_eq!(response.status(), 502);
    let mut other = world.client().await;
    other.send(UPGRADE).await;
    let (answer, _) = other.response().await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let line = "myriad_request_failures_total{reason=\"no_upgrade\"} 2\n";
    world.counts(line).await;
    for protocol in ["connect-udp", "webtransport", "h2c", "websocket2"] {
        let (response, _) = open(&mut client, carry(protocol)).await;
        assert_eq!(response.status(), 501, "{protocol}");
    }
    let mut odd = carry("websocket");
    odd.headers_mut()
        .insert("content-length", "5".parse().unwrap());
    let (response, _) = open(&mut client, odd).await;
    assert_eq!(response.status(), 400);
}

/// Waits until bytes were sent that nobody has read yet.
async fn wait_for(tcp: &TcpStream, wanted: &[u8]) {
    let mut bytes = [0; 1 << 10];
    let sent = async {
        loop {
            let length = tcp.peek(&mut bytes).await.unwrap();
            let mut places = bytes[..length].windows(wanted.len());
            if places.any(|place| place == wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let sent = tokio::time::timeout(PATIENCE, sent).await;
    sent.expect("it is sent");
}

#[tokio::test]
async fn an_upgrade_waits_to_be_told_what_its_endpoint_offers() {
    let (world, listener) = world(Speaks::H2c).await;
    let mut first = world.client().await;
    first
        .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    let (tcp, _) = listener.accept().await.unwrap();
    wait_for(&tcp, b"PRI * HTTP/2.0\r\n").await;
    let mut second = world.client().await;
    second.send(UPGRADE).await;
    // A ping, whose answer comes behind the settings, on the connection that there is.
    wait_for(&tcp, &[0, 0, 8, 6, 0, 0, 0, 0, 0]).await;
    let serving = task::spawn("endpoint", async move {
        let mut builder = ::h2::server::Builder::new();
        builder.enable_connect_protocol();
        let mut connection = builder.handshake::<_, Bytes>(tcp).await.unwrap();
        let mut open = Vec::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let is_end = request.method() != Method::CONNECT;
            open.push(respond.send_response(Response::new(()), is_end).unwrap());
        }
    });
    let head = second.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let head = first.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    serving.abort();
}

#[tokio::test]
async fn an_upgrade_does_not_wait_for_ever_to_be_told_what_its_endpoint_offers() {
    let (mut world, listener) = world(Speaks::H2c).await;
    let hurried = with_policy(route("a.example", "/", "u"), |policy| {
        policy.connect_timeout = Duration::from_millis(200);
    });
    world.put_route("r", hurried);
    let mut client = world.client().await;
    client.send(UPGRADE).await;
    let (_silent, _) = listener.accept().await.unwrap();
    let (answer, _) = client.response().await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn an_endpoint_that_ignores_the_upgrade_has_not_changed_the_protocol() {
    let (world, listener) = world(Speaks::Http1).await;
    let mut client = offered(&world).await;
    for (answer, status) in [("200 OK", 502), ("403 Forbidden", 403)] {
        let opening = open(&mut client, carry("websocket"));
        let answering = async {
            let mut endpoint = Client::new(listener.accept().await.unwrap().0);
            endpoint.read_until("\r\n\r\n").await;
            let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n");
            endpoint
                .send(format!("{head}Connection: close\r\n\r\n"))
                .await;
        };
        let ((response, _), ()) = tokio::join!(opening, answering);
        assert_eq!(response.status(), status, "{answer}");
    }
    // Nor has the proxy, where it answers itself.
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri("https://a.example/none")
        .extension(Protocol::from("websocket"))
        .body(())
        .unwrap();
    let (response, _) = open(&mut client, request).await;
    assert_eq!(response.status(), 502);
}

#[tokio::test]
async fn a_stream_on_which_nobody_speaks_ends() {
    let (mut world, listener) = world(Speaks::Http1).await;
    let idle = with_policy(route("a.example", "/", "u"), |policy| {
        policy.read_timeout = Duration::from_millis(200);
    });
    world.put_route("r", idle);
    let mut client = offered(&world).await;
    let opening = open(&mut client, carry("websocket"));
    let answering = async {
        let mut endpoint = Client::new(listener.accept().await.unwrap().0);
        endpoint.read_until("\r\n\r\n").await;
        endpoint
            .send("HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n")
            .await;
        endpoint
    };
    let ((_, mut stream), mut endpoint) = tokio::join!(opening, answering);
    let ended = tokio::time::timeout(PATIENCE, stream.receive.data()).await;
    assert!(matches!(ended, Ok(Some(Err(_)))), "the stream is reset");
    assert_eq!(endpoint.read_to_end().await, "");
}

#[tokio::test]
async fn nobody_gets_a_tunnel_to_wherever_it_wants() {
    let (world, _listener) = world(Speaks::Http1).await;
    for target in ["b.example:443", "a.example:443", "/"] {
        let text = format!("CONNECT {target} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let mut client = world.client().await;
        client.send(text).await;
        let answer = client.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{target}: {answer}");
        assert!(answer.contains("\r\n\r\nmethod refused\n"), "{answer}");
    }
    let mut client = offered(&world).await;
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri("b.example:443")
        .body(())
        .unwrap();
    let (response, _) = open(&mut client, request).await;
    assert_eq!(response.status(), 405);
}
