//! A table of places that everybody fills in turns, each in an order of their own (Maglev, 2016,
//! section 3.4): shares are more even than a ring's, a lookup is one step, and an endpoint that
//! leaves moves little beside its own share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::random::hash::hash_stable;

const FREE: u32 = u32::MAX;

/// How many places are looked at for each that there is, at most: orders that have nothing to do
/// with each other need some 12, and 16 of the largest table, but endpoints may be chosen so that
/// all have the same one. The orders cannot be secret, since all proxies have to have the same.
const LOOKS: u64 = 20;

/// A table of places.
#[derive(Debug, Default)]
pub struct Maglev {
    places: Box<[u32]>,
}

/// A member that fills places of the table.
struct Filler {
    index: u32,
    offset: u64,
    skip: u64,
    /// How many places of the own order were looked at.
    looked: u64,
    weight: u64,
    /// The weight of all rounds in which a place was taken.
    target: u64,
}

impl Maglev {
    /// A table with `size` places, which has to be a prime. `members` are marks, the same in every
    /// process, with weights.
    pub fn new(members: &[(u64, u32)], size: u32) -> Self {
        let size = u64::from(size.max(2));
        let mut fillers: Vec<Filler> = Vec::new();
        for (index, (mark, weight)) in members.iter().enumerate() {
            if *weight > 0 {
                let other = hash_stable(&mark.to_le_bytes());
                fillers.push(Filler {
                    index: index as u32,
                    offset: mark % size,
                    skip: other % (size - 1) + 1,
                    looked: 0,
                    weight: u64::from(*weight),
                    target: 0,
                });
            }
        }
        // The order of members must not matter: processes may list them in different ones.
        fillers.sort_unstable_by_key(|filler| members[filler.index as usize].0);
        Maglev {
            places: fill(&mut fillers, size).into(),
        }
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no place.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The members for a hash, in order: its own, then the ones that would have it without those
    /// before. There are a few, and members come up more than once.
    pub fn walk(&self, hash: u64) -> impl Iterator<Item = usize> {
        const TRIES: u64 = 32;
        let places = &self.places;
        (0..TRIES).filter_map(move |attempt| {
            let hash = match attempt {
                0 => hash,
                _ => hash_stable(&(hash ^ attempt).to_be_bytes()),
            };
            let place = (hash % places.len().max(1) as u64) as usize;
            places.get(place).map(|member| *member as usize)
        })
    }
}

/// The places, once all of them are taken; none where nobody takes any.
fn fill(fillers: &mut [Filler], size: u64) -> Vec<u32> {
    let Some(heaviest) = fillers.iter().map(|filler| filler.weight).max() else {
        return Vec::new();
    };
    let mut places = vec![FREE; size as usize];
    // By round, and in their order within one. Who has no turn in a round costs nothing there.
    let turns = (0..fillers.len()).map(|at| Reverse((1, at)));
    let mut turns: BinaryHeap<Reverse<(u64, usize)>> = turns.collect();
    let (mut looks, mut first_free) = (size * LOOKS, 0);
    for _ in 0..size {
        let Some(Reverse((round, at))) = turns.pop() else {
            break;
        };
        let filler = &mut fillers[at];
        let place = filler.next_free(&places, &mut looks);
        let place = place.unwrap_or_else(|| {
            first_free += places[first_free..]
                .iter()
                .take_while(|it| **it != FREE)
                .count();
            first_free
        });
        places[place] = filler.index;
        // The heaviest takes a place each round, others when their weight has grown to it.
        filler.target += heaviest;
        let next = filler.target.div_ceil(filler.weight).max(round + 1);
        turns.push(Reverse((next, at)));
    }
    places
}

impl Filler {
    /// The next place of the own order that is free; none where there are no looks left.
    fn next_free(&mut self, places: &[u32], looks: &mut u64) -> Option<usize> {
        let size = places.len() as u64;
        loop {
            *looks = looks.checked_sub(1)?;
            let place = ((self.offset + self.looked * self.skip) % size) as usize;
            self.looked += 1;
            if places[place] == FREE {
                return Some(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Filler, LOOKS, Maglev, hash_stable};

    const SIZE: u32 = 65_537;

    fn members(weights: &[u32]) -> Vec<(u64, u32)> {
        let mark = |index: usize| hash_stable(&index.to_be_bytes());
        let marked = weights.iter().enumerate();
        marked
            .map(|(index, weight)| (mark(index), *weight))
            .collect()
    }

    fn shares(table: &Maglev, count: usize) -> Vec<usize> {
        let mut shares = vec![0; count];
        for place in &table.places {
            shares[*place as usize] += 1;
        }
        shares
    }

    #[test]
    fn shares_follow_weights_nearly_exactly() {
        let even = shares(&Maglev::new(&members(&[1; 7]), SIZE), 7);
        assert!(
            even.iter().max().unwrap() - even.iter().min().unwrap() <= 1,
            "{even:?}"
        );
        let uneven = shares(&Maglev::new(&members(&[1, 2, 0, 5]), SIZE), 4);
        let part = SIZE as usize / 8;
        for (share, weight) in uneven.iter().zip([1, 2, 0, 5]) {
            assert!(share.abs_diff(part * weight) <= 8, "{uneven:?}");
        }
    }

    #[test]
    fn one_that_leaves_moves_little_beside_its_own_share() {
        let all = members(&[1; 10]);
        for gone in 0..10 {
            let mut rest = all.clone();
            rest.remove(gone);
            let (before, after) = (Maglev::new(&all, SIZE), Maglev::new(&rest, SIZE));
            let pairs = before.places.iter().zip(&after.places);
            let moved = pairs.filter(|(before, after)| {
                let owner = all[**before as usize].0;
                owner != all[gone].0 && owner != rest[**after as usize].0
            });
            let moved = moved.count();
            assert!(moved < SIZE as usize / 20, "{moved} of others moved");
        }
    }

    #[test]
    fn the_order_of_members_does_not_matter() {
        let (there, mut back) = (members(&[1, 2, 3]), members(&[1, 2, 3]));
        back.reverse();
        let (first, second) = (Maglev::new(&there, 251), Maglev::new(&back, 251));
        let marks = |table: &Maglev, of: &[(u64, u32)]| -> Vec<u64> {
            table
                .places
                .iter()
                .map(|place| of[*place as usize].0)
                .collect()
        };
        assert_eq!(marks(&first, &there), marks(&second, &back));
    }

    #[test]
    fn endpoints_of_one_order_cost_no_more_than_a_bound() {
        let filler = |index: u32, skip: u64| Filler {
            index,
            offset: 7,
            skip,
            looked: 0,
            weight: 1,
            target: 0,
        };
        let size = u64::from(SIZE);
        for skips in [1, 50_000] {
            let mut fillers: Vec<Filler> = (0..2_000_u32)
                .map(|index| filler(index, 1 + u64::from(index) * 7_919 % skips))
                .collect();
            let table = Maglev {
                places: super::fill(&mut fillers, size).into(),
            };
            let looked: u64 = fillers.iter().map(|filler| filler.looked).sum();
            assert!(looked <= size * LOOKS, "{looked} for {skips}");
            let shares = shares(&table, 2_000);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{least} to {most}");
        }
    }

    #[test]
    fn orders_of_their_own_end_before_the_bound() {
        let size = u64::from(SIZE);
        for count in [2, 200, 5_000] {
            let marked = members(&vec![1; count]);
            let fillers = (0..).zip(&marked).map(|(index, (mark, _))| Filler {
                index,
                offset: mark % size,
                skip: hash_stable(&mark.to_le_bytes()) % (size - 1) + 1,
                looked: 0,
                weight: 1,
                target: 0,
            });
            let mut fillers: Vec<Filler> = fillers.collect();
            super::fill(&mut fillers, size);
            let looked: u64 = fillers.iter().map(|filler| filler.looked).sum();
            assert!(looked < size * LOOKS * 3 / 4, "{looked} for {count}");
        }
    }

    #[test]
    fn a_table_of_nobody_leads_to_nobody() {
        assert_eq!(Maglev::new(&[], 251).walk(7).next(), None);
    }
}
