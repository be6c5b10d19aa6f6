//! Endpoints that speak HTTP/2, as those of gRPC do.

mod hostile;
mod raw;
mod small_frames;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::h2::server::SendResponse;
use ::h2::{Reason, RecvStream};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use myriad_base::task;
use myriad_model::{
    Endpoint, Endpoints, MetricAction, MetricRule, Protocol, Retry, RetryConditions, Route,
    Telemetry, Upstream, Value,
};
use tokio::net::TcpListener;

use super::http2::connect;
use super::world::{Backend, PATIENCE, World, header, route, with_policy};

type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An endpoint of HTTP/2 that serves streams by a function of their number.
pub(super) struct Streams {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Streams {
    pub(super) async fn serving<S, F>(serve: S) -> Self
    where
        S: Fn(usize, Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Streams::with(1_000, move |number, request, respond| {
            Box::pin(serve(number, request, respond))
        })
        .await
    }

    async fn with(
        streams_max: u32,
        serve: impl Fn(usize, Request<RecvStream>, SendResponse<Bytes>) -> Serving
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let streams = Streams {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, requests) = (streams.connections.clone(), streams.requests.clone());
        let serve = Arc::new(serve);
        task::spawn("endpoint", async move {
            while let Ok((tcp, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (requests, serve) = (requests.clone(), serve.clone());
                task::spawn("endpoint connection", async move {
                    let mut builder = ::h2::server::Builder::new();
                    builder.max_concurrent_streams(streams_max);
                    let mut connection = builder.handshake::<_, Bytes>(tcp).await.unwrap();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let number = requests.fetch_add(1, Ordering::SeqCst);
                        if request.uri().path() == "/last" {
                            connection.graceful_shutdown();
                        }
                        task::spawn("endpoint stream", serve(number, request, respond));
                    }
                });
            }
        });
        streams
    }

    /// Answers with the head, the body and the trailers that came.
    pub(super) async fn echo() -> Self {
        Streams::serving(|_, request, respond| echo(request, respond)).await
    }

    pub(super) fn world(&self) -> World {
        let mut world = World::start();
        put(&mut world, "u", self.address);
        world.put_route("r", route("a.example", "/", "u"));
        world.put_domain("a.example", &["a.example"], Default::default());
        world
    }
}

pub(super) fn put(world: &mut World, name: &str, address: SocketAddr) {
    let upstream = Upstream {
        protocol: Protocol::H2c,
        dns: None,
        tls: None,
        options: None,
        original_destination: false,
        source_address: None,
    };
    let endpoints = [Endpoint::even(address)].into();
    world.put_all(vec![
        (name, Value::Upstream(Box::new(upstream))),
        (name, Value::Endpoints(Box::new(Endpoints::new(endpoints)))),
    ]);
}

/// A route that keeps what it sends, to send it once more.
fn repeating(conditions: RetryConditions) -> Route {
    with_policy(route("a.example", "/", "u"), |policy| {
        policy.retry = Some(Box::new(Retry {
            attempts: 1,
            try_timeout: PATIENCE,
            conditions,
            statuses: Box::default(),
            backoff: PATIENCE / 1_000,
        }));
    })
}

async fn echo(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (parts, mut body) = request.into_parts();
    let mut text = format!("{} {}\n", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        text += &format!("{name}: {}\n", value.to_str().unwrap());
    }
    let mut send = respond.send_response(Response::new(()), false).unwrap();
    send.send_data(Bytes::from(text), false).unwrap();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        send.send_data(data, false).unwrap();
    }
    let mut trailers = body.trailers().await.unwrap().unwrap_or_default();
    trailers.insert("grpc-status", "0".parse().unwrap());
    send.send_trailers(trailers).unwrap();
}

async fn refuse(number: usize, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    if number == 0 {
        respond.send_reset(Reason::REFUSED_STREAM);
    } else {
        echo(request, respond).await;
    }
}

/// A call of gRPC: its whole answer and what came behind it.
async fn call(world: &World, path: &str, messages: &[&'static [u8]]) -> (String, HeaderMap) {
    let client = connect(world, "a.example").await;
    let mut ready = client.ready().await.unwrap();
    let request = Request::post(format!("https://a.example{path}"))
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let (response, mut send) = ready.send_request(request, false).unwrap();
    let mut response = response.await_with(&mut send, messages).await;
    let body = response.body_mut();
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        text.extend_from_slice(&data);
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    (String::from_utf8(text).unwrap(), trailers)
}

trait AwaitWith {
    async fn await_with(
        self,
        send: &mut ::h2::SendStream<Bytes>,
        messages: &[&'static [u8]],
    ) -> Response<RecvStream>;
}

impl AwaitWith for ::h2::client::ResponseFuture {
    /// Messages, trailers, and the head of the answer.
    async fn await_with(
        self,
        send: &mut ::h2::SendStream<Bytes>,
        messages: &[&'static [u8]],
    ) -> Response<RecvStream> {
        for message in messages {
            send.send_data(Bytes::from_static(message), false).unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-behind", "request".parse().unwrap());
        send.send_trailers(trailers).unwrap();
        let answer = tokio::time::timeout(PATIENCE, self).await;
        answer.unwrap().unwrap()
    }
}

#[tokio::test]
async fn a_call_passes_with_its_trailers_both_ways() {
    let endpoint = Streams::echo().await;
    let world = endpoint.world();
    let (text, trailers) = call(&world, "/pkg.Service/Method?a=b", &[b"one ", b"two"]).await;
    assert!(
        text.starts_with("POST http://a.example/pkg.Service/Method?a=b\n"),
        "{text}"
    );
    assert!(text.contains("\nte: trailers\n"), "{text}");
    assert!(text.contains("\nx-forwarded-proto: https\n"), "{text}");
    assert!(!text.contains("transfer-encoding"), "{text}");
    assert!(text.ends_with("\none two"), "{text}");
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["x-behind"], "request");
}

#[tokio::test]
async fn the_status_of_a_call_is_counted_wherever_it_stands() {
    let endpoint = Streams::serving(|_, request, mut respond| async move {
        if request.uri().path() == "/echo" {
            return echo(request, respond).await;
        }
        let response = Response::builder().header("grpc-status", "12");
        let response = response.body(()).unwrap();
        respond.send_response(response, true).unwrap();
    })
    .await;
    let mut world = endpoint.world();
    let counted = Telemetry {
        metrics: [MetricRule {
            metric: None,
            action: MetricAction::Enable,
        }]
        .into(),
        ..Telemetry::default()
    };
    world.put("gateway", Value::Telemetry(Box::new(counted)));
    call(&world, "/echo", &[b"one"]).await;
    call(&world, "/none", &[b"one"]).await;
    for status in ["0", "12"] {
        let wanted = format!("grpc_response_status=\"{status}\"");
        world.counts(&wanted).await;
    }
}

#[tokio::test]
async fn an_answer_of_nothing_but_a_head_stays_one() {
    let endpoint = Streams::serving(|_, _, mut respond: SendResponse<Bytes>| async move {
        let response = Response::builder().header("grpc-status", "12");
        respond
            .send_response(response.body(()).unwrap(), true)
            .unwrap();
    })
    .await;
    let world = endpoint.world();
    let client = connect(&world, "a.example").await;
    let mut ready = client.ready().await.unwrap();
    let request = Request::get("https://a.example/").body(()).unwrap();
    let (response, _) = ready.send_request(request, true).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "12");
    assert!(response.headers().get("content-length").is_none());
    assert!(response.body().is_end_stream());
    // A client of HTTP/1 has to be told where the response ends.
    let answer = world.ask("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    let answer = answer.await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(header(&answer, "content-length"), Some("0"));
}

#[tokio::test]
async fn requests_of_http1_reach_endpoints_of_http2_and_share_a_connection() {
    let endpoint = Streams::echo().await;
    let world = endpoint.world();
    for _ in 0..3 {
        let answer = world
            .ask(
                "POST /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\
                 Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Behind: me\r\n\r\n",
            )
            .await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("POST http://a.example/x\n"), "{answer}");
        assert!(answer.contains("\nabc\r\n0\r\n"), "{answer}");
        assert!(answer.contains("\r\nx-behind: me\r\n"), "{answer}");
        assert!(answer.ends_with("grpc-status: 0\r\n\r\n"), "{answer}");
    }
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_an_endpoint_refused_unseen_is_sent_again() {
    let endpoint = Streams::serving(refuse).await;
    let mut world = endpoint.world();
    world.put_route("r", repeating(RetryConditions::REFUSED_STREAM));
    let (text, _) = call(&world, "/", &[b"once"]).await;
    assert!(text.ends_with("once"), "{text}");
    assert_eq!(endpoint.requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_endpoint_that_goes_away_ends_what_it_has_and_gets_no_more() {
    let endpoint = Streams::echo().await;
    let world = endpoint.world();
    for _ in 0..3 {
        let (text, trailers) = call(&world, "/last", &[b"bye"]).await;
        assert!(text.ends_with("bye"), "{text}");
        assert_eq!(trailers["grpc-status"], "0");
    }
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_full_connection_leads_to_another() {
    let endpoint = Streams::with(1, |number, request, respond| {
        Box::pin(async move {
            if number == 0 {
                // Stays open for as long as the client holds it.
                let mut body = request.into_body();
                let _ = body.data().await;
            } else {
                echo(request, respond).await;
            }
        })
    })
    .await;
    let world = endpoint.world();
    // Once the settings of the endpoint are known, its bound is too.
    let client = connect(&world, "a.example").await;
    let mut ready = client.ready().await.unwrap();
    let request = Request::post("https://a.example/").body(()).unwrap();
    let (_held, _send) = ready.send_request(request, false).unwrap();
    while endpoint.requests.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let (text, _) = call(&world, "/", &[b"beside"]).await;
    assert!(text.ends_with("beside"), "{text}");
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn uploads_that_never_end_put_nobody_in_line() {
    let endpoint = Streams::with(1, |_, request, respond| {
        Box::pin(async move {
            if request.method() == "POST" {
                let mut body = request.into_body();
                let _ = body.data().await;
            } else {
                echo(request, respond).await;
            }
        })
    })
    .await;
    let world = endpoint.world();
    let client = connect(&world, "a.example").await;
    let mut held = Vec::new();
    for number in 0..40 {
        let mut ready = client.clone().ready().await.unwrap();
        let request = Request::post("https://a.example/").body(()).unwrap();
        held.push(ready.send_request(request, false).unwrap());
        while endpoint.requests.load(Ordering::SeqCst) <= number {
            tokio::task::yield_now().await;
        }
    }
    let answer = world.ask("GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 41);
}

#[tokio::test]
async fn a_response_that_leads_to_a_repetition_repeats_the_stream() {
    let endpoint = Streams::serving(
        |number, request, mut respond: SendResponse<Bytes>| async move {
            if number == 0 {
                let response = Response::builder().header("grpc-status", "14");
                respond
                    .send_response(response.body(()).unwrap(), true)
                    .unwrap();
            } else {
                echo(request, respond).await;
            }
        },
    )
    .await;
    let mut world = endpoint.world();
    world.put_route("r", repeating(RetryConditions::GRPC_UNAVAILABLE));
    let (text, trailers) = call(&world, "/", &[b"again"]).await;
    assert!(text.ends_with("again"), "{text}");
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["x-behind"], "request");
}

#[tokio::test]
async fn a_large_body_passes_the_windows_of_both_connections() {
    let endpoint = Streams::serving(|_, request, mut respond: SendResponse<Bytes>| async move {
        let mut body = request.into_body();
        let mut length = 0;
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            length += data.len();
            body.flow_control().release_capacity(data.len()).unwrap();
        }
        let mut send = respond.send_response(Response::new(()), false).unwrap();
        send.send_data(Bytes::from(vec![b'y'; length]), true)
            .unwrap();
    })
    .await;
    let world = endpoint.world();
    let body = "x".repeat(1_000_000);
    let answer = world
        .ask(&format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\
             Content-Length: 1000000\r\n\r\n{body}"
        ))
        .await;
    let length = answer.bytes().filter(|byte| *byte == b'y').count();
    assert_eq!(length, 1_000_000);
}

/// Sends as much as the windows allow, and counts it.
async fn pour(mut respond: SendResponse<Bytes>, sent: Arc<AtomicUsize>) {
    let mut send = respond.send_response(Response::new(()), false).unwrap();
    loop {
        send.reserve_capacity(64 << 10);
        let granted = std::future::poll_fn(|context| send.poll_capacity(context)).await;
        // Once the client has gone there is no more to send.
        let Some(Ok(granted)) = granted else { return };
        if send.send_data(vec![b'x'; granted].into(), false).is_err() {
            return;
        }
        sent.fetch_add(granted, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn clients_that_do_not_read_hold_up_nobody_else_on_their_connection() {
    const STALLED: usize = 8;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let endpoint = Streams::serving(move |_, request, mut respond: SendResponse<Bytes>| {
        let sent = counted.clone();
        async move {
            if request.uri().path() == "/much" {
                return pour(respond, sent).await;
            }
            let mut send = respond.send_response(Response::new(()), false).unwrap();
            send.send_data(vec![b'y'; 200_000].into(), true).unwrap();
        }
    })
    .await;
    let world = endpoint.world();
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        let client = connect(&world, "a.example").await;
        let request = Request::get("https://a.example/much").body(()).unwrap();
        let mut ready = client.ready().await.unwrap();
        let (response, _) = ready.send_request(request, true).unwrap();
        // A window is all that it takes of it.
        stalled.push((ready, response.await.unwrap()));
    }
    // More than the connection had room for at first waits for them.
    let room = crate::limits::Limits::default().connection_window_bytes as usize;
    let is_stalled = async {
        while sent.load(Ordering::SeqCst) < room {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_stalled).await.unwrap();
    let asking = world.ask("GET /some HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    let answer = answer.expect("its part of the connection is its own");
    let length = answer.bytes().filter(|byte| *byte == b'y').count();
    assert_eq!(length, 200_000);
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1);
    drop(stalled);
}

#[tokio::test]
async fn a_copy_is_framed_for_its_own_endpoint() {
    let (endpoint, copied) = (Streams::echo().await, Backend::echo().await);
    let mut world = endpoint.world();
    world.put_upstream("copied", &[copied.address]);
    let mirrored = with_policy(route("a.example", "/", "u"), |policy| {
        policy.mirrors = [myriad_model::Mirror {
            upstream: "copied".into(),
            share: myriad_model::Share::ALL,
            authority: Box::default(),
            omits_body: false,
            keeps_authority: false,
        }]
        .into();
    });
    world.put_route("r", mirrored);
    let (text, _) = call(&world, "/", &[b"twice"]).await;
    assert!(text.ends_with("twice"), "{text}");
    let seen = async {
        while copied.requests() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.unwrap();
}
