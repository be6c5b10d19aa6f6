//! Processors that requests and their responses pass by.

use std::time::Duration;

use ::h2::RecvStream;
use ::h2::server::SendResponse;
use bytes::Bytes;
use http::{Request, Response};
use myriad_model::{CheckBody, CheckProtocol, Kind, Processing, Provider, Value};
use prost::Message as _;

use super::endpoints::{Streams, put};
use super::world::{Backend, PATIENCE, World, header, route, with_policy};
use crate::policy::check::envoy::{HeaderValue, HttpStatus};
use crate::policy::process::envoy::{
    BodyMutation, CommonResponse, HeaderMutation, ImmediateResponse, NewBody, PartResponse,
    ProcessHeaderOption, ProcessingPart, ProcessingReply, ProcessingRequest, ProcessingResponse,
};

fn get(fields: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n")
}

fn post(fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /a HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}Content-Length: \
         {length}\r\n\r\n{body}"
    )
}

fn mutation(name: &str, value: &str) -> HeaderMutation {
    let option = |name: &str, value: &str| ProcessHeaderOption {
        header: Some(HeaderValue {
            key: name.into(),
            value: value.into(),
            raw_value: Bytes::new(),
        }),
        ..ProcessHeaderOption::default()
    };
    HeaderMutation {
        // What frames the message is not the processor's to change.
        set_headers: vec![option(name, value), option("Content-Length", "1")],
        remove_headers: vec!["x-gone".into(), "host".into()],
    }
}

fn part(name: &str, value: &str, body: Option<Bytes>) -> PartResponse {
    let common = CommonResponse {
        status: 0,
        header_mutation: Some(mutation(name, value)),
        body_mutation: body.map(|body| BodyMutation {
            mutation: Some(NewBody::Body(body)),
        }),
    };
    PartResponse {
        response: Some(common),
    }
}

fn immediate(code: i32, body: &str) -> ProcessingReply {
    ProcessingReply::Immediate(ImmediateResponse {
        status: Some(HttpStatus { code }),
        headers: Some(mutation("x-why", "no")),
        body: Bytes::copy_from_slice(body.as_bytes()),
        grpc_status: None,
    })
}

/// The wish that a request has of its processor, by the header `x-mode`.
fn mode(told: &ProcessingPart) -> Option<String> {
    let ProcessingPart::RequestHeaders(head) = told else {
        return None;
    };
    let headers = &head.headers.as_ref()?.headers;
    let mode = headers.iter().find(|header| header.key == "x-mode")?;
    Some(String::from_utf8_lossy(&mode.raw_value).into_owned())
}

async fn process(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
    assert_eq!(request.uri().path(), path);
    assert_eq!(request.headers()["cdn-loop"], "myriad");
    let mut send = respond.send_response(Response::new(()), false).unwrap();
    let mut stream = request.into_body();
    let (mut arrived, mut known) = (Vec::new(), String::new());
    while let Some(Ok(data)) = stream.data().await {
        let _ = stream.flow_control().release_capacity(data.len());
        arrived.extend_from_slice(&data);
        while arrived.len() >= 5 {
            let length = u32::from_be_bytes(arrived[1..5].try_into().unwrap()) as usize;
            let Some(message) = arrived.get(5..5 + length) else {
                break;
            };
            let told = ProcessingRequest::decode(message).unwrap().request.unwrap();
            arrived.drain(..5 + length);
            known = mode(&told).unwrap_or(known);
            let said = match (told, &*known) {
                (ProcessingPart::RequestHeaders(_), "stop") => immediate(418, "stopped"),
                (ProcessingPart::RequestHeaders(_), "silent") => continue,
                (ProcessingPart::RequestHeaders(_), "wrong") => {
                    ProcessingReply::ResponseHeaders(PartResponse::default())
                }
                (ProcessingPart::ResponseHeaders(_), "stop late") => immediate(403, "too late"),
                (ProcessingPart::ResponseHeaders(_), "silent late") => continue,
                (ProcessingPart::RequestHeaders(_), _) => {
                    ProcessingReply::RequestHeaders(part("x-user", "eve", None))
                }
                (ProcessingPart::ResponseHeaders(_), _) => {
                    ProcessingReply::ResponseHeaders(part("x-seen", "yes", None))
                }
                (ProcessingPart::RequestBody(body), _) => {
                    let new = [b"new ", &*body.body].concat();
                    ProcessingReply::RequestBody(part("x-body", "seen", Some(new.into())))
                }
            };
            let message = ProcessingResponse {
                response: Some(said),
            };
            let message = message.encode_to_vec();
            let length = (message.len() as u32).to_be_bytes();
            let framed = [&[0][..], &length, &message].concat();
            let _ = send.send_data(framed.into(), false);
        }
    }
}

fn processor() -> Provider {
    Provider {
        upstream: "filter".into(),
        protocol: CheckProtocol::Process(Processing {
            tells_response: true,
        }),
        timeout: PATIENCE,
        fail_open: false,
        error_status: 502,
        reroutes: false,
        body: Some(CheckBody {
            bytes_max: 8,
            allows_part: false,
            is_raw: true,
        }),
        authority: "filter.ns".into(),
        told: Box::default(),
    }
}

async fn accompanied(provider: Provider) -> (World, Backend, Streams) {
    let backend = Backend::answering(|request| {
        let length = request.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{request}")
    })
    .await;
    let filter = Streams::serving(|_, request, respond| process(request, respond)).await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    put(&mut world, "filter", filter.address);
    let route = with_policy(route("a.example", "/", "u"), |policy| {
        policy.processor = Some("p".into());
    });
    world.put_route("r", route);
    world.put("p", Value::Provider(Box::new(provider)));
    (world, backend, filter)
}

#[tokio::test]
async fn a_processor_changes_heads_and_the_body_of_a_request() {
    let (world, backend, _filter) = accompanied(processor()).await;
    let response = world.ask(&get("X-User: forged\r\nX-Gone: 1\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(header(&response, "x-seen"), Some("yes"));
    assert!(response.contains("\r\nx-user: eve\r\n"), "{response}");
    assert!(response.contains("\r\nhost: a.example\r\n"), "{response}");
    for gone in ["forged", "gone"] {
        assert!(!response.to_ascii_lowercase().contains(gone), "{response}");
    }
    let response = world.ask(&post("", "body")).await;
    assert!(response.contains("\r\nx-body: seen\r\n"), "{response}");
    assert!(response.contains("content-length: 8\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nnew body"), "{response}");
    let refused = world.ask(&post("", "longer than 8 bytes")).await;
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    assert_eq!(backend.requests(), 2);
}

#[tokio::test]
async fn a_processor_answers_in_place_of_the_endpoint_or_of_its_response() {
    let (world, backend, _filter) = accompanied(processor()).await;
    let stopped = world.ask(&get("X-Mode: stop\r\n")).await;
    assert!(stopped.starts_with("HTTP/1.1 418"), "{stopped}");
    assert_eq!(header(&stopped, "x-why"), Some("no"));
    assert!(stopped.ends_with("\r\n\r\nstopped"), "{stopped}");
    assert_eq!(backend.requests(), 0);
    let late = world.ask(&get("X-Mode: stop late\r\n")).await;
    assert!(late.starts_with("HTTP/1.1 403"), "{late}");
    assert!(late.ends_with("\r\n\r\ntoo late"), "{late}");
    assert_eq!(header(&late, "content-length"), Some("8"));
    assert_eq!(backend.requests(), 1);
}

/// A processor may refuse a request, so no spelling leads past it.
#[tokio::test]
async fn no_spelling_of_a_path_evades_its_processor() {
    let (mut world, backend, filter) = accompanied(processor()).await;
    let through = |route, processor: Option<&str>| {
        with_policy(route, |policy| {
            policy.processor = processor.map(Into::into);
        })
    };
    let all = route("a.example", "/", "u");
    let admin = route("a.example", "/admin", "u");
    world.put_route("admin", through(admin, Some("p")));
    let get = |path| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    let statuses = [(None, "403"), (Some("other"), "403"), (Some("p"), "200")];
    for (processor, status) in statuses {
        world.put_route("r", through(all.clone(), processor));
        for path in ["/admin;x", "/%2561dmin"] {
            let answer = world.ask(&get(path)).await;
            assert_eq!(&answer[9..12], status, "{processor:?} {path}: {answer}");
        }
    }
    assert_eq!(backend.requests(), 2);
    drop(filter);
}

#[tokio::test]
async fn a_processor_that_is_down_closes_or_opens_as_written() {
    for (fail_open, status) in [(false, "HTTP/1.1 502"), (true, "HTTP/1.1 200")] {
        let provider = Provider {
            fail_open,
            timeout: Duration::from_millis(100),
            ..processor()
        };
        let (mut world, backend, _filter) = accompanied(provider).await;
        for mode in ["silent", "wrong", "silent late"] {
            let response = world.ask(&get(&format!("X-Mode: {mode}\r\n"))).await;
            assert!(response.starts_with(status), "{mode}: {response}");
        }
        let closed = world.ask(&post("X-Mode: silent\r\n", "body")).await;
        assert!(closed.starts_with(status), "{closed}");
        assert_eq!(closed.ends_with("\r\n\r\nbody"), fail_open, "{closed}");
        // One whose head alone is late has reached the endpoint.
        assert_eq!(backend.requests(), if fail_open { 4 } else { 1 });
        world.remove(Kind::Upstream, "filter");
        let gone = world.ask(&get("")).await;
        assert!(gone.starts_with(status), "{gone}");
        world.remove(Kind::Provider, "p");
        let gone = world.ask(&get("")).await;
        assert!(gone.starts_with("HTTP/1.1 403"), "{gone}");
    }
}
