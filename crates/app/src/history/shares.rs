//! The bytes of the history by namespace: the one that has most of them loses its oldest first, so
//! that none writes the commits of others away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most namespaces of which it is remembered that some was let go. Beyond them nothing is known
/// of what was before.
const LOST_MAX: usize = 1_024;

/// The bytes of all namespaces.
#[derive(Default)]
pub(super) struct HistoryShares {
    namespaces: BTreeMap<Arc<str>, Share>,
    /// All namespaces by their bytes.
    by_bytes: BTreeSet<(usize, Arc<str>)>,
    /// Until when some of a namespace was let go.
    lost: BTreeMap<Arc<str>, i64>,
}

#[derive(Default)]
struct Share {
    bytes: usize,
    /// The bytes of its parts of commits, by the number of the commit.
    commits: BTreeMap<u64, usize>,
}

impl HistoryShares {
    /// Charges a namespace for its part of a commit.
    pub(super) fn add(&mut self, namespace: &Arc<str>, number: u64, bytes: usize) {
        let share = self.namespaces.entry(namespace.clone()).or_default();
        self.by_bytes.remove(&(share.bytes, namespace.clone()));
        share.bytes += bytes;
        share.commits.insert(number, bytes);
        self.by_bytes.insert((share.bytes, namespace.clone()));
    }

    /// Takes that back.
    pub(super) fn remove(&mut self, namespace: &str, number: u64) {
        let Some((name, mut share)) = self.namespaces.remove_entry(namespace) else {
            return;
        };
        self.by_bytes.remove(&(share.bytes, name.clone()));
        let bytes = share.commits.remove(&number).unwrap_or_default();
        share.bytes = share.bytes.saturating_sub(bytes);
        if !share.commits.is_empty() {
            self.by_bytes.insert((share.bytes, name.clone()));
            self.namespaces.insert(name, share);
        }
    }

    /// The namespace with the most bytes, and the oldest commit in which it has a part.
    pub(super) fn largest(&self) -> Option<(Arc<str>, u64)> {
        let (_, namespace) = self.by_bytes.last()?;
        let share = self.namespaces.get(namespace)?;
        let (number, _) = share.commits.first_key_value()?;
        Some((namespace.clone(), *number))
    }

    /// Notes that a change of a namespace was let go. A moment is returned before which nothing is
    /// known of any from now on.
    pub(super) fn lose(&mut self, namespace: &Arc<str>, at: i64) -> Option<i64> {
        // What is of no namespace is of all of them.
        if namespace.is_empty() {
            return Some(at);
        }
        if self.lost.len() >= LOST_MAX && !self.lost.contains_key(namespace) {
            let lost = std::mem::take(&mut self.lost);
            return lost.into_values().chain([at]).max();
        }
        let known = self.lost.entry(namespace.clone()).or_insert(at);
        *known = at.max(*known);
        None
    }

    /// The namespaces of which some was let go, and until when.
    pub(super) fn lost(&self) -> Vec<(Arc<str>, i64)> {
        let lost = self.lost.iter();
        lost.map(|(namespace, at)| (namespace.clone(), *at))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{HistoryShares, LOST_MAX};

    #[test]
    fn the_oldest_of_the_namespace_with_most_bytes_is_the_next_to_go() {
        let mut shares = HistoryShares::default();
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        assert!(shares.largest().is_none());
        shares.add(&one, 1, 10);
        shares.add(&other, 2, 6);
        shares.add(&other, 3, 6);
        assert_eq!(shares.largest(), Some((other.clone(), 2)));
        shares.remove("other", 2);
        assert_eq!(shares.largest(), Some((one.clone(), 1)));
        shares.remove("one", 1);
        shares.remove("other", 3);
        assert!(shares.largest().is_none() && shares.namespaces.is_empty());
    }

    #[test]
    fn what_was_let_go_is_known_by_namespace_up_to_a_bound() {
        let mut shares = HistoryShares::default();
        assert_eq!(shares.lose(&"".into(), 7), Some(7));
        for number in 0..LOST_MAX {
            assert_eq!(shares.lose(&number.to_string().into(), 9), None);
        }
        assert_eq!(shares.lose(&"0".into(), 8), None);
        assert!(shares.lost().iter().all(|(_, at)| *at == 9));
        assert_eq!(shares.lose(&"another".into(), 8), Some(9));
        assert!(shares.lost().is_empty());
    }
}
