//! Trouble that is made on purpose.

use std::time::Duration;

use myriad_model::{AbortAnswer, Fault, Share};

use crate::random::rng::Rng;

/// The faults of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// How long it waits; zero for not at all.
    pub delay: Duration,
    /// The answer that it gets instead.
    pub abort: Option<AbortAnswer>,
}

/// Draws what happens to a request.
pub fn draw(fault: &Fault, dice: &Rng) -> Trouble {
    let delay = fault
        .delay
        .as_ref()
        .filter(|delay| is_in(delay.share, dice));
    let abort = fault
        .abort
        .as_ref()
        .filter(|abort| is_in(abort.share, dice));
    Trouble {
        delay: delay.map_or(Duration::ZERO, |delay| delay.delay),
        abort: abort.map(|abort| abort.answer),
    }
}

/// Whether a request is in a share of all.
pub fn is_in(share: Share, dice: &Rng) -> bool {
    dice.roll_below(u64::from(Share::ALL.ppm())) < u64::from(share.ppm())
}

#[cfg(test)]
mod tests {
    use myriad_model::Share;

    use super::is_in;
    use crate::random::rng::Rng;

    #[test]
    fn a_share_is_met_by_as_many() {
        let dice = Rng::new(7);
        for (ppm, range) in [
            (0, 0..1),
            (1_000_000, 10_000..10_001),
            (100_000, 850..1_150),
        ] {
            let share = Share::from_ppm(ppm).unwrap();
            let met = (0..10_000).filter(|_| is_in(share, &dice)).count();
            assert!(range.contains(&met), "{met} of {ppm}");
        }
    }
}
