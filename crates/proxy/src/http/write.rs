//! Heads of HTTP/1, written straight into the buffer that is sent.

use super::answer::{Answer, reason};
use super::peer::Changes;
use crate::net::body::BodyLength;
use crate::net::buffer::Buffer;
use crate::net::field::{Field, Known, members};
use crate::net::head::{Head, Version};
use crate::net::request_id::RequestId;
use crate::net::response::ResponseHead;
use crate::net::websocket;
use crate::policy::header::Edits;
use crate::route::visit::Visit;

/// What the head of a request to an endpoint is made of.
pub struct RequestHead<'a, 'h> {
    /// The head that the client sent.
    pub head: &'a Head<'h>,
    /// The path to ask for instead of the client's.
    pub path: Option<&'a str>,
    /// The authority to ask for instead of the client's.
    pub authority: Option<&'a str>,
    /// What is changed about the fields.
    pub edits: Edits<'a>,
    /// The connection that it came by.
    pub visit: &'a Visit,
    /// Whether the endpoint speaks HTTP/2, which frames bodies itself and has no upgrades.
    pub is_http2: bool,
    /// How many proxies in front of this one are believed.
    pub trusted_hops: usize,
    /// What stands in for the key that a client of HTTP/2 has no need of, where it asks for
    /// WebSocket and its endpoint speaks HTTP/1.1.
    pub websocket_key: Option<&'a str>,
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

/// Writes the head of a request to an endpoint.
pub fn request(request: &RequestHead<'_, '_>, out: &mut Buffer) {
    let head = request.head;
    out.append_str(head.method);
    out.append(b" ");
    out.append_str(request.path.unwrap_or(&head.path));
    if let Some(query) = head.query {
        out.append(b"?");
        out.append_str(query);
    }
    out.append(b" HTTP/1.1\r\n");
    let authority = request.authority.unwrap_or(head.authority);
    field("host", authority.as_bytes(), out);
    let trusts = request.trusted_hops > 0;
    let joins_cookies = head.version == Version::Http2;
    for known in &head.fields {
        if is_passed(known, head, trusts) && !(joins_cookies && known.known == Known::Cookie) {
            // Names that the client declares to belong to the connection stay on it.
            let is_own = !head.connection_fields.is_empty() && head.is_connection_field(known.name);
            let is_replaced =
                request.websocket_key.is_some() && known.name.eq_ignore_ascii_case(websocket::KEY);
            let is_replaced =
                is_replaced || (known.known == Known::RequestId && request.request_id.is_some());
            if !is_own && !is_replaced && request.edits.keeps(known.name) {
                field(known.name, known.value, out);
            }
        }
    }
    if joins_cookies && request.edits.keeps("cookie") {
        cookies(head, out);
    }
    forwarded(request, trusts, out);
    if let Some(id) = request.request_id
        && request.edits.keeps("x-request-id")
    {
        field("x-request-id", id.text(&mut [0; 36]).as_bytes(), out);
    }
    request.edits.each(|name, value| field(name, value, out));
    match head.body {
        BodyLength::None if matches!(head.method, "POST" | "PUT" | "PATCH") => {
            out.append(b"content-length: 0\r\n");
        }
        BodyLength::None | BodyLength::UntilClose => {}
        BodyLength::Exact(length) => content_length(length, out),
        BodyLength::Chunked if request.is_http2 => {}
        BodyLength::Chunked => out.append(b"transfer-encoding: chunked\r\n"),
    }
    if request.is_http2 {
        if asks_for_trailers(head) {
            out.append(b"te: trailers\r\n");
        }
    } else if let Some(protocol) = head.upgrade {
        out.append(b"connection: upgrade\r\n");
        field("upgrade", protocol, out);
        if let Some(key) = request.websocket_key {
            field(websocket::KEY, key.as_bytes(), out);
        }
    }
    out.append(b"\r\n");
}

/// Writes the head of a response from an endpoint.
pub fn response(
    head: &ResponseHead<'_>,
    framing: Framing,
    changes: &Changes<'_>,
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
    response_fields(head, &Changes::default(), |name, value| {
        field(name, value, out)
    });
    if head.status == 101 {
        out.append(b"connection: upgrade\r\n");
        for known in head.fields.iter().filter(|f| f.known == Known::Upgrade) {
            field("upgrade", known.value, out);
        }
    }
    out.append(b"\r\n");
}

/// Writes the head of an answer of the proxy.
pub fn answer(answer: &Answer, framing: Framing, out: &mut Buffer) {
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
    changes: &Changes<'_>,
    mut visit: impl FnMut(&str, &[u8]),
) {
    let Changes {
        edits,
        additions,
        told,
    } = *changes;
    let replaces_cors = additions.iter().any(|(name, _)| *name != "set-cookie");
    for known in &head.fields {
        let is_passed = match known.known {
            Known::ContentLength => false,
            Known::Cors => !replaces_cors,
            kind => !kind.is_hop_by_hop(),
        };
        if is_passed && edits.keeps(known.name) && !is_of_connection(head, known.name) {
            visit(known.name, known.value);
        }
    }
    // Whoever passes on a response without a date puts in when it came (RFC 9110, section 6.6.1).
    let has_date = head.status < 200 || head.fields.iter().any(|it| it.known == Known::Date);
    if !has_date && edits.keeps("date") {
        visit("date", &super::date::now());
    }
    edits.each(&mut visit);
    for (name, value) in additions {
        visit(name, value);
    }
    for (name, value) in told {
        visit(name, value);
    }
}

/// Whether the endpoint declares a field to belong to its connection.
fn is_of_connection(head: &ResponseHead<'_>, name: &str) -> bool {
    head.fields
        .iter()
        .filter(|field| field.known == Known::Connection)
        .flat_map(|field| members(field.value))
        .any(|option| option.eq_ignore_ascii_case(name))
}

fn is_passed(field: &Field<'_>, head: &Head<'_>, trusts: bool) -> bool {
    match field.known {
        Known::Host | Known::ContentLength | Known::Proxy => false,
        // Written anew below.
        Known::ForwardedFor
        | Known::ForwardedProto
        | Known::RealIp
        | Known::ForwardedClientCert => false,
        // Where there is nothing to wait with, nobody waits.
        Known::Expect => head.expects_continue,
        // What a client says of the way it came is believed only where proxies are trusted.
        Known::ForwardedHost | Known::ForwardedPort | Known::Forwarded => trusts,
        known => !known.is_hop_by_hop(),
    }
}

/// Whether the client takes fields behind the body of the response (RFC 9110, section 10.1.4).
fn asks_for_trailers(head: &Head<'_>) -> bool {
    let mut fields = head.fields.iter().filter(|f| f.known == Known::Te);
    fields.any(|field| members(field.value).any(|option| option.eq_ignore_ascii_case("trailers")))
}

/// HTTP/2 may split cookies, and HTTP/1 must not (RFC 9113, section 8.2.3).
fn cookies(head: &Head<'_>, out: &mut Buffer) {
    let mut fields = head
        .fields
        .iter()
        .filter(|field| field.known == Known::Cookie);
    let Some(first) = fields.next() else {
        return;
    };
    out.append(b"cookie: ");
    out.append(first.value);
    for field in fields {
        out.append(b"; ");
        out.append(field.value);
    }
    out.append(b"\r\n");
}

fn forwarded(request: &RequestHead<'_, '_>, trusts: bool, out: &mut Buffer) {
    let RequestHead {
        head, visit, edits, ..
    } = request;
    if edits.keeps("x-forwarded-for") {
        out.append(b"x-forwarded-for: ");
        if trusts {
            for told in head
                .fields
                .iter()
                .filter(|f| f.known == Known::ForwardedFor)
            {
                out.append(told.value);
                out.append(b", ");
            }
        }
        out.append_str(&visit.client_text);
        out.append(b"\r\n");
    }
    if edits.keeps("x-real-ip") {
        out.append(b"x-real-ip: ");
        if trusts {
            let peer = visit.client.ip();
            let client = crate::policy::client::address(head, peer, request.trusted_hops);
            out.append_str(&client.to_string());
        } else {
            out.append_str(&visit.client_text);
        }
        out.append(b"\r\n");
    }
    let peer = visit.secured.as_ref().and_then(|it| it.peer.as_deref());
    if let Some(peer) = peer
        && edits.keeps("x-forwarded-client-cert")
    {
        field("x-forwarded-client-cert", peer.forwarded.as_bytes(), out);
    }
    let is_told = |known| trusts && head.first(known).is_some();
    if edits.keeps("x-forwarded-proto") {
        field("x-forwarded-proto", head.scheme.as_bytes(), out);
    }
    if !is_told(Known::ForwardedHost) && edits.keeps("x-forwarded-host") {
        field("x-forwarded-host", head.authority.as_bytes(), out);
    }
    if !is_told(Known::ForwardedPort) && edits.keeps("x-forwarded-port") {
        out.append(b"x-forwarded-port: ");
        out.append_decimal(u64::from(visit.port));
        out.append(b"\r\n");
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

fn field(name: &str, value: &[u8], out: &mut Buffer) {
    out.reserve(name.len() + value.len() + 4);
    out.append_str(name);
    out.append(b": ");
    out.append(value);
    out.append(b"\r\n");
}
