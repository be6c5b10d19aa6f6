use std::future::poll_fn;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::h2::client::SendRequest;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use myriad_base::task;
use myriad_model::{
    Abort, AbortAnswer, Fault, HeaderEdit, HeaderEdits, Retry, RetryConditions, Share,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::world::{Backend, Client, PATIENCE, World, header, route, trusting_config, with_policy};

/// A client of HTTP/2.
pub(super) async fn connect(world: &World, name: &'static str) -> SendRequest<Bytes> {
    let tcp = TcpStream::connect(world.address("https")).await.unwrap();
    let mut config = trusting_config();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let name = rustls::pki_types::ServerName::try_from(name).unwrap();
    let tls = connector.connect(name, tcp).await.unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, connection) = ::h2::client::handshake(tls).await.unwrap();
    task::spawn("client connection", async move {
        // A connection that the proxy drains ends without an error.
        let _ = connection.await;
    });
    client
}

/// One request, and its whole answer.
pub(super) async fn ask(
    client: &mut SendRequest<Bytes>,
    request: Request<()>,
    body: &[u8],
) -> (Response<()>, String) {
    let mut ready = client.clone().ready().await.unwrap();
    let (response, mut send) = ready.send_request(request, body.is_empty()).unwrap();
    if !body.is_empty() {
        send.send_data(Bytes::copy_from_slice(body), true).unwrap();
    }
    let (parts, mut body) = response.await.unwrap().into_parts();
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        text.extend_from_slice(&data);
    }
    let response = Response::from_parts(parts, ());
    (response, String::from_utf8(text).unwrap())
}

pub(super) fn get(url: &str) -> Request<()> {
    Request::get(url).body(()).unwrap()
}

fn echo_world(backend: &Backend) -> World {
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    world
}

#[tokio::test]
async fn streams_are_served_like_requests_of_http1() {
    let backend = Backend::echo().await;
    let world = echo_world(&backend);
    let mut client = connect(&world, "a.example").await;
    let request = Request::get("https://a.example/x?y=z")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, head) = ask(&mut client, request, b"").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(
        head.starts_with("GET /x?y=z HTTP/1.1\r\nhost: a.example\r\n"),
        "{head}"
    );
    assert_eq!(header(&head, "cookie"), Some("a=1; b=2"));
    assert_eq!(header(&head, "te"), None);
    assert_eq!(header(&head, "x-forwarded-proto"), Some("https"));
    let request = Request::post("https://a.example/").body(()).unwrap();
    let (_, head) = ask(&mut client, request, b"hello").await;
    assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
}

#[tokio::test]
async fn failures_are_answers_and_leave_the_connection() {
    let backend = Backend::echo().await;
    let mut world = echo_world(&backend);
    let small = with_policy(route("a.example", "/small", "u"), |policy| {
        policy.request_body_bytes_max = 4;
    });
    world.put_route("small", small);
    let mut client = connect(&world, "a.example").await;
    let status = async |client: &mut SendRequest<Bytes>, request, body: &'static [u8]| {
        ask(client, request, body).await.0.status().as_u16()
    };
    assert_eq!(
        status(&mut client, get("https://b.example/"), b"").await,
        421
    );
    assert_eq!(
        status(&mut client, get("https://a.example/..;/x"), b"").await,
        400
    );
    let post = Request::post("https://a.example/small").body(()).unwrap();
    assert_eq!(status(&mut client, post, b"too long").await, 413);
    let trace = Request::builder()
        .method(Method::TRACE)
        .uri("https://a.example/")
        .body(())
        .unwrap();
    assert_eq!(status(&mut client, trace, b"").await, 405);
    assert_eq!(
        status(&mut client, get("https://a.example/"), b"").await,
        200
    );
}

#[tokio::test]
async fn a_flood_of_resets_ends_the_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    let mut client = connect(&world, "a.example").await;
    let flood = async {
        for _ in 0..10_000 {
            let mut ready = client.clone().ready().await?;
            let (_, mut send) = ready.send_request(get("https://a.example/"), false)?;
            // Lets the connection send the head, so that there is something to reset.
            tokio::task::yield_now().await;
            send.send_reset(::h2::Reason::CANCEL);
            client = ready;
        }
        Ok::<(), ::h2::Error>(())
    };
    let error = tokio::time::timeout(PATIENCE, flood)
        .await
        .unwrap()
        .unwrap_err();
    // The word comes first, but a flood that is still under way may make the kernel drop it.
    let calm = Some(::h2::Reason::ENHANCE_YOUR_CALM);
    assert!(error.reason() == calm || error.is_io(), "{error}");
}

#[tokio::test]
async fn a_large_body_passes_both_ways_through_the_windows() {
    let backend = Backend::answering(|_| {
        let length = 1_000_000;
        let body = "y".repeat(length);
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
    })
    .await;
    let world = echo_world(&backend);
    let client = connect(&world, "a.example").await;
    let mut ready = client.ready().await.unwrap();
    let request = Request::post("https://a.example/").body(()).unwrap();
    let (response, mut send) = ready.send_request(request, false).unwrap();
    let sending = async {
        let mut left = 1_000_000;
        while left > 0 {
            send.reserve_capacity(left);
            let granted = poll_fn(|context| send.poll_capacity(context)).await;
            let granted = granted.unwrap().unwrap().min(left);
            left -= granted;
            send.send_data(Bytes::from(vec![b'x'; granted]), left == 0)
                .unwrap();
        }
    };
    let receiving = async {
        let mut body = response.await.unwrap().into_body();
        let mut length = 0;
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            length += data.len();
        }
        length
    };
    let both = async { tokio::join!(sending, receiving) };
    let ((), length) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    assert_eq!(length, 1_000_000);
}

#[tokio::test]
async fn a_stream_whose_client_left_ends_at_the_endpoint_too() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    let client = connect(&world, "a.example").await;
    let mut ready = client.ready().await.unwrap();
    let (_response, mut send) = ready
        .send_request(get("https://a.example/"), false)
        .unwrap();
    let mut endpoint = Client::new(listener.accept().await.unwrap().0);
    endpoint.read_until("\r\n\r\n").await;
    send.send_reset(::h2::Reason::CANCEL);
    assert_eq!(endpoint.read_to_end().await, "");
}

/// The conformance suite is a program of its own; its path is in `MYRIAD_H2SPEC`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2spec_passes_whole() {
    let Some(program) = std::env::var_os("MYRIAD_H2SPEC") else {
        assert!(std::env::var_os("CI").is_none(), "MYRIAD_H2SPEC is not set");
        eprintln!("SKIPPED: h2spec was not run, since MYRIAD_H2SPEC does not name it");
        return;
    };
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("*", "/", "u"));
    world.put_domain("localhost", &["localhost"], Default::default());
    world.put(
        "default",
        myriad_model::Value::Certificate(Box::new(super::world::certificate(&["localhost"]))),
    );
    let port = world.address("https").port().to_string();
    let run = tokio::task::spawn_blocking(move || {
        Command::new(program)
            .args(["generic", "http2", "hpack", "-t", "-k", "-o", "5"])
            .args(["-h", "localhost", "-p", &port])
            .output()
            .unwrap()
    });
    let output = run.await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains(" 0 failed"),
        "{text}"
    );
}

#[tokio::test]
async fn streams_obey_edits_and_faults_like_requests_of_http1() {
    let backend = Backend::echo().await;
    let mut world = echo_world(&backend);
    let edit = |value: &str| HeaderEdit {
        remove: ["cookie".into()].into(),
        set: [("x-set".into(), value.into())].into(),
        add: Box::default(),
    };
    let edited = with_policy(route("a.example", "/edited", "u"), |policy| {
        policy.headers = Some(Box::new(HeaderEdits {
            request: edit("there"),
            response: edit("back"),
        }));
    });
    let aborted = with_policy(route("a.example", "/aborted", "u"), |policy| {
        policy.fault = Some(Box::new(Fault {
            delay: None,
            abort: Some(Abort {
                share: Share::ALL,
                answer: AbortAnswer::Grpc(8),
            }),
        }));
    });
    world.put_route("edited", edited);
    world.put_route("aborted", aborted);
    let mut client = connect(&world, "a.example").await;
    let request = Request::get("https://a.example/edited")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(())
        .unwrap();
    let (response, body) = ask(&mut client, request, b"").await;
    assert_eq!(response.headers()["x-set"], "back");
    assert_eq!(header(&body, "x-set"), Some("there"));
    assert_eq!(header(&body, "cookie"), None);
    let (response, body) = ask(&mut client, get("https://a.example/aborted"), b"").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(body, "");
    assert_eq!(backend.requests(), 1);
}

#[tokio::test]
async fn a_stream_is_repeated_with_its_body() {
    let asked = AtomicUsize::new(0);
    let asked = Arc::new(asked);
    let backend = Backend::answering(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => "HTTP/1.1 503 S\r\nContent-Length: 0\r\n\r\n".to_owned(),
        _ => {
            let body = request.split_once("\r\n\r\n").unwrap().1;
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        }
    })
    .await;
    let mut world = echo_world(&backend);
    let repeated = with_policy(route("a.example", "/", "u"), |policy| {
        policy.retry = Some(Box::new(Retry {
            attempts: 1,
            try_timeout: PATIENCE,
            conditions: RetryConditions::GATEWAY_ERROR,
            statuses: Box::default(),
            backoff: PATIENCE / 1_000,
        }));
    });
    world.put_route("r", repeated);
    let mut client = connect(&world, "a.example").await;
    let body = "x".repeat(40_000);
    let request = Request::post("https://a.example/").body(()).unwrap();
    let (response, text) = ask(&mut client, request, body.as_bytes()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(text == body, "{} bytes came back", text.len());
    assert_eq!(backend.requests(), 2);
}

#[tokio::test]
async fn calls_of_grpc_are_refused_in_its_own_words() {
    let backend = Backend::echo().await;
    let mut world = echo_world(&backend);
    world.put_route("r", route("a.example", "/a.Service", "gone"));
    let mut client = connect(&world, "a.example").await;
    for (path, status, code) in [
        ("/b.Service/Call", 404, "12"),
        ("/a.Service/Call", 503, "14"),
    ] {
        let post = || Request::post(format!("https://a.example{path}"));
        let call = post().header("content-type", "application/grpc+proto");
        let (response, body) = ask(&mut client, call.body(()).unwrap(), b"\0\0\0\0\0").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["grpc-status"], code);
        assert!(!response.headers()["grpc-message"].is_empty());
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert_eq!(body, "");
        // Others are told as ever.
        let (response, _) = ask(&mut client, post().body(()).unwrap(), b"x").await;
        assert_eq!(response.status(), status);
        assert!(!response.headers().contains_key("grpc-status"));
    }
    assert_eq!(backend.requests(), 0);
}
