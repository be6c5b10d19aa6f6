//! Connections that have not said enough to be served: in the order of their coming, by source.
//!
//! Where there is no room for another, the source that has most of them loses its oldest one. No
//! source has a limit of its own, since whole offices share an address; among sources that have
//! equally many the one with the oldest connection loses it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use foldhash::quality::RandomState;

use super::fifo::{Fifo, FifoSlots};
use crate::net::deadline;

/// The connections of one worker that are silent. Each operation costs the logarithm of how many
/// sources there are, and a source is forgotten with its last connection.
#[derive(Default)]
pub(crate) struct Silent {
    places: FifoSlots<Entry>,
    sources: HashMap<u64, Fifo, RandomState>,
    /// The sources; the one to lose a connection next comes last.
    order: BTreeSet<Rank>,
    count: usize,
    bytes: usize,
    entered: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    source: u64,
    /// Its number in the order of coming.
    entered: u64,
    deadline: u32,
    bytes: u32,
    is_evicted: bool,
}

/// How many connections a source has, the number of its oldest one, and the source.
type Rank = (u32, Reverse<u64>, u64);

/// The source of a connection: the client's address, or its network of 64 bits where that is what
/// one client is given.
pub(crate) fn source_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

impl Silent {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The bytes of memory that hold what they have said so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds one more, which the deadline of a number wakes.
    pub(crate) fn enter(&mut self, source: u64, deadline: u32) -> u32 {
        self.entered += 1;
        let index = self.places.take(Entry {
            source,
            entered: self.entered,
            deadline,
            bytes: 0,
            is_evicted: false,
        });
        self.count += 1;
        self.change(source, |places, line| places.push(line, index));
        index
    }

    /// Takes one out that is silent no longer, or gone.
    pub(crate) fn leave(&mut self, index: u32) {
        if !self.is_evicted(index) {
            self.take_out(index);
        }
        self.places.give_back(index);
    }

    /// Whether it lost its place.
    pub(crate) fn is_evicted(&self, index: u32) -> bool {
        self.places.get(index).is_none_or(|entry| entry.is_evicted)
    }

    /// Counts so many bytes as what holds its words, instead of those before.
    pub(crate) fn hold(&mut self, index: u32, bytes: usize) {
        let Some(entry) = self.places.get_mut(index) else {
            return;
        };
        if !entry.is_evicted {
            let before = std::mem::replace(&mut entry.bytes, bytes as u32);
            self.bytes = self.bytes + bytes - before as usize;
        }
    }

    /// Takes the place of the oldest connection of the source that has most; false without any.
    pub(crate) fn evict(&mut self) -> bool {
        let Some((_, _, source)) = self.order.last().copied() else {
            return false;
        };
        let line = self.sources.get(&source).copied().unwrap_or_default();
        let Some(index) = line.first() else {
            return false;
        };
        self.take_out(index);
        if let Some(entry) = self.places.get_mut(index) {
            entry.is_evicted = true;
            deadline::expire(entry.deadline);
        }
        true
    }

    fn take_out(&mut self, index: u32) {
        let Some(entry) = self.places.get(index) else {
            return;
        };
        self.count -= 1;
        self.bytes -= entry.bytes as usize;
        self.change(entry.source, |places, line| places.unlink(line, index));
    }

    fn change(&mut self, source: u64, change: impl FnOnce(&mut FifoSlots<Entry>, &mut Fifo)) {
        let line = self.sources.entry(source).or_default();
        if let Some(rank) = rank(&self.places, source, *line) {
            self.order.remove(&rank);
        }
        change(&mut self.places, line);
        match rank(&self.places, source, *line) {
            Some(rank) => {
                self.order.insert(rank);
            }
            None => {
                self.sources.remove(&source);
            }
        }
    }
}

fn rank(places: &FifoSlots<Entry>, source: u64, line: Fifo) -> Option<Rank> {
    let oldest = places.get(line.first()?)?.entered;
    Some((line.count(), Reverse(oldest), source))
}

#[cfg(test)]
mod tests {
    use super::{Silent, source_of};

    fn evicted(silent: &Silent, indexes: &[u32]) -> Vec<usize> {
        let indexes = indexes.iter().enumerate();
        let gone = indexes.filter(|(_, index)| silent.is_evicted(**index));
        gone.map(|(number, _)| number).collect()
    }

    #[test]
    fn the_source_that_has_most_loses_its_oldest() {
        let mut silent = Silent::default();
        let all = [1, 2, 2, 3, 2].map(|source| silent.enter(source, u32::MAX));
        assert!(silent.evict());
        assert_eq!(evicted(&silent, &all), [1]);
        assert!(silent.evict());
        // Each source has one by now, so that the oldest of all goes.
        assert_eq!(evicted(&silent, &all), [1, 2]);
        assert!(silent.evict());
        assert_eq!(evicted(&silent, &all), [0, 1, 2]);
        assert_eq!(silent.count(), 2);
    }

    #[test]
    fn who_speaks_is_no_longer_evicted_and_leaves_nothing() {
        let mut silent = Silent::default();
        let all = [7, 7, 7].map(|source| silent.enter(source, u32::MAX));
        silent.hold(all[0], 1_024);
        silent.hold(all[1], 1_024);
        silent.hold(all[1], 4_096);
        assert_eq!(silent.bytes(), 5_120);
        silent.leave(all[0]);
        assert!(silent.evict());
        assert_eq!((silent.bytes(), silent.count()), (0, 1));
        // What it holds until it notices is nobody's.
        silent.hold(all[1], 9);
        silent.leave(all[1]);
        silent.leave(all[2]);
        assert!(!silent.evict());
        assert_eq!((silent.bytes(), silent.count()), (0, 0));
        assert!(silent.sources.is_empty() && silent.order.is_empty());
    }

    #[test]
    fn a_client_is_known_by_its_address_or_its_network_of_64_bits() {
        let of = |text: &str| source_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
