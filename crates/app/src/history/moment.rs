//! Moments as people write and read them: in UTC, to the millisecond.

use myriad_base::clock;

/// The most bytes of a moment as written.
const TEXT_BYTES_MAX: usize = 64;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The present moment, in milliseconds since the epoch.
pub fn now() -> i64 {
    i64::try_from(clock::since_epoch().as_millis()).unwrap_or(i64::MAX)
}

/// A moment as RFC 3339 has it.
pub fn text(at: i64) -> String {
    let (days, of_day) = (at.div_euclid(DAY), at.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let (hour, minute) = (of_day / HOUR, of_day / MINUTE % 60);
    let (second, millis) = (of_day / SECOND % 60, of_day % SECOND);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// A span as people say it, such as `3m 20s`.
pub fn span(millis: i64) -> String {
    let seconds = millis.max(0) / SECOND;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, minutes) => format!("{minutes}m {rest}s"),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

/// Reads a moment that somebody wrote at `now`: RFC 3339, a time of the last day in UTC, a span
/// before now, or `now`.
///
/// # Errors
/// A text for people, with the forms that there are.
pub fn parse(written: &str, now: i64) -> Result<i64, String> {
    let text = written.trim();
    let read = match text.strip_prefix('-') {
        _ if text.len() > TEXT_BYTES_MAX || !text.is_ascii() => None,
        _ if text == "now" => Some(now),
        Some(span) => read_span(span).and_then(|span| now.checked_sub(span)),
        None => read_clock(text, now).or_else(|| read_date(text)),
    };
    read.ok_or_else(|| {
        let shown: String = written.chars().take(TEXT_BYTES_MAX).collect();
        format!(
            "{shown:?} is no time: give 14:03 or 14:03:30 of the last 24 hours (UTC), -10m for ten \
             minutes ago (s, m, h or d), now, or 2026-01-31T14:03:00Z"
        )
    })
}

/// A number with its unit.
fn read_span(text: &str) -> Option<i64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        _ => return None,
    };
    digits(number)?.checked_mul(unit)
}

/// A time of the day, which was today, or yesterday where it is still to come.
fn read_clock(text: &str, now: i64) -> Option<i64> {
    let of_day = read_time(text)?;
    let today = now - now.rem_euclid(DAY) + of_day;
    Some(if today > now { today - DAY } else { today })
}

/// `hh:mm`, `hh:mm:ss` or that with a fraction, in milliseconds.
fn read_time(text: &str) -> Option<i64> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, read_fraction(fraction)?),
        None => (text, 0),
    };
    let mut parts = whole.split(':');
    let (hour, minute) = (two(parts.next()?)?, two(parts.next()?)?);
    let second = match parts.next() {
        Some(second) => two(second)?,
        None if text.contains('.') => return None,
        None => 0,
    };
    let is_time = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    is_time.then_some(hour * HOUR + minute * MINUTE + second * SECOND + fraction)
}

/// A date, `T` or a space, a time, and `Z` or how far the clock is ahead of UTC.
fn read_date(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let year = digits(parts.next().filter(|year| year.len() == 4)?)?;
    let (month, day) = (two(parts.next()?)?, two(parts.next()?)?);
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (time, ahead) = match rest.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let at = rest.rfind(['+', '-'])?;
            let (time, zone) = rest.split_at(at);
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            (time, sign * read_time(zone.get(1..)?)?)
        }
    };
    let (year, month_from_march) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * DAY + read_time(time)? - ahead)
}

/// The milliseconds of a fraction of a second.
fn read_fraction(text: &str) -> Option<i64> {
    digits(text)?;
    let mut shown: String = text.chars().take(3).collect();
    while shown.len() < 3 {
        shown.push('0');
    }
    digits(&shown)
}

fn two(text: &str) -> Option<i64> {
    digits(text).filter(|_| text.len() == 2)
}

/// A number of few digits and nothing else.
fn digits(text: &str) -> Option<i64> {
    let is_number = (1..=9).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// Year, month and day of a day since the epoch (Howard Hinnant's civil_from_days).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::{DAY, HOUR, MINUTE, SECOND, parse, span, text};

    /// 2026-11-21T06:00:00Z.
    const NOW: i64 = 1_795_240_800 * SECOND;

    #[test]
    fn a_moment_is_read_in_every_form_that_people_write() {
        for (written, read) in [
            ("now", NOW),
            ("-10m", NOW - 10 * MINUTE),
            ("-90s", NOW - 90 * SECOND),
            ("-2h", NOW - 2 * HOUR),
            ("-1d", NOW - DAY),
            ("05:59", NOW - MINUTE),
            ("06:00:00", NOW),
            ("06:01", NOW + MINUTE - DAY),
            ("2026-11-21T06:00:00Z", NOW),
            ("2026-11-21 06:00:00.5Z", NOW + 500),
            ("2026-11-21T08:00:00+02:00", NOW),
            ("2026-11-21T05:30:00.25-00:30", NOW + 250),
            ("2000-02-29T12:30:01Z", 951_827_401 * SECOND),
            ("1970-01-01T00:00:00Z", 0),
        ] {
            assert_eq!(parse(written, NOW), Ok(read), "{written}");
        }
    }

    #[test]
    fn what_is_no_moment_is_told_with_the_forms_that_there_are() {
        let long = "9".repeat(10_000);
        for written in [
            "",
            "-",
            "-m",
            "-10",
            "-10x",
            "14",
            "14:3",
            "24:00",
            "14:60",
            "1:02",
            "14:03.5",
            "--1m",
            "2026-11-21",
            "2026-13-21T06:00:00Z",
            "2026-11-21T06:00:00",
            "2026-11-32T06:00:00Z",
            "yesterday",
            "14:03é",
            "-99999999999d",
            &long,
        ] {
            let problem = parse(written, NOW).expect_err(written);
            assert!(
                problem.contains("-10m") && problem.contains("14:03"),
                "{problem}"
            );
            assert!(problem.len() < 400, "{problem}");
        }
    }

    #[test]
    fn a_moment_is_shown_as_it_is_read() {
        for at in [0, NOW, NOW + 7, 951_827_401_123, 4_102_444_800_000] {
            assert_eq!(parse(&text(at), NOW), Ok(at));
        }
        assert_eq!(text(NOW + 7), "2026-11-21T06:00:00.007Z");
        let spans = [5_900, 65_000, 3_700_000, 90_000_000].map(span);
        assert_eq!(spans, ["5s", "1m 5s", "1h 1m", "1d 1h"]);
    }
}
