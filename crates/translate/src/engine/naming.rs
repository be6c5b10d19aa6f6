//! The labels of workloads that selectors name. Whatever no selector names tells no two workloads
//! apart, so that those who differ in nothing else see the same.
//!
//! A selector of one namespace asks most often for workloads of that namespace alone. So a label
//! is named for the workloads of a namespace, or for those of all.

use std::collections::BTreeMap;

use super::Engine;

/// The keys of labels that are named, and by how many selectors.
#[derive(Default)]
pub(super) struct Naming {
    counts: BTreeMap<Box<str>, Counts>,
    /// The keys that came or went since they were last taken, by the namespaces of the workloads
    /// that are asked for them; the namespaces of the objects by which they did.
    moved: BTreeMap<AskedLabel, Box<str>>,
}

/// The key of a label, and the namespace of the workloads that are asked for it; none for all.
type AskedLabel = (Box<str>, Option<Box<str>>);

/// How many selectors name one key: for workloads of all namespaces, and of each.
#[derive(Default)]
struct Counts {
    all: usize,
    of: BTreeMap<Box<str>, usize>,
}

/// A key of labels that selectors began to name, or named last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedLabel {
    /// The key.
    pub key: Box<str>,
    /// The namespace of the workloads that they ask for it; none for those of all.
    pub namespace: Option<Box<str>>,
    /// The namespace of the object by which it moved, which causes what follows.
    pub by: Box<str>,
}

impl Counts {
    fn is_empty(&self) -> bool {
        self.all == 0 && self.of.is_empty()
    }
}

impl Naming {
    /// Notes that a selector of an object of the namespace `by` names a key for workloads of a
    /// namespace, or of all.
    pub(super) fn insert(&mut self, namespace: Option<&str>, key: &str, by: &str) {
        let is_new = !self.names(namespace, key);
        let counts = match self.counts.get_mut(key) {
            Some(counts) => counts,
            None => self.counts.entry(key.into()).or_default(),
        };
        match namespace {
            None => counts.all += 1,
            Some(namespace) => match counts.of.get_mut(namespace) {
                Some(count) => *count += 1,
                None => {
                    counts.of.insert(namespace.into(), 1);
                }
            },
        }
        if is_new {
            self.note_moved(namespace, key, by);
        }
    }

    /// Notes that a selector does not name it any more.
    pub(super) fn remove(&mut self, namespace: Option<&str>, key: &str, by: &str) {
        let Some(counts) = self.counts.get_mut(key) else {
            return;
        };
        match namespace {
            None => counts.all = counts.all.saturating_sub(1),
            Some(namespace) => {
                if let Some(count) = counts.of.get_mut(namespace) {
                    *count -= 1;
                    if *count == 0 {
                        counts.of.remove(namespace);
                    }
                }
            }
        }
        if counts.is_empty() {
            self.counts.remove(key);
        }
        if !self.names(namespace, key) {
            self.note_moved(namespace, key, by);
        }
    }

    /// Whether any selector names a key for workloads of a namespace.
    pub(super) fn has(&self, namespace: &str, key: &str) -> bool {
        self.names(Some(namespace), key)
    }

    /// Whether any names it for workloads of a namespace; without one, for those of all.
    fn names(&self, namespace: Option<&str>, key: &str) -> bool {
        let counts = self.counts.get(key);
        counts.is_some_and(|counts| {
            counts.all > 0 || namespace.is_some_and(|it| counts.of.contains_key(it))
        })
    }

    fn note_moved(&mut self, namespace: Option<&str>, key: &str, by: &str) {
        let place = (key.into(), namespace.map(Box::from));
        self.moved.insert(place, by.into());
    }

    /// Forgets which came or went, once what was taken in is applied.
    pub(super) fn settle(&mut self) {
        self.moved.clear();
    }

    /// The keys that came or went since this was last asked.
    pub(super) fn take_moved(&mut self) -> Vec<MovedLabel> {
        let moved = std::mem::take(&mut self.moved).into_iter();
        let moved = moved.map(|((key, namespace), by)| MovedLabel { key, namespace, by });
        moved.collect()
    }
}

impl Engine {
    /// Whether any selector names this key of labels for workloads of a namespace, so that sidecars
    /// there whose workloads differ in it may see other things.
    pub fn names_label(&self, namespace: &str, key: &str) -> bool {
        self.naming.has(namespace, key)
    }

    /// The keys of labels that selectors began to name, or named last, since this was last asked.
    /// Sidecars that are one view must not differ in one that is named when what was taken in is
    /// applied.
    pub fn take_labels_moved(&mut self) -> Vec<MovedLabel> {
        self.naming.take_moved()
    }
}

#[cfg(test)]
mod tests {
    use super::Naming;

    /// The keys that moved, for whom and by whom.
    fn moved(naming: &mut Naming) -> Vec<String> {
        let moved = naming.take_moved().into_iter();
        let moved = moved.map(|it| {
            let whose = it.namespace.unwrap_or_else(|| "*".into());
            format!("{} of {whose} by {}", it.key, it.by)
        });
        moved.collect()
    }

    #[test]
    fn a_key_is_named_for_whom_selectors_ask_for_it() {
        let mut naming = Naming::default();
        naming.insert(Some("a"), "x", "a");
        naming.insert(Some("a"), "x", "a");
        naming.insert(Some("b"), "x", "b");
        assert_eq!(moved(&mut naming), ["x of a by a", "x of b by b"]);
        assert!(naming.has("a", "x") && !naming.has("c", "x") && !naming.has("a", "y"));
        naming.insert(None, "x", "root");
        naming.insert(Some("c"), "x", "c");
        assert_eq!(moved(&mut naming), ["x of * by root"], "it is named for c");
        assert!(naming.has("d", "x"));
        naming.remove(Some("a"), "x", "a");
        naming.remove(Some("b"), "x", "b");
        assert!(moved(&mut naming).is_empty(), "it still is, for all");
        naming.remove(None, "x", "root");
        assert_eq!(moved(&mut naming), ["x of * by root"]);
        assert!(naming.has("a", "x") && !naming.has("b", "x"));
        naming.remove(Some("a"), "x", "a");
        naming.remove(Some("c"), "x", "c");
        assert_eq!(moved(&mut naming), ["x of a by a", "x of c by c"]);
        assert!(naming.counts.is_empty());
    }
}
