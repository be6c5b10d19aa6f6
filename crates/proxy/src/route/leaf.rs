//! The entries of the tables, and how they are found.

use std::sync::Arc;

use myriad_model::{Entry, Host, Name, Tree, host::Pattern};

use crate::random::hash::hash;

/// A thing with a key.
pub trait Keyed {
    /// The hash of the key.
    fn hash(&self) -> u64;
    /// Whether both have the same key.
    fn same_key(&self, other: &Self) -> bool;
}

/// A pointer in a tree.
pub struct Leaf<T>(pub Arc<T>);

impl<T> Clone for Leaf<T> {
    fn clone(&self) -> Self {
        Leaf(self.0.clone())
    }
}

impl<T: Keyed> Entry for Leaf<T> {
    fn hash(&self) -> u64 {
        self.0.hash()
    }

    fn same_key(&self, other: &Self) -> bool {
        self.0.same_key(&other.0)
    }
}

/// Something that belongs to a host pattern.
pub trait Hosted: Keyed {
    /// The pattern.
    fn host(&self) -> &Host;
}

/// A table by host pattern, which answers for names.
pub struct HostTable<T: Hosted> {
    tree: Tree<Leaf<T>>,
    one_label: usize,
    any_labels: usize,
}

impl<T: Hosted> Clone for HostTable<T> {
    fn clone(&self) -> Self {
        HostTable {
            tree: self.tree.clone(),
            one_label: self.one_label,
            any_labels: self.any_labels,
        }
    }
}

impl<T: Hosted> Default for HostTable<T> {
    fn default() -> Self {
        HostTable {
            tree: Tree::new(),
            one_label: 0,
            any_labels: 0,
        }
    }
}

impl<T: Hosted> HostTable<T> {
    /// The number of patterns.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// See [`Tree::nodes_copied`].
    pub fn nodes_copied(&self) -> u64 {
        self.tree.nodes_copied()
    }

    /// All of it, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.tree.iter().map(|leaf| &leaf.0)
    }

    /// The entry of exactly this pattern.
    pub fn get(&self, host: &Host) -> Option<&Arc<T>> {
        self.find(host.pattern())
    }

    /// Puts something in the place of what has the same pattern.
    pub fn insert(&mut self, entry: Arc<T>) {
        let host = entry.host().clone();
        if self.tree.insert(Leaf(entry)).is_none() {
            self.count(&host, 1);
        }
    }

    /// Takes out what belongs to exactly this pattern.
    pub fn remove(&mut self, host: &Host) {
        let place = place(host.pattern());
        let removed = self.tree.remove(place, |leaf| leaf.0.host() == host);
        if removed.is_some() {
            self.count(host, -1);
        }
    }

    /// The result of `accept` for the first pattern that covers a name and that it accepts: the
    /// name itself, then wildcards from the longest suffix to the shortest (of equal ones that for
    /// one label first), then every host.
    pub fn most_specific<'a, R>(
        &'a self,
        name: &str,
        mut accept: impl FnMut(&'a Arc<T>) -> Option<R>,
    ) -> Option<R> {
        if !name.is_empty()
            && let Some(found) = self.find(Pattern::Exact(name)).and_then(&mut accept)
        {
            return Some(found);
        }
        let mut is_first = true;
        // A name that begins with an empty label is under no wildcard.
        let mut from = if name.starts_with('.') { name.len() } else { 0 };
        while let Some(dot) = name.get(from..).and_then(|rest| rest.find('.')) {
            if self.any_labels == 0 && (self.one_label == 0 || !is_first) {
                break;
            }
            let suffix = name.get(from + dot..).unwrap_or_default();
            if is_first
                && let Some(found) = self.find(Pattern::OneLabel(suffix)).and_then(&mut accept)
            {
                return Some(found);
            }
            if self.any_labels > 0
                && let Some(found) = self.find(Pattern::AnyLabels(suffix)).and_then(&mut accept)
            {
                return Some(found);
            }
            is_first = false;
            from += dot + 1;
        }
        self.find(Pattern::Any).and_then(accept)
    }

    fn find(&self, pattern: Pattern<'_>) -> Option<&Arc<T>> {
        let place = place(pattern);
        self.tree
            .get(place, |leaf| leaf.0.host().pattern() == pattern)
            .map(|leaf| &leaf.0)
    }

    fn count(&mut self, host: &Host, change: isize) {
        let counter = match host.pattern() {
            Pattern::Any | Pattern::Exact(_) => return,
            Pattern::OneLabel(_) => &mut self.one_label,
            Pattern::AnyLabels(_) => &mut self.any_labels,
        };
        *counter = counter.saturating_add_signed(change);
    }
}

/// The hash of a host pattern.
pub fn place(pattern: Pattern<'_>) -> u64 {
    match pattern {
        Pattern::Any => hash(1, ""),
        Pattern::Exact(name) => hash(2, name),
        Pattern::OneLabel(suffix) => hash(3, suffix),
        Pattern::AnyLabels(suffix) => hash(4, suffix),
    }
}

/// Whether a sorted list of listeners has this one. Lists are short.
pub fn has_listener(listeners: &[Name], listener: &Name) -> bool {
    listeners
        .iter()
        .any(|name| name.as_str() == listener.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_model::Host;

    use super::{HostTable, Hosted, Keyed, place};

    struct Pattern(Host);

    impl Keyed for Pattern {
        fn hash(&self) -> u64 {
            place(self.0.pattern())
        }

        fn same_key(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    impl Hosted for Pattern {
        fn host(&self) -> &Host {
            &self.0
        }
    }

    fn table(patterns: &[&str]) -> HostTable<Pattern> {
        let mut table = HostTable::default();
        for pattern in patterns {
            table.insert(Arc::new(Pattern(Host::parse(pattern).unwrap())));
        }
        table
    }

    fn found<'a>(table: &'a HostTable<Pattern>, name: &str) -> Option<&'a str> {
        table.most_specific(name, |entry| Some(entry.0.as_str()))
    }

    #[test]
    fn the_most_specific_pattern_wins() {
        let mut table = table(&[
            "*",
            "**.example",
            "*.b.example",
            "**.b.example",
            "a.b.example",
        ]);
        for (name, pattern) in [
            ("a.b.example", "a.b.example"),
            ("x.b.example", "*.b.example"),
            ("x.y.b.example", "**.b.example"),
            ("b.example", "**.example"),
            ("example", "*"),
            ("", "*"),
        ] {
            assert_eq!(found(&table, name), Some(pattern), "{name}");
        }
        table.remove(&Host::parse("**.b.example").unwrap());
        assert_eq!(found(&table, "x.y.b.example"), Some("**.example"));
    }

    #[test]
    fn a_name_that_looks_like_a_pattern_is_a_name() {
        let table = table(&["*.b.example", "**.example"]);
        assert_eq!(found(&table, "*.b.example"), Some("*.b.example"));
        assert_eq!(found(&table, ".b.example"), None);
        assert_eq!(found(&table, "*"), None);
    }

    #[test]
    fn what_is_not_accepted_is_passed_over() {
        let table = table(&["*", "a.example"]);
        let found =
            table.most_specific("a.example", |entry| (entry.0.as_str() == "*").then_some(()));
        assert_eq!(found, Some(()));
    }
}
