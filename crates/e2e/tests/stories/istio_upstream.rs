//! DestinationRules, as endpoints and clients see them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use myriad_e2e::authority::Authority;
use myriad_e2e::{Answer, Backend, Site, World};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A Gateway with both doors to `a.test`, a VirtualService and a Service of these endpoints.
fn objects(endpoints: &[SocketAddr], port_name: &str, policy: &str) -> String {
    let mut text = format!(
        "---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge, namespace: default}}
spec:
  selector: {{istio: ingressgateway}}
  servers:
  - {{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [a.test]}}
  - port: {{number: 443, name: https, protocol: HTTPS}}
    hosts: [a.test]
    tls: {{mode: SIMPLE, credentialName: a-test}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: a, namespace: default}}
spec:
  hosts: [a.test]
  gateways: [edge]
  http:
  - route: [{{destination: {{host: api, port: {{number: 80}}}}}}]
    retries: {{attempts: 0}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: api, namespace: default}}
spec:
  host: api
  trafficPolicy: {policy}
---
apiVersion: v1
kind: Service
metadata: {{name: api, namespace: default}}
spec:
  clusterIP: None
  ports: [{{name: {port_name}, port: 80}}]
"
    );
    for (number, endpoint) in endpoints.iter().enumerate() {
        let _ = write!(
            text,
            "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: api-{number}, namespace: default, labels: {{kubernetes.io/service-name: api}}}}
addressType: IPv4
endpoints: [{{addresses: ['{}']}}]
ports: [{{name: {port_name}, port: {}}}]
",
            endpoint.ip(),
            endpoint.port()
        );
    }
    text
}

async fn serve(endpoints: &[SocketAddr], policy: &str) -> World {
    serve_with(endpoints, "http", policy, "").await
}

async fn serve_with(endpoints: &[SocketAddr], port: &str, policy: &str, more: &str) -> World {
    let authority = Authority::new();
    let site = Site::new("a.test").tls(&authority.issue(&["a.test"]));
    let documents = site.documents();
    let secret = documents.iter().find(|text| text.contains("kind: Secret"));
    let objects = objects(endpoints, port, policy);
    let text = format!("{}{objects}{more}", secret.expect("a Secret"));
    World::serve_with(authority, &[("a.yaml", text)], &[]).await
}

async fn three() -> Vec<Backend> {
    let mut backends = Vec::new();
    for name in ["a", "b", "c"] {
        backends.push(Backend::start(name).await);
    }
    backends
}

fn addresses(backends: &[Backend]) -> Vec<SocketAddr> {
    backends.iter().map(Backend::address).collect()
}

fn asked(backends: &[Backend]) -> Vec<usize> {
    backends.iter().map(Backend::asked).collect()
}

/// An endpoint that reads one head from each connection and gives a fixed answer.
async fn answering(answer: &'static str) -> (SocketAddr, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heads = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let head = read_head(&mut tcp).await;
            heads.lock().unwrap().push(head);
            let _ = tcp.write_all(answer.as_bytes()).await;
        }
    });
    (address, seen)
}

async fn read_head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match tcp.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[tokio::test]
async fn endpoints_take_turns() {
    let backends = three().await;
    let policy = "{loadBalancer: {simple: ROUND_ROBIN}}";
    let world = serve(&addresses(&backends), policy).await;
    world
        .eventually("http://a.test/", |answer| answer.status == 200)
        .await;
    let before = asked(&backends);
    for _ in 0..9 {
        assert_eq!(world.get("http://a.test/").await.status, 200);
    }
    let taken = asked(&backends)
        .into_iter()
        .zip(before)
        .map(|(now, then)| now - then);
    assert_eq!(taken.collect::<Vec<_>>(), [3, 3, 3]);
}

#[tokio::test]
async fn equal_headers_lead_to_one_endpoint_on_a_ring_and_in_a_table() {
    for table in ["ringHash: {minimumRingSize: 1024}", "maglev: {}"] {
        let backends = three().await;
        let policy =
            format!("{{loadBalancer: {{consistentHash: {{httpHeaderName: x-user, {table}}}}}}}");
        let world = serve(&addresses(&backends), &policy).await;
        world
            .eventually("http://a.test/", |answer| answer.status == 200)
            .await;
        for user in ["x-user: one", "x-user: two"] {
            let before = asked(&backends);
            for _ in 0..6 {
                world.curl("http://a.test/").args(&["-H", user]).ask().await;
            }
            let now = asked(&backends);
            let taken = now.iter().zip(before).map(|(now, then)| now - then);
            assert!(taken.clone().any(|taken| taken == 6), "{now:?} by {table}");
        }
    }
}

#[tokio::test]
async fn a_client_without_the_cookie_gets_one_that_leads_back() {
    let backends = three().await;
    let policy = "{loadBalancer: {consistentHash: {httpCookie: {name: user, ttl: 60s}}}}";
    let world = serve(&addresses(&backends), policy).await;
    let made = |answer: &Answer| answer.header("set-cookie").is_some();
    let first = world.eventually("http://a.test/", made).await;
    let cookie = first.header("set-cookie").unwrap();
    assert!(cookie.contains("Max-Age=60"), "{cookie}");
    let pair = format!("cookie: {}", cookie.split(';').next().unwrap());
    let name = first.told()["backend"].clone();
    for _ in 0..6 {
        let answer = world
            .curl("http://a.test/")
            .args(&["-H", &pair])
            .ask()
            .await;
        assert_eq!(answer.told()["backend"], name);
        assert_eq!(answer.header("set-cookie"), None);
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_gets_no_more_requests() {
    let good = Backend::start("good").await;
    let (bad, seen) =
        answering("HTTP/1.1 500 E\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let policy = "{loadBalancer: {simple: ROUND_ROBIN}, outlierDetection: \
                  {consecutive5xxErrors: 2, baseEjectionTime: 600s, maxEjectionPercent: 50}}";
    let world = serve(&[good.address(), bad], policy).await;
    world
        .eventually("http://a.test/", |answer| answer.status == 200)
        .await;
    for _ in 0..12 {
        world.get("http://a.test/").await;
    }
    assert_eq!(seen.lock().unwrap().len(), 2);
    assert_eq!(world.metric("myriad_upstream_ejections_total").await, 1.0);
}

#[tokio::test]
async fn requests_beyond_what_the_endpoints_bear_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let policy = "{connectionPool: {http: {http2MaxRequests: 1}}}";
    let world = serve(&[listener.local_addr().unwrap()], policy).await;
    let held = world.curl("http://a.test/").ask();
    let beside = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        read_head(&mut tcp).await;
        let refused = world.get("http://a.test/").await;
        assert_eq!(
            (refused.status, refused.body.lines().next()),
            (503, Some("upstream overflow"))
        );
        tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await
            .unwrap();
    };
    let (held, ()) = tokio::join!(held, beside);
    assert_eq!(held.body, "ok");
}

#[tokio::test]
async fn an_endpoint_is_told_the_client_where_the_rule_says_so() {
    let (address, seen) = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let world = serve(&[address], "{proxyProtocol: {version: V1}}").await;
    world
        .eventually("http://a.test/", |answer| answer.status == 200)
        .await;
    let heads = seen.lock().unwrap().join("");
    assert!(heads.starts_with("PROXY TCP4 127.0.0.1 "), "{heads}");
    assert!(heads.contains("\r\nGET / HTTP/1.1\r\n"), "{heads}");
}

/// Reads the message, as every method does, and answers with trailers.
async fn answer_call(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) {
    let te = request.headers().get("te").cloned();
    let mut message = request.into_body();
    while let Some(Ok(data)) = message.data().await {
        let _ = message.flow_control().release_capacity(data.len());
    }
    let mut send = respond
        .send_response(http::Response::new(()), false)
        .unwrap();
    let said = format!("te: {te:?}\n");
    send.send_data(Bytes::from(said), false).unwrap();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    send.send_trailers(trailers).unwrap();
}

#[tokio::test]
async fn a_call_of_grpc_passes_with_its_trailers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(tcp).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer_call(request, respond));
                }
            });
        }
    });
    let world = serve_with(&[address], "grpc", "{loadBalancer: {simple: RANDOM}}", "").await;
    world
        .eventually("https://a.test/", |answer| answer.status == 200)
        .await;
    let call = [
        "--http2",
        "-H",
        "te: trailers",
        "-X",
        "POST",
        "-d",
        "message",
    ];
    let answer = world
        .curl("https://a.test/pkg.Service/Method")
        .args(&call)
        .ask()
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("te: Some(\"trailers\")"), "{answer:?}");
    assert!(answer.body.contains("grpc-status: 0"), "{answer:?}");
}

#[tokio::test]
async fn an_endpoint_that_checks_its_clients_sees_the_certificate_of_the_rule() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["client.test".to_owned()]).unwrap();
    let made = params.self_signed(&key).unwrap();
    let secret = format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: client, namespace: istio-system}}\n\
         type: kubernetes.io/tls\ndata:\n  tls.crt: {}\n  tls.key: {}\n",
        STANDARD.encode(made.pem()),
        STANDARD.encode(key.serialize_pem()),
    );
    let address = checking(made.der().clone()).await;
    let policy = "{tls: {mode: MUTUAL, credentialName: client, insecureSkipVerify: true}}";
    let world = serve_with(&[address], "http", policy, &secret).await;
    let answer = world
        .eventually("http://a.test/", |answer| answer.status == 200)
        .await;
    assert_eq!(answer.body, "known");
    // Without the certificate there is no connection at all.
    let policy = "{tls: {mode: SIMPLE, insecureSkipVerify: true}}";
    let world = serve_with(&[address], "http", policy, &secret).await;
    let answer = world
        .eventually("http://a.test/", |answer| answer.status != 404)
        .await;
    assert_eq!(answer.status, 502, "{answer:?}");
}

/// An endpoint over TLS that demands a certificate of one authority.
async fn checking(authority: CertificateDer<'static>) -> SocketAddr {
    let own = Authority::new().issue(&["backend.test"]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let chain = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![chain], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            if let Ok(mut tls) = acceptor.accept(tcp).await {
                let mut head = vec![0; 4_096];
                let _ = tls.read(&mut head).await;
                let answer =
                    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nknown";
                let _ = tls.write_all(answer).await;
                let _ = tls.shutdown().await;
            }
        }
    });
    address
}
