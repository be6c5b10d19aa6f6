//! Frames of an endpoint that carry nothing of a response: counted as they are read, since the
//! library answers or takes every one of them for as long as a request is under way.

use crate::codec::frame::{FrameHead, HEAD_BYTES, flag, kind};
use crate::limits::FRAMES_TIME;
use crate::net::deadline::{TICK, now_ticks};

/// The most frames of either count in [`FRAMES_TIME`], beyond what is given for bytes and requests.
const FRAMES_MAX: u64 = 1 << 16;

/// The frames of either count that each request gives: its heads, and what goes with them.
const FRAMES_PER_REQUEST: u64 = 8;

/// For so many bytes of bodies, either way, there may be one frame more. An answer to a PING is
/// far shorter.
const BYTES_PER_FRAME: u64 = 64;

/// For so many bytes that were written there may be one WINDOW_UPDATE more: careful endpoints send
/// two for every DATA frame.
const BYTES_PER_WINDOW: u64 = 8;

/// The most bytes of a DATA frame that may all be filling.
const FILLING_BYTES_MAX: usize = 256;

/// Counts the frames of a connection to an endpoint.
pub(super) struct Noise {
    /// The part of the next frame's head that was read.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// The bytes of a frame that are still to come.
    rest: usize,
    windows: u64,
    others: u64,
    /// Bytes of bodies that were read, and all that were written.
    read: u64,
    written: u64,
    /// Requests that had begun when counting did, and when that was.
    requests: u64,
    since: u32,
}

impl Noise {
    /// The counts of a connection on which nothing was said.
    pub(super) fn new() -> Self {
        Noise {
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            rest: 0,
            windows: 0,
            others: 0,
            read: 0,
            written: 0,
            requests: 0,
            since: now_ticks(),
        }
    }

    /// Takes note of bytes that were written.
    pub(super) fn say(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }

    /// Takes note of bytes that were read, on a connection that has begun so many requests; says
    /// whether that is too much.
    pub(super) fn hear(&mut self, mut bytes: &[u8], requests: u64) -> bool {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let taken = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            let (head, after) = bytes.split_at_checked(taken).unwrap_or_default();
            let place = self.head.iter_mut().skip(self.head_bytes);
            place.zip(head).for_each(|(to, from)| *to = *from);
            self.head_bytes += taken;
            bytes = after;
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                if let Some(head) = FrameHead::read(&self.head) {
                    self.count(&head);
                }
            }
        }
        self.is_beyond(requests) && !self.begin_again(requests)
    }

    fn count(&mut self, head: &FrameHead) {
        self.rest = head.length;
        let filling = match head.has(flag::PADDED) {
            true => FILLING_BYTES_MAX,
            false => 0,
        };
        match head.kind {
            kind::DATA if head.length > filling => self.read += (head.length - filling) as u64,
            kind::WINDOW_UPDATE => self.windows += 1,
            _ => self.others += 1,
        }
    }

    fn is_beyond(&self, requests: u64) -> bool {
        let begun = requests.saturating_sub(self.requests);
        let max = FRAMES_MAX + begun * FRAMES_PER_REQUEST;
        self.others > max + (self.read + self.written) / BYTES_PER_FRAME
            || self.windows > max + self.written / BYTES_PER_WINDOW
    }

    /// Forgets what was counted, where that was begun long enough ago.
    fn begin_again(&mut self, requests: u64) -> bool {
        let ticks = FRAMES_TIME.as_millis() / TICK.as_millis();
        let now = now_ticks();
        if u128::from(now.wrapping_sub(self.since)) < ticks {
            return false;
        }
        *self = Noise {
            requests,
            since: now,
            windows: 0,
            others: 0,
            read: 0,
            written: 0,
            ..*self
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{FRAMES_MAX, FRAMES_PER_REQUEST, Noise};
    use crate::codec::frame::{flag, kind};
    use crate::net::deadline;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let mut bytes = u32::try_from(length).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.resize(9 + length, 0);
        bytes
    }

    /// How many frames are read before there are too many, up to four times the most.
    fn heard(noise: &mut Noise, frame: &[u8], requests: u64) -> u64 {
        let all = 4 * FRAMES_MAX;
        let found = (0..all).find(|_| noise.hear(frame, requests));
        found.unwrap_or(all)
    }

    #[test]
    fn whatever_carries_nothing_has_a_bound_and_bodies_have_none() {
        let empty = [
            frame(kind::PING, 0, 8),
            frame(kind::SETTINGS, 0, 0),
            frame(kind::WINDOW_UPDATE, 0, 4),
            frame(kind::RST_STREAM, 0, 4),
            frame(kind::HEADERS, flag::END_HEADERS, 1),
            frame(kind::CONTINUATION, 0, 0),
            frame(kind::DATA, 0, 0),
            frame(kind::DATA, flag::PADDED, 256),
            frame(0xee, 0, 3),
        ];
        for frame in empty {
            assert_eq!(heard(&mut Noise::new(), &frame, 0), FRAMES_MAX, "{frame:?}");
        }
        let body = frame(kind::DATA, 0, 1);
        assert_eq!(heard(&mut Noise::new(), &body, 0), 4 * FRAMES_MAX);
    }

    #[test]
    fn requests_and_bytes_give_more_and_time_forgives() {
        let (ping, window) = (frame(kind::PING, 0, 8), frame(kind::WINDOW_UPDATE, 0, 4));
        assert_eq!(
            heard(&mut Noise::new(), &ping, 5),
            FRAMES_MAX + 5 * FRAMES_PER_REQUEST
        );
        let mut noise = Noise::new();
        noise.say(640);
        noise.hear(&frame(kind::DATA, 0, 640), 0);
        assert_eq!(heard(&mut noise, &ping, 0), FRAMES_MAX + 20);
        let mut noise = Noise::new();
        noise.say(640);
        assert_eq!(heard(&mut noise, &window, 0), FRAMES_MAX + 80);
        (0..100).for_each(|_| deadline::tick());
        assert!(!noise.hear(&window, 0));
        assert_eq!(heard(&mut noise, &window, 0), FRAMES_MAX);
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let all = [
            frame(kind::DATA, 0, 300),
            frame(kind::PING, 0, 8),
            frame(kind::DATA, 0, 0),
        ]
        .concat();
        for size in [1, 5, 9, 10, 400] {
            let mut noise = Noise::new();
            all.chunks(size).for_each(|part| _ = noise.hear(part, 0));
            assert_eq!(
                (noise.others, noise.read, noise.rest),
                (2, 300, 0),
                "{size}"
            );
        }
    }
}
