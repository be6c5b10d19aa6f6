//! The bytes for an endpoint, kept for as long as they may have to be sent again.

use std::task::{Context, Poll};

use http::Request;

use crate::codec::buffer::{BUFFER_BYTES, Buffer};
use crate::codec::endpoint_head::{EndpointHead, length_of, memory_of};
use crate::codec::trailer::Trailers;
use crate::http::plan::Forward;
use crate::net::stream::Stream;

/// The most bytes of a request, head included, that are kept once they have been sent, where the
/// route repeats or copies requests. A longer request is neither repeated nor copied.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;

/// The same towards endpoints of HTTP/2, which may go away before they look at a request, and
/// say so: that a short one is there still loses none.
pub(super) const UNSEEN_BYTES_MAX: usize = 16 << 10;

/// The longest head of a request, as HTTP/1 writes it, that is kept once it has been sent. A few
/// bytes of HTTP/2 may stand for a head of [`crate::limits::Limits::head_bytes_max`], and each of
/// very many requests may wait for as long as its client likes.
pub(super) const KEPT_HEAD_BYTES_MAX: usize = 8 << 10;

/// The most that is taken from a client while too much is held and its endpoint does not read.
const LITTLE_BYTES: usize = 4 << 10;

/// How much of a request is kept once it has been sent, in case it has to be sent again.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// The longest head. With a longer one nothing is kept.
    head_bytes_max: usize,
    /// The most bytes of a request with a body, head included.
    bytes_max: usize,
}

impl Keeping {
    /// The limits of a plan: as much is kept as its repetitions and copies need.
    pub fn of(plan: &Forward) -> Self {
        let is_http2 = plan.upstream.is_http2();
        // A head is of use for as long as any of these may come about.
        let may_repeat = plan.retry().is_some() || is_http2 || plan.is_idempotent;
        Keeping {
            head_bytes_max: match plan.is_copy {
                // What the proxy sends of its own has its body behind the head; who writes it
                // bounds both.
                true => usize::MAX,
                false if may_repeat || plan.is_kept() => KEPT_HEAD_BYTES_MAX,
                false => 0,
            },
            bytes_max: match plan.is_kept() {
                true => KEPT_BYTES_MAX,
                false if is_http2 => UNSEEN_BYTES_MAX,
                false => 0,
            },
        }
    }
}

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
    /// Whether some of it was dropped after it had been sent.
    is_cut: bool,
    /// Whether the head stays once it has been sent.
    is_head_kept: bool,
    /// The bytes of memory that a head of HTTP/2 takes, as far as that can be told.
    head_memory: u16,
    kept_bytes_max: usize,
    /// Too much is held for others to take much of it from the client.
    is_tight: bool,
}

impl Outgoing {
    /// A request with a head, and what was read of its body already. Beyond what is to be kept of
    /// it once it has been sent, nothing is.
    pub fn new(head: EndpointHead, body: Buffer, is_complete: bool, keeping: Keeping) -> Self {
        let (head_bytes, head_memory) = match &head {
            EndpointHead::Http1(text) => (text.len(), 0),
            EndpointHead::Http2(request) => (length_of(request), memory_of(request)),
        };
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
            is_head_kept: head_bytes <= keeping.head_bytes_max,
            head_memory: u16::try_from(head_memory).unwrap_or(u16::MAX),
            kept_bytes_max: keeping.bytes_max,
            is_tight: false,
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

    /// How many bytes of memory it takes, about.
    pub fn memory(&self) -> usize {
        let head = self.request.as_ref().map_or(0, |_| self.head_memory);
        self.buffer.capacity() + usize::from(head)
    }

    /// Whether some of it waits to be sent.
    pub fn is_pending(&self) -> bool {
        self.sent < self.buffer.len()
    }

    /// Whether all of it has come from the client and was sent.
    pub fn is_sent(&self) -> bool {
        self.is_complete && !self.is_pending()
    }

    /// Whether more of it may be put in.
    pub fn has_room(&self) -> bool {
        let most = if self.is_tight {
            LITTLE_BYTES
        } else {
            BUFFER_BYTES
        };
        self.buffer.len() - self.sent < most
    }

    /// The bytes that wait to be sent.
    pub fn unsent(&self) -> &[u8] {
        self.buffer.filled().get(self.sent..).unwrap_or_default()
    }

    /// Notes that some of the waiting bytes were sent.
    pub fn pass(&mut self, count: usize) {
        self.sent += count;
        self.forget();
    }

    /// The bytes of it that are there, beside a head that is no text.
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
        if self.is_head_kept {
            return self.request.as_deref().cloned();
        }
        self.is_cut = true;
        self.request.take().map(|request| *request)
    }

    /// Drops what was sent, since an answer has begun.
    pub fn let_go(&mut self) {
        self.is_head_kept = false;
        self.kept_bytes_max = 0;
        self.forget();
    }

    /// Drops bodies that were sent, and heads in front of bodies: there is no memory for what may
    /// be of use later.
    pub fn keep_less(&mut self) {
        self.is_head_kept &= self.is_complete && !self.has_body;
        self.kept_bytes_max = 0;
        self.forget();
    }

    /// Takes little from the client beyond what is there, or as much as there is room for again.
    pub fn tighten(&mut self, is_tight: bool) {
        self.is_tight = is_tight;
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
    /// for an endpoint, or for more of the request, with more in hand than may still be of use.
    fn forget(&mut self) {
        if self.is_pending() || self.is_unsent() {
            return;
        }
        if self.is_cut || !self.is_head_kept || (self.has_body && self.is_long()) {
            self.cut();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::{KEPT_HEAD_BYTES_MAX, Keeping, Outgoing};
    use crate::codec::buffer::Buffer;
    use crate::codec::endpoint_head::EndpointHead;

    /// A request that has been sent, whose body may follow.
    fn sent(head_bytes: usize, head_bytes_max: usize) -> Outgoing {
        let mut text = Buffer::for_head();
        text.append(&vec![b'x'; head_bytes]);
        let keeping = Keeping {
            head_bytes_max,
            bytes_max: 1 << 20,
        };
        let head = EndpointHead::Http1(text);
        let mut outgoing = Outgoing::new(head, Buffer::none(), false, keeping);
        assert!(outgoing.is_whole() && outgoing.is_unsent());
        outgoing.pass(head_bytes - 1);
        assert!(outgoing.is_whole() && outgoing.is_pending());
        outgoing.pass(1);
        outgoing
    }

    #[test]
    fn a_head_that_is_long_or_of_no_more_use_goes_once_it_was_sent() {
        for (length, max, is_kept) in [
            (KEPT_HEAD_BYTES_MAX, KEPT_HEAD_BYTES_MAX, true),
            (KEPT_HEAD_BYTES_MAX + 1, KEPT_HEAD_BYTES_MAX, false),
            (100, 0, false),
        ] {
            let mut outgoing = sent(length, max);
            assert_eq!(outgoing.is_whole(), is_kept, "{length} of {max}");
            assert_eq!(outgoing.memory() > 0, is_kept);
            assert!(!outgoing.is_unsent());
            outgoing.let_go();
            assert_eq!((outgoing.is_whole(), outgoing.memory()), (false, 0));
        }
    }

    #[test]
    fn where_memory_is_short_heads_alone_are_kept() {
        for (is_complete, has_body, is_kept) in [
            (true, false, true),
            (true, true, false),
            (false, false, false),
            (false, true, false),
        ] {
            let mut outgoing = sent(100, 100);
            outgoing.is_complete = is_complete;
            outgoing.has_body = has_body;
            outgoing.keep_less();
            assert_eq!(outgoing.is_whole(), is_kept, "{is_complete} {has_body}");
        }
    }

    #[test]
    fn a_request_is_complete_once_its_body_is() {
        let head = EndpointHead::Http1(Buffer::take());
        let mut outgoing = Outgoing::new(
            head,
            Buffer::none(),
            false,
            Keeping {
                head_bytes_max: 0,
                bytes_max: 0,
            },
        );
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
