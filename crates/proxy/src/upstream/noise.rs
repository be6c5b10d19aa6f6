//! Frames of an endpoint that carry nothing of a response, and the fields of its heads: counted as
//! they are read, since the library answers or takes every one of them for as long as a request is
//! under way.

mod fields;

use crate::codec::frame::{FrameHead, HEAD_BYTES, flag, kind};
use crate::limits::FRAMES_TIME;
use crate::net::deadline::{TICK, now_ticks};

use fields::FieldCount;

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

/// The most fields of heads in [`FRAMES_TIME`], beyond what is given for requests.
const FIELDS_MAX: u64 = 1 << 12;

/// The fields that each request gives: those of its answer, of what comes before that and behind
/// it, and of one that comes too late. An answer with more than 128 is refused anyway.
const FIELDS_PER_REQUEST: u64 = 512;

/// The place of the kind in a frame's head.
const KIND: usize = 3;

/// The bytes of a frame's head from its kind on.
pub(super) const EDGE_BYTES: usize = HEAD_BYTES - KIND;

/// A kind of frame that nobody knows, and so passes over.
const UNKNOWN: u8 = 0xee;

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
    fields: FieldCount,
    fields_heard: u64,
    /// All frames, and those that the library keeps until somebody takes them.
    frames_heard: u64,
    kept_heard: u64,
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
            fields: FieldCount::default(),
            fields_heard: 0,
            frames_heard: 0,
            kept_heard: 0,
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

    /// Takes note of bytes that were read, and makes DATA frames with nothing in them into ones
    /// that the library passes over: it bears only so many of them while a connection lasts.
    /// Returns how many of the last bytes are to be heard again with those that follow, because
    /// they may begin such a frame.
    pub(super) fn hear(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len() - at);
                let part = bytes.get(at..at + skipped).unwrap_or_default();
                self.fields_heard += self.fields.count(part);
                self.rest -= skipped;
                at += skipped;
                continue;
            }
            let taken = (HEAD_BYTES - self.head_bytes).min(bytes.len() - at);
            let head = bytes.get(at..at + taken).unwrap_or_default();
            let place = self.head.iter_mut().skip(self.head_bytes);
            place.zip(head).for_each(|(to, from)| *to = *from);
            self.head_bytes += taken;
            at += taken;
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                if let Some(head) = FrameHead::read(&self.head) {
                    self.count(&head);
                    let kind = at.checked_sub(EDGE_BYTES);
                    let kind = kind.and_then(|kind| bytes.get_mut(kind));
                    if let (true, Some(kind)) = (is_empty(&head), kind) {
                        *kind = UNKNOWN;
                    }
                }
            }
        }
        let may_be_empty = self.head.starts_with(&[0, 0, 0, kind::DATA]);
        if self.head_bytes > KIND && may_be_empty {
            let withheld = self.head_bytes - KIND;
            self.head_bytes = KIND;
            return withheld;
        }
        0
    }

    /// Whether too much was heard, on a connection that has begun so many requests, of which so
    /// many are under way.
    pub(super) fn is_too_much(&mut self, requests: u64, active: usize) -> bool {
        self.is_beyond(requests) && !self.begin_again(requests.saturating_sub(active as u64))
    }

    /// The fields of heads that were heard.
    pub(super) fn fields(&self) -> u64 {
        self.fields_heard
    }

    /// The frames that have begun, since the connection did.
    pub(super) fn frames(&self) -> u64 {
        self.frames_heard
    }

    /// The frames among them that the library keeps until somebody takes them: heads, and parts of
    /// bodies.
    pub(super) fn kept(&self) -> u64 {
        self.kept_heard
    }

    /// The bytes of a frame that are still to come.
    pub(super) fn rest(&self) -> usize {
        self.rest
    }

    fn count(&mut self, head: &FrameHead) {
        self.rest = head.length;
        self.frames_heard += 1;
        let is_kept = head.kind == kind::HEADERS || head.kind == kind::DATA && !is_empty(head);
        self.kept_heard += u64::from(is_kept);
        self.fields.begin(head);
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
        self.fields_heard > FIELDS_MAX + begun * FIELDS_PER_REQUEST
            || self.others > max + (self.read + self.written) / BYTES_PER_FRAME
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
            fields_heard: 0,
            read: 0,
            written: 0,
            fields: std::mem::take(&mut self.fields),
            ..*self
        };
        true
    }
}

/// Whether a frame is of a body and has nothing in it, not even its end.
fn is_empty(head: &FrameHead) -> bool {
    head.kind == kind::DATA && head.length == 0 && !head.has(flag::END_STREAM)
}

#[cfg(test)]
mod tests {
    use super::{FIELDS_MAX, FIELDS_PER_REQUEST, FRAMES_MAX, FRAMES_PER_REQUEST, Noise, UNKNOWN};
    use crate::codec::frame::{flag, kind};
    use crate::net::deadline;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let mut bytes = u32::try_from(length).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.resize(9 + length, 0);
        bytes
    }

    /// Whether it is too much with these bytes.
    fn hear(noise: &mut Noise, bytes: &[u8], requests: u64) -> bool {
        assert_eq!(noise.hear(&mut bytes.to_vec()), 0);
        noise.is_too_much(requests, 0)
    }

    /// How many frames are read before there are too many, up to four times the most.
    fn heard(noise: &mut Noise, frame: &[u8], requests: u64) -> u64 {
        let all = 4 * FRAMES_MAX;
        let found = (0..all).find(|_| hear(noise, frame, requests));
        found.unwrap_or(all)
    }

    #[test]
    fn whatever_carries_nothing_has_a_bound_and_bodies_have_none() {
        let empty = [
            frame(kind::PING, 0, 8),
            frame(kind::SETTINGS, 0, 0),
            frame(kind::WINDOW_UPDATE, 0, 4),
            frame(kind::RST_STREAM, 0, 4),
            frame(kind::HEADERS, flag::END_HEADERS, 0),
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
        hear(&mut noise, &frame(kind::DATA, 0, 640), 0);
        assert_eq!(heard(&mut noise, &ping, 0), FRAMES_MAX + 20);
        let mut noise = Noise::new();
        noise.say(640);
        assert_eq!(heard(&mut noise, &window, 0), FRAMES_MAX + 80);
        (0..100).for_each(|_| deadline::tick());
        assert!(!hear(&mut noise, &window, 0));
        assert_eq!(heard(&mut noise, &window, 0), FRAMES_MAX);
    }

    #[test]
    fn fields_have_a_bound_that_requests_under_way_raise() {
        let head = [frame(kind::HEADERS, flag::END_HEADERS, 0), vec![0x88; 100]].concat();
        let head = [&[0, 0, 100][..], &head[3..]].concat();
        let heads = |requests| (FIELDS_MAX + requests * FIELDS_PER_REQUEST) / 100;
        assert_eq!(heard(&mut Noise::new(), &head, 0), heads(0));
        assert_eq!(heard(&mut Noise::new(), &head, 7), heads(7));
        let mut noise = Noise::new();
        (0..FRAMES_MAX + 100).for_each(|_| _ = noise.hear(&mut frame(kind::PING, 0, 8)));
        (0..100).for_each(|_| deadline::tick());
        // Time has passed, and seven requests of before are still to be answered.
        assert!(!noise.is_too_much(7, 7));
        assert_eq!(heard(&mut noise, &head, 7), heads(7));
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let all = [
            frame(kind::DATA, 0, 300),
            frame(kind::PING, 0, 8),
            frame(kind::DATA, 0, 0),
            frame(kind::DATA, flag::END_STREAM, 0),
        ]
        .concat();
        let mut expected = all.clone();
        expected[300 + 9 + 17 + 3] = UNKNOWN;
        for size in [1, 2, 3, 4, 5, 9, 10, 400] {
            let mut noise = Noise::new();
            let (mut passed, mut waiting) = (Vec::new(), Vec::new());
            for part in all.chunks(size) {
                waiting.extend_from_slice(part);
                let withheld = noise.hear(&mut waiting);
                passed.extend(waiting.drain(..waiting.len() - withheld));
            }
            assert_eq!(passed, expected, "{size}");
            assert_eq!(
                (noise.others, noise.read, noise.rest),
                (3, 300, 0),
                "{size}"
            );
            assert_eq!((noise.frames(), noise.kept()), (4, 2), "{size}");
        }
    }
}
