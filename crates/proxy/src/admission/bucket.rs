//! Buckets of tokens, shared by all workers without a lock.
//!
//! A bucket is one number: when all that was taken out of it is paid back (the generic cell rate
//! algorithm). One that has been paid back is as good as one that is not there, so a bucket may
//! be forgotten as soon as nobody is in its debt, and the table needs no sweeping.
//!
//! Beside them stand counts of what is going on at the same time. One that is at zero is as good as
//! one that is not there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use myriad_base::clock::{self, Instant};

/// The most buckets of a kind at a time. Beyond, one that is paid back is forgotten, or else the
/// one unused longest: who owes long, as by a slow rate, keeps no place that others use.
pub(crate) const BUCKETS_MAX: usize = 1 << 17;

/// How many places a bucket may be at.
const WAYS: usize = 8;

/// The part of a count that counts; the rest says whose it is.
const RUNNING: u64 = (1 << 24) - 1;

/// How often a count is tried to be changed while others change it.
const TRIES_MAX: usize = 32;

/// All buckets of a process.
pub struct Buckets {
    began: Instant,
    /// Buckets that all clients share, which no flood of clients may push out.
    common: OnceLock<Box<[Slot]>>,
    /// Buckets of one client each.
    clients: OnceLock<Box<[Slot]>>,
    /// Counts of what goes on at the same time.
    running: OnceLock<Box<[AtomicU64]>>,
}

/// A place among what goes on at the same time; it is free again once dropped.
pub struct Running {
    buckets: Arc<Buckets>,
    at: usize,
}

/// The outcome of a request for a place among what goes on at the same time.
pub enum Entered {
    /// It is counted.
    Yes(Running),
    /// There is no room to count it.
    Uncounted,
    /// There are as many already.
    Full,
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
    /// When it was last asked, in the same.
    used_at: AtomicU64,
}

impl Buckets {
    /// No buckets; a kind takes its memory (3 MiB, and counts a third of that) when the first of it
    /// is used.
    pub fn new() -> Self {
        Buckets {
            began: clock::now(),
            common: OnceLock::new(),
            clients: OnceLock::new(),
            running: OnceLock::new(),
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

    /// Takes one of `most` places of a key that is a hash.
    pub fn enter(self: &Arc<Self>, key: u64, most: u32) -> Entered {
        let slots = self.running.get_or_init(counts);
        match enter(slots, key, most.into()) {
            CountSlot::At(at) => Entered::Yes(Running {
                buckets: self.clone(),
                at,
            }),
            CountSlot::None => Entered::Uncounted,
            CountSlot::Full => Entered::Full,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let slots = self.buckets.running.get();
        if let Some(slot) = slots.and_then(|slots| slots.get(self.at)) {
            slot.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn counts() -> Box<[AtomicU64]> {
    (0..BUCKETS_MAX).map(|_| AtomicU64::new(0)).collect()
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
        slot.used_at.store(now, Ordering::Relaxed);
        return pay(slot, rate, now);
    }
    let oldest = set.iter().min_by_key(|slot| {
        let is_owing = slot.paid_at.load(Ordering::Relaxed) > now;
        (is_owing, slot.used_at.load(Ordering::Relaxed))
    });
    let Some(slot) = oldest else {
        return BucketOutcome::Yes;
    };
    // Two workers that make the same bucket at once make two, of which one is forgotten: a client
    // gets a token too many. One that still pays into a bucket that is being forgotten charges
    // the next owner, who gets one too few. Neither adds up.
    let evicts = slot.paid_at.swap(now, Ordering::Relaxed) > now;
    slot.key.store(key, Ordering::Relaxed);
    slot.used_at.store(now, Ordering::Relaxed);
    match pay(slot, rate, now) {
        BucketOutcome::Yes if evicts => BucketOutcome::Evicting,
        taken => taken,
    }
}

/// The place of a key in a table of counts.
#[derive(Debug, PartialEq, Eq)]
enum CountSlot {
    At(usize),
    None,
    Full,
}

fn enter(slots: &[AtomicU64], key: u64, most: u64) -> CountSlot {
    let sets = (slots.len() / WAYS).max(1) as u64;
    let start = (key % sets) as usize * WAYS;
    let set = slots.get(start..start + WAYS).unwrap_or_default();
    let whose = key & !RUNNING;
    for _ in 0..TRIES_MAX {
        let mut chosen = None;
        for (at, slot) in set.iter().enumerate() {
            let seen = slot.load(Ordering::Relaxed);
            let is_free = seen & RUNNING == 0;
            if !is_free && seen & !RUNNING == whose {
                chosen = Some((at, slot, seen));
                break;
            }
            if is_free && chosen.is_none() {
                chosen = Some((at, slot, seen));
            }
        }
        let Some((at, slot, seen)) = chosen else {
            return CountSlot::None;
        };
        let running = seen & RUNNING;
        if running >= most.min(RUNNING) {
            return CountSlot::Full;
        }
        // Two workers that begin a key at once may begin it at two places, if one becomes free
        // between their looks: for that long its client has places too many.
        let next = whose | (running + 1);
        let changed = slot.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed);
        if changed.is_ok() {
            return CountSlot::At(start + at);
        }
    }
    CountSlot::None
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
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::{
        BucketOutcome, Buckets, CountSlot, Entered, RUNNING, Rate, Slot, WAYS, enter, take,
    };

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
    fn so_many_go_on_at_once_and_a_place_that_is_left_is_free() {
        let buckets = Arc::new(Buckets::new());
        let enter = |key| match buckets.enter(key, 2) {
            Entered::Yes(running) => Some(running),
            Entered::Uncounted => panic!("there is room"),
            Entered::Full => None,
        };
        let key = 7 << 40;
        let (first, second) = (enter(key), enter(key));
        assert!(first.is_some() && second.is_some());
        assert!(enter(key).is_none());
        assert!(enter(8 << 40).is_some());
        drop(first);
        let third = enter(key);
        assert!(third.is_some() && enter(key).is_none());
        drop((second, third));
        let all = buckets.running.get().unwrap().iter();
        let ordering = super::Ordering::Relaxed;
        assert!(all.map(|it| it.load(ordering) & RUNNING).all(|it| it == 0));
    }

    #[test]
    fn where_all_places_are_somebody_elses_nobody_is_refused() {
        let slots: Vec<AtomicU64> = (0..WAYS).map(|_| AtomicU64::new(0)).collect();
        let key = |number: u64| number << 24;
        for number in 1..=WAYS as u64 {
            let place = enter(&slots, key(number), 1);
            assert_eq!(place, CountSlot::At(number as usize - 1));
            assert_eq!(enter(&slots, key(number), 1), CountSlot::Full);
        }
        assert_eq!(enter(&slots, key(99), 1), CountSlot::None);
    }

    #[test]
    fn a_full_table_forgets_who_asked_longest_ago_whatever_is_owed() {
        let (slots, slow) = (slots(WAYS), rate(1, 10));
        // The first owe most.
        for key in 1..=WAYS as u64 {
            for _ in key..=WAYS as u64 {
                take(&slots, key, slow, SECOND + key);
            }
        }
        assert_eq!(take(&slots, 99, slow, SECOND + 50), BucketOutcome::Evicting);
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
