//! When the certificates in service end: counted by the days that are left, never by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use myriad_base::clock;
use myriad_base::metrics::{EncodeMetric, MetricEncoder, MetricType, Metrics};
use myriad_model::{Change, Kind, SealedArc, Value};

const DAY: i64 = 86_400;

/// The days within which certificates are counted; 0 for those that have ended.
const WITHIN: [i64; 6] = [0, 1, 7, 14, 30, 90];

/// How many certificates end on each day since 1970: as much as there are days on which any ends.
#[derive(Clone, Default)]
pub(super) struct Expiries(Arc<Mutex<BTreeMap<i64, u64>>>);

impl Expiries {
    /// An empty count; registers the metrics that show it.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let expiries = Expiries::default();
        let help = "Certificates in service that end within so many days; 0 for those that have";
        metrics.register("certificates_expiring", help, expiries.clone());
        expiries
    }

    /// Follows a change that took effect.
    pub(super) fn follow(&self, before: Option<&SealedArc>, change: &Change) {
        if change.key.kind != Kind::Certificate {
            return;
        }
        let known = self.0.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some(day) = before.and_then(last_day)
            && let Some(count) = known.get_mut(&day)
        {
            *count -= 1;
            if *count == 0 {
                known.remove(&day);
            }
        }
        if let Some(day) = change.new.as_ref().and_then(last_day) {
            *known.entry(day).or_default() += 1;
        }
    }

    fn within(&self, now: i64) -> [u64; WITHIN.len()] {
        let known = self.0.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        let today = now.div_euclid(DAY);
        WITHIN.map(|days| known.range(..today + days).map(|(_, count)| count).sum())
    }
}

/// The day on which a certificate ends. A start reads a million of them, so nothing else of it is
/// read (RFC 5280, section 4.1).
fn last_day(sealed: &SealedArc) -> Option<i64> {
    let Value::Certificate(certificate) = &sealed.resource()?.value else {
        return None;
    };
    end(certificate.chain.first()?)
}

fn end(leaf: &[u8]) -> Option<i64> {
    let (_, certificate, _) = element(leaf)?;
    let (_, mut rest, _) = element(certificate)?;
    // A version, which has a tag of its own and may be left out; serial, algorithm, issuer.
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (tag, end, _) = element(element(validity)?.2)?;
    let digits = |from: usize, to: usize| -> Option<i64> {
        str::from_utf8(end.get(from..to)?).ok()?.parse().ok()
    };
    let (year, at) = match tag {
        GENERALIZED_TIME => (digits(0, 4)?, 4),
        // Years of two digits (section 4.1.2.5.1).
        _ => match digits(0, 2)? {
            year @ 0..50 => (2000 + year, 2),
            year => (1900 + year, 2),
        },
    };
    Some(day(year, digits(at, at + 2)?, digits(at + 2, at + 4)?))
}

/// The tag of the version of a certificate, and that of times with years of four digits.
const VERSION: u8 = 0xa0;
const GENERALIZED_TIME: u8 = 0x18;

/// The tag and content of the first element of DER, and what comes behind it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..0x80 => (usize::from(short), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let fits = bytes.len() <= 4;
            let length = bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (fits.then_some(length)?, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Days since 1970 of a date of the Gregorian calendar, whose year is taken to begin in March.
fn day(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
        - 719_468
}

impl fmt::Debug for Expiries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("certificates_expiring")
    }
}

impl EncodeMetric for Expiries {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let counts = self.within(clock::unix_seconds());
        for (days, count) in WITHIN.into_iter().zip(counts) {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            let labels = [("within_days", days)];
            encoder.encode_family(&labels)?.encode_gauge(&count)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::{DAY, Expiries, day, end};

    fn leaf(year: i32, month: u8) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, month, 28);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_last_day_of_a_certificate_is_read_in_both_forms_of_time() {
        assert_eq!((day(1970, 1, 1), day(2000, 3, 1)), (0, 11_017));
        assert_eq!(end(&leaf(2027, 2)), Some(day(2027, 2, 28)));
        assert_eq!(end(&leaf(2075, 12)), Some(day(2075, 12, 28)));
        assert_eq!(end(b""), None);
        let whole = leaf(2027, 2);
        for length in 0..100 {
            assert_eq!(end(&whole[..length]), None);
        }
    }

    #[test]
    fn certificates_are_counted_by_days_left() {
        let expiries = Expiries::default();
        for day in [99, 100, 100, 105, 189, 190] {
            *expiries.0.lock().unwrap().entry(day).or_default() += 1;
        }
        assert_eq!(expiries.within(100 * DAY + 5), [1, 3, 4, 4, 4, 5]);
    }
}
