//! Questions whether a request may pass, and what their answers mean.

use std::borrow::Cow;

use bytes::Bytes;
use myriad_base::clock;
use myriad_model::{HttpCheck, NameMatch, PathReading, Provider};
use prost::Message as _;

use super::{client, hops};
use crate::codec::body::BodyLength;
use crate::codec::buffer::Buffer;
use crate::codec::endpoint_head::{self, EndpointHead};
use crate::codec::field::{self, Field, KnownField, is_read_as};
use crate::codec::head::{Head, Version};
use crate::codec::kept::KeptHead;
use crate::codec::trailer::{GRPC_STATUS, is_grpc};
use crate::route::downstream_connection::DownstreamConnection;

mod changes;
#[allow(missing_docs, reason = "fields are named by Envoy's API")]
pub mod envoy;

pub use changes::CheckChanges;

/// The method that is called.
const GRPC_PATH: &str = "/envoy.service.auth.v3.Authorization/Check";

/// Before a message of gRPC: whether it is compressed, and its length.
const GRPC_PREFIX_BYTES: usize = 5;

/// The field in which a provider over HTTP lists fields to be taken out of the request.
const REMOVE: &str = "x-envoy-auth-headers-to-remove";

/// A header.
pub type OwnedHeader = (Box<str>, Box<[u8]>);

/// A question, but for the body of the request.
pub enum Question {
    /// The head, but for its length and end.
    Http(Buffer),
    /// A call of gRPC.
    Grpc {
        /// The message.
        message: Box<envoy::CheckRequest>,
        /// The gateways that the request has passed, which the call tells as the request would.
        passed: Option<Box<[u8]>>,
    },
}

/// An answer, whatever protocol it came by.
#[derive(Debug, Default)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The fields, with names in lower case.
    pub fields: Vec<OwnedHeader>,
    /// The body.
    pub body: Vec<u8>,
    /// The status of gRPC behind the body, where one is told.
    pub grpc_status: Option<&'static str>,
}

/// The meaning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum CheckVerdict {
    /// The request passes.
    Pass(CheckChanges),
    /// It does not, and this is the response.
    Refuse(RefusalResponse),
    /// The question was led in a circle, as the request would be: who fails open stays closed, or
    /// each pass would ask and go on, and lead to two.
    Looped,
    /// The answer is none.
    Unclear,
}

/// The response to a request that does not pass.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusalResponse {
    /// The status.
    pub status: u16,
    /// The fields.
    pub fields: Vec<OwnedHeader>,
    /// The body.
    pub body: Box<[u8]>,
}

/// Writes the question of a request, as far as its head goes. `is_hop` is whether it tells that
/// the request passed a gateway.
pub fn question(
    provider: &Provider,
    visit: &DownstreamConnection,
    (head, is_hop): (&Head<'_>, bool),
    trusted_hops: usize,
) -> Question {
    use myriad_model::CheckProtocol;
    let came_by = came_by(visit, head, trusted_hops);
    let may_tell = client::may_tell(visit, trusted_hops);
    match &provider.protocol {
        CheckProtocol::Http(check) => {
            let mut out = Buffer::for_head();
            let told = (head, may_tell, is_hop);
            write_head(check, &provider.authority, told, &came_by, &mut out);
            Question::Http(out)
        }
        // Nobody asks a processor whether a request may pass.
        CheckProtocol::Grpc | CheckProtocol::Process(_) => {
            let told = (head, may_tell, &*provider.told);
            let message = Box::new(check_request(visit, told, &came_by));
            let passed = is_hop.then(|| hops::told(head).concat().into());
            Question::Grpc { message, passed }
        }
    }
}

/// The whole question: head and body, as they are written for HTTP/1.
pub fn write(question: Question, provider: &Provider, body: &[u8]) -> Buffer {
    match question {
        Question::Http(mut out) => {
            out.append(b"content-length: ");
            out.append_decimal(body.len() as u64);
            out.append(b"\r\n\r\n");
            out.append(body);
            out
        }
        Question::Grpc {
            mut message,
            passed,
        } => {
            put_body(&mut message, provider, body);
            let message = message.encode_to_vec();
            let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
            let mut out = Buffer::for_head();
            out.append_str("POST ");
            out.append_str(GRPC_PATH);
            out.append_str(" HTTP/1.1\r\nhost: ");
            out.append_str(&provider.authority);
            out.append_str("\r\ncontent-type: application/grpc\r\nte: trailers\r\n");
            if let Some(passed) = passed {
                put(hops::FIELD, &passed, &mut out);
            }
            out.append(b"\r\n");
            out.append(&[0]);
            out.append(&length.to_be_bytes());
            out.append(&message);
            out
        }
    }
}

/// The meaning of a provider's answer.
pub fn verdict(provider: &Provider, answered: Answered) -> CheckVerdict {
    use myriad_model::CheckProtocol;
    if answered.status == hops::LOOP_STATUS {
        return CheckVerdict::Looped;
    }
    match &provider.protocol {
        CheckProtocol::Http(check) => of_http(check, answered),
        CheckProtocol::Grpc => of_grpc(&answered).unwrap_or(CheckVerdict::Unclear),
        CheckProtocol::Process(_) => CheckVerdict::Unclear,
    }
}

/// The bytes of a request, head first, after the changes of its head.
pub fn edit(request: &Buffer, changes: &CheckChanges) -> Buffer {
    let bytes = request.filled();
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 2);
    let (head, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    let mut out = Buffer::for_head();
    for (at, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let name = std::str::from_utf8(name).unwrap_or_default();
        let is_it = |known: &str| is_read_as(name, known);
        let goes = changes.remove.iter().any(|known| is_it(known))
            || changes.set.iter().any(|(known, _)| is_it(known));
        if at == 0 || !goes || !may_change(name) {
            out.append(line);
        }
    }
    for (name, value) in changes.set.iter().chain(&changes.add) {
        if may_change(name) && is_sendable(name, value) {
            out.append_str(name);
            out.append(b": ");
            out.append(value);
            out.append(b"\r\n");
        }
    }
    out.append(rest);
    out
}

/// Changes the head of a request to an endpoint, as [`edit`] does where it is text.
pub fn edit_head(head: &mut EndpointHead, changes: &CheckChanges) {
    let request = match head {
        EndpointHead::Http1(text) => {
            *text = edit(text, changes);
            return;
        }
        EndpointHead::Http2(request) => request,
    };
    let goes = |name: &str| {
        let is_it = |known: &str| is_read_as(name, known);
        let goes = changes.remove.iter().any(|known| is_it(known))
            || changes.set.iter().any(|(known, _)| is_it(known));
        goes && may_change(name)
    };
    endpoint_head::change(request, goes, |add| {
        for (name, value) in changes.set.iter().chain(&changes.add) {
            if may_change(name) && is_sendable(name, value) {
                add(name, value);
            }
        }
    });
}

/// Changes the head of a request that was kept, as [`edit`] does where it is written.
pub fn change(head: &mut KeptHead, changes: &CheckChanges) {
    head.remove(|name| {
        let is_it = |known: &str| is_read_as(name, known);
        let goes = changes.remove.iter().any(|known| is_it(known))
            || changes.set.iter().any(|(known, _)| is_it(known));
        goes && may_change(name)
    });
    for (name, value) in changes.set.iter().chain(&changes.add) {
        if may_change(name) && is_sendable(name, value) {
            head.add(name, value);
        }
    }
}

/// The chain of addresses that the request came by, as the endpoint is told.
fn came_by(visit: &DownstreamConnection, head: &Head<'_>, trusted_hops: usize) -> String {
    let mut chain = String::new();
    if trusted_hops > 0 {
        let fields = head.fields.iter();
        for field in fields.filter(|field| field.known == KnownField::ForwardedFor) {
            chain += &String::from_utf8_lossy(field.value);
            chain += ", ";
        }
    }
    chain + &visit.client_text
}

fn write_head(
    check: &HttpCheck,
    authority: &str,
    (head, may_tell, is_hop): (&Head<'_>, bool, bool),
    came_by: &str,
    out: &mut Buffer,
) {
    out.append_str(head.method);
    out.append(b" ");
    out.append_str(&check.path_prefix);
    out.append_str(told_path(head));
    if let Some(query) = head.query {
        out.append(b"?");
        out.append_str(query);
    }
    out.append(b" HTTP/1.1\r\nhost: ");
    out.append_str(match head.authority {
        "" => authority,
        authority => authority,
    });
    out.append(b"\r\n");
    let additional = check.additional.iter();
    let additional = additional.filter(|(name, _)| may_change(name));
    let is_replaced = |name: &str| additional.clone().any(|(known, _)| **known == *name);
    for (field, value) in told_fields(head, may_tell, is_hop) {
        let name = field.name.to_ascii_lowercase();
        let is_told = name == "authorization" || check.request.iter().any(|it| it.is_met(&name));
        if is_told && !is_replaced(&name) {
            put(&name, &value, out);
        }
    }
    let forwarded = check.request.iter().any(|it| it.is_met("x-forwarded-for"));
    if forwarded && !is_replaced("x-forwarded-for") {
        put("x-forwarded-for", came_by.as_bytes(), out);
    }
    if is_hop {
        put(hops::FIELD, &hops::told(head).concat(), out);
    }
    for (name, value) in additional {
        put(name, value.as_bytes(), out);
    }
}

fn put(name: &str, value: &[u8], out: &mut Buffer) {
    out.append_str(name);
    out.append(b": ");
    out.append(value);
    out.append(b"\r\n");
}

/// The path that providers are told, as Istio's are: whoever compares it need not undo escapes of
/// letters.
fn told_path<'a>(head: &'a Head<'_>) -> &'a str {
    head.read(PathReading::Base).unwrap_or(&head.path)
}

/// The fields that providers may be told, with their values: cookies are one, wherever the first of
/// them stands, since servers may read the first field alone. `may_tell` is whether the sender may
/// say how it came, and `is_hop` whether the gateways that it passed are told apart.
pub(super) fn told_fields<'a, 'h>(
    head: &'a Head<'h>,
    may_tell: bool,
    is_hop: bool,
) -> impl Iterator<Item = (&'a Field<'h>, Cow<'h, [u8]>)> {
    let mut cookies = field::cookies(&head.fields);
    let told = head.fields.iter().filter(move |field| {
        let is_own = matches!(
            field.known,
            KnownField::Host
                | KnownField::ContentLength
                | KnownField::Expect
                | KnownField::ForwardedFor
                | KnownField::Proxy
        );
        let is_claimed = field.known == KnownField::OtherForwarded && !may_tell;
        let is_joined = field.known == KnownField::CdnLoop && is_hop;
        !is_own && !is_claimed && !is_joined && !field.known.is_hop_by_hop()
    });
    told.filter_map(move |field| match field.known {
        KnownField::Cookie => Some((field, cookies.take()?)),
        _ => Some((field, Cow::Borrowed(field.value))),
    })
}

fn check_request(
    visit: &DownstreamConnection,
    (head, may_tell, told): (&Head<'_>, bool, &[NameMatch]),
    came_by: &str,
) -> envoy::CheckRequest {
    let is_told = |name: &str| told.is_empty() || told.iter().any(|it| it.is_met(name));
    let path = match head.query {
        Some(query) => format!("{}?{query}", told_path(head)),
        None => told_path(head).to_owned(),
    };
    let mut http = envoy::HttpRequest {
        method: head.method.to_owned(),
        path,
        host: head.authority.to_owned(),
        scheme: head.scheme.to_owned(),
        size: match head.body {
            BodyLength::None => 0,
            BodyLength::Exact(length) => i64::try_from(length).unwrap_or(i64::MAX),
            BodyLength::Chunked | BodyLength::UntilClose => -1,
        },
        protocol: match head.version {
            Version::Http2 => "HTTP/2",
            Version::Http11 => "HTTP/1.1",
            Version::Http10 => "HTTP/1.0",
        }
        .to_owned(),
        ..envoy::HttpRequest::default()
    };
    let pseudo = [
        (":method", http.method.clone()),
        (":path", http.path.clone()),
        (":authority", http.host.clone()),
        (":scheme", http.scheme.clone()),
        ("x-forwarded-for", came_by.to_owned()),
    ];
    let pseudo = pseudo.map(|(name, value)| (name.to_owned(), value));
    let pseudo = pseudo.into_iter();
    let pseudo = pseudo.filter(|(name, _)| name.starts_with(':') || is_told(name));
    http.headers.extend(pseudo);
    for (field, value) in told_fields(head, may_tell, false) {
        let name = field.name.to_ascii_lowercase();
        if !is_told(&name) {
            continue;
        }
        let value = String::from_utf8_lossy(&value);
        let known = http.headers.entry(name);
        let known = known.or_default();
        if !known.is_empty() {
            known.push(',');
        }
        known.push_str(&value);
    }
    let source = visit.client.ip().to_canonical().to_string();
    let sni = visit.secured.as_ref().and_then(|it| it.sni.as_deref());
    let now = clock::since_epoch();
    envoy::CheckRequest {
        attributes: Some(envoy::AttributeContext {
            source: Some(party(source, visit.client.port())),
            destination: Some(party(String::new(), visit.port)),
            request: Some(envoy::ContextRequest {
                time: Some(envoy::Timestamp {
                    seconds: i64::try_from(now.as_secs()).unwrap_or_default(),
                    nanos: i32::try_from(now.subsec_nanos()).unwrap_or_default(),
                }),
                http: Some(http),
            }),
            tls_session: sni.map(|sni| envoy::TlsSession { sni: sni.into() }),
        }),
    }
}

fn party(address: String, port: u16) -> envoy::Party {
    envoy::Party {
        address: Some(envoy::Address {
            socket_address: Some(envoy::SocketAddress {
                address,
                port_value: port.into(),
            }),
        }),
        principal: String::new(),
    }
}

fn put_body(request: &mut envoy::CheckRequest, provider: &Provider, body: &[u8]) {
    let attributes = request.attributes.as_mut();
    let Some(http) = attributes
        .and_then(|it| it.request.as_mut())
        .and_then(|it| it.http.as_mut())
    else {
        return;
    };
    match provider.body {
        Some(rule) if rule.is_raw => http.raw_body = Bytes::copy_from_slice(body),
        Some(_) => http.body = String::from_utf8_lossy(body).into_owned(),
        None => {}
    }
}

fn of_http(check: &HttpCheck, answered: Answered) -> CheckVerdict {
    let Answered {
        status,
        fields,
        body,
        ..
    } = answered;
    let meets = |names: &[NameMatch], name: &str| names.iter().any(|it| it.is_met(name));
    match status {
        200 => {
            let removed = fields.iter().filter(|(name, _)| **name == *REMOVE);
            let remove = removed
                .flat_map(|(_, value)| field::members(value))
                .map(|name| name.to_ascii_lowercase().into())
                .collect();
            let mut changes = CheckChanges {
                remove,
                ..CheckChanges::default()
            };
            for (name, value) in fields {
                if meets(&check.downstream_on_allow, &name) {
                    changes.downstream.push((name.clone(), value.clone()));
                }
                if meets(&check.upstream_on_allow, &name) {
                    changes.set.push((name, value));
                }
            }
            CheckVerdict::Pass(changes)
        }
        // The service is down, or says that it is.
        0..200 | 500.. => CheckVerdict::Unclear,
        status => {
            let always = ["www-authenticate", "location"];
            let is_passed = |(name, _): &OwnedHeader| {
                check.downstream_on_deny.is_empty()
                    || always.contains(&&**name)
                    || meets(&check.downstream_on_deny, name)
            };
            CheckVerdict::Refuse(RefusalResponse {
                status,
                fields: fields.into_iter().filter(is_passed).collect(),
                body: body.into(),
            })
        }
    }
}

/// The meaning of an answer over gRPC; none where the call has not ended well, whatever its message
/// says: who fails behind it has not meant it.
fn of_grpc(answered: &Answered) -> Option<CheckVerdict> {
    let mut fields = answered.fields.iter();
    let is_called = fields.any(|(name, value)| **name == *"content-type" && is_grpc(value));
    let mut fields = answered.fields.iter();
    let has_failed = fields.any(|(name, value)| **name == *GRPC_STATUS && **value != *b"0");
    let has_ended = answered.grpc_status == Some("0");
    if answered.status != 200 || !is_called || has_failed || !has_ended {
        return None;
    }
    let (prefix, message) = answered.body.split_at_checked(GRPC_PREFIX_BYTES)?;
    let length = u32::from_be_bytes(prefix.get(1..)?.try_into().ok()?);
    let message = message.get(..usize::try_from(length).ok()?)?;
    if prefix.first() != Some(&0) {
        return None;
    }
    let response = envoy::CheckResponse::decode(message).ok()?;
    let code = response.status?.code;
    Some(match (code, response.http_response) {
        (0, Some(envoy::HttpResponse::Ok(ok))) => CheckVerdict::Pass(changes(ok)),
        (0, _) => CheckVerdict::Pass(CheckChanges::default()),
        (_, Some(envoy::HttpResponse::Denied(denied))) => CheckVerdict::Refuse(refusal(denied)),
        (_, _) => CheckVerdict::Refuse(refusal(envoy::DeniedHttpResponse::default())),
    })
}

fn changes(ok: envoy::OkHttpResponse) -> CheckChanges {
    let mut changes = CheckChanges::default();
    for option in ok.headers {
        let appends = option.append.as_ref().is_some_and(|append| append.value);
        if let Some(told) = sendable(option.header) {
            match appends {
                true => changes.add.push(told),
                false => changes.set.push(told),
            }
        }
    }
    let removed = ok.headers_to_remove.into_iter();
    changes.remove = removed
        .map(|name| name.to_ascii_lowercase().into())
        .collect();
    let downstream = ok.response_headers_to_add.into_iter();
    changes.downstream = downstream.filter_map(|it| sendable(it.header)).collect();
    changes
}

fn refusal(denied: envoy::DeniedHttpResponse) -> RefusalResponse {
    let status = denied.status.map_or(0, |status| status.code);
    let headers = denied.headers.into_iter();
    RefusalResponse {
        status: u16::try_from(status)
            .ok()
            .filter(|status| (200..600).contains(status))
            .unwrap_or(403),
        fields: headers.filter_map(|it| sendable(it.header)).collect(),
        body: denied.body.into_bytes().into(),
    }
}

/// A header of a provider's answer, if it can be sent.
pub fn sendable(header: Option<envoy::HeaderValue>) -> Option<OwnedHeader> {
    let header = header?;
    let name = header.key.to_ascii_lowercase();
    let value: Box<[u8]> = match header.raw_value.is_empty() {
        true => header.value.into_bytes().into(),
        false => header.raw_value.to_vec().into(),
    };
    is_sendable(&name, &value).then(|| (name.into(), value))
}

/// Whether neither name nor value could end its field.
pub fn is_sendable(name: &str, value: &[u8]) -> bool {
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    myriad_model::is_token(name) && value.iter().all(is_text)
}

/// Whether a provider has a say in a field of the request: not in how it is framed and led, and
/// whether that is in a circle.
pub(super) fn may_change(name: &str) -> bool {
    let known = KnownField::of(name);
    let is_own = matches!(
        known,
        KnownField::ContentLength
            | KnownField::Host
            | KnownField::CdnLoop
            | KnownField::Expect
            | KnownField::Proxy
    );
    !is_own && !known.is_hop_by_hop()
}

/// Whether a field of an answer is passed on to a client.
pub fn may_pass_on(name: &str) -> bool {
    may_change(name) && name != "date" && !name.starts_with("grpc-")
}

#[cfg(test)]
mod tests;
