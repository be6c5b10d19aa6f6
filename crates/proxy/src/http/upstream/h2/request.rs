//! The form of a WebSocket request over HTTP/2.

use ::h2::ext::Protocol;
use http::header::HeaderValue;
use http::{Method, Request};

use crate::codec::websocket;

/// Makes a request for WebSocket what it is over HTTP/2 (RFC 8441, section 5), and tells what one
/// that came by HTTP/1.1 is answered with.
pub(super) fn extend(request: &mut Request<()>) -> Option<HeaderValue> {
    *request.method_mut() = Method::CONNECT;
    let protocol = Protocol::from_static(websocket::PROTOCOL);
    request.extensions_mut().insert(protocol);
    let key = request.headers_mut().remove(websocket::KEY)?;
    HeaderValue::try_from(websocket::accept(key.as_bytes())).ok()
}
