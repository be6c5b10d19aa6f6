//! The requests that wait for a connection of an upstream, of all workers together.
//!
//! For each connection that is freed or kept one of them is told, the one that has come first, and
//! not all of them, which would cost as much as there are for each. Who is told and does not find
//! it any more keeps its place; who has gone meanwhile hands the word on to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Requests that wait in line.
#[derive(Debug, Default)]
pub struct ConnectionLine {
    /// How many wait that have not been told.
    count: AtomicUsize,
    places: Mutex<LinePlaces>,
}

#[derive(Debug, Default)]
struct LinePlaces {
    /// The number of the one that came last.
    last: u64,
    /// Requests that have not been told since they last looked, by their numbers.
    waiting: BTreeMap<u64, InLine>,
    /// Their workers and numbers.
    of_workers: BTreeSet<(u64, u64)>,
}

#[derive(Debug)]
struct InLine {
    worker: u64,
    /// Set once it waits.
    waker: Option<Waker>,
}

/// The place of one request in a line, left when it is dropped.
#[derive(Debug)]
pub struct LinePlace<'a> {
    line: &'a ConnectionLine,
    worker: u64,
    /// Set with the first look.
    number: Option<u64>,
}

/// A number for one more worker whose requests stand in lines.
pub fn next_worker() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Relaxed)
}

impl ConnectionLine {
    /// Tells one request that there may be a connection for it: the first of a worker, or of all.
    /// False where nobody waits.
    pub fn tell(&self, worker: Option<u64>) -> bool {
        // Whoever comes while this looks for somebody sees what was freed before.
        fence(SeqCst);
        if self.count.load(Relaxed) == 0 {
            return false;
        }
        let told = self.with(|places| places.take_first(worker));
        let is_told = told.is_some();
        if let Some(waker) = told.and_then(|it| it.waker) {
            waker.wake();
        }
        is_told
    }

    /// Tells so many requests, the first of all, as far as there are any.
    pub fn tell_many(&self, count: u32) {
        // One by one, so that the line is free in between for whoever is woken.
        for _ in 0..count {
            if !self.tell(None) {
                return;
            }
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut LinePlaces) -> T) -> T {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut places);
        self.count.store(places.waiting.len(), Relaxed);
        changed
    }
}

impl LinePlaces {
    /// Puts a request into its place, and at the end where it has none; its number.
    fn enter(&mut self, number: Option<u64>, worker: u64) -> u64 {
        let number = number.unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        let new = InLine {
            worker,
            waker: None,
        };
        self.waiting.entry(number).or_insert(new);
        self.of_workers.insert((worker, number));
        number
    }

    fn take_first(&mut self, worker: Option<u64>) -> Option<InLine> {
        let first = match worker {
            None => self.waiting.keys().next().copied(),
            Some(worker) => {
                let mut own = self.of_workers.range((worker, 0)..=(worker, u64::MAX));
                own.next().map(|(_, number)| *number)
            }
        };
        self.take(first?)
    }

    fn take(&mut self, number: u64) -> Option<InLine> {
        let taken = self.waiting.remove(&number)?;
        self.of_workers.remove(&(taken.worker, number));
        Some(taken)
    }
}

impl<'a> LinePlace<'a> {
    /// A place that is taken with the first look, for a request of a worker.
    pub const fn new(line: &'a ConnectionLine, worker: u64) -> Self {
        LinePlace {
            line,
            worker,
            number: None,
        }
    }

    /// Begins a look around: from here on no word is missed, and who finds nothing may wait.
    pub fn look(&mut self) {
        let (number, worker) = (self.number, self.worker);
        let number = self.line.with(|places| places.enter(number, worker));
        self.number = Some(number);
        fence(SeqCst);
    }

    /// Ready once it was told since it last looked.
    pub fn poll_told(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some(number) = self.number else {
            return Poll::Ready(());
        };
        self.line.with(|places| {
            let Some(waiting) = places.waiting.get_mut(&number) else {
                return Poll::Ready(());
            };
            match &waiting.waker {
                Some(waker) if waker.will_wake(context.waker()) => {}
                _ => waiting.waker = Some(context.waker().clone()),
            }
            Poll::Pending
        })
    }
}

impl Drop for LinePlace<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else {
            return;
        };
        let was_told = self.line.with(|places| places.take(number)).is_none();
        // What it was told of may be a connection that its own worker keeps.
        if was_told && !self.line.tell(Some(self.worker)) {
            self.line.tell(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::{Context, Poll, Wake, Waker};

    use super::{ConnectionLine, LinePlace};

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A request of a worker that has looked, and waits.
    struct Waiting<'a> {
        place: LinePlace<'a>,
        woken: Arc<Woken>,
    }

    impl<'a> Waiting<'a> {
        fn new(line: &'a ConnectionLine, worker: u64) -> Self {
            let mut waiting = Waiting {
                place: LinePlace::new(line, worker),
                woken: Arc::default(),
            };
            assert!(waiting.waits());
            waiting
        }

        /// Looks, finds nothing, and waits, unless it was told meanwhile.
        fn waits(&mut self) -> bool {
            self.place.look();
            self.poll().is_pending()
        }

        fn poll(&self) -> Poll<()> {
            let waker = Waker::from(self.woken.clone());
            self.place.poll_told(&mut Context::from_waker(&waker))
        }

        fn woken(&self) -> usize {
            self.woken.0.load(Relaxed)
        }
    }

    fn woken(all: &[Waiting<'_>]) -> usize {
        all.iter().map(Waiting::woken).sum()
    }

    #[test]
    fn one_is_told_of_each_connection_and_the_first_comes_first() {
        let line = ConnectionLine::default();
        assert!(!line.tell(None));
        let mut all: Vec<_> = (0..1_000).map(|_| Waiting::new(&line, 0)).collect();
        for number in 0..10 {
            assert!(line.tell(None));
            assert_eq!(woken(&all), number + 1);
            assert_eq!(all[number].woken(), 1);
            assert!(all[number].poll().is_ready());
        }
        // Who found nothing is where it was, before all others.
        assert!(all[3].waits());
        assert!(line.tell(None));
        assert_eq!((all[3].woken(), woken(&all)), (2, 11));
    }

    #[test]
    fn so_many_are_told_as_there_is_room_for_and_no_more_than_wait() {
        let line = ConnectionLine::default();
        let all: Vec<_> = (0..10).map(|_| Waiting::new(&line, 0)).collect();
        line.tell_many(0);
        assert_eq!(woken(&all), 0);
        line.tell_many(3);
        assert_eq!((woken(&all[..3]), woken(&all)), (3, 3));
        line.tell_many(u32::MAX);
        assert_eq!(woken(&all), 10);
    }

    #[test]
    fn who_has_gone_hands_the_word_on_once() {
        let line = ConnectionLine::default();
        let mut all: Vec<_> = (0..100).map(|_| Waiting::new(&line, 0)).collect();
        // Who was not told tells nobody.
        drop(all.remove(0));
        assert_eq!(woken(&all), 0);
        assert!(line.tell(None));
        drop(all.remove(0));
        assert_eq!((all[0].woken(), woken(&all)), (1, 1));
        // It has looked since, and takes what it found with it.
        assert!(all[0].waits());
        drop(all.remove(0));
        assert_eq!(woken(&all), 0);
        while let Some(waiting) = all.pop() {
            assert!(waiting.poll().is_pending());
        }
        assert!(!line.tell(None));
        line.with(|places| assert!(places.waiting.is_empty() && places.of_workers.is_empty()));
    }

    #[test]
    fn what_a_worker_keeps_is_told_to_its_own_requests() {
        let line = ConnectionLine::default();
        let others: Vec<_> = (0..10).map(|_| Waiting::new(&line, 1)).collect();
        let own: Vec<_> = (0..2).map(|_| Waiting::new(&line, 2)).collect();
        assert!(line.tell(Some(2)));
        assert_eq!((own[0].woken(), woken(&own), woken(&others)), (1, 1, 0));
        drop(own);
        // Of those that have gone the second was told in place of the first, and then the others.
        assert_eq!((others[0].woken(), woken(&others)), (1, 1));
        assert!(!line.tell(Some(2)));
    }
}
