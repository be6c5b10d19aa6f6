//! Messages in front of an answer and behind a body: interim responses, the 100 that a client waits
//! for before it sends a body, and trailers, between both versions of HTTP.

use std::sync::Arc;
use std::time::Duration;

use ::h2::client::{ResponseFuture, SendRequest};
use ::h2::{RecvStream, SendStream};
use bytes::Bytes;
use http::{HeaderMap, Request};
use myriad_model::{
    AccessCheck, AccessPolicy, Action, Authenticate, ClaimHeader, HeaderEdit, HeaderEdits, Respond,
    TokenIssuer, TokenKeys, Value,
};
use tokio::net::{TcpListener, TcpStream};

use super::endpoints::{Streams, put};
use super::http2::connect;
use super::world::{Client, PATIENCE, World, header, route, with_policy};

const EXPECT: &str = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\
    Expect: 100-continue\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A world with one endpoint of HTTP/1.1, which a story plays.
async fn world() -> (World, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    (world, listener)
}

async fn accept(listener: &TcpListener) -> Client<TcpStream> {
    let accepted = tokio::time::timeout(PATIENCE, listener.accept()).await;
    Client::new(accepted.expect("a connection").unwrap().0)
}

async fn begin(
    client: &mut SendRequest<Bytes>,
    request: Request<()>,
    is_end: bool,
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut ready = client.clone().ready().await.unwrap();
    ready.send_request(request, is_end).unwrap()
}

/// The next interim response.
async fn interim(response: &mut ResponseFuture) -> http::Response<()> {
    let told = std::future::poll_fn(|context| response.poll_informational(context));
    let told = tokio::time::timeout(PATIENCE, told).await;
    told.expect("an interim response").unwrap().unwrap()
}

/// A body, and what is behind it.
async fn read(mut body: RecvStream) -> (String, HeaderMap) {
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        let _ = body.flow_control().release_capacity(data.len());
        text.extend_from_slice(&data);
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    (String::from_utf8(text).unwrap(), trailers)
}

#[tokio::test]
async fn interim_responses_pass_before_the_answer() {
    let (world, listener) = world().await;
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\
        Connection: X-Own\r\nX-Own: 1\r\n\r\n";
    let mut client = world.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    let mut endpoint = accept(&listener).await;
    endpoint.read_until("\r\n\r\n").await;
    // The 100 is nobody's who did not ask.
    endpoint
        .send(format!("HTTP/1.1 100 Continue\r\n\r\n{hint}"))
        .await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 103 "), "{head}");
    assert_eq!(header(&head, "link"), Some("</a.css>; rel=preload"));
    assert_eq!(
        (header(&head, "x-own"), header(&head, "connection")),
        (None, None)
    );
    endpoint
        .send(format!("HTTP/1.1 102 Processing\r\n\r\n{OK}"))
        .await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 102 "), "{head}");
    assert_eq!(client.response().await.1, "ok");
    // A client of HTTP/1.0 knows of none.
    let mut old = world.client().await;
    old.send("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n").await;
    endpoint.read_until("\r\n\r\n").await;
    endpoint.send(format!("{hint}{OK}")).await;
    assert!(old.read_to_end().await.starts_with("HTTP/1.1 200 "));
    // A client of HTTP/2 does.
    let mut streams = connect(&world, "a.example").await;
    let request = Request::get("https://a.example/").body(()).unwrap();
    let (mut response, _) = begin(&mut streams, request, true).await;
    endpoint.read_until("\r\n\r\n").await;
    endpoint.send(hint).await;
    let told = interim(&mut response).await;
    assert_eq!(told.status(), 103);
    assert_eq!(told.headers()["link"], "</a.css>; rel=preload");
    endpoint.send(OK).await;
    assert_eq!(response.await.unwrap().status(), 200);
}

#[tokio::test]
async fn who_has_sent_an_interim_response_has_seen_the_request() {
    let (world, listener) = world().await;
    let mut client = world.client().await;
    client
        .send("GET /first HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    let mut endpoint = accept(&listener).await;
    endpoint.read_until("\r\n\r\n").await;
    endpoint.send(OK).await;
    assert_eq!(client.response().await.1, "ok");
    // On a connection that has served before, an end without a word would lead to a repetition.
    client
        .send("DELETE /second HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    endpoint.read_until("\r\n\r\n").await;
    endpoint.send("HTTP/1.1 103 Early Hints\r\n\r\n").await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 103 "), "{head}");
    drop(endpoint);
    let (head, _) = client.response().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
}

#[tokio::test]
async fn what_is_idempotent_is_sent_again_where_a_connection_that_has_served_ends() {
    for (method, is_repeated) in [("DELETE", true), ("PUT", true), ("POST", false)] {
        let (world, listener) = world().await;
        let mut client = world.client().await;
        client
            .send("GET /first HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .await;
        let mut endpoint = accept(&listener).await;
        endpoint.read_until("\r\n\r\n").await;
        endpoint.send(OK).await;
        assert_eq!(client.response().await.1, "ok");
        let second = "/second HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n";
        client.send(format!("{method} {second}")).await;
        endpoint.read_until("\r\n\r\n").await;
        drop(endpoint);
        if is_repeated {
            let mut endpoint = accept(&listener).await;
            let head = endpoint.read_until("\r\n\r\n").await;
            assert!(head.starts_with(method), "{head}");
            endpoint.send(OK).await;
        }
        let (head, _) = client.response().await;
        assert_eq!(
            head.starts_with("HTTP/1.1 200 "),
            is_repeated,
            "{method}: {head}"
        );
        assert_eq!(
            head.starts_with("HTTP/1.1 502 "),
            !is_repeated,
            "{method}: {head}"
        );
    }
}

#[tokio::test]
async fn interim_responses_of_http2_pass_too() {
    let streams = Streams::serving(|_, _, mut respond| async move {
        let mut hint = http::Response::new(());
        *hint.status_mut() = http::StatusCode::EARLY_HINTS;
        hint.headers_mut()
            .insert("link", "</a.css>".parse().unwrap());
        respond.send_informational(hint).unwrap();
        respond
            .send_response(http::Response::new(()), true)
            .unwrap();
    })
    .await;
    let world = streams.world();
    let mut client = world.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 103 "), "{head}");
    assert_eq!(header(&head, "link"), Some("</a.css>"));
    assert!(
        client
            .read_until("\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
}

#[tokio::test]
async fn an_endpoint_that_never_comes_to_the_point_is_a_bad_gateway() {
    let (world, listener) = world().await;
    for (said, passed) in [
        ("HTTP/1.1 102 Processing\r\n\r\n".repeat(40), 32),
        ("HTTP/1.1 100 Continue\r\n\r\n".repeat(40), 0),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".to_owned(),
            0,
        ),
    ] {
        let mut client = world.client().await;
        let get = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        client.send(get).await;
        let mut endpoint = accept(&listener).await;
        endpoint.read_until("\r\n\r\n").await;
        endpoint.send(&said).await;
        let answer = client.read_to_end().await;
        assert_eq!(answer.matches("HTTP/1.1 102 ").count(), passed, "{said}");
        assert_eq!(answer.matches("HTTP/1.1 502 ").count(), 1, "{answer}");
    }
}

#[tokio::test]
async fn an_endpoint_that_wants_no_body_gets_none() {
    let (world, listener) = world().await;
    let mut client = world.client().await;
    client.send(EXPECT).await;
    let mut endpoint = accept(&listener).await;
    endpoint.read_until("\r\n\r\n").await;
    let answer = "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n";
    endpoint.send(answer).await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 417 "), "{head}");
    // Whether the body still comes nobody knows, so neither connection goes on.
    assert_eq!(header(&head, "connection"), Some("close"));
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(endpoint.read_to_end().await, "");
}

#[tokio::test]
async fn an_answer_of_the_proxy_asks_for_no_body() {
    let (mut world, _listener) = world().await;
    let mut fixed = route("a.example", "/", "u");
    fixed.action = Action::Respond(Box::new(Respond {
        status: 403,
        body: Arc::default(),
    }));
    world.put_route("r", fixed);
    let mut client = world.client().await;
    client.send(EXPECT).await;
    let answer = client.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(header(&answer, "connection"), Some("close"));
    // One who does not wait is heard out, and may go on.
    let mut client = world.client().await;
    client
        .send(EXPECT.replace("Expect: 100-continue\r\n", ""))
        .await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 403 "));
    client
        .send("abcGET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 403 "));
}

#[tokio::test]
async fn who_waits_for_an_endpoint_that_is_silent_is_not_to_blame() {
    let (mut world, listener) = world().await;
    let hasty = with_policy(route("a.example", "/", "u"), |policy| {
        policy.read_timeout = Duration::from_millis(100);
    });
    world.put_route("r", hasty);
    let mut client = world.client().await;
    client.send(EXPECT).await;
    let mut endpoint = accept(&listener).await;
    endpoint.read_until("\r\n\r\n").await;
    let answer = client.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
}

#[tokio::test]
async fn a_stream_that_waits_for_100_gets_it_from_the_endpoint() {
    let (world, listener) = world().await;
    let mut streams = connect(&world, "a.example").await;
    let request = Request::post("https://a.example/")
        .header("expect", "100-continue")
        .body(())
        .unwrap();
    let (mut response, mut send) = begin(&mut streams, request, false).await;
    let mut endpoint = accept(&listener).await;
    let head = endpoint.read_until("\r\n\r\n").await;
    assert_eq!(header(&head, "expect"), Some("100-continue"));
    endpoint.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(interim(&mut response).await.status(), 100);
    send.send_data(Bytes::from_static(b"abc"), true).unwrap();
    endpoint.read_until("abc").await;
    endpoint.read_until("0\r\n\r\n").await;
    endpoint.send(OK).await;
    assert_eq!(response.await.unwrap().status(), 200);
}

#[tokio::test]
async fn trailers_pass_from_http2_to_http1_and_back() {
    let (world, listener) = world().await;
    let mut streams = connect(&world, "a.example").await;
    let request = Request::post("https://a.example/")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, mut send) = begin(&mut streams, request, false).await;
    send.send_data(Bytes::from_static(b"abc"), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    trailers.insert("content-length", "9".parse().unwrap());
    trailers.insert("authorization", "no".parse().unwrap());
    trailers.insert("x_forwarded_for", "192.0.2.1".parse().unwrap());
    send.send_trailers(trailers).unwrap();
    let mut endpoint = accept(&listener).await;
    let body = endpoint.read_until("x-sum: 1\r\n\r\n").await;
    assert!(
        body.ends_with("3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n"),
        "{body}"
    );
    endpoint
        .send(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
             2\r\nok\r\n0\r\nX-Sum: 2\r\nTransfer-Encoding: gzip\r\nHost: evil\r\n\
             Set-Cookie: a=b\r\n\r\n",
        )
        .await;
    let (parts, body) = response.await.unwrap().into_parts();
    assert!(!parts.headers.contains_key("trailer"));
    let (text, trailers) = read(body).await;
    assert_eq!(text, "ok");
    assert_eq!(trailers.len(), 1, "{trailers:?}");
    assert_eq!(trailers["x-sum"], "2");
}

#[tokio::test]
async fn trailers_pass_from_http1_to_http2_and_back() {
    let streams = Streams::echo().await;
    let world = streams.world();
    let mut client = world.client().await;
    client
        .send(
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\
             TE: trailers, deflate\r\nConnection: TE\r\n\r\n\
             3\r\nabc\r\n0\r\nX-Sum: 1\r\nX_Real_IP: evil\r\nHost: evil\r\n\r\n",
        )
        .await;
    let head = client.read_until("\r\n\r\n").await;
    assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
    let body = client.read_until("\r\n\r\n").await;
    // Of what is asked for per connection only this is known to HTTP/2.
    assert!(body.contains("te: trailers\n"), "{body}");
    assert!(body.contains("x-sum: 1\r\n"), "{body}");
    assert!(!body.contains("evil"), "{body}");
}

/// An access policy whose tokens are in `x-token` and fill `x-user` and `x-payload`.
fn filling() -> Value {
    let issuer = TokenIssuer {
        issuer: "me".into(),
        audiences: Box::default(),
        keys: TokenKeys::Inline(Bytes::from_static(b"{\"keys\":[]}")),
        headers: [("x-token".into(), Box::default())].into(),
        params: Box::default(),
        cookies: Box::default(),
        is_forwarded: false,
        payload_header: "x-payload".into(),
        claim_headers: [ClaimHeader {
            header: "x-user".into(),
            claim: ["sub".into()].into(),
        }]
        .into(),
        word_claims: Box::default(),
    };
    Value::AccessPolicy(Box::new(AccessPolicy {
        listeners: [].into(),
        check: AccessCheck::Authenticate(Authenticate {
            issuers: [issuer].into(),
        }),
    }))
}

#[tokio::test]
async fn no_trailer_is_a_token_or_what_only_a_token_fills() {
    let (mut world, listener) = world().await;
    world.put("tokens", filling());
    let mut client = world.client().await;
    client
        .send(
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
             3\r\nabc\r\n0\r\nX-User: root\r\nX-Payload: e30\r\nX-Token: a.b.c\r\nX-Sum: 1\r\n\r\n",
        )
        .await;
    let mut endpoint = accept(&listener).await;
    let body = endpoint.read_until("x-sum: 1\r\n\r\n").await;
    assert!(body.ends_with("\r\n0\r\nx-sum: 1\r\n\r\n"), "{body}");
    // Nor over HTTP/2.
    let mut streams = connect(&world, "a.example").await;
    let request = Request::post("https://a.example/").body(()).unwrap();
    let (_response, mut send) = begin(&mut streams, request, false).await;
    send.send_data(Bytes::from_static(b"abc"), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-user", "root".parse().unwrap());
    trailers.insert("x-payload", "e30".parse().unwrap());
    trailers.insert("x-token", "a.b.c".parse().unwrap());
    trailers.insert("x-sum", "1".parse().unwrap());
    send.send_trailers(trailers).unwrap();
    let mut other = accept(&listener).await;
    let body = other.read_until("x-sum: 1\r\n\r\n").await;
    assert!(body.ends_with("\r\n0\r\nx-sum: 1\r\n\r\n"), "{body}");
}

#[tokio::test]
async fn no_trailer_is_what_a_route_sets_or_takes_out_or_what_only_proxies_claim() {
    let (mut world, listener) = world().await;
    let streams = Streams::echo().await;
    put(&mut world, "v", streams.address);
    for (name, path, upstream) in [("r", "/", "u"), ("s", "/streams", "v")] {
        let edited = with_policy(route("a.example", path, upstream), |policy| {
            let request = HeaderEdit {
                remove: ["x-gone".into()].into(),
                set: [("x-env".into(), "prod".into())].into(),
                add: Box::default(),
            };
            policy.headers = Some(Box::new(HeaderEdits {
                request,
                response: HeaderEdit::default(),
            }));
        });
        world.put_route(name, edited);
    }
    let post = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\
             TE: trailers\r\nConnection: TE\r\n\r\n3\r\nabc\r\n0\r\nX-Env: evil\r\nX-Gone: evil\r\n\
             Via: evil\r\nX-HTTP-Method-Override: evil\r\nX-Sum: 1\r\n\r\n"
        )
    };
    let mut client = world.client().await;
    client.send(post("/")).await;
    let mut endpoint = accept(&listener).await;
    let request = endpoint.read_until("x-sum: 1\r\n\r\n").await;
    assert!(request.ends_with("\r\n0\r\nx-sum: 1\r\n\r\n"), "{request}");
    let mut client = world.client().await;
    client.send(post("/streams")).await;
    client.read_until("\r\n\r\n").await;
    let echoed = client.read_until("\r\n\r\n").await;
    assert!(echoed.contains("x-env: prod\n"), "{echoed}");
    assert!(echoed.contains("x-sum: 1\r\n"), "{echoed}");
    assert!(!echoed.contains("evil"), "{echoed}");
}
