//! Scales: where a value stands on an axis, and which values are written beside it.

/// About how many ticks an even axis has.
const TICKS: f64 = 5.0;

/// Powers of ten up to which ticks stand between them as well.
const DECADES_CLOSE: f64 = 2.5;

/// An axis between two places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    /// The distance of ticks; nothing for powers of ten.
    step: Option<f64>,
    from: f64,
    to: f64,
}

impl Scale {
    /// The scale on which all these values have a place; none where there is no value.
    pub(super) fn over(values: impl Iterator<Item = f64>, is_log: bool) -> Option<Scale> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        Some(match is_log {
            true => Scale::by_powers(low, high),
            false => Scale::even(low.min(0.0), high.max(0.0)),
        })
    }

    /// So many places, half a place from both ends.
    pub(super) fn of_places(count: usize) -> Scale {
        Scale {
            low: -0.5,
            high: count as f64 - 0.5,
            step: Some(1.0),
            from: 0.0,
            to: 1.0,
        }
    }

    /// The same between these places.
    pub(super) fn between(self, from: f64, to: f64) -> Scale {
        Scale { from, to, ..self }
    }

    /// The place of a value.
    pub(super) fn place(&self, value: f64) -> f64 {
        let part = match self.step {
            Some(_) => (value - self.low) / (self.high - self.low),
            None => (value / self.low).log10() / (self.high / self.low).log10(),
        };
        self.from + (self.to - self.from) * part
    }

    /// The values that are written.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.step {
            Some(step) => {
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step).floor() as i64;
                (first..=last).map(|tick| tick as f64 * step).collect()
            }
            None => {
                let between: &[f64] = match (self.high / self.low).log10() <= DECADES_CLOSE {
                    true => &[1.0, 2.0, 5.0],
                    false => &[1.0],
                };
                let first = self.low.log10().floor() as i32;
                let last = self.high.log10().ceil() as i32;
                let all = (first..=last).flat_map(|power| {
                    (between.iter()).map(move |factor| factor * 10_f64.powi(power))
                });
                // What is written may be a hair beyond the end by rounding.
                let is_inside =
                    |value: &f64| (self.low * 0.999..=self.high * 1.001).contains(value);
                all.filter(is_inside).collect()
            }
        }
    }

    fn even(low: f64, high: f64) -> Scale {
        let span = if high > low { high - low } else { 1.0 };
        let rough = span / TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        let fitting = factors.into_iter().find(|factor| factor * power >= rough);
        let step = fitting.unwrap_or(10.0) * power;
        let low = (low / step).floor() * step;
        let high = (high / step).ceil() * step;
        Scale {
            low,
            high: if high > low { high } else { low + step },
            step: Some(step),
            from: 0.0,
            to: 1.0,
        }
    }

    fn by_powers(low: f64, high: f64) -> Scale {
        let low = 10_f64.powf(low.log10().floor());
        let high = 10_f64.powf(high.log10().ceil());
        Scale {
            low,
            high: if high > low { high } else { low * 10.0 },
            step: None,
            from: 0.0,
            to: 1.0,
        }
    }
}
