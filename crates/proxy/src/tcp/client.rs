//! The client's end of a stream.

use std::io;
use std::task::{Context, Poll, ready};

use crate::codec::buffer::Buffer;
use crate::codec::request_line::RequestLineFinder;
use crate::net::duplex::Flow;
use crate::net::stream::Stream;

/// The client's end of a stream, which is looked at on its way where it must be no request.
pub(super) struct ClientFlow<'a> {
    stream: &'a mut Stream,
    /// Looks for a request, where there must be none.
    request: Option<RequestLineFinder>,
}

impl<'a> ClientFlow<'a> {
    /// An end that may say anything, or else no request.
    pub(super) fn new(stream: &'a mut Stream, request: Option<RequestLineFinder>) -> Self {
        ClientFlow { stream, request }
    }

    /// Whether it has begun with a request, where it must not.
    pub(super) fn is_request(&self) -> bool {
        self.request == Some(RequestLineFinder::Found)
    }
}

impl Flow for ClientFlow<'_> {
    fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Option<Buffer>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let Some(request) = &mut self.request else {
            return self.stream.poll_fill_part(context, buffer, room);
        };
        let known = buffer.as_ref().map_or(0, Buffer::len);
        let count = ready!(self.stream.poll_fill_part(context, buffer, room))?;
        let filled = buffer.as_ref().map_or(&[][..], Buffer::filled);
        // What came before it was no whole line, which nobody acts upon.
        if request.find(filled.get(known..).unwrap_or_default()) {
            *buffer = None;
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(count))
    }

    fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<()>> {
        self.stream.poll_drain(context, buffer)
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_send(context)
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_close(context)
    }

    fn kept(&mut self) -> usize {
        self.stream.buffered()
    }
}
