//! A pseudo-random number generator, cheap and seeded by its owner.

use std::cell::Cell;

/// A source of numbers that spread well and guard no secret.
pub struct Rng {
    state: Cell<u64>,
}

impl Rng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Rng {
            state: Cell::new(seed),
        }
    }

    /// The next number (SplitMix64).
    pub fn roll(&self) -> u64 {
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 where the bound is 0.
    pub fn roll_below(&self, bound: u64) -> u64 {
        // The high half of a product spreads without a division; the bias is below 2^-32 for
        // any bound that weights and counts reach.
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }
}
