//! External processors: what they are told of a request and its response, and what their answers
//! mean.

use bytes::Bytes;
use prost::Message as _;

use super::check::envoy::{HeaderValue, HttpStatus};
use super::check::{CheckChanges, RefusalResponse, sendable};
use crate::codec::endpoint_head::EndpointHead;
use crate::codec::field::{BETWEEN_COOKIES, Field, KnownField};

#[allow(missing_docs, reason = "fields are named by Envoy's API")]
pub mod envoy;

/// The method that is called.
pub const GRPC_PATH: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// Before a message of gRPC: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The most bytes of an answer beyond those of a body.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Goes on with another message, which is not honoured.
const AND_REPLACE: i32 = 1;

/// A part that a processor is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The head of the request.
    RequestHead,
    /// The body of the request.
    RequestBody,
    /// The head of the response.
    ResponseHead,
}

/// The meaning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// The exchange goes on.
    Continue(Mutation),
    /// The client gets this instead.
    Immediate(RefusalResponse),
}

/// The changes to a part.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mutation {
    /// Its headers, or those that stand before it.
    pub changes: CheckChanges,
    /// The body in its place.
    pub body: Option<Bytes>,
}

/// A message was longer than it may be, or is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMessage;

/// The head of a request to an endpoint, as it is told.
pub fn request_head(head: &EndpointHead, scheme: &str, is_last: bool) -> envoy::ProcessingRequest {
    let mut headers = Vec::new();
    let [method, authority, path] = match head {
        EndpointHead::Http1(text) => {
            let mut lines = text.filled().split(|byte| *byte == b'\n');
            let first = String::from_utf8_lossy(lines.next().unwrap_or_default());
            let mut words = first.split_ascii_whitespace().map(str::to_owned);
            let (method, path) = (words.next(), words.next());
            let mut authority = String::new();
            for (name, value) in lines.filter_map(field) {
                match KnownField::of(name) {
                    KnownField::Host => authority = String::from_utf8_lossy(value).into_owned(),
                    known if known.is_hop_by_hop() => {}
                    _ => put(&mut headers, name, value),
                }
            }
            [
                method.unwrap_or_default(),
                authority,
                path.unwrap_or_default(),
            ]
        }
        EndpointHead::Http2(request) => {
            for (name, value) in request.headers() {
                if !KnownField::of(name.as_str()).is_hop_by_hop() {
                    put(&mut headers, name.as_str(), value.as_bytes());
                }
            }
            let uri = request.uri();
            let authority = uri.authority().map(ToString::to_string);
            let path = uri.path_and_query().map(ToString::to_string);
            let method = request.method().to_string();
            [
                method,
                authority.unwrap_or_default(),
                path.unwrap_or_default(),
            ]
        }
    };
    let pseudo = [
        (":method", &*method),
        (":scheme", scheme),
        (":authority", &*authority),
        (":path", &*path),
    ];
    headers.splice(
        0..0,
        pseudo.map(|(name, value)| header(name, value.as_bytes())),
    );
    told(envoy::ProcessingPart::RequestHeaders(envoy::HttpHeaders {
        headers: Some(envoy::HeaderMap { headers }),
        end_of_stream: is_last,
    }))
}

/// The head of a response, as it is told.
pub fn response_head(status: u16, fields: &[Field<'_>], is_last: bool) -> envoy::ProcessingRequest {
    let mut headers = vec![header(":status", status.to_string().as_bytes())];
    let fields = fields.iter().filter(|field| !field.known.is_hop_by_hop());
    headers.extend(fields.map(|field| header(field.name, field.value)));
    told(envoy::ProcessingPart::ResponseHeaders(envoy::HttpHeaders {
        headers: Some(envoy::HeaderMap { headers }),
        end_of_stream: is_last,
    }))
}

/// The whole body of a request, as it is told.
pub fn request_body(body: &[u8]) -> envoy::ProcessingRequest {
    told(envoy::ProcessingPart::RequestBody(envoy::HttpBody {
        body: Bytes::copy_from_slice(body),
        end_of_stream: true,
    }))
}

/// A message as gRPC frames it.
pub fn framed(message: &envoy::ProcessingRequest) -> Bytes {
    let length = message.encoded_len();
    let mut out = Vec::with_capacity(PREFIX_BYTES + length);
    out.push(0);
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode_raw(&mut out);
    out.into()
}

/// Takes a message off the front of what has arrived, once it is whole.
///
/// # Errors
/// A message that is too long, compressed, or none.
pub fn take(
    arrived: &mut Vec<u8>,
    body_bytes_max: usize,
) -> Result<Option<envoy::ProcessingResponse>, BadMessage> {
    let Some((prefix, rest)) = arrived.split_at_checked(PREFIX_BYTES) else {
        return Ok(None);
    };
    let (compressed, length) = prefix.split_first().ok_or(BadMessage)?;
    let length = u32::from_be_bytes(length.try_into().map_err(|_| BadMessage)?);
    let length = usize::try_from(length).map_err(|_| BadMessage)?;
    if *compressed != 0 || length > ANSWER_BYTES_MAX + body_bytes_max {
        return Err(BadMessage);
    }
    let Some(message) = rest.get(..length) else {
        return Ok(None);
    };
    let message = envoy::ProcessingResponse::decode(message).map_err(|_| BadMessage)?;
    arrived.drain(..PREFIX_BYTES + length);
    Ok(Some(message))
}

/// The meaning of the answer to a part; `None` where it answers something else. `has` tells whether
/// the part has a header of a lower-case name.
pub fn reply(
    message: envoy::ProcessingResponse,
    part: Part,
    has: impl Fn(&str) -> bool,
) -> Option<Reply> {
    use envoy::ProcessingReply;
    let answer = match (message.response?, part) {
        (ProcessingReply::Immediate(immediate), _) => {
            return Some(Reply::Immediate(refusal(immediate)));
        }
        (ProcessingReply::RequestHeaders(answer), Part::RequestHead)
        | (ProcessingReply::RequestBody(answer), Part::RequestBody)
        | (ProcessingReply::ResponseHeaders(answer), Part::ResponseHead) => answer,
        _ => return None,
    };
    let common = answer.response.unwrap_or_default();
    if common.status == AND_REPLACE {
        return None;
    }
    let body = match common.body_mutation.and_then(|it| it.mutation) {
        Some(envoy::NewBody::Body(body)) => Some(body),
        Some(envoy::NewBody::Clear(true)) => Some(Bytes::new()),
        Some(envoy::NewBody::Clear(false)) | None => None,
    };
    Some(Reply::Continue(Mutation {
        changes: changes(common.header_mutation.unwrap_or_default(), has),
        body: body.filter(|_| part == Part::RequestBody),
    }))
}

fn told(told: envoy::ProcessingPart) -> envoy::ProcessingRequest {
    envoy::ProcessingRequest {
        request: Some(told),
    }
}

/// A field of a line, without the white space around its value.
fn field(line: &[u8]) -> Option<(&str, &[u8])> {
    let at = memchr::memchr(b':', line)?;
    let (name, value) = line.split_at_checked(at)?;
    let name = std::str::from_utf8(name).ok()?;
    Some((name, value.get(1..)?.trim_ascii()))
}

/// Puts a field behind those before; cookies are one, as outside of HTTP/2.
fn put(headers: &mut Vec<HeaderValue>, name: &str, value: &[u8]) {
    let told = header(name, value);
    let before = match KnownField::of(name) {
        KnownField::Cookie => headers.iter_mut().find(|it| it.key == told.key),
        _ => None,
    };
    match before {
        Some(before) => {
            let all = [&*before.raw_value, BETWEEN_COOKIES, value];
            before.raw_value = all.concat().into();
        }
        None => headers.push(told),
    }
}

fn header(name: &str, value: &[u8]) -> HeaderValue {
    HeaderValue {
        key: name.to_ascii_lowercase(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value),
    }
}

fn changes(mutation: envoy::HeaderMutation, has: impl Fn(&str) -> bool) -> CheckChanges {
    let mut changes = CheckChanges::default();
    let removed = mutation.remove_headers.into_iter();
    changes.remove = removed
        .map(|name| name.to_ascii_lowercase().into())
        .collect();
    for option in mutation.set_headers {
        let appends = option.append.as_ref().is_some_and(|append| append.value);
        let action = option.append_action;
        let Some(told) = sendable(option.header) else {
            continue;
        };
        match action {
            1 if has(&told.0) => {}
            3 if !has(&told.0) => {}
            0 if appends => changes.add.push(told),
            _ => changes.set.push(told),
        }
    }
    changes
}

fn refusal(immediate: envoy::ImmediateResponse) -> RefusalResponse {
    let HttpStatus { code } = immediate.status.unwrap_or_default();
    let mut changes = changes(immediate.headers.unwrap_or_default(), |_| false);
    let mut fields = std::mem::take(&mut changes.set);
    fields.append(&mut changes.add);
    if let Some(grpc) = immediate.grpc_status {
        let status = grpc.status.to_string().into_bytes();
        fields.push(("grpc-status".into(), status.into()));
    }
    let code = u16::try_from(code).ok();
    RefusalResponse {
        status: code.filter(|code| (200..600).contains(code)).unwrap_or(200),
        fields,
        body: immediate.body.to_vec().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::envoy::{
        CommonResponse, HeaderMutation, PartResponse, ProcessHeaderOption, ProcessingReply,
    };
    use super::*;
    use crate::codec::buffer::Buffer;
    use crate::codec::endpoint_head::of_text;
    use crate::policy::check::OwnedHeader;
    use crate::policy::check::envoy::BoolValue;

    fn option(name: &str, append: Option<bool>, append_action: i32) -> ProcessHeaderOption {
        ProcessHeaderOption {
            header: Some(header(name, b"v")),
            append: append.map(|value| BoolValue { value }),
            append_action,
        }
    }

    fn answer(set_headers: Vec<ProcessHeaderOption>, status: i32) -> envoy::ProcessingResponse {
        let common = CommonResponse {
            status,
            header_mutation: Some(HeaderMutation {
                set_headers,
                remove_headers: vec!["X-Gone".into()],
            }),
            body_mutation: None,
        };
        envoy::ProcessingResponse {
            response: Some(ProcessingReply::RequestHeaders(PartResponse {
                response: Some(common),
            })),
        }
    }

    #[test]
    fn headers_are_put_in_as_they_are_said() {
        let options = vec![
            option("X-A", None, 0),
            option("x-b", Some(true), 0),
            option("x-here", None, 1),
            option("x-c", None, 1),
            option("x-here", None, 3),
            option("x-d", None, 3),
            option(":path", None, 2),
            option("bad name", None, 2),
        ];
        let message = answer(options, 0);
        let reply = reply(message, Part::RequestHead, |name| name == "x-here");
        let Some(Reply::Continue(mutation)) = reply else {
            panic!("{reply:?}");
        };
        let names = |all: &[OwnedHeader]| -> Vec<String> {
            all.iter().map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(names(&mutation.changes.set), ["x-a", "x-c", "x-here"]);
        assert_eq!(names(&mutation.changes.add), ["x-b"]);
        assert_eq!(*mutation.changes.remove, ["x-gone".into()]);
    }

    #[test]
    fn an_answer_to_something_else_is_none() {
        let no = |_: &str| false;
        assert_eq!(reply(answer(Vec::new(), 0), Part::ResponseHead, no), None);
        assert_eq!(reply(answer(Vec::new(), 1), Part::RequestHead, no), None);
        assert_eq!(
            reply(envoy::ProcessingResponse::default(), Part::RequestHead, no),
            None
        );
    }

    #[test]
    fn messages_are_taken_whole_and_bounded() {
        let mut all = Vec::new();
        for status in [0, 1] {
            let message = answer(Vec::new(), status).encode_to_vec();
            all.push(0);
            all.extend_from_slice(&(message.len() as u32).to_be_bytes());
            all.extend_from_slice(&message);
        }
        let (mut arrived, mut taken) = (Vec::new(), 0);
        for byte in all {
            arrived.push(byte);
            taken += usize::from(take(&mut arrived, 0).unwrap().is_some());
        }
        assert_eq!((taken, arrived.len()), (2, 0));
        let mut long = vec![0, 1, 0, 0, 0, 0];
        assert_eq!(take(&mut long, 0), Err(BadMessage));
        assert_eq!(take(&mut long, 16 << 20), Ok(None));
        assert_eq!(take(&mut vec![1, 0, 0, 0, 0], 0), Err(BadMessage));
    }

    #[test]
    fn a_head_is_told_with_what_http2_has_apart() {
        let text = b"GET /a?b HTTP/1.1\r\nhost: h\r\nCookie: c=1\r\nX-A:  1 \r\ncookie: d=2\r\n\
            connection: close\r\n\r\n";
        let mut buffer = Buffer::take();
        buffer.append(text);
        let (request, _) = of_text(text, true).unwrap();
        let heads = [EndpointHead::Http1(buffer), EndpointHead::Http2(request)];
        let texts = heads.map(|head| {
            let told = request_head(&head, "https", true).request;
            let Some(envoy::ProcessingPart::RequestHeaders(told)) = told else {
                panic!("no head");
            };
            let headers = told.headers.unwrap().headers;
            let texts = headers
                .iter()
                .map(|it| format!("{}={}", it.key, String::from_utf8_lossy(&it.raw_value)));
            texts.collect::<Vec<String>>()
        });
        let all = [
            ":method=GET",
            ":scheme=https",
            ":authority=h",
            ":path=/a?b",
            "cookie=c=1; d=2",
            "x-a=1",
        ];
        assert_eq!(texts, [all, all]);
    }
}
