//! Lines of the log that others can cause as often as they like: few in a time, and each says how
//! many were left out before it.

use std::sync::{Mutex, PoisonError};

use crate::clock;

/// The most lines of an interval.
pub(super) const LINES_MAX: u32 = 20;

/// The interval in seconds.
const INTERVAL: i64 = 10;

/// The lines of one kind that were told of late.
pub struct SparseLines(Mutex<Told>);

struct Told {
    interval: i64,
    lines: u32,
    left_out: u64,
}

impl SparseLines {
    /// No line was told yet.
    pub const fn untold() -> Self {
        SparseLines(Mutex::new(Told {
            interval: i64::MIN,
            lines: 0,
            left_out: 0,
        }))
    }

    /// Makes room for one line; gives how many were left out before it. None where it is left out
    /// as well.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(clock::unix_seconds())
    }

    pub(super) fn admit_at(&self, now: i64) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let interval = now.div_euclid(INTERVAL);
        if told.interval != interval {
            told.interval = interval;
            told.lines = 0;
        }
        if told.lines == LINES_MAX {
            told.left_out += 1;
            return None;
        }
        told.lines += 1;
        Some(std::mem::take(&mut told.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::{LINES_MAX, SparseLines};

    #[test]
    fn lines_without_end_are_few_in_a_time_and_a_count() {
        let lines = SparseLines::untold();
        let told = (0..1_000).filter(|_| lines.admit_at(1_000).is_some());
        assert_eq!(told.count(), LINES_MAX as usize);
        assert_eq!(lines.admit_at(1_009), None);
        assert_eq!(lines.admit_at(1_010), Some(1_001 - u64::from(LINES_MAX)));
        assert_eq!(lines.admit_at(1_010), Some(0));
        // A clock that was set back tells as well.
        assert_eq!(lines.admit_at(-1), Some(0));
    }
}
