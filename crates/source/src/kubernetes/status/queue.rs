//! The Ingresses whose status is to be looked at, newest wish first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use myriad_api::ObjectKey;

use super::Address;

/// The statuses that wait to be written.
pub(super) struct Queue {
    wanted: HashMap<ObjectKey, (i64, Arc<[Address]>)>,
    /// The keys by rank; the highest is next.
    order: BTreeMap<i64, ObjectKey>,
    highest: i64,
    lowest: i64,
    waiting_max: usize,
}

impl Queue {
    /// An empty queue.
    pub(super) fn new(waiting_max: usize) -> Self {
        Queue {
            wanted: HashMap::new(),
            order: BTreeMap::new(),
            highest: 0,
            lowest: 0,
            waiting_max: waiting_max.max(1),
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// The newest wish. Returns whether the oldest one had to be forgotten for it.
    pub(super) fn push(&mut self, key: ObjectKey, addresses: Arc<[Address]>) -> bool {
        self.highest += 1;
        self.insert(self.highest, key, addresses);
        if self.wanted.len() <= self.waiting_max {
            return false;
        }
        if let Some((_, oldest)) = self.order.pop_first() {
            self.wanted.remove(&oldest);
        }
        true
    }

    /// A wish that failed waits behind all others, unless there is a newer one for its object.
    pub(super) fn put_back(&mut self, key: ObjectKey, addresses: Arc<[Address]>) {
        if self.wanted.contains_key(&key) || self.wanted.len() >= self.waiting_max {
            return;
        }
        self.lowest -= 1;
        self.insert(self.lowest, key, addresses);
    }

    /// The newest wish.
    pub(super) fn pop(&mut self) -> Option<(ObjectKey, Arc<[Address]>)> {
        let (_, key) = self.order.pop_last()?;
        let (_, addresses) = self.wanted.remove(&key)?;
        Some((key, addresses))
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.wanted.clear();
        self.order.clear();
    }

    fn insert(&mut self, rank: i64, key: ObjectKey, addresses: Arc<[Address]>) {
        if let Some((former, _)) = self.wanted.insert(key.clone(), (rank, addresses)) {
            self.order.remove(&former);
        }
        self.order.insert(rank, key);
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Queue};
    use myriad_api::{ObjectKey, ObjectKind};
    use std::sync::Arc;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::Ingress, "n", name)
    }

    fn names(queue: &mut Queue) -> Vec<String> {
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
}
