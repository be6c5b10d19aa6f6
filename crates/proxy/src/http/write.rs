//! Heads as they are sent: those of HTTP/1 written straight into the buffer, those of requests to
//! endpoints of HTTP/2 built of the same fields.

use myriad_model::CertificateDemand;
use smallvec::SmallVec;

use super::answer::{LocalReply, reason};
use super::peer::ResponseChanges;
use crate::codec::body::BodyLength;
use crate::codec::buffer::{Buffer, decimal};
use crate::codec::endpoint_head::{EndpointHead, RequestBuilder};
use crate::codec::field::{BETWEEN_COOKIES, Field, KnownField, members};
use crate::codec::head::{Head, Version};
use crate::codec::response::ResponseHead;
use crate::codec::websocket;
use crate::failure::FailureKind;
use crate::policy::header::Edits;
use crate::policy::{client, client_certificate, hops};
use crate::route::downstream_connection::DownstreamConnection;
use crate::telemetry::request_id::RequestId;

/// The field by which a host asks browsers to come by HTTPS alone (RFC 6797).
pub const HSTS: &str = "strict-transport-security";

/// The parts of the head of a request to an endpoint.
pub struct RequestHead<'a, 'h> {
    /// The head that the client sent.
    pub head: &'a Head<'h>,
    /// The path to ask for instead of the client's.
    pub path: Option<&'a str>,
    /// The authority to ask for instead of the client's.
    pub authority: Option<&'a str>,
    /// The changes to the fields.
    pub edits: Edits<'a>,
    /// The connection that it came by.
    pub visit: &'a DownstreamConnection,
    /// The certificate that its client was asked for, of which the endpoint is told.
    pub demand: Option<&'a CertificateDemand>,
    /// Whether the endpoint speaks HTTP/2, which frames bodies itself and has no upgrades.
    pub is_http2: bool,
    /// How many proxies in front of this one are believed.
    pub trusted_hops: usize,
    /// A stand-in for the key that a client of HTTP/2 has no need of, where it asks for WebSocket
    /// and its endpoint speaks HTTP/1.1.
    pub websocket_key: Option<&'a str>,
    /// Whether endpoints are told that it passed a gateway.
    pub is_hop: bool,
    /// The id that it goes on with; none for what the client sent.
    pub request_id: Option<&'a RequestId>,
}

/// How a response is sent to a client of HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// The client's version.
    pub version: Version,
    /// How the body is framed.
    pub length: BodyLength,
    /// Whether the connection goes on.
    pub keep_alive: bool,
}

/// The head of a request to an endpoint, in the form of its version. `is_tls` is whether it is
/// reached over TLS.
///
/// # Errors
/// That HTTP/2 has no way to say what the client did.
pub fn request(request: &RequestHead<'_, '_>, is_tls: bool) -> Result<EndpointHead, FailureKind> {
    let head = request.head;
    let path = request.path.unwrap_or(&head.path);
    if request.is_http2 {
        let mut builder = RequestBuilder::new(head.method, path, head.query);
        request_fields(request, &mut builder);
        return builder.build(is_tls).map(EndpointHead::Http2);
    }
    let mut out = Buffer::for_head();
    out.append_str(head.method);
    out.append(b" ");
    out.append_str(path);
    if let Some(query) = head.query {
        out.append(b"?");
        out.append_str(query);
    }
    out.append(b" HTTP/1.1\r\n");
    request_fields(request, &mut out);
    out.append(b"\r\n");
    Ok(EndpointHead::Http1(out))
}

/// A receiver of a request's fields, each with its value in parts.
trait Fields {
    fn field(&mut self, name: &str, parts: &[&[u8]]);
}

impl Fields for Buffer {
    #[inline]
    fn field(&mut self, name: &str, parts: &[&[u8]]) {
        self.append_str(name);
        self.append(b": ");
        for part in parts {
            self.append(part);
        }
        self.append(b"\r\n");
    }
}

impl Fields for RequestBuilder {
    fn field(&mut self, name: &str, parts: &[&[u8]]) {
        RequestBuilder::field(self, name, parts);
    }
}

/// Gives the fields of a request in their order.
fn request_fields(request: &RequestHead<'_, '_>, out: &mut impl Fields) {
    let head = request.head;
    let authority = request.authority.unwrap_or(head.authority);
    out.field("host", &[authority.as_bytes()]);
    let trusts = request.trusted_hops > 0;
    let may_tell = client::may_tell(request.visit, request.trusted_hops);
    let joins_cookies = head.version == Version::Http2 || has_several_cookies(head);
    let is_joined = |known| match known {
        KnownField::Cookie => joins_cookies,
        KnownField::CdnLoop => request.is_hop,
        _ => false,
    };
    for known in &head.fields {
        let is_passed = is_passed(known, head, trusts, may_tell);
        if is_passed && !is_joined(known.known) {
            let is_replaced =
                request.websocket_key.is_some() && known.name.eq_ignore_ascii_case(websocket::KEY);
            let is_replaced = is_replaced
                || (known.known == KnownField::RequestId && request.request_id.is_some());
            // What is told of certificates is the proxy's alone.
            let is_forged = request.demand.is_some() && client_certificate::is_told_by(known.name);
            let is_replaced = is_replaced || is_forged;
            if !is_replaced && request.edits.keeps(known.name) {
                out.field(known.name, &[known.value]);
            }
        }
    }
    if joins_cookies && request.edits.keeps("cookie") {
        cookies(head, out);
    }
    forwarded(request, trusts, out);
    if let Some(demand) = request.demand {
        client_certificate::tell(demand, request.visit, |name, parts| out.field(name, parts));
    }
    if request.is_hop {
        out.field(hops::FIELD, &hops::told(head));
    }
    if let Some(id) = request.request_id
        && request.edits.keeps("x-request-id")
    {
        out.field("x-request-id", &[id.text(&mut [0; 36]).as_bytes()]);
    }
    request.edits.each(|name, value| out.field(name, &[value]));
    let length = match head.body {
        BodyLength::None if matches!(head.method, "POST" | "PUT" | "PATCH") => Some(0),
        BodyLength::Exact(length) => Some(length),
        BodyLength::None | BodyLength::UntilClose | BodyLength::Chunked => None,
    };
    if let Some(length) = length {
        out.field("content-length", &[decimal(length, &mut [0; 20])]);
    } else if head.body == BodyLength::Chunked && !request.is_http2 {
        out.field("transfer-encoding", &[b"chunked"]);
    }
    if request.is_http2 {
        if asks_for_trailers(head) {
            out.field("te", &[b"trailers"]);
        }
    } else if let Some(protocol) = head.upgrade {
        out.field("connection", &[b"upgrade"]);
        out.field("upgrade", &[protocol]);
        if let Some(key) = request.websocket_key {
            out.field(websocket::KEY, &[key.as_bytes()]);
        }
    }
}

/// Writes the head of a response from an endpoint.
pub fn response(
    head: &ResponseHead<'_>,
    framing: Framing,
    changes: &ResponseChanges<'_>,
    out: &mut Buffer,
) {
    status_line(head.status, head.reason, out);
    response_fields(head, changes, |name, value| field(name, value, out));
    match framing.length {
        BodyLength::Exact(length) => content_length(length, out),
        BodyLength::Chunked => out.append(b"transfer-encoding: chunked\r\n"),
        // The answer to HEAD tells the length that the answer to GET would have.
        BodyLength::None if head.status >= 200 && head.status != 204 => {
            if let Some(length) = head.declared_length() {
                content_length(length, out);
            }
        }
        BodyLength::None | BodyLength::UntilClose => {}
    }
    connection(framing, out);
    out.append(b"\r\n");
}

/// Writes an interim response, or one that changes the protocol.
pub fn interim(head: &ResponseHead<'_>, out: &mut Buffer) {
    status_line(head.status, head.reason, out);
    response_fields(head, &ResponseChanges::default(), |name, value| {
        field(name, value, out)
    });
    if head.status == 101 {
        out.append(b"connection: upgrade\r\n");
        for known in head
            .fields
            .iter()
            .filter(|f| f.known == KnownField::Upgrade)
        {
            field("upgrade", known.value, out);
        }
    }
    out.append(b"\r\n");
}

/// Writes the head of an answer of the proxy.
pub fn answer(answer: &LocalReply, framing: Framing, out: &mut Buffer) {
    status_line(answer.status, reason(answer.status), out);
    answer.fields(|name, value| field(name, value, out));
    if answer.has_body() {
        content_length(answer.body().len() as u64, out);
    }
    connection(framing, out);
    out.append(b"\r\n");
}

/// The fields of a response that are passed on, and those that are put in.
pub fn response_fields(
    head: &ResponseHead<'_>,
    changes: &ResponseChanges<'_>,
    mut visit: impl FnMut(&str, &[u8]),
) {
    let ResponseChanges {
        edits,
        additions,
        told,
    } = *changes;
    let is_cors = |name: &str| !matches!(name, "set-cookie" | HSTS);
    let replaces_cors = additions.iter().any(|(name, _)| is_cors(name));
    for known in &head.fields {
        let is_passed = match known.known {
            KnownField::ContentLength => false,
            KnownField::Cors => !replaces_cors,
            kind => !kind.is_hop_by_hop(),
        };
        if is_passed && edits.keeps(known.name) && !head.is_of_connection(known.name) {
            visit(known.name, known.value);
        }
    }
    // Whoever passes on a response without a date puts in when it came (RFC 9110, section 6.6.1).
    let has_date = head.status < 200 || head.fields.iter().any(|it| it.known == KnownField::Date);
    if !has_date && edits.keeps("date") {
        visit("date", &super::date::now());
    }
    edits.each(&mut visit);
    // What the endpoint asks of browsers stays, also where that is to come by HTTPS no longer.
    let is_hsts = |it: &Field<'_>| it.name.eq_ignore_ascii_case(HSTS);
    for (name, value) in additions {
        if *name != HSTS || !head.fields.iter().any(is_hsts) {
            visit(name, value);
        }
    }
    for (name, value) in told {
        visit(name, value);
    }
}

fn is_passed(field: &Field<'_>, head: &Head<'_>, trusts: bool, may_tell: bool) -> bool {
    match field.known {
        KnownField::Host | KnownField::ContentLength | KnownField::Proxy => false,
        // Written anew below.
        KnownField::ForwardedFor
        | KnownField::ForwardedProto
        | KnownField::RealIp
        | KnownField::ForwardedClientCert => false,
        // Where there is nothing to wait with, nobody waits.
        KnownField::Expect => head.expects_continue,
        // What a client says of the way it came is believed only where proxies are trusted.
        KnownField::ForwardedHost | KnownField::ForwardedPort | KnownField::Forwarded => trusts,
        KnownField::OtherForwarded => may_tell,
        known => !known.is_hop_by_hop(),
    }
}

/// Whether the client takes fields behind the body of the response (RFC 9110, section 10.1.4).
fn asks_for_trailers(head: &Head<'_>) -> bool {
    let mut fields = head.fields.iter().filter(|f| f.known == KnownField::Te);
    fields.any(|field| members(field.value).any(|option| option.eq_ignore_ascii_case("trailers")))
}

/// Parts of a value, of which there mostly are few.
type Parts<'a> = SmallVec<[&'a [u8]; 8]>;

/// Whether cookies come in several fields: of these servers may read the first alone, where routes
/// and authorizers have seen all of them.
fn has_several_cookies(head: &Head<'_>) -> bool {
    let fields = head.fields.iter();
    let mut cookies = fields.filter(|field| field.known == KnownField::Cookie);
    cookies.nth(1).is_some()
}

/// HTTP/2 may split cookies, and HTTP/1 must not (RFC 9113, section 8.2.3).
fn cookies(head: &Head<'_>, out: &mut impl Fields) {
    let mut parts = Parts::new();
    let fields = head.fields.iter();
    for field in fields.filter(|field| field.known == KnownField::Cookie) {
        if !parts.is_empty() {
            parts.push(BETWEEN_COOKIES);
        }
        parts.push(field.value);
    }
    if !parts.is_empty() {
        out.field("cookie", &parts);
    }
}

fn forwarded(request: &RequestHead<'_, '_>, trusts: bool, out: &mut impl Fields) {
    let RequestHead {
        head, visit, edits, ..
    } = request;
    if edits.keeps("x-forwarded-for") {
        let mut parts = Parts::new();
        if trusts {
            let fields = head.fields.iter();
            for told in fields.filter(|f| f.known == KnownField::ForwardedFor) {
                parts.extend([told.value, b", "]);
            }
        }
        parts.push(visit.client_text.as_bytes());
        out.field("x-forwarded-for", &parts);
    }
    if edits.keeps("x-real-ip") {
        if trusts {
            let peer = visit.client.ip();
            let client = client::address(head, peer, request.trusted_hops);
            out.field("x-real-ip", &[client.to_string().as_bytes()]);
        } else {
            out.field("x-real-ip", &[visit.client_text.as_bytes()]);
        }
    }
    let peer = visit.secured.as_ref().and_then(|it| it.peer.as_deref());
    if let Some(peer) = peer
        && edits.keeps("x-forwarded-client-cert")
    {
        out.field("x-forwarded-client-cert", &[peer.forwarded.as_bytes()]);
    }
    let is_told = |known| trusts && head.first(known).is_some();
    if edits.keeps("x-forwarded-proto") {
        out.field("x-forwarded-proto", &[head.scheme.as_bytes()]);
    }
    if !is_told(KnownField::ForwardedHost) && edits.keeps("x-forwarded-host") {
        out.field("x-forwarded-host", &[head.authority.as_bytes()]);
    }
    if !is_told(KnownField::ForwardedPort) && edits.keeps("x-forwarded-port") {
        let port = u64::from(visit.port);
        out.field("x-forwarded-port", &[decimal(port, &mut [0; 20])]);
    }
}

fn status_line(status: u16, reason: &str, out: &mut Buffer) {
    out.append(b"HTTP/1.1 ");
    out.append_decimal(u64::from(status));
    out.append(b" ");
    out.append_str(reason);
    out.append(b"\r\n");
}

fn connection(framing: Framing, out: &mut Buffer) {
    if !framing.keep_alive {
        out.append(b"connection: close\r\n");
    } else if framing.version == Version::Http10 {
        out.append(b"connection: keep-alive\r\n");
    }
}

fn content_length(length: u64, out: &mut Buffer) {
    out.append(b"content-length: ");
    out.append_decimal(length);
    out.append(b"\r\n");
}

#[inline]
fn field(name: &str, value: &[u8], out: &mut Buffer) {
    out.append_str(name);
    out.append(b": ");
    out.append(value);
    out.append(b"\r\n");
}
