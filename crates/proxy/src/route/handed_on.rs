//! Listeners at which handshakes are handed on as they are, by the name in them.
//!
//! A stream route names listeners, or sections of them; which sections a listener has, domains say.
//! Both come and go on their own, so that each is counted under its name, and a section that hands
//! handshakes on is counted at its listeners, which are one or two. So a handshake asks for one
//! entry, and a change for those of the names in it.

use std::sync::Arc;

use myriad_model::{Domain, Name, Tree};
use smallvec::SmallVec;

use super::leaf::{Keyed, Leaf};
use super::stream_route::{StreamRouteEntry, listener_hash};

/// The listeners and sections that hand handshakes on, and the sections that may.
#[derive(Clone, Default)]
pub struct HandedOn {
    places: Tree<Leaf<HandingPlace>>,
}

/// One step of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountStep {
    /// One more.
    Up,
    /// One less.
    Down,
}

/// A listener or a section, as far as either counts.
#[derive(Clone)]
struct HandingPlace {
    hash: u64,
    name: Name,
    /// How many stream routes hand handshakes on at it.
    stream_routes: usize,
    /// The listeners that it is a section of, each with how many domains say so.
    listeners: SmallVec<[(Name, usize); 2]>,
    /// How many of its sections hand handshakes on.
    sections: usize,
}

impl HandedOn {
    /// Whether a stream route hands handshakes on at a listener, or at a section of it.
    pub fn is_at(&self, listener: &Name) -> bool {
        let place = self.place(listener);
        place.is_some_and(|place| place.stream_routes > 0 || place.sections > 0)
    }

    /// Counts a stream route where it hands handshakes on.
    pub fn count_stream_route(&mut self, entry: &StreamRouteEntry, step: CountStep) {
        if !entry.hands_handshakes_on() {
            return;
        }
        for name in entry.listeners() {
            let (before, after) = self.change(name, |place| step.apply(&mut place.stream_routes));
            if before.hands_on() != after.hands_on() {
                for (listener, _) in &after.listeners {
                    self.change(listener, |place| step.apply(&mut place.sections));
                }
            }
        }
    }

    /// Counts a domain at its section, where it is of one.
    pub fn count_domain(&mut self, domain: &Domain, step: CountStep) {
        let Some(section) = &domain.section else {
            return;
        };
        for listener in domain.listeners.iter() {
            let (before, after) = self.change(section, |place| place.count(listener, step));
            if after.hands_on() && before.is_of(listener) != after.is_of(listener) {
                self.change(listener, |place| step.apply(&mut place.sections));
            }
        }
    }

    /// See [`Tree::nodes_copied`].
    pub fn nodes_copied(&self) -> u64 {
        self.places.nodes_copied()
    }

    fn place(&self, name: &Name) -> Option<&HandingPlace> {
        let is_it = |leaf: &Leaf<HandingPlace>| leaf.0.name == *name;
        Some(&self.places.get(listener_hash(name), is_it)?.0)
    }

    /// Changes the counts of a name; what they were, and what they are.
    fn change(
        &mut self,
        name: &Name,
        change: impl FnOnce(&mut HandingPlace),
    ) -> (HandingPlace, HandingPlace) {
        let known = self.place(name).cloned();
        let before = known.unwrap_or_else(|| HandingPlace::new(name.clone()));
        let mut after = before.clone();
        change(&mut after);
        match after.is_empty() {
            true => {
                let is_it = |leaf: &Leaf<HandingPlace>| leaf.0.name == *name;
                self.places.remove(after.hash, is_it);
            }
            false => {
                self.places.insert(Leaf(Arc::new(after.clone())));
            }
        }
        (before, after)
    }
}

impl CountStep {
    fn apply(self, count: &mut usize) {
        *count = match self {
            CountStep::Up => *count + 1,
            CountStep::Down => count.saturating_sub(1),
        };
    }
}

impl HandingPlace {
    fn new(name: Name) -> Self {
        HandingPlace {
            hash: listener_hash(&name),
            name,
            stream_routes: 0,
            listeners: SmallVec::new(),
            sections: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.stream_routes == 0 && self.sections == 0 && self.listeners.is_empty()
    }

    /// Whether stream routes hand handshakes on at it, be it a listener or a section.
    fn hands_on(&self) -> bool {
        self.stream_routes > 0
    }

    /// Whether it is a section of a listener.
    fn is_of(&self, listener: &Name) -> bool {
        self.listeners.iter().any(|(name, _)| name == listener)
    }

    /// Counts a domain by which it is a section of a listener.
    fn count(&mut self, listener: &Name, step: CountStep) {
        let known = self.listeners.iter_mut().find(|(name, _)| name == listener);
        match (known, step) {
            (Some((_, count)), _) => step.apply(count),
            (None, CountStep::Up) => self.listeners.push((listener.clone(), 1)),
            (None, CountStep::Down) => {}
        }
        self.listeners.retain(|(_, count)| *count > 0);
    }
}

impl Keyed for HandingPlace {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
