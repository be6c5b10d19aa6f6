//! The cost of views that look at what they may see, in portions that are light by themselves.
//!
//! One namespace may cause minutes of them. So they are added up for it, and charged once they are
//! as much as a heavy batch.

use std::collections::BTreeMap;
use std::time::Duration;

use myriad_base::clock::Instant;

use super::debts::{DEBTORS_MAX, HEAVY_MIN};

/// How long portions are added up at most. A namespace that takes less than a heavy batch within it
/// owes nothing.
const SUMMED_FOR: Duration = Duration::from_secs(10);

/// The portions of each namespace that are not charged yet; no more than [`DEBTORS_MAX`].
#[derive(Default)]
pub(super) struct Portions(BTreeMap<Box<str>, Sum>);

struct Sum {
    cost: Duration,
    since: Instant,
}

impl Portions {
    /// Adds a portion. Returns what all of its namespace have cost, once that is to be charged.
    pub(super) fn add(
        &mut self,
        namespace: &str,
        cost: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let is_over = |sum: &Sum| now.saturating_duration_since(sum.since) > SUMMED_FOR;
        let known = self.0.remove(namespace).filter(|sum| !is_over(sum));
        let mut sum = known.unwrap_or(Sum {
            cost: Duration::ZERO,
            since: now,
        });
        sum.cost += cost;
        if sum.cost >= HEAVY_MIN {
            return Some(sum.cost);
        }
        if self.0.len() >= DEBTORS_MAX {
            self.0.retain(|_, sum| !is_over(sum));
        }
        if self.0.len() < DEBTORS_MAX {
            self.0.insert(namespace.into(), sum);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_base::clock;

    use super::{DEBTORS_MAX, HEAVY_MIN, Portions, SUMMED_FOR};

    #[test]
    fn light_portions_add_up_to_a_heavy_one_unless_they_are_few() {
        let (mut portions, now) = (Portions::default(), clock::now());
        let third = HEAVY_MIN / 3 + Duration::from_millis(1);
        for charged in [None, None, Some(3 * third), None] {
            assert_eq!(portions.add("a", third, now), charged);
        }
        assert_eq!(portions.add("b", third, now), None);
        let later = now + SUMMED_FOR + Duration::from_millis(1);
        assert_eq!(portions.add("a", third, later), None);
        assert_eq!(portions.add("a", third, later), None, "the first is over");
        for number in 0..2 * DEBTORS_MAX {
            assert_eq!(portions.add(&number.to_string(), third, later), None);
        }
        assert_eq!(portions.0.len(), DEBTORS_MAX);
    }
}
