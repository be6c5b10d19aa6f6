//! How many hosts the objects of each namespace name, where others say things that each of them
//! repeats.

use std::collections::BTreeMap;
use std::hash::Hash;

use crate::store::Fact;

/// The sums of what the objects of each namespace count for.
#[derive(Default)]
pub struct Tally(BTreeMap<Box<str>, u64>);

/// The sum of a namespace, as [`Tally::told`] tells it.
#[derive(Hash)]
pub(crate) struct TallyFact<'a>(pub &'a str);

impl Fact for TallyFact<'_> {
    const FAMILY: u8 = 7;
}

impl Tally {
    /// Notes that an object of a namespace counts for another amount; returns whether what is told
    /// of the namespace differs.
    pub fn replace(&mut self, namespace: &str, old: u64, new: u64) -> bool {
        let before = self.told(namespace);
        let sum = self.0.get(namespace).copied().unwrap_or_default();
        let sum = sum.saturating_sub(old).saturating_add(new);
        match sum {
            0 => drop(self.0.remove(namespace)),
            sum => drop(self.0.insert(namespace.into(), sum)),
        }
        before != self.told(namespace)
    }

    /// The sum of a namespace, rounded up to a power of two: who reads it runs again when it is
    /// twice as much, and not for each that comes.
    pub fn told(&self, namespace: &str) -> u64 {
        let sum = self.0.get(namespace).copied().unwrap_or_default();
        sum.checked_next_power_of_two().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn a_sum_is_told_when_it_is_twice_as_much() {
        let mut tally = Tally::default();
        assert_eq!(tally.told("a"), 1);
        assert!(!tally.replace("a", 0, 1));
        assert!(tally.replace("a", 0, 4));
        assert_eq!(tally.told("a"), 8);
        assert!(!tally.replace("a", 4, 7));
        assert!(tally.replace("a", 1, 2));
        assert_eq!((tally.told("a"), tally.told("b")), (16, 1));
        assert!(tally.replace("a", 7, 0) && tally.replace("a", 2, 0));
        assert!(tally.0.is_empty());
    }
}
