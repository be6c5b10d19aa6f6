//! Rows of which the first stay, as long as their sum is within a bound.

use std::collections::BTreeMap;

/// The members that count for one bound, in the order in which they stay.
pub(super) struct Row<P> {
    /// The amount that each counts for.
    all: BTreeMap<P, u64>,
    /// The sum of those that stay.
    sum: u64,
    /// The first that is beyond, with all behind it; `None` where all stay.
    cut: Option<P>,
}

/// The effect of a change on other members of a row.
pub(super) struct Moved<P> {
    /// Members that are beyond the bound now.
    pub out: Vec<P>,
    /// Members that are within it again.
    pub back: Vec<P>,
}

impl<P> Default for Row<P> {
    fn default() -> Self {
        Row {
            all: BTreeMap::new(),
            sum: 0,
            cut: None,
        }
    }
}

impl<P> Default for Moved<P> {
    fn default() -> Self {
        Moved {
            out: Vec::new(),
            back: Vec::new(),
        }
    }
}

impl<P: Ord + Clone> Row<P> {
    /// Whether all stay.
    pub(super) fn is_whole(&self) -> bool {
        self.cut.is_none()
    }

    /// Whether nothing counts.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The sum of those that stay.
    pub(super) fn sum(&self) -> u64 {
        self.sum
    }

    /// Whether what is at a place is within the bound.
    pub(super) fn stays(&self, place: &P) -> bool {
        self.cut.as_ref().is_none_or(|cut| place < cut)
    }

    /// Whether what is at a place counts and is beyond the bound.
    pub(super) fn is_beyond(&self, place: &P) -> bool {
        !self.stays(place) && self.all.contains_key(place)
    }

    /// Adds what counts. [`Row::settle`] has to follow.
    pub(super) fn insert(&mut self, place: P, weight: u64) {
        if self.stays(&place) {
            self.sum = self.sum.saturating_add(weight);
        }
        self.all.insert(place, weight);
    }

    /// Takes out what counted. [`Row::settle`] has to follow.
    pub(super) fn remove(&mut self, place: &P) {
        let Some(weight) = self.all.remove(place) else {
            return;
        };
        if self.stays(place) {
            self.sum = self.sum.saturating_sub(weight);
        } else if self.cut.as_ref() == Some(place) {
            let mut behind = self.all.range(place.clone()..);
            self.cut = behind.next().map(|(place, _)| place.clone());
        }
    }

    /// Moves the cut to the first that does not fit. Each step moves one.
    pub(super) fn settle(&mut self, bound: u64, moved: &mut Moved<P>) {
        while self.sum > bound {
            let last = match &self.cut {
                Some(cut) => self.all.range(..cut.clone()).next_back(),
                None => self.all.iter().next_back(),
            };
            let Some((place, weight)) = last else { break };
            self.sum = self.sum.saturating_sub(*weight);
            moved.out.push(place.clone());
            self.cut = Some(place.clone());
        }
        while let Some(cut) = &self.cut {
            let mut behind = self.all.range(cut.clone()..);
            let Some((place, weight)) = behind.next() else {
                self.cut = None;
                break;
            };
            let sum = self.sum.saturating_add(*weight);
            if sum > bound {
                break;
            }
            self.sum = sum;
            moved.back.push(place.clone());
            self.cut = behind.next().map(|(place, _)| place.clone());
        }
    }
}
