//! The orders that an authority has, by the namespaces of their certificates. A part of the places
//! is kept for namespaces that hold few, so that one whose orders never end holds up no other.

use std::collections::HashMap;

use super::turns::namespace_of;

/// The part of the places that is kept: one in so many.
const KEPT_PART: usize = 8;

/// The part of the places of which a namespace that holds less may have those that are kept. So
/// fewer than this many namespaces hold more.
const SHARE_PART: usize = 64;

/// The orders that are placed and not over.
#[derive(Debug, Default)]
pub(super) struct OpenOrders {
    count: usize,
    by_namespace: HashMap<Box<str>, usize>,
}

impl OpenOrders {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The order of a certificate is placed.
    pub(super) fn add(&mut self, id: &str) {
        self.count += 1;
        let namespace = namespace_of(id);
        if let Some(open) = self.by_namespace.get_mut(namespace) {
            *open += 1;
        } else {
            self.by_namespace.insert(namespace.into(), 1);
        }
    }

    /// The order of a certificate is over.
    pub(super) fn remove(&mut self, id: &str) {
        let namespace = namespace_of(id);
        let Some(open) = self.by_namespace.get_mut(namespace) else {
            return;
        };
        self.count = self.count.saturating_sub(1);
        *open = open.saturating_sub(1);
        if *open == 0 {
            self.by_namespace.remove(namespace);
        }
    }

    /// Whether one more of a namespace may be placed, where there are so many places.
    pub(super) fn admits(&self, namespace: &str, max: usize) -> bool {
        if self.count + max / KEPT_PART < max {
            return true;
        }
        let open = self.by_namespace.get(namespace).copied();
        self.count < max && open.unwrap_or_default() < max.div_ceil(SHARE_PART)
    }
}

#[cfg(test)]
mod tests {
    use super::OpenOrders;

    #[test]
    fn one_that_has_very_many_leaves_some_for_those_that_have_few() {
        let mut open = OpenOrders::default();
        let mut take = |namespace: &str, tries: usize| {
            let taken = (0..tries).filter(|_| {
                let is_taken = open.admits(namespace, 160);
                if is_taken {
                    open.add(&format!("{namespace}/web"));
                }
                is_taken
            });
            taken.count()
        };
        assert_eq!(take("mall", 1_000), 140);
        // Of what is kept, each may have three.
        let few: Vec<usize> = ["a", "b", "c", "d", "e", "f", "g", "h"]
            .map(|namespace| take(namespace, 10))
            .into();
        assert_eq!(few, [3, 3, 3, 3, 3, 3, 2, 0]);
        assert_eq!(take("mall", 10), 0);
        // What the one has let go is for others first.
        (0..10).for_each(|_| open.remove("mall/web"));
        assert!(!open.admits("mall", 160) && open.admits("h", 160));
        (0..1_000).for_each(|_| open.remove("mall/web"));
        assert!(!open.by_namespace.contains_key("mall"));
        for namespace in ["a", "b", "c", "d", "e", "f", "g"] {
            (0..3).for_each(|_| open.remove(&format!("{namespace}/web")));
        }
        assert!(open.by_namespace.is_empty() && open.count() == 0);
    }

    #[test]
    fn where_there_are_few_places_all_have_them_alike() {
        let mut open = OpenOrders::default();
        for _ in 0..4 {
            assert!(open.admits("mall", 4));
            open.add("mall/web");
        }
        assert!(!open.admits("mall", 4) && !open.admits("blog", 4));
    }
}
