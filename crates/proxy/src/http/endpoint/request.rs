//! The head of a request as HTTP/2 has it, made of the one that was written for HTTP/1.
//!
//! A plan writes every request as HTTP/1 has it: one way to build heads, whatever the endpoint
//! speaks. Here the bytes are cut into fields again, without being copied once more.

use std::mem::MaybeUninit;

use ::h2::ext::Protocol;
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};

use crate::net::failure::FailureKind;
use crate::net::field::Known;
use crate::net::head::FIELDS_MAX;
use crate::net::websocket;

/// What the proxy and the edits of a route may add to the fields of a client.
const FIELDS_OWN_MAX: usize = 128;

/// Makes the head of a request from bytes that begin with one, and tells how many are it.
///
/// # Errors
/// [`FailureKind::BadRequest`] where HTTP/2 has no way to say what the client did.
pub fn of_http1(bytes: &[u8], is_tls: bool) -> Result<(Request<()>, usize), FailureKind> {
    const BAD: FailureKind = FailureKind::BadRequest;
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").ok_or(BAD)? + 4;
    let bytes = Bytes::copy_from_slice(bytes.get(..end).unwrap_or(bytes));
    let mut slots =
        [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; FIELDS_MAX + FIELDS_OWN_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    parsed
        .parse_with_uninit_headers(&bytes, &mut slots)
        .map_err(|_| BAD)?;
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
    let path = bytes.slice_ref(parsed.path.unwrap_or("/").as_bytes());
    let mut authority = None;
    let mut request = Request::new(());
    let headers = request.headers_mut();
    headers.try_reserve(parsed.headers.len()).map_err(|_| BAD)?;
    for field in parsed.headers.iter() {
        match Known::of(field.name) {
            Known::Host => {
                authority = Some(bytes.slice_ref(field.value));
                continue;
            }
            // It is the one field of this kind that HTTP/2 has, and gRPC asks for it.
            Known::Te => {}
            known if known.is_hop_by_hop() => continue,
            _ => {}
        }
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| BAD)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        headers
            .try_append(name, value.map_err(|_| BAD)?)
            .map_err(|_| BAD)?;
    }
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    uri.authority = match authority.filter(|authority| !authority.is_empty()) {
        Some(authority) => Some(Authority::from_maybe_shared(authority).map_err(|_| BAD)?),
        // Whoever names no host gets one that leads nowhere, since there has to be one.
        None => Some(Authority::from_static("localhost")),
    };
    uri.path_and_query = Some(PathAndQuery::from_maybe_shared(path).map_err(|_| BAD)?);
    *request.method_mut() = method.map_err(|_| BAD)?;
    *request.uri_mut() = Uri::from_parts(uri).map_err(|_| BAD)?;
    *request.version_mut() = Version::HTTP_2;
    Ok((request, end))
}

/// Makes a request for WebSocket what it is over HTTP/2 (RFC 8441, section 5), and tells what one
/// that came by HTTP/1.1 is answered with.
pub fn extend(request: &mut Request<()>) -> Option<HeaderValue> {
    *request.method_mut() = Method::CONNECT;
    let protocol = Protocol::from_static(websocket::PROTOCOL);
    request.extensions_mut().insert(protocol);
    let key = request.headers_mut().remove(websocket::KEY)?;
    HeaderValue::try_from(websocket::accept(key.as_bytes())).ok()
}

#[cfg(test)]
mod tests {
    use super::of_http1;

    #[test]
    fn fields_become_those_of_http2() {
        let head = b"GET /a?b=c HTTP/1.1\r\nhost: h.example:81\r\nX-A: 1\r\nx-a: 2\r\n\
            te: trailers\r\nconnection: upgrade\r\nupgrade: x\r\ntransfer-encoding: chunked\r\n\
            \r\n";
        let bytes = [&head[..], b"body\r\n\r\n"].concat();
        let (request, length) = of_http1(&bytes, true).unwrap();
        assert_eq!(length, head.len());
        assert_eq!(request.uri(), "https://h.example:81/a?b=c");
        let fields: Vec<(&str, &[u8])> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let expected: [(&str, &[u8]); 3] = [("x-a", b"1"), ("x-a", b"2"), ("te", b"trailers")];
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_request_without_host_still_has_an_authority() {
        let (request, _) = of_http1(b"OPTIONS * HTTP/1.1\r\nhost: \r\n\r\n", false).unwrap();
        assert_eq!(request.uri().authority().unwrap(), "localhost");
    }
}
