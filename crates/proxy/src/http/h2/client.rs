//! The client's end of a stream of HTTP/2.

use std::task::{Context, Poll, ready};

use ::h2::server::SendResponse;
use ::h2::{Reason, RecvStream, SendStream};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

use crate::http::answer::Answer;
use crate::http::peer::{Changes, Peer};
use crate::http::write::response_fields;
use crate::net::body::{BodyLength, Encoder};
use crate::net::buffer::{BUFFER_BYTES, Buffer};
use crate::net::carrier::Carrier;
use crate::net::failure::FailureKind;
use crate::net::response::ResponseHead;
use crate::net::trailer::{self, GRPC_STATUS, Trailers};
use crate::net::websocket;

/// The most bytes of a response that wait for the client's window.
pub const WAITING_BYTES_MAX: usize = 64 << 10;

/// The client's end of a stream.
pub struct Client {
    respond: SendResponse<Bytes>,
    body: RecvStream,
    body_bytes_max: u64,
    send: Option<SendStream<Bytes>>,
    waiting: Option<Buffer>,
    is_ended: bool,
    /// What came behind the body of the request.
    received: Option<Trailers>,
    /// What goes behind the body of the response.
    trailers: Option<Trailers>,
    /// The end of the response was sent.
    is_closed: bool,
    bytes_received: u64,
    bytes_sent: u64,
    /// What gRPC says of the response; empty for nothing.
    grpc_status: &'static str,
}

impl Client {
    /// The end of a stream whose head was read.
    pub fn new(respond: SendResponse<Bytes>, body: RecvStream, body_bytes_max: u64) -> Self {
        Client {
            respond,
            body,
            body_bytes_max,
            send: None,
            waiting: None,
            is_ended: false,
            received: None,
            trailers: None,
            is_closed: false,
            bytes_received: 0,
            bytes_sent: 0,
            grpc_status: "",
        }
    }

    /// The status that gRPC has behind the response, or in place of it; empty without one.
    pub fn grpc_status(&self) -> &'static str {
        self.grpc_status
    }

    /// Bytes of the request body handed on.
    pub fn bytes_received(&self) -> u64 {
        self.bytes_received
    }

    /// Bytes of the response body handed on.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Gives an answer of the proxy.
    ///
    /// # Errors
    /// A client that went away.
    pub fn answer(&mut self, answer: &Answer, is_head: bool) -> Result<(), FailureKind> {
        let mut response = Response::new(());
        *response.status_mut() = status(answer.status)?;
        answer.fields(|name, value| put(response.headers_mut(), name, value));
        let has_body = !matches!(answer.status, 100..200 | 204 | 304);
        if has_body {
            let length = HeaderValue::from(answer.body().len());
            response.headers_mut().insert(CONTENT_LENGTH, length);
        }
        let is_empty = !has_body || is_head || answer.body().is_empty();
        self.send_head(response, is_empty)?;
        if !is_empty {
            self.data(answer.body());
        }
        self.end(None);
        Ok(())
    }

    /// Ends the stream at once.
    pub fn reset(&mut self, reason: Reason) {
        match &mut self.send {
            Some(send) => send.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }

    /// The stream as it carries another protocol, once its head was answered.
    pub fn into_carrier(self) -> Option<Carrier> {
        Some(Carrier::new(self.body, self.send?))
    }

    /// Sends what waits.
    pub fn poll_flush_all(&mut self, context: &mut Context<'_>) -> Poll<Result<(), FailureKind>> {
        self.poll_flush(context)
    }

    fn send_head(&mut self, response: Response<()>, is_end: bool) -> Result<(), FailureKind> {
        let send = self.respond.send_response(response, is_end);
        self.send = Some(send.map_err(|_| FailureKind::ClientGone)?);
        self.is_closed = is_end;
        Ok(())
    }

    /// Whether the client has reset the stream.
    fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let reset = match &mut self.send {
            Some(send) => send.poll_reset(context),
            None => self.respond.poll_reset(context),
        };
        reset.map(|_| ())
    }
}

impl Peer for Client {
    fn limit_body(&mut self, bytes_max: u64) {
        self.body_bytes_max = bytes_max;
    }

    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        encoder: Encoder,
        out: &mut Buffer,
    ) -> Poll<Result<bool, FailureKind>> {
        match ready!(self.body.poll_data(context)) {
            Some(Ok(data)) => {
                self.bytes_received += data.len() as u64;
                if self.bytes_received > self.body_bytes_max {
                    return Poll::Ready(Err(FailureKind::BodyTooLarge));
                }
                encoder.write(&data, out);
                // What is in the buffer is bounded by who calls this, so the window opens now.
                let flow = self.body.flow_control();
                let _ = flow.release_capacity(data.len());
                Poll::Ready(Ok(false))
            }
            Some(Err(_)) => Poll::Ready(Err(FailureKind::ClientGone)),
            None => {
                let received = ready!(self.body.poll_trailers(context));
                let Ok(received) = received else {
                    return Poll::Ready(Err(FailureKind::ClientGone));
                };
                let received = received.map(Box::new).and_then(trailer::filter);
                if encoder == Encoder::Chunked {
                    encoder.end_with(received.as_ref(), out);
                } else {
                    self.received = received;
                }
                Poll::Ready(Ok(true))
            }
        }
    }

    fn take_trailers(&mut self) -> Option<Trailers> {
        self.received.take()
    }

    fn interim(&mut self, head: &ResponseHead<'_>) -> Result<(), FailureKind> {
        let mut response = Response::new(());
        *response.status_mut() = status(head.status)?;
        response_fields(head, &Changes::default(), |name, value| {
            put(response.headers_mut(), name, value);
        });
        let sent = self.respond.send_informational(response);
        sent.map_err(|_| FailureKind::ClientGone)
    }

    fn start(
        &mut self,
        head: &ResponseHead<'_>,
        length: BodyLength,
        changes: &Changes<'_>,
    ) -> Result<(), FailureKind> {
        if head.status == 101 {
            let mut response = Response::new(());
            response_fields(head, &Changes::default(), |name, value| {
                // It answers a key that only HTTP/1.1 has.
                if !name.eq_ignore_ascii_case(websocket::ACCEPT) {
                    put(response.headers_mut(), name, value);
                }
            });
            return self.send_head(response, false);
        }
        if matches!(length, BodyLength::None | BodyLength::Exact(0)) {
            let mut fields = head.fields.iter();
            let status = fields.find(|field| field.name.eq_ignore_ascii_case(GRPC_STATUS));
            self.grpc_status = status.map_or("", |field| trailer::grpc_status(field.value));
        }
        let mut response = Response::new(());
        *response.status_mut() = status(head.status)?;
        let headers = response.headers_mut();
        headers.reserve(head.fields.len() + changes.additions.len());
        response_fields(head, changes, |name, value| put(headers, name, value));
        let declared = match length {
            BodyLength::Exact(_) => head.declared_length(),
            BodyLength::None if head.status != 204 => head.declared_length(),
            BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => None,
        };
        if let Some(length) = declared {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let is_empty = matches!(length, BodyLength::None | BodyLength::Exact(0));
        self.send_head(response, is_empty)
    }

    fn has_room(&self) -> bool {
        self.waiting
            .as_ref()
            .is_none_or(|waiting| waiting.len() < BUFFER_BYTES)
    }

    fn data(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.bytes_sent += data.len() as u64;
        self.waiting.get_or_insert_with(Buffer::take).append(data);
    }

    fn end(&mut self, trailers: Option<Trailers>) {
        self.is_ended = true;
        let status = trailers.as_ref().and_then(|it| it.get(GRPC_STATUS));
        if let Some(status) = status {
            self.grpc_status = trailer::grpc_status(status.as_bytes());
        }
        self.trailers = trailers;
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), FailureKind>> {
        const GONE: Result<(), FailureKind> = Err(FailureKind::ClientGone);
        while let (Some(send), Some(waiting)) = (&mut self.send, &mut self.waiting) {
            send.reserve_capacity(waiting.len());
            let granted = match send.capacity() {
                0 => match send.poll_capacity(context) {
                    Poll::Pending => break,
                    // The window may have gone to other streams in the meantime.
                    Poll::Ready(Some(Ok(0))) => continue,
                    Poll::Ready(Some(Ok(granted))) => granted,
                    Poll::Ready(_) => return Poll::Ready(GONE),
                },
                granted => granted,
            };
            let part = waiting.filled();
            let part = part.get(..granted).unwrap_or(part);
            let length = part.len();
            let is_last = self.is_ended && length == waiting.len() && self.trailers.is_none();
            if send
                .send_data(Bytes::copy_from_slice(part), is_last)
                .is_err()
            {
                return Poll::Ready(GONE);
            }
            self.is_closed |= is_last;
            waiting.consume(length);
            if waiting.is_empty() {
                self.waiting = None;
            }
        }
        if self.is_ended && !self.is_closed && self.waiting.is_none() {
            let trailers = self.trailers.take();
            if let Some(send) = &mut self.send {
                let sent = match trailers {
                    Some(trailers) => send.send_trailers(*trailers),
                    None => send.send_data(Bytes::new(), true),
                };
                if sent.is_err() {
                    return Poll::Ready(GONE);
                }
            }
            self.is_closed = true;
        }
        if self.is_closed {
            return Poll::Ready(Ok(()));
        }
        if self.poll_reset(context).is_ready() {
            return Poll::Ready(GONE);
        }
        if self.waiting.is_some() {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }
}

fn status(status: u16) -> Result<StatusCode, FailureKind> {
    StatusCode::from_u16(status).map_err(|_| FailureKind::BadResponse)
}

/// Adds a field. What HTTP/2 cannot carry is left out: an endpoint may send bytes in values that
/// no client has to accept.
fn put(headers: &mut HeaderMap, name: &str, value: &[u8]) {
    let name = HeaderName::from_bytes(name.as_bytes());
    let value = HeaderValue::from_bytes(value);
    if let (Ok(name), Ok(value)) = (name, value) {
        // A head has a bounded number of fields, far below what the map takes.
        let _ = headers.try_append(name, value);
    }
}
