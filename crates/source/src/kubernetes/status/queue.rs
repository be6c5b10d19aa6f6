//! The objects whose status is to be looked at: namespaces take turns, and of each its newest wish
//! goes first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use myriad_api::ObjectKey;
use myriad_base::clock::Instant;

use super::super::turns::Turns;

/// How long an object rests whose writes others came before.
pub(super) const REST: Duration = Duration::from_secs(1);

/// The statuses that wait to be written, each with what it shall be.
pub(super) struct Queue<W> {
    wanted: HashMap<ObjectKey, (i64, W)>,
    /// The keys by namespace and rank; the highest of a namespace is next.
    order: BTreeMap<(Box<str>, i64), ObjectKey>,
    turns: Turns,
    highest: i64,
    lowest: i64,
    waiting_max: usize,
    /// Objects that rest, and until when.
    resting: HashMap<ObjectKey, (Instant, W)>,
    /// The same in the order in which they end. A newer wish for an object leaves its entry here.
    rests: VecDeque<(Instant, ObjectKey)>,
}

impl<W> Queue<W> {
    /// An empty queue.
    pub(super) fn new(waiting_max: usize) -> Self {
        Queue {
            wanted: HashMap::new(),
            order: BTreeMap::new(),
            turns: Turns::default(),
            highest: 0,
            lowest: 0,
            waiting_max: waiting_max.max(1),
            resting: HashMap::new(),
            rests: VecDeque::new(),
        }
    }

    /// How many wait, beside those that rest.
    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// How many rest.
    pub(super) fn resting(&self) -> usize {
        self.resting.len()
    }

    /// The newest wish. Returns whether one had to be forgotten for it: the oldest of the namespace
    /// that has most.
    pub(super) fn push(&mut self, key: ObjectKey, wish: W) -> bool {
        self.resting.remove(&key);
        self.highest += 1;
        self.insert(self.highest, key, wish);
        if self.wanted.len() <= self.waiting_max {
            return false;
        }
        let largest = self.turns.largest().map(Box::from);
        let oldest = largest.and_then(|namespace| {
            let mut all = self.order.range((namespace, i64::MIN)..);
            all.next().map(|(_, key)| key.clone())
        });
        if let Some(oldest) = oldest {
            self.take(&oldest);
        }
        true
    }

    /// A wish that failed waits behind all others of its namespace, unless there is a newer one for
    /// its object.
    pub(super) fn put_back(&mut self, key: ObjectKey, wish: W) {
        let is_known = self.wanted.contains_key(&key) || self.resting.contains_key(&key);
        if is_known || self.wanted.len() >= self.waiting_max {
            return;
        }
        self.lowest -= 1;
        self.insert(self.lowest, key, wish);
    }

    /// A wish whose object others write rests, and delays nobody; not if there is a newer one.
    pub(super) fn rest(&mut self, key: ObjectKey, wish: W, now: Instant) {
        if self.wanted.contains_key(&key) || self.resting.len() >= self.waiting_max {
            return;
        }
        let until = now + REST;
        self.rests.push_back((until, key.clone()));
        self.resting.insert(key, (until, wish));
    }

    /// Puts back those that have rested.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some((until, key)) = self.rests.pop_front_if(|(until, _)| *until <= now) {
            let is_of = self.resting.get(&key).is_some_and(|it| it.0 == until);
            let rested = is_of.then(|| self.resting.remove(&key)).flatten();
            if let Some((_, wish)) = rested {
                self.put_back(key, wish);
            }
        }
    }

    /// When the next one has rested.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.rests.front().map(|(until, _)| *until)
    }

    /// The newest wish of the namespace whose turn it is.
    pub(super) fn pop(&mut self) -> Option<(ObjectKey, W)> {
        let namespace = self.turns.next()?;
        let all = (namespace.clone(), i64::MIN)..=(namespace, i64::MAX);
        let (_, key) = self.order.range(all).next_back()?;
        let key = key.clone();
        let wish = self.take(&key)?;
        Some((key, wish))
    }

    /// Whether an object waits, beside those that rest.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.wanted.contains_key(key)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.wanted.clear();
        self.order.clear();
        self.turns.clear();
        self.resting.clear();
        self.rests.clear();
    }

    fn take(&mut self, key: &ObjectKey) -> Option<W> {
        let (rank, wish) = self.wanted.remove(key)?;
        self.order.remove(&(key.namespace().into(), rank));
        self.turns.remove(key.namespace());
        Some(wish)
    }

    fn insert(&mut self, rank: i64, key: ObjectKey, wish: W) {
        self.take(&key);
        self.turns.add(key.namespace());
        self.order
            .insert((key.namespace().into(), rank), key.clone());
        self.wanted.insert(key, (rank, wish));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Address;
    use super::{Queue, REST};
    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_base::clock;
    use std::sync::Arc;

    fn key(name: &str) -> ObjectKey {
        of("n", name)
    }

    fn of(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::Ingress, namespace, name)
    }

    fn names(queue: &mut Queue<Arc<[Address]>>) -> Vec<String> {
        std::iter::from_fn(|| queue.pop())
            .map(|(key, _)| key.name().to_owned())
            .collect()
    }

    fn nothing() -> Arc<[Address]> {
        Arc::default()
    }

    #[test]
    fn the_newest_is_first_and_what_failed_is_last() {
        let mut queue = Queue::new(10);
        for name in ["a", "b", "c", "a"] {
            queue.push(key(name), nothing());
        }
        queue.put_back(key("d"), nothing());
        queue.put_back(key("b"), [Address::Hostname("old".into())].into());
        queue.put_back(key("e"), nothing());
        assert_eq!(queue.len(), 5);
        assert_eq!(names(&mut queue), ["a", "c", "b", "d", "e"]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut queue = Queue::new(2);
        assert!(!queue.push(key("a"), nothing()));
        assert!(!queue.push(key("b"), nothing()));
        assert!(queue.push(key("c"), nothing()));
        queue.put_back(key("d"), nothing());
        assert_eq!(names(&mut queue), ["c", "b"]);
    }

    #[test]
    fn a_namespace_with_a_thousand_wishes_delays_another_by_one_write() {
        let mut queue = Queue::new(1_001);
        queue.push(of("quiet", "first"), nothing());
        for number in 0..1_000 {
            queue.push(of("loud", &number.to_string()), nothing());
        }
        queue.push(of("quiet", "second"), nothing());
        // Those of the one that has most are forgotten, the oldest first.
        assert_eq!(queue.len(), 1_001);
        let turns: Vec<String> = names(&mut queue);
        assert_eq!(turns[..4], ["999", "second", "998", "first"]);
        assert_eq!(turns.last().map(String::as_str), Some("1"));
        assert!(queue.order.is_empty());
    }

    #[test]
    fn an_object_that_others_write_rests_and_the_rest_goes_on() {
        let mut queue = Queue::new(10);
        let now = clock::now();
        queue.push(key("b"), nothing());
        queue.rest(key("a"), nothing(), now);
        assert_eq!((queue.len(), queue.resting()), (1, 1));
        // A list that shows it wrong does not wake it.
        queue.put_back(key("a"), nothing());
        queue.wake(now);
        assert_eq!(names(&mut queue), ["b"]);
        assert_eq!(queue.next_wake(), Some(now + REST));
        queue.wake(now + REST);
        assert_eq!(names(&mut queue), ["a"]);
        assert_eq!((queue.resting(), queue.next_wake()), (0, None));
        // A newer wish takes its place at once, and stays the last.
        queue.rest(key("a"), [Address::Hostname("old".into())].into(), now);
        queue.push(key("a"), nothing());
        assert_eq!(queue.pop(), Some((key("a"), nothing())));
        queue.wake(now + REST);
        assert_eq!(queue.pop(), None);
    }
}
