//! Places of a worker for what is done beside requests or takes memory beyond them: of all places
//! one namespace has a quarter, so that it leaves some to others.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::limits::namespace_max;

/// The places for one thing.
pub struct Places {
    max: usize,
    taken: Cell<usize>,
    by_namespace: RefCell<HashMap<Box<str>, usize>>,
}

/// A place that is taken; it is free again once dropped.
pub struct HeldPlace {
    places: Rc<Places>,
    namespace: Box<str>,
}

impl Places {
    /// A number of places, all of them free.
    pub fn new(max: usize) -> Rc<Self> {
        Rc::new(Places {
            max,
            taken: Cell::new(0),
            by_namespace: RefCell::default(),
        })
    }

    /// A place for a namespace; none where all are taken, or its share of them.
    pub fn take(self: &Rc<Self>, namespace: &str) -> Option<HeldPlace> {
        let mut by_namespace = self.by_namespace.borrow_mut();
        let own = by_namespace.get(namespace).copied().unwrap_or_default();
        if self.taken.get() >= self.max || own >= namespace_max(self.max) {
            return None;
        }
        by_namespace.insert(namespace.into(), own + 1);
        self.taken.set(self.taken.get() + 1);
        Some(HeldPlace {
            places: self.clone(),
            namespace: namespace.into(),
        })
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        let places = &self.places;
        places.taken.set(places.taken.get().saturating_sub(1));
        let mut by_namespace = places.by_namespace.borrow_mut();
        if let Some(own) = by_namespace.get_mut(&self.namespace) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                by_namespace.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    #[test]
    fn a_namespace_has_a_quarter_of_the_places() {
        let places = Places::new(16);
        let take = |namespace: &str| -> Vec<_> {
            let taken = (0..20).map(|_| places.take(namespace));
            taken.flatten().collect()
        };
        let evil = take("evil");
        assert_eq!(evil.len(), 4);
        let others: Vec<_> = ["a", "b", "c", "d"].into_iter().flat_map(take).collect();
        assert_eq!(others.len(), 12);
        drop(evil);
        assert_eq!(take("d").len(), 4);
        drop(others);
        assert!(places.by_namespace.borrow().is_empty());
        assert_eq!(places.taken.get(), 0);
    }
}
