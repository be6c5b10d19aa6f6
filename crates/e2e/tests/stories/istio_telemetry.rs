//! Istio's Telemetry of the gateway, as a collector and a reader of metrics see it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const SERVED: &str = "\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: default}
spec:
  hosts: [a.test]
  gateways: [edge]
  http:
  - route: [{destination: {host: a-test, port: {number: 80}}}]
---
";

const MESH: &str = "\
defaultProviders: {tracing: [otel]}
extensionProviders:
- name: otel
  opentelemetry: {service: collector-test.default.svc.cluster.local, port: 80}
";

fn telemetry(spec: &str) -> String {
    format!(
        "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\n\
         metadata: {{name: t, namespace: istio-system}}\nspec: {{{spec}}}\n"
    )
}

async fn serve(backend: &Backend, collector: SocketAddr, spec: &str) -> World {
    let mut parts = vec![SERVED.to_owned()];
    for (host, address) in [("a.test", backend.address()), ("collector.test", collector)] {
        let mut documents = Site::new(host).to(address).documents();
        documents.remove(0);
        parts.push(documents.join("---\n"));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mesh = directory.path().join("mesh.yaml");
    std::fs::write(&mesh, MESH).expect("a file");
    let files = [
        ("a.yaml", parts.join("---\n").replace("---\n---\n", "---\n")),
        ("telemetry.yaml", telemetry(spec)),
    ];
    let mesh = format!("--mesh-config={}", mesh.display());
    let arguments = [mesh.as_str(), "--workload=istio-system/edge"];
    World::serve_with(Authority::new(), &files, &arguments).await
}

/// A collector that takes spans over gRPC and hands their messages on.
async fn collector() -> (SocketAddr, mpsc::Receiver<Bytes>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (messages, taken) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(collect(tcp, messages.clone()));
        }
    });
    (address, taken)
}

async fn collect(tcp: TcpStream, messages: mpsc::Sender<Bytes>) {
    let mut connection = h2::server::handshake(tcp).await.expect("HTTP/2");
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(
            request.uri().path(),
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        );
        let messages = messages.clone();
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut bytes = BytesMut::new();
            while let Some(Ok(part)) = body.data().await {
                let _ = body.flow_control().release_capacity(part.len());
                bytes.extend_from_slice(&part);
            }
            let response = http::Response::builder().header("content-type", "application/grpc");
            let response = response.body(()).expect("a response");
            let mut stream = respond.send_response(response, false).expect("a stream");
            let _ = stream.send_data(Bytes::from_static(&[0; 5]), false);
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
            let _ = stream.send_trailers(trailers);
            let _ = messages.send(bytes.split_off(5).freeze()).await;
        });
    }
}

/// The fields of a message with a length, by number.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                varint(&mut message);
                continue;
            }
            1 => 8,
            5 => 4,
            _ => varint(&mut message) as usize,
        };
        let (value, rest) = message.split_at(length);
        found.push((key >> 3, value.to_vec()));
        message = rest;
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a number");
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    number
}

fn all(messages: &[Vec<u8>], number: u64) -> Vec<Vec<u8>> {
    let fields = messages.iter().flat_map(|message| fields(message));
    let found = fields.filter(|(known, _)| *known == number);
    found.map(|(_, value)| value).collect()
}

/// Whether attributes have a text by this name.
fn says(attributes: &[Vec<u8>], name: &str, wanted: &str) -> bool {
    attributes.iter().any(|pair| {
        let pair = [pair.clone()];
        let is_named = all(&pair, 1) == [name.as_bytes()];
        is_named && all(&all(&pair, 2), 1) == [wanted.as_bytes()]
    })
}

#[tokio::test]
async fn spans_reach_the_collector_and_the_context_goes_on() {
    let backend = Backend::start("a").await;
    let (address, mut taken) = collector().await;
    let spec = "tracing: [{randomSamplingPercentage: 0, customTags: {who: {header: \
                {name: x-who, defaultValue: nobody}}, zone: {literal: {value: b}}}}]";
    let world = serve(&backend, address, spec).await;
    // Of those that nobody samples there is no span.
    world.get("http://a.test/unsampled").await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("traceparent: 00-{trace}-b7ad6b7169203331-01");
    let answer = world
        .curl("http://a.test/x?y")
        .args(&["-H", &parent, "-H", "X-Who: eve"])
        .ask()
        .await;
    let told = answer.body.clone();
    assert!(told.contains(&format!("00-{trace}-")), "{told}");
    assert!(!told.contains("b7ad6b7169203331"), "{told}");
    assert!(told.contains("x-request-id"), "{told}");
    let message = tokio::time::timeout(Duration::from_secs(20), taken.recv());
    let message = message.await.expect("spans in time").expect("spans");
    let resource_spans = all(&[message.to_vec()], 1);
    let resource = all(&all(&resource_spans, 1), 1);
    assert!(says(
        &resource,
        "service.name",
        "ingressgateway.istio-system"
    ));
    let spans = all(&all(&resource_spans, 2), 2);
    let [span] = &spans[..] else {
        panic!("{} spans", spans.len());
    };
    let span = [span.clone()];
    let id: String = all(&span, 1)[0]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(id, trace);
    let attributes = all(&span, 9);
    for (name, value) in [
        ("http.method", "GET"),
        ("http.status_code", "200"),
        ("upstream_cluster", "default/a-test:80"),
        ("who", "eve"),
        ("zone", "b"),
    ] {
        assert!(says(&attributes, name, value), "{name}");
    }
    world.stop().await;
}

#[tokio::test]
async fn requests_are_counted_by_the_names_that_istio_has() {
    let backend = Backend::start("a").await;
    let (address, _taken) = collector().await;
    let spec = "metrics: [{overrides: [{match: {metric: REQUEST_COUNT}, tagOverrides: \
                {source_principal: {operation: REMOVE}, tenant: {value: \"'a'\"}}}, \
                {match: {metric: RESPONSE_SIZE}, disabled: true}]}]";
    let world = serve(&backend, address, spec).await;
    for _ in 0..3 {
        assert_eq!(world.get("http://a.test/").await.status, 200);
    }
    assert_eq!(world.get("http://nobody.test/").await.status, 404);
    let page = world.admin("/metrics").await.body;
    let count = |parts: &[&str]| {
        let lines = page
            .lines()
            .filter(|line| line.starts_with("istio_requests_total{"));
        let mut fitting = lines.filter(|line| parts.iter().all(|part| line.contains(part)));
        let line = fitting
            .next()
            .unwrap_or_else(|| panic!("{parts:?} in {page}"));
        assert!(!line.contains("source_principal"), "{line}");
        line.rsplit(' ').next().and_then(|value| value.parse().ok())
    };
    let served = [
        "destination_service=\"a-test.default.svc.cluster.local\"",
        "destination_service_name=\"a-test\"",
        "destination_service_namespace=\"default\"",
        "source_workload=\"edge\"",
        "reporter=\"source\"",
        "request_protocol=\"http\"",
        "response_code=\"200\"",
        "response_flags=\"-\"",
        "tenant=\"a\"",
    ];
    assert_eq!(count(&served), Some(3.0));
    let lost = ["destination_service=\"unknown\"", "response_flags=\"NR\""];
    assert_eq!(count(&lost), Some(1.0));
    assert!(page.contains("istio_request_duration_milliseconds_bucket{"));
    assert!(!page.contains("istio_response_bytes_bucket{"));
    world.stop().await;
}
