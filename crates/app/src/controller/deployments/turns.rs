//! Gateways that wait to be looked after: namespaces take turns, so that one with many keeps
//! another waiting for one of them.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// The Gateways, by `namespace/name`; no more than there are.
#[derive(Default)]
pub(super) struct GatewayTurns {
    waiting: BTreeSet<Arc<str>>,
    /// The namespace that had its turn last, with what follows all names in it.
    beyond: String,
}

impl GatewayTurns {
    /// Adds a Gateway, unless it waits already.
    pub(super) fn push(&mut self, id: Arc<str>) {
        self.waiting.insert(id);
    }

    /// Takes out a Gateway of the namespace whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Arc<str>> {
        let from = (Bound::Included(&*self.beyond), Bound::Unbounded);
        let mut later = self.waiting.range::<str, _>(from);
        let next = later.next().or(self.waiting.first())?.clone();
        self.waiting.remove(&next);
        let namespace = next
            .split_once('/')
            .map_or(&*next, |(namespace, _)| namespace);
        // The character behind the slash.
        self.beyond = format!("{namespace}0");
        Some(next)
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::GatewayTurns;

    #[test]
    fn namespaces_take_turns_whatever_they_are_called() {
        let mut turns = GatewayTurns::default();
        for id in ["a/1", "a/2", "a/3", "a-b/1", "b/1", "b/2", "a/1"] {
            turns.push(id.into());
        }
        let order: Vec<String> = std::iter::from_fn(|| turns.pop())
            .map(|id| id.to_string())
            .collect();
        assert_eq!(order, ["a-b/1", "a/1", "b/1", "a/2", "b/2", "a/3"]);
        turns.push("a/9".into());
        assert!(!turns.is_empty());
        turns.clear();
        assert_eq!(turns.pop(), None);
    }
}
