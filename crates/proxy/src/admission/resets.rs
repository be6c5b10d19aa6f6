//! Streams of HTTP/2 that clients have given up, by the sources of these: a client that opens a
//! connection for each few of them has no more than one that stays.
//!
//! There is no entry for each source, as in [`super::share`]: each has a place in two rows of
//! counts by its hash, and the lower of the two is what it has reset at most. A place forgets after
//! a while, and each stream that was served makes up for one that was reset.

use std::cell::Cell;

use super::spaces::{PLACES, spots};
use crate::limits::FRAMES_TIME;
use crate::net::deadline::{TICK, now_ticks};

/// So many connections with as many resets as one may have make a source one that floods.
const CONNECTIONS: usize = 8;

/// The part of its resets that a connection may have once its source floods.
const PART: usize = 8;

/// How long a place counts before it forgets, in ticks.
const TICKS: u128 = FRAMES_TIME.as_millis() / TICK.as_millis();

/// The resets at a place, and the tick at which it began to count them.
type Count = Cell<(u32, u32)>;

/// The resets of one worker's clients by their sources.
pub struct SourceResets {
    rows: [Box<[Count]>; 2],
    /// The most resets of a connection.
    connection_max: usize,
}

impl SourceResets {
    /// Nobody has reset anything. A connection may have so many resets.
    pub fn new(connection_max: usize) -> Self {
        let row = || vec![Cell::new((0, 0)); PLACES].into_boxed_slice();
        SourceResets {
            rows: [row(), row()],
            connection_max,
        }
    }

    /// Takes note of a stream that a source's client has reset.
    pub fn add(&self, source: u64) {
        let now = now_ticks();
        for place in self.places(source) {
            place.set(match counted(place, now) {
                0 => (now, 1),
                count => (place.get().0, count.saturating_add(1)),
            });
        }
    }

    /// Takes note of a stream that was served to its end.
    pub fn make_up(&self, source: u64) {
        for place in self.places(source) {
            let (since, count) = place.get();
            place.set((since, count.saturating_sub(1)));
        }
    }

    /// Whether a source floods: what it has reset in a while would end several connections.
    pub fn is_flood(&self, source: u64) -> bool {
        let now = now_ticks();
        let counts = self.places(source).map(|place| counted(place, now));
        let count = counts.min().unwrap_or(0);
        count as usize > self.connection_max.saturating_mul(CONNECTIONS)
    }

    /// Whether a connection has more resets than it may.
    pub fn is_too_many(&self, source: u64, resets: usize) -> bool {
        let max = self.connection_max;
        resets > max || (resets > max / PART && self.is_flood(source))
    }

    fn places(&self, source: u64) -> impl Iterator<Item = &Count> {
        let rows = self.rows.iter().zip(spots(source));
        rows.filter_map(|(row, spot)| row.get(usize::from(spot)))
    }
}

/// The resets at a place that are not forgotten yet.
fn counted(place: &Count, now: u32) -> u32 {
    let (since, count) = place.get();
    match u128::from(now.wrapping_sub(since)) < TICKS {
        true => count,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{CONNECTIONS, PART, SourceResets};
    use crate::net::deadline;

    const MAX: usize = 64;

    /// Two sources, by hashes that have no place in common.
    const SOURCES: [u64; 2] = [(3 << 32) | 1, (4 << 32) | 2];

    /// The resets of a source that one connection may have.
    fn allowed(resets: &SourceResets, source: u64) -> usize {
        let mut counts = 0..;
        let first = counts.find(|count| resets.is_too_many(source, *count));
        first.unwrap() - 1
    }

    /// Each connection had all of its resets, however many of a source came one after the other.
    #[test]
    fn connections_of_a_source_that_floods_have_a_part_of_their_resets() {
        let [source, other] = SOURCES;
        let resets = SourceResets::new(MAX);
        for _ in 0..CONNECTIONS * MAX {
            resets.add(source);
        }
        assert_eq!(allowed(&resets, source), MAX);
        resets.add(source);
        assert_eq!(allowed(&resets, source), MAX / PART);
        assert_eq!(allowed(&resets, other), MAX);
    }

    #[test]
    fn streams_that_were_served_make_up_for_others_and_time_forgives() {
        let [source, _] = SOURCES;
        let resets = SourceResets::new(MAX);
        resets.make_up(source);
        for _ in 0..=CONNECTIONS * MAX {
            resets.add(source);
        }
        assert!(resets.is_flood(source));
        resets.make_up(source);
        assert!(!resets.is_flood(source));
        resets.add(source);
        (0..99).for_each(|_| deadline::tick());
        assert!(resets.is_flood(source));
        deadline::tick();
        assert!(!resets.is_flood(source));
        // And counting begins anew.
        resets.add(source);
        assert_eq!(resets.rows[0][1].get().1, 1);
    }
}
