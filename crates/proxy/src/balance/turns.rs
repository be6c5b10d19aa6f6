//! One after the other, by weight: each has its turns spread evenly over a round.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most turns of a round. Weights that need more are rounded to shares of it.
const ROUND_MAX: u64 = 4_096;

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

/// The turns of one round: whoever is owed the next turn soonest has it.
fn round(weights: &[u32]) -> Box<[u32]> {
    let divisor = weights
        .iter()
        .fold(0, |so_far, weight| gcd(so_far, *weight))
        .max(1);
    let sum: u64 = weights
        .iter()
        .map(|weight| u64::from(weight / divisor))
        .sum();
    let bound = ROUND_MAX.max(2 * weights.len() as u64);
    let turns = |weight: u32| {
        let weight = u64::from(weight / divisor);
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

fn gcd(mut left: u32, mut right: u32) -> u32 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{WeightedRoundRobin, round};

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
    fn weights_beyond_a_round_are_rounded_and_nobody_is_left_out() {
        let round = round(&[u32::MAX, 1, u32::MAX / 2]);
        assert!(round.len() <= 4_100, "{}", round.len());
        let share = |index| round.iter().filter(|turn| **turn == index).count();
        assert_eq!(share(1), 1);
        assert!((2_600..2_800).contains(&share(0)), "{}", share(0));
    }
}
