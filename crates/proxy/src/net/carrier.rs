//! A stream of HTTP/2 that carries another protocol (RFC 8441, RFC 9113 section 8.5).

use std::io;
use std::task::{Context, Poll, ready};

use ::h2::{Reason, SendStream};
use bytes::Bytes;

use super::duplex::Flow;
use super::intake::Intake;
use crate::codec::buffer::{BUFFER_BYTES, Buffer};

/// Both halves of a stream whose heads were exchanged.
pub struct Carrier {
    receive: Intake,
    send: SendStream<Bytes>,
    is_closed: bool,
}

impl Carrier {
    /// The stream of these halves.
    pub fn new(receive: Intake, send: SendStream<Bytes>) -> Self {
        Carrier {
            receive,
            send,
            is_closed: false,
        }
    }
}

impl Flow for Carrier {
    fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Option<Buffer>,
        _room: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            match ready!(self.receive.poll_data(context)) {
                None => return Poll::Ready(Ok(0)),
                Some(Err(_)) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                // Nothing is not the end.
                Some(Ok(data)) if data.is_empty() => {}
                Some(Ok(data)) => {
                    // No more is read before this is written.
                    buffer.get_or_insert_with(Buffer::take).append(&data);
                    return Poll::Ready(Ok(data.len()));
                }
            }
        }
    }

    fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<()>> {
        while !buffer.is_empty() {
            self.send.reserve_capacity(buffer.len().min(BUFFER_BYTES));
            let granted = match self.send.capacity() {
                0 => match ready!(self.send.poll_capacity(context)) {
                    // The window may have gone to other streams in the meantime.
                    Some(Ok(0)) => continue,
                    Some(Ok(granted)) => granted,
                    _ => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                },
                granted => granted,
            };
            let part = buffer.filled();
            let part = part.get(..granted).unwrap_or(part);
            let length = part.len();
            let sent = self.send.send_data(Bytes::copy_from_slice(part), false);
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            buffer.consume(length);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Only a stream that is asked tells that the other end has reset it.
        match self.send.poll_reset(context) {
            _ if self.is_closed => Poll::Ready(Ok(())),
            // It wants to hear no more, and has said all.
            Poll::Pending | Poll::Ready(Ok(Reason::NO_ERROR)) => Poll::Ready(Ok(())),
            Poll::Ready(_) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_closed {
            let sent = self.send.send_data(Bytes::new(), true);
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            self.is_closed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn soak(&mut self, context: &mut Context<'_>) {
        self.receive.soak(context);
    }

    /// As much as the endpoint has sent and nobody has read.
    fn kept(&mut self) -> usize {
        self.receive.unread()
    }
}
