//! The body of a stream of HTTP/2 from an endpoint, which is taken off the library's hands though
//! nobody reads it yet.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use ::h2::RecvStream;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::codec::frame::FRAME_BYTES_MAX;

/// The bytes of a frame below which it is copied to those before it: alone it would keep a buffer
/// that many were read into, and a place in a queue that takes more than it holds.
const SMALL_BYTES: usize = 4 << 10;

/// A body, with what has come of it and was not read. The window stays closed for that, so the
/// endpoint sends no more than one window ahead, in however many frames.
pub struct Intake {
    stream: RecvStream,
    /// The bytes that came ahead. Boxed, because hardly any body has some.
    kept: Option<Box<Kept>>,
}

/// The bytes that came and were not read.
#[derive(Default)]
struct Kept {
    /// The parts that came first, each of them a frame or as much as was copied together.
    parts: VecDeque<Bytes>,
    /// Small frames behind them.
    small: BytesMut,
}

impl Intake {
    /// The body of a stream.
    pub fn new(stream: RecvStream) -> Self {
        Intake { stream, kept: None }
    }

    /// Whether the stream has ended, and nothing of it is left.
    pub fn is_end_stream(&self) -> bool {
        self.kept.is_none() && self.stream.is_end_stream()
    }

    /// The next bytes of the body, for which the window opens; none at its end.
    pub fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ::h2::Error>>> {
        let polled = match self.next_kept() {
            Some(kept) => Poll::Ready(Some(Ok(kept))),
            None => self.stream.poll_data(context),
        };
        if let Poll::Ready(Some(Ok(data))) = &polled {
            let _ = self.stream.flow_control().release_capacity(data.len());
        }
        polled
    }

    /// The trailers behind the body, once all of that was read.
    pub fn poll_trailers(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, ::h2::Error>> {
        self.stream.poll_trailers(context)
    }

    /// Takes what has come, for later, and wakes the task for more.
    pub fn soak(&mut self, context: &mut Context<'_>) {
        // Its end, whatever that is, is told again to who reads.
        while let Poll::Ready(Some(Ok(data))) = self.stream.poll_data(context) {
            if !data.is_empty() {
                self.kept.get_or_insert_default().push(data);
            }
        }
    }

    /// How many bytes the endpoint has sent and nobody has read.
    pub fn unread(&mut self) -> usize {
        self.stream.flow_control().used_capacity()
    }

    fn next_kept(&mut self) -> Option<Bytes> {
        let kept = self.kept.as_mut()?;
        let next = kept.next();
        if kept.is_empty() {
            self.kept = None;
        }
        next
    }
}

impl Kept {
    fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.small.is_empty()
    }

    fn push(&mut self, data: Bytes) {
        if data.len() < SMALL_BYTES {
            self.small.extend_from_slice(&data);
            return;
        }
        if !self.small.is_empty() {
            self.parts.push_back(self.small.split().freeze());
        }
        self.parts.push_back(data);
    }

    fn next(&mut self) -> Option<Bytes> {
        if let Some(part) = self.parts.pop_front() {
            return Some(part);
        }
        let count = self.small.len().min(FRAME_BYTES_MAX);
        (count > 0).then(|| self.small.split_to(count).freeze())
    }
}
