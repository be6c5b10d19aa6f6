//! Stamps: sets of views.

use std::sync::Arc;

/// The place of a view among all, used again after it is gone.
pub(crate) type Slot = u32;

/// The place of the view that is always there.
pub(super) const MAIN_SLOT: Slot = 0;

/// A set of views by their places: one word for up to 64, and cheap to clone for more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(Words);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Words {
    /// No place is above 63.
    One(u64),
    /// The last word is not zero, and there are two at least.
    Many(Arc<[u64]>),
}

impl Stamp {
    /// No view.
    pub const EMPTY: Stamp = Stamp(Words::One(0));

    /// The main view alone.
    pub const MAIN: Stamp = Stamp(Words::One(1));

    /// One view.
    pub fn one(slot: Slot) -> Stamp {
        let mut stamp = Stamp::EMPTY;
        stamp.insert(slot);
        stamp
    }

    /// Whether no view is in it.
    pub fn is_empty(&self) -> bool {
        self.0 == Words::One(0)
    }

    /// How many views are in it.
    pub fn len(&self) -> usize {
        let ones = self.words().iter().map(|word| word.count_ones() as usize);
        ones.sum()
    }

    /// Whether a view is in it.
    pub fn has(&self, slot: Slot) -> bool {
        let word = self.words().get(slot as usize / 64);
        word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Adds a view.
    pub fn insert(&mut self, slot: Slot) {
        let mut words = self.words().to_vec();
        let at = slot as usize / 64;
        words.resize(words.len().max(at + 1), 0);
        words[at] |= 1 << (slot % 64);
        *self = Stamp::new(&words);
    }

    /// Takes a view out.
    pub fn remove(&mut self, slot: Slot) {
        if self.has(slot) {
            let mut words = self.words().to_vec();
            words[slot as usize / 64] &= !(1 << (slot % 64));
            *self = Stamp::new(&words);
        }
    }

    /// The views of either.
    #[must_use]
    pub fn union(&self, other: &Stamp) -> Stamp {
        if let (Words::One(own), Words::One(other)) = (&self.0, &other.0) {
            return Stamp(Words::One(own | other));
        }
        if self == other {
            return self.clone();
        }
        let (long, short) = match self.words().len() >= other.words().len() {
            true => (self, other),
            false => (other, self),
        };
        let mut words = long.words().to_vec();
        for (word, more) in words.iter_mut().zip(short.words()) {
            *word |= more;
        }
        Stamp::new(&words)
    }

    /// The views of any of them.
    pub fn union_of<'a>(stamps: impl Iterator<Item = &'a Stamp>) -> Stamp {
        let mut words: Vec<u64> = Vec::new();
        for stamp in stamps {
            let more = stamp.words();
            words.resize(words.len().max(more.len()), 0);
            for (word, more) in words.iter_mut().zip(more) {
                *word |= more;
            }
        }
        Stamp::new(&words)
    }

    /// Its views but for those of the other.
    #[must_use]
    pub fn minus(&self, other: &Stamp) -> Stamp {
        let mut words = self.words().to_vec();
        for (word, less) in words.iter_mut().zip(other.words()) {
            *word &= !less;
        }
        Stamp::new(&words)
    }

    /// The views that are in both.
    #[must_use]
    pub fn common(&self, other: &Stamp) -> Stamp {
        let both = self.words().iter().zip(other.words());
        let words: Vec<u64> = both.map(|(word, other)| word & other).collect();
        Stamp::new(&words)
    }

    /// Whether any view is in both.
    pub fn meets(&self, other: &Stamp) -> bool {
        let mut both = self.words().iter().zip(other.words());
        both.any(|(word, other)| word & other != 0)
    }

    /// The views, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        let words = self.words().iter().zip(0_u32..);
        words.flat_map(|(word, at)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| at * 64 + bit)
        })
    }

    fn new(words: &[u64]) -> Stamp {
        let used = words.iter().rposition(|word| *word != 0);
        let used = used.map_or(0, |last| last + 1);
        Stamp(match used {
            0 | 1 => Words::One(words.first().copied().unwrap_or(0)),
            _ => Words::Many(words[..used].into()),
        })
    }

    fn words(&self) -> &[u64] {
        match &self.0 {
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
    }
}

impl Default for Stamp {
    fn default() -> Stamp {
        Stamp::EMPTY
    }
}

impl FromIterator<Slot> for Stamp {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Stamp {
        let mut words = Vec::new();
        for slot in slots {
            let at = slot as usize / 64;
            words.resize(words.len().max(at + 1), 0);
            words[at] |= 1 << (slot % 64);
        }
        Stamp::new(&words)
    }
}

#[cfg(test)]
mod tests {
    use super::Stamp;

    fn of(slots: &[u32]) -> Stamp {
        slots.iter().copied().collect()
    }

    #[test]
    fn a_stamp_is_a_set_however_large_its_numbers_are() {
        for slots in [&[][..], &[0], &[0, 63], &[64], &[3, 70, 2_000]] {
            let stamp = of(slots);
            assert_eq!(stamp.iter().collect::<Vec<_>>(), slots);
            assert_eq!(stamp.len(), slots.len());
            assert!(slots.iter().all(|slot| stamp.has(*slot)));
            assert!(!stamp.has(5) && !stamp.has(4_000));
            assert_eq!(stamp.is_empty(), slots.is_empty());
        }
        assert_eq!(of(&[0]), Stamp::MAIN);
        assert_eq!(Stamp::one(64), of(&[64]));
    }

    #[test]
    fn equal_sets_are_equal_whatever_led_to_them() {
        let mut grown = of(&[1]);
        grown.insert(100);
        grown.remove(100);
        grown.remove(7);
        assert_eq!(grown, of(&[1]));
        assert_eq!(of(&[1]).union(&of(&[100])), of(&[1, 100]));
        assert_eq!(of(&[1, 100]).union(&of(&[1])), of(&[1, 100]));
        assert_eq!(of(&[1]).union(&of(&[2])), of(&[1, 2]));
        let all = [of(&[1]), of(&[100]), of(&[2, 70])];
        assert_eq!(Stamp::union_of(all.iter()), of(&[1, 2, 70, 100]));
        assert_eq!(of(&[1, 100]).minus(&of(&[100, 200])), of(&[1]));
        assert_eq!(of(&[1]).minus(&of(&[1])), Stamp::EMPTY);
        assert_eq!(of(&[1, 100]).common(&of(&[100, 200])), of(&[100]));
        assert!(of(&[1, 100]).meets(&of(&[100])));
        assert!(!of(&[1, 100]).meets(&of(&[2])));
    }
}
