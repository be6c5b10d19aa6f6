//! Buckets of tokens, shared by all workers without a lock.
//!
//! A bucket is one number: when all that was taken out of it is paid back (the generic cell rate
//! algorithm). One that has been paid back is as good as one that is not there, so a bucket may
//! be forgotten as soon as nobody is in its debt, and the table needs no sweeping.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use myriad_base::clock::{self, Instant};

/// The most buckets of a kind at a time. Beyond, the one nearest to being paid back is forgotten.
pub const BUCKETS_MAX: usize = 1 << 17;

/// How many places a bucket may be at.
const WAYS: usize = 8;

/// All buckets of a process.
pub struct Buckets {
    began: Instant,
    /// Buckets that all clients share, which no flood of clients may push out.
    common: OnceLock<Box<[Slot]>>,
    /// Buckets of one client each.
    clients: OnceLock<Box<[Slot]>>,
}

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time from one token to the next.
    pub spacing: Duration,
    /// How many tokens may be taken at once beside the first.
    pub burst: u32,
}

/// The outcome of a request for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketOutcome {
    /// It was there.
    Yes,
    /// It was there, and a bucket that somebody is in debt of was forgotten for its place.
    Evicting,
    /// It will be there in this time.
    No(Duration),
}

#[derive(Default)]
struct Slot {
    /// 0 for none.
    key: AtomicU64,
    /// When it is paid back, in nanoseconds since the beginning.
    paid_at: AtomicU64,
}

impl Buckets {
    /// No buckets; a kind takes its memory (2 MiB) when the first of it is used.
    pub fn new() -> Self {
        Buckets {
            began: clock::now(),
            common: OnceLock::new(),
            clients: OnceLock::new(),
        }
    }

    /// Takes a token out of the bucket of a key that is a hash.
    pub fn take(&self, key: u64, is_of_client: bool, rate: Rate) -> BucketOutcome {
        let now = nanoseconds(clock::now().duration_since(self.began));
        let slots = match is_of_client {
            true => &self.clients,
            false => &self.common,
        };
        let slots = slots.get_or_init(|| (0..BUCKETS_MAX).map(|_| Slot::default()).collect());
        take(slots, key.max(1), rate, now)
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Buckets::new()
    }
}

fn take(slots: &[Slot], key: u64, rate: Rate, now: u64) -> BucketOutcome {
    let sets = (slots.len() / WAYS).max(1) as u64;
    let start = (key % sets) as usize * WAYS;
    let set = slots.get(start..start + WAYS).unwrap_or_default();
    let known = set
        .iter()
        .find(|slot| slot.key.load(Ordering::Relaxed) == key);
    if let Some(slot) = known {
        return pay(slot, rate, now);
    }
    let oldest = set
        .iter()
        .min_by_key(|slot| slot.paid_at.load(Ordering::Relaxed));
    let Some(slot) = oldest else {
        return BucketOutcome::Yes;
    };
    // Two workers that make the same bucket at once make two, of which one is forgotten: a client
    // gets a token too many. One that still pays into a bucket that is being forgotten charges
    // the next owner, who gets one too few. Neither adds up.
    let evicts = slot.paid_at.swap(now, Ordering::Relaxed) > now;
    slot.key.store(key, Ordering::Relaxed);
    match pay(slot, rate, now) {
        BucketOutcome::Yes if evicts => BucketOutcome::Evicting,
        taken => taken,
    }
}

fn pay(slot: &Slot, rate: Rate, now: u64) -> BucketOutcome {
    let spacing = nanoseconds(rate.spacing);
    let credit = spacing.saturating_mul(rate.burst.into());
    let paid = slot
        .paid_at
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_at| {
            let from = paid_at.max(now);
            (from - now <= credit).then(|| from.saturating_add(spacing))
        });
    match paid {
        Ok(_) => BucketOutcome::Yes,
        Err(paid_at) => {
            let wait = paid_at.saturating_sub(now).saturating_sub(credit);
            BucketOutcome::No(Duration::from_nanos(wait))
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BucketOutcome, Rate, Slot, WAYS, take};

    const SECOND: u64 = 1_000_000_000;

    fn slots(count: usize) -> Vec<Slot> {
        (0..count).map(|_| Slot::default()).collect()
    }

    fn rate(per_second: u64, burst: u32) -> Rate {
        Rate {
            spacing: Duration::from_nanos(SECOND / per_second),
            burst,
        }
    }

    #[test]
    fn a_bucket_gives_what_it_holds_at_once_and_then_what_it_is_filled_with() {
        let (slots, rate) = (slots(WAYS), rate(10, 4));
        for _ in 0..5 {
            assert_eq!(take(&slots, 7, rate, SECOND), BucketOutcome::Yes);
        }
        let wait = BucketOutcome::No(Duration::from_millis(100));
        assert_eq!(take(&slots, 7, rate, SECOND), wait);
        // Asking in vain costs nothing.
        assert_eq!(take(&slots, 7, rate, SECOND), wait);
        assert_eq!(
            take(&slots, 7, rate, SECOND + SECOND / 10),
            BucketOutcome::Yes
        );
        assert!(matches!(
            take(&slots, 7, rate, SECOND + SECOND / 10),
            BucketOutcome::No(_)
        ));
        // A second later ten would be there, but it holds five.
        for _ in 0..5 {
            assert_eq!(take(&slots, 7, rate, 3 * SECOND), BucketOutcome::Yes);
        }
        assert!(matches!(
            take(&slots, 7, rate, 3 * SECOND),
            BucketOutcome::No(_)
        ));
    }

    #[test]
    fn keys_do_not_pay_for_each_other() {
        let (slots, rate) = (slots(WAYS), rate(1, 0));
        for key in 1..=WAYS as u64 {
            assert_eq!(take(&slots, key, rate, SECOND), BucketOutcome::Yes, "{key}");
        }
        for key in 1..=WAYS as u64 {
            assert!(matches!(
                take(&slots, key, rate, SECOND),
                BucketOutcome::No(_)
            ));
        }
    }

    #[test]
    fn a_full_table_forgets_who_owes_least() {
        let (slots, slow) = (slots(WAYS), rate(1, 10));
        for key in 1..=WAYS as u64 {
            for _ in 0..key {
                take(&slots, key, slow, SECOND);
            }
        }
        assert_eq!(take(&slots, 99, slow, SECOND), BucketOutcome::Evicting);
        let owes = |key: u64| {
            slots
                .iter()
                .any(|slot| slot.key.load(super::Ordering::Relaxed) == key)
        };
        assert!(!owes(1) && (2..=WAYS as u64).all(owes) && owes(99));
        // Whoever has paid back is forgotten without anybody's loss.
        assert_eq!(take(&slots, 100, slow, 100 * SECOND), BucketOutcome::Yes);
    }
}
