//! The bytes for an endpoint, kept for as long as they may have to be sent again.

use std::task::{Context, Poll};

use http::Request;

use crate::codec::buffer::{BUFFER_BYTES, Buffer};
use crate::codec::endpoint_head::{EndpointHead, length_of};
use crate::codec::trailer::Trailers;
use crate::net::stream::Stream;

/// The most bytes of a request, head included, that are kept once they have been sent, where the
/// route repeats or copies requests. A longer request is neither repeated nor copied.
pub const KEPT_BYTES_MAX: usize = 64 << 10;

/// The same towards endpoints of HTTP/2, which may go away before they look at a request, and
/// say so: that a short one is there still loses none.
pub const UNSEEN_BYTES_MAX: usize = 16 << 10;

/// A request on its way. Its start is kept until it is known that it need not be sent again.
pub struct Outgoing {
    /// The head, where that is no text that stands in the buffer.
    request: Option<Box<Request<()>>>,
    /// Whether such a head was sent.
    is_asked: bool,
    buffer: Buffer,
    /// The trailers behind the body, where the framing in the buffer does not carry them.
    pub trailers: Option<Trailers>,
    sent: usize,
    has_body: bool,
    /// The bytes of its body that have come, as they are framed for the endpoint.
    received: u64,
    /// The client has sent all of it.
    is_complete: bool,
    /// Some of it was dropped after it had been sent.
    is_cut: bool,
    kept_bytes_max: usize,
}

impl Outgoing {
    /// A request with a head, and what was read of its body already. Of one with a body
    /// `kept_bytes_max` bytes are kept once they have been sent; beyond them, nothing is.
    pub fn new(head: EndpointHead, body: Buffer, is_complete: bool, kept_bytes_max: usize) -> Self {
        let (request, buffer) = match head {
            EndpointHead::Http2(request) => (Some(request), body),
            EndpointHead::Http1(mut text) => {
                text.append(body.filled());
                (None, text)
            }
        };
        Outgoing {
            request,
            is_asked: false,
            buffer,
            trailers: None,
            sent: 0,
            has_body: false,
            received: 0,
            is_complete,
            is_cut: false,
            kept_bytes_max,
        }
    }

    /// Whether all of it is still there, to be sent again.
    pub fn is_whole(&self) -> bool {
        !self.is_cut
    }

    /// Whether the client has sent all of it.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether none of it was sent.
    pub fn is_unsent(&self) -> bool {
        self.sent == 0 && !self.is_cut && !self.is_asked
    }

    /// Whether any of its body has come.
    pub fn has_body(&self) -> bool {
        self.has_body
    }

    /// The bytes of its body that have come.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether some of it waits to be sent.
    pub fn is_pending(&self) -> bool {
        self.sent < self.buffer.len()
    }

    /// Whether more of it may be put in.
    pub fn has_room(&self) -> bool {
        self.buffer.len() - self.sent < BUFFER_BYTES
    }

    /// The bytes that wait to be sent.
    pub fn unsent(&self) -> &[u8] {
        self.buffer.filled().get(self.sent..).unwrap_or_default()
    }

    /// Some of what waited was sent.
    pub fn pass(&mut self, count: usize) {
        self.sent += count;
        self.forget();
    }

    /// What is there of it, beside a head that is no text.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.filled()
    }

    /// The head, where that is no text.
    pub fn request(&self) -> Option<&Request<()>> {
        self.request.as_deref()
    }

    /// The head, where that is no text, to be sent now.
    pub fn ask(&mut self) -> Option<Request<()>> {
        self.is_asked = true;
        self.request.as_deref().cloned()
    }

    /// Drops what was sent, since an answer has begun.
    pub fn let_go(&mut self) {
        if self.has_body && !self.is_pending() {
            self.cut();
        }
        self.kept_bytes_max = 0;
    }

    /// Begins anew, on another connection.
    pub fn rewind(&mut self) {
        self.sent = 0;
        self.is_asked = false;
    }

    /// Puts in more, by a function that says whether that was all; ready with whether it moved.
    ///
    /// # Errors
    /// The errors of the function.
    pub fn poll_extend<E>(
        &mut self,
        extend: impl FnOnce(&mut Buffer) -> Poll<Result<bool, E>>,
    ) -> Poll<Result<(), E>> {
        let before = self.buffer.len();
        let extended = extend(&mut self.buffer);
        let grown = self.buffer.len().saturating_sub(before);
        self.has_body |= grown > 0;
        self.received += grown as u64;
        extended.map_ok(|is_complete| self.is_complete = is_complete)
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// The errors of the stream.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Poll<std::io::Result<()>> {
        while self.is_pending() {
            match stream.poll_write(context, self.unsent()) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
                }
                Poll::Ready(Ok(count)) => self.sent += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.forget();
        stream.poll_send(context)
    }

    /// Drops all that is there.
    fn cut(&mut self) {
        self.request = None;
        self.buffer = Buffer::none();
        self.sent = 0;
        self.is_cut = true;
    }

    /// Whether there is more of it than is kept.
    fn is_long(&self) -> bool {
        let head = self.request.as_deref().map_or(0, length_of);
        head + self.buffer.len() > self.kept_bytes_max
    }

    /// Drops what was sent, once all that is there was and it is more than is kept. Nobody waits
    /// for an endpoint, or for more of the request, with an empty buffer in hand.
    fn forget(&mut self) {
        if self.has_body && !self.is_pending() && (self.is_cut || self.is_long()) {
            self.cut();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::Outgoing;
    use crate::codec::buffer::Buffer;
    use crate::codec::endpoint_head::EndpointHead;

    #[test]
    fn a_request_is_complete_once_its_body_is() {
        let head = EndpointHead::Http1(Buffer::take());
        let mut outgoing = Outgoing::new(head, Buffer::none(), false, 0);
        let waits = outgoing.poll_extend(|_| Poll::<Result<bool, ()>>::Pending);
        assert!(waits.is_pending() && !outgoing.is_complete());
        for (text, is_last) in [("a", false), ("b", true)] {
            let moved = outgoing.poll_extend(|buffer| {
                buffer.append_str(text);
                Poll::Ready(Ok::<bool, ()>(is_last))
            });
            assert!(moved.is_ready());
            assert_eq!(outgoing.is_complete(), is_last);
        }
        assert_eq!(outgoing.received(), 2);
        assert_eq!(outgoing.bytes(), b"ab");
    }
}
