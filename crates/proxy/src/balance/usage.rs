//! What an upstream has in use, counted by all workers together, so that it can be bounded.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use crate::net::standard::Book;

/// What an upstream has in use.
#[derive(Debug, Default)]
pub struct Usage {
    counters: [AtomicU32; 4],
    /// Where its traffic is counted, once there was any.
    pub book: OnceLock<Arc<Book>>,
    /// Told whenever a connection is given back.
    pub freed: Notify,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
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
pub struct Held {
    usage: Arc<Usage>,
    counted: Counted,
}

impl Usage {
    /// How many there are.
    pub fn count(&self, counted: Counted) -> u32 {
        self.counters[counted as usize].load(Relaxed)
    }
}

impl Held {
    /// One more, unless there are `max` already; 0 stands for no bound.
    pub fn take(usage: &Arc<Usage>, counted: Counted, max: u32) -> Option<Self> {
        let counter = &usage.counters[counted as usize];
        // Not taken and given back, which would tell those who wait that there is room.
        let one_more = |count: u32| (max == 0 || count < max).then_some(count + 1);
        counter.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        Some(Held {
            usage: usage.clone(),
            counted,
        })
    }
}

impl Held {
    /// What it is one of.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.usage.counters[self.counted as usize].fetch_sub(1, Relaxed);
        if self.counted == Counted::Connections {
            self.usage.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Counted, Held, Usage};

    #[test]
    fn there_is_no_more_than_the_bound_and_what_is_given_back_counts_no_more() {
        let usage = Arc::new(Usage::default());
        let take = |max| Held::take(&usage, Counted::Requests, max);
        let first = take(2).unwrap();
        let _second = take(2).unwrap();
        assert!(take(2).is_none());
        assert_eq!(usage.count(Counted::Requests), 2);
        assert!(take(0).is_some());
        drop(first);
        assert!(take(2).is_some());
        assert_eq!(usage.count(Counted::Requests), 1);
        assert_eq!(usage.count(Counted::Retries), 0);
    }
}
