//! Durations as Gateway API writes them (GEP-2257).

use std::fmt;
use std::time::Duration;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

use crate::istio::note::Notes;
use crate::istio::reading::{Read, Wire};

/// The most parts of a duration, each a number with a unit.
const PARTS_MAX: usize = 4;

/// The most digits of a part.
const DIGITS_MAX: usize = 5;

/// A duration such as `10s`, `1h30m` or `500ms`: whole numbers with units.
pub(crate) struct Span(Duration);

impl Wire<Duration> for Span {
    fn into_kept(self) -> Duration {
        self.0
    }
}

impl Read for Span {
    fn read<'de, D: Deserializer<'de>>(d: D, _: &mut Notes) -> Result<Self, D::Error> {
        struct Spans;

        impl Visitor<'_> for Spans {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"10s\", \"500ms\" or \"1h30m\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                let span = parse(text).map(Span);
                span.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        d.deserialize_str(Spans)
    }
}

fn parse(text: &str) -> Option<Duration> {
    let (mut rest, mut total, mut parts) = (text, Duration::ZERO, 0);
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, behind) = rest.split_at(digits);
        let end = behind.find(|letter: char| letter.is_ascii_digit());
        let (unit, behind) = behind.split_at(end.unwrap_or(behind.len()));
        let millis: u64 = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        parts += 1;
        if parts > PARTS_MAX || number.len() > DIGITS_MAX {
            return None;
        }
        // Five digits of hours are far below the end of milliseconds.
        total += Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(millis)?);
        rest = behind;
    }
    (parts > 0).then_some(total)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn durations_are_up_to_four_whole_numbers_with_units() {
        let cases = [
            ("10s", Some(10_000)),
            ("0s", Some(0)),
            ("500ms", Some(500)),
            ("1h30m", Some(5_400_000)),
            ("1h1m1s1ms", Some(3_661_001)),
            ("99999h", Some(359_996_400_000)),
            ("", None),
            ("0", None),
            ("10", None),
            ("s", None),
            ("1.5s", None),
            ("-1s", None),
            ("+1s", None),
            ("1 s", None),
            ("100000s", None),
            ("1s1s1s1s1s", None),
            ("1d", None),
            ("1us", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }
}
