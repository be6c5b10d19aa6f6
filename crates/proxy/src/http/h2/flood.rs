//! Frames of HTTP/2 that ask for nothing: counted as they are read, since each costs the proxy
//! something and the client next to nothing.
//!
//! What `h2` bounds itself is left to it: CONTINUATION frames, heads, empty and small DATA
//! frames, streams that are reset before they were looked at, and those that it has to reset.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::deadline::{TICK, now_ticks};
use crate::net::limits::{FRAME_CREDIT_BYTES, FRAMES_TIME, Limits, Reached};
use crate::net::stream::Stream;

/// What a client says before its first frame.
const PREFACE_BYTES: u32 = 24;

/// Length, type, flags and stream of a frame.
const HEAD_BYTES: usize = 9;

/// How many kinds of frames are counted.
const KINDS: usize = 4;

/// What the frames of a connection tell.
pub struct Signs {
    /// What it floods the proxy with; set once.
    pub flood: Cell<Option<Reached>>,
    /// What it does if `h2` ends it for a flood, which does not say of what.
    likely: Cell<Reached>,
}

/// A stream whose frames are counted. Once there are too many, nothing more is read.
pub struct Watched {
    stream: Stream,
    frames: Frames,
    signs: Rc<Signs>,
}

/// Finds the heads of frames, and counts those of some kinds.
pub struct Frames {
    /// Bytes up to the next head.
    left: u32,
    head: [u8; HEAD_BYTES],
    filled: usize,
    counts: [u32; KINDS],
    maxima: [u32; KINDS],
    /// Bytes sent to the client since counting began.
    sent: u64,
    /// When that was.
    since: u32,
    /// Whether a stream was reset, or a window opened, as those do who have streams reset.
    has_reset: bool,
}

/// The kinds, in the order of their counts.
const NAMES: [Reached; KINDS] = [
    Reached::Pings,
    Reached::Settings,
    Reached::Priorities,
    Reached::WindowUpdates,
];

impl Watched {
    /// The stream of a client that has said nothing yet.
    pub fn new(stream: Stream, limits: &Limits, signs: Rc<Signs>) -> Self {
        Watched {
            stream,
            frames: Frames::new(limits),
            signs,
        }
    }
}

impl Frames {
    /// Those of a client that has said nothing.
    pub fn new(limits: &Limits) -> Self {
        Frames {
            left: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            filled: 0,
            counts: [0; KINDS],
            maxima: [
                limits.pings_max,
                limits.settings_max,
                limits.priorities_max,
                limits.window_updates_max,
            ],
            sent: 0,
            since: now_ticks(),
            has_reset: false,
        }
    }

    /// Takes note of what was read; says of what there was too much.
    pub fn read(&mut self, mut bytes: &[u8]) -> Option<Reached> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let count = usize::try_from(self.left).unwrap_or(usize::MAX);
                let count = count.min(bytes.len());
                // The count is at most what is left.
                self.left -= count as u32;
                bytes = bytes.get(count..).unwrap_or_default();
                continue;
            }
            let wanted = HEAD_BYTES - self.filled;
            let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
            let room = self.head.get_mut(self.filled..self.filled + part.len());
            if let Some(room) = room {
                room.copy_from_slice(part);
            }
            self.filled += part.len();
            bytes = rest;
            if self.filled == HEAD_BYTES {
                self.filled = 0;
                let [high, middle, low, kind, ..] = self.head;
                self.left = u32::from_be_bytes([0, high, middle, low]);
                if let Some(limit) = self.count(kind) {
                    return Some(limit);
                }
            }
        }
        None
    }

    /// What it is that was read last, if there was too much of it.
    fn likely(&self) -> Reached {
        let [_, _, _, kind, ..] = self.head;
        match kind {
            0 => Reached::DataFrames,
            9 => Reached::HeadFrames,
            1 if !self.has_reset => Reached::HeadFrames,
            _ => Reached::Resets,
        }
    }

    fn count(&mut self, kind: u8) -> Option<Reached> {
        self.has_reset |= kind == 3 || kind == 8;
        let index = match kind {
            // DATA, HEADERS, RST_STREAM, GOAWAY and CONTINUATION are bounded elsewhere; a client
            // that sends PUSH_PROMISE is refused.
            0 | 1 | 3 | 5 | 7 | 9 => return None,
            6 => 0,
            4 => 1,
            8 => 3,
            _ => 2,
        };
        let (count, max) = (self.counts.get_mut(index)?, *self.maxima.get(index)?);
        *count += 1;
        if u64::from(*count) <= u64::from(max) + self.sent / FRAME_CREDIT_BYTES {
            return None;
        }
        let now = now_ticks();
        let ticks = FRAMES_TIME.as_millis() / TICK.as_millis();
        if u128::from(now.wrapping_sub(self.since)) < ticks {
            return NAMES.get(index).copied();
        }
        self.counts = [0; KINDS];
        self.sent = 0;
        self.since = now;
        None
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.signs.flood.get().is_some() {
            // Whoever drives the connection sees the same, and ends it.
            return Poll::Pending;
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
        let fresh = into.filled().get(before..).unwrap_or_default();
        this.signs.flood.set(this.frames.read(fresh));
        this.signs.likely.set(this.frames.likely());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.frames.sent += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, parts))?;
        this.frames.sent += written as u64;
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl Signs {
    /// Those of a connection that has said nothing.
    pub fn new() -> Rc<Signs> {
        Rc::new(Signs {
            flood: Cell::new(None),
            likely: Cell::new(Reached::HeadFrames),
        })
    }

    /// The limit that `h2` has ended the connection for; none where it was something else.
    pub fn reached(&self, error: &h2::Error) -> Option<Reached> {
        let is_flood = error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM);
        is_flood.then(|| self.likely.get())
    }
}

#[cfg(test)]
mod tests {
    use super::{Frames, HEAD_BYTES};
    use crate::net::deadline;
    use crate::net::limits::{Limits, Reached};

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, 0, 0, 0, 0, 1];
        bytes.resize(HEAD_BYTES + usize::from(length), 6);
        bytes
    }

    fn small() -> Limits {
        Limits {
            pings_max: 3,
            settings_max: 2,
            priorities_max: 1,
            window_updates_max: 2,
            ..Limits::default()
        }
    }

    #[test]
    fn frames_are_told_apart_however_they_are_cut() {
        let mut bytes = PREFACE.to_vec();
        // What is in a frame is no frame, and those that ask for something do not count.
        for kind in [0, 1, 3, 5, 7, 9] {
            (0..9).for_each(|length| bytes.extend(frame(kind, length * 27)));
        }
        for (kind, limit, max) in [
            (6, Reached::Pings, 3),
            (4, Reached::Settings, 2),
            (2, Reached::Priorities, 1),
            (0x10, Reached::Priorities, 1),
            (8, Reached::WindowUpdates, 2),
        ] {
            let mut all = bytes.clone();
            (0..max).for_each(|_| all.extend(frame(kind, 8)));
            for size in [1, 2, 7, 9, 10, 64, all.len()] {
                let mut frames = Frames::new(&small());
                for piece in all.chunks(size) {
                    assert_eq!(frames.read(piece), None, "type {kind} in pieces of {size}");
                }
                assert_eq!(
                    frames.read(&frame(kind, 8)),
                    Some(limit),
                    "in pieces of {size}"
                );
            }
        }
    }

    #[test]
    fn who_was_sent_much_may_say_more_and_time_forgives() {
        let mut frames = Frames::new(&small());
        assert_eq!(frames.read(PREFACE), None);
        frames.sent = 64 * 10;
        for _ in 0..12 {
            assert_eq!(frames.read(&frame(8, 4)), None);
        }
        assert_eq!(frames.read(&frame(8, 4)), Some(Reached::WindowUpdates));
        (0..100).for_each(|_| deadline::tick());
        assert_eq!(frames.read(&frame(8, 4)), None);
    }
}
