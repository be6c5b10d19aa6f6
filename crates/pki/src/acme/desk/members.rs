//! The certificates that are wanted of each issuer, and how far those of an issuer that has changed
//! have been visited: a few at a time, and of several issuers in turn, so that one with very many
//! holds up nobody.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The certificates by their issuers.
#[derive(Default)]
pub(super) struct Members {
    by_issuer: HashMap<Box<str>, BTreeSet<Arc<str>>>,
    /// Issuers whose certificates are to be visited: behind which one.
    visits: HashMap<Box<str>, Option<Arc<str>>>,
    /// The same issuers, in turn.
    turns: VecDeque<Box<str>>,
}

impl Members {
    /// A certificate is wanted of an issuer.
    pub(super) fn add(&mut self, issuer: &str, id: &Arc<str>) {
        match self.by_issuer.get_mut(issuer) {
            Some(ids) => ids.insert(id.clone()),
            None => {
                let ids = BTreeSet::from([id.clone()]);
                self.by_issuer.insert(issuer.into(), ids).is_none()
            }
        };
    }

    /// A certificate is not wanted of an issuer any more.
    pub(super) fn remove(&mut self, issuer: &str, id: &str) {
        let Some(ids) = self.by_issuer.get_mut(issuer) else {
            return;
        };
        ids.remove(id);
        if ids.is_empty() {
            self.by_issuer.remove(issuer);
        }
    }

    /// All certificates of an issuer are to be visited, from the first one on.
    pub(super) fn visit(&mut self, issuer: &str) {
        if self.visits.insert(issuer.into(), None).is_none() {
            self.turns.push_back(issuer.into());
        }
    }

    /// The next certificates that are to be visited, at most so many.
    pub(super) fn next(&mut self, max: usize) -> Vec<Arc<str>> {
        let Some(issuer) = self.turns.pop_front() else {
            return Vec::new();
        };
        let behind = self.visits.remove(&issuer).flatten();
        let Some(ids) = self.by_issuer.get(&issuer) else {
            return Vec::new();
        };
        let start = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = ids.range::<Arc<str>, _>((start, Bound::Unbounded));
        let ids: Vec<Arc<str>> = rest.take(max).cloned().collect();
        if let Some(last) = ids.last().filter(|_| ids.len() == max) {
            self.visits.insert(issuer.clone(), Some(last.clone()));
            self.turns.push_back(issuer);
        }
        ids
    }

    /// Whether any are to be visited.
    pub(super) fn is_visiting(&self) -> bool {
        !self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Members;

    #[test]
    fn those_of_one_issuer_are_visited_a_few_at_a_time_and_others_between() {
        let mut members = Members::default();
        let ids: Vec<Arc<str>> = (0..7).map(|number| format!("a/{number}").into()).collect();
        ids.iter().for_each(|id| members.add("many", id));
        members.add("few", &"b/0".into());
        members.visit("many");
        members.visit("few");
        assert_eq!(members.next(3), ids[..3]);
        assert_eq!(members.next(3), [Arc::<str>::from("b/0")]);
        // One that goes meanwhile is left out, and one that has changed again begins anew.
        members.remove("many", "a/4");
        assert_eq!(members.next(3), [&ids[3..4], &ids[5..]].concat());
        members.visit("many");
        assert_eq!(members.next(3), ids[..3]);
        members.visit("many");
        members.visit("many");
        assert_eq!(members.next(10), [&ids[..4], &ids[5..]].concat());
        assert!(!members.is_visiting() && members.next(10).is_empty());
        ids.iter().for_each(|id| members.remove("many", id));
        members.remove("few", "b/0");
        assert!(members.by_issuer.is_empty());
    }
}
