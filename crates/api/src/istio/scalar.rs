//! Scalars of protobuf's JSON form.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserializer;
use serde::de::{Error, Visitor};

use super::note::Notes;
use super::reading::Read;

impl Read for Box<str> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let text: Box<str> = serde::Deserialize::deserialize(d)?;
        notes.count(text.len())?;
        Ok(text)
    }
}

impl Read for bool {
    fn read<'de, D: Deserializer<'de>>(d: D, _: &mut Notes) -> Result<Self, D::Error> {
        serde::Deserialize::deserialize(d)
    }
}

/// A finite number, or its text.
impl Read for f64 {
    fn read<'de, D: Deserializer<'de>>(d: D, _: &mut Notes) -> Result<Self, D::Error> {
        let value = match number(d)? {
            Number::Whole(value) => value as f64,
            Number::Broken(value) => value,
        };
        if value.is_finite() {
            Ok(value)
        } else {
            Err(D::Error::custom("the number is not finite"))
        }
    }
}

macro_rules! whole {
    ($($type:ty),+) => {$(
        /// A whole number, or its text.
        impl Read for $type {
            fn read<'de, D: Deserializer<'de>>(d: D, _: &mut Notes) -> Result<Self, D::Error> {
                let whole = match number(d)? {
                    Number::Whole(value) => Some(value),
                    // Up to 2^53 a float with nothing behind the point is that whole number.
                    Number::Broken(value) if value.fract() == 0.0 && value.abs() <= 9.0e15 => {
                        Some(value as i128)
                    }
                    Number::Broken(_) => None,
                };
                whole.and_then(|value| value.try_into().ok()).ok_or_else(|| {
                    D::Error::custom(format_args!(
                        "the value is not a whole number from {} to {}",
                        <$type>::MIN,
                        <$type>::MAX
                    ))
                })
            }
        }
    )+};
}
whole!(u16, u32, u64, i32);

/// A number as it was written.
enum Number {
    Whole(i128),
    Broken(f64),
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
    struct Numbers;

    impl Visitor<'_> for Numbers {
        type Value = Number;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number")
        }

        fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
            Ok(Number::Whole(value.into()))
        }

        fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
            Ok(Number::Whole(value.into()))
        }

        fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
            Ok(Number::Broken(value))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
            let whole = text.parse().map(Number::Whole);
            let broken = || text.parse().map(Number::Broken);
            whole
                .or_else(|_| broken())
                .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Numbers)
}

/// A span such as `1.5s`, `100ms` or `1h30m`, which must not be negative.
impl Read for Duration {
    fn read<'de, D: Deserializer<'de>>(d: D, _: &mut Notes) -> Result<Self, D::Error> {
        struct Spans;

        impl Visitor<'_> for Spans {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"1.5s\", \"100ms\" or \"1h30m\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
                parse_duration(text)
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }

        d.deserialize_str(Spans)
    }
}

/// Bytes as base64, in the common or the URL alphabet, with or without padding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Base64(pub Box<[u8]>);

impl Read for Base64 {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        const LENIENT: GeneralPurposeConfig =
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let text = Box::<str>::read(d, notes)?;
        let alphabet = match text.contains(['-', '_']) {
            true => &alphabet::URL_SAFE,
            false => &alphabet::STANDARD,
        };
        let bytes = GeneralPurpose::new(alphabet, LENIENT).decode(text.as_bytes());
        bytes
            .map(|bytes| Base64(bytes.into()))
            .map_err(|_| D::Error::custom("the text is not base64"))
    }
}

/// Reads a duration as protobuf and Go write it: a sequence of decimal numbers with units. Parts
/// below a nanosecond are dropped; none for what is negative, or is no duration.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos: u128 = 0;
    let mut is_empty = true;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_len);
        let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, tail) = tail.split_at(unit_len.unwrap_or(tail.len()));
        let scale: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        nanos = nanos.checked_add(parse_decimal(number, scale)?)?;
        (rest, is_empty) = (tail, false);
    }
    if is_empty {
        return None;
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    // Protobuf ends at 10,000 years.
    (seconds <= 315_576_000_000)
        .then(|| Duration::new(seconds, u32::try_from(nanos % 1_000_000_000).unwrap_or(0)))
}

/// A decimal such as `1.5` times a scale, in whole units.
fn parse_decimal(text: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // An empty part counts as zero, as in `1.` and `.5`.
    let digits = |part: &str| match part {
        "" => Some(0),
        part => part.parse::<u128>().ok(),
    };
    let mut total = digits(whole)?.checked_mul(scale)?;
    let fraction = fraction.get(..fraction.len().min(18))?;
    let power = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    total = total.checked_add(digits(fraction)?.checked_mul(scale)? / power)?;
    Some(total)
}

/// Declares an enum whose JSON form is a word or a number; the first is the default.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $number:literal $word:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(
                #[doc = concat!("`", $word, "`.")]
                $(#[$doc])*
                $variant = $number,
            )+
        }

        impl $name {
            const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word as Istio writes it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name::ALL[0]
            }
        }

        impl $crate::istio::reading::Read for $name {
            fn read<'de, D: serde::Deserializer<'de>>(
                deserializer: D,
                _: &mut $crate::istio::note::Notes,
            ) -> Result<Self, D::Error> {
                $crate::istio::scalar::read_word(deserializer, |word| {
                    $name::ALL.iter().copied().find(|known| match word {
                        $crate::istio::scalar::Word::Text(text) => known.as_str() == text,
                        $crate::istio::scalar::Word::Number(number) => *known as i64 == number,
                    })
                }, &[$($word),+])
            }
        }
    };
}
pub(crate) use words;

/// A value of an enum as it is written.
#[derive(Clone, Copy)]
pub(crate) enum Word<'a> {
    Text(&'a str),
    Number(i64),
}

/// Reads a word or number and finds what it stands for among `known`.
pub(crate) fn read_word<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    find: impl Fn(Word<'_>) -> Option<T>,
    known: &[&str],
) -> Result<T, D::Error> {
    struct Words<'a, F>(F, &'a [&'a str]);

    impl<T, F: Fn(Word<'_>) -> Option<T>> Words<'_, F> {
        fn find<E: Error>(&self, word: Word<'_>) -> Result<T, E> {
            (self.0)(word).ok_or_else(|| {
                E::custom(format_args!("the value is none of {}", self.1.join(", ")))
            })
        }
    }

    impl<T, F: Fn(Word<'_>) -> Option<T>> Visitor<'_> for Words<'_, F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "one of {}", self.1.join(", "))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            self.find(Word::Text(text))
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            self.find(Word::Number(number))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
            self.find(Word::Number(i64::try_from(number).unwrap_or(-1)))
        }
    }

    deserializer.deserialize_any(Words(find, known))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse_duration;

    #[test]
    fn durations_are_numbers_with_units() {
        let cases = [
            ("5s", Some(5_000)),
            ("1.5s", Some(1_500)),
            ("1h", Some(3_600_000)),
            ("1h30m", Some(5_400_000)),
            ("100ms", Some(100)),
            (".5s", Some(500)),
            ("2.s", Some(2_000)),
            ("0", Some(0)),
            ("+3s", Some(3_000)),
            ("", None),
            ("5", None),
            ("s", None),
            (".s", None),
            ("-1s", None),
            ("1.2.3s", None),
            ("5 s", None),
            ("5parsecs", None),
            ("315576000001s", None),
            ("340282366920938463463374607431768211456s", None),
        ];
        for (text, millis) in cases {
            assert_eq!(
                parse_duration(text),
                millis.map(Duration::from_millis),
                "{text:?}"
            );
        }
        let tiny = Some(Duration::from_nanos(1));
        assert_eq!(parse_duration("1.9ns"), tiny);
        assert_eq!(parse_duration("0.000000001s"), tiny);
        assert_eq!(parse_duration("1µs"), Some(Duration::from_micros(1)));
    }
}
