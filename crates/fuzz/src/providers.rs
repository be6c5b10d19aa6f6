//! Answers of services that are asked about requests.

use std::sync::LazyLock;
use std::time::Duration;

use myriad_model::{CheckProtocol, HttpCheck, NameMatch, Provider};
use myriad_proxy::codec::buffer::Buffer;
use myriad_proxy::codec::head::{self, Head};
use myriad_proxy::codec::kept::KeptHead;
use myriad_proxy::codec::response;
use myriad_proxy::limits::Limits;
use myriad_proxy::policy::check::{
    self, Answered, CheckChanges, CheckVerdict, OwnedHeader, RefusalResponse, is_sendable,
};
use myriad_proxy::policy::process::{self, Part, Reply};

/// The request that is asked about.
const REQUEST: &[u8] = b"POST /a?b HTTP/1.1\r\nhost: a.example\r\ncontent-length: 3\r\n\
    authorization: c\r\nx-a: d\r\n\r\nabc";

/// The part of it that is the body.
const BODY: &[u8] = b"abc";

static GRPC: LazyLock<Provider> = LazyLock::new(|| provider(CheckProtocol::Grpc));

static HTTP: LazyLock<Provider> = LazyLock::new(|| {
    let every: Box<[NameMatch]> = [NameMatch::Start("".into())].into();
    provider(CheckProtocol::Http(Box::new(HttpCheck {
        upstream_on_allow: every.clone(),
        downstream_on_allow: every,
        ..HttpCheck::default()
    })))
});

fn provider(protocol: CheckProtocol) -> Provider {
    Provider {
        upstream: "u".into(),
        protocol,
        timeout: Duration::from_secs(1),
        fail_open: false,
        error_status: 403,
        body: None,
        authority: "u".into(),
        reroutes: false,
        told: Box::default(),
    }
}

/// An answer of `envoy.service.auth.v3.Authorization`, as its body.
pub(crate) fn check_grpc(bytes: &[u8]) -> bool {
    let answered = Answered {
        status: 200,
        fields: vec![("content-type".into(), (*b"application/grpc").into())],
        body: bytes.to_vec(),
        grpc_status: Some("0"),
    };
    assert_verdict(check::verdict(&GRPC, answered))
}

/// The response of a service over HTTP.
pub(crate) fn check_http(bytes: &[u8]) -> bool {
    let Ok(head) = response::parse(bytes, &Limits::default()) else {
        return false;
    };
    let fields = head.fields.iter();
    let fields = fields.map(|field| {
        let name = field.name.to_ascii_lowercase();
        (name.into(), field.value.into())
    });
    let answered = Answered {
        status: head.status,
        fields: fields.collect(),
        ..Answered::default()
    };
    assert_verdict(check::verdict(&HTTP, answered))
}

/// Answers of `envoy.service.ext_proc.v3.ExternalProcessor`, as their stream carries them: they
/// are told apart however the stream is cut.
pub(crate) fn processor(bytes: &[u8]) -> bool {
    let mut arrived = bytes.to_vec();
    let mut whole = Vec::new();
    while let Ok(Some(message)) = process::take(&mut arrived, 0) {
        whole.push(message);
    }
    let (mut arrived, mut cut) = (Vec::new(), Vec::new());
    'bytes: for byte in bytes {
        arrived.push(*byte);
        loop {
            match process::take(&mut arrived, 0) {
                Ok(Some(message)) => cut.push(message),
                Ok(None) => break,
                Err(_) => break 'bytes,
            }
        }
    }
    assert_eq!(cut, whole);
    for message in &whole {
        for part in [Part::RequestHead, Part::RequestBody, Part::ResponseHead] {
            match process::reply(message.clone(), part, |name| name == "x-a") {
                None => {}
                Some(Reply::Immediate(refusal)) => assert_refusal(&refusal),
                Some(Reply::Continue(mutation)) => {
                    assert!(mutation.body.is_none() || part == Part::RequestBody);
                    assert_changes(&mutation.changes);
                }
            }
        }
    }
    !whole.is_empty()
}

fn assert_verdict(verdict: CheckVerdict) -> bool {
    match verdict {
        CheckVerdict::Unclear | CheckVerdict::Looped => return false,
        CheckVerdict::Refuse(refusal) => assert_refusal(&refusal),
        CheckVerdict::Pass(changes) => assert_changes(&changes),
    }
    true
}

fn assert_refusal(refusal: &RefusalResponse) {
    assert!((200..600).contains(&refusal.status), "{}", refusal.status);
    assert_sendable(&refusal.fields);
}

fn assert_sendable(fields: &[OwnedHeader]) {
    assert!(fields.iter().all(|(name, value)| is_sendable(name, value)));
}

/// Whatever a service changes, the request is for the same host and path and has the same body,
/// and a head that is written is changed like one that is kept.
fn assert_changes(changes: &CheckChanges) {
    assert_sendable(&changes.set);
    assert_sendable(&changes.add);
    assert_sendable(&changes.downstream);
    if changes.set.len() + changes.add.len() > head::FIELDS_MAX / 2 {
        return;
    }
    let mut request = Buffer::take();
    request.append(REQUEST);
    let edited = check::edit(&request, changes);
    let text = edited.filled().strip_suffix(BODY).unwrap_or_default();
    let before = parse(REQUEST.strip_suffix(BODY).unwrap_or_default());
    let after = parse(text);
    assert_eq!((after.method, &after.path), (before.method, &before.path));
    assert_eq!(
        (after.query, after.authority),
        (before.query, before.authority)
    );
    assert_eq!(
        (after.body, after.keep_alive),
        (before.body, before.keep_alive)
    );
    let mut kept = KeptHead::new(&before);
    check::change(&mut kept, changes);
    assert_eq!(pairs(&kept.head()), pairs(&after));
}

fn parse(text: &[u8]) -> Head<'_> {
    match head::parse(text, &Limits::default()) {
        Ok(head) => head,
        Err(error) => panic!("{error:?} of {}", text.escape_ascii()),
    }
}

/// The fields without white space around values, which belongs to nobody.
fn pairs(head: &Head<'_>) -> Vec<(String, Vec<u8>)> {
    let fields = head.fields.iter();
    let pair = fields.map(|field| (field.name.to_owned(), field.value.trim_ascii().to_vec()));
    pair.collect()
}
