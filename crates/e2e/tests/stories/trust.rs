//! Trust in clients: balancers in front, field names with underscores, and HTTP/2 in plain text.

use std::net::SocketAddr;

use bytes::Bytes;
use myriad_e2e::authority::Authority;
use myriad_e2e::istio::{Scene, service_speaking};
use myriad_e2e::world::DEADLINE;
use myriad_e2e::{Backend, Site, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// The status that a request with these fields gets, as a balancer hands it on.
async fn status(world: &World, fields: &[u8]) -> String {
    let mut tcp = TcpStream::connect(world.http())
        .await
        .expect("a connection");
    let start = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n";
    let request = [&start[..], fields, b"\r\n"].concat();
    tcp.write_all(&request).await.expect("it is heard");
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).await.expect("an answer");
    String::from_utf8_lossy(answer.get(9..12).unwrap_or_default()).into_owned()
}

#[tokio::test]
async fn no_byte_of_a_client_makes_it_the_balancer_that_a_list_allows() {
    let backend = Backend::start("a").await;
    let site = Site::new("a.test").to(backend.address()).annotation(
        "nginx.ingress.kubernetes.io/whitelist-source-range",
        "127.0.0.0/8",
    );
    let files = [("a.yaml", site.yaml())];
    let world = World::serve_with(Authority::new(), &files, &["--trusted-hops=1"]).await;
    for fields in [
        &b"X-Forwarded-For: \xff, 203.0.113.5\r\n"[..],
        b"X-Forwarded-For: \xff\r\nX-Forwarded-For: 203.0.113.5\r\n",
        b"X-Forwarded-For: 127.0.0.1, unknown\r\n",
        b"X-Forwarded-For: 203.0.113.5:1234\r\n",
    ] {
        let told = fields.escape_ascii();
        assert_eq!(status(&world, fields).await, "403", "{told}");
    }
    let inside = b"X-Forwarded-For: \xff, 127.0.0.1:1234\r\n";
    assert_eq!(status(&world, inside).await, "200");
    world.stop().await;
}

#[tokio::test]
async fn behind_a_balancer_that_ends_tls_nobody_is_redirected_for_ever() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let pair = authority.issue(&["a.test"]);
    let site = Site::new("a.test").to(backend.address()).tls(&pair);
    let hops = "--trusted-hops=1";
    let files = [("a.yaml", site.yaml())];
    let ingress = World::serve_with(authority, &files, &[hops]).await;
    let server = "port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test], \
                  tls: {httpsRedirect: true}";
    let scene = Scene::new().servers(&[server]).to(&[backend.address()]);
    let gateway = scene.argument(hops).serve().await;
    for (world, redirect) in [(ingress, 308), (gateway, 301)] {
        let curl = |fields: &'static [&'static str]| world.curl("http://a.test/").args(fields);
        let plain = curl(&["-H", "X-Forwarded-Proto: https, http"]);
        assert_eq!(plain.ask().await.status, redirect);
        let secure = curl(&["-H", "X-Forwarded-Proto: https"]).ask().await;
        assert_eq!(secure.status, 200);
        assert_eq!(secure.told()["headers"]["x-forwarded-proto"], "https");
        world.stop().await;
    }
}

#[tokio::test]
async fn names_with_underscores_reach_no_endpoint_of_an_ingress_unless_they_shall() {
    let backend = Backend::start("a").await;
    for (arguments, passes) in [(&[][..], false), (&["--underscores-in-headers"][..], true)] {
        let site = Site::new("a.test").to(backend.address());
        let files = [("a.yaml", site.yaml())];
        let world = World::serve_with(Authority::new(), &files, arguments).await;
        let curl = world.curl("http://a.test/").args(&["-H", "X_Own: 1"]);
        let told = curl.ask().await.told();
        assert_eq!(told["headers"]["x_own"] != serde_json::Value::Null, passes);
        world.stop().await;
    }
}

/// An endpoint that answers every call of gRPC once it has heard all of it.
async fn callee() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = socket.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = socket.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(tcp).await.expect("HTTP/2");
                while let Some(Ok((call, respond))) = connection.accept().await {
                    tokio::spawn(async move {
                        let mut said = call.into_body();
                        while let Some(Ok(_)) = said.data().await {}
                        answer_call(respond);
                    });
                }
            });
        }
    });
    address
}

fn answer_call(mut respond: h2::server::SendResponse<Bytes>) {
    let head = http::Response::builder().header("content-type", "application/grpc");
    let head = head.body(()).expect("a head");
    let mut body = respond.send_response(head, false).expect("a stream");
    body.send_data(Bytes::from_static(b"said"), false)
        .expect("a stream");
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().expect("a value"));
    body.send_trailers(trailers).expect("a stream");
}

#[tokio::test]
async fn calls_of_grpc_go_in_plain_text_from_client_to_endpoint() {
    let server = "port: {number: 80, name: grpc, protocol: GRPC}, hosts: [a.test]";
    let service = service_speaking("grpc", "api", &[callee().await]);
    let world = Scene::new().servers(&[server]).with(&service).serve().await;
    let arguments = [
        "--http2-prior-knowledge",
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
        "--data-binary",
        "asked",
    ];
    let curl = world.curl("http://a.test/greeter/Greet").args(&arguments);
    let answer = curl.ask().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/grpc"));
    assert!(answer.body.starts_with("said"), "{}", answer.body);
    world.stop().await;
}

#[tokio::test]
async fn a_load_of_many_streams_in_plain_text_is_answered_whole() {
    let backend = Backend::start("a").await;
    let site = Site::new("a.test").to(backend.address());
    let world = World::serve(&[("a.yaml", site.yaml())]).await;
    let connect = format!("--connect-to={}", world.http());
    let load = Command::new("h2load")
        .args(["-n", "2000", "-c", "10", "-m", "10", &connect])
        .arg("http://a.test/")
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(DEADLINE, load).await;
    let output = output.expect("it ends in time");
    let output = output.expect("h2load is installed; `cargo xtask test` sees to it");
    let said = String::from_utf8_lossy(&output.stdout);
    let all = "status codes: 2000 2xx, 0 3xx, 0 4xx, 0 5xx";
    assert!(said.contains(all), "{said}");
    assert!(backend.asked() >= 2_000, "{said}");
    world.stop().await;
}
