//! The connections and requests of an upstream, counted by all workers together, so that they can
//! be bounded.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::line::ConnectionLine;
use crate::telemetry::standard::Book;

/// The connections and requests that an upstream has in use.
#[derive(Debug, Default)]
pub struct Usage {
    counters: [AtomicU32; 4],
    /// See [`Usage::connections_max`].
    connections_max: AtomicU32,
    /// The book where its traffic is counted, once there was any.
    pub book: OnceLock<Arc<Book>>,
    /// Told whenever a connection is given back, or more of them are borne.
    pub freed: Notify,
    /// Requests of HTTP/1, and streams, that wait for a connection: for each that is given back
    /// one is told, and for each more that is borne.
    pub line: ConnectionLine,
    /// Tries of late, where a budget asks for them.
    recent: OnceLock<Box<Recent>>,
}

/// How many tries there were of late, by tenths of the time that counts.
#[derive(Debug, Default)]
struct Recent {
    /// The number of a tenth in the upper half, and its tries in the lower.
    tenths: [AtomicU64; TENTHS],
}

/// The parts that a time is counted in.
const TENTHS: usize = 10;

/// A thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageKind {
    /// Connections, open or being opened.
    Connections,
    /// Requests that wait for a connection.
    Pending,
    /// Requests in flight.
    Requests,
    /// Repetitions in flight.
    Retries,
}

/// One of something; given back when it is dropped.
#[derive(Debug)]
pub struct HeldUsage {
    usage: Arc<Usage>,
    counted: UsageKind,
}

impl Usage {
    /// How many there are.
    pub fn count(&self, counted: UsageKind) -> u32 {
        self.counters[counted as usize].load(Relaxed)
    }

    /// The most connections that the upstream bears at present; 0 for no bound. Requests that wait
    /// for one may have begun before it was changed.
    pub fn connections_max(&self) -> u32 {
        self.connections_max.load(Relaxed)
    }

    /// Takes note of how many connections the upstream bears from now on. Of the requests that wait
    /// for one as many are told as there is room for now, beyond what there was before.
    pub fn bear(&self, max: u32) {
        let before = self.connections_max.swap(max, Relaxed);
        let more = match (before, max) {
            // Nobody waits without a bound.
            (0, _) => 0,
            (_, 0) => u32::MAX,
            _ => {
                let room = max.saturating_sub(self.count(UsageKind::Connections));
                max.saturating_sub(before).min(room)
            }
        };
        if more > 0 {
            self.freed.notify_waiters();
            self.line.tell_many(more);
        }
    }

    /// Counts a try for this time.
    pub fn note_try(&self, interval: Duration, now_ms: u64) {
        let recent = self.recent.get_or_init(Box::default);
        let now = tenth(interval, now_ms);
        let Some(slot) = recent.tenths.get(now as usize % TENTHS) else {
            return;
        };
        let one_more = |packed: u64| {
            let is_now = (packed >> 32) as u32 == now;
            let count = if is_now { packed as u32 } else { 0 };
            Some(u64::from(now) << 32 | u64::from(count.saturating_add(1)))
        };
        let _ = slot.fetch_update(Relaxed, Relaxed, one_more);
    }

    /// The tries within this time.
    pub fn tries(&self, interval: Duration, now_ms: u64) -> u32 {
        let Some(recent) = self.recent.get() else {
            return 0;
        };
        let now = tenth(interval, now_ms);
        let counts = recent.tenths.iter().map(|slot| {
            let packed = slot.load(Relaxed);
            let age = now.wrapping_sub((packed >> 32) as u32);
            if (age as usize) < TENTHS {
                packed as u32
            } else {
                0
            }
        });
        counts.fold(0, u32::saturating_add)
    }
}

/// The number of the present tenth, beginning anew after very long.
fn tenth(interval: Duration, now_ms: u64) -> u32 {
    let length = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX) / TENTHS as u64;
    (now_ms / length.max(1)) as u32
}

impl HeldUsage {
    /// One more, unless there are `max` already; 0 stands for no bound.
    pub fn take(usage: &Arc<Usage>, counted: UsageKind, max: u32) -> Option<Self> {
        let counter = &usage.counters[counted as usize];
        // Not taken and given back, which would tell those who wait that there is room.
        let one_more = |count: u32| (max == 0 || count < max).then_some(count + 1);
        counter.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        Some(HeldUsage {
            usage: usage.clone(),
            counted,
        })
    }
}

impl HeldUsage {
    /// The usage that it is counted in.
    pub fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }
}

impl Drop for HeldUsage {
    fn drop(&mut self) {
        self.usage.counters[self.counted as usize].fetch_sub(1, Relaxed);
        if self.counted == UsageKind::Connections {
            self.usage.freed.notify_waiters();
            self.usage.line.tell(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::time::Duration;

    use super::{HeldUsage, Usage, UsageKind};

    #[test]
    fn tries_count_for_as_long_as_it_is_said() {
        let (usage, second) = (Usage::default(), Duration::from_secs(1));
        assert_eq!(usage.tries(second, 5_000), 0);
        for now in [5_000, 5_050, 5_400, 5_950] {
            usage.note_try(second, now);
        }
        assert_eq!(usage.tries(second, 5_960), 4);
        assert_eq!(usage.tries(second, 6_010), 2);
        usage.note_try(second, 6_020);
        assert_eq!(usage.tries(second, 6_450), 2);
        assert_eq!(usage.tries(second, 9_000), 0);
    }

    #[test]
    fn the_bound_is_the_one_that_was_told_last() {
        let usage = Usage::default();
        assert_eq!(usage.connections_max(), 0);
        for max in [3, 5, 0, 1] {
            usage.bear(max);
            assert_eq!(usage.connections_max(), max);
        }
    }

    #[test]
    fn there_is_no_more_than_the_bound_and_what_is_given_back_counts_no_more() {
        let usage = Arc::new(Usage::default());
        let take = |max| HeldUsage::take(&usage, UsageKind::Requests, max);
        let first = take(2).unwrap();
        let _second = take(2).unwrap();
        assert!(take(2).is_none());
        assert_eq!(usage.count(UsageKind::Requests), 2);
        assert!(take(0).is_some());
        drop(first);
        assert!(take(2).is_some());
        assert_eq!(usage.count(UsageKind::Requests), 1);
        assert_eq!(usage.count(UsageKind::Retries), 0);
    }
}
