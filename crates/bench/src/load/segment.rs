//! Execution segments, as k6 has them: parts of a run that several generators share, of which each
//! knows by itself which requests are its own.

use std::cmp::Ordering;
use std::str::FromStr;

use anyhow::{Context as _, ensure};

/// The most requests after which the pattern of a sequence begins anew: the least common multiple
/// of what its fractions are divided by.
const PERIOD_MAX: u64 = 10_000;

/// A part of one, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fraction {
    over: u64,
    under: u64,
}

/// The part of a run from one fraction to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    from: Fraction,
    to: Fraction,
}

/// The ends of all segments of a run, from 0 to 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence(Vec<Fraction>);

/// The requests that are a generator's own, of those of the whole run: the same ones in each
/// period, spread over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stripes {
    owned: Vec<bool>,
}

impl Fraction {
    const ZERO: Fraction = Fraction { over: 0, under: 1 };
    const ONE: Fraction = Fraction { over: 1, under: 1 };

    /// One of 0 to 1.
    fn new(over: u64, under: u64) -> anyhow::Result<Fraction> {
        ensure!(under > 0, "a fraction is not divided by 0");
        ensure!(over <= under, "{over}/{under} is above 1");
        let divisor = common_divisor(over, under);
        Ok(Fraction {
            over: over / divisor,
            under: under / divisor,
        })
    }

    /// As many of `period` as it says, where the period is a multiple of what divides it.
    fn of(self, period: u64) -> u64 {
        self.over * (period / self.under)
    }
}

/// `1/4`, `25%`, `0.25`, `0` or `1`.
impl FromStr for Fraction {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Fraction> {
        let read = |text: &str| text.trim().parse::<u64>().ok();
        let parts = if let Some((over, under)) = text.split_once('/') {
            read(over).zip(read(under))
        } else if let Some(percent) = text.strip_suffix('%') {
            read(percent).map(|percent| (percent, 100))
        } else if let Some((whole, digits)) = text.split_once('.') {
            let exponent = u32::try_from(digits.len()).unwrap_or(u32::MAX);
            let under = 10_u64.checked_pow(exponent);
            under.zip(read(whole)).and_then(|(under, whole)| {
                let over = whole.checked_mul(under)?.checked_add(read(digits)?)?;
                Some((over, under))
            })
        } else {
            read(text).map(|whole| (whole, 1))
        };
        let (over, under) = parts.with_context(|| {
            format!("{text:?} is no fraction such as `1/4`, percentage or decimal")
        })?;
        Fraction::new(over, under)
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Fraction) -> Ordering {
        let left = u128::from(self.over) * u128::from(other.under);
        left.cmp(&(u128::from(other.over) * u128::from(self.under)))
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Fraction) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Display for Fraction {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.under {
            1 => write!(out, "{}", self.over),
            under => write!(out, "{}/{under}", self.over),
        }
    }
}

/// `1/4:1/2`, or the end alone of one that begins at 0.
impl FromStr for Segment {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Segment> {
        let (from, to) = match text.split_once(':') {
            Some((from, to)) => (from.parse()?, to.parse()?),
            None => (Fraction::ZERO, text.parse()?),
        };
        ensure!(
            from < to,
            "a segment ends behind its start, unlike {text:?}"
        );
        Ok(Segment { from, to })
    }
}

impl std::fmt::Display for Segment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}", self.from, self.to)
    }
}

/// `0,1/4,1/2,3/4,1`.
impl FromStr for Sequence {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Sequence> {
        let ends = text.split(',').map(|end| end.trim().parse());
        let ends = ends.collect::<anyhow::Result<Vec<Fraction>>>()?;
        ensure!(ends.is_sorted_by(|a, b| a < b), "{text:?} does not rise");
        let is_whole = ends.first() == Some(&Fraction::ZERO) && ends.last() == Some(&Fraction::ONE);
        ensure!(is_whole, "{text:?} does not go from 0 to 1");
        Ok(Sequence(ends))
    }
}

impl Sequence {
    /// So many segments of one length.
    pub(crate) fn even(count: u64) -> anyhow::Result<Sequence> {
        let ends = (0..=count).map(|end| Fraction::new(end, count));
        Ok(Sequence(ends.collect::<anyhow::Result<_>>()?))
    }

    /// The segment with this number from 0.
    pub(crate) fn segment(&self, number: usize) -> Option<Segment> {
        match self.0.get(number..number + 2)? {
            &[from, to] => Some(Segment { from, to }),
            _ => None,
        }
    }

    /// One that has this segment, and what is left before and behind it.
    fn around(segment: Segment) -> Sequence {
        let mut ends = vec![Fraction::ZERO, segment.from, segment.to, Fraction::ONE];
        ends.dedup();
        Sequence(ends)
    }

    fn segments(&self) -> impl Iterator<Item = Segment> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        pairs.map(|(&from, &to)| Segment { from, to })
    }

    /// The number of requests after which the pattern begins anew.
    fn period(&self) -> anyhow::Result<u64> {
        let period = self.0.iter().try_fold(1_u64, |period, end| {
            let multiple = (period / common_divisor(period, end.under)).checked_mul(end.under);
            multiple.filter(|&multiple| multiple <= PERIOD_MAX)
        });
        period.with_context(|| format!("the segments share no period of {PERIOD_MAX} requests"))
    }
}

impl Stripes {
    /// All requests.
    pub(crate) fn whole() -> Stripes {
        Stripes { owned: vec![true] }
    }

    /// The requests of one segment of a sequence; without one, of it and what is left around it.
    ///
    /// Each request of a period goes to the segment that has most too few by then, so that all
    /// have exactly their share at its end, and about their share at any time.
    pub(crate) fn new(segment: Segment, sequence: Option<&Sequence>) -> anyhow::Result<Stripes> {
        let around = Sequence::around(segment);
        let sequence = sequence.unwrap_or(&around);
        let own = sequence.segments().position(|it| it == segment);
        let own = own.with_context(|| format!("the sequence has no segment {segment}"))?;
        let period = sequence.period()?;
        let shares = sequence.segments();
        let shares: Vec<u64> = shares
            .map(|it| it.to.of(period) - it.from.of(period))
            .collect();
        let mut given = vec![0_u64; shares.len()];
        let owned = (1..=period).map(|number| {
            let short = |at: usize| {
                let due = i128::from(shares[at]) * i128::from(number);
                due - i128::from(given[at]) * i128::from(period)
            };
            // The first of those that are equally short.
            let next = (0..shares.len()).rev().max_by_key(|&at| short(at));
            let next = next.unwrap_or_default();
            given[next] += 1;
            next == own
        });
        Ok(Stripes {
            owned: owned.collect(),
        })
    }

    /// Whether a request or connection of the whole run is its own, by its number from 0.
    pub(crate) fn owns(&self, number: u64) -> bool {
        let at = usize::try_from(number % self.period()).unwrap_or_default();
        self.owned.get(at).copied().unwrap_or_default()
    }

    /// How many of the first so many are.
    pub(crate) fn count(&self, of: u64) -> u64 {
        let rounds = of / self.period();
        let rest = usize::try_from(of % self.period()).unwrap_or_default();
        let counted = |owned: &[bool]| owned.iter().filter(|&&is_own| is_own).count() as u64;
        rounds * counted(&self.owned) + counted(self.owned.get(..rest).unwrap_or_default())
    }

    fn period(&self) -> u64 {
        (self.owned.len() as u64).max(1)
    }
}

fn common_divisor(left: u64, right: u64) -> u64 {
    match right {
        0 => left.max(1),
        _ => common_divisor(right, left % right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripes(sequence: &str) -> Vec<Stripes> {
        let sequence: Sequence = sequence.parse().unwrap();
        let segments = sequence.segments();
        let stripes = segments.map(|segment| Stripes::new(segment, Some(&sequence)).unwrap());
        stripes.collect()
    }

    #[test]
    fn every_request_has_exactly_one_owner_whatever_the_segments() {
        for sequence in [
            "0,1",
            "0,1/2,1",
            "0,1/4,1/2,3/4,1",
            "0,1/3,2/3,1",
            "0,10%,0.35,7/8,1",
            "0,1/7,1/3,99%,1",
            "0,1/1000,1",
        ] {
            let all = stripes(sequence);
            for number in 0..5_000 {
                let owners = all.iter().filter(|stripes| stripes.owns(number)).count();
                assert_eq!(owners, 1, "request {number} of {sequence}");
            }
            for of in [0, 1, 7, 100, 999, 12_345] {
                let counted: u64 = all.iter().map(|stripes| stripes.count(of)).sum();
                assert_eq!(counted, of, "{sequence}");
                for stripes in &all {
                    let owned = (0..of).filter(|&number| stripes.owns(number)).count();
                    assert_eq!(stripes.count(of), owned as u64, "{of} of {sequence}");
                }
            }
        }
    }

    #[test]
    fn a_segment_has_its_share_at_the_end_of_a_period_and_about_it_before() {
        let sequence: Sequence = "0,1/10,7/20,1".parse().unwrap();
        for (segment, share) in sequence.segments().zip([2, 5, 13]) {
            let stripes = Stripes::new(segment, Some(&sequence)).unwrap();
            assert_eq!(stripes.count(20), share, "{segment}");
            for of in 0..400 {
                let wanted = share as f64 * of as f64 / 20.0;
                let off = (stripes.count(of) as f64 - wanted).abs();
                assert!(off <= 2.0, "{segment} is {off} off after {of}");
            }
        }
    }

    #[test]
    fn even_segments_take_turns() {
        let sequence = Sequence::even(4).unwrap();
        assert_eq!(sequence, "0,1/4,1/2,75%,1".parse().unwrap());
        for (number, stripes) in stripes("0,1/4,1/2,3/4,1").iter().enumerate() {
            let owned = (0..8).filter(|&request| stripes.owns(request));
            let number = number as u64;
            assert_eq!(owned.collect::<Vec<_>>(), [number, number + 4]);
        }
        assert_eq!(sequence.segment(3).unwrap(), "3/4:1".parse().unwrap());
        assert!(sequence.segment(4).is_none());
    }

    #[test]
    fn a_segment_alone_has_its_share() {
        for (text, share) in [("1/4", 25), ("1/4:1/2", 25), ("90%:1", 10), ("0:1", 100)] {
            let stripes = Stripes::new(text.parse().unwrap(), None).unwrap();
            assert_eq!(stripes.count(100), share, "{text}");
        }
    }

    #[test]
    fn what_is_no_segment_or_sequence_is_refused() {
        for text in [
            "", "1/2:1/4", "1/2:1/2", "0", "5/4", "1/0", "a:b", "-1:1", "0:120%",
        ] {
            assert!(text.parse::<Segment>().is_err(), "{text}");
        }
        for text in ["", "0", "0,1/2", "1/2,1", "0,1/2,1/4,1", "0,1/2,1/2,1"] {
            assert!(text.parse::<Sequence>().is_err(), "{text}");
        }
        let sequence: Sequence = "0,1/2,1".parse().unwrap();
        assert!(Stripes::new("0:1/4".parse().unwrap(), Some(&sequence)).is_err());
        let odd: Sequence = "0,1/9973,1/2,1".parse().unwrap();
        let error = Stripes::new("1/2:1".parse().unwrap(), Some(&odd)).unwrap_err();
        assert!(error.to_string().contains("10000"), "{error}");
    }
}
