//! Lines of waiting things in one piece of memory: whoever is in a line leaves it from anywhere
//! in O(1), and a place that is free is used again.

const NONE: u32 = u32::MAX;

/// The places of any number of lines.
pub(crate) struct FifoSlots<T> {
    places: Vec<FifoSlot<T>>,
    free: Vec<u32>,
}

struct FifoSlot<T> {
    before: u32,
    behind: u32,
    value: T,
}

/// One line: the oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    first: u32,
    last: u32,
    count: u32,
}

impl Default for Fifo {
    fn default() -> Self {
        Fifo {
            first: NONE,
            last: NONE,
            count: 0,
        }
    }
}

impl Fifo {
    /// How many are in it.
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// The one that has been in it longest.
    pub(crate) fn first(self) -> Option<u32> {
        (self.count > 0).then_some(self.first)
    }
}

impl<T> Default for FifoSlots<T> {
    fn default() -> Self {
        FifoSlots {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Copy> FifoSlots<T> {
    /// A place in no line yet.
    pub(crate) fn take(&mut self, value: T) -> u32 {
        let place = FifoSlot {
            before: NONE,
            behind: NONE,
            value,
        };
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.places.get_mut(index as usize)
        {
            *slot = place;
            return index;
        }
        self.places.push(place);
        (self.places.len() - 1) as u32
    }

    /// Gives back a place that is in no line.
    pub(crate) fn give_back(&mut self, index: u32) {
        self.free.push(index);
    }

    /// The value at a place.
    pub(crate) fn get(&self, index: u32) -> Option<T> {
        self.places.get(index as usize).map(|place| place.value)
    }

    /// The thing at a place, to be changed.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let place = self.places.get_mut(index as usize)?;
        Some(&mut place.value)
    }

    /// The place behind another in its line.
    pub(crate) fn behind(&self, index: u32) -> Option<u32> {
        let behind = self.places.get(index as usize)?.behind;
        (behind != NONE).then_some(behind)
    }

    /// Puts a place at the end of a line.
    pub(crate) fn push(&mut self, line: &mut Fifo, index: u32) {
        let last = std::mem::replace(&mut line.last, index);
        self.join(last, index);
        self.join(index, NONE);
        if last == NONE {
            line.first = index;
        }
        line.count += 1;
    }

    /// Takes a place out of the line that it is in.
    pub(crate) fn unlink(&mut self, line: &mut Fifo, index: u32) {
        let Some(place) = self.places.get(index as usize) else {
            return;
        };
        let (before, behind) = (place.before, place.behind);
        self.join(before, behind);
        if line.first == index {
            line.first = behind;
        }
        if line.last == index {
            line.last = before;
        }
        line.count -= 1;
    }

    fn join(&mut self, before: u32, behind: u32) {
        if let Some(place) = self.places.get_mut(before as usize) {
            place.behind = behind;
        }
        if let Some(place) = self.places.get_mut(behind as usize) {
            place.before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fifo, FifoSlots};

    fn all(places: &FifoSlots<char>, line: Fifo) -> String {
        let next = |index: &u32| places.behind(*index);
        let indexes = std::iter::successors(line.first(), next);
        indexes.filter_map(|index| places.get(index)).collect()
    }

    #[test]
    fn a_place_leaves_from_anywhere_and_is_used_again() {
        let mut places = FifoSlots::default();
        let mut line = Fifo::default();
        let taken = ['a', 'b', 'c', 'd'].map(|value| places.take(value));
        for index in taken {
            places.push(&mut line, index);
        }
        assert_eq!(all(&places, line), "abcd");
        let [first, second, third, last] = taken;
        places.unlink(&mut line, second);
        assert_eq!(all(&places, line), "acd");
        places.unlink(&mut line, last);
        places.unlink(&mut line, first);
        assert_eq!((all(&places, line).as_str(), line.count()), ("c", 1));
        places.push(&mut line, first);
        places.unlink(&mut line, third);
        places.unlink(&mut line, first);
        assert_eq!((line.first(), line.count()), (None, 0));
        places.give_back(second);
        assert_eq!(places.take('e'), second);
    }
}
