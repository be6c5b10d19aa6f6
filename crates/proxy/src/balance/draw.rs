//! Drawing one of many by weight, in one step however many there are (the alias method of
//! Walker, as Vose builds it).

use crate::random::rng::Rng;

/// Weights, ready to be drawn by.
#[derive(Debug, Default)]
pub struct Urn {
    /// Per place: a roll below the first number stays, any other goes to the second.
    places: Box<[(u32, u32)]>,
    len: u32,
}

impl Urn {
    /// An urn with as many places as there are weights. Equal weights need no table. A
    /// weight times their number has to be below 2^96.
    pub fn new<W: Copy + PartialEq + Into<u128>>(weights: &[W]) -> Self {
        let len = u32::try_from(weights.len()).unwrap_or(u32::MAX);
        if weights.windows(2).all(|pair| pair[0] == pair[1]) {
            return Urn {
                places: Box::default(),
                len,
            };
        }
        let weights: Vec<u128> = weights.iter().map(|weight| (*weight).into()).collect();
        let sum: u128 = weights.iter().sum();
        // Shares of a place, in 2^32nds: 1 << 32 fills it.
        let full = 1_u128 << 32;
        let scale = |weight: u128| weight * u128::from(len) * full / sum.max(1);
        let mut left: Vec<u128> = weights.iter().map(|weight| scale(*weight)).collect();
        let mut places: Vec<(u32, u32)> = (0..len).map(|index| (u32::MAX, index)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..left.len()).partition(|index| left[*index] < full);
        while let (Some(poor), Some(rich)) = (small.pop(), large.last().copied()) {
            places[poor] = (u32::try_from(left[poor]).unwrap_or(u32::MAX), rich as u32);
            left[rich] -= full - left[poor];
            if left[rich] < full {
                large.pop();
                small.push(rich);
            }
        }
        Urn {
            places: places.into(),
            len,
        }
    }

    /// A place; 0 where there is none.
    pub fn draw(&self, dice: &Rng) -> usize {
        let roll = dice.roll();
        let index = ((u64::from(self.len) * (roll >> 32)) >> 32) as usize;
        match self.places.get(index) {
            Some((bound, alias)) if roll as u32 >= *bound => *alias as usize,
            _ => index,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Rng, Urn};

    fn shares(weights: &[u32], rolls: usize) -> Vec<usize> {
        let (urn, dice) = (Urn::new(weights), Rng::new(7));
        let mut taken = vec![0; weights.len()];
        for _ in 0..rolls {
            taken[urn.draw(&dice)] += 1;
        }
        taken
    }

    proptest! {
        #[test]
        fn places_are_drawn_by_weight(weights in prop::collection::vec(1..1_000_u32, 1..20)) {
            const ROLLS: usize = 20_000;
            let sum: u32 = weights.iter().sum();
            for (taken, weight) in shares(&weights, ROLLS).into_iter().zip(&weights) {
                let expected = ROLLS as f64 * f64::from(*weight) / f64::from(sum);
                // Six times the standard deviation.
                let bound = 6.0 * expected.sqrt() + 1.0;
                prop_assert!((taken as f64 - expected).abs() < bound, "{taken} of {expected}");
            }
        }
    }

    #[test]
    fn what_weighs_nothing_is_not_drawn() {
        assert_eq!(shares(&[0, 5, 0], 1_000), [0, 1_000, 0]);
    }
}
