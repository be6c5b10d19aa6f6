//! The head of a request as its endpoint gets it, in the form of the version that this speaks.

use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri, Version};

use super::buffer::{Buffer, HEAD_BYTES, decimal};
use super::field::KnownField;
use crate::failure::FailureKind;

/// The bytes of memory of a field's place beside its text, about: its bucket, its place in the
/// index, and what its name and its value have of their own.
const FIELD_BYTES: usize = 192;

/// The head of a request to an endpoint.
pub enum EndpointHead {
    /// The text of HTTP/1. What the proxy sends of its own may have its body behind it.
    Http1(Buffer),
    /// Fields, which HTTP/2 packs.
    Http2(Box<Request<()>>),
}

impl EndpointHead {
    /// No head, in the place of one that was taken.
    pub const fn none() -> Self {
        EndpointHead::Http1(Buffer::none())
    }

    /// Head and body of a request that was written as the text of HTTP/1, in the form of a version;
    /// none where that cannot say it.
    pub fn written(text: Buffer, is_http2: bool, is_tls: bool) -> Option<(Self, Buffer)> {
        if !is_http2 || text.is_empty() {
            return Some((EndpointHead::Http1(text), Buffer::none()));
        }
        let (request, length) = of_text(text.filled(), is_tls).ok()?;
        let mut body = text;
        body.consume(length);
        Some((EndpointHead::Http2(request), body))
    }

    /// How many bytes of memory it takes, about.
    pub fn memory(&self) -> usize {
        match self {
            EndpointHead::Http1(text) => text.capacity(),
            EndpointHead::Http2(request) => memory_of(request),
        }
    }

    /// Whether it has a field of a lower-case name.
    pub fn has(&self, name: &str) -> bool {
        match self {
            EndpointHead::Http1(text) => {
                let mut lines = text.filled().split(|byte| *byte == b'\n').skip(1);
                lines.any(|line| name_of(line).eq_ignore_ascii_case(name.as_bytes()))
            }
            EndpointHead::Http2(request) => request.headers().contains_key(name),
        }
    }

    /// The value of its first field of a lower-case name.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        match self {
            EndpointHead::Http1(text) => {
                let mut lines = text.filled().split(|byte| *byte == b'\n').skip(1);
                let is_it = |line: &&[u8]| name_of(line).eq_ignore_ascii_case(name.as_bytes());
                let line = lines.find(is_it)?;
                let value = line.get(name.len() + 1..)?;
                Some(value.trim_ascii())
            }
            EndpointHead::Http2(request) => Some(request.headers().get(name)?.as_bytes()),
        }
    }

    /// Makes it the head of a body of another length, which is known.
    pub fn set_length(&mut self, length: usize) {
        let mut place = [0; 20];
        let length = decimal(length as u64, &mut place);
        match self {
            EndpointHead::Http1(text) => {
                let mut out = Buffer::for_head();
                for line in text.filled().split_inclusive(|byte| *byte == b'\n') {
                    let known = std::str::from_utf8(name_of(line))
                        .map_or(KnownField::Other, KnownField::of);
                    if line == b"\r\n" {
                        break;
                    }
                    if !matches!(
                        known,
                        KnownField::ContentLength | KnownField::TransferEncoding
                    ) {
                        out.append(line);
                    }
                }
                out.append(b"content-length: ");
                out.append(length);
                out.append(b"\r\n\r\n");
                *text = out;
            }
            EndpointHead::Http2(request) => change(
                request,
                |name| name == "content-length",
                |add| add("content-length", length),
            ),
        }
    }
}

/// How many bytes the head of a request has, as HTTP/1 would write it.
pub fn length_of(request: &Request<()>) -> usize {
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + 4);
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |it| it.as_str().len());
    let path = uri.path_and_query().map_or(0, |it| it.as_str().len());
    // What the first line and `host` have beside these.
    fields.sum::<usize>() + authority + path + 24
}

/// How many bytes of memory the head of a request for HTTP/2 takes, about.
pub fn memory_of(request: &Request<()>) -> usize {
    length_of(request) + FIELD_BYTES * request.headers().capacity()
}

/// How many bytes of memory fields take, about.
pub fn fields_memory(fields: &HeaderMap) -> usize {
    let texts = fields.iter();
    let texts = texts.map(|(name, value)| name.as_str().len() + value.len());
    texts.sum::<usize>() + FIELD_BYTES * fields.capacity()
}

/// The name of the field in a line.
fn name_of(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b':').next().unwrap_or_default()
}

/// A request for HTTP/2 in the making.
pub struct RequestBuilder {
    request: Request<()>,
    path: Option<PathAndQuery>,
    authority: Bytes,
    /// Where values lie, all of them in the same memory.
    text: BytesMut,
    /// Whether something of it cannot be said in HTTP/2.
    is_bad: bool,
}

impl RequestBuilder {
    /// A request of a method for a path.
    pub fn new(method: &str, path: &str, query: Option<&str>) -> Self {
        let mut text = BytesMut::with_capacity(HEAD_BYTES);
        text.extend_from_slice(path.as_bytes());
        if let Some(query) = query {
            text.extend_from_slice(b"?");
            text.extend_from_slice(query.as_bytes());
        }
        let path = PathAndQuery::from_maybe_shared(text.split().freeze());
        let method = Method::from_bytes(method.as_bytes());
        let mut builder = RequestBuilder {
            is_bad: path.is_err() || method.is_err(),
            path: path.ok(),
            request: Request::new(()),
            authority: Bytes::new(),
            text,
        };
        *builder.request.method_mut() = method.unwrap_or_default();
        builder
    }

    /// Adds a field, whose value is given in parts. What only HTTP/1 has is left out, and `host` is
    /// the authority.
    pub fn field(&mut self, name: &str, parts: &[&[u8]]) {
        let known = KnownField::of(name);
        // `te` is the one field of a connection that HTTP/2 has, and gRPC asks for it.
        if known.is_hop_by_hop() && !matches!(known, KnownField::Te | KnownField::Host) {
            return;
        }
        for part in parts {
            self.text.extend_from_slice(part);
        }
        let value = self.text.split().freeze();
        let value = value.slice_ref(value.trim_ascii());
        if known == KnownField::Host {
            self.authority = value;
            return;
        }
        self.is_bad |= append(self.request.headers_mut(), name, value).is_none();
    }

    /// The request.
    ///
    /// # Errors
    /// [`FailureKind::BadRequest`] where HTTP/2 has no way to say what the client did.
    pub fn build(mut self, is_tls: bool) -> Result<Box<Request<()>>, FailureKind> {
        const BAD: FailureKind = FailureKind::BadRequest;
        if self.is_bad {
            return Err(BAD);
        }
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = match self.authority.is_empty() {
            false => Some(Authority::from_maybe_shared(self.authority).map_err(|_| BAD)?),
            // Whoever names no host gets one that leads nowhere, since there has to be one.
            true => Some(Authority::from_static("localhost")),
        };
        uri.path_and_query = self.path;
        *self.request.uri_mut() = Uri::from_parts(uri).map_err(|_| BAD)?;
        *self.request.version_mut() = Version::HTTP_2;
        Ok(Box::new(self.request))
    }
}

/// Takes fields out of a request, and puts others behind what is left.
pub fn change(
    request: &mut Request<()>,
    goes: impl Fn(&str) -> bool,
    add: impl FnOnce(&mut dyn FnMut(&str, &[u8])),
) {
    let headers = request.headers_mut();
    let mut last = None;
    for (name, value) in std::mem::take(headers) {
        // The further values of a name come without it.
        last = name.or(last);
        if let Some(name) = last.as_ref().filter(|name| !goes(name.as_str())) {
            headers.append(name, value);
        }
    }
    add(&mut |name, value| {
        let _ = append(headers, name, Bytes::copy_from_slice(value));
    });
}

/// Appends a field, unless HTTP/2 has no such one.
fn append(headers: &mut HeaderMap, name: &str, value: Bytes) -> Option<()> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let value = HeaderValue::from_maybe_shared(value).ok()?;
    headers.try_append(name, value).ok().map(|_| ())
}

/// Makes a request of the text of HTTP/1 that begins with one, and tells how many bytes are it. For
/// requests that somebody has written so; those of clients are built as they are sent.
///
/// # Errors
/// That it is none, or that HTTP/2 has no way to say it.
pub fn of_text(text: &[u8], is_tls: bool) -> Result<(Box<Request<()>>, usize), FailureKind> {
    const BAD: FailureKind = FailureKind::BadRequest;
    let end = memchr::memmem::find(text, b"\r\n\r\n").ok_or(BAD)?;
    let head = text.get(..end).unwrap_or_default();
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = std::str::from_utf8(lines.next().unwrap_or_default()).map_err(|_| BAD)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next(), words.next());
    let (method, target) = (method.ok_or(BAD)?, target.ok_or(BAD)?);
    let mut builder = RequestBuilder::new(method, target, None);
    for line in lines {
        let at = memchr::memchr(b':', line).ok_or(BAD)?;
        let (name, value) = line.split_at_checked(at).ok_or(BAD)?;
        let name = std::str::from_utf8(name).map_err(|_| BAD)?;
        builder.field(name, &[value.get(1..).unwrap_or_default()]);
    }
    Ok((builder.build(is_tls)?, end + 4))
}

#[cfg(test)]
mod tests {
    use super::{EndpointHead, RequestBuilder, change, of_text};
    use crate::failure::FailureKind;

    fn fields(request: &http::Request<()>) -> Vec<(&str, &[u8])> {
        let headers = request.headers().iter();
        headers
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect()
    }

    #[test]
    fn fields_become_those_of_http2() {
        let head = b"GET /a?b=c HTTP/1.1\r\nhost: h.example:81\r\nX-A: 1\r\nx-a: 2\r\n\
            te: trailers\r\nconnection: upgrade\r\nupgrade: x\r\ntransfer-encoding: chunked\r\n\
            \r\n";
        let bytes = [&head[..], b"body\r\n\r\n"].concat();
        let (request, length) = of_text(&bytes, true).unwrap();
        assert_eq!(length, head.len());
        assert_eq!(request.uri(), "https://h.example:81/a?b=c");
        let expected: [(&str, &[u8]); 3] = [("x-a", b"1"), ("x-a", b"2"), ("te", b"trailers")];
        assert_eq!(fields(&request), expected);
    }

    #[test]
    fn many_short_fields_count_for_what_they_take() {
        let mut text = "GET / HTTP/1.1\r\nhost: h\r\n".to_owned();
        for number in 0..122 {
            text += &format!("a{number:02}: 1\r\n");
        }
        text += "\r\n";
        let (request, length) = of_text(text.as_bytes(), false).unwrap();
        let memory = EndpointHead::Http2(request).memory();
        assert!(memory > 122 * 192 + length / 2, "{memory}");
    }

    #[test]
    fn a_request_without_host_still_has_an_authority() {
        let (request, _) = of_text(b"OPTIONS * HTTP/1.1\r\nhost: \r\n\r\n", false).unwrap();
        assert_eq!(request.uri().authority().unwrap(), "localhost");
    }

    #[test]
    fn values_are_put_together_and_what_cannot_be_said_is_refused() {
        let mut builder = RequestBuilder::new("GET", "/a", Some("b"));
        builder.field("Host", &[b"h"]);
        builder.field("X-Forwarded-For", &[b"192.0.2.1", b", ", b"192.0.2.2 "]);
        builder.field("keep-alive", &[b"1"]);
        let mut request = builder.build(false).unwrap();
        assert_eq!(request.uri(), "http://h/a?b");
        let expected: [(&str, &[u8]); 1] = [("x-forwarded-for", b"192.0.2.1, 192.0.2.2")];
        assert_eq!(fields(&request), expected);
        change(
            &mut request,
            |name| name == "x-forwarded-for",
            |add| {
                add("x-b", b"1");
                add("x-b", b"2");
            },
        );
        change(
            &mut request,
            |name| name == "x-none",
            |add| add("x-c", b"3"),
        );
        let expected: [(&str, &[u8]); 3] = [("x-b", b"1"), ("x-b", b"2"), ("x-c", b"3")];
        assert_eq!(fields(&request), expected);
        for (name, value) in [("x a", &b"1"[..]), ("x-a", b"1\r\nb: 2"), ("host", b"a b")] {
            let mut builder = RequestBuilder::new("GET", "/", None);
            builder.field(name, &[value]);
            let built = builder.build(false);
            assert_eq!(built.unwrap_err(), FailureKind::BadRequest, "{name}");
        }
    }
}
