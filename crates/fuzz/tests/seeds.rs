//! The files of the corpora that messages of our own protocols are in: they are what both ends
//! say today. `UPDATE_GOLDENS=1` writes them anew.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use myriad_base::clock;
use myriad_fuzz::sessions::{KEY, client, server, world};
use myriad_model::{Form, Key, Kind, Position, Snapshot, Version};
use myriad_proxy::policy::check::envoy as check;
use myriad_proxy::policy::process::envoy as process;
use myriad_sync::wire::{FromProxy, FromServer};
use myriad_sync::{ClientCounters, ClientSession, Logged, NotSigned, Received};
use prost::Message;

/// Folder, name and content.
type Seed = (&'static str, &'static str, Vec<u8>);

/// A message behind its length.
fn put(out: &mut Vec<u8>, message: &[u8]) {
    let length = u16::try_from(message.len()).unwrap();
    out.extend(length.to_be_bytes());
    out.extend(message);
}

/// The messages of a proxy and its controller until both are in step: to the controller, and to the
/// proxy.
fn conversation(mut client: ClientSession) -> [Vec<u8>; 2] {
    let (mut server, now) = (server(), clock::now());
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut next = vec![client.hello()];
    while !next.is_empty() {
        for message in std::mem::take(&mut next) {
            put(&mut to_server, &message.encode_to_vec());
            server.receive(message).unwrap();
        }
        if server.asked(now).is_some() {
            server.signed(Err(NotSigned {
                reason: "nobody signs here".to_owned(),
                retry_after: std::time::Duration::ZERO,
            }));
        }
        while let Some(frame) = server.poll(now) {
            put(&mut to_client, &frame);
            let message = FromServer::decode(frame).unwrap();
            next.extend(answer(&mut client, message));
        }
    }
    assert!(server.is_in_step());
    [to_server, to_client]
}

fn answer(client: &mut ClientSession, message: FromServer) -> Option<FromProxy> {
    match client.receive(message).unwrap() {
        Received::Answer(answer) => Some(answer),
        Received::Key(_, hello) => Some(hello),
        Received::Apply(_) => client.applied(&[]),
        Received::Anchors(_) => client.ask(Bytes::from_static(b"request"), "token".to_owned()),
        Received::Demanding(_) | Received::Answered(..) => None,
        Received::Signed(_) | Received::Nothing => None,
    }
}

fn sessions() -> Vec<Seed> {
    let counters = ClientCounters::default;
    let new = ClientSession::new("proxy", None, Snapshot::new(), counters());
    let same = ClientSession::new("proxy", Some(KEY), world(81, Form::Value), counters());
    let [to_server, to_client] = conversation(client());
    vec![
        ("proxy_messages", "behind", to_server),
        ("proxy_messages", "new", conversation(new)[0].clone()),
        ("proxy_messages", "in_step", conversation(same)[0].clone()),
        ("controller_messages", "behind", to_client),
        ("controller_messages", "no_more", no_more()),
    ]
}

/// The message to a proxy of another key: it has to begin anew.
fn no_more() -> Vec<u8> {
    let counters = ClientCounters::default();
    let new = ClientSession::new("proxy", None, Snapshot::new(), counters);
    let [_, mut to_client] = conversation(new);
    to_client.truncate(64);
    to_client
}

fn log_records() -> Vec<Seed> {
    let mut logged = Logged::new(Position::counter(1, 7));
    logged.key = Some(KEY);
    logged.put(
        Key::new(Kind::Endpoints, "a"),
        Version([1; 16]),
        Bytes::from_static(b"\x08\x01"),
    );
    logged.remove(Key::new(Kind::Route, "shop/web"));
    let nothing = Logged::new(Position::default());
    vec![
        ("log_record", "changes", logged.encode()),
        ("log_record", "nothing", nothing.encode()),
    ]
}

/// A message as gRPC frames it.
fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let mut out = vec![0];
    out.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    out.extend(message);
    out
}

fn header(key: &str, value: &str) -> Option<check::HeaderValue> {
    Some(check::HeaderValue {
        key: key.to_owned(),
        value: value.to_owned(),
        raw_value: Bytes::new(),
    })
}

fn checks() -> Vec<Seed> {
    let option = |key, value, append| check::CheckHeaderOption {
        header: header(key, value),
        append: Some(check::BoolValue { value: append }),
    };
    let answer = |code, http_response| check::CheckResponse {
        status: Some(check::RpcStatus { code }),
        http_response,
    };
    let ok = check::OkHttpResponse {
        headers: vec![
            option("x-user", "a", false),
            option("X-A", "b", true),
            option("content-length", "7", false),
            option("Host", "b.example", false),
            option("transfer-encoding", "chunked", true),
        ],
        headers_to_remove: vec!["authorization".to_owned(), "Host".to_owned()],
        response_headers_to_add: vec![option("set-cookie", "a=b", true)],
    };
    let denied = check::DeniedHttpResponse {
        status: Some(check::HttpStatus { code: 401 }),
        headers: vec![option("www-authenticate", "Basic", false)],
        body: "no".to_owned(),
    };
    vec![
        (
            "check_grpc",
            "pass",
            framed(&answer(0, Some(check::HttpResponse::Ok(ok)))),
        ),
        (
            "check_grpc",
            "deny",
            framed(&answer(16, Some(check::HttpResponse::Denied(denied)))),
        ),
        ("check_grpc", "deny_plain", framed(&answer(7, None))),
        (
            "check_grpc",
            "no_status",
            framed(&check::CheckResponse::default()),
        ),
    ]
}

fn processors() -> Vec<Seed> {
    let option = |key, value, append_action| process::ProcessHeaderOption {
        header: header(key, value),
        append: None,
        append_action,
    };
    let mutation = || process::HeaderMutation {
        set_headers: vec![
            option("x-a", "1", 1),
            option("x-b", "2", 2),
            option("content-length", "7", 2),
            option("x-c", "3", 0),
        ],
        remove_headers: vec!["authorization".to_owned()],
    };
    let part = |body_mutation| process::PartResponse {
        response: Some(process::CommonResponse {
            status: 0,
            header_mutation: Some(mutation()),
            body_mutation,
        }),
    };
    let said = |said| {
        framed(&process::ProcessingResponse {
            response: Some(said),
        })
    };
    let body = process::BodyMutation {
        mutation: Some(process::NewBody::Body(Bytes::from_static(b"def"))),
    };
    let immediate = process::ImmediateResponse {
        status: Some(check::HttpStatus { code: 429 }),
        headers: Some(mutation()),
        body: Bytes::from_static(b"later"),
        grpc_status: Some(process::GrpcStatus { status: 8 }),
    };
    let mut both = said(process::ProcessingReply::RequestHeaders(part(None)));
    both.extend(said(process::ProcessingReply::RequestBody(part(Some(
        body,
    )))));
    vec![
        ("processor", "request", both),
        (
            "processor",
            "response",
            said(process::ProcessingReply::ResponseHeaders(part(None))),
        ),
        (
            "processor",
            "immediate",
            said(process::ProcessingReply::Immediate(immediate)),
        ),
        ("processor", "no_frame", vec![1, 0, 0, 0, 0]),
    ]
}

#[test]
fn messages_of_the_corpus_are_those_that_are_said_today() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let is_update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let all = [sessions(), log_records(), checks(), processors()];
    for (folder, name, bytes) in all.into_iter().flatten() {
        let file = corpus.join(folder).join(name);
        if is_update {
            fs::create_dir_all(corpus.join(folder)).unwrap();
            fs::write(&file, &bytes).unwrap();
        }
        #[expect(clippy::disallowed_methods, reason = "our own files, of a known size")]
        let known = fs::read(&file).expect(name);
        assert!(
            known == bytes,
            "{folder}/{name} differs; UPDATE_GOLDENS=1 rewrites it"
        );
    }
}
