//! When an object is looked at whose status is ours in part. What has changed may change again in a
//! moment, so a look has a time, and the same object is not written twice within [`INTERVAL`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use myriad_api::ObjectKey;
use myriad_base::clock::Instant;

use super::queue::{Queue, REST};

/// The shortest time between two writes of one object.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// The objects that are to be looked at.
pub(super) struct Schedule {
    /// Objects whose time has come.
    ready: Queue<()>,
    /// Objects whose time has not come, in the order of their times.
    later: BTreeSet<(Instant, ObjectKey)>,
    times: HashMap<ObjectKey, Instant>,
    /// When objects were written that may not be written again yet, in that order. An object that
    /// is there twice counts from the last time.
    written: VecDeque<(Instant, ObjectKey)>,
    last_writes: HashMap<ObjectKey, Instant>,
    waiting_max: usize,
}

impl Schedule {
    /// An empty schedule.
    pub(super) fn new(waiting_max: usize) -> Self {
        Schedule {
            ready: Queue::new(waiting_max),
            later: BTreeSet::new(),
            times: HashMap::new(),
            written: VecDeque::new(),
            last_writes: HashMap::new(),
            waiting_max: waiting_max.max(1),
        }
    }

    /// How many objects are to be looked at now.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// How many are to be looked at, now or later.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.later.len()
    }

    /// Whether an object is to be looked at, now or later.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.times.contains_key(key) || self.ready.has(key)
    }

    /// An object shall be looked at by this time. Returns whether one had to be forgotten for it.
    pub(super) fn look(&mut self, key: ObjectKey, at: Instant, now: Instant) -> bool {
        let last = self.last_writes.get(&key);
        let at = last.map_or(at, |last| at.max(*last + INTERVAL));
        let is_now = at <= now || self.later.len() >= self.waiting_max;
        if is_now {
            self.unschedule(&key);
            return self.ready.push(key, ());
        }
        let is_sooner = self.times.get(&key).is_some_and(|known| *known <= at);
        if !is_sooner && !self.ready.has(&key) {
            self.unschedule(&key);
            self.times.insert(key.clone(), at);
            self.later.insert((at, key));
        }
        false
    }

    /// An object that could not be looked at waits behind all others of its namespace.
    pub(super) fn put_back(&mut self, key: ObjectKey) {
        if !self.times.contains_key(&key) {
            self.ready.put_back(key, ());
        }
    }

    /// An object that others write time and again is looked at later.
    pub(super) fn rest(&mut self, key: ObjectKey, now: Instant) {
        self.look(key, now + REST, now);
    }

    /// An object was written.
    pub(super) fn note_written(&mut self, key: ObjectKey, now: Instant) {
        self.written.push_back((now, key.clone()));
        self.last_writes.insert(key, now);
    }

    /// Lets those be looked at whose time has come. Returns whether one had to be forgotten.
    pub(super) fn wake(&mut self, now: Instant) -> bool {
        while let Some((at, key)) = self.written.pop_front_if(|(at, _)| *at + INTERVAL <= now) {
            if self.last_writes.get(&key) == Some(&at) {
                self.last_writes.remove(&key);
            }
        }
        let mut has_forgotten = false;
        while self.next_wake().is_some_and(|at| at <= now) {
            if let Some((_, key)) = self.later.pop_first() {
                self.times.remove(&key);
                has_forgotten |= self.ready.push(key, ());
            }
        }
        has_forgotten
    }

    /// When the next one's time comes.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// The newest object of the namespace whose turn it is.
    pub(super) fn pop(&mut self) -> Option<ObjectKey> {
        self.ready.pop().map(|(key, ())| key)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.ready.clear();
        self.later.clear();
        self.times.clear();
        self.written.clear();
        self.last_writes.clear();
    }

    fn unschedule(&mut self, key: &ObjectKey) {
        if let Some(at) = self.times.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_base::clock;

    use super::{INTERVAL, Schedule};

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::HttpRoute, namespace, name)
    }

    fn names(schedule: &mut Schedule) -> Vec<String> {
        let all = std::iter::from_fn(|| schedule.pop());
        all.map(|key| key.name().to_owned()).collect()
    }

    #[test]
    fn an_object_is_looked_at_once_at_the_soonest_of_its_times() {
        let (mut schedule, now) = (Schedule::new(9), clock::now());
        let at = |milliseconds| now + Duration::from_millis(milliseconds);
        for time in [300, 200, 400] {
            assert!(!schedule.look(key("n", "a"), at(time), now));
        }
        schedule.look(key("n", "b"), at(500), now);
        assert_eq!((schedule.ready(), schedule.len()), (0, 2));
        assert_eq!(schedule.next_wake(), Some(at(200)));
        schedule.wake(at(199));
        assert_eq!(schedule.ready(), 0);
        schedule.wake(at(200));
        assert_eq!(names(&mut schedule), ["a"]);
        // What has become urgent does not wait for its time.
        schedule.look(key("n", "b"), at(200), at(200));
        assert_eq!((schedule.len(), schedule.next_wake()), (1, None));
        schedule.look(key("n", "b"), at(900), at(200));
        assert_eq!(names(&mut schedule), ["b"]);
        assert_eq!(schedule.len(), 0);
    }

    #[test]
    fn an_object_that_changes_all_the_time_is_written_once_in_a_while() {
        let (mut schedule, start) = (Schedule::new(9), clock::now());
        let mut writes = 0;
        for step in 0..100_u32 {
            let now = start + step * Duration::from_millis(50);
            schedule.look(key("n", "a"), now, now);
            schedule.wake(now);
            for _ in names(&mut schedule) {
                schedule.note_written(key("n", "a"), now);
                writes += 1;
            }
        }
        assert_eq!(writes, 5);
        schedule.wake(start + 100 * INTERVAL);
        assert!(schedule.last_writes.is_empty() && schedule.written.is_empty());
    }

    #[test]
    fn namespaces_take_turns_and_what_waits_is_bounded() {
        let (mut schedule, now) = (Schedule::new(10), clock::now());
        let later = now + INTERVAL;
        schedule.look(key("quiet", "q"), later, now);
        for number in 0..100 {
            schedule.look(key("loud", &number.to_string()), later, now);
        }
        assert!(schedule.later.len() <= 10 && schedule.ready() <= 10);
        assert!(schedule.wake(later), "some are forgotten");
        let turns = names(&mut schedule);
        assert_eq!((turns.len(), turns.iter().any(|it| it == "q")), (10, true));
        schedule.rest(key("n", "a"), now);
        schedule.put_back(key("n", "a"));
        assert_eq!((schedule.ready(), schedule.len()), (0, 1));
        schedule.clear();
        assert_eq!((schedule.len(), schedule.next_wake()), (0, None));
    }
}
