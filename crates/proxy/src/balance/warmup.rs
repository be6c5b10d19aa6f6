//! Endpoints that are new, and get less than their share until they have warmed up.

use std::time::Duration;

use myriad_model::Warmup;

/// The part of its weight that an endpoint has at an age: from the least percentage to all of it.
pub fn part(warmup: &Warmup, age: Duration) -> f32 {
    let least = f32::from(warmup.percent_min.min(100)) / 100.0;
    if age >= warmup.duration {
        return 1.0;
    }
    let passed = age.as_secs_f32() / warmup.duration.as_secs_f32();
    // Growth in proportion needs no power, and is what nearly everybody wants.
    let grown = match warmup.aggression {
        1_000 => passed,
        aggression => passed.powf(1_000.0 / aggression.max(1) as f32),
    };
    grown.clamp(least, 1.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_model::Warmup;

    use super::part;

    #[test]
    fn weights_grow_with_age() {
        let warmup = |percent_min, aggression| Warmup {
            duration: Duration::from_secs(100),
            percent_min,
            aggression,
        };
        let at = |warmup: Warmup, seconds| part(&warmup, Duration::from_secs(seconds));
        assert_eq!(at(warmup(10, 1_000), 0), 0.1);
        assert_eq!(at(warmup(10, 1_000), 50), 0.5);
        assert_eq!(at(warmup(10, 1_000), 100), 1.0);
        assert_eq!(at(warmup(10, 1_000), 1_000), 1.0);
        // More than 1,000 grows faster at first.
        assert!(at(warmup(10, 2_000), 25) > 0.49);
        assert!(at(warmup(10, 500), 50) < 0.26);
    }
}
