//! Lines of the log about proxies that are refused: few in a time, since who is refused comes
//! again, and the rest is counted.

use std::sync::{Mutex, PoisonError};

use myriad_base::log::suppressed::Topic;

/// The most lines of an interval.
const LINES_MAX: usize = 20;
/// The interval in seconds.
const INTERVAL: i64 = 10;

/// The lines that were told of late.
#[derive(Default)]
pub(super) struct Lines(Mutex<(i64, usize)>);

impl Lines {
    /// Whether there is room for a line, at a time in Unix seconds.
    pub(super) fn admit(&self, now: i64) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let interval = now.div_euclid(INTERVAL);
        if told.0 != interval {
            *told = (interval, 0);
        }
        let is_admitted = told.1 < LINES_MAX;
        match is_admitted {
            true => told.1 += 1,
            false => Topic::Peer.suppress(),
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::{LINES_MAX, Lines};

    #[test]
    fn refusals_without_end_are_a_bounded_number_of_lines() {
        let lines = Lines::default();
        let admitted = (0..1_000).filter(|_| lines.admit(1_000)).count();
        assert_eq!(admitted, LINES_MAX);
        assert!(!lines.admit(1_009));
        assert!(lines.admit(1_010));
    }
}
