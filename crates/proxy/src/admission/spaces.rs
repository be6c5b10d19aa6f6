//! The bytes that are held for the clients of each namespace, of all workers together.
//!
//! There is no entry per namespace, as in [`super::share`]: each has a place in two rows of sums by
//! its hash, and the lower of the two is what is held for it at most. What is of no namespace yet,
//! as half a head, has a place like any. A worker tells the others in steps.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The places in a row; a power of two.
pub(crate) const PLACES: usize = 2_048;

/// How much what a worker holds has to change before others are told.
pub(crate) const STEP_BYTES: usize = 64 << 10;

/// The places of one hash in two rows.
pub(crate) type Spots = [u16; 2];

/// The places of what is of no namespace.
pub(crate) const NOBODY: Spots = [0, 0];

/// The places of handshakes under way. Which namespace such a one is for is what its client claims,
/// and none has less for that.
pub(crate) const HANDSHAKES: Spots = [1, 1];

/// The sums of all workers, as far as they have told them.
pub struct AllSpaces {
    rows: [Box<[AtomicUsize]>; 2],
    /// Places of the first row where something is held: about as many namespaces hold much.
    active: AtomicUsize,
}

/// The sums of one worker.
pub(crate) struct OwnSpaces {
    rows: [Box<[Cell<OwnSum>]>; 2],
}

#[derive(Clone, Copy, Default)]
struct OwnSum {
    /// Below zero for a moment, while what was nobody's becomes somebody's.
    own: isize,
    /// As much of it as the others know of.
    told: usize,
}

impl OwnSum {
    fn bytes(self) -> usize {
        usize::try_from(self.own).unwrap_or(0)
    }
}

impl AllSpaces {
    /// The namespaces for which much is held.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// The place of the first row where most is held, and how much that is.
    pub fn largest(&self) -> (u16, usize) {
        let [first, _] = &self.rows;
        let sums = first.iter().map(|sum| sum.load(Ordering::Relaxed));
        let largest = sums.enumerate().max_by_key(|(_, sum)| *sum);
        let (place, sum) = largest.unwrap_or_default();
        (place as u16, sum)
    }

    fn get(&self, row: usize, spot: u16) -> usize {
        let sum = self
            .rows
            .get(row)
            .and_then(|row| row.get(usize::from(spot)));
        sum.map_or(0, |sum| sum.load(Ordering::Relaxed))
    }

    fn tell(&self, row: usize, spot: u16, before: usize, now: usize) {
        let sums = self.rows.get(row);
        let Some(sum) = sums.and_then(|sums| sums.get(usize::from(spot))) else {
            return;
        };
        let known = match now.checked_sub(before) {
            Some(more) => sum.fetch_add(more, Ordering::Relaxed),
            None => sum.fetch_sub(before - now, Ordering::Relaxed),
        };
        let is_first = known == 0;
        let is_last = known + now == before;
        if row == 0 && is_first != is_last {
            match is_first {
                true => self.active.fetch_add(1, Ordering::Relaxed),
                false => self.active.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }
}

impl Default for AllSpaces {
    fn default() -> Self {
        let row = || (0..PLACES).map(|_| AtomicUsize::new(0)).collect();
        AllSpaces {
            rows: [row(), row()],
            active: AtomicUsize::new(0),
        }
    }
}

impl Default for OwnSpaces {
    fn default() -> Self {
        let row = || vec![Cell::new(OwnSum::default()); PLACES].into_boxed_slice();
        OwnSpaces {
            rows: [row(), row()],
        }
    }
}

impl OwnSpaces {
    /// So much is held for a namespace in place of so much.
    pub(crate) fn change(&self, all: &AllSpaces, spots: Spots, before: u32, now: u32) {
        let change = now as isize - before as isize;
        for (row, (sums, spot)) in self.rows.iter().zip(spots).enumerate() {
            let Some(cell) = sums.get(usize::from(spot)) else {
                continue;
            };
            let mut sum = cell.get();
            sum.own += change;
            let bytes = sum.bytes();
            let is_end = bytes == 0 && sum.told > 0;
            if is_end || bytes.abs_diff(sum.told) >= STEP_BYTES {
                all.tell(row, spot, sum.told, bytes);
                sum.told = bytes;
            }
            cell.set(sum);
        }
    }

    /// How much is held for a namespace, at most.
    pub(crate) fn held(&self, all: &AllSpaces, spots: Spots) -> usize {
        let rows = self.rows.iter().zip(spots).enumerate();
        let sums = rows.map(|(row, (sums, spot))| {
            let own = sums.get(usize::from(spot)).map(Cell::get);
            let own = own.unwrap_or_default();
            (all.get(row, spot) + own.bytes()).saturating_sub(own.told)
        });
        sums.min().unwrap_or(0)
    }

    /// Whether anybody was told that something is held for a namespace.
    pub(crate) fn is_active(&self, all: &AllSpaces, [spot, _]: Spots) -> bool {
        all.get(0, spot) > 0
    }

    /// Takes back all that was told.
    pub(crate) fn clear(&self, all: &AllSpaces) {
        for (row, sums) in self.rows.iter().enumerate() {
            for (spot, sum) in sums.iter().enumerate() {
                let told = sum.take().told;
                if told > 0 {
                    all.tell(row, spot as u16, told, 0);
                }
            }
        }
    }
}

/// The places of a hash.
pub(crate) fn spots(hash: u64) -> Spots {
    let within = |bits: u64| (bits as usize % PLACES) as u16;
    [within(hash), within(hash >> 32)]
}

#[cfg(test)]
mod tests {
    use super::{AllSpaces, OwnSpaces, STEP_BYTES};

    #[test]
    fn sums_of_workers_are_told_in_steps_and_taken_back() {
        let all = AllSpaces::default();
        let [first, second] = [(); 2].map(|()| OwnSpaces::default());
        let step = STEP_BYTES as u32;
        first.change(&all, [3, 4], 0, step - 1);
        assert_eq!(
            (all.active(), first.held(&all, [3, 4])),
            (0, STEP_BYTES - 1)
        );
        first.change(&all, [3, 4], step - 1, step);
        second.change(&all, [3, 5], 0, 3 * step);
        assert_eq!((all.active(), all.largest()), (1, (3, 4 * STEP_BYTES)));
        // The lower of two sums is the one that nobody else adds to.
        assert_eq!(second.held(&all, [3, 4]), STEP_BYTES);
        second.change(&all, [3, 5], 3 * step, step / 2);
        second.change(&all, [3, 5], step / 2, 0);
        assert_eq!(all.largest(), (3, STEP_BYTES));
        first.clear(&all);
        assert_eq!((all.active(), all.largest().1), (0, 0));
    }
}
