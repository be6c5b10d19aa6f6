//! Frames of HTTP/2, as far as they are counted beside the library that reads them.

use myriad_proxy::http::h2::flood::Frames;
use myriad_proxy::net::limits::{Limits, Reached};

/// What a client says before its first frame.
const PREFACE_BYTES: usize = 24;

/// Length, type, flags and stream of a frame.
const HEAD_BYTES: usize = 9;

/// So few that a short input can reach them.
fn limits() -> Limits {
    Limits {
        pings_max: 2,
        settings_max: 3,
        priorities_max: 1,
        window_updates_max: 4,
        ..Limits::default()
    }
}

/// However frames are cut, they are told apart alike, and a flood is seen exactly when there are
/// more of a kind than may be.
pub fn frames(bytes: &[u8]) -> bool {
    let expected = count(bytes);
    for size in [bytes.len().max(1), 1, 7, 10] {
        let mut frames = Frames::new(&limits());
        let found = bytes.chunks(size).find_map(|piece| frames.read(piece));
        assert_eq!(found, expected, "in pieces of {size}");
    }
    bytes.len() >= PREFACE_BYTES + HEAD_BYTES
}

/// The same, of all bytes at once.
fn count(bytes: &[u8]) -> Option<Reached> {
    let limits = limits();
    let (mut pings, mut settings, mut windows, mut others) = (0, 0, 0, 0);
    let mut rest = bytes.get(PREFACE_BYTES..)?;
    while let Some(([high, middle, low, kind, ..], behind)) = rest.split_first_chunk::<HEAD_BYTES>()
    {
        let (counted, max, limit) = match kind {
            0 | 1 | 3 | 5 | 7 | 9 => (&mut 0, 1, Reached::Pings),
            6 => (&mut pings, limits.pings_max, Reached::Pings),
            4 => (&mut settings, limits.settings_max, Reached::Settings),
            8 => (
                &mut windows,
                limits.window_updates_max,
                Reached::WindowUpdates,
            ),
            _ => (&mut others, limits.priorities_max, Reached::Priorities),
        };
        *counted += 1;
        if *counted > max {
            return Some(limit);
        }
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        rest = behind.get(length..)?;
    }
    None
}
