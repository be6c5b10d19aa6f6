//! Frames that ask for nothing: counted as they are read, since each costs the proxy something
//! and the client next to nothing.

use crate::codec::frame::{FrameHead, flag, kind};
use crate::limits::{FRAME_CREDIT_BYTES, FRAMES_TIME, LATE_HEAD_BYTES, Limits, Reached};
use crate::net::deadline::{TICK, now_ticks};

/// The number of kinds that are counted.
const KINDS: usize = 6;

/// The place of frames for ended streams among the counts.
const LATE: usize = 5;

/// Counts the frames of a connection.
pub(super) struct Frames {
    counts: [u32; KINDS],
    maxima: [u32; KINDS],
    /// The bytes that had been sent to the client when counting began.
    sent: u64,
    /// The tick when counting began.
    since: u32,
    /// CONTINUATION frames of the head that is being read.
    of_head: u32,
    of_head_max: u32,
}

/// The limits of the kinds, in the order of the counts.
const NAMES: [Reached; KINDS] = [
    Reached::Pings,
    Reached::Settings,
    Reached::Priorities,
    Reached::WindowUpdates,
    Reached::DataFrames,
    Reached::LateFrames,
];

impl Frames {
    /// The counts of a connection that has received nothing.
    pub(super) fn new(limits: &Limits) -> Self {
        Frames {
            counts: [0; KINDS],
            maxima: [
                limits.pings_max,
                limits.settings_max,
                limits.priorities_max,
                limits.window_updates_max,
                limits.data_frames_max,
                limits.late_frames_max,
            ],
            sent: 0,
            since: now_ticks(),
            of_head: 0,
            of_head_max: limits.head_frames_max,
        }
    }

    /// Counts a frame of a client that was sent so many bytes since it came; says of what there is
    /// too much.
    pub(super) fn count(&mut self, head: &FrameHead, sent: u64) -> Option<Reached> {
        let index = match head.kind {
            // A connection ends where streams are reset too often, or what has ended is; and with
            // any of the others.
            kind::RST_STREAM | kind::PUSH_PROMISE | kind::GOAWAY => return None,
            kind::HEADERS => {
                self.of_head = 0;
                return None;
            }
            kind::CONTINUATION => {
                self.of_head += 1;
                return (self.of_head > self.of_head_max).then_some(Reached::HeadFrames);
            }
            kind::DATA if head.length > 0 || head.has(flag::END_STREAM) => return None,
            kind::PING => 0,
            kind::SETTINGS => 1,
            kind::WINDOW_UPDATE => 3,
            kind::DATA => 4,
            _ => 2,
        };
        self.add(index, 1, sent)
    }

    /// Counts a frame for a stream that has ended, or that is refused, and the head in it by the
    /// bytes that it unpacks to; says of what there is too much.
    pub(super) fn count_late(&mut self, head_bytes: usize, sent: u64) -> Option<Reached> {
        let more = u32::try_from(head_bytes / LATE_HEAD_BYTES).unwrap_or(u32::MAX);
        self.add(LATE, more.saturating_add(1), sent)
    }

    fn add(&mut self, index: usize, frames: u32, sent: u64) -> Option<Reached> {
        let (count, max) = (self.counts.get_mut(index)?, *self.maxima.get(index)?);
        *count = count.saturating_add(frames);
        let credit = sent.saturating_sub(self.sent) / FRAME_CREDIT_BYTES;
        if u64::from(*count) <= u64::from(max) + credit {
            return None;
        }
        let now = now_ticks();
        let ticks = FRAMES_TIME.as_millis() / TICK.as_millis();
        if u128::from(now.wrapping_sub(self.since)) < ticks {
            return NAMES.get(index).copied();
        }
        self.counts = [0; KINDS];
        self.sent = sent;
        self.since = now;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Frames;
    use crate::codec::frame::{FrameHead, flag, kind};
    use crate::limits::{Limits, Reached};
    use crate::net::deadline;

    fn frame(kind: u8, length: usize) -> FrameHead {
        let (flags, stream) = (0, 1);
        FrameHead {
            length,
            kind,
            flags,
            stream,
        }
    }

    fn small() -> Limits {
        Limits {
            pings_max: 3,
            settings_max: 2,
            priorities_max: 1,
            window_updates_max: 2,
            data_frames_max: 2,
            late_frames_max: 5,
            head_frames_max: 2,
            ..Limits::default()
        }
    }

    #[test]
    fn each_kind_has_its_own_count_and_what_asks_for_something_has_none() {
        for (kind, limit, max) in [
            (kind::PING, Reached::Pings, 3),
            (kind::SETTINGS, Reached::Settings, 2),
            (kind::PRIORITY, Reached::Priorities, 1),
            (0x10, Reached::Priorities, 1),
            (kind::WINDOW_UPDATE, Reached::WindowUpdates, 2),
            (kind::DATA, Reached::DataFrames, 2),
            (kind::CONTINUATION, Reached::HeadFrames, 2),
        ] {
            let mut frames = Frames::new(&small());
            for other in [kind::DATA, kind::HEADERS, kind::RST_STREAM] {
                (0..9).for_each(|_| assert_eq!(frames.count(&frame(other, 1), 0), None));
            }
            let last = FrameHead {
                flags: flag::END_STREAM,
                ..frame(kind::DATA, 0)
            };
            (0..9).for_each(|_| assert_eq!(frames.count(&last, 0), None));
            (0..max).for_each(|_| assert_eq!(frames.count(&frame(kind, 0), 0), None));
            assert_eq!(frames.count(&frame(kind, 0), 0), Some(limit), "type {kind}");
        }
    }

    #[test]
    fn frames_for_ended_streams_count_by_what_their_heads_unpack_to() {
        let late = Some(Reached::LateFrames);
        let mut frames = Frames::new(&small());
        (0..5).for_each(|_| assert_eq!(frames.count_late(4_095, 0), None));
        assert_eq!(frames.count_late(0, 0), late);
        assert_eq!(
            frames.count_late(0, 128),
            None,
            "two more for what was sent"
        );
        assert_eq!(frames.count_late(0, 128), late);
        (0..100).for_each(|_| deadline::tick());
        assert_eq!(frames.count_late(0, 128), None);
        let mut frames = Frames::new(&small());
        assert_eq!(frames.count_late(16 << 10, 0), None);
        assert_eq!(frames.count_late(0, 0), late);
        let mut frames = Frames::new(&small());
        assert_eq!(frames.count_late(20 << 10, 0), late);
        assert_eq!(frames.count(&frame(kind::PING, 8), 0), None);
    }

    #[test]
    fn who_was_sent_much_may_say_more_and_time_forgives() {
        let mut frames = Frames::new(&small());
        let opened = frame(kind::WINDOW_UPDATE, 4);
        for _ in 0..12 {
            assert_eq!(frames.count(&opened, 64 * 10), None);
        }
        let too_many = Some(Reached::WindowUpdates);
        assert_eq!(frames.count(&opened, 64 * 10), too_many);
        (0..100).for_each(|_| deadline::tick());
        assert_eq!(frames.count(&opened, 64 * 10), None);
        (0..2).for_each(|_| assert_eq!(frames.count(&opened, 64 * 10), None));
        assert_eq!(
            frames.count(&opened, 64 * 10),
            too_many,
            "what was sent before is used up"
        );
    }
}
