//! Turns of namespaces among what waits for the API server, so that one that has much to be written
//! delays the others by one write each time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// How much waits of each namespace, and whose turn it is. No entry where nothing waits.
#[derive(Default)]
pub(super) struct Turns {
    counts: BTreeMap<Box<str>, usize>,
    by_count: BTreeSet<(usize, Box<str>)>,
    /// The namespace that had its turn last.
    last: Box<str>,
}

impl Turns {
    /// Counts one more of a namespace.
    pub(super) fn add(&mut self, namespace: &str) {
        self.change(namespace, |count| count + 1);
    }

    /// Counts one less.
    pub(super) fn remove(&mut self, namespace: &str) {
        self.change(namespace, |count| count.saturating_sub(1));
    }

    /// The namespace whose turn it is, which had its last one before all others that wait.
    pub(super) fn next(&mut self) -> Option<Box<str>> {
        let beyond = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let mut later = self.counts.range::<str, _>(beyond);
        let next = later.next().or_else(|| self.counts.iter().next());
        let (namespace, _) = next?;
        self.last.clone_from(namespace);
        Some(namespace.clone())
    }

    /// The namespace of which most waits.
    pub(super) fn largest(&self) -> Option<&str> {
        let (_, namespace) = self.by_count.last()?;
        Some(namespace)
    }

    /// Forgets how much waits.
    pub(super) fn clear(&mut self) {
        self.counts.clear();
        self.by_count.clear();
    }

    fn change(&mut self, namespace: &str, to: impl Fn(usize) -> usize) {
        let before = self.counts.get(namespace).copied().unwrap_or_default();
        let count = to(before);
        self.by_count.remove(&(before, namespace.into()));
        if count == 0 {
            self.counts.remove(namespace);
            return;
        }
        self.counts.insert(namespace.into(), count);
        self.by_count.insert((count, namespace.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn namespaces_take_turns_for_as_long_as_something_waits() {
        let mut turns = Turns::default();
        for namespace in ["a", "a", "a", "c", "b", "b"] {
            turns.add(namespace);
        }
        assert_eq!(turns.largest(), Some("a"));
        let order: Vec<String> = std::iter::from_fn(|| {
            let next = turns.next()?;
            turns.remove(&next);
            Some(next.to_string())
        })
        .collect();
        assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
        assert_eq!((turns.next(), turns.largest()), (None, None));
        turns.remove("a");
        assert!(turns.counts.is_empty() && turns.by_count.is_empty());
    }
}
