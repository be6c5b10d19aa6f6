//! Bytes both ways between two streams, each half closed when its reading side ends.
//!
//! A direction holds at most one buffer, and none while nothing waits to be written.

use std::io;
use std::task::{Context, Poll};

use super::stream::Stream;
use crate::codec::buffer::Buffer;
use crate::failure::FaultSide;

/// One end of both directions.
pub trait Flow {
    /// Whether [`Flow::hold`] counts what is held among what is held for clients.
    const COUNTS: bool = false;

    /// Reads about as many bytes as there is room for into a buffer that is taken only when there
    /// is something to put in; 0 at the end.
    ///
    /// # Errors
    /// The errors of the connection.
    fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Option<Buffer>,
        room: usize,
    ) -> Poll<io::Result<usize>>;

    /// Writes all of a buffer.
    ///
    /// # Errors
    /// The errors of the connection.
    fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<()>>;

    /// Sends what was kept of earlier writes.
    ///
    /// # Errors
    /// The errors of the connection.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Closes the sending half.
    ///
    /// # Errors
    /// The errors of the connection.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Takes what has come while nobody reads, where each part of it would cost more elsewhere.
    fn soak(&mut self, _context: &mut Context<'_>) {}

    /// How many bytes of memory the end keeps of what was not read or not sent yet.
    fn kept(&mut self) -> usize {
        0
    }

    /// Takes note of how many bytes of memory both directions and both ends take.
    fn hold(&mut self, _bytes: usize) {}
}

impl Flow for Stream {
    fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Option<Buffer>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_fill_part(context, buffer, room)
    }

    fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<()>> {
        Stream::poll_drain(self, context, buffer)
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_send(self, context)
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_close(self, context)
    }

    fn kept(&mut self) -> usize {
        self.buffered()
    }
}

/// Both directions between a client and an endpoint.
pub(crate) struct Duplex {
    up: Half,
    down: Half,
    has_moved: bool,
    is_held_up: bool,
}

/// One direction.
struct Half {
    waiting: Option<Buffer>,
    state: State,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The reading side is at its end.
    Ended,
    /// The writing side was told so.
    Closed,
}

/// The side of a direction that failed.
enum Broken {
    Reading,
    Writing,
}

impl Duplex {
    /// Two directions, with what the client and the endpoint have said already.
    pub(crate) fn new(of_client: Option<Buffer>, of_endpoint: Option<Buffer>) -> Self {
        Duplex {
            up: Half::new(of_client),
            down: Half::new(of_endpoint),
            has_moved: false,
            is_held_up: false,
        }
    }

    /// Copies as much as goes, and reads about as many bytes at once as there is room for. Ready
    /// once both sides have ended.
    ///
    /// # Errors
    /// The side that failed.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        client: &mut impl Flow,
        endpoint: &mut impl Flow,
        room: usize,
    ) -> Poll<Result<(), FaultSide>> {
        self.is_held_up = room == 0;
        let up = self.up.poll(context, client, endpoint, room);
        self.has_moved |= up.map_err(|broken| match broken {
            Broken::Reading => FaultSide::Downstream,
            Broken::Writing => FaultSide::Upstream,
        })?;
        let down = self.down.poll(context, endpoint, client, room);
        self.has_moved |= down.map_err(|broken| match broken {
            Broken::Reading => FaultSide::Upstream,
            Broken::Writing => FaultSide::Downstream,
        })?;
        match self.up.state == State::Closed && self.down.state == State::Closed {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Whether anything has moved since this was last asked.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// Whether nothing was read for want of room, and nobody will say when there is some.
    pub(crate) fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    /// How many bytes of memory both directions take.
    pub(crate) fn memory(&self) -> usize {
        let [up, down] = [&self.up, &self.down].map(|half| half.waiting.as_ref());
        up.map_or(0, Buffer::capacity) + down.map_or(0, Buffer::capacity)
    }

    /// Bytes that the client has sent.
    pub(crate) fn bytes_received(&self) -> u64 {
        self.up.bytes
    }

    /// Bytes that the endpoint has sent.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.down.bytes
    }
}

impl Half {
    fn new(waiting: Option<Buffer>) -> Self {
        Half {
            bytes: waiting.as_ref().map_or(0, |said| said.len() as u64),
            waiting,
            state: State::Open,
        }
    }

    /// Copies as much as goes; whether anything did.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        from: &mut impl Flow,
        to: &mut impl Flow,
        room: usize,
    ) -> Result<bool, Broken> {
        let writing = |_: io::Error| Broken::Writing;
        let mut has_moved = false;
        while self.state != State::Closed {
            if let Some(waiting) = &mut self.waiting {
                if to
                    .poll_drain(context, waiting)
                    .map_err(writing)?
                    .is_pending()
                {
                    from.soak(context);
                    break;
                }
                self.waiting = None;
                has_moved = true;
            }
            if self.state == State::Ended {
                if to.poll_close(context).map_err(writing)?.is_pending() {
                    break;
                }
                self.state = State::Closed;
                has_moved = true;
                break;
            }
            let filled = match room {
                0 => {
                    from.soak(context);
                    Poll::Pending
                }
                _ => from.poll_fill(context, &mut self.waiting, room),
            };
            match filled {
                Poll::Ready(Ok(0)) => self.state = State::Ended,
                Poll::Ready(Ok(count)) => self.bytes += count as u64,
                Poll::Ready(Err(_)) => return Err(Broken::Reading),
                Poll::Pending => {
                    // What TLS kept must not wait for the next bytes.
                    let _ = to.poll_send(context).map_err(writing)?;
                    break;
                }
            }
        }
        Ok(has_moved)
    }
}
