//! One after the other, by weight: each has its turns spread evenly over a round.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most turns of a round. Weights that need more are rounded to shares of it.
const ROUND_MAX: u64 = 4_096;

/// The bits of the number of points that parts share. Weights that need more are rounded.
const POINT_BITS_MAX: u32 = 31;

/// The order in which weighted endpoints take turns.
#[derive(Debug, Default)]
pub struct WeightedRoundRobin {
    /// Empty where all weights are equal: then indexes are turns.
    round: Box<[u32]>,
    len: usize,
    next: AtomicUsize,
}

impl WeightedRoundRobin {
    /// Turns that begin somewhere, so that not everybody begins with the first.
    pub fn new(weights: &[u32], start: usize) -> Self {
        let is_even = weights.windows(2).all(|pair| pair[0] == pair[1]);
        let round = if is_even {
            Box::default()
        } else {
            round(weights)
        };
        WeightedRoundRobin {
            round,
            len: weights.len(),
            next: AtomicUsize::new(start),
        }
    }

    /// The next; 0 where there is nobody.
    pub fn next(&self) -> usize {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        match (self.round.len(), self.len) {
            (0, 0) => 0,
            (0, len) => turn % len,
            (turns, _) => self.round[turn % turns] as usize,
        }
    }
}

/// The order in which parts of endpoints take turns: each has as many in a round as its weight
/// says, spread over it, without a list of them.
#[derive(Debug, Default)]
pub struct PartTurns {
    /// Where the points of each part end, of as many as there are turns in a round.
    ends: Box<[u64]>,
    /// How many points there are from one turn to the next. It has no factor in common with their
    /// number, so that a round comes by each of them once.
    step: u64,
    next: AtomicUsize,
}

impl PartTurns {
    /// Turns that begin somewhere, so that not everybody begins with the first.
    pub fn new(weights: &[u64], start: usize) -> Self {
        let divisor = weights
            .iter()
            .fold(0, |so_far, weight| gcd(so_far, *weight))
            .max(1);
        let sum: u128 = weights.iter().map(|it| u128::from(it / divisor)).sum();
        // Two numbers below that of the points are multiplied with each other.
        let excess = (u128::BITS - sum.leading_zeros()).saturating_sub(POINT_BITS_MAX);
        let mut end = 0;
        let ends = weights.iter().map(|weight| {
            let points = (weight / divisor).checked_shr(excess).unwrap_or(0);
            end += points.max(u64::from(*weight > 0));
            end
        });
        let ends: Box<[u64]> = ends.collect();
        PartTurns {
            step: step(ends.last().copied().unwrap_or(0)),
            ends,
            next: AtomicUsize::new(start),
        }
    }

    /// The next; 0 where there is nobody.
    pub fn next(&self) -> usize {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) as u64;
        let points = self.ends.last().copied().unwrap_or(0).max(1);
        let point = (turn % points) * self.step % points;
        self.ends.partition_point(|end| *end <= point)
    }
}

/// The step that spreads turns over so many points: near the golden section of them.
fn step(points: u64) -> u64 {
    let mut step = ((points * 0x9e37_79b9) >> 32).max(1);
    while gcd(step, points) != 1 {
        step += 1;
    }
    step
}

/// The turns of one round: whoever is owed the next turn soonest has it.
fn round(weights: &[u32]) -> Box<[u32]> {
    let divisor = weights
        .iter()
        .fold(0, |so_far, weight| gcd(so_far, u64::from(*weight)))
        .max(1);
    let sum: u64 = weights
        .iter()
        .map(|weight| u64::from(*weight) / divisor)
        .sum();
    let bound = ROUND_MAX.max(2 * weights.len() as u64);
    let turns = |weight: u32| {
        let weight = u64::from(weight) / divisor;
        match weight {
            0 => 0,
            _ if sum <= bound => weight,
            _ => (weight * bound / sum).max(1),
        }
    };
    let mut owed: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    // The middle of each share of the round is when its turn is due.
    let due = |turn: u64, turns: u64| ((2 * turn + 1) << 32) / (2 * turns);
    let mut left: Vec<(u64, u64)> = Vec::with_capacity(weights.len());
    for (index, weight) in weights.iter().enumerate() {
        let turns = turns(*weight);
        left.push((0, turns));
        if turns > 0 {
            owed.push(Reverse((due(0, turns), index as u32)));
        }
    }
    let mut round = Vec::new();
    while let Some(Reverse((_, index))) = owed.pop() {
        round.push(index);
        let (taken, turns) = &mut left[index as usize];
        *taken += 1;
        if *taken < *turns {
            owed.push(Reverse((due(*taken, *turns), index)));
        }
    }
    round.into()
}

fn gcd(mut left: u64, mut right: u64) -> u64 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{PartTurns, WeightedRoundRobin, round};

    #[test]
    fn turns_are_spread_over_the_round() {
        let turns = WeightedRoundRobin::new(&[1, 4, 1], 0);
        let taken: Vec<usize> = (0..6).map(|_| turns.next()).collect();
        assert_eq!(taken, [1, 1, 0, 2, 1, 1]);
        let turns = WeightedRoundRobin::new(&[7, 7], 1);
        assert_eq!([turns.next(), turns.next(), turns.next()], [1, 0, 1]);
    }

    proptest! {
        #[test]
        fn a_round_has_as_many_turns_as_weights_say(
            weights in prop::collection::vec(0..200_u32, 2..16)
        ) {
            let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            prop_assume!(sum > 0);
            let round = round(&weights);
            for (index, weight) in weights.iter().enumerate() {
                let taken = round.iter().filter(|turn| **turn == index as u32).count() as u64;
                prop_assert_eq!(taken * sum, u64::from(*weight) * round.len() as u64);
            }
        }
    }

    #[test]
    fn parts_have_their_turns_in_every_round_and_spread_over_it() {
        let weights = [128, 17, 55];
        let turns = PartTurns::new(&weights.map(|weight| weight * 3), 77);
        let taken: Vec<usize> = (0..1_000).map(|_| turns.next()).collect();
        let shares = |taken: &[usize]| {
            [0, 1, 2].map(|part| taken.iter().filter(|it| **it == part).count() as u64)
        };
        for round in taken.windows(200) {
            assert_eq!(shares(round), weights);
        }
        for part in taken.windows(50) {
            for (share, weight) in shares(part).into_iter().zip(weights) {
                assert!((share * 4).abs_diff(weight) <= 12, "{share} of {weight}");
            }
        }
        assert_eq!(PartTurns::new(&[7], 3).next(), 0);
        assert_eq!(PartTurns::new(&[], 3).next(), 0);
    }

    #[test]
    fn heavy_parts_have_their_turns_and_light_ones_one_at_least() {
        let turns = PartTurns::new(&[u64::MAX, 1, u64::MAX / 3], 0);
        let mut taken = [0; 3];
        for _ in 0..10_000 {
            taken[turns.next()] += 1;
        }
        assert!((7_450..7_550).contains(&taken[0]), "{taken:?}");
        assert!(taken[1] <= 1, "{taken:?}");
    }

    #[test]
    fn weights_beyond_a_round_are_rounded_and_nobody_is_left_out() {
        let round = round(&[u32::MAX, 1, u32::MAX / 2]);
        assert!(round.len() <= 4_100, "{}", round.len());
        let share = |index| round.iter().filter(|turn| **turn == index).count();
        assert_eq!(share(1), 1);
        assert!((2_600..2_800).contains(&share(0)), "{}", share(0));
    }
}
